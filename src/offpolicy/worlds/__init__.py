"""Environments with a known value, to test estimators in."""

from offpolicy.worlds.base import Simulated, World
from offpolicy.worlds.classification import Classification
from offpolicy.worlds.items import Items
from offpolicy.worlds.linear import Linear
from offpolicy.worlds.open_bandit import OpenBandit
from offpolicy.worlds.synthetic import NonLinear, Synthetic
from offpolicy.worlds.toy import Toy
from offpolicy.worlds.variants import Unlogged, Users

__all__ = [
    "Classification",
    "Items",
    "Linear",
    "NonLinear",
    "OpenBandit",
    "Simulated",
    "Synthetic",
    "Toy",
    "Unlogged",
    "Users",
    "World",
]

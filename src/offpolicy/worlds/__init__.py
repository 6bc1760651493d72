"""Environments with a known value, to test estimators in."""

from offpolicy.worlds.base import Simulated, World
from offpolicy.worlds.cascade import Cascade
from offpolicy.worlds.classification import Classification
from offpolicy.worlds.continuous import Continuous, DoseResponse
from offpolicy.worlds.diverse import Diverse
from offpolicy.worlds.documents import RankedDocuments
from offpolicy.worlds.doses import Doses
from offpolicy.worlds.items import Items
from offpolicy.worlds.linear import Linear
from offpolicy.worlds.lists import ListWorld
from offpolicy.worlds.open_bandit import OpenBandit
from offpolicy.worlds.pricing import Pricing
from offpolicy.worlds.ranking import Ranking
from offpolicy.worlds.synthetic import NonLinear, Synthetic
from offpolicy.worlds.toy import Toy
from offpolicy.worlds.two_doses import TwoDoses
from offpolicy.worlds.variants import Unlogged, Users
from offpolicy.worlds.warfarin import Warfarin

__all__ = [
    "Cascade",
    "Classification",
    "Continuous",
    "Diverse",
    "DoseResponse",
    "Doses",
    "Items",
    "Linear",
    "ListWorld",
    "NonLinear",
    "OpenBandit",
    "Pricing",
    "RankedDocuments",
    "Ranking",
    "Simulated",
    "Synthetic",
    "Toy",
    "TwoDoses",
    "Unlogged",
    "Users",
    "Warfarin",
    "World",
]

"""Simulated environments with a known value, to test estimators in."""

from offpolicy.worlds.base import World
from offpolicy.worlds.linear import Linear
from offpolicy.worlds.toy import Toy

__all__ = ["Linear", "Toy", "World"]

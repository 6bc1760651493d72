"""Simulated environments with a known value, to test estimators in."""

from offpolicy.worlds.base import World
from offpolicy.worlds.linear import Linear

__all__ = ["Linear", "World"]

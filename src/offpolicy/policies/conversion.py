"""`as_policy`: a policy from anything that users pass as one."""

from __future__ import annotations

from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.data.checks import array
from offpolicy.policies.base import Policy
from offpolicy.policies.candidates import Candidates
from offpolicy.policies.classifier import is_model, model_advice
from offpolicy.policies.functions import Function
from offpolicy.policies.tables import Column, Columns, Table
from offpolicy.policies.two_tower import TwoTower


def as_policy(policy: Any) -> Policy:
    """A policy from a policy, a column name or pattern, a pair of list columns, a matrix or a callable."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str):
        return Columns(policy) if "*" in policy else Column(policy)
    if isinstance(policy, tuple) and len(policy) == 2 and all(isinstance(name, str) for name in policy):
        return Candidates(*policy)
    if isinstance(policy, type):
        raise InputError(f"{policy.__name__} is a class; write {policy.__name__}(…).")
    if isinstance(policy, TwoTower):
        raise InputError(
            "TwoTower gives scores, not probabilities; write op.Softmax(op.TwoTower(…)) or op.EpsilonGreedy(…)."
        )
    if is_model(policy):
        raise InputError(model_advice(policy))
    if callable(policy):
        return Function(policy)
    shape = array(policy, "policy").shape
    if len(shape) == 2:
        return Table(policy)
    if len(shape) == 1:
        raise InputError(
            "a flat list of numbers is ambiguous: write `Fixed(...)` for one probability per action, or `Column(...)` for "
            "the probability of each logged action."
        )
    raise InputError(
        f"cannot read a policy from {type(policy).__name__}; give a policy, a callable, a rounds × actions matrix, "
        "the name of a column, or a pair of list columns."
    )

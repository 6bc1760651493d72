"""Policies as text: `p_new`, `p_new_*`, `actions,probabilities`, `uniform`, `deterministic:best`, or `module:object`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.core.imports import imported
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.deterministic import Deterministic
from offpolicy.policies.tables import Column, Uniform

NAMED: dict[str, Callable[[str], Policy]] = {"column": Column, "deterministic": Deterministic, "uniform": Uniform}
"""Policies by name, each of a column of the log."""


def names_module(text: str) -> bool:
    """Whether a text is `module:object`, so that it would import a module."""
    return ":" in text and text.partition(":")[0] not in NAMED


def policy(text: str) -> Policy:
    """A policy from text.

    >>> policy("uniform"), policy("uniform:items"), policy("deterministic:best").columns, policy("p_new")
    (Uniform(), Uniform(candidates='items'), ('best',), Column('p_new'))
    """
    name, colon, column = text.partition(":")
    if names_module(text):
        try:
            return as_policy(_created(text, imported(text)))
        except InputError as error:
            raise InputError(str(error) if text in str(error) else f"{text}: {error}") from None
    if colon and not column:
        raise InputError(f"policy {text!r}: name a column of the log, such as {name}:COLUMN.")
    if colon:
        return NAMED[name](column)
    if name == "uniform":
        return Uniform()
    if "," in text:
        names = tuple(part.strip() for part in text.split(","))
        if len(names) != 2:
            raise InputError(f"policy {text!r}: a pair of list columns is two names, ACTIONS,PROBABILITIES.")
        return as_policy(names)
    return as_policy(text)


def _created(text: str, named: Any) -> Any:
    """An instance of a class of policies that needs no arguments; any other object as it is."""
    if not isinstance(named, type):
        return named
    if not issubclass(named, Policy):
        raise InputError(f"{text} is a class, but not one of policies; give an op.Policy or a function of the context.")
    try:
        return named()
    except (TypeError, InputError):
        line = f"new = {named.__name__}(…)"
        raise InputError(
            f"{text} is a class that needs arguments. Create the policy in a Python file, such as `{line}` in "
            "my_policies.py, and give my_policies:new."
        ) from None

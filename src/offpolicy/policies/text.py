"""Policies as text: `p_new`, `p_new_*`, `actions,probabilities`, `uniform`, `deterministic:best`, or `module:object`.

For actions that are numbers also `deterministic:a,b` for vectors, `normal:mean,4`, `shift:by=2` and `shift:times=1.05`; for
lists `plackett-luce:items,scores`, `shuffled`, `shuffled:items` and `factored:uniform`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.core.imports import imported
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.deterministic import Deterministic
from offpolicy.policies.factored import Factored
from offpolicy.policies.normal import Normal
from offpolicy.policies.plackett_luce import PlackettLuce
from offpolicy.policies.shift import Shift
from offpolicy.policies.tables import Column, Uniform


def _deterministic(text: str) -> Policy:
    """One column of actions, or one per dimension."""
    return Deterministic([part.strip() for part in text.split(",")] if "," in text else text)


def _normal(text: str) -> Policy:
    """MEAN,SD: each a number or a column."""
    mean, comma, sd = (part.strip() for part in text.partition(","))
    if not comma or not mean or not sd or "," in sd:
        raise InputError(f"policy 'normal:{text}': give the mean and the standard deviation, such as normal:mean,4.")
    return Normal(_number(mean, mean), _number(sd, sd))


def _shift(text: str) -> Policy:
    """by=NUMBER or times=NUMBER; several numbers, one per dimension, are separated by |."""
    name, _, value = (part.strip() for part in text.partition("="))
    moved = [_number(part) for part in value.split("|")]
    if name not in ("by", "times") or None in moved:
        raise InputError(f"policy 'shift:{text}': give shift:by=NUMBER or shift:times=NUMBER, such as shift:times=1.05.")
    return Shift(**{name: moved[0] if len(moved) == 1 else moved})


def _plackett_luce(text: str) -> Policy:
    """SCORES of all items, or ITEMS,SCORES, and perhaps a temperature: list columns, and a number."""
    names = [part.strip() for part in text.split(",")]
    temperature = _number(names[-1]) if len(names) > 1 else None
    columns = names if temperature is None else names[:-1]
    if not 1 <= len(columns) <= 2 or not all(columns):
        raise InputError(f"policy 'plackett-luce:{text}': give plackett-luce:ITEMS,SCORES, two list columns.")
    return PlackettLuce(columns[-1], temperature or 1.0, columns[0] if len(columns) > 1 else None)


def _shuffled(text: str) -> Policy:
    """All orders of the items in a list column are equally likely."""
    return PlackettLuce(0, candidates=text)


def _factored(text: str) -> Policy:
    """The same policy over the items in every slot."""
    if names_module(text):
        raise InputError(f"policy 'factored:{text}': write op.Factored(…) in the module, and name that object instead.")
    return Factored(policy(text))


def _number(text: str, otherwise: Any = None) -> Any:
    try:
        return float(text)
    except ValueError:
        return otherwise


NAMED: dict[str, Callable[[str], Policy]] = {
    "column": Column, "deterministic": _deterministic, "uniform": Uniform, "normal": _normal, "shift": _shift,
    "plackett-luce": _plackett_luce, "shuffled": _shuffled, "factored": _factored,
}  # fmt: skip
"""Policies by name, each of what follows the colon: a column of the log, or numbers."""
EXAMPLES = {"normal": "MEAN,SD", "shift": "times=1.05", "plackett-luce": "ITEMS,SCORES", "factored": "uniform"}


def names_module(text: str) -> bool:
    """Whether a text is `module:object`, so that it would import a module."""
    return ":" in text and text.partition(":")[0] not in NAMED


def policy(text: str) -> Policy:
    """A policy from text.

    >>> policy("uniform"), policy("uniform:items"), policy("deterministic:best").columns, policy("p_new")
    (Uniform(), Uniform(candidates='items'), ('best',), Column('p_new'))
    >>> policy("deterministic:a,b").columns, policy("normal:usual,4").mean, policy("shift:times=1.05")
    (('a', 'b'), 'usual', Shift(by=None, times=1.05))
    >>> policy("plackett-luce:items,scores,0.5"), policy("factored:uniform")
    (PlackettLuce('scores', temperature=0.5, candidates='items'), Factored(Uniform()))
    """
    name, colon, column = text.partition(":")
    if names_module(text):
        try:
            return as_policy(_created(text, imported(text)))
        except InputError as error:
            raise InputError(str(error) if text in str(error) else f"{text}: {error}") from None
    if colon and not column:
        if name in EXAMPLES:
            raise InputError(f"policy {text!r}: write it as {name}:{EXAMPLES[name]}.")
        raise InputError(f"policy {text!r}: name a column of the log, such as {name}:COLUMN.")
    if colon:
        return NAMED[name](column)
    if name in ("uniform", "shuffled"):
        return Uniform() if name == "uniform" else PlackettLuce(0)
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

"""Estimators as text: `DR`, `clipped-ips:clip=10`, `learned-mips:posterior=gaussian`, or `module:object`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.core.imports import imported
from offpolicy.estimators import REGISTRY, Estimator
from offpolicy.models.posteriors.base import Posterior
from offpolicy.models.posteriors.categorical import Categorical
from offpolicy.models.posteriors.gaussian import Gaussian
from offpolicy.models.posteriors.logistic import Logistic
from offpolicy.models.rewards.base import RewardModel
from offpolicy.models.rewards.ridge.model import Ridge
from offpolicy.models.rewards.torch import AdamW, Torch


def is_own(text: str) -> bool:
    """Whether an estimator is the user's own, `module:object`, and not one of ours with its settings."""
    module, _, attribute = text.partition(":")
    return plain_name(module) not in _registered() and attribute.replace(".", "_").isidentifier()


def own_estimator(text: str) -> Any:
    """What the user wrote: an estimator, its class, or a function of a log and a policy."""
    with redirect_stdout(sys.stderr):  # what it prints must not mix with the answer
        found = imported(text)
    if isinstance(found, type):
        if not issubclass(found, Estimator):
            raise InputError(f"{text}: is a class; give an object of it, an op.Estimator, or a function of (log, target).")
        try:
            found = found()
        except (TypeError, ValueError) as error:
            raise InputError(f"{text}: cannot be made without settings ({error}); name an object of it.") from None
    if not callable(found) and not isinstance(found, Estimator):
        raise InputError(
            f"{text}: is {type(found).__name__}; give an op.Estimator, or a function of (log, target) that gives a number."
        )
    return found


def plain_name(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _registered() -> dict[str, type[Estimator]]:
    return {plain_name(name): kind for name, kind in REGISTRY.items()}


POSTERIORS: dict[str, type[Posterior]] = {"logistic": Logistic, "gaussian": Gaussian, "categorical": Categorical}
REWARDS: dict[str, type[RewardModel]] = {"ridge": Ridge, "adamw": AdamW, "network": Torch}
WHOLE_NUMBERS = ("cross_fit", "rank", "clusters", "rows", "epochs", "batch", "seed", "neighbours")


def estimator(text: str) -> Estimator:
    """An estimator from its name and settings, those of its posterior and of its reward model among them, or module:object.

    >>> estimator("clipped-ips:clip=10").clip, estimator("dr").name
    (10.0, 'DR')
    >>> estimator("learned-mips:inputs=both,posterior=gaussian,bandwidth=0.3,rank=4").posterior
    Gaussian(bandwidth=0.3, neighbours=None, scale=True)
    """
    if is_own(text):
        found = own_estimator(text)
        if not isinstance(found, Estimator):
            raise InputError(f"{text}: is a function; only `offpolicy bench` takes those. Give an op.Estimator.")
        return found
    name, _, options = text.partition(":")
    kind = _registered().get(plain_name(name))
    if kind is None:
        raise unknown_name("estimator", name, REGISTRY)
    given: dict[str, str] = {}
    for option in filter(None, options.split(",")):
        key, separator, value = option.partition("=")
        if not separator:
            raise InputError(f"estimator {text!r}: {option!r} is no setting; write NAME=VALUE.")
        given[key.strip().replace("-", "_")] = value.strip()
    own = {f.name for f in dataclasses.fields(kind) if f.name not in ("subsets", "candidates", "left_out")}
    parts: dict[str, Any] = {}
    for part, kinds in (("posterior", POSTERIORS), ("rewards", REWARDS)):
        if part in own:
            made = _part(text, part, kinds, given, own)
            parts |= {} if made is None else {part: made}
    unknown = next((key for key in given if key not in own), None)
    every_kind: dict[str, Any] = {**POSTERIORS, **REWARDS}
    other = next((n for n, k in every_kind.items() if unknown in {f.name for f in dataclasses.fields(k)}), None)
    if unknown is not None and other is not None and own & {"posterior", "rewards"}:
        raise InputError(f"estimator {text!r}: {unknown} is a setting of {other}, which is not what is chosen here.")
    if unknown is not None:
        settable: list[Any] = [
            k for part, each in (("posterior", POSTERIORS), ("rewards", REWARDS)) if part in own for k in each.values()
        ]
        every = own | {f.name for k in settable for f in dataclasses.fields(k)}
        raise InputError(f"estimator {text!r}: {unknown_name('setting', unknown, sorted(every))}")
    return kind(**parts, **{key: _value(text, key, value) for key, value in given.items() if key not in parts})


def _part(text: str, part: str, kinds: Mapping[str, type[Any]], given: dict[str, str], own: set[str]) -> Any:
    """A posterior or a reward model, from its name and from settings that belong to one; None where none was given."""
    chosen = given.pop(part, None)
    if part == "posterior" and chosen == "auto":
        return chosen
    if chosen is not None and chosen not in kinds:
        raise InputError(f"estimator {text!r}: {unknown_name(part, chosen, kinds)}")
    candidates = [kinds[chosen]] if chosen is not None else list(kinds.values())
    for kind in candidates:
        settings = {f.name for f in dataclasses.fields(kind)} - own
        used = [key for key in given if key in settings]
        if used or chosen is not None:
            return kind(**{key: _value(text, key, given.pop(key)) for key in used})
    return None


def _value(text: str, key: str, value: str) -> Any:
    """A number, true or false, or a word."""
    if value in ("true", "false"):
        return value == "true"
    try:
        return int(value) if key in WHOLE_NUMBERS else float(value)
    except ValueError:
        if key in WHOLE_NUMBERS or not value[:1].isalpha():
            kind = "a whole number" if key in WHOLE_NUMBERS else "a number"
            raise InputError(f"estimator {text!r}: {key} must be {kind}, not {value!r}.") from None
        return value

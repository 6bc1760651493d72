"""Estimators as text: `DR`, `clipped-ips:clip=10`, `learned-mips:posterior=gaussian`, or `module:object`.

A reward model or a posterior is named by its kind, or imported: `dr:rewards=module:object`. `learned-mips.published` is the
form of the paper, as `op.LearnedMIPS.published()` is.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.core.imports import Named, imported, made
from offpolicy.estimators import REGISTRY, Estimator
from offpolicy.models.posteriors.base import Posterior
from offpolicy.models.rewards.base import RewardModel

PARTS: dict[str, tuple[type[Named], str]] = {"posterior": (Posterior, "logistic"), "rewards": (RewardModel, "ridge")}
"""Settings that are objects with their own settings: the base class, and the kind that owns a setting that several have."""
NOT_AS_TEXT = ("subsets", "candidates", "left_out", "prior", "others")
PUBLISHED = ".published"
"""The ending of the name of an estimator in its published form, which takes fewer settings."""


def is_own(text: str) -> bool:
    """Whether the text is `module:object`, an estimator of the user, rather than one of the package with settings."""
    module, _, attribute = text.partition(":")
    return plain_name(module.removesuffix(PUBLISHED)) not in _registered() and attribute.replace(".", "_").isidentifier()


def split_name(text: str) -> tuple[str | None, str]:
    """The NAME in NAME=estimator, or None; and the estimator.

    >>> split_name("mine = module:object"), split_name("clipped-ips:clip=10")
    (('mine', 'module:object'), (None, 'clipped-ips:clip=10'))
    """
    name, separator, rest = text.partition("=")
    return (name.strip(), rest.strip()) if separator and ":" not in name else (None, text.strip())


def own_objects(text: str) -> list[str]:
    """Every `module:object` that the text of an estimator names: the estimator, or parts of it."""
    if is_own(text):
        return [text]
    return [value for part, value in _options(text) if part in PARTS and ":" in value]


def own_estimator(text: str) -> Any:
    """Import an estimator of the user: an object, its class, or a function of a log and a policy."""
    estimator = imported(text)
    if isinstance(estimator, type):
        if not issubclass(estimator, Estimator):
            raise InputError(f"{text} is a class; give an instance of it, an op.Estimator, or a function of (log, target).")
        estimator = made(text, estimator, {})
    if not callable(estimator) and not isinstance(estimator, Estimator):
        raise InputError(
            f"{text} has type {type(estimator).__name__}; give an op.Estimator, or a function of (log, target) that "
            "returns a number."
        )
    return estimator


def plain_name(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _registered() -> dict[str, type[Estimator]]:
    return {plain_name(name): kind for name, kind in REGISTRY.items()}


def _options(text: str) -> list[tuple[str, str]]:
    """The settings as written, NAME=VALUE; the value is empty if there is no `=`."""
    options = (option.partition("=") for option in text.partition(":")[2].split(",") if option)
    return [(key.strip().replace("-", "_"), value.strip()) for key, _, value in options]


def estimator(text: str) -> Estimator:
    """An estimator from its name and settings, including those of its posterior and reward model, or from `module:object`.

    >>> estimator("clipped-ips:clip=10").clip, estimator("dr").name
    (10.0, 'DR')
    >>> estimator("learned-mips:reading=rips").reading.name
    'RIPS'
    >>> estimator("learned-mips:inputs=both,posterior=gaussian,bandwidth=0.3,rank=4").posterior
    Gaussian(bandwidth=0.3, neighbours=None, scale=True)
    """
    if is_own(text):
        custom = own_estimator(text)
        if not isinstance(custom, Estimator):
            raise InputError(f"{text} is a function; give an op.Estimator here.")
        return custom
    name, _, options = text.partition(":")
    kind = _registered().get(plain_name(name.removesuffix(PUBLISHED)))
    maker = getattr(kind, PUBLISHED[1:], None) if name.endswith(PUBLISHED) else kind
    if kind is None or maker is None:
        raise unknown_name("estimator", name, REGISTRY)
    bad = next((option for option in options.split(",") if option and "=" not in option), None)
    if bad is not None:
        raise InputError(f"estimator {text!r}: {bad!r} is not a setting; write NAME=VALUE.")
    values = dict(_options(text))
    takes = inspect.signature(maker).parameters
    own = {name: type_ for name, type_ in _settings(kind).items() if name not in NOT_AS_TEXT and name in takes}
    kinds = {part: _kinds(part) for part in PARTS}
    chosen = {part: _part(text, part, kinds[part], values, own) for part in PARTS if part in own}
    parts = {part: made for part, made in chosen.items() if made is not None}
    unknown = next((key for key in values if key not in own), None)
    if unknown is not None:
        other = next((n for named in kinds.values() for n, cls in named.items() if unknown in _settings(cls)), None)
        if other is not None and chosen:
            raise InputError(f"estimator {text!r}: {unknown} is a setting of {other}, which is not used here.")
        settable = {name for part in chosen for cls in kinds[part].values() for name in _settings(cls)}
        raise InputError(f"estimator {text!r}: {unknown_name('setting', unknown, sorted({*own, *settable}))}")
    return maker(**parts, **{key: _value(text, key, value, own[key]) for key, value in values.items() if key not in parts})


def _settings(cls: type) -> dict[str, str]:
    """The settings of a class, with their types as written."""
    return {f.name: str(f.type) for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}


def _kinds(part: str) -> dict[str, type[Any]]:
    """The package's own kinds, in the order in which settings are looked up, whatever else has been imported."""
    family, first = PARTS[part]
    ours = {kind: cls for kind, cls in family.kinds().items() if cls.__module__.startswith("offpolicy.")}
    return {first: ours[first], **ours}


def _part(text: str, part: str, kinds: dict[str, type[Any]], values: dict[str, str], own: dict[str, str]) -> Any:
    """A posterior or a reward model, from its name and its settings; None if the text has neither."""
    chosen = values.pop(part, None)
    if part == "posterior" and chosen == "auto":
        return chosen
    candidates = list(kinds.values())
    if chosen is not None and ":" in chosen:
        own_part = imported(chosen)
        if not isinstance(own_part, type):
            return own_part
        candidates = [own_part]
    elif chosen is not None:
        named = PARTS[part][0].kinds()
        if chosen not in named:
            raise InputError(f"estimator {text!r}: {unknown_name(part, chosen, named)}")
        candidates = [named[chosen]]
    for kind in candidates:
        settings = {name: type_ for name, type_ in _settings(kind).items() if name not in own}
        used = [key for key in values if key in settings]
        if used or chosen is not None:
            return made(chosen or kind.kind, kind, {key: _value(text, key, values.pop(key), settings[key]) for key in used})
    return None


def _value(text: str, key: str, value: str, type_: str) -> Any:
    """A number, several separated by |, true or false, a word, or an estimator of lists."""
    if "OfSlots" in type_:
        return estimator(value)
    whole = "int" in (words := re.findall(r"\w+", type_)) and "float" not in words
    if value in ("true", "false"):
        return value == "true"
    try:
        if "|" in value:
            return [float(part) for part in value.split("|")]
        return int(value) if whole else float(value)
    except ValueError:
        if whole or not value[:1].isalpha():
            kind = "a whole number" if whole else "a number"
            raise InputError(f"estimator {text!r}: {key} must be {kind}, not {value!r}.") from None
        return value

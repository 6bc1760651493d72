"""The estimators of an experiment: ours by their settings, MIPS (true) of the world, or the user's own by module:object."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from offpolicy.errors import InputError
from offpolicy.estimators import MIPS, REGISTRY, Estimator
from offpolicy.log import Log
from offpolicy.policy import Policy
from offpolicy.settings import estimator, imported
from offpolicy.worlds import World

MIPS_TRUE = "mips-true"

Function = Callable[[Log, Policy], float]


@dataclass(frozen=True)
class Entry:
    """An estimator under a label."""

    label: str
    text: str
    features: bool = False
    """Whether it sees pre-defined features of actions, and not their identities only."""
    worlds: int | None = None
    """Run in the first so many worlds only: for what is slow."""

    @property
    def identity(self) -> str:
        """What its numbers depend on: its settings, and for a user's own the source of its module."""
        if not self.foreign:
            return self.text
        module = sys.modules.get(self.text.partition(":")[0])
        try:
            source = inspect.getsource(module) if module is not None else ""
        except (OSError, TypeError):
            source = ""
        return f"{self.text} {hashlib.sha256(source.encode()).hexdigest()[:16]}"

    @property
    def foreign(self) -> bool:
        """Whether it is the user's own."""
        module, _, attribute = self.text.partition(":")
        known = {name.lower() for name in REGISTRY}
        return _name(module) not in known and attribute.replace(".", "_").isidentifier()

    def build(self, world: World) -> Estimator | Function:
        """The estimator itself."""
        if self.text == MIPS_TRUE:
            if world.exact is None:
                raise InputError("p(e|a) of this world is not known.")
            return MIPS(world.exact, name=self.label)
        if not self.foreign:
            return dataclasses.replace(estimator(self.text), name=self.label)
        own = _own(self.text)
        return dataclasses.replace(own, name=self.label) if isinstance(own, Estimator) else own


def _own(text: str) -> Estimator | Function:
    """What the user wrote: an estimator, its class, or a function."""
    found = imported(text)
    found = found() if isinstance(found, type) and issubclass(found, Estimator) else found
    if not callable(found) and not isinstance(found, Estimator):
        raise InputError(
            f"{text}: is {type(found).__name__}; give an op.Estimator, or a function of (log, target) that gives a number."
        )
    own: Estimator | Function = found
    return own


def _name(text: str) -> str:
    return text.partition(":")[0].replace("-", "").replace("_", "").lower()


def entry(label: str, given: Any, features: bool) -> Entry:
    """From TOML: the estimator as text, or a table with `estimator` and `worlds`."""
    settings = {"estimator": given} if isinstance(given, str) else given
    known = {"estimator", "worlds"}
    if not isinstance(settings, dict) or "estimator" not in settings or set(settings) - known:
        raise InputError(f"{label}: {given!r} is no estimator; write text, or a table of `estimator` and `worlds`.")
    made = Entry(label, settings["estimator"], features, settings.get("worlds"))
    check(made)
    return made


def check(made: Entry) -> None:
    """Raise now for what is misspelt, and not in every run."""
    if made.foreign:
        _own(made.text)
    elif made.text != MIPS_TRUE:
        estimator(made.text)


def from_text(text: str) -> Entry:
    """From a command line: LABEL=estimator, or the estimator alone."""
    label, separator, rest = text.partition("=")
    if separator and ":" not in label and "," not in label:
        made = Entry(label.strip(), rest.strip(), _sees_features(rest))
    else:
        made = Entry(text, text.strip(), _sees_features(text))
    check(made)
    return made


def _sees_features(text: str) -> bool:
    return _name(text) in ("mips", "mdr", "mipstrue") or "inputs=features" in text or "inputs=both" in text

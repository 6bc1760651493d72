"""The estimators of an experiment: built-in ones, MIPS (true) of the world, or the user's own as module:object."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.core.imports import check_import
from offpolicy.data.log import Log
from offpolicy.estimators import MIPS, Estimator
from offpolicy.estimators.text import estimator, is_own, own_estimator, own_objects, plain_name, split_name
from offpolicy.policies.base import Policy
from offpolicy.worlds import World

MIPS_TRUE = "mips-true"

Function = Callable[[Log, Policy], float]


@dataclass(frozen=True)
class Entry:
    """An estimator under a label."""

    label: str
    text: str
    features: bool = False
    """Whether it uses pre-defined features of actions, not only their identities."""
    worlds: int | None = None
    """Run only in this many worlds, the first ones, because it is slow."""

    @property
    def identity(self) -> str:
        """What its values depend on: its settings, and for a user's own the source code of its modules or packages."""
        if not self.foreign:
            return self.text
        files: list[Path] = []
        for text in own_objects(self.text):
            top = sys.modules.get(text.partition(":")[0].partition(".")[0])
            where = getattr(top, "__path__", None) or [getattr(top, "__file__", None) or ""]
            files += sorted(f for p in map(Path, where) for f in ([p] if p.is_file() else p.rglob("*.py")))
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
        return f"{self.text} {digest.hexdigest()[:16]}"

    @property
    def foreign(self) -> bool:
        """Whether the estimator, or a part of it, is the user's own."""
        return bool(own_objects(self.text))

    def build(self, world: World) -> Estimator | Function:
        """The estimator itself."""
        if self.text == MIPS_TRUE:
            if world.exact is None:
                raise InputError("p(e|a) of this world is unknown.")
            return MIPS(world.exact, name=self.label)
        built = own_estimator(self.text) if is_own(self.text) else estimator(self.text)
        return dataclasses.replace(built, name=self.label) if isinstance(built, Estimator) else built


def entry(label: str, value: Any, features: bool, imports: Sequence[str] = ()) -> Entry:
    """From TOML: an estimator as text, or a table with `estimator` and `worlds`. It may only name objects of `imports`."""
    settings = {"estimator": value} if isinstance(value, str) else value
    if (
        not isinstance(settings, dict)
        or not isinstance(settings.get("estimator"), str)
        or set(settings) - {"estimator", "worlds"}
    ):
        raise InputError(f"{label}: {value!r} is not an estimator; write text, or a table of `estimator` and `worlds`.")
    worlds = settings.get("worlds")
    if worlds is not None and (type(worlds) is not int or worlds < 1):
        raise InputError(f"{label}: worlds is {worlds!r}; give a whole number from 1.")
    made = Entry(label, settings["estimator"], features, worlds)
    for named in own_objects(made.text):
        check_import(label, named, imports)
    check(made)
    return made


def check(made: Entry) -> None:
    """Raise for misspelled estimators before anything runs."""
    if is_own(made.text):
        own_estimator(made.text)
    elif made.text != MIPS_TRUE:
        estimator(made.text)


def from_text(text: str) -> Entry:
    """From the command line: NAME=estimator, or the estimator alone."""
    name, rest = split_name(text)
    made = Entry(text if name is None else name, rest, _sees_features(rest))
    check(made)
    return made


def _sees_features(text: str) -> bool:
    return (
        plain_name(text.partition(":")[0]) in ("mips", "mdr", "mipstrue")
        or "inputs=features" in text
        or "inputs=both" in text
    )

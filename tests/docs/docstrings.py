"""Public names with their signatures and NumPy-style docstrings, and what the two disagree on."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Protocol

import offpolicy
from offpolicy import worlds

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
NAMES = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : (.+))?$")


@dataclass(frozen=True)
class Documented:
    """A public function, class, method or property."""

    module: str
    """Below `offpolicy`, such as `data.log`."""
    name: str
    """Within its module, such as `Log.batches`."""
    object: Any
    docstring: str
    """Of its own: nothing is inherited."""

    def __str__(self) -> str:
        return self.name

    def problems(self) -> list[str]:
        """What a reader of the docstring would miss, or read and not find in the signature."""
        found = [*self._about_the_summary()]
        parameters = self._section("Parameters")
        # Results, which nobody constructs, may call their fields attributes.
        described = parameters | (self._section("Attributes") if dataclasses.is_dataclass(self.object) else {})
        found += [f"no description of {name}" for name in sorted(self.parameters - described.keys())]
        found += [f"no type of {name}" for name in sorted(described) if described[name] in ("", "Any")]
        found += [f"{name} is described, and is not a parameter" for name in sorted(parameters.keys() - self.parameters)]
        return found

    def _about_the_summary(self) -> Iterator[str]:
        summary = self.docstring.partition("\n\n")[0]
        if not summary:
            yield "no docstring"
        elif "\n" in summary:
            yield "the summary is longer than a line"
        elif not summary.endswith((".", "?")):
            yield "the summary does not end with a period"

    @cached_property
    def parameters(self) -> frozenset[str]:
        """The names in the signature that a caller gives."""
        if not callable(self.object) or _constructed_by_others(self.object):
            return frozenset()
        names = list(inspect.signature(self.object).parameters)
        if inspect.isfunction(self.object) and "." in self.name and names[:1] in (["self"], ["cls"]):
            names = names[1:]
        return frozenset(name for name in names if not name.startswith("_"))

    def _section(self, title: str) -> dict[str, str]:
        """The names that a section describes, with their types."""
        parts = SECTION.split(self.docstring)
        body = dict(zip(parts[1::2], parts[2::2], strict=True)).get(title, "")
        lines = (NAMES.match(line) for line in body.splitlines())
        return {name.lstrip("*"): line[2] or "" for line in lines if line for name in line[1].split(", ")}


def public() -> list[Documented]:
    """Every public name, and the public methods and properties of public classes, each where it is defined."""
    names = [getattr(offpolicy, name) for name in offpolicy.__all__ if name != "__version__"]
    found: dict[str, Documented] = {}
    for each in [*names, *(getattr(worlds, name) for name in worlds.__all__)]:
        for documented in [_documented(each, each.__module__, each.__qualname__), *_members(each)]:
            found.setdefault(str(documented), documented)
    return list(found.values())


def _members(each: Any) -> Iterator[Documented]:
    classes = [base for base in inspect.getmro(each) if _is_ours(base)] if inspect.isclass(each) else []
    for place, base in enumerate(classes):
        for name, member in vars(base).items():
            inherited = any(name in vars(other) for other in classes[place + 1 :])
            if name.startswith("_") or not _is_method(member) or (inherited and not member.__doc__):
                continue  # an override without a docstring is documented by what it overrides
            yield _documented(getattr(member, "__func__", member), base.__module__, f"{base.__qualname__}.{name}")


def _is_ours(base: type) -> bool:
    return base.__module__.startswith("offpolicy.") and not base.__name__.startswith("_")


def _is_method(member: Any) -> bool:
    return inspect.isfunction(member) or isinstance(member, (property, cached_property, classmethod, staticmethod))


def _documented(each: Any, module: str, name: str) -> Documented:
    generated = dataclasses.is_dataclass(each) and (each.__doc__ or "").startswith(f"{each.__name__}(")
    docstring = "" if generated else inspect.cleandoc(each.__doc__ or "")
    return Documented(module.removeprefix("offpolicy."), name, each, docstring)


def _constructed_by_others(each: Any) -> bool:
    """Enumerations and protocols, which nobody calls, and exceptions, which take a message."""
    return inspect.isclass(each) and (issubclass(each, (Enum, BaseException)) or Protocol in each.__mro__)

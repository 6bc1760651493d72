"""`Named`: classes that are found by the kind that they state, and not in a list elsewhere."""

from __future__ import annotations

from typing import ClassVar, Self, TypeVar

from offpolicy.core.errors import InputError
from offpolicy.core.imports import import_all

C = TypeVar("C")


class Named:
    """The base of a family of classes, of which each may state its `kind`. Those of other modules count once imported."""

    kind: ClassVar[str]

    @classmethod
    def kinds(cls) -> dict[str, type[Self]]:
        """The classes below this one by their kind, those of its own package first."""
        package = cls.__module__.rpartition(".")[0]
        import_all(package)
        stated = [below for below in _below(cls) if "kind" in vars(below)]
        found: dict[str, type[Self]] = {}
        for each in sorted(stated, key=lambda c: (not c.__module__.startswith(f"{package}."), c.kind)):
            first = found.get(each.kind, each)
            if _place(first) != _place(each):
                raise InputError(
                    f"{_place(first)} and {_place(each)} state the same kind, {each.kind!r}; rename one of them."
                )
            found[each.kind] = each  # of a module that was loaded again, the newest
        return found


def _below(cls: type[C]) -> list[type[C]]:
    return [found for each in cls.__subclasses__() for found in (each, *_below(each))]


def _place(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"

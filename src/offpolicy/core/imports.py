"""What is found by name: objects that users give as `module:object`, packages that only some need, and classes by kind."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from offpolicy.core.errors import InputError, unknown_name

C = TypeVar("C")


def check_import(where: str, text: str, allowed: Sequence[str]) -> None:
    """Raise where a file names an object of a module that was not allowed: importing runs code, and users choose that."""
    module = text.partition(":")[0]
    if module not in allowed:
        raise InputError(
            f"{where} names {text!r}, and importing {module!r} runs its code. A file may not choose that: if you trust it, "
            f"add --import {module}, or name the object on the command line."
        )


def names_object(text: str) -> bool:
    """Whether it has the form `module:object`, and is not a path."""
    module, _, attribute = text.partition(":")
    return all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def imported(text: str) -> Any:
    """The object that `module:object` names; modules in the working folder are found, too."""
    module_name, _, attribute = text.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        with redirect_stdout(sys.stderr):  # what it prints must not mix with the answer
            found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        raise InputError(f"{text}: cannot import {module_name!r} (looked in {Path.cwd()} too): {error}") from None
    except AttributeError:
        names = [name for name in vars(sys.modules[module_name]) if not name.startswith("_")]
        raise InputError(f"{text}: {unknown_name(f'object in {module_name}', attribute, names)}") from None
    except (Exception, SystemExit) as error:
        raise InputError(f"{text}: importing {module_name!r} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    return found


def made(text: str, cls: type, settings: dict[str, Any]) -> Any:
    """An object of a class that a user named."""
    try:
        return cls(**settings)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        how = "with these" if settings else "without"
        raise InputError(f"{text}: cannot be made {how} settings ({error}); name an object of it.") from None


def pandas(instead: str) -> Any:
    """The package, for a data frame; `instead` names the method that needs none."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise InputError(
            f"to_frame() gives a pandas data frame, and pandas is not installed; {instead} needs none."
        ) from None


class Named:
    """The base of a family of classes, of which each may state its `kind`. Those of other modules count once imported."""

    kind: ClassVar[str]

    @classmethod
    def kinds(cls) -> dict[str, type[Self]]:
        """The classes below this one by their kind, those of its own package first."""
        package = cls.__module__.rpartition(".")[0]
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
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

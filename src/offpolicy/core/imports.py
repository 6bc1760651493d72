"""Lookup by name: objects given as `module:object`, optional packages, and classes by their kind."""

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
    """Raise if a file names an object of a module that the user has not allowed: importing a module runs its code."""
    module = text.partition(":")[0]
    if module not in allowed:
        raise InputError(
            f"{where} names {text!r}, and importing {module!r} would run its code, which a file may not decide. If you "
            f"trust the module, add --import {module}, or name the object on the command line."
        )


def names_object(text: str) -> bool:
    """Whether a text has the form `module:object` and is not a path."""
    module, _, attribute = text.partition(":")
    return all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def imported(text: str) -> Any:
    """Import the object that `module:object` names; modules in the working folder are also found."""
    module_name, _, attribute = text.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        with redirect_stdout(sys.stderr):  # its output must not mix with the answer
            target: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            target = getattr(target, part)
    except ModuleNotFoundError as error:
        raise InputError(f"{text}: cannot import {module_name!r} (also searched {Path.cwd()}): {error}") from None
    except AttributeError:
        names = [name for name in vars(sys.modules[module_name]) if not name.startswith("_")]
        raise InputError(f"{text}: {unknown_name(f'object in {module_name}', attribute, names)}") from None
    except (Exception, SystemExit) as error:
        raise InputError(f"{text}: importing {module_name!r} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    return target


def made(text: str, cls: type, settings: dict[str, Any]) -> Any:
    """Create an object of a class that a user named."""
    try:
        return cls(**settings)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        how = "with these" if settings else "without"
        raise InputError(f"{text}: cannot be created {how} settings ({error}); name an instance instead.") from None


def torch(otherwise: str) -> Any:
    """Import PyTorch, an optional package; `otherwise` is the error where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise InputError(otherwise) from None


def pandas(instead: str) -> Any:
    """Import pandas for a data frame; `instead` names the method that does not need it."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise InputError(
            f"to_frame() returns a pandas data frame, and pandas is not installed; {instead} does not need it."
        ) from None


class Named:
    """Base of a family of classes that can be looked up by their `kind`, including imported ones from other modules."""

    kind: ClassVar[str]

    @classmethod
    def kinds(cls) -> dict[str, type[Self]]:
        """The subclasses by kind, those of its own package first."""
        package = cls.__module__.rpartition(".")[0]
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
        stated = [each for each in _subclasses(cls) if "kind" in vars(each)]
        kinds: dict[str, type[Self]] = {}
        for each in sorted(stated, key=lambda c: (not c.__module__.startswith(f"{package}."), c.kind)):
            first = kinds.get(each.kind, each)
            if _place(first) != _place(each):
                raise InputError(
                    f"{_place(first)} and {_place(each)} have the same kind, {each.kind!r}; rename one of them."
                )
            kinds[each.kind] = each  # if a module was reloaded, the newest class
        return kinds


def _subclasses(cls: type[C]) -> list[type[C]]:
    return [below for each in cls.__subclasses__() for below in (each, *_subclasses(each))]


def _place(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"

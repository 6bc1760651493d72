"""What all saved files share: a format with a version, a checksum, and words for what is wrong with a file.

Files are data: numbers, text and labels, read as such. Nothing in them names code to be run, and nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.core.memory import Budget, size

VERSIONS = {"embedding": 1, "rewards": 1, "result": 1}
"""The kinds of saved files, and the newest version of each that this program reads and writes."""
PREFIX = "offpolicy/"


def stamp(kind: str) -> dict[str, Any]:
    """What a file says that it is."""
    return {"format": PREFIX + kind, "version": VERSIONS[kind]}


def check_stamp(path: Path, kind: str, told: Mapping[str, Any]) -> None:
    """Raise where a file is of another kind, or newer than this program."""
    name, version = told.get("format"), told.get("version")
    if not isinstance(name, str) or name.removeprefix(PREFIX) not in VERSIONS:
        raise InputError(f"{path}: is not a saved {kind}. Load what `save` has written.")
    if name != PREFIX + kind:
        other = name.removeprefix(PREFIX)
        raise InputError(f"{path}: holds a saved {other}, not a saved {kind}; op.load_{other}(…) reads it.")
    if type(version) is not int or version < 1:
        raise damaged(path, f"its version is {version!r:.40}")
    if version > VERSIONS[kind]:
        raise InputError(
            f"{path}: was saved by a newer offpolicy, in version {version} of the format; this one reads up to version "
            f"{VERSIONS[kind]}. Upgrade offpolicy, or save it again with this version."
        )


def damaged(path: Path, what: str) -> InputError:
    """The error for a file that cannot be what `save` has written."""
    return InputError(f"{path}: {what}. The file is damaged or was edited; save it again, or take another copy.")


def digest(*parts: bytes | memoryview) -> str:
    """A checksum of parts in their order: against accidents. Whoever wants to deceive can compute it, too."""
    told = hashlib.sha256()
    for part in parts:
        told.update(len(part).to_bytes(8, "little"))
        told.update(part)
    return told.hexdigest()


def check_digest(path: Path, told: Any, *parts: bytes | memoryview) -> None:
    if told != digest(*parts):
        raise damaged(path, "its content does not match its checksum")


def exact(value: Any) -> bytes:
    """One value, one text: what checksums of JSON are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def as_json(path: Path, text: bytes) -> Any:
    """Strict JSON: no name twice, no NaN, no number that is too large to be one."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("a name occurs twice")
        return dict(pairs)

    def refused(word: str) -> Any:
        raise ValueError(f"{word} is no JSON")

    def finite(digits: str) -> float:
        if math.isinf(number := float(digits)):
            raise ValueError(f"{digits[:40]} is too large")
        return number

    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=once, parse_constant=refused, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it is no readable JSON ({error})") from None


def check_room(path: Path, bytes_: float) -> None:
    """Raise where what a file says it holds would fill the memory."""
    if bytes_ > Budget.of(None).bytes:
        raise InputError(
            f"{path}: would take {size(bytes_)} of memory, more than a quarter of this machine's; it is not read."
        )


def content(path: Path) -> bytes:
    """All of a file, if there is room for it."""
    try:
        check_room(path, path.stat().st_size)
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}.") from None

"""What all saved files share: a format with a version, a checksum, errors for damaged files, and arrays as safetensors.

Files are data: numbers, text and labels, read as such. Nothing in them names code to be run, and nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.errors import InputError
from offpolicy.core.files import whole_file
from offpolicy.core.memory import Budget, size

VERSIONS = {"embedding": 1, "rewards": 1, "result": 2}
"""The kinds of saved files, and the newest version of each that this program reads and writes."""
PREFIX = "offpolicy/"
METADATA = "__metadata__"
CHECKSUM = "sha256"


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


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Arrays with some text about them, as a safetensors file that appears whole or not at all."""
    from safetensors.numpy import save

    parts = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    header, told, data = _parsed(path, save(parts, dict(metadata)))
    with whole_file(path) as draft:
        draft.write_bytes(save(parts, {**told, CHECKSUM: digest(exact(header), exact(told), data)}))


def read_arrays(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """The arrays and the text of a safetensors file, checked against its checksum."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    whole = content(path)
    header, metadata, data = _parsed(path, whole)
    try:
        arrays = {name: array.copy() for name, array in load(whole).items()}
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise damaged(path, f"its arrays cannot be read ({error})") from None
    check_digest(path, metadata.pop(CHECKSUM, None), exact(header), exact(metadata), data)
    return arrays, metadata


def _parsed(path: Path, whole: bytes) -> tuple[dict[str, Any], dict[str, str], memoryview]:
    """Where each array lies, the text about them, and the bytes of the arrays: what the checksum is taken of."""
    length = int.from_bytes(whole[:8], "little")
    if len(whole) < 8 or length > len(whole) - 8:
        raise damaged(path, "it is too short to be a safetensors file")
    header = as_json(path, whole[8 : 8 + length])
    metadata = header.pop(METADATA, {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise damaged(path, "its header is not that of a safetensors file")
    return header, metadata, memoryview(whole)[8 + length :]

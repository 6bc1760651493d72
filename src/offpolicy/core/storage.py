"""What all saved files share: a versioned format, a checksum, errors for damaged files, and arrays as safetensors.

Files contain only data: numbers, text and labels. They never name code to run, and nothing is pickled.
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

VERSIONS = {"embedding": 1, "monitor": 1, "rewards": 1, "result": 2}
"""The kinds of saved files, and the newest version of each that this release reads and writes."""
PREFIX = "offpolicy/"
METADATA = "__metadata__"
CHECKSUM = "sha256"


def stamp(kind: str) -> dict[str, Any]:
    """The format and version that a file states."""
    return {"format": PREFIX + kind, "version": VERSIONS[kind]}


def check_stamp(path: Path, kind: str, header: Mapping[str, Any]) -> None:
    """Raise if a file is of another kind, or newer than this release."""
    name, version = header.get("format"), header.get("version")
    if not isinstance(name, str) or name.removeprefix(PREFIX) not in VERSIONS:
        raise InputError(f"{path} is not a saved {kind}. Load a file that was written by `save`.")
    if name != PREFIX + kind:
        other = name.removeprefix(PREFIX)
        raise InputError(f"{path}: contains a saved {other}, not a saved {kind}; op.load_{other}(…) reads it.")
    if type(version) is not int or version < 1:
        raise damaged(path, f"its version is {version!r:.40}")
    if version > VERSIONS[kind]:
        raise InputError(
            f"{path} was saved by a newer release of offpolicy, in version {version} of the format; this release reads up "
            f"to version {VERSIONS[kind]}. Upgrade offpolicy, or save the file again with this release."
        )


def damaged(path: Path, what: str) -> InputError:
    """The error for a file that `save` cannot have written."""
    return InputError(f"{path}: {what}. The file is damaged or was edited; save it again, or use another copy.")


def digest(*parts: bytes | memoryview) -> str:
    """A checksum of parts in their order. It detects accidents, not deliberate changes."""
    checksum = hashlib.sha256()
    for part in parts:
        checksum.update(len(part).to_bytes(8, "little"))
        checksum.update(part)
    return checksum.hexdigest()


def check_digest(path: Path, stated: Any, *parts: bytes | memoryview) -> None:
    if stated != digest(*parts):
        raise damaged(path, "its content does not match its checksum")


def exact(value: Any) -> bytes:
    """The canonical text of a JSON value, for checksums."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def as_json(path: Path, text: bytes) -> Any:
    """Parse strict JSON: no repeated names, no NaN, no number that overflows."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("a name occurs twice")
        return dict(pairs)

    def refused(word: str) -> Any:
        raise ValueError(f"{word} is not valid JSON")

    def finite(digits: str) -> float:
        if math.isinf(number := float(digits)):
            raise ValueError(f"{digits[:40]} is too large")
        return number

    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=once, parse_constant=refused, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it is not readable JSON ({error})") from None


def check_room(path: Path, bytes_: float) -> None:
    """Raise if the contents that a file states would not fit into memory."""
    if bytes_ > Budget.of(None).bytes:
        raise InputError(
            f"{path} was not read, because it needs {size(bytes_)}, more than a quarter of this machine's memory."
        )


def content(path: Path) -> bytes:
    """Read a whole file if it fits into memory."""
    try:
        check_room(path, path.stat().st_size)
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}.") from None


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write arrays and text metadata atomically, as a safetensors file."""
    from safetensors.numpy import save

    parts = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    header, text, data = _parsed(path, save(parts, dict(metadata)))
    with whole_file(path) as draft:
        draft.write_bytes(save(parts, {**text, CHECKSUM: digest(exact(header), exact(text), data)}))


def read_arrays(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Read the arrays and the metadata of a safetensors file, and verify its checksum."""
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
    """The layout of the arrays, the metadata and the bytes of the arrays: what the checksum covers."""
    length = int.from_bytes(whole[:8], "little")
    if len(whole) < 8 or length > len(whole) - 8:
        raise damaged(path, "it is too short to be a safetensors file")
    header = as_json(path, whole[8 : 8 + length])
    metadata = header.pop(METADATA, {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise damaged(path, "its header is not that of a safetensors file")
    return header, metadata, memoryview(whole)[8 + length :]

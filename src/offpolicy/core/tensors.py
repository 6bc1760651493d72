"""Arrays in the safetensors format: eight bytes of length, a header in JSON, and the numbers as they lie in memory.

The format is written and read here, strictly, so that no package is needed for it; that of the same name reads our files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.files import whole_file
from offpolicy.core.storage import as_json, check_digest, content, damaged, digest, exact

Arrays = Mapping[str, npt.NDArray[Any]]
KINDS = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "U8": "|u1"}
METADATA = "__metadata__"
CHECKSUM = "sha256"
MOST_DIMENSIONS = 8


def write(path: Path, arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """The arrays with some text about them; the file appears whole or not at all."""
    names = {np.dtype(code): kind for kind, code in KINDS.items()}
    parts = {name: np.asarray(array, order="C") for name, array in sorted(arrays.items())}
    header: dict[str, Any] = {}
    end = 0
    for name, array in parts.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": [start, end]}
    told = {**metadata, CHECKSUM: _digest(header, metadata, b"".join(array.tobytes() for array in parts.values()))}
    text = json.dumps({METADATA: told, **header}).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    with whole_file(path) as draft, draft.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for array in parts.values():
            file.write(array.tobytes())


def read(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """The arrays and the text of a file, every byte of which is accounted for."""
    whole = content(path)
    length = int.from_bytes(whole[:8], "little")
    if len(whole) < 8 or length > len(whole) - 8:
        raise damaged(path, "it is too short to be a safetensors file")
    header = as_json(path, whole[8 : 8 + length])
    metadata = header.pop(METADATA, {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise damaged(path, "its header is not that of a safetensors file")
    data = memoryview(whole)[8 + length :]
    arrays = {name: _array(path, name, entry, data) for name, entry in header.items()}
    places = sorted(entry["data_offsets"] for entry in header.values())
    if [start for start, _ in places] != [0, *(stop for _, stop in places)][: len(places)] or (
        (places[-1][1] if places else 0) != len(data)
    ):
        raise damaged(path, "its arrays overlap, leave gaps or do not reach its end")
    told = metadata.pop(CHECKSUM, None)
    check_digest(path, told, exact(header), exact(metadata), data)
    return arrays, metadata


def _array(path: Path, name: str, entry: Any, data: memoryview) -> npt.NDArray[Any]:
    known = isinstance(entry, dict) and set(entry) == {"dtype", "shape", "data_offsets"}
    if not known or not isinstance(entry["dtype"], str) or entry["dtype"] not in KINDS:
        raise damaged(path, f"the array {name!r} is described in no way that is known")
    shape, places = entry["shape"], entry["data_offsets"]
    whole = all(isinstance(part, list) and all(type(n) is int and n >= 0 for n in part) for part in (shape, places))
    dtype = np.dtype(KINDS[entry["dtype"]])
    if not whole or len(places) != 2 or len(shape) > MOST_DIMENSIONS or not places[0] <= places[1] <= len(data):
        raise damaged(path, f"the array {name!r} lies outside the file")
    if math.prod(shape) * dtype.itemsize != places[1] - places[0]:
        raise damaged(path, f"the array {name!r} of shape {shape} does not fill its {places[1] - places[0]:,} bytes")
    return np.frombuffer(data[places[0] : places[1]], dtype).reshape(shape).copy()


def _digest(header: Mapping[str, Any], metadata: Mapping[str, str], data: bytes) -> str:
    return digest(exact(header), exact(dict(metadata)), data)

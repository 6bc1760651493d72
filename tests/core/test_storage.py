"""Arrays in files: every byte counts, and a broken file is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offpolicy as op
from offpolicy.core import storage


def raw(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def one(**other: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8], **other}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "too short"),
        (b"\x01\x00\x00", "too short"),
        ((1 << 62).to_bytes(8, "little") + b"{}", "too short"),
        (raw(b"\xff\xfe"), "not readable JSON"),
        (raw(b"[" * 100_000), "not readable JSON"),
        (raw(b'{"a": NaN}'), "NaN is not valid JSON"),
        (raw(b'{"a": 1, "a": 2}'), "a name occurs twice"),
        (raw([1]), "its header is not that of"),
        (raw({"__metadata__": {"a": 1}}), "its header is not that of"),
        (raw(one(dtype="O"), bytes(8)), "its arrays cannot be read"),
        (raw(one(more=1), bytes(8)), "does not match its checksum"),
        (raw(one(dtype=["F64"]), bytes(8)), "its arrays cannot be read"),
        (raw(b'{"a": 1e999}'), "1e999 is too large"),
        (raw(one(shape=[-1]), bytes(8)), "its arrays cannot be read"),
        (raw(one(shape=[True]), bytes(8)), "its arrays cannot be read"),
        (raw(one(data_offsets=[0, 80]), bytes(8)), "its arrays cannot be read"),
        (raw(one(data_offsets=[8, 0]), bytes(8)), "its arrays cannot be read"),
        (raw(one(shape=[2]), bytes(8)), "its arrays cannot be read"),
        (raw(one(shape=[1 << 62, 1 << 62]), bytes(8)), "its arrays cannot be read"),
        (raw(one(), bytes(16)), "its arrays cannot be read"),
        (raw({**one(), "b": one()["a"]}, bytes(8)), "its arrays cannot be read"),
        (raw(one(), bytes(8)), "does not match its checksum"),
    ],
)
def test_a_broken_safetensors_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "q.safetensors"
    path.write_bytes(content)
    with pytest.raises(op.InputError, match=message):
        storage.read_arrays(path)


def test_every_byte_of_a_safetensors_file_counts(tmp_path: Path) -> None:
    path = tmp_path / "q.safetensors"
    arrays = {
        "a": np.arange(3.0),
        "b": np.array(2.5, np.float32),
        "c": np.zeros((0, 2), np.int64),
        "d": np.arange(3, dtype=np.uint8),
    }
    storage.write_arrays(path, arrays, {"x": "y"})
    found, metadata = storage.read_arrays(path)
    assert metadata == {"x": "y"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    whole = path.read_bytes()
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    assert header["__metadata__"]["x"] == "y"
    for at in range(len(whole)):
        if whole[at : at + 1] == b" ":
            continue  # spaces between words mean nothing
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(op.InputError, match="q.safetensors"):
            storage.read_arrays(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(op.InputError, match="its arrays cannot be read"):
        storage.read_arrays(path)

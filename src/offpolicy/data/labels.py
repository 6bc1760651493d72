"""Labels: plain Arrow values of what users give, and where some labels stand among others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from offpolicy.core.arrays import IntArray
from offpolicy.core.errors import InputError


def decoded(column: pa.Array) -> pa.Array:
    """Plain values of a dictionary-encoded column (a pandas categorical, for one); Arrow cannot sort half floats."""
    column = column.dictionary_decode() if pt.is_dictionary(column.type) else column
    return column.cast(pa.float32()) if pt.is_float16(column.type) else column


def to_arrow(values: npt.ArrayLike | Sequence[Any], name: str) -> pa.Array:
    """Values of one plain type as an Arrow array."""
    try:
        return decoded(pa.array(values))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: values of mixed or unsupported types; use one plain type such as text.") from None


def places(known: npt.NDArray[Any], wanted: npt.NDArray[Any], whose: str) -> IntArray:
    """Where each wanted label stands among the known ones.

    >>> places(np.array(["a", "b"]), np.array(["b", "a"]), "the model").tolist()
    [1, 0]
    """
    at = {label: k for k, label in enumerate(known.tolist())}
    unknown = [label for label in wanted.tolist() if label not in at]
    if unknown:
        shown = ", ".join(map(repr, unknown[:3])) + (", …" if len(unknown) > 3 else "")
        example = repr(next(iter(at), None))
        raise InputError(
            f"{whose} does not know {len(unknown):,} of the {len(wanted):,} actions of the log: {shown}. (It knows "
            f"{len(at):,}, such as {example}.) Learn it from a log with these actions, or leave them out."
        )
    return np.array([at[label] for label in wanted.tolist()], dtype=np.int64)

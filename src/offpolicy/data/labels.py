"""Actions: their labels, in the order of every column of every policy and table, and the code of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from offpolicy.core.arrays import IntArray
from offpolicy.core.errors import InputError

FEWEST_DOUBTED = 10_000
"""Below so many actions, codes that were never logged cost nothing to speak of."""


@dataclass(frozen=True)
class Actions:
    """`count` actions. Without `labels`, integers are their own codes 0..count−1.

    >>> Actions.listed(["red", "blue"]).encode(pa.array(["blue", "green"]))[0].tolist()
    [1, -1]
    """

    count: int
    labels: pa.Array | None = None

    @classmethod
    def listed(cls, labels: Sequence[Any] | npt.NDArray[Any] | pa.Array) -> Actions:
        """Labels in the order the user gave."""
        array = labels if isinstance(labels, pa.Array) else to_arrow(labels, "actions")
        if pt.is_nested(array.type):
            raise InputError(f"`actions` must be a flat list of labels; these are {array.type}.")
        if len(pc.unique(array)) != len(array) or array.null_count:
            raise InputError("`actions` must list each label once, with no missing one.")
        return cls(len(array), array)

    @classmethod
    def seen(cls, values: pa.Array | pa.ChunkedArray) -> Actions:
        """The labels that occur, sorted."""
        try:
            distinct = pc.unique(values)
            return cls.listed(distinct.take(pc.sort_indices(distinct)))
        except pa.ArrowException:
            raise InputError(f"actions are of type {values.type}; give numbers or text, one an action.") from None

    @classmethod
    def codes(cls, largest: int, rows: int, name: str) -> Actions:
        """Codes up to the largest one seen; ids that only look like codes are refused."""
        if largest >= max(FEWEST_DOUBTED, rows):
            raise InputError(
                f"{name}: integer actions are read as codes 0..n−1, and the largest here is {largest:,} in {rows:,} rows. "
                'If these are ids, pass actions="labels" (--actions labels) to number those that occur, or list them; '
                "if they are codes, say how many there are with n_actions (--n-actions)."
            )
        return cls(int(largest) + 1)

    def encode(self, column: pa.Array) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """The code of each value, and which values are unknown."""
        column = decoded(column)
        if self.labels is None:
            column = _whole(column) if pt.is_string(column.type) else column
            if not pt.is_integer(column.type):
                raise InputError(f"actions are integer codes here, but a column of {column.type} names some.")
            codes: IntArray = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
            return codes, (codes < 0) | (codes >= self.count)
        if column.type != self.labels.type:
            try:
                column = column.cast(self.labels.type)
            except pa.ArrowException:
                raise InputError(
                    f"actions are {self.labels.type} labels, but a column of {column.type} names some."
                ) from None
        found = pc.index_in(column, value_set=self.labels)
        codes = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, codes < 0

    def to_numpy(self) -> npt.NDArray[Any]:
        if self.labels is None:
            return np.arange(self.count)
        array: npt.NDArray[Any] = self.labels.to_numpy(zero_copy_only=False)
        return array

    def unknown(self, examples: Sequence[Any]) -> tuple[str, str]:
        """Words for an error about actions that are not among these: what was seen, and what to do."""
        shown = ", ".join(dict.fromkeys(repr(label) for label in examples))
        if self.labels is None:
            return f"have an action code outside 0..{self.count - 1} ({shown})", (
                "Integer actions are codes 0..n−1: correct `n_actions=` (--n-actions), or name all labels (--catalog)."
            )
        return f"have an action that is not among the {self.count:,} known ({shown})", (
            "Add it to `actions=` or to the catalog (--catalog), or correct the log."
        )


def _whole(column: pa.Array) -> pa.Array:
    """Text as whole numbers, where it is nothing else."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowException:
        return column


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

"""`Candidates`: policies over the eligible actions of each round, from list columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offpolicy.core.arrays import FloatArray, IntArray, sums_by
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.checks import to_arrow
from offpolicy.data.list_cells import plain_lists
from offpolicy.data.log import Log
from offpolicy.policies.base import Policy, check_sums
from offpolicy.policies.blocks import ActionLists, Listed

SHOWN = 5
"""How many entries of a list an error message quotes."""


@final
@dataclass(frozen=True)
class Eligible(ActionLists):
    """The actions that are eligible in each round, as the log lists them."""

    n_actions: int

    @classmethod
    def named(cls, name: str, batch: Batch, policy: str) -> Eligible:
        """From a list column of the log, decoded once for all policies that read it."""
        if name not in batch.memo:
            batch.memo[name] = cls.of(plain_lists(batch.extra[name]), batch, policy)
        eligible: Eligible = batch.memo[name]
        return eligible

    @classmethod
    def required(cls, name: str, batch: Batch, policy: str) -> Eligible:
        """The same for a policy that needs at least one candidate in every round."""
        eligible = cls.named(name, batch, policy)
        empty = np.diff(eligible.starts) == 0
        if empty.any():
            raise RowsError(policy, "have no candidate", batch.row[empty], f"Every round needs at least one in {name!r}.")
        return eligible

    @classmethod
    def of(cls, column: pa.Array, batch: Batch, policy: str) -> Eligible:
        """From a column of lists of actions."""
        lengths = list_lengths(column, policy, "actions")
        flat = column.flatten()
        codes, unknown = batch.space.encode(flat)
        eligible = cls(np.concatenate([[0], np.cumsum(lengths)]), codes, batch.n_actions)
        if flat.null_count:
            rows = np.unique(batch.row[eligible.row[np.asarray(flat.is_null())]])
            raise RowsError(
                policy, "have a missing (null) candidate", rows, "Name every candidate, or leave it out of the list."
            )
        if unknown.any():
            what, advice = batch.space.unknown(flat.filter(pa.array(unknown)).slice(0, 3).to_pylist())
            raise RowsError(policy, what, np.unique(batch.row[eligible.row[unknown]]), advice)
        return eligible

    @cached_property
    def _merged(self) -> tuple[IntArray, IntArray, IntArray] | None:
        """If an action occurs twice in a list: the lists without repeats, and the new place of each entry."""
        key = self.row * self.n_actions + self.codes
        ordered = np.sort(key)
        if not (ordered[1:] == ordered[:-1]).any():
            return None
        distinct, which = np.unique(key, return_inverse=True)
        row, codes = np.divmod(distinct, self.n_actions)
        return np.searchsorted(row, np.arange(len(self.starts))), codes, which

    def with_probabilities(self, probabilities: FloatArray) -> Listed:
        """The lists with a probability per entry; the probabilities of an action that occurs twice are added."""
        if self._merged is None:
            return Listed(self.starts, self.codes, probabilities)
        starts, codes, which = self._merged
        return Listed(starts, codes, sums_by(which, probabilities, len(codes)))


@final
class Candidates(Policy):
    """A policy from two list columns: the eligible actions of each round, and the probability of each.

    In a CSV file, lists are text, such as `a|b|c` and `0.2|0.5|0.3`, or JSON.

    Parameters
    ----------
    actions : str or sequence of lists
        The column of eligible actions, or one list per round, in the order of the log.
    probabilities : str or sequence of lists
        The column of their probabilities, or one list per round. Each list sums to 1.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(None, action=["a", "b"], reward=[1, 0], propensity=[0.5, 0.5], actions=["a", "b", "c"])
    >>> op.evaluate(log, op.Candidates([["a", "b"], ["b", "c"]], [[0.9, 0.1], [0.2, 0.8]]), [op.IPS()])["IPS"].value
    0.9
    """

    def __init__(self, actions: str | Sequence[Any], probabilities: str | Sequence[Any]) -> None:
        self._named = isinstance(actions, str) and isinstance(probabilities, str)
        if not self._named and (isinstance(actions, str) or isinstance(probabilities, str)):
            raise InputError("Candidates: give two column names, or two sequences of lists; this is one of each.")
        self._pair: Any = (actions, probabilities) if self._named else (_lists(actions), _lists(probabilities))

    def __repr__(self) -> str:
        return f"Candidates({self._pair[0]!r}, {self._pair[1]!r})" if self._named else "Candidates(lists in memory)"

    @property
    def columns(self) -> tuple[str, ...]:
        return self._pair if self._named else ()

    def check(self, log: Log) -> None:
        if not self._named:
            log.check_ordered("Candidates", "Put the lists into the DataFrame and give the names of the two columns.")
        if not self._named and not len(self._pair[0]) == len(self._pair[1]) == log.source.rows:
            raise InputError(
                f"Candidates: {len(self._pair[0])} and {len(self._pair[1])} lists for {log.source.rows} rounds."
            )

    @property
    def lists(self) -> bool:
        return True

    @property
    def _name(self) -> str:
        return f"Candidates({self._pair[0]}, {self._pair[1]})" if self._named else "Candidates"

    def listed(self, batch: Batch) -> Listed:
        if self._named:
            actions, numbers = (plain_lists(batch.extra[name]) for name in self._pair)
        else:
            actions, numbers = (column.take(pa.array(batch.row)) for column in self._pair)
        lengths = [list_lengths(c, self._name, w) for c, w in ((actions, "actions"), (numbers, "probabilities"))]
        if actions.null_count or numbers.null_count:
            rows = batch.row[np.asarray(actions.is_null()) | np.asarray(numbers.is_null())]
            raise RowsError(
                self._name, "have no list (an empty cell, or null)", rows, "Every round needs at least one candidate."
            )
        if not np.array_equal(lengths[0], lengths[1]):
            raise self._uneven(batch, actions, numbers, lengths[0] != lengths[1])
        if self._named:
            eligible = Eligible.named(self._pair[0], batch, self._name)
        else:
            eligible = Eligible.of(actions, batch, self._name)
        p = as_numbers(numbers.flatten(), self._name)
        if not p.min(initial=0.0) >= 0:
            rows = np.unique(batch.row[eligible.row[~(p >= 0)]])
            raise RowsError(self._name, "have a negative or missing probability", rows, "Probabilities must be 0 or more.")
        if not lengths[0].all():
            raise RowsError(self._name, "have no candidate", batch.row[lengths[0] == 0], "Every round needs at least one.")
        with np.errstate(over="ignore"):  # an infinite sum is reported below
            sums = np.add.reduceat(p, eligible.starts[:-1])
        check_sums(sums, batch.row, self._name)
        return eligible.with_probabilities(p)

    def _uneven(self, batch: Batch, actions: pa.Array, numbers: pa.Array, uneven: npt.NDArray[np.bool_]) -> RowsError:
        first = int(np.argmax(uneven))
        labels, count = actions[first].as_py(), len(numbers[first])
        what = f"have lists of different lengths (the first: {len(labels):,} actions, {count:,} probabilities)"
        text = (
            f' It was read as {labels[:SHOWN]!r}; if labels contain the separator, write JSON: ["a, b", "c"].'
            if labels and isinstance(labels[0], str)
            else ""
        )
        return RowsError(self._name, what, batch.row[uneven], f"Give each candidate one probability.{text}")

    def distribution(self, batch: Batch) -> FloatArray:
        return self.listed(batch).grid(batch.n_actions)


def check_candidates(policy: str, candidates: Any) -> None:
    """Raise if `candidates` is not the name of a column."""
    if candidates is not None and not isinstance(candidates, str):
        raise InputError(
            f"{policy}: candidates must be the name of one list column of the log; if the lists are in memory, put them "
            "into the table and read it with `read_log`, or use op.Candidates."
        )


def as_numbers(column: pa.Array, name: str) -> FloatArray:
    """Probabilities of a column as numbers."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        raise InputError(f"{name}: contains lists. Candidates need two columns: the actions and their probabilities.")
    try:
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):  # Arrow would read them as text
            raise pa.ArrowTypeError
        values: FloatArray = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        odd = next((v for v in column.slice(0, 1000).to_pylist() if not _is_number(v)), None)
        example = "" if odd is None else f", such as {odd!r}"
        raise InputError(
            f"{name}: contains {column.type}{example}, but probabilities are numbers such as 0.25. (For candidates, give "
            "two list columns: ACTIONS,PROBABILITIES.)"
        ) from None
    return values


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _lists(values: Any) -> pa.Array:
    """One list per round; the rows of a matrix are lists as well."""
    return to_arrow(list(values) if isinstance(values, np.ndarray) else values, "Candidates")


def list_lengths(column: pa.Array, name: str, what: str) -> IntArray:
    """The number of entries of each list."""
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise InputError(
            f"{name}: the column of {what} contains {column.type}, not lists. Write Parquet with list columns, or text such "
            "as a|b|c in CSV."
        )
    lengths: IntArray = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths

"""`Policy`: what every policy must answer, and the checks on its answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import final

import numpy as np

from offpolicy.batch import Batch, FloatArray
from offpolicy.errors import InputError, RowsError
from offpolicy.log import Log
from offpolicy.units import IntArray

SUM_TOLERANCE = 1e-5
BLOCK_ELEMENTS = 1 << 18
"""Elements of a rounds × actions block: 2 MB, so that a block stays in a core's cache while it is worked on."""


def blocks(rows: int, n_actions: int) -> Iterator[slice]:
    """Runs of rows, of about equal length, whose rounds × actions block stays small."""
    count = min(-(-rows * n_actions // BLOCK_ELEMENTS), rows)
    edges = [rows * k // max(count, 1) for k in range(count + 1)]
    return (slice(a, b) for a, b in pairwise(edges))


class Policy(ABC):
    """π(a|x). Subclasses answer for all actions (`_all`); those that can do less work for some override `_some`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the log that the policy reads by name."""
        return ()

    @property
    def whole(self) -> bool:
        """Whether the policy knows the chance of actions that were not logged."""
        return True

    def check(self, log: Log) -> None:  # noqa: B027  (most policies fit every log)
        """Raise if the policy cannot belong to this log. Costs no pass over it."""

    @final
    def probabilities(self, batch: Batch, actions: IntArray | None = None) -> FloatArray:
        """Rounds × actions; or, given codes (one or several a round), the chances of those alone."""
        return self._all(batch) if actions is None else self._some(batch, actions)

    def proportional(self, batch: Batch) -> tuple[FloatArray, bool]:
        """Rounds × actions, and whether each row is still to be divided by its sum.

        A policy that must normalise overrides this: the scoring pass gets the sums from a matrix product it makes anyway.
        """
        return self._all(batch), False

    @abstractmethod
    def _all(self, batch: Batch) -> FloatArray: ...

    def _some(self, batch: Batch, actions: IntArray) -> FloatArray:
        out = np.empty(actions.shape)
        for rows in blocks(len(batch), batch.n_actions):
            wanted = actions[rows].reshape(rows.stop - rows.start, -1)
            out[rows] = np.take_along_axis(self._all(batch.take(rows)), wanted, axis=1).reshape(actions[rows].shape)
        return out


def check_probabilities(p: FloatArray, batch: Batch, name: str) -> FloatArray:
    """Rows must be of the right shape, not negative, and sum to 1."""
    if p.shape != (len(batch), batch.n_actions):
        raise InputError(
            f"{name}: gave shape {p.shape} where rounds × actions is {(len(batch), batch.n_actions)}; "
            "columns follow `log.actions`."
        )
    if not p.min(initial=0.0) >= 0:  # also true where some value is NaN
        rows = batch.row[~(p >= 0).all(axis=1)]
        raise RowsError(name, "have a negative or NaN probability", rows, "Probabilities must be 0 or more.")
    check_sums(p @ np.ones(p.shape[1]), batch.row, name)  # a product is faster than a sum along rows
    return p


def check_sums(sums: FloatArray, rows: IntArray, name: str, where: Callable[[int], str] | None = None) -> None:
    off = np.abs(sums - 1)
    if not (off <= SUM_TOLERANCE).all():
        worst = sums[np.argmax(np.where(np.isnan(off), np.inf, off))]
        bad = rows[~(off <= SUM_TOLERANCE)]
        places = None if where is None else [where(int(row)) for row in bad[:3]]
        what = f"do not sum to 1 (the worst sums to {worst:.6g})"
        raise RowsError(name, what, bad, "Normalise each row first.", where=places)

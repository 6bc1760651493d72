"""`Policy`: what every policy must answer, and the checks on its answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.checks import NUMBERS, floats
from offpolicy.data.log import Log
from offpolicy.data.spaces import Serves
from offpolicy.policies.blocks import Listed, blocks

SUM_TOLERANCE = 1e-5
Score = Callable[[FloatArray], npt.ArrayLike]


class Policy(Serves, ABC):
    """π(a|x). Subclasses answer for all actions (`_all`); those that can do less work for some override `answers`."""

    describes_itself: ClassVar[bool] = True
    """In reports it is shown by its `repr`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the log that the policy reads by name."""
        return ()

    @property
    def whole(self) -> bool:
        """Whether the policy knows the chance of actions that were not logged."""
        return True

    def check(self, log: Log) -> None:
        """Raise if the policy cannot belong to this log. Costs no pass over it."""

    def settled(self, log: Log) -> Policy:  # noqa: ARG002
        """The same with what only a log can tell, such as the names of columns."""
        return self

    @final
    def probabilities(self, batch: Batch, actions: IntArray | None = None) -> FloatArray:
        """Rounds × actions; or, given codes (one or several a round), the chances of those alone."""
        return self._all(batch) if actions is None else self._some(batch, actions)

    def proportional(self, batch: Batch) -> tuple[FloatArray, bool]:
        """Rounds × actions, and whether each row is still to be divided by its sum.

        A policy that must normalise overrides this: the scoring pass gets the sums from a matrix product it makes anyway.
        """
        return self._all(batch), False

    @property
    def accuracy(self) -> float:
        """The part of a chance by which it may be off."""
        return 1e-6

    @property
    def lists(self) -> bool:
        """Whether it can name the few actions of a round that have a chance."""
        return False

    def listed(self, batch: Batch) -> Listed:
        """Those actions with their chances. Only for policies that list."""
        raise NotImplementedError

    def answers(self, batch: Batch, values: FloatArray, row: IntArray, code: IntArray) -> tuple[FloatArray, FloatArray]:
        """Σ_a π(a|x)·values_a of each round (values: actions × columns), and π of some (round, action), rounds ascending.

        Nothing of shape rounds × actions is made for more than a block of rounds.
        """
        sums, chances = np.empty((len(batch), values.shape[1])), np.empty(len(row))
        for rows in blocks(len(batch), batch.n_actions):
            p = self._all(batch.take(rows))
            sums[rows] = p @ values
            some = slice(*np.searchsorted(row, (rows.start, rows.stop)).tolist())
            chances[some] = p[row[some] - rows.start, code[some]]
        return sums, chances

    @abstractmethod
    def _all(self, batch: Batch) -> FloatArray: ...

    def _some(self, batch: Batch, actions: IntArray) -> FloatArray:
        row = np.repeat(np.arange(len(batch)), actions.size // max(len(batch), 1))
        return self.entries(batch, row, actions.ravel()).reshape(actions.shape)

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        """π of some (round, action), rounds ascending."""
        return self.answers(batch, np.empty((batch.n_actions, 0)), row, code)[1]


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
    with np.errstate(over="ignore"):  # a sum of infinity is told of
        sums = p @ np.ones(p.shape[1])  # a product is faster than a sum along rows
    check_sums(sums, batch.row, name)
    return p


def check_sums(
    sums: FloatArray, rows: IntArray, name: str, where: Callable[[int], str] | None = None, advice: str = ""
) -> None:
    off: FloatArray = np.abs(sums - 1)
    if not (off <= SUM_TOLERANCE).all():
        worst = sums[np.argmax(np.where(np.isnan(off), np.inf, off))]
        bad = rows[~(off <= SUM_TOLERANCE)]
        places = None if where is None else [where(int(row)) for row in bad[:3]]
        what = f"do not sum to 1 (the worst sums to {worst:.6g})"
        rounded = "Divide each row by its sum first; numbers rounded to a few digits are a usual cause."
        raise RowsError(name, what, bad, f"{rounded} {advice}".strip(), where=places)


def called(function: Score, batch: Batch, name: str) -> npt.NDArray[Any]:
    """What the user's function says of a batch; what it raises is told with the rows it was asked about."""
    asked = f"rows {batch.row.min()} to {batch.row.max()}, contexts of shape {batch.context.shape}"
    try:
        said = function(batch.context)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{name}: the function raised {type(error).__name__}: {error} ({asked}).") from error
    try:
        read = np.asarray(said)
        return read if read.dtype.kind in NUMBERS else floats(said, name)
    except ValueError:  # InputError among them
        kind = type(said).__name__
        raise InputError(f"{name}: the function gave a {kind} that is no array of numbers ({asked}).") from None

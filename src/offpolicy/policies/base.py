"""`Policy`: what every policy must answer, and the checks on its answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.data.spaces import ActionSpace, Serves
from offpolicy.policies.blocks import Listed, blocks

SUM_TOLERANCE = 1e-5


class Policy(Serves, ABC):
    """π(a|x). A subclass gives the probabilities of all actions with `distribution`, and names the columns it reads.

    Policies over very many actions, which can answer without all of them, also override `answers`.
    """

    describes_itself: ClassVar[bool] = True
    """In reports it is shown by its `repr`."""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "_all" in vars(cls):
            raise InputError(f"{cls.__name__} overrides `_all`, which policies no longer have; rename it to `distribution`.")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the log that the policy reads with `batch.column(name)`; a tuple as a class attribute will do."""
        return ()

    @property
    def whole(self) -> bool:
        """Whether the policy knows the chance of actions that were not logged."""
        return True

    @final
    def over(self, space: ActionSpace) -> Self:
        """The same; raises where it is not a policy over the actions of the space."""
        if mismatch := self.mismatch(space):
            raise InputError(f"{type(self).__name__} is a policy over {mismatch}; give a policy over those.")
        return self

    @final
    def on(self, log: Log) -> Policy:
        """The same, ready for this log; raises where the two do not fit, before a row is read."""
        settled = self.over(log.space).settled(log)
        settled.check(log)
        log.source.check_columns(settled.columns)
        return settled

    def check(self, log: Log) -> None:
        """Raise if the policy cannot belong to this log. Costs no pass over it."""

    def settled(self, log: Log) -> Policy:  # noqa: ARG002
        """The same with what only a log can tell, such as the names of columns."""
        return self

    @final
    def probabilities(self, batch: Batch, actions: IntArray | None = None) -> FloatArray:
        """Rounds × actions; or, given codes (one or several per round), the probabilities of those alone."""
        if actions is None:
            return self.distribution(batch)
        row = np.repeat(np.arange(len(batch)), actions.size // max(len(batch), 1))
        return self.entries(batch, row, actions.ravel()).reshape(actions.shape)

    @abstractmethod
    def distribution(self, batch: Batch) -> FloatArray:
        """The probability of every action in each of some rounds: the one method that a policy of your own must have.

        Parameters
        ----------
        batch
            Some rounds of the log: `batch.context` (rounds × context columns, as in `log.schema.context`),
            `batch.column(name)` for each name in `columns`, `len(batch)` and `batch.n_actions`.

        Returns
        -------
        Rounds × actions, in the order of `log.actions`; each row sums to 1.
        """

    def proportional(self, batch: Batch) -> tuple[FloatArray, bool]:
        """Rounds × actions, and whether each row is still to be divided by its sum.

        A policy that must normalise overrides this: the scoring pass gets the sums from a matrix product it makes anyway.
        """
        return self.distribution(batch), False

    @property
    def accuracy(self) -> float:
        """The part of a chance by which it may be off."""
        return 1e-6

    @property
    def deterministic(self) -> bool:
        """Whether it takes one action per round, `actions`, and gives no probability or density."""
        return False

    def actions(self, batch: Batch) -> npt.NDArray[Any]:
        """The action of each round, as batches hold it. Only for deterministic policies."""
        raise NotImplementedError

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
        if self.lists:
            return self.listed(batch).answers(values, row, code)
        sums, chances = np.empty((len(batch), values.shape[1])), np.empty(len(row))
        for rows in blocks(len(batch), batch.n_actions):
            p = self.distribution(batch.take(rows))
            sums[rows] = p @ values
            some = slice(*np.searchsorted(row, (rows.start, rows.stop)).tolist())
            chances[some] = p[row[some] - rows.start, code[some]]
        return sums, chances

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

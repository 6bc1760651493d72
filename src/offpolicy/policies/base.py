"""`Policy`: the interface of every policy, and the checks on its probabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.core.threads import checkpoint
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.data.spaces import ActionSpace, Serves
from offpolicy.policies.blocks import Listed, blocks
from offpolicy.policies.nodes import Nodes

SUM_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Factors:
    """A softmax of products of vectors, for some rounds: π(a|x_t) ∝ exp(left_t · right_a).

    Attributes
    ----------
    left : array of shape (rounds, k)
        One vector per round.
    right : array of shape (actions, k)
        One vector per action, the same object for every batch.
    """

    left: npt.NDArray[Any]
    right: npt.NDArray[Any]


class Policy(Serves, ABC):
    """Base class of policies π(a|x).

    A subclass implements `distribution` and names the columns it reads in `columns`. Policies over very many actions that do
    not need rounds × actions to compute sums also override `answers`.

    Examples
    --------
    >>> import numpy as np
    >>> import offpolicy as op
    >>> class First(op.Policy):
    ...     def distribution(self, batch):
    ...         return np.eye(batch.n_actions)[np.zeros(len(batch), int)]
    >>> log = op.Log([[0.0], [1.0]], action=[0, 1], reward=[1, 0], propensity=[0.5, 0.5])
    >>> op.evaluate(log, First(), [op.IPS()])["IPS"].value
    1.0
    """

    describes_itself: ClassVar[bool] = True  # reports show its `repr`

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "_all" in vars(cls):
            raise InputError(f"{cls.__name__} overrides `_all`, which no longer exists; rename it to `distribution`.")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the log that the policy reads with `batch.column(name)`; may be a class attribute."""
        return ()

    @property
    def whole(self) -> bool:
        """Whether the policy gives the probabilities of actions that were not logged."""
        return True

    @property
    def whole_batches(self) -> bool:
        """Whether it is evaluated for whole batches of rounds, from one thread, as in `op.WholeBatches`."""
        return False

    @final
    def over(self, space: ActionSpace) -> Self:
        """Return the policy if it is defined over the actions of the space, and raise otherwise.

        Parameters
        ----------
        space : ActionSpace
            The action space of a log.

        Returns
        -------
        Policy
            The policy itself.

        Raises
        ------
        InputError
            If the policy is over another kind of actions.
        """
        if mismatch := self.mismatch(space):
            raise InputError(f"{type(self).__name__} is a policy over {mismatch}; use a policy over those.")
        return self

    @final
    def on(self, log: Log) -> Policy:
        """Prepare the policy for a log. Reads no row.

        Parameters
        ----------
        log : Log
            The log that the policy is evaluated on.

        Returns
        -------
        Policy
            The policy, with what depends on the log filled in.

        Raises
        ------
        InputError
            If the policy does not fit the log.
        """
        settled = self.over(log.space).settled(log)
        settled.check(log)
        log.source.check_columns(settled.columns)
        return settled

    def check(self, log: Log) -> None:
        """Raise if the policy does not fit the log. Override it for checks of your own; it should read no row.

        Parameters
        ----------
        log : Log
            The log that the policy is evaluated on.
        """

    def settled(self, log: Log) -> Policy:  # noqa: ARG002
        """Return the policy with what depends on the log filled in, such as the names of columns.

        Parameters
        ----------
        log : Log
            The log that the policy is evaluated on.

        Returns
        -------
        Policy
            The policy for this log.
        """
        return self

    @final
    def probabilities(self, batch: Batch, actions: IntArray | None = None) -> FloatArray:
        """The probabilities of all actions, or of some.

        Parameters
        ----------
        batch : Batch
            Some rounds of the log.
        actions : array of int, optional
            Action codes, one or several per round (rounds, or rounds × k). If omitted, all actions.

        Returns
        -------
        array of float
            Rounds × actions, or the shape of `actions`.
        """
        if actions is None:
            return self.distribution(batch)
        row = np.repeat(np.arange(len(batch)), actions.size // max(len(batch), 1))
        return self.entries(batch, row, actions.ravel()).reshape(actions.shape)

    def likelihood(self, batch: Batch) -> FloatArray:
        """The probability (or density) of the logged action in each round.

        Parameters
        ----------
        batch : Batch
            Some rounds of the log.

        Returns
        -------
        array of float
            One number per round.
        """
        return self.entries(batch, np.arange(len(batch)), batch.action)

    @abstractmethod
    def distribution(self, batch: Batch) -> FloatArray:
        """The probability of every action in each round: the one method that every policy must implement.

        Parameters
        ----------
        batch : Batch
            Some rounds of the log: `batch.context` (rounds × context columns, as in `log.schema.context`),
            `batch.column(name)` for each name in `columns`, `len(batch)` and `batch.n_actions`.

        Returns
        -------
        array of float
            Rounds × actions, in the order of `log.actions`; each row sums to 1.
        """

    def proportional(self, batch: Batch) -> tuple[FloatArray, bool]:
        """Probabilities up to a factor per round. Override it in policies that normalise scores.

        The scoring pass obtains the sums of the rows from a matrix product that it computes anyway.

        Parameters
        ----------
        batch : Batch
            Some rounds of the log.

        Returns
        -------
        values : array of float
            Rounds × actions.
        unnormalised : bool
            Whether each row must still be divided by its sum.
        """
        return self.distribution(batch), False

    @property
    def bilinear(self) -> bool:
        """Whether it is a softmax of products of vectors, given by `factors`, so that a device can compute it."""
        return False

    def factors(self, batch: Batch) -> Factors:
        """The vectors of rounds and actions, for policies that are softmaxes of their products.

        Parameters
        ----------
        batch : Batch
            Some rounds of the log.

        Returns
        -------
        Factors
            The vectors.
        """
        raise NotImplementedError

    @property
    def accuracy(self) -> float:
        """The relative error of the probabilities."""
        return 1e-6

    @property
    def deterministic(self) -> bool:
        """Whether the policy takes one action per round, given by `actions`, and has no density."""
        return False

    def actions(self, batch: Batch) -> npt.NDArray[Any]:
        """The action of each round, for deterministic policies.

        Parameters
        ----------
        batch : Batch
            Some rounds of the log.

        Returns
        -------
        array
            One action per round, encoded as in `batch.action`.
        """
        raise NotImplementedError

    def nodes(self, batch: Batch) -> Nodes:  # noqa: ARG002
        """A few actions per round whose weighted mean stands for an expectation under the policy, for continuous actions.

        Parameters
        ----------
        batch : Batch
            Some rounds of the log.

        Returns
        -------
        Nodes
            Actions and weights.
        """
        raise InputError(f"{type(self).__name__} has no actions to take an expectation over.")

    @property
    def gives_items(self) -> bool:
        """Whether the probabilities of actions, or of items of lists, that were not logged are known."""
        return self.whole

    @property
    def factored(self) -> bool:
        """For policies of lists: whether slots are filled independently of each other."""
        return False

    @property
    def gives_marginals(self) -> bool:
        """For policies of lists: whether the probability of an item in a slot is known whatever stands above it."""
        return False

    @property
    def lists(self) -> bool:
        """Whether the policy can list the actions with positive probability in each round."""
        return False

    def listed(self, batch: Batch) -> Listed:
        """The actions with positive probability, for policies that list them.

        Parameters
        ----------
        batch : Batch
            Some rounds of the log.

        Returns
        -------
        Listed
            The actions of each round and their probabilities.
        """
        raise NotImplementedError

    def answers(self, batch: Batch, values: FloatArray, row: IntArray, code: IntArray) -> tuple[FloatArray, FloatArray]:
        """Expectations of a table under the policy, and the probabilities of some actions.

        Override it in policies that need not compute rounds × actions for this; the default does so for a block of rounds at
        a time.

        Parameters
        ----------
        batch : Batch
            Some rounds of the log.
        values : array of float
            A table of actions × columns.
        row, code : array of int
            Pairs of a round of the batch and an action code, with rounds in ascending order.

        Returns
        -------
        sums : array of float
            Σ_a π(a|x)·values_a, rounds × columns.
        probabilities : array of float
            π of each pair.
        """
        if self.lists:
            return self.listed(batch).answers(values, row, code)
        sums, probabilities = np.empty((len(batch), values.shape[1])), np.empty(len(row))
        for rows in blocks(len(batch), batch.n_actions):
            checkpoint()
            p = self.distribution(batch.take(rows))
            sums[rows] = p @ values
            some = slice(*np.searchsorted(row, (rows.start, rows.stop)).tolist())
            probabilities[some] = p[row[some] - rows.start, code[some]]
        return sums, probabilities

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        """The probabilities of some actions.

        Parameters
        ----------
        batch : Batch
            Some rounds of the log.
        row, code : array of int
            Pairs of a round of the batch and an action code, with rounds in ascending order.

        Returns
        -------
        array of float
            π of each pair.
        """
        return self.answers(batch, np.empty((batch.n_actions, 0)), row, code)[1]


def check_probabilities(p: FloatArray, batch: Batch, name: str) -> FloatArray:
    """Return the probabilities if their shape is right, none is negative and each row sums to 1; raise otherwise."""
    if p.shape != (len(batch), batch.n_actions):
        raise InputError(
            f"{name}: returned shape {p.shape}; rounds × actions, {(len(batch), batch.n_actions)}, is expected, with "
            "columns in the order of `log.actions`."
        )
    if not p.min(initial=0.0) >= 0:  # also true where some value is NaN
        rows = batch.row[~(p >= 0).all(axis=1)]
        raise RowsError(name, "have a negative or NaN probability", rows, "Probabilities must be 0 or more.")
    with np.errstate(over="ignore"):  # an infinite sum is reported below
        sums = p @ np.ones(p.shape[1])  # a product is faster than a sum along rows
    check_sums(sums, batch.row, name)
    return p


def check_sums(
    sums: FloatArray, rows: IntArray, name: str, where: Callable[[int], str] | None = None, advice: str = ""
) -> None:
    """Raise if probabilities do not sum to 1."""
    off: FloatArray = np.abs(sums - 1)
    if not (off <= SUM_TOLERANCE).all():
        worst = sums[np.argmax(np.where(np.isnan(off), np.inf, off))]
        bad = rows[~(off <= SUM_TOLERANCE)]
        places = None if where is None else [where(int(row)) for row in bad[:3]]
        what = f"do not sum to 1 (the worst sum is {worst:.6g})"
        rounded = "Divide each row by its sum first; rounding to a few digits is a common cause."
        raise RowsError(name, what, bad, f"{rounded} {advice}".strip(), where=places)

"""`Deterministic`: the policy that takes one action per round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box, box
from offpolicy.data.checks import to_arrow
from offpolicy.data.log import Log
from offpolicy.data.slate import Slate, as_lists
from offpolicy.data.spaces import ActionSpace, Discrete
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import Listed
from offpolicy.policies.functions import Score, called, column_names, returned, with_columns
from offpolicy.policies.lists import ItemWeights, ListPolicy
from offpolicy.policies.nodes import Nodes


@final
@dataclass(frozen=True)
class Deterministic(Policy):
    """A policy that takes one action τ(x) per round.

    On a log with discrete actions, it gives that action probability 1. On a log whose actions are an `op.Box`, it is
    evaluated by kernel estimators, such as `op.KernelDR`. On a log of lists (`op.Slate`), it shows one list, such as a
    ranking.

    Parameters
    ----------
    function : str, sequence of str or callable
        The column of the log with the action of each round, or the columns with the dimensions of a vector; or a function
        from contexts (rounds × columns, as in `log.schema.context`) to one action per round. Actions are labels, as in
        `log.actions`, numbers for an `op.Box` (rounds × dimensions if they are vectors), or lists of labels for an
        `op.Slate`.
        With `columns`, the function is called with a dict of arrays by name instead.
    columns : sequence of str, default ()
        Columns of the log that the function reads by name, in the context or not.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log([[0.2], [0.8]], action=["a", "b"], reward=[1, 0], propensity=[0.5, 0.5])
    >>> policy = op.Deterministic(lambda x: np.where(x[:, 0] < 0.5, "a", "b"))
    >>> op.evaluate(log, policy, [op.IPS()])["IPS"].value
    1.0
    >>> doses = op.Log([[0.2], [0.8]], action=[0.25, 0.5], reward=[1, 1], propensity=[1, 1], actions=op.Box(0, 1))
    >>> round(op.evaluate(doses, op.Deterministic(lambda x: x[:, 0]), [op.KernelIPS(0.1)])["KernelIPS"].value, 4)
    2.8125
    """

    function: Score | str | Sequence[str]
    columns: Sequence[str] = ()  # type: ignore[assignment]
    spaces = (Discrete, Box, Slate)
    deterministic = True

    def __post_init__(self) -> None:
        names = column_names(self.columns, "Deterministic")
        if isinstance(self.function, str):
            if names not in ((), (self.function,)):
                raise InputError("Deterministic: `columns` are for a function; a column of actions needs none.")
            names = (self.function,)
        elif isinstance(self.function, Sequence):
            if names not in ((), tuple(self.function)):
                raise InputError("Deterministic: `columns` are for a function; columns of actions need none.")
            names = column_names(self.function, "Deterministic")
            object.__setattr__(self, "function", names)
        elif isinstance(self.function, type) or not callable(self.function):
            raise InputError(
                f"Deterministic: {self.function!r} is neither a function of the context nor the name of a column of actions."
            )
        object.__setattr__(self, "columns", names)

    def settled(self, log: Log) -> Policy:
        if log.space.slots is not None:
            return _ListChoice(self)
        return self if log.space.count is None else _DiscreteChoice(self)

    def actions(self, batch: Batch) -> npt.NDArray[Any]:
        if isinstance(self.function, tuple):
            return self._of_columns(self.function, batch)
        if isinstance(self.function, str):
            return self._encoded(batch.extra[self.function], batch.space, batch, self.function)
        return self._encoded(self._returned(batch), batch.space, batch)

    def _of_columns(self, names: tuple[str, ...], batch: Batch) -> npt.NDArray[Any]:
        """Vectors, from one column per dimension."""
        axes = box(batch.space, "Deterministic with several columns").axes
        if not batch.space.shape or len(axes) != len(names):
            raise InputError(
                f"Deterministic: {len(names)} columns are named ({', '.join(names)}), and the actions are "
                f"{batch.space.nature}; name one column per dimension."
            )
        each = [self._encoded(batch.extra[n], axis, batch, n) for n, axis in zip(names, axes, strict=True)]
        return np.column_stack(each)

    def _encoded(self, chosen: pa.Array, space: ActionSpace, batch: Batch, column: str | None = None) -> npt.NDArray[Any]:
        """Actions of a space, from a column or from a function."""
        try:
            taken, bad = space.encode(as_integers(chosen) if space.count is not None else chosen)
        except InputError as error:
            raise InputError(f"Deterministic: {error} {self._remedy(batch, column)}") from None
        if bad.any():
            what, _ = space.unknown(chosen.filter(pa.array(bad)).slice(0, 3).to_pylist())
            raise RowsError("Deterministic", what, batch.row[bad], self._remedy(batch, column))
        return taken

    def _returned(self, batch: Batch) -> pa.Array:
        """The actions that the function returns, as a column."""
        assert callable(self.function)
        call = called if batch.space.items is None else returned
        values = call(with_columns(self.function, self.columns, "Deterministic"), batch, "Deterministic")
        if batch.space.slots is not None:
            return as_lists(values, "Deterministic")
        shape = np.shape(values)
        expected = (len(batch), *batch.space.shape)
        if shape != expected:
            one = "one action per round" if len(expected) == 1 else f"rounds × dimensions, {expected}"
            raise InputError(f"Deterministic: the function returned shape {shape} for {len(batch)} rounds; return {one}.")
        return to_arrow(values, "Deterministic")

    def _remedy(self, batch: Batch, column: str | None) -> str:
        if column is not None:
            return f"Correct the column {column!r}: it must hold one action of the log per round."
        if batch.space.slots is not None:
            return "Correct the function: it returns one list of items per round, as in `log.actions`."
        if batch.space.count is None:
            return "Correct the function: np.clip keeps it within bounds."
        return "Correct the function: actions are labels, as in `log.actions`; log.actions[codes] are the labels of codes."

    def nodes(self, batch: Batch) -> Nodes:
        return Nodes.single(self.actions(batch))

    def distribution(self, batch: Batch) -> FloatArray:
        if batch.space.count is None:
            raise InputError(
                "Deterministic takes one action per round and has no density, which logging policies and the parts of a "
                "mixture need."
            )
        return _DiscreteChoice(self).distribution(batch)

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        if isinstance(batch.space, Box) and batch.space.points:
            taken = self.actions(batch)
            if batch.space.at_point(taken).all():  # probabilities at points, and no density anywhere else
                return np.asarray(taken[row] == code, dtype=np.float64)
        return self.distribution(batch)[row, code]


def as_integers(labels: pa.Array) -> pa.Array:
    """Whole numbers that were computed or stored as floats, as integers; other labels are unchanged."""
    try:
        return labels.cast(pa.int64()) if pa.types.is_floating(labels.type) else labels
    except pa.ArrowException:
        return labels


@final
@dataclass(frozen=True)
class _DiscreteChoice(Policy):
    """`Deterministic` over discrete actions: a list of one action per round, with probability 1."""

    policy: Deterministic
    lists = True

    def __repr__(self) -> str:
        return repr(self.policy)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.policy.columns)

    def listed(self, batch: Batch) -> Listed:
        return Listed(np.arange(len(batch) + 1), self.policy.actions(batch), np.ones(len(batch)))

    def distribution(self, batch: Batch) -> FloatArray:
        return self.listed(batch).grid(batch.n_actions)


@final
@dataclass(frozen=True)
class _ListChoice(ListPolicy):
    """`Deterministic` over lists: one list per round, with probability 1."""

    policy: Deterministic

    def __repr__(self) -> str:
        return repr(self.policy)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.policy.columns)

    @property
    def factored(self) -> bool:
        return True

    def slots(self, batch: Batch) -> FloatArray:
        same = self.policy.actions(batch) == batch.action
        return np.where(batch.action >= 0, same, 1.0)

    def weights(self, batch: Batch) -> ItemWeights:
        chosen = np.maximum(self.policy.actions(batch), 0)
        assert batch.space.items is not None
        one_hot = np.zeros((*chosen.shape, batch.space.items.n_actions))
        np.put_along_axis(one_hot, chosen[:, :, None], 1.0, axis=2)
        return ItemWeights(one_hot, without_replacement=False)

"""`TwoTower`: scores of a two-tower model, computed in blocks of actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.checks import array, floats
from offpolicy.policies.blocks import even_slices
from offpolicy.policies.functions import ColumnReader, Score, called, column_names, columns_of, with_columns

ROWS_AT_ONCE = 512
ACTIONS_AT_ONCE = 512
"""A block of scores stays in the cache of a core between the product, the exponential and the sums."""


@final
class TwoTower(ColumnReader):
    """Scores of a two-tower model, user vector · item vector + bias, for very many actions.

    Use it inside a policy: `op.Softmax(op.TwoTower(items, users))`. Such policies never hold rounds × actions in memory;
    they work through blocks of actions.

    Parameters
    ----------
    items : array of float
        Item vectors, actions × k, with rows in the order of `log.actions`. Scores are computed in their precision: float32
        takes half the time of float64, and probabilities are then accurate to about 1 part in 10,000.
    users : callable, optional
        Maps contexts (rounds × columns) to user vectors (rounds × k). If omitted, the context is the user vector.
    bias : array of float, optional
        One number per item.
    columns : sequence of str, default ()
        Columns of the log that `users` is called with, as a dict of arrays, instead of the contexts.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log([[1.0, 0.0], [0.0, 1.0]], action=[0, 1], reward=[1, 0], propensity=[0.5, 0.5])
    >>> policy = op.Softmax(op.TwoTower([[1.0, 0.0], [0.0, 1.0]]))
    >>> round(op.evaluate(log, policy, [op.IPS()])["IPS"].value, 3)
    0.731
    """

    def __init__(
        self,
        items: npt.ArrayLike,
        users: Score | None = None,
        *,
        bias: npt.ArrayLike | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        if isinstance(items, Mapping) or not _plain_index(items):
            raise InputError(
                "TwoTower: items has labels of its own, which would be ignored. Give a plain matrix with rows in the order "
                "of `log.actions`, such as frame.loc[log.actions].to_numpy()."
            )
        if users is not None and not callable(users):
            raise InputError(
                "TwoTower: users must be a function of the contexts (rounds × columns) that returns one vector per round. "
                "If the vectors are in the log, name their columns as `context` and omit `users`."
            )
        if users is None and column_names(columns, "TwoTower"):
            raise InputError("TwoTower: columns are passed to `users`; give that function as well.")
        vectors = array(items, "TwoTower: items")
        kind = np.float32 if vectors.dtype == np.float32 else np.float64
        if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.number):
            raise InputError(
                f"TwoTower: items must be a matrix of numbers, actions × k; it has type {vectors.dtype} and shape "
                f"{vectors.shape}."
            )
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise InputError(
                f"TwoTower: items must be finite, but {len(bad):,} rows contain NaN or infinity; the first is row {bad[0]}."
            )
        level = np.zeros(len(vectors)) if bias is None else floats(bias, "TwoTower: bias")
        if level.shape != (len(vectors),) or not np.isfinite(level).all():
            raise InputError(f"TwoTower: bias must be one finite number per item; it has shape {level.shape}.")
        self._items: npt.NDArray[Any] = (
            np.column_stack([vectors, level]).astype(kind) if bias is not None else vectors.astype(kind)
        )
        self._users = None if users is None else with_columns(users, columns, "TwoTower")
        self.columns, self._bias = columns_of(self._users), bias is not None

    def __call__(self, context: FloatArray) -> npt.NDArray[Any]:
        """All scores: rounds × actions."""
        users = np.asarray(context if self._users is None else self._users(context))
        scores: npt.NDArray[Any] = self._padded(users) @ self._items.T
        return scores

    def _padded(self, users: npt.NDArray[Any]) -> npt.NDArray[Any]:
        expected = self._items.shape[1] - self._bias
        if users.ndim != 2 or users.shape[1] != expected:
            raise InputError(f"TwoTower: user vectors have shape {users.shape}, but the items have {expected} dimensions.")
        users = users.astype(self._items.dtype, copy=False)
        return np.column_stack([users, np.ones(len(users), users.dtype)]) if self._bias else users

    @property
    def padded_items(self) -> npt.NDArray[Any]:
        """The item vectors, with the bias as a last column if there is one: the counterpart of `vectors`."""
        return self._items

    @property
    def single(self) -> bool:
        """Whether scores are computed in single precision."""
        return self._items.dtype == np.float32

    def check(self, n_actions: int) -> None:
        """Raise if the number of items is not the number of actions.

        Parameters
        ----------
        n_actions : int
            The number of actions of the log.
        """
        if len(self._items) != n_actions:
            raise InputError(
                f"TwoTower: {len(self._items):,} item vectors for {n_actions:,} actions. Rows follow `log.actions`; if some "
                "items were never logged, list all labels with `actions=` or `catalog=` when the log is read."
            )

    def vectors(self, batch: Batch, name: str) -> npt.NDArray[Any]:
        """The user vector of each round.

        Parameters
        ----------
        batch : Batch
            Some rounds of the log.
        name : str
            The policy to name in errors.

        Returns
        -------
        array of float
            Rounds × k, with a last column of ones if there is a bias.
        """
        self.check(batch.n_actions)
        users = batch.context if self._users is None else called(self._users, batch, name)
        users = self._padded(np.asarray(users))
        if len(users) != len(batch):
            raise InputError(f"{name}: `users` returned {len(users)} vectors for {len(batch)} rounds.")
        bad = ~np.isfinite(users).all(axis=1)
        if bad.any():
            raise RowsError(
                name, "have a NaN or infinite user vector", batch.row[bad], "Check the function `users` on those rows."
            )
        return users

    def bound(self, users: npt.NDArray[Any]) -> float:
        """An upper bound of the absolute scores: the largest |u|·|v|.

        Parameters
        ----------
        users : array of float
            User vectors, as `vectors` returns them.

        Returns
        -------
        float
            The bound.
        """
        return float(np.sqrt((users.astype(np.float64) ** 2).sum(axis=1).max(initial=0.0)) * self._longest)

    @cached_property
    def _longest(self) -> float:
        return float(np.sqrt((self._items.astype(np.float64) ** 2).sum(axis=1).max(initial=0.0)))

    def some(self, users: npt.NDArray[Any], row: IntArray, code: IntArray) -> FloatArray:
        """The scores of some actions.

        Parameters
        ----------
        users : array of float
            User vectors, as `vectors` returns them.
        row, code : array of int
            Pairs of a round and an action code.

        Returns
        -------
        array of float
            One score per pair.
        """
        out = np.empty(len(row))
        for start in range(0, len(row), ROWS_AT_ONCE * 32):
            some = slice(start, start + ROWS_AT_ONCE * 32)
            out[some] = np.einsum("ij,ij->i", users[row[some]], self._items[code[some]])
        return out

    def each(self, users: npt.NDArray[Any]) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Iterate over blocks of actions and their scores.

        Parameters
        ----------
        users : array of float
            User vectors, as `vectors` returns them.

        Yields
        ------
        some : slice
            The action codes of the block.
        scores : array of float
            Rounds × actions of the block. The array is reused for the next block.
        """
        buffer = np.empty((len(users), ACTIONS_AT_ONCE), users.dtype)
        for start in range(0, len(self._items), ACTIONS_AT_ONCE):
            some = slice(start, min(start + ACTIONS_AT_ONCE, len(self._items)))
            out = (
                buffer
                if some.stop - some.start == ACTIONS_AT_ONCE
                else np.empty((len(users), some.stop - start), users.dtype)
            )
            yield some, np.matmul(users, self._items[some].T, out=out)


def _plain_index(items: Any) -> bool:
    """Whether rows are identified by their position alone."""
    index = getattr(items, "index", None)
    return index is None or callable(index) or list(index) == list(range(len(items)))


def runs(rows: int) -> Iterator[slice]:
    """Slices of about equal length."""
    return even_slices(rows, max(1, -(-rows // ROWS_AT_ONCE)))


def best_of_towers(score: TwoTower, users: npt.NDArray[Any]) -> IntArray:
    """The first action with the highest score, from blocks of actions."""
    best, top = np.zeros(len(users), np.int64), np.full(len(users), -np.inf)
    for some, scores in score.each(users):
        at = scores.argmax(axis=1)
        higher = scores[np.arange(len(at)), at]
        better = higher > top
        best[better], top[better] = at[better] + some.start, higher[better]
    return best

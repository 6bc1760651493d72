"""`PlackettLuce`: rankings that are drawn slot by slot, without replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import pyarrow as pa

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.checks import floats, is_number
from offpolicy.data.list_cells import plain_lists
from offpolicy.data.log import Log
from offpolicy.data.slate import items_of
from offpolicy.policies.candidates import Eligible, check_candidates, list_lengths
from offpolicy.policies.functions import columns_of, with_columns
from offpolicy.policies.lists import ItemWeights, ListPolicy, refuse_repeats
from offpolicy.policies.scores import check_top, eligible_scores, scores_of
from offpolicy.policies.two_tower import TwoTower


@final
class PlackettLuce(ListPolicy):
    """Rankings drawn slot by slot without replacement, with probabilities ∝ exp(score / temperature).

    Parameters
    ----------
    scores : callable, TwoTower, array, str or number
        Maps contexts (rounds × columns, as in `log.schema.context`) to the scores of all items (rounds × items, in the order
        of `log.actions`); or these scores themselves, with one row per round of the log. The name of a list column has the
        scores of the candidates of each round, or of all items if there are no `candidates`. A number is the score of every
        item: all orders are equally likely.
    temperature : float, default 1.0
        Divides the scores; must be positive. The smaller it is, the closer the policy is to sorting by score.
    candidates : str, optional
        A list column of the eligible items of each round. If omitted, all items.
    columns : sequence of str, default ()
        Columns of the log that `scores` is called with, as a dict of arrays, instead of the contexts.

    References
    ----------
    Plackett (1975). The analysis of permutations. Applied Statistics.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(
    ...     [[0.0], [1.0]], action=[["a", "b"], ["b", "a"]], reward=[[1, 0], [0, 1]], propensity=[[0.5, 1], [0.5, 1]],
    ...     actions=op.Slate(2),
    ... )
    >>> policy = op.PlackettLuce(lambda x: np.column_stack([x, 1 - x]))
    >>> round(op.evaluate(log, policy, [op.SIPS()])["SIPS"].value, 3)
    0.538
    """

    def __init__(
        self, scores: Any, temperature: float = 1.0, candidates: str | None = None, *, columns: Sequence[str] = ()
    ) -> None:
        if not is_number(temperature) or not temperature > 0:
            raise InputError(f"PlackettLuce: temperature is {temperature!r}; it must be above 0.")
        check_candidates("PlackettLuce", candidates)
        self._candidates, self._temperature = candidates, float(temperature)
        self._column = scores if isinstance(scores, str) else None
        self._even = is_number(scores)
        given = callable(scores) or isinstance(scores, TwoTower)
        self._matrix = None if given or self._even or self._column else floats(scores, "PlackettLuce")
        self._score = with_columns(scores, columns, "PlackettLuce") if given else None

    def __repr__(self) -> str:
        scores = f"{' × '.join(map(str, self._matrix.shape))} scores" if self._matrix is not None else repr(self._score)
        scores = "0" if self._even else repr(self._column) if self._column is not None else scores
        rest = "" if self._candidates is None else f", candidates={self._candidates!r}"
        return f"PlackettLuce({scores}, temperature={self._temperature:g}{rest})"

    @property
    def columns(self) -> tuple[str, ...]:
        listed = tuple(name for name in (self._candidates, self._column) if name is not None)
        return tuple(dict.fromkeys((*listed, *columns_of(self._score))))

    @property
    def accuracy(self) -> float:
        return 1e-3 if isinstance(self._score, TwoTower) and self._score.single else super().accuracy

    def check(self, log: Log) -> None:
        n_items = len(log.actions)
        if isinstance(self._score, TwoTower):
            self._score.check(n_items)
        if self._matrix is not None:
            log.check_ordered("PlackettLuce", "Give a function of the context.")
            if self._matrix.shape != (log.source.rows, n_items):
                raise InputError(
                    f"PlackettLuce: the scores have shape {self._matrix.shape}; rounds × items, "
                    f"{(log.source.rows, n_items)}, is expected."
                )
        if self._candidates is None and (slots := log.space.slots or 0) > n_items:
            raise InputError(f"PlackettLuce shows each item at most once, and there are {n_items} items for {slots} slots.")

    def slots(self, batch: Batch) -> FloatArray:
        refuse_repeats(batch, "PlackettLuce")
        return super().slots(batch)

    def slots_of(self, batch: Batch, weights: ItemWeights) -> FloatArray:
        refuse_repeats(batch, "PlackettLuce")
        return weights.conditional(batch.action)

    def weights(self, batch: Batch) -> ItemWeights:
        logs = self._logs(batch)
        top = logs.max(axis=1, keepdims=True)
        check_top(top[:, 0], batch, "PlackettLuce")
        logs -= top
        return ItemWeights(np.exp(logs), without_replacement=True, logs=logs)

    def _logs(self, batch: Batch) -> FloatArray:
        """Rounds × items: score / temperature; −∞ for items that are not eligible."""
        over_items = items_of(batch)
        if self._candidates is None:
            return self._of_all(over_items) / self._temperature
        eligible = Eligible.required(self._candidates, over_items, "PlackettLuce")
        scores = np.full((len(batch), over_items.n_actions), -np.inf)
        scores[eligible.row, eligible.codes] = self._of_candidates(over_items, eligible)
        return scores / self._temperature

    def _of_all(self, batch: Batch) -> FloatArray:
        """Rounds × items."""
        shape = (len(batch), batch.n_actions)
        if self._even:
            return np.zeros(shape)
        if self._column is not None:
            return self._listed(batch, np.full(len(batch), batch.n_actions), "items").reshape(shape)
        if self._matrix is not None:
            return self._matrix[batch.row]
        assert self._score is not None
        return scores_of(self._score, batch, "PlackettLuce")

    def _of_candidates(self, batch: Batch, eligible: Eligible) -> FloatArray:
        """One score per candidate."""
        if self._even:
            return np.zeros(len(eligible.codes))
        if self._column is not None:
            return self._listed(batch, np.diff(eligible.starts), "candidates")
        if self._matrix is not None:
            scores: FloatArray = self._matrix[batch.row[eligible.row], eligible.codes]
            return scores
        assert self._score is not None
        return eligible_scores(self._score, batch, eligible, "PlackettLuce")

    def _listed(self, batch: Batch, expected: IntArray, of: str) -> FloatArray:
        """The entries of the list column of scores, as many in each round as expected."""
        assert self._column is not None
        column = plain_lists(batch.extra[self._column])
        lengths = list_lengths(column, "PlackettLuce", "scores")
        if (bad := lengths != expected).any():
            first = int(np.argmax(bad))
            what = f"have {lengths[first]:,} scores for {expected[first]:,} {of}, or other numbers"
            raise RowsError("PlackettLuce", what, batch.row[bad], f"Give one score per item in {self._column!r}.")
        try:
            scores: FloatArray = column.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowException:
            raise InputError(f"PlackettLuce: {self._column!r} has lists of text, but scores are numbers.") from None
        if (bad := np.isnan(scores) | (scores == np.inf)).any():
            rows = np.unique(batch.row[np.repeat(np.arange(len(batch)), lengths)[bad]])
            raise RowsError("PlackettLuce", "have a score that is missing or infinite", rows, "Scores must be numbers.")
        return scores

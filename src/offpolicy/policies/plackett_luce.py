"""`PlackettLuce`: rankings that are drawn slot by slot, without replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.data.batch import Batch
from offpolicy.data.checks import floats, is_number
from offpolicy.data.log import Log
from offpolicy.data.slate import items_of
from offpolicy.policies.candidates import Eligible, check_candidates
from offpolicy.policies.functions import columns_of, with_columns
from offpolicy.policies.lists import ItemWeights, ListPolicy, refuse_repeats
from offpolicy.policies.scores import check_top, eligible_scores, scores_of
from offpolicy.policies.two_tower import TwoTower


@final
class PlackettLuce(ListPolicy):
    """Rankings drawn slot by slot without replacement, with probabilities ∝ exp(score / temperature).

    Parameters
    ----------
    scores : callable, TwoTower or array
        Maps contexts (rounds × columns, as in `log.schema.context`) to the scores of all items (rounds × items, in the order
        of `log.actions`); or these scores themselves, with one row per round of the log.
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
        given = callable(scores) or isinstance(scores, TwoTower)
        self._matrix = None if given else floats(scores, "PlackettLuce")
        self._score = with_columns(scores, columns, "PlackettLuce") if given else None
        self._temperature, self._candidates = float(temperature), candidates

    def __repr__(self) -> str:
        scores = f"{' × '.join(map(str, self._matrix.shape))} scores" if self._matrix is not None else repr(self._score)
        rest = "" if self._candidates is None else f", candidates={self._candidates!r}"
        return f"PlackettLuce({scores}, temperature={self._temperature:g}{rest})"

    @property
    def columns(self) -> tuple[str, ...]:
        listed = () if self._candidates is None else (self._candidates,)
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
        if self._candidates is not None:
            eligible = Eligible.required(self._candidates, over_items, "PlackettLuce")
            scores = np.full((len(batch), over_items.n_actions), -np.inf)
            if self._matrix is not None:
                scores[eligible.row, eligible.codes] = self._matrix[batch.row[eligible.row], eligible.codes]
            else:
                assert self._score is not None
                scores[eligible.row, eligible.codes] = eligible_scores(self._score, over_items, eligible, "PlackettLuce")
        elif self._matrix is not None:
            scores = self._matrix[batch.row]
        else:
            assert self._score is not None
            scores = scores_of(self._score, over_items, "PlackettLuce")
        return scores / self._temperature

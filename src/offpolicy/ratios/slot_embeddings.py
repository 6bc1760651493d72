"""The ratio of embeddings of lists: every slot is pooled by the embedding of its item, and the slots are combined.

With e_k the embedding of the item in slot k and K its share (`ratios/pools.py`), the ratio of a slot given those above is

    w_k(x, e) = Σ_a π(a | x, a_<k) K(e_k, e_a) / Σ_a π0(a | x, a_<k) K(e_k, e_a).

The embeddings of a list are pooled by Π_k K(e_k, e_a), and its ratio sums over all items^slots lists. Where policies fill
slots independently of each other, the sum factorises into Π_k w_k at a cost of slots × items. Without replacement, Π_k w_k
is the ratio to a policy that chooses an embedding for each slot as the target does, given the items above it, and then an
item with that embedding as the logging policy does. Any reading of the ratios of slots applies to those of embeddings: all
slots, those above, the slot alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, final

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.threads import checkpoint
from offpolicy.data.features import Inputs
from offpolicy.data.slate import Slate, in_position, shown
from offpolicy.models.embedding_table import Embedding
from offpolicy.models.posteriors.base import Pooling, Posterior
from offpolicy.models.rewards.base import RewardModel
from offpolicy.policies.blocks import Grid, blocks
from offpolicy.ratios.base import (
    Available,
    FittedRatio,
    Fitting,
    Moves,
    PoolingDiagnostics,
    Ratio,
    RatioNumbers,
    UnfittedRatio,
)
from offpolicy.ratios.embeddings import EmbeddingRatio, FittedEmbeddings
from offpolicy.ratios.interactions import Missed
from offpolicy.ratios.pools import BlockRows, Pool, Rounds, Sides, pool_sums
from offpolicy.statistics.at_slot import OverSlots
from offpolicy.statistics.base import State, Statistic


@final
@dataclass(frozen=True)
class SlotEmbeddingRatio(Ratio):
    """The ratios of slots by embeddings, combined as the `reading` combines those of items.

    Attributes
    ----------
    embedding : EmbeddingRatio
        What pools the items of a slot. One model of the items in all slots learns it, with the position as context.
    reading : UnfittedRatio
        A ratio of slots.
    others : Posterior | None
        What pools the items of the slots other than the one whose reward is weighted, if that is something else.
    slot : int | None
        The slot whose reward is weighted, where that matters.
    """

    embedding: EmbeddingRatio
    reading: UnfittedRatio
    others: Posterior | None = None
    slot: int | None = None
    items = True
    per_policy = False
    shown = False
    spaces = (Slate,)

    @property
    def cross_fit(self) -> int:  # type: ignore[override]
        return self.embedding.cross_fit

    @property
    def rewards(self) -> RewardModel | None:  # type: ignore[override]
        return self.embedding.rewards

    @property
    def inputs(self) -> Inputs | None:  # type: ignore[override]
        return self.embedding.inputs

    @property
    def marginal(self) -> bool:  # type: ignore[override]
        return self.reading.marginal

    def lacks(self, available: Available) -> str | None:
        reason = self.reading.lacks(available) or self.reading.lacks_slots_alone(available) or available.lacks_items
        if reason is not None or (available.logging is not None and available.logging.gives_items):
            return reason
        return (
            "it weights slots by embeddings, and needs the logging policy's probability of every item in every slot, not "
            "only of the logged ones. Pass it as `logging=` (--logging), or use SIPS, RIPS or IIPS, which need only "
            "propensities"
        )

    def for_reward(self, reward: int) -> Self:
        return replace(self, embedding=self.embedding.for_reward(reward))

    def for_slot(self, slot: int) -> Self:
        return replace(self, reading=self.reading.for_slot(slot), slot=slot if self.others is not None else None)

    def missed(self, slots: int) -> Missed:
        return self.reading.missed(slots)

    @property
    def parts(self) -> tuple[EmbeddingRatio, ...]:
        """The pooling of the slot, and that of the others if it is another one."""
        own = self.embedding
        return (own,) if self.others is None else (own, replace(own, posterior=self.others))

    def statistics(self, fitting: Fitting) -> tuple[Statistic, ...]:
        of_items = _over_items(fitting)
        return tuple(OverSlots(each) for part in self.parts for each in part.statistics(of_items))

    def fit(self, fitting: Fitting, results: Sequence[Any]) -> FittedRatio:
        of_items, fitted = _over_items(fitting), []
        for part in self.parts:
            count = len(part.statistics(of_items))
            fitted.append(part.fit(of_items, results[:count]))
            if any(pooling.form == "posterior" for pooling in fitted[-1].poolings):
                raise InputError(
                    f"{fitting.name}: {type(part.posterior).__name__} gives p(a|e) whatever the context, but in lists the "
                    "probabilities of items depend on those above; use op.Gaussian() or op.Predicted()."
                )
            results = results[count:]
        return _Fitted(self, tuple(fitted))

    def numbers(self, n_actions: int, context: int, features: int) -> RatioNumbers:
        each = [part.numbers(n_actions, context + 1, features) for part in self.parts]
        names = ("fitted", "folds", "near", "sums", "slopes")
        return RatioNumbers(**{name: sum(getattr(one, name) for one in each) for name in names})


def _over_items(fitting: Fitting) -> Fitting:
    """The sizes of a fit over the items of all slots."""
    return replace(fitting, by_action=fitting.by_action.with_position())


@dataclass(frozen=True)
class _SlotBlock:
    """Some rounds of one fold, and both policies in each of their slots."""

    rows: slice
    fold: int
    rounds: Rounds
    marginal: bool

    @classmethod
    def each(cls, rounds: Rounds, marginal: bool, upto: int) -> Iterator[_SlotBlock]:
        """The first rounds, in blocks that stay small; rounds are sorted by fold."""
        edges = np.minimum(np.searchsorted(rounds.fold, np.arange(rounds.folds + 1)), upto)
        for fold in range(rounds.folds):
            for part in blocks(edges[fold + 1] - edges[fold], rounds.batch.space.n_codes):
                checkpoint()
                yield cls(slice(edges[fold] + part.start, edges[fold] + part.stop), fold, rounds, marginal)

    def slots(self) -> Iterator[tuple[BlockRows, Sides, FloatArray]]:
        """For each slot its rounds, π and π0 of all items up to a factor, and that of their quotient."""
        batch = self.rounds.batch.take(self.rows)
        for slot, (pi, pi0, factor) in enumerate(self._policies(batch.action)):
            one = in_position(batch, slot)
            block = BlockRows(slice(0, len(batch)), one, self.fold, self.rounds.folds, sampled=True)
            yield block, Sides(pi, pi0, Grid(one.codes)), factor

    def _policies(self, codes: IntArray) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        sides = self.rounds.slots
        assert sides is not None
        target, logging = sides.items.take(self.rows), sides.logged.items.take(self.rows)
        if self.marginal:
            for both in zip(target.placed(codes.shape[1]), logging.placed(codes.shape[1]), strict=True):
                yield *both, np.ones(len(codes))
            return
        for (pi, sum_), (pi0, sum0) in zip(target.above(codes), logging.above(codes), strict=True):
            yield pi, pi0, np.divide(sum0, sum_, out=np.zeros(len(codes)), where=sum_ > 0)


@final
@dataclass(frozen=True, eq=False)
class _Fitted(FittedRatio):
    """Weights by embeddings of lists. All slots share what is fitted.

    Attributes
    ----------
    parts : tuple[FittedEmbeddings, ...]
        For the slot whose reward is weighted, and for the others if they are pooled in another way.
    """

    ratio: SlotEmbeddingRatio
    parts: tuple[FittedEmbeddings, ...]

    def of_slot(self, ratio: Ratio) -> FittedRatio:
        assert isinstance(ratio, SlotEmbeddingRatio)
        return replace(self, ratio=ratio)

    def light(self) -> FittedRatio:
        return replace(self, parts=tuple(part.light() for part in self.parts))

    @property
    def embedding(self) -> Embedding | None:
        return self.parts[0].embedding

    def weights(self, rounds: Rounds) -> FloatArray:
        return self._read(rounds, self._of_slots(rounds))

    def _read(self, rounds: Rounds, of_slots: FloatArray) -> FloatArray:
        """The reading of ratios of slots, rounds × slots."""
        assert rounds.slots is not None
        smoothed = replace(rounds.slots, smoothed=of_slots)
        return self.ratio.reading.weights(replace(rounds, slots=smoothed, action=of_slots.prod(axis=1)))

    def _of_slots(self, rounds: Rounds) -> FloatArray:
        """Rounds × slots: the ratio of each slot."""
        each = [self._pooled(rounds, part)[0] for part in range(len(self.parts))]
        pooled_by = self._pooled_by(each[0].shape[1])
        return np.stack([each[part][:, slot] for slot, part in enumerate(pooled_by)], axis=1)

    def _pooled_by(self, slots: int) -> list[int]:
        """Which of the parts pools each slot."""
        return [0 if len(self.parts) == 1 or slot == self.ratio.slot else 1 for slot in range(slots)]

    def _pooled(self, rounds: Rounds, part: int) -> FloatArray:
        """3 × rounds × slots: w_k of one pooling, its part from the logged item, and whether that is new to the fit.

        Computed once for all slots and readings.
        """
        sides = rounds.slots
        assert sides is not None
        key = (self.ratio.parts[part], self.ratio.marginal)
        return sides.once(key, lambda: self._sums(rounds, self.parts[part].poolings))

    def _sums(self, rounds: Rounds, poolings: Sequence[Pooling]) -> FloatArray:
        there = shown(rounds.batch)
        out = np.zeros((3, *there.shape))
        for some in _SlotBlock.each(rounds, self.ratio.marginal, len(there)):
            for slot, (block, sides, factor) in enumerate(some.slots()):
                sums = pool_sums(poolings[some.fold], block, sides, None)
                out[:, some.rows, slot] = sums.ratio * factor, sums.own, sums.new
        out[0, ~there] = 1.0
        return out

    # What is summed in the scoring pass.

    def zero(self, corrections: int) -> State:
        return {str(k): part.zero(corrections) for k, part in enumerate(self.parts)}

    def fold(self, state: State, rounds: Rounds, ratio: FloatArray) -> None:
        there = shown(rounds.batch)
        pooled_by = np.array(self._pooled_by(there.shape[1]))
        counted = there * rounds.omega[:, None]
        for k, part in enumerate(self.parts):
            own, slots = state[str(k)], np.flatnonzero(pooled_by == k)
            part.fold(own, rounds, ratio)
            _, share, new = self._pooled(rounds, k)[:, :, slots]
            own["rows"] += counted[:, slots].sum()
            own["own"] += (counted[:, slots] * share).sum()
            own["new"] += (new * there[:, slots]).sum()
            if part.sloped and rounds.sampled:
                self._add_slopes(own, rounds, part.poolings, slots)

    def _add_slopes(self, state: State, rounds: Rounds, poolings: Sequence[Pooling], slots: IntArray) -> None:
        """Add how the weight depends on the scores of the items in some slots."""
        n = rounds.sampled
        steps, residuals = self._steps(rounds, slots), rounds.residuals()
        counts = {name: np.zeros_like(state[name]) for name in ("rows", "own", "new", "contextual", "left_out", "near_rows")}
        for some in _SlotBlock.each(rounds, self.ratio.marginal, n):
            left = [residual[some.rows] for residual in residuals]
            for slot, (block, sides, factor) in enumerate(some.slots()):
                if slot not in steps:
                    continue
                omega = rounds.omega[some.rows] * factor * steps[slot][some.rows]
                own = Rounds(block.batch, rounds.bucket[some.rows], rounds.folds, omega, partial(list, left))
                pool = Pool(poolings, own, {**state, **counts, "sloped_rows": np.zeros(())}, sloped=True)
                pool.add(block, pool_sums(poolings[some.fold], block, sides, own.multipliers))
                pool.finish()
        state["sloped_rows"] += rounds.omega[:n].sum()

    def _steps(self, rounds: Rounds, slots: IntArray) -> dict[int, FloatArray]:
        """∂weight/∂w_k of each slot that matters. Every reading is linear in each w_k, so that a difference is exact."""
        of_slots, there, steps = self._of_slots(rounds), shown(rounds.batch), {}
        for slot in slots:
            ends = []
            for value in (0.0, 1.0):
                at_end = of_slots.copy()
                at_end[:, slot] = value
                ends.append(self._read(rounds, at_end))
            step = np.where(there[:, slot], ends[1] - ends[0], 0.0)
            if step.any():
                steps[int(slot)] = step
        return steps

    def merge(self, a: State, b: State) -> State:
        return {str(k): part.merge(a[str(k)], b[str(k)]) for k, part in enumerate(self.parts)}

    def largest(self, state: State) -> float:
        return self.parts[0].largest(state["0"])

    def histogram(self, state: State) -> State | None:
        return self.parts[0].histogram(state["0"])

    def diagnostics(self, state: State, mean_weight: float) -> PoolingDiagnostics:
        return self.parts[0].diagnostics(state["0"], mean_weight)

    def kept(self, state: State) -> tuple[float, float]:
        pooled = self.parts[-1].diagnostics(state[str(len(self.parts) - 1)], 1.0).pooling
        return self.ratio.embedding.posterior.kept, 1.0 - (pooled or 0.0)

    def moves(self, state: State, correction: int) -> Moves | None:
        each = [part.moves(state[str(k)], correction) for k, part in enumerate(self.parts)]
        known = [one for one in each if one is not None]
        if len(known) < len(each):
            return None
        return np.sum([moved for moved, _ in known], axis=0), known[0][1]

"""Scores of rounds × actions as products of two small tables, which is all that a device is sent.

A form gives round t and action a the number left_t · right_a + bias_a, where `right` and `bias` may have several versions
(slots), such as one per fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import pairwise
from operator import and_
from typing import Any

Tensor = Any


@dataclass(frozen=True)
class Form:
    """left_t · right_a + bias_a − shift_t.

    Attributes
    ----------
    left : Tensor
        Rounds × k.
    right : Tensor
        Slots × actions × k.
    bias : Tensor
        Slots × actions; empty if it is 0.
    shift : Tensor
        Rounds, or empty: what is subtracted before the exponential, at least as large as any score of the round.
    """

    left: Tensor
    right: Tensor
    bias: Tensor
    shift: Tensor

    def head(self, rounds: int) -> Form:
        """The first rounds."""
        return Form(self.left[:rounds], self.right, self.bias, self.shift[:rounds])

    def to(self, kind: Any) -> Form:
        """In another precision."""
        return Form(*(getattr(self, each.name).to(kind) for each in fields(self)))

    def some(self, slots: Sequence[int]) -> Form:
        """With some of the slots."""
        return replace(self, right=self.right[slots], bias=self.bias[slots] if self.bias.numel() else self.bias)

    def at(self, rows: slice, at: tuple[Any, Tensor]) -> Tensor:
        """The number of one slot and action for each of some rounds, before the shift is subtracted."""
        out = (self.left[rows] * self.right[at]).sum(dim=1)
        return out + self.bias[at] if self.bias.numel() else out

    def scores(self, rows: slice, slot: int) -> Tensor:
        """Rounds × actions of some rounds."""
        out = self.left[rows] @ self.right[slot].T
        if self.bias.numel():
            out += self.bias[slot]
        if self.shift.numel():
            out -= self.shift[rows, None]
        return out


@dataclass(frozen=True)
class Run:
    """Neighbouring rounds that use the same slots: one of each pooling, then one of each model."""

    start: int
    stop: int
    slots: tuple[int, ...]

    def cut(self, rows: int) -> Iterator[Run]:
        """Pieces of at most `rows` rounds."""
        edges = [*range(self.start, self.stop, rows), self.stop]
        return (Run(a, b, self.slots) for a, b in pairwise(edges))


@dataclass(frozen=True)
class Forms:
    """Everything that is summed over the actions of a batch.

    Attributes
    ----------
    target, logging : Form
        The scores of π, and of π0 if it is needed.
    pools : Sequence[Form]
        The logarithms of the shares of each pooling.
    models : Sequence[Form]
        The predictions of each reward model.
    action : Tensor
        The logged action of each round.
    """

    runs: Sequence[Run]
    target: Form
    logging: Form | None
    pools: Sequence[Form]
    models: Sequence[Form]
    action: Tensor

    def each(self, change: Callable[[Form], Form]) -> Forms:
        """With every form changed."""
        logging, pools, models = self.logging, [*map(change, self.pools)], [*map(change, self.models)]
        return replace(
            self,
            target=change(self.target),
            logging=None if logging is None else change(logging),
            pools=pools,
            models=models,
        )

    def head(self, rounds: int) -> Forms:
        """The first rounds."""
        runs = [Run(run.start, min(run.stop, rounds), run.slots) for run in self.runs if run.start < rounds]
        return replace(self.each(lambda form: form.head(rounds)), runs=runs, action=self.action[:rounds])

    def to(self, kind: Any) -> Forms:
        """In another precision."""
        return self.each(lambda form: form.to(kind))

    def with_used_slots(self) -> Forms:
        """Without the slots that no run uses."""
        used = [sorted(set(slots)) for slots in zip(*(run.slots for run in self.runs), strict=True)]
        forms = [form.some(slots) for form, slots in zip([*self.pools, *self.models], used, strict=True)]
        runs = [
            replace(run, slots=tuple(own.index(slot) for own, slot in zip(used, run.slots, strict=True)))
            for run in self.runs
        ]
        return replace(self, runs=runs, pools=forms[: len(self.pools)], models=forms[len(self.pools) :])

    @property
    def rounds(self) -> int:
        return int(self.target.left.shape[0])

    @property
    def n_actions(self) -> int:
        return int(self.target.right.shape[1])


@dataclass(frozen=True)
class FusedSums:
    """Sums over the actions of each round.

    Attributes
    ----------
    target, logging : Tensor
        log Σ exp(score) of each policy.
    above, below : Tensor
        Σ π·share and Σ π0·share of each pooling: poolings × rounds.
    baselines : Tensor
        Σ π·q of each model: models × rounds.
    """

    target: Tensor
    logging: Tensor | None
    above: Tensor
    below: Tensor
    baselines: Tensor

    @property
    def parts(self) -> list[Tensor]:
        """Every sum."""
        logging = [] if self.logging is None else [self.logging]
        return [self.target, *logging, *self.above, *self.below, *self.baselines]

    @property
    def finite(self) -> Tensor:
        """Whether every sum is finite."""
        return reduce(and_, (part.isfinite().all() for part in self.parts))

    @property
    def both(self) -> tuple[Tensor, Tensor]:
        return self.above, self.below

"""Scores of rounds × actions as products of two small tables, which is all that a device is sent.

A form gives round t and action a the number left_t · right_a + bias_a, where `right` and `bias` may have several versions
(slots), such as one per fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
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
    """

    runs: Sequence[Run]
    target: Form
    logging: Form | None
    pools: Sequence[Form]
    models: Sequence[Form]

    def each(self, change: Callable[[Form], Form], runs: Sequence[Run]) -> Forms:
        """With every form changed."""
        logging = None if self.logging is None else change(self.logging)
        return Forms(runs, change(self.target), logging, [*map(change, self.pools)], [*map(change, self.models)])

    def head(self, rounds: int) -> Forms:
        """The first rounds."""
        runs = [Run(run.start, min(run.stop, rounds), run.slots) for run in self.runs if run.start < rounds]
        return self.each(lambda form: form.head(rounds), runs)

    def to(self, kind: Any) -> Forms:
        """In another precision."""
        return self.each(lambda form: form.to(kind), self.runs)

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
    def both(self) -> tuple[Tensor, Tensor]:
        return self.above, self.below

"""An engine for a resampled log: every unit occurs as often as it was drawn, so that everything fitted is refitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offpolicy.core.device import Device
from offpolicy.core.hashing import drawn_counts
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.engines.base import Engine, Progress
from offpolicy.statistics.base import Joint, State, Statistic


@dataclass(frozen=True)
class Resampled(Engine):
    """Runs on `engine`, with each row of a unit repeated as often as the unit was drawn.

    Copies are ordinary rows: whatever counts rows, weights or actions sees the resampled log. They have the hash of their
    unit, so that all of them are in the fold of the unit.
    """

    engine: Engine
    seed: int
    draw: int

    @property
    def threads(self) -> int | None:
        return self.engine.threads

    @property
    def accelerator(self) -> Device | None:
        return self.engine.accelerator

    @property
    def packages(self) -> tuple[str, ...]:
        return self.engine.packages

    def on_one_thread(self) -> Resampled:
        return replace(self, engine=self.engine.on_one_thread())

    def check(self, log: Log) -> None:
        self.engine.check(log)

    def reduce(self, log: Log, statistic: Statistic, progress: Progress | None = None) -> Any:
        """Fold the statistic over the resampled log."""
        if isinstance(statistic, Joint):  # part by part, so that an engine can still split large states into pieces
            parts = {key: Drawn(part, self.seed, self.draw) for key, part in statistic.parts.items()}
            drawn: Statistic = replace(statistic, parts=parts)
        else:
            drawn = Drawn(statistic, self.seed, self.draw)
        return self.engine.reduce(log, drawn, progress)


@dataclass(frozen=True)
class Drawn:
    """A statistic of the rows that were drawn."""

    statistic: Statistic
    seed: int
    draw: int

    @property
    def columns(self) -> tuple[str, ...]:
        return self.statistic.columns

    @property
    def batch_rows(self) -> int | None:
        return self.statistic.batch_rows

    def zero(self) -> State:
        return self.statistic.zero()

    def fold(self, state: State, batch: Batch) -> State:
        if "drawn" not in batch.memo:  # the parts of a pass share it
            counts = drawn_counts(batch.unit, self.seed, self.draw)
            batch.memo["drawn"] = batch.take(np.repeat(np.arange(len(batch)), counts))
        drawn: Batch = batch.memo["drawn"]
        return self.statistic.fold(state, drawn) if len(drawn) else state

    def merge(self, a: State, b: State) -> State:
        return self.statistic.merge(a, b)

    def finish(self, state: State) -> Any:
        return self.statistic.finish(state)

    def __getattr__(self, name: str) -> Any:
        """How its state may be split into pieces: `summed`, `pieces`, `merge_pieces`, if the statistic has them."""
        if name not in ("summed", "pieces", "merge_pieces"):
            raise AttributeError(name)
        return getattr(self.statistic, name)

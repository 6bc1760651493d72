"""An engine that sees a log drawn anew: every unit as often as chance says, so that all that is fitted is fitted again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from offpolicy.core.hashing import drawn_counts
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.engines.base import Engine, Progress
from offpolicy.statistics.base import Joint, State, Statistic


@dataclass(frozen=True)
class Resampled:
    """Runs on `engine`, with each row of a unit as many times as the unit was drawn.

    Copies are rows like others: whatever counts rows, weights or actions sees the log that was drawn. They keep the hash of
    their unit, so that all of them lie in one fold, the one that the unit is in.
    """

    engine: Engine
    seed: int
    draw: int

    @property
    def threads(self) -> int | None:
        return self.engine.threads

    def check(self, log: Log) -> None:
        self.engine.check(log)

    def reduce(self, log: Log, statistic: Statistic, progress: Progress | None = None) -> Any:
        """Fold the statistic over the log that was drawn."""
        if isinstance(statistic, Joint):  # part by part, so that an engine can still cut large states into pieces
            drawn: Statistic = Joint({key: Drawn(part, self.seed, self.draw) for key, part in statistic.parts.items()})
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
        """How its state may be cut into pieces: `summed`, `pieces`, `merge_pieces`, where the statistic has them."""
        if name not in ("summed", "pieces", "merge_pieces"):
            raise AttributeError(name)
        return getattr(self.statistic, name)

"""The values of every estimate on logs drawn anew, with all that is fitted fitted again: made when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.core.progress import PassProgress
from offpolicy.data.checks import whole

Key = tuple[str | None, str, str, str]
"""Slice, reward, policy and estimator."""
FEWEST = 10


@dataclass(frozen=True)
class Redraws:
    """Each draw is one evaluation of the log, and serves every estimate, every difference and every slice of it."""

    run: Callable[[int], Mapping[Key, float]]
    """The values of a draw, by its number."""
    progress: bool | None = None
    _done: list[Mapping[Key, float]] = field(default_factory=list, repr=False, compare=False)

    def of(self, key: Key, draws: int) -> FloatArray:
        """The values of one estimate in the first `draws` draws."""
        draws = whole("draws", draws, FEWEST, besides=" (100 is usual)")
        with PassProgress("refitting", draws, self.progress, done=len(self._done)) as told:
            while len(self._done) < draws:
                self._done.append(self._drawn(len(self._done)))
                told(1)
        return np.array([values[key] for values in self._done[:draws]])

    def _drawn(self, draw: int) -> Mapping[Key, float]:
        try:
            return self.run(draw)
        except (InputError, OSError) as error:
            raise InputError(
                f"the bootstrap that refits reads the log again for each draw, and draw {draw} failed: {error} "
                "The log and its files must stay as they were, and have enough units for every fold; without refit=True "
                "(--refit) the bootstrap needs nothing but the sums it has."
            ) from error

"""The two constants: 1 takes the log as it is, and 0 leaves the baseline alone, as the direct method does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.spaces import ActionSpace
from offpolicy.ratios.base import FittedRatio, Fitting, Ratio
from offpolicy.ratios.rounds import Rounds


class _Constant(Ratio, FittedRatio):
    """What needs no fit is its own fitted form, whatever the actions are."""

    spaces = (ActionSpace,)

    weighs = False
    fitted = False

    def fit(self, fitting: Fitting, results: Sequence[Any]) -> FittedRatio:  # noqa: ARG002
        return self


@final
@dataclass(frozen=True)
class One(_Constant):
    """1: every round counts as it was logged."""

    def weights(self, rounds: Rounds) -> FloatArray:
        return np.ones(len(rounds.batch))


@final
@dataclass(frozen=True)
class Zero(_Constant):
    """0: no round is weighed."""

    corrects = False

    def weights(self, rounds: Rounds) -> FloatArray:
        return np.zeros(len(rounds.batch))

"""How wrong the propensities may be: bounds on the value where each true weight is off by a factor of up to Γ.

The self-normalised value Σ λwr / Σ λw is largest, over 1/Γ ≤ λ ≤ Γ, where λ is Γ for every reward above some threshold and
1/Γ for the rest; and the threshold is the largest value itself (Zhao, Small & Bhattacharya 2019, for weights).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.core.progress import PassProgress
from offpolicy.data.batch import FloatArray
from offpolicy.data.checks import factors
from offpolicy.data.log import Log
from offpolicy.engines import Engine
from offpolicy.inference.functionals import normal_quantile
from offpolicy.inference.reward_pass import RewardPass
from offpolicy.report import text
from offpolicy.scoring.scorer import Scorer
from offpolicy.statistics import State

LARGEST = 1e6
"""A claim that holds at this Γ holds at any."""
GAMMAS = (1.0, 1.1, 1.25, 1.5, 2.0)


class Bounds(NamedTuple):
    """What the value lies between at one Γ, and the interval around the two that allows for sampling as well."""

    gamma: float
    low: float
    high: float
    low_error: float
    high_error: float
    interval_low: float
    interval_high: float


@dataclass(frozen=True, repr=False)
class Sensitivity:
    """Bounds on the self-normalised value of a policy for several Γ, and how far "better than the log" holds."""

    policy: str
    reward: str
    value: float
    logged: float
    level: float
    rows: tuple[Bounds, ...]
    claim: str
    """What the value says of the policy: "better" or "worse" than the log."""
    holds_to: float
    """The Γ up to which the claim holds for the bounds; infinite where no Γ ends it."""
    surely_to: float | None
    """The same with the interval of the bound; None where it does not hold even if the propensities are right."""
    resolution: float
    """How much wider than need be the bounds are at most, because rewards between two points are kept as one sum."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values; what is infinite is None beside `always`."""
        told = {name: getattr(self, name) for name in ("policy", "reward", "value", "logged", "level", "claim")}
        ends = {"holds_to": self.holds_to, "surely_to": self.surely_to}
        told |= {name: end if end is not None and math.isfinite(end) else None for name, end in ends.items()}
        told["always"] = [name for name, end in ends.items() if end == math.inf]
        return told | {"resolution": self.resolution, "rows": [row._asdict() for row in self.rows]}

    def __str__(self) -> str:
        return text.sensitivity(self.to_dict())

    __repr__ = __str__


@dataclass(frozen=True)
class Tilted:
    """The weighted rewards of one policy by group of units, ready to be weighted otherwise."""

    rewards: FloatArray
    """Less `anchor`."""
    masses: FloatArray
    """Groups × rewards."""
    middles: tuple[FloatArray, FloatArray]
    logged: FloatArray
    """Groups × 2: Σω and Σω(r − anchor) of the log."""
    anchor: float

    def sensitivity(self, policy: str, reward: str, gamma: float | Sequence[float], level: float) -> Sensitivity:
        gammas = factors(gamma)
        if not self.overlaps:
            raise InputError(f"{policy}: every weight is 0, as the log holds nothing of what it does; there is no value.")
        rows = tuple(self._bounds(each, level) for each in gammas)
        value, logged = self._value(), self._logged()
        sign = 1.0 if value >= logged else -1.0
        return Sensitivity(
            policy=policy,
            reward=reward,
            value=value + self.anchor,
            logged=logged + self.anchor,
            level=level,
            rows=rows,
            claim="better" if sign > 0 else "worse",
            holds_to=self._holds_to(sign),
            surely_to=self._surely_to(sign, level),
            resolution=max(self._resolution(each) for each in gammas),
        )

    @property
    def overlaps(self) -> bool:
        """Whether any round has a weight."""
        return bool(self.masses.sum() > 0)

    def _value(self) -> float:
        return float(self.masses.sum(axis=0) @ self.rewards / self.masses.sum())

    def _logged(self) -> float:
        ones, earned = self.logged.sum(axis=0)
        return float(earned / ones)

    def _bounds(self, gamma: float, level: float) -> Bounds:
        z = normal_quantile(0.5 + level / 2)
        (low, below), (high, above) = (self._end(sign, gamma) for sign in (-1.0, 1.0))
        errors = self._error(below), self._error(above)
        low, high = low + self.anchor, high + self.anchor
        return Bounds(gamma, low, high, *errors, low - z * errors[0], high + z * errors[1])

    def _end(self, sign: float, gamma: float) -> tuple[float, FloatArray]:
        """The largest value (sign 1) or the least (−1), less the anchor, and the influence of each group on it.

        At the optimum the value does not move with the threshold, so that λ can be held fixed.
        """
        total = self.masses.sum(axis=0)
        value = _largest(sign * self.rewards, total, gamma)
        factor = np.where(sign * self.rewards > value, gamma, 1 / gamma)
        influence: FloatArray = self.masses @ (factor * (self.rewards - sign * value)) / float(factor @ total)
        return sign * value, influence

    def _error(self, influence: FloatArray) -> float:
        filled = int((self.logged[:, 0] > 0).sum())
        return float(np.sqrt(influence @ influence * filled / (filled - 1))) if filled > 1 else math.nan

    def _holds_to(self, sign: float) -> float:
        """With A and B the weighted parts of r on either side of the log's mean, A/Γ = ΓB."""
        away = sign * (self.rewards - self._logged())
        total = self.masses.sum(axis=0)
        against = float(total @ np.maximum(-away, 0.0))
        return math.sqrt(float(total @ np.maximum(away, 0.0)) / against) if against > 0 else math.inf

    def _surely_to(self, sign: float, level: float) -> float | None:
        z, logged = normal_quantile(0.5 + level / 2), self._logged()
        own = (self.logged[:, 1] - logged * self.logged[:, 0]) / self.logged[:, 0].sum()

        def sure(gamma: float) -> bool:
            value, influence = self._end(-sign, gamma)
            return sign * (value - logged) > z * self._error(influence - own)  # paired

        if not sure(1.0):
            return None
        if sure(LARGEST):
            return math.inf
        low, high = 0.0, math.log(LARGEST)
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if sure(math.exp(middle)) else (low, middle)
        return math.exp(low)

    def _resolution(self, gamma: float) -> float:
        """The bounds against those of the least spread that the sums allow."""
        ways = ((rewards, masses.sum(axis=0)) for rewards, masses in ((self.rewards, self.masses), self.middles))
        most, least = ([_largest(sign * rewards, total, gamma) for sign in (-1.0, 1.0)] for rewards, total in ways)
        return max(0.0, *(a - b for a, b in zip(most, least, strict=True)))


@dataclass(frozen=True)
class Tilting:
    """One more pass over the log for every policy and reward, when the first of them is asked for."""

    log: Log
    engine: Engine
    scorer: Scorer
    low: FloatArray
    high: FloatArray
    """The least and the largest of each reward."""
    progress: bool | None

    @cached_property
    def _sums(self) -> tuple[RewardPass, State]:
        statistic = RewardPass.of(self.log, self.scorer)
        with PassProgress("bounding", len(self.log), self.progress) as told:
            return statistic, self.engine.reduce(self.log, statistic, told)

    def of(self, policy: int, reward: int) -> Tilted:
        statistic, state = self._sums
        bins, weighted = statistic.bins[reward], state["weighted"][f"{policy}:{reward}"]
        atoms = bins.atoms(weighted, float(self.low[reward]), float(self.high[reward]))
        return Tilted(*atoms, bins.middles(weighted), state["logged"][reward].T, bins.anchor)


def _largest(rewards: FloatArray, masses: FloatArray, gamma: float) -> float:
    """max Σ λmr / Σ λm over 1/Γ ≤ λ ≤ Γ. Each threshold gives a larger value, which is the next one, until it stays."""
    value = float(masses @ rewards / masses.sum())
    while True:
        weighed = np.where(rewards > value, gamma, 1 / gamma) * masses
        larger = float(weighed @ rewards / weighed.sum())
        if not larger > value:
            return value
        value = larger

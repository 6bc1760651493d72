"""`Plan`: how many rounds an interval of a given width needs, with more exploration or without, and a decision."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.checks import is_number
from offpolicy.inference.exploration import ExplorationPass, weighted_part
from offpolicy.inference.functionals import Functional, ScoreSums, variance
from offpolicy.inference.intervals import normal_quantile
from offpolicy.report import plots, text
from offpolicy.results.estimate import Estimate
from offpolicy.results.evidence import Evidence, LogAccess
from offpolicy.scoring.score_pass import ScorePass

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POWER = 0.8
STATED = 0.9
"""The level of the range that is given for each number of rounds."""


@dataclass(frozen=True)
class PlannedPolicy:
    """What one policy needs under one share of exploration.

    Attributes
    ----------
    policy : str
        Its name.
    explore : float
        The share of rounds in which the logging policy would take a uniformly random action.
    rounds, rounds_low, rounds_high : float
        How many rounds the interval needs, and the range in which this number lies with 90% confidence.
    decision_rounds : float
        How many rounds are needed to tell the policy from the baseline with 80% power, if the difference is what it is
        estimated to be; infinite if there is none.
    """

    policy: str
    explore: float
    rounds: float
    rounds_low: float
    rounds_high: float
    decision_rounds: float


@dataclass(frozen=True, repr=False)
class Plan:
    """How many rounds each policy needs.

    Attributes
    ----------
    half_width, level : float
        Half the width of the interval, and its level.
    estimator, reward : str
        Their names.
    logged : int
        The number of rounds of the log.
    baseline : str or None
        The policy that decisions are about; None: what was logged.
    rows : tuple of PlannedPolicy
        One per policy and share of exploration.

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Linear(n_actions=5, clicks=True, seed=0)
    >>> plan = op.evaluate(world.sample(2_000, seed=0), world.target, op.SNIPS()).plan(half_width=0.01)
    >>> few, many = (plan.rows[k].rounds for k in (-1, 0))
    >>> few < many
    True
    """

    half_width: float
    level: float
    estimator: str
    reward: str
    logged: int
    baseline: str | None
    rows: tuple[PlannedPolicy, ...]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot how many rounds each policy needs, with the range of that number, by the share of exploration.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return plots.planned(self.to_dict(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return text.plan(self.to_dict())

    __repr__ = __str__


@dataclass(frozen=True)
class Precision:
    """The variance per round of an estimate, and its relative standard error."""

    variance: float
    error: float

    @classmethod
    def of(cls, f: Functional, sums: ScoreSums) -> Precision:
        """From the rows; its error from the kurtosis of the buckets, whose excess falls with the rows in each."""
        influence = sums.filled @ f.gradient
        influence = influence - influence.mean() if len(influence) else influence
        second, k = float((influence**2).sum()), max(len(influence), 1)
        kurtosis = k * float((influence**4).sum()) / second**2 if second > 0 else 3.0
        spread = max(kurtosis - 3, 0.0) / k + 2 / (k if sums.clustered else max(sums.n, 1))
        return cls(sums.n * variance(f, sums), math.sqrt(spread))

    def rounds(self, half_width: float, level: float) -> tuple[float, float, float]:
        """How many rounds, and the range of that number."""
        exact = self.variance * (normal_quantile(0.5 + level / 2) / half_width) ** 2
        factor = math.exp(normal_quantile(0.5 + STATED / 2) * self.error)
        return exact, exact / factor, exact * factor


def checked_shares(explore: Any) -> tuple[float, ...]:
    shares = (explore,) if is_number(explore) or not isinstance(explore, Iterable) else tuple(explore)
    if not shares or not all(is_number(share) and 0 <= share <= 1 for share in shares):
        raise InputError(f"explore is {explore!r}; give shares of the rounds, from 0 to 1.")
    return tuple(float(share) for share in shares)


@dataclass(frozen=True)
class Planner:
    """Plans from estimates by one estimator and their differences from the baseline, by policy."""

    estimates: Sequence[Estimate]
    differences: Mapping[str, Evidence]

    def rows(self, half_width: float, level: float, shares: Sequence[float]) -> tuple[PlannedPolicy, ...]:
        of_values = {each.policy: _evidence(each) for each in self.estimates}
        named = [*of_values.items(), *self.differences.items()]
        less = self._saved([evidence for _, evidence in named], shares).tolist()
        rows = []
        for k, (policy, evidence) in enumerate(of_values.items()):
            for s, share in enumerate(shares):
                precision = Precision.of(evidence.functional, evidence.sums)
                needed = Precision(max(precision.variance - less[k][s], 0.0), precision.error).rounds(half_width, level)
                decision = math.inf
                if policy in self.differences:
                    at = len(of_values) + list(self.differences).index(policy)
                    decision = _decision(self.differences[policy], less[at][s], level)
                rows.append(PlannedPolicy(policy, share, *needed, decision))
        return tuple(rows)

    def _saved(self, evidence: Sequence[Evidence], shares: Sequence[float]) -> Any:
        """By how much each variance per round would be smaller, estimates × shares; NaN where that is unknown."""
        if not any(shares):
            return np.zeros((len(evidence), len(shares)))
        access: LogAccess = evidence[0].log.open("plan(explore=…)")
        tilting = access.tilting
        space, scorer = tilting.log.space, access.scorer()
        if space.count is None:
            raise InputError("explore: exploration is planned for discrete actions; use explore=0.")
        parts = [weighted_part(each.functional, scorer.plan) for each in evidence]
        gradients = np.array([np.zeros_like(each.functional.gradient) if part is None else part
                              for part, each in zip(parts, evidence, strict=True)])  # fmt: skip
        schema = tilting.log.schema
        whole = ScorePass(scorer, space.n_codes, space.table_rows, len(schema.slices or ()), schema.clustered)
        found = tilting.engine.reduce(tilting.log, ExplorationPass(whole, gradients, (0.0, *shares), 1 / space.count))
        less = found[:, :1] - found[:, 1:]
        return np.where(np.array([part is None for part in parts])[:, None] & (np.array(shares) > 0), np.nan, less)


def _evidence(estimate: Estimate) -> Evidence:
    if estimate.evidence is None or not math.isfinite(estimate.std_error):
        raise InputError(f"{estimate.name}: a plan needs its standard error and its sums; evaluate again, with errors.")
    return estimate.evidence


def _decision(difference: Evidence, less: float, level: float) -> float:
    """The rounds after which the difference, as estimated, is significant with a probability of 80%."""
    f = difference.functional
    if not f.value:
        return math.inf
    per_round = max(Precision.of(f, difference.sums).variance - less, 0.0)
    return per_round * ((normal_quantile(0.5 + level / 2) + normal_quantile(POWER)) / f.value) ** 2

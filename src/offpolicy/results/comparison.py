"""`Comparison`: several policies compared at once, and the choice of one of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from offpolicy.core.errors import InputError
from offpolicy.diagnostics.verdict import Verdict
from offpolicy.inference.intervals import Interval, checked_level, normal_quantile
from offpolicy.inference.simultaneous import Family
from offpolicy.report import plots, text
from offpolicy.results.estimate import Estimate
from offpolicy.results.evidence import Evidence
from offpolicy.results.plan import POWER

if TYPE_CHECKING:
    from matplotlib.axes import Axes


NO_ERROR = 1e-12
"""A difference with a smaller standard error is that of two policies that do the same."""


@dataclass(frozen=True)
class ComparedPolicy:
    """One of several policies.

    Attributes
    ----------
    policy : str
        Its name.
    value, std_error : float
        Its estimate, with the standard error.
    interval : Interval
        The interval of the value. Those of all policies hold together.
    difference, difference_error : float or None
        Its value minus that of the baseline, and the standard error of this difference; None if it is not compared.
    difference_interval : Interval or None
        The interval of the difference. Those of all policies hold together.
    conclusion : str
        "better" or "worse" than the baseline, "undecided", "baseline", or "not compared" if the estimate of the policy or
        of the baseline should not be trusted.
    may_be_best : bool
        Whether it cannot be ruled out that no other policy is better.
    verdict : Verdict
        The verdict of its estimate.
    decision_rounds : float or None
        If it is undecided: how many rounds in all would decide it with a probability of 80%, if the difference is what it is
        estimated to be.
    """

    policy: str
    value: float
    std_error: float
    interval: Interval
    difference: float | None
    difference_error: float | None
    difference_interval: Interval | None
    conclusion: str
    may_be_best: bool
    verdict: Verdict
    decision_rounds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {**asdict(self), "verdict": self.verdict.name}


@dataclass(frozen=True, repr=False)
class Comparison:
    """Several policies compared at once: statements that hold together, however many policies there are.

    Attributes
    ----------
    estimator, reward : str
        The names of the estimator and of the reward.
    level : float
        The probability with which all intervals of the values hold, as do all intervals of the differences, and with which
        the best policy is among those that may be best.
    logged : float
        The mean reward of the log.
    baseline : str or None
        The policy that the others are compared with; None: what was logged.
    choice : str or None
        The policy whose difference from the baseline has the highest lower bound; the baseline itself (None: the logging
        policy) if no lower bound is above 0.
    rows : tuple of ComparedPolicy
        The policies, those with the largest value first.

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Linear(n_actions=5, seed=0)
    >>> policies = {"new": world.target, "old": world.logging, "uniform": op.Uniform()}
    >>> best = op.evaluate(world.sample(5_000, seed=0), policies, op.SNIPS()).best(baseline="old")
    >>> best.choice, best.better, best.may_be_best
    ('new', ('new', 'uniform'), ('new',))
    """

    estimator: str
    reward: str
    level: float
    logged: float
    baseline: str | None
    choice: str | None
    rows: tuple[ComparedPolicy, ...]

    @classmethod
    def of(cls, estimates: Sequence[Estimate], logged: Estimate, baseline: str | None, level: float) -> Comparison:
        """A comparison of estimates by one estimator, each for another policy.

        Parameters
        ----------
        estimates : sequence of Estimate
            One per policy.
        logged : Estimate
            The mean reward of the log, for the case that there is no other baseline.
        baseline : str or None
            The policy to compare with; None: what was logged.
        level : float
            The probability with which everything holds together.
        """
        level = checked_level(level)
        if not any(math.isfinite(e.std_error) for e in estimates):
            raise InputError("policies are compared by their standard errors, and no estimate has one (errors=False).")
        trusted = [e for e in estimates if e.verdict is not Verdict.DO_NOT_TRUST and math.isfinite(e.std_error)]
        against = next((e for e in trusted if e.policy == baseline), logged if baseline is None else None)
        values = _joint({e.policy: _evidence(e) for e in trusted}, level)
        others = {e.policy: _evidence(e).minus(_evidence(against)) for e in trusted if against and e.policy != baseline}
        differences = _joint(others, level)
        family = Family([_evidence(e).functional for e in trusted], _evidence(logged).sums)
        may_be_best = {e.policy for e, may in zip(trusted, family.may_be_largest(level), strict=True) if may}

        def row(e: Estimate) -> ComparedPolicy:
            difference, interval = others.get(e.policy), differences.get(e.policy)
            conclusion = "baseline" if e.policy == baseline else _conclusion(interval)
            return ComparedPolicy(
                policy=e.policy,
                value=e.value,
                std_error=e.std_error,
                interval=values.get(e.policy, replace(e.interval, low=math.nan, high=math.nan, level=level)),
                difference=None if difference is None else difference.functional.value,
                difference_error=None if difference is None else difference.std_error,
                difference_interval=interval,
                conclusion=conclusion,
                may_be_best=e.policy in may_be_best,
                verdict=e.verdict,
                decision_rounds=_decision_rounds(difference, interval) if conclusion == "undecided" else None,
            )

        rows = sorted(map(row, estimates), key=lambda row: -row.value if math.isfinite(row.value) else math.inf)
        better = [r for r in rows if r.conclusion == "better" and r.difference_interval is not None]
        chosen = max(better, key=lambda r: r.difference_interval.low if r.difference_interval else 0.0, default=None)
        choice = baseline if chosen is None else chosen.policy
        return cls(estimates[0].estimator, logged.reward, level, logged.value, baseline, choice, tuple(rows))

    @property
    def better(self) -> tuple[str, ...]:
        """The policies that are better than the baseline."""
        return tuple(row.policy for row in self.rows if row.conclusion == "better")

    @property
    def worse(self) -> tuple[str, ...]:
        """The policies that are worse than the baseline."""
        return tuple(row.policy for row in self.rows if row.conclusion == "worse")

    @property
    def may_be_best(self) -> tuple[str, ...]:
        """The policies that may be the best of those compared."""
        return tuple(row.policy for row in self.rows if row.may_be_best)

    def __getitem__(self, policy: str) -> ComparedPolicy:
        """The row of a policy."""
        return next(row for row in self.rows if row.policy == policy)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the value of every policy with its simultaneous interval.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return plots.best(self.to_dict(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        names = ("estimator", "reward", "level", "logged", "baseline", "choice")
        return {name: getattr(self, name) for name in names} | {"rows": [row.to_dict() for row in self.rows]}

    def __str__(self) -> str:
        return text.best(self.to_dict())

    __repr__ = __str__


def _evidence(estimate: Estimate) -> Evidence:
    if estimate.evidence is None:
        raise InputError("this result was saved by an older offpolicy, without sums; evaluate again to compare policies.")
    return estimate.evidence


def _joint(evidence: Mapping[str, Evidence], level: float) -> dict[str, Interval]:
    """Intervals that hold together, by the method that suits each estimate."""
    if not evidence:
        return {}
    family = Family([each.functional for each in evidence.values()], next(iter(evidence.values())).sums)
    pointwise = family.pointwise_level(level)

    def interval(each: Evidence) -> Interval:
        found = each.interval(pointwise, "auto")
        return replace(found, level=level, method=f"{found.method}, simultaneous")

    return {name: interval(each) for name, each in evidence.items()}


def _decision_rounds(difference: Evidence | None, interval: Interval | None) -> float | None:
    """The rounds after which the interval excludes 0 with a probability of 80%: its width falls with their square root."""
    if difference is None or interval is None or not difference.std_error > NO_ERROR:
        return None
    size = abs(difference.functional.value)
    reach = (interval.high - interval.low) / 2 + normal_quantile(POWER) * difference.std_error
    return difference.sums.n * max(reach / size, 1.0) ** 2 if size else None


def _conclusion(difference: Interval | None) -> str:
    if difference is None:
        return "not compared"
    return "better" if difference.low > 0 else "worse" if difference.high < 0 else "undecided"

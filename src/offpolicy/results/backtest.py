"""`backtest`: estimates for past A/B tests, compared with what the new policy really earned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.data.checks import is_number
from offpolicy.data.log import Log
from offpolicy.engines.base import Engine
from offpolicy.estimators import Estimator, LoggedMean
from offpolicy.inference.intervals import Interval, checked_level, normal_quantile
from offpolicy.inference.widening import share_interval, widening
from offpolicy.policies.tables import Uniform
from offpolicy.report import backtest as report, plots
from offpolicy.results.estimate import Estimate
from offpolicy.results.evaluate import evaluate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Pair:
    """A past test: the log of policy A, policy B, and what B really earned.

    Parameters
    ----------
    log : Log
        The log of A.
    policy : Policy, array-like or function
        Policy B, as for `op.evaluate`.
    earned : float or Log
        What B earned per round; or its own log, whose mean reward and standard error are used.
    std_error : float, optional
        The standard error of `earned` if that is a number; 0 if it is known exactly.
    name : str, optional
        The name of the test; by default its number.
    """

    log: Log
    policy: Any
    earned: float | Log
    std_error: float | None = None
    name: str | None = None


@dataclass(frozen=True)
class Outcome:
    """One estimate beside what the policy really earned.

    Attributes
    ----------
    pair, estimator : str
        Their names.
    value, std_error : float
        The estimate.
    interval : Interval
        Its confidence interval.
    earned, earned_error : float
        What the policy earned, and its standard error.
    """

    pair: str
    estimator: str
    value: float
    std_error: float
    interval: Interval
    earned: float
    earned_error: float

    @property
    def defined(self) -> bool:
        """Whether there is an estimate with a finite interval."""
        numbers = (self.value, self.std_error, self.interval.low, self.interval.high, self.earned_error)
        return all(map(math.isfinite, numbers))

    @property
    def error(self) -> float:
        """The estimate minus what was earned."""
        return self.value - self.earned

    @property
    def centre(self) -> float:
        """The point estimate that belongs to the interval, or its middle if that does not lie within."""
        low, high = self.interval.low, self.interval.high
        own = self.value if self.interval.value is None else self.interval.value
        return own if low < own < high else (low + high) / 2

    @property
    def own_error(self) -> float:
        """The standard error that the interval states on the side of the truth."""
        end = self.interval.low if self.earned < self.centre else self.interval.high
        return abs(self.centre - end) / normal_quantile(0.5 + self.interval.level / 2)

    @property
    def difference(self) -> Interval:
        """The interval of estimate minus truth, combined from those of both (Zou and Donner 2008)."""
        own, level = self.interval, self.interval.level
        truth = normal_quantile(0.5 + level / 2) * self.earned_error
        middle = self.centre - self.earned
        low, high = middle - math.hypot(self.centre - own.low, truth), middle + math.hypot(own.high - self.centre, truth)
        return Interval(low, high, level, own.method, middle)

    @property
    def held(self) -> bool:
        """Whether estimate and truth agree within the errors of both."""
        return self.defined and 0.0 in self.difference

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        computed = {"error": self.error, "difference": asdict(self.difference), "held": self.held, "defined": self.defined}
        return asdict(self) | computed


@dataclass(frozen=True)
class BacktestedEstimator:
    """How the estimates of one estimator turned out.

    Attributes
    ----------
    estimator : str
        Its name.
    pairs, held : int
        The number of tests, and in how many of them the interval held. One without a finite interval did not hold.
    undefined : int
        In how many tests there was no finite interval.
    coverage, coverage_low, coverage_high : float
        The share that held, and its exact binomial interval.
    bias, bias_error : float
        The mean of estimate minus truth, and its standard error, from the stated errors of both.
    factor, factor_error, factor_low, factor_high : float
        By how much intervals must be widened to hold at their level, with its standard error and its interval.
    """

    estimator: str
    pairs: int
    held: int
    undefined: int
    coverage: float
    coverage_low: float
    coverage_high: float
    bias: float
    bias_error: float
    factor: float
    factor_error: float
    factor_low: float
    factor_high: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], level: float) -> BacktestedEstimator:
        """From all outcomes of one estimator.

        Parameters
        ----------
        outcomes : sequence of Outcome
            One or more.
        level : float
            The level of the intervals.

        Returns
        -------
        BacktestedEstimator
            Coverage, bias and calibration factor.
        """
        count, held = len(outcomes), sum(each.held for each in outcomes)
        known = [each for each in outcomes if each.defined]
        distances = np.array([each.centre - each.earned for each in known])
        truth_errors = np.array([each.earned_error for each in known])
        wide = widening(distances, np.array([each.own_error for each in known]), truth_errors, level)
        errors = [math.hypot(each.std_error, each.earned_error) for each in known]
        return cls(
            outcomes[0].estimator, count, held, count - len(known), held / count, *share_interval(held, count, level),
            math.fsum(each.error for each in known) / len(known) if known else math.nan,
            math.hypot(*errors) / len(known) if known else math.nan,
            wide.factor, wide.std_error, wide.low, wide.high,
        )  # fmt: skip


@dataclass(frozen=True, repr=False)
class Backtest:
    """How well estimates agreed with what policies really earned.

    Attributes
    ----------
    level : float
        The level of all intervals.
    rows : tuple of BacktestedEstimator
        One per estimator.
    outcomes : tuple of Outcome
        One per test and estimator.
    """

    level: float
    rows: tuple[BacktestedEstimator, ...]
    outcomes: tuple[Outcome, ...]

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], level: float) -> Backtest:
        """From outcomes of any number of tests and estimators.

        Parameters
        ----------
        outcomes : sequence of Outcome
            Yours, if the estimates exist already.
        level : float
            The level of the intervals.

        Returns
        -------
        Backtest
            A row per estimator.
        """
        names = dict.fromkeys(each.estimator for each in outcomes)
        groups = [[each for each in outcomes if each.estimator == name] for name in names]
        return cls(level, tuple(BacktestedEstimator.of(group, level) for group in groups), tuple(outcomes))

    def __getitem__(self, estimator: str) -> BacktestedEstimator:
        """The row of an estimator."""
        row = next((row for row in self.rows if row.estimator == estimator), None)
        if row is None:
            raise unknown_name("estimator", estimator, [row.estimator for row in self.rows])
        return row

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot every estimate minus what was earned, with the interval of the difference.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return plots.backtested(self.to_dict(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "schema": "offpolicy.backtest/1",
            "level": self.level,
            "rows": [asdict(row) for row in self.rows],
            "outcomes": [each.to_dict() for each in self.outcomes],
        }

    def __str__(self) -> str:
        return report.text(self.to_dict())

    __repr__ = __str__


def backtest(  # noqa: PLR0913
    pairs: Iterable[Pair],
    estimators: Estimator | Sequence[Estimator] | None = None,
    *,
    level: float = 0.95,
    cross_fit: int | None = None,
    engine: Engine | None = None,
    memory: str | int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Backtest:
    """Compare estimates for past A/B tests with what the new policies really earned.

    Both have errors: the standard error of what was earned counts as much as that of the estimate. The tests should have no
    rounds in common, so that their errors are independent.

    Parameters
    ----------
    pairs : sequence of Pair
        The past tests.
    estimators : Estimator or sequence of Estimator, optional
        As for `op.evaluate`; by default the set chosen for each log. The logged mean is left out, since it is no estimate of
        policy B.
    level : float, default 0.95
        The level of the intervals.
    cross_fit : int, optional
        As for `op.evaluate`.
    engine : Engine, optional
        As for `op.evaluate`.
    memory : str or int, optional
        As for `op.evaluate`.
    seed : int, default 0
        As for `op.evaluate`.
    progress : bool, optional
        As for `op.evaluate`.

    Returns
    -------
    Backtest
        Coverage, bias and calibration factor by estimator.

    Raises
    ------
    InputError
        If there are no pairs, or something is missing or wrong in one of them; the message names the pair.

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Linear(n_actions=5, clicks=True, seed=0)
    >>> earned = world.value(world.target)
    >>> pairs = [op.Pair(world.sample(500, seed=k), world.target, earned, std_error=0) for k in range(20)]
    >>> op.backtest(pairs, op.SNIPS())["SNIPS"].pairs
    20
    """
    level, named = checked_level(level), _named(pairs)
    truths = {name: _truth(name, pair, engine) for name, pair in named.items()}
    outcomes = []
    for name, pair in named.items():
        _one_reward(name, pair.log)
        try:
            result = evaluate(
                pair.log, {"target": pair.policy}, estimators, level=level, cross_fit=cross_fit, engine=engine,
                memory=memory, seed=seed, progress=progress,
            )  # fmt: skip
        except InputError as error:
            raise InputError(f"{name}: {error}") from error
        outcomes += [_outcome(name, each, truths[name]) for each in result if not _naive(each)]
    if not outcomes:
        raise InputError("estimators: the logged mean is no estimate of policy B; name another estimator.")
    return Backtest.of(outcomes, level)


def _named(pairs: Iterable[Pair]) -> dict[str, Pair]:
    """The pairs by name."""
    if not isinstance(pairs, Iterable):
        raise InputError(f"pairs is a {type(pairs).__name__}; give a list of op.Pair(log, policy, earned, std_error).")
    listed = list(pairs)
    for each in listed:
        if not isinstance(each, Pair):
            raise InputError(
                f"pairs has a {type(each).__name__}; give op.Pair(log, policy, earned, std_error) for each test."
            )
    if not listed:
        raise InputError("there are no pairs; give at least one past test, as op.Pair(log, policy, earned, std_error).")
    named = {each.name or f"pair {k}": each for k, each in enumerate(listed, 1)}
    if len(named) < len(listed):
        raise InputError("pairs: two of them have the same name.")
    return named


def _one_reward(name: str, log: Log) -> None:
    if not isinstance(log, Log):
        raise InputError(f"{name}: log is a {type(log).__name__}; create it with op.read_log(…) or op.Log(…).")
    if len(log.schema.rewards) > 1:
        raise InputError(f"{name}: the log has {len(log.schema.rewards)} rewards; a backtest needs a log with one.")


def _truth(name: str, pair: Pair, engine: Engine | None) -> tuple[float, float]:
    """What B earned, and its standard error."""
    if isinstance(pair.earned, Log):
        if pair.std_error is not None:
            raise InputError(f"{name}: std_error is computed from the log of B; leave it out.")
        _one_reward(name, pair.earned)
        try:
            own = evaluate(pair.earned, Uniform(), LoggedMean(), engine=engine, progress=False)["LoggedMean"]
        except InputError as error:
            raise InputError(f"{name}, log of B: {error} Or give what B earned as a number, with std_error.") from error
        return own.value, own.std_error
    if not is_number(pair.earned) or not math.isfinite(pair.earned):
        raise InputError(f"{name}: earned is {pair.earned!r}; give what B earned per round, or the log of B.")
    if pair.std_error is None:
        raise InputError(f"{name}: std_error is missing; give that of earned, or 0 if it is known exactly.")
    if not is_number(pair.std_error) or not 0 <= pair.std_error < math.inf:
        raise InputError(f"{name}: std_error is {pair.std_error!r}; give a number of 0 or more.")
    return float(pair.earned), float(pair.std_error)


def _naive(estimate: Estimate) -> bool:
    return any(reason.code == "naive" for reason in estimate.reasons)


def _outcome(pair: str, estimate: Estimate, truth: tuple[float, float]) -> Outcome:
    return Outcome(pair, estimate.estimator, estimate.value, estimate.std_error, estimate.interval, *truth)

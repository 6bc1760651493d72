"""`Estimate` and `Difference`: a number with its standard error, its intervals and the findings about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from offpolicy.core.arrays import LARGEST_NUMBER
from offpolicy.core.errors import InputError, unknown_name
from offpolicy.data.checks import is_number, whole
from offpolicy.diagnostics.models import refitted
from offpolicy.diagnostics.verdict import Finding, Verdict, worst
from offpolicy.estimators.selection import standardised
from offpolicy.inference.functionals import in_errors
from offpolicy.inference.intervals import (
    FINITE_SAMPLE,
    REFITTED,
    Interval,
    Method,
    best_method,
    checked_level,
    normal_interval,
)
from offpolicy.models.embedding_table import EmbeddingTable, LabelledEmbedding
from offpolicy.report import text
from offpolicy.results.evidence import Evidence, LogHandle, SlotValue

DRAWS = 100


@dataclass(frozen=True, repr=False, eq=False)
class Answer(ABC):
    """A number with its standard error.

    Attributes
    ----------
    value : float
        The number itself.
    std_error : float
        Its standard error.
    error_covers : str
        "sampling", or "sampling+fit" if the standard error includes the error of what was fitted.
    interval : Interval
        The confidence interval shown in reports: `low`, `high`, `level` and `method`.
    evidence : Evidence or None
        What other intervals and differences are computed from; None for a result loaded from a file of the first format.
    """

    value: float
    std_error: float
    error_covers: str
    interval: Interval
    evidence: Evidence | None = field(repr=False)

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is an answer to, for messages."""

    @property
    def slots(self) -> tuple[SlotValue, ...]:
        """The value of each slot, with its standard error and interval, if rewards belong to the slots of a list."""
        return () if self.evidence is None else self.evidence.of_slots(self.interval.level)

    def confidence_interval(
        self, level: float | None = None, method: str | None = None, *, refit: bool | None = None, draws: int = DRAWS
    ) -> Interval:
        """A confidence interval, at any level and by any method.

        Parameters
        ----------
        level : float, optional
            The confidence level, between 0 and 1; by default that of the interval shown.
        method : {"auto", "student", "normal", "bootstrap", "bernstein", "cressie-read", "smoothing"}, optional
            By default that of the interval shown. "auto" is "cressie-read" where rewards alone are weighted, with weights
            whose mean must be 1 (IPS, SNIPS), "smoothing" for LogSmoothing, and "student" elsewhere. The last three hold for
            any number of rounds if the log states its `reward_range`, and exist for estimates only, not for differences and
            blends.
        refit : bool, optional
            Whether to read the log again for each draw of the bootstrap, and to refit reward models and embeddings and
            repeat every selection among candidates. No other interval includes all of that.
        draws : int, default 100
            The number of draws with `refit`. They are shared by all estimates of the evaluation.

        Returns
        -------
        Interval
            With `low`, `high`, `level`, `method` and `value`, the point estimate that belongs to it; `x in interval` tests
            whether it contains x.

        Raises
        ------
        InputError
            If the method does not exist for this estimate, or `refit` is requested and the log is not available.

        Examples
        --------
        >>> import offpolicy as op
        >>> world = op.worlds.Linear(n_actions=5, seed=0)
        >>> dr = op.evaluate(world.sample(1_000, seed=0), world.target, op.DR())["DR"]
        >>> narrow, wide = dr.confidence_interval(0.8), dr.confidence_interval(0.99, method="bootstrap")
        >>> wide.low < narrow.low < dr.value < narrow.high < wide.high
        True
        """
        shown, named = self.interval, method is not None
        if method is None:
            refit = shown.method == REFITTED if refit is None else refit
            method = "bootstrap" if shown.method == REFITTED else shown.method
        elif method == REFITTED:
            refit, method = True, "bootstrap"
        level = shown.level if level is None else checked_level(level)
        requested = f"{method}, refitted" if refit else method
        if (level, requested, draws) == (shown.level, shown.method, DRAWS):
            return shown
        if method not in get_args(Method):
            raise unknown_name("interval method", str(method), get_args(Method))
        if self.evidence is not None:
            if not named and method == best_method(self.evidence.bounds):
                method = "auto"  # as it was chosen; a method that the user named may warn
            return self.evidence.interval(level, method, draws if refit else None)
        if requested == "normal":
            return normal_interval(self.value, self.std_error, level)
        raise InputError(
            f"{self.name} was saved by an older offpolicy, without sums: it has normal intervals at any level, and the "
            f"{shown.method} interval at level {shown.level:g}; for others, evaluate again."
        )

    def confidence_sequence(
        self, level: float | None = None, *, weight_bound: float | None = None, look: int = 1
    ) -> Interval:
        """An interval that holds at every look at once: look every day, and stop whenever it is narrow enough.

        It holds for any number of rounds and for weights of any size, given that the propensities are right and that rewards
        stay within the log's `reward_range`. It needs `op.evaluate(…, sequence=True)`, and exists for IPS and SNIPS, for DR
        with a reward model that was fitted on other rounds, and for differences of these.

        Parameters
        ----------
        level : float, optional
            The probability with which the intervals of all looks hold together; by default that of the interval shown.
        weight_bound : float, optional
            The largest possible weight, if it is known without looking at the log. It makes the upper bound narrower where
            rewards are rare, as well as differences, and a reward model requires it.
        look : int, default 1
            For a log with clusters: the number of this look, from 1. Rounds of returning users depend on each other, so that
            the error probability α is spent over the looks, α/(k(k + 1)) on the k-th.

        Returns
        -------
        Interval
            Its method is "sequence".

        Raises
        ------
        InputError
            If there is no such interval for this estimate, or its sums were not requested.

        Examples
        --------
        >>> import offpolicy as op
        >>> world = op.worlds.Linear(n_actions=5, clicks=True, seed=0)
        >>> log = world.sample(20_000, seed=0)
        >>> log.reward_range = (0, 1)
        >>> ips = op.evaluate(log, world.target, op.IPS(), sequence=True)["IPS"]
        >>> always, today = ips.confidence_sequence(), ips.confidence_interval()
        >>> always.low < today.low < today.high < always.high
        True
        """
        level = self.interval.level if level is None else checked_level(level)
        if weight_bound is not None and not (is_number(weight_bound) and 1 <= weight_bound < LARGEST_NUMBER):
            raise InputError(f"weight_bound is {weight_bound!r}; give the largest possible weight, 1 or more.")
        look = whole("look", look, 1)
        if self.evidence is None:
            raise InputError(f"{self.name} was saved by an older offpolicy, without sums; evaluate again.")
        return self.evidence.sequence(level, weight_bound, look)


@dataclass(frozen=True, repr=False, eq=False)
class Difference(Answer):
    """The paired difference of two estimates on the same rounds.

    Parameters
    ----------
    value : float
        The difference.
    std_error : float
        Its standard error, in which errors common to both estimates cancel.
    error_covers : str
        "sampling", or "sampling+fit" if the standard error includes the error of what was fitted.
    interval : Interval
        The confidence interval shown in reports.
    evidence : Evidence or None
        What other intervals are computed from; None for a result loaded from a file of the first format.
    name : str
        What is compared, such as "new:DR − old:DR".

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Linear(n_actions=5, seed=0)
    >>> lift = op.evaluate(world.sample(1_000, seed=0), world.target, op.DR()).lift()
    >>> lift.name
    'target:DR − target:LoggedMean'
    >>> lift.value > 0 and lift.z > 2
    True
    """

    name: str = ""

    @classmethod
    def of(cls, name: str, evidence: Evidence, level: float) -> Difference:
        """A difference computed from its evidence, with a Student interval.

        Parameters
        ----------
        name : str
            What is compared.
        evidence : Evidence
            The functional of the difference and its sums.
        level : float
            The level of the interval.
        """
        f = evidence.functional
        return cls(f.value, evidence.std_error, f.error_covers, evidence.interval(level, "auto"), evidence, name)

    def __repr__(self) -> str:
        return f"Difference({self.name}: {self.value:.6g} ± {self.std_error:.2g})"

    @property
    def z(self) -> float:
        """The difference divided by its standard error."""
        if self.evidence is None:
            return standardised(self.value, self.std_error)
        return in_errors(self.evidence.functional, self.evidence.sums)

    def to_dict(self) -> dict[str, Any]:
        """The value, standard error and interval as plain values."""
        return {"value": self.value, "std_error": self.std_error, "interval": asdict(self.interval)}


@dataclass(frozen=True, repr=False, eq=False)
class Estimate(Answer):
    """The estimate of one policy's value by one estimator, for one reward.

    Parameters
    ----------
    value : float
        The estimated mean reward per round.
    std_error : float
        Its standard error.
    error_covers : str
        "sampling", or "sampling+fit" if the standard error includes the error of what was fitted.
    interval : Interval
        The confidence interval shown in reports; see `confidence_interval` for others.
    evidence : Evidence or None
        What intervals and differences are computed from; None for a result loaded from a file of the first format.
    policy, estimator, reward : str
        The names of the policy, the estimator and the reward column.
    n : int
        The number of rounds.
    diagnostics : mapping of str to object
        Numbers about the estimate, such as "effective_sample_size" and "mean_weight".
    checks : tuple of Finding
        The result of every check, including those that raise no concern.
    labelled : LabelledEmbedding, optional
        The embedding that the weights come from; see `embedding`.

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Linear(n_actions=5, seed=0)
    >>> snips = op.evaluate(world.sample(1_000, seed=0), world.target, op.SNIPS())["SNIPS"]
    >>> snips.verdict, snips.reasons[0].code
    (<Verdict.CAUTION: 'caution'>, 'effective sample size')
    >>> snips.value in snips.interval
    True
    """

    policy: str
    estimator: str
    reward: str
    n: int
    diagnostics: Mapping[str, Any]
    checks: tuple[Finding, ...] = field(repr=False)
    labelled: LabelledEmbedding | None = field(repr=False, default=None)

    @property
    def name(self) -> str:
        """The policy and the estimator, such as "new:DR"."""
        return f"{self.policy}:{self.estimator}"

    @property
    def reasons(self) -> tuple[Finding, ...]:
        """The findings that are not OK: about the estimate itself, and its difference from a nearly unbiased one."""
        return tuple(check for check in self.checks if check.verdict is not Verdict.OK)

    def __repr__(self) -> str:
        shown = f"{self.estimator} of {self.policy}, {self.reward}: {self.value:.6g} ± {self.std_error:.2g}"
        return f"Estimate({shown}, {self.verdict.name})"

    @property
    def embedding(self) -> EmbeddingTable:
        """The embedding that its weights come from: one row per action; `.nearest(action)` lists the closest actions."""
        if self.labelled is None:
            raise InputError(
                f"{self.estimator} has no embedding; op.LearnedMIPS has one. (A saved result has only the map of an "
                "embedding: save result[…].embedding as well.)"
            )
        return self.labelled.table()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict among its findings."""
        return worst(self.reasons)

    def shown_with(self, method: str, refit: bool) -> Estimate:
        """The same estimate with another interval shown.

        An interval from a refitting bootstrap includes the error of the fit, so that findings about it are dropped.

        Parameters
        ----------
        method : str
            As for `confidence_interval`; an estimate without a finite-sample interval gets a Student interval.
        refit : bool
            Whether the bootstrap refits.
        """
        evidence = self.evidence
        if method in FINITE_SAMPLE and evidence is not None and (evidence.bounds is None or not evidence.bounds.has(method)):
            method = "auto"
        shown = self.confidence_interval(self.interval.level, method, refit=refit)
        counted = refit and evidence is not None and evidence.fitted
        return replace(self, interval=shown, checks=refitted(self.checks) if counted else self.checks)

    def explain(self) -> str:
        """The value, its error and every concern in words; for a blend also its candidates, with their weights and why.

        Returns
        -------
        str
            Text for print().
        """
        return text.explained(self.to_dict())

    def scores(self, path: str | Path) -> None:
        """Write the row number, baseline, correction and weight of every round as Parquet; reads the log again.

        The value is the mean of the baseline plus the mean of the correction; if the estimator is self-normalised, the
        latter is divided by the mean weight.

        Parameters
        ----------
        path : str or Path
            A file name that ends in `.parquet`.

        Raises
        ------
        InputError
            If the log is not available, or the estimate is one of a slice.
        """
        log = LogHandle() if self.evidence is None else self.evidence.log
        key = (None, self.reward, self.policy, self.estimator) if self.evidence is None else self.evidence.key
        log.open("scores(…)").write_scores(key, Path(path))

    def to_dict(self) -> dict[str, Any]:
        """Everything that reports show, as plain values."""
        return {
            "policy": self.policy,
            "estimator": self.estimator,
            "reward": self.reward,
            "value": self.value,
            "std_error": self.std_error,
            "error_covers": self.error_covers,
            "interval": asdict(self.interval),
            "n": self.n,
            "diagnostics": dict(self.diagnostics),
            "verdict": self.verdict.name,
            "reasons": [
                {"verdict": r.verdict.name, "code": r.code, "seen": r.seen, "why": r.why, "do": r.do} for r in self.reasons
            ],
        }

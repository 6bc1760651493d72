"""`EstimateSet`: the estimates of one reward, by policy and estimator, and how they compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from offpolicy.core.arrays import NEXT_TO_NOTHING
from offpolicy.core.errors import InputError, unknown_name
from offpolicy.data.checks import is_number
from offpolicy.diagnostics.verdict import Verdict
from offpolicy.inference.intervals import REFITTED, Interval, checked_level, normal_interval
from offpolicy.results.comparison import Comparison
from offpolicy.results.estimate import Difference, Estimate
from offpolicy.results.evidence import Evidence, LogHandle
from offpolicy.results.plan import Plan, Planner, checked_shares
from offpolicy.scoring.requirements import skipped_name

NO_SUMS = "This result was saved by an older offpolicy, without sums."


@dataclass(frozen=True, eq=False, kw_only=True)
class EstimateSet:
    """The estimates, which of them is the headline, and their paired differences."""

    estimates: Mapping[tuple[str, str], Estimate]
    policies: tuple[str, ...]
    estimators: tuple[str, ...]
    headline_estimator: str
    logged_estimator: str
    level: float
    skipped: Mapping[str, str] = field(default_factory=dict)
    saved: Mapping[str, Any] | None = field(repr=False, default=None)
    log: LogHandle = field(repr=False, default_factory=LogHandle)

    def __getitem__(self, key: str | tuple[str, str]) -> Estimate:
        policy, estimator = key if isinstance(key, tuple) else (self._only_policy(), key)
        if policy not in self.policies:
            raise KeyError(str(unknown_name("policy", policy, self.policies)))
        if estimator in self.skipped:
            raise KeyError(f"{estimator} was skipped: {self.skipped[estimator]}")
        if estimator not in self.estimators:
            raise KeyError(str(unknown_name("estimator", estimator, self.estimators)))
        if (policy, estimator) not in self.estimates:
            name = skipped_name(estimator, policy)
            raise KeyError(f"{name} was skipped: {self.skipped.get(name, 'it cannot be computed')}")
        return self.estimates[policy, estimator]

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.estimates.values())

    def _only_policy(self) -> str:
        if len(self.policies) > 1:
            raise KeyError(f"there are several policies ({', '.join(self.policies)}): write result[policy, estimator].")
        return self.policies[0]

    def _named(self, policy: str | None) -> str:
        """The name of a policy, checked; the first policy by default."""
        if policy is not None and policy not in self.policies:
            raise unknown_name("policy", policy, self.policies)
        return self.policies[0] if policy is None else policy

    @property
    def headline(self) -> Estimate:
        """The estimate to report first: the headline estimator for the first policy."""
        return self.estimates[self.policies[0], self.headline_estimator]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the headline estimator over the policies."""
        return max((self.estimates[p, self.headline_estimator].verdict for p in self.policies), key=lambda v: v.severity)

    def difference(self, a: str | tuple[str, str], b: str | tuple[str, str], *, estimator: str | None = None) -> Difference:
        """The paired difference a − b.

        Parameters
        ----------
        a, b : str or tuple of (str, str)
            Two policies, two estimators (if there is one policy), or two (policy, estimator) pairs.
        estimator : str, optional
            The estimator by which to compare two policies; by default the headline estimator.

        Returns
        -------
        Difference
            With its own standard error, in which errors common to both cancel.

        Examples
        --------
        >>> import offpolicy as op
        >>> world = op.worlds.Linear(n_actions=5, seed=0)
        >>> result = op.evaluate(world.sample(1_000, seed=0), {"new": world.target, "old": world.logging}, op.DR())
        >>> difference = result.difference("new", "old")
        >>> difference.name
        'new:DR − old:DR'
        """
        first, second = self._resolve(a, estimator), self._resolve(b, estimator)
        name, saved = f"{first.name} − {second.name}", self._saved_difference(first, second)
        if first.evidence is not None and second.evidence is not None:
            return self._shown(name, first.evidence.minus(second.evidence), saved)
        if saved is None:
            pairs = [f"{d['a']} − {d['b']}" for d in (self.saved or {}).get("differences", ())]
            has = ", ".join(pairs) or "no differences"
            raise InputError(f"{NO_SUMS} It has {has}, and lifts; for others, evaluate again.")
        shown = Interval(**saved["interval"])
        return Difference(saved["value"], saved["std_error"], first.error_covers, shown, None, name)

    def _resolve(self, key: str | tuple[str, str], estimator: str | None) -> Estimate:
        if isinstance(key, tuple):
            return self[key]
        if key in self.policies:
            return self[key, estimator or self.headline_estimator]
        if estimator is not None or len(self.policies) > 1:
            raise unknown_name("policy", key, self.policies)
        return self[key]

    def lift(self, policy: str | None = None, *, estimator: str | None = None) -> Difference:
        """The paired difference between the value of a policy and what was logged.

        Parameters
        ----------
        policy : str, optional
            By default the first policy.
        estimator : str, optional
            By default the headline estimator.

        Returns
        -------
        Difference
            Positive if the policy is estimated to earn more than the log did.
        """
        policy = self._named(policy)
        return self.difference((policy, estimator or self.headline_estimator), (policy, self.logged_estimator))

    def relative_lift(self, policy: str | None = None, *, estimator: str | None = None) -> Difference:
        """The lift relative to what the log earned: 0.1 is 10% more.

        Parameters
        ----------
        policy : str, optional
            By default the first policy.
        estimator : str, optional
            By default the headline estimator.

        Returns
        -------
        Difference
            Its standard error includes the error of what the log earned.

        Raises
        ------
        InputError
            If what the log earned is not clearly above 0, so that there is no meaningful relative lift.
        """
        policy = self._named(policy)
        first, logged = self[policy, estimator or self.headline_estimator], self[policy, self.logged_estimator]
        if reason := self.no_relative_lift(policy):
            raise InputError(f"there is no relative lift, because {reason}; see lift().")
        if first.evidence is None or logged.evidence is None:
            raise InputError(f"{NO_SUMS} The relative lift is in its report; for its standard error, evaluate again.")
        name = f"{first.name} relative to {self.logged_estimator}"
        return self._shown(name, first.evidence.relative_to(logged.evidence))

    def best(self, baseline: str | None = None, level: float | None = None, *, estimator: str | None = None) -> Comparison:
        """Compare all policies at once: which are better than the baseline, which may be the best, and which to choose.

        The more policies are compared, the more likely it is that the best estimate is a lucky one. All statements here hold
        together with probability `level`, for any number of policies. Policies whose estimates should not be trusted are
        not compared.

        Parameters
        ----------
        baseline : str, optional
            The policy to compare the others with; by default what was logged.
        level : float, optional
            By default the level of the result, 0.95 unless stated otherwise.
        estimator : str, optional
            The estimator by which to compare; by default the headline estimator.

        Returns
        -------
        Comparison
            With a row per policy, and the `choice`.

        Raises
        ------
        InputError
            If there is no such policy or estimator, or no estimate has a standard error.

        Examples
        --------
        >>> import offpolicy as op
        >>> world = op.worlds.Linear(n_actions=5, seed=0)
        >>> policies = {"new": world.target, "half": op.Mixture([world.target, world.logging], [0.5, 0.5])}
        >>> op.evaluate(world.sample(5_000, seed=0), policies, op.SNIPS()).best().choice
        'new'
        """
        if baseline is not None:
            self._named(baseline)
        name = estimator or self.headline_estimator
        if name not in self.estimators:
            raise unknown_name("estimator", name, self.estimators)
        estimates = [self.estimates[policy, name] for policy in self.policies if (policy, name) in self.estimates]
        logged = self.estimates[self.policies[0], self.logged_estimator]
        return Comparison.of(estimates, logged, baseline, self.level if level is None else level)

    def plan(
        self,
        half_width: float,
        explore: float | Sequence[float] = (0.0, 0.01, 0.05, 0.1),
        *,
        baseline: str | None = None,
        level: float | None = None,
        estimator: str | None = None,
    ) -> Plan:
        """How many rounds an interval of this width needs, for each policy, and what a decision needs.

        Parameters
        ----------
        half_width : float
            Half the width of the interval.
        explore : float or sequence of float, default (0, 0.01, 0.05, 0.1)
            Shares of rounds in which the logging policy would take a uniformly random action; 0 is the present logging.
            Others read the log again.
        baseline : str, optional
            The policy that a decision is about; by default what was logged.
        level : float, optional
            The level of the interval; by default that of the result.
        estimator : str, optional
            By default the headline estimator.

        Returns
        -------
        Plan
            With a row per policy and share.

        Raises
        ------
        InputError
            If an estimate has no standard error, or exploration is planned and the log is not available.
        """
        if not is_number(half_width) or not 0 < half_width < np.inf:
            raise InputError(f"half_width is {half_width!r}; give a positive number, in the unit of the reward.")
        shares, name = checked_shares(explore), estimator or self.headline_estimator
        level = self.level if level is None else checked_level(level)
        if baseline is not None:
            self._named(baseline)
        if name not in self.estimators:
            raise unknown_name("estimator", name, self.estimators)
        estimates = [self.estimates[policy, name] for policy in self.policies if (policy, name) in self.estimates]
        differences = {}
        for policy in (each.policy for each in estimates if each.policy != baseline):
            against = (policy, self.logged_estimator) if baseline is None else (baseline, name)
            evidence = self.difference((policy, name), against).evidence
            if evidence is not None:
                differences[policy] = evidence
        rows = Planner(estimates, differences).rows(float(half_width), level, shares)
        return Plan(float(half_width), level, name, estimates[0].reward, estimates[0].n, baseline, rows)

    def no_relative_lift(self, policy: str | None = None) -> str | None:
        """Why there is no relative lift of a policy; None if there is one.

        Parameters
        ----------
        policy : str, optional
            By default the first policy.

        Returns
        -------
        str or None
            The reason: what the log earned is negative, or is not clearly different from 0.
        """
        logged = self[self._named(policy), self.logged_estimator]
        low = normal_interval(logged.value, logged.std_error, self.level).low
        if abs(logged.value) <= NEXT_TO_NOTHING:
            return "the log earned 0"
        if logged.value < 0:
            return f"the log earned {logged.value:.3g}, and a percentage of a negative number is misleading"
        if low <= 0:
            return f"what the log earned, {logged.value:.3g} ± {logged.std_error:.2g}, is not clearly above 0"
        return None if np.isfinite(logged.value) else "the log has no mean reward"

    def _shown(self, name: str, evidence: Evidence, saved: Mapping[str, Any] | None = None) -> Difference:
        """A difference with an interval by the method of the headline, if a difference can have it."""
        made, method = Difference.of(name, evidence, self.level), self.headline.interval.method
        refit, attached = method == REFITTED, self.log.attached
        if refit and not attached and saved is not None:
            return replace(made, interval=Interval(**saved["interval"]))
        if method not in ("normal", "bootstrap", REFITTED):
            return made
        method = "bootstrap" if refit else method
        return replace(made, interval=made.confidence_interval(self.level, method, refit=refit and attached))

    def _saved_difference(self, first: Estimate, second: Estimate) -> Mapping[str, Any] | None:
        """A lift, or a difference of two policies, if the summary of a loaded file contains it."""
        saved, lead, logged = self.saved or {}, self.headline_estimator, self.logged_estimator
        lifts = {((d["policy"], lead), (d["policy"], logged)): d for d in saved.get("lifts", ())}
        pairs = {((d["a"], d["estimator"]), (d["b"], d["estimator"])): d for d in saved.get("differences", ())}
        return (lifts | pairs).get(((first.policy, first.estimator), (second.policy, second.estimator)))

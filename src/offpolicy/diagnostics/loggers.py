"""Several loggers: how much of each supports a policy, and whether they agree about its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.hashing import BUCKETS
from offpolicy.data.batch import Batch
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.verdict import Finding, Measure
from offpolicy.policies.loggers import CombinedLoggers
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added

COMPARABLE = 50.0
"""The effective rounds that a logger needs to be compared with others: with fewer, its SNIPS is far from normal."""


@dataclass(frozen=True)
class LoggerSums:
    """For each policy, the sums of w and w·r by logger and bucket, with w = π/π_k of the logger of the round.

    `combined` is the combined logging policy; None if the log has the propensities of each round.
    """

    columns: ClassVar[tuple[str, ...]] = ()
    names: tuple[str, ...]
    policies: int
    rewards: int
    combined: CombinedLoggers | None = None

    def zero(self) -> State:
        k = len(self.names)
        part = {"w": np.zeros((k, BUCKETS)), "wr": np.zeros((self.rewards, k, BUCKETS)), "square": np.zeros(k)}
        own = {str(p): {name: array.copy() for name, array in part.items()} for p in range(self.policies)}
        return {"rows": np.zeros((2, k)), **own}

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:
        logger, k = batch.logger_code, len(self.names)
        if logger is None or scored.propensity is None:
            return state
        state["rows"] += [np.bincount(logger, minlength=k), np.bincount(logger, scored.omega, k)]
        factor = 1.0 if self.combined is None else scored.propensity / self.combined.own.probabilities(batch, batch.action)
        key = logger * BUCKETS + scored.bucket
        for p, ratio in enumerate(scored.ratios):
            if ratio is None:
                continue
            part, w = state[str(p)], scored.omega * ratio * factor
            part["w"] += np.bincount(key, w, k * BUCKETS).reshape(k, -1)
            part["square"] += np.bincount(logger, w**2, k)
            for j, origin in enumerate(scored.origin):
                part["wr"][j] += np.bincount(key, w * (batch.reward[:, j] - origin), k * BUCKETS).reshape(k, -1)
        return state

    def merge(self, a: State, b: State) -> State:
        return added(a, b)


@dataclass(frozen=True)
class LoggerAgreement(Reading):
    """Whether the loggers agree: the SNIPS of one policy from the rounds of each logger alone, by a χ² test."""

    sums: LoggerSums
    state: State
    origin: FloatArray

    def findings(self, subject: Subject) -> list[Finding]:
        if not self._concerns(subject):
            return []
        compared, p = self._agreement(subject)
        if len(compared) < 2:
            return []
        values, errors = self._values(subject)
        names = [f"{self.sums.names[k]} {values[k]:.4g} ± {errors[k]:.2g}" for k in compared[:4]]
        more = f" and {len(compared) - 4:,} more" if len(compared) > 4 else ""
        return [
            Measure("agreement of loggers", p).finding(
                "loggers",
                f"The loggers disagree about the same policy: {', '.join(names)}{more} (χ² test, p = {p:.2g}).",
                "Each of them alone estimates the same value, if contexts and rewards are the same under all loggers and "
                "their propensities are right.",
                "Compare the periods and the users that they served, and check the propensities of each; until then, "
                "evaluate on the rounds of one logger.",
            )
        ]

    def numbers(self, subject: Subject) -> dict[str, Any]:
        if not self._concerns(subject):
            return {}
        (rounds, omega), part = self.state["rows"], self.state[str(subject.policy)]
        values, errors = self._values(subject)
        weights = part["w"].sum(axis=1)
        each = {
            name: {
                "rounds": int(rounds[k]), "effective_sample_size": float(self._effective(subject)[k]),
                "mean_weight": float(weights[k] / omega[k]) if omega[k] > 0 else 0.0,
                "value": float(values[k]), "std_error": float(errors[k]),
            }
            for k, name in enumerate(self.sums.names)
        }  # fmt: skip
        compared, p = self._agreement(subject)
        return {"loggers": each, "loggers_agree_p": p if len(compared) > 1 else None}

    def _concerns(self, subject: Subject) -> bool:
        member = subject.member
        weighs = member is None or member.weight.weighs
        return subject.whole and weighs and bool(self.state[str(subject.policy)]["square"].any())

    def _effective(self, subject: Subject) -> FloatArray:
        part = self.state[str(subject.policy)]
        effective: FloatArray = part["w"].sum(axis=1) ** 2 / np.maximum(part["square"], 1e-300)
        return effective

    def _values(self, subject: Subject) -> tuple[FloatArray, FloatArray]:
        """The SNIPS of each logger, and its standard error from the rounds of that logger."""
        part = self.state[str(subject.policy)]
        w, wr = part["w"], part["wr"][subject.reward]
        total = np.where(w.sum(axis=1) > 0, w.sum(axis=1), np.nan)
        value = wr.sum(axis=1) / total
        error = np.sqrt(((wr - value[:, None] * w) ** 2).sum(axis=1)) / total
        return value + self.origin[subject.reward], error

    def _agreement(self, subject: Subject) -> tuple[list[int], float]:
        """The loggers that can be compared, and the p-value of the hypothesis that their values are equal.

        The covariance comes from influences around the common value, by bucket of units: a user may have been served by
        several loggers.
        """
        part = self.state[str(subject.policy)]
        compared = np.flatnonzero(self._effective(subject) >= COMPARABLE)
        if len(compared) < 2:
            return compared.tolist(), 1.0
        w, wr = part["w"][compared], part["wr"][subject.reward][compared]
        total = w.sum(axis=1)
        values, common = wr.sum(axis=1) / total, float(wr.sum() / total.sum())
        influence = (wr - common * w) / total[:, None]
        precision = np.linalg.pinv(influence @ influence.T, hermitian=True)
        common = float(precision.sum(axis=0) @ values / precision.sum()) if precision.sum() > 0 else common
        apart = values - common
        from scipy.special import chdtrc  # here, so that importing stays light

        return compared.tolist(), float(chdtrc(len(compared) - 1, max(float(apart @ precision @ apart), 0.0)))

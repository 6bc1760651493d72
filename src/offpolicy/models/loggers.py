"""The combined logging policy of a log with several loggers: their shares, and the weights of their estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import LARGEST_NUMBER, FloatArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.core.progress import PassProgress
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.data.loggers import Loggers
from offpolicy.engines.base import Engine
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.loggers import CombinedLoggers
from offpolicy.statistics.base import State, added


def combine_loggers(log: Log, targets: Mapping[str, Policy], engine: Engine, progress: bool | None = None) -> Log:
    """The log with one combined logging policy, if its setting is `Loggers`; reads the log to learn the shares."""
    setting = log.logging
    if not isinstance(setting, Loggers):
        return log
    policies = [as_policy(policy).on(log) for policy in setting.policies]
    k = len(policies)
    own = CombinedLoggers(policies, np.eye(k), "own")
    if not own.spaces:
        raise InputError("logging: the policies of the loggers are over different kinds of actions.")
    if setting.combination == "own":
        return log.with_logging(own)
    with PassProgress("counting the rounds of each logger", len(log), progress) as report:
        counts = engine.reduce(log, _Counts(own, log.schema.loggers or ()), report)
    shares = counts / counts.sum()
    balanced = CombinedLoggers(policies, np.tile(shares, (k, 1)), "balanced")
    if setting.combination == "balanced":
        return log.with_logging(balanced)
    with PassProgress("weighting the loggers", len(log), progress) as report:
        statistic = _Variances(policies, balanced, tuple(targets.values()), len(log.schema.rewards))
        variances = engine.reduce(log, statistic, report)
    precision = shares / variances
    alpha = precision / precision.sum()
    return log.with_logging(CombinedLoggers(policies, np.diag(shares / alpha), "weighted"))


@dataclass(frozen=True)
class _Counts:
    """The sum of the row weights of each logger, whose policy must be able to take its actions."""

    own: CombinedLoggers
    names: tuple[str, ...]
    batch_rows: int | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.own.columns

    def zero(self) -> State:
        return {"sums": np.zeros(len(self.names))}

    def fold(self, state: State, batch: Batch) -> State:
        assert batch.logger_code is not None
        impossible = ~(self.own.likelihood(batch) >= 1 / LARGEST_NUMBER)
        if impossible.any():
            which = ", ".join(repr(self.names[k]) for k in np.unique(batch.logger_code[impossible])[:3])
            raise RowsError(
                "logging", "have an action with zero probability under the policy of the logger", batch.row[impossible],
                f"Check the policy of {which}: it may belong to another logger.",
            )  # fmt: skip
        return {"sums": state["sums"] + np.bincount(batch.logger_code, batch.weight, len(self.names))}

    def merge(self, a: State, b: State) -> State:
        return added(a, b)

    def finish(self, state: State) -> FloatArray:
        if not (state["sums"] > 0).all():
            raise InputError("logger: every row of one of the loggers has weight 0, so that its share is 0.")
        sums: FloatArray = state["sums"]
        return sums


@dataclass(frozen=True)
class _Variances:
    """σ_k² of each logger's estimate: mean[w̄·(π/π_k)·r²] − V̂² over all rounds, with the balanced weights w̄.

    The sample variance of a logger's own rounds is 0 where nothing rare was drawn. With several targets or rewards, the
    variances are averaged, each relative to its sum over the loggers.
    """

    policies: Sequence[Policy]
    balanced: CombinedLoggers
    targets: tuple[Policy, ...]
    rewards: int
    batch_rows: int | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for policy in (self.balanced, *self.targets) for name in policy.columns))

    def zero(self) -> State:
        cases = (len(self.targets), self.rewards)
        return {"rows": np.zeros(()), "value": np.zeros(cases), "square": np.zeros((*cases, len(self.policies)))}

    def fold(self, state: State, batch: Batch) -> State:
        omega = np.ones(len(batch)) if batch.weight is None else batch.weight
        each = np.column_stack([policy.probabilities(batch, batch.action) for policy in self.policies])
        mixed = each @ self.balanced.matrix[0]
        state["rows"] += omega.sum()
        for t, target in enumerate(self.targets):
            pi = target.probabilities(batch, batch.action)
            w = omega * pi / mixed
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(pi[:, None] > 0, pi[:, None] / each, 0.0)
            state["value"][t] += w @ batch.reward
            state["square"][t] += (w[:, None] * batch.reward**2).T @ ratio
        return state

    def merge(self, a: State, b: State) -> State:
        return added(a, b)

    def finish(self, state: State) -> FloatArray:
        rows = state["rows"]
        variances = (state["square"] / rows - (state["value"] / rows)[:, :, None] ** 2).reshape(-1, len(self.policies))
        largest = np.where(np.isfinite(variances), variances, 0.0).max(axis=1, keepdims=True)
        # Infinite for a logger that never takes some action of a target: its weight is then practically 0.
        relative = np.clip(variances / np.maximum(largest, 1e-300), 1e-12, 1e12)
        mean: FloatArray = relative.mean(axis=0)
        return mean

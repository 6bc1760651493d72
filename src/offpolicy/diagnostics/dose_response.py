"""The dose–response curve: the value of taking the same action in every round, for actions along the range.

Each point of the curve is `KernelDR` with `bandwidth="slope"` for the policy that always takes that action: the kernel
weights of every width, the reward model of the evaluation, and the mix of widths in `estimators/widths.py`. Without a
cross-fitted reward model it is `KernelSNIPS`. The sums are over all rounds of a log with up to 50,000, and over a random
share of a larger one. Standard errors come from a jackknife over 256 groups of buckets of units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import BUCKETS, group_of_bucket
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box
from offpolicy.data.log import Log
from offpolicy.diagnostics.action_axis import drawn
from offpolicy.diagnostics.overlap import shortfall
from offpolicy.estimators.widths import LEAST_ROUNDS, WIDTHS, KernelEstimates
from offpolicy.inference.intervals import normal_interval
from offpolicy.inference.scores import Case, Scores
from offpolicy.models.rewards.base import ContinuousPredictor, LinearPredictor, Predictor, design
from offpolicy.policies.nodes import Nodes
from offpolicy.ratios.kernels import KernelRatio, bandwidth_of
from offpolicy.scoring.plan import ModelKey
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added

STEPS = 25
"""Actions along the range, to which the points of the box are added."""
ROUNDS = 50_000
GROUPS = 256
JUDGED = WIDTHS.index(1 / 16)
LEAST_MEAN_WEIGHT = 0.9
"""A point has an interval if the kernel of this width has `LEAST_ROUNDS` effective rounds, and this mean weight.

Below it, some contexts lack rounds with such an action, which no interval shows. Chosen in simulated worlds, like the width
(docs/continuous.md).
"""


@dataclass(frozen=True)
class DoseResponseSums:
    """Sums of the kernel weights around each action of the curve, of weighted residuals, and of predictions.

    `models`: for each reward, its reward model and the predictors of each fold; None without a cross-fitted one.
    """

    space: Box
    models: tuple[tuple[ModelKey, Sequence[Predictor]] | None, ...]
    share: float
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, log: Log, models: Mapping[ModelKey, Sequence[Predictor]]) -> DoseResponseSums | None:
        """Those of a log, with the first cross-fitted model of each reward; None unless its actions are single numbers."""
        if not isinstance(log.space, Box) or log.space.shape:
            return None
        crossed = [(key, each) for key, each in models.items() if key.folds]
        first = (next((pair for pair in crossed if pair[0].reward == k), None) for k in range(len(log.schema.rewards)))
        return cls(log.space, tuple(first), ROUNDS / len(log))

    @cached_property
    def actions(self) -> FloatArray:
        """The actions of the curve, in ascending order."""
        return np.unique([*np.linspace(self.space.lows[0], self.space.highs[0], STEPS), *self.space.points])

    @cached_property
    def ratios(self) -> list[KernelRatio]:
        """The kernel of each width, from the narrowest."""
        return [KernelRatio(bandwidth_of(width, share=True)) for width in WIDTHS]

    def zero(self) -> State:
        shape, rewards = (GROUPS, len(self.actions), len(WIDTHS)), len(self.models)
        return {
            "rounds": np.zeros(()),
            "total": np.zeros(GROUPS),
            "weights": np.zeros(shape),
            "squares": np.zeros(shape[1:]),
            "corrections": np.zeros((*shape, rewards)),
            "baselines": np.zeros((*shape[:2], rewards)),
        }

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:
        some = np.flatnonzero(drawn(batch, self.share))
        if not len(some) or scored.propensity is None:
            return state
        part, omega, bucket = batch.take(some), scored.omega[some], scored.bucket[some]
        group = bucket * GROUPS // BUCKETS
        state["rounds"] += len(some)
        state["total"] += np.bincount(group, omega, GROUPS)
        residuals = [self._residual(k, part, scored, some) for k in range(len(self.models))]
        for w in range(len(WIDTHS)):
            rows, at, weights = self._weights(w, part.action)
            weights = omega[rows] * weights / scored.propensity[some][rows]
            cell = group[rows] * len(self.actions) + at
            state["weights"][..., w] += self._summed(cell, weights)
            state["squares"][:, w] += np.bincount(at, weights * weights, len(self.actions))
            for k, residual in enumerate(residuals):
                state["corrections"][..., w, k] += self._summed(cell, weights * residual[rows])
        for k, model in enumerate(self.models):
            if model is not None:
                self._add_baselines(state["baselines"][..., k], model[1], part, (omega, bucket, group))
        return state

    def _summed(self, cell: IntArray, values: FloatArray) -> FloatArray:
        """Sums by group and action."""
        size = GROUPS * len(self.actions)
        sums: FloatArray = np.bincount(cell, values, size).astype(np.float64).reshape(GROUPS, len(self.actions))
        return sums

    def _weights(self, w: int, logged: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
        """The rounds near each action of the curve, those actions, and the kernel of a width; 1 where both are a point."""
        ratio, space = self.ratios[w], self.space
        distance = np.abs(logged[:, None] - self.actions)
        near = distance < float(ratio.bandwidth.of(space)[0]) * ratio.kernel.reach
        pointed = space.at_point(logged)[:, None], space.at_point(self.actions)
        rows, at = np.nonzero((near & ~pointed[0] & ~pointed[1]) | (pointed[0] & (distance == 0)))
        kernel = ratio.smoothed(logged[rows, None], self.actions[at, None], space)
        return rows, at, np.where(pointed[1][at], 1.0, kernel)

    def _residual(self, reward: int, part: Batch, scored: ScoredBlock, some: IntArray) -> FloatArray:
        """r less what the model predicts, or less a typical reward."""
        model = self.models[reward]
        control = scored.origin[reward] if model is None else scored.controls[model[0]][some]
        left: FloatArray = part.reward[:, reward] - control
        return left

    def _add_baselines(
        self,
        sums: FloatArray,
        predictors: Sequence[Predictor],
        part: Batch,
        rounds: tuple[FloatArray, IntArray, IntArray],
    ) -> None:
        """q(x, a) at every action of the curve, each from the model fitted without the fold of its round."""
        omega, bucket, group = rounds
        fold = group_of_bucket(len(predictors))[bucket]
        for f, predictor in enumerate(predictors):
            rows = np.flatnonzero(fold == f)
            if len(rows):
                np.add.at(sums, group[rows], omega[rows, None] * self._predicted(predictor, part.take(rows)))

    def _predicted(self, predictor: Predictor, batch: Batch) -> FloatArray:
        """q of the actions of the curve: rounds × actions."""
        if isinstance(predictor, LinearPredictor):
            each = self.space.expand(predictor.coef, self.actions)
            linear: FloatArray = design(batch, predictor.centre).T @ each.T
            return linear
        assert isinstance(predictor, ContinuousPredictor)
        every = np.broadcast_to(self.actions, (len(batch), len(self.actions)))
        return predictor.at(batch, Nodes(every, np.ones(every.shape)))

    def merge(self, a: State, b: State) -> State:
        return added(a, b)


@dataclass(frozen=True)
class DoseResponseCurve:
    """The curve of each reward, from the sums."""

    sums: DoseResponseSums
    state: State
    origin: FloatArray

    def view(self, reward: int, name: str, spread: float, level: float) -> dict[str, Any] | None:
        """The curve of a reward whose standard deviation is `spread`; None without any round."""
        if not self.state["rounds"] > 0:
            return None
        model = self.sums.models[reward]
        points = [self._point(reward, g, spread, level) for g in range(len(self.sums.actions))]
        return {
            "reward": name,
            "estimator": "KernelSNIPS" if model is None else "KernelDR",
            "rounds": int(self.state["rounds"]),
            "level": level,
            "points": points,
        }

    def _point(self, reward: int, g: int, spread: float, level: float) -> dict[str, Any]:
        action, s = float(self.sums.actions[g]), self.state
        total = s["weights"][:, g].sum(axis=0)
        effective = self._effective(g)
        values = self._values(reward, g)
        mean_weight = total[JUDGED] / s["total"].sum()
        supported = effective[JUDGED] >= LEAST_ROUNDS and mean_weight >= LEAST_MEAN_WEIGHT
        each = KernelEstimates(values, self._covariance(reward, g), np.array(WIDTHS), effective, spread)
        mix = each.mixed() if supported else None
        value = self._modelled(reward, g) if mix is None else float(mix.weights @ np.where(mix.weights, values, 0.0))
        ends = normal_interval(value, float("nan") if mix is None else float(np.sqrt(mix.variance)), level)
        return {
            "action": action,
            "value": value if np.isfinite(value) else None,
            "low": ends.low if supported else None,
            "high": ends.high if supported else None,
            "std_error": None if mix is None else float(np.sqrt(mix.variance)),
            "effective_rounds": float(effective[JUDGED] if mix is None else effective[np.argmax(np.abs(mix.weights))]),
            "mean_weight": float(mean_weight),
            "point": action in self.sums.space.points,
        }

    def _effective(self, g: int) -> FloatArray:
        """The effective rounds of each width, less where the mean weight shows that the log lacks something."""
        s = self.state
        weights, total = s["weights"][:, g], float(s["total"].sum())
        ess = np.divide(weights.sum(axis=0) ** 2, s["squares"][g], out=np.zeros(len(WIDTHS)), where=s["squares"][g] > 0)
        mean = weights.sum(axis=0) / total
        error = np.sqrt(((weights - s["total"][:, None] * mean) ** 2).sum(axis=0)) / total
        effective: FloatArray = ess / (1 + ess * shortfall(mean, error) ** 2)
        return effective

    def _modelled(self, reward: int, g: int) -> float:
        """What the reward model alone predicts, where there are too few rounds to correct it."""
        if self.sums.models[reward] is None:
            return float("nan")
        return float(self.state["baselines"][:, g, reward].sum() / self.state["total"].sum())

    def _values(self, reward: int, g: int, without: bool = False) -> FloatArray:
        """The estimate of each width; or `without` each group of units in turn, groups × widths."""
        names = (("total", np.s_[:]), ("weights", np.s_[:, g]), ("corrections", np.s_[:, g, :, reward]))
        parts = [self.state[name][at] for name, at in (*names, ("baselines", np.s_[:, g, reward]))]
        sums = [part.sum(axis=0) - part if without else part.sum(axis=0) for part in parts]
        total, weights, corrections, baselines = sums
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.sums.models[reward] is None:
                normalised: FloatArray = corrections / weights + self.origin[reward]
                return normalised
            robust: FloatArray = (baselines[..., None] + corrections) / total[..., None]
        return robust

    def _covariance(self, reward: int, g: int) -> FloatArray:
        """The jackknife covariance of the widths."""
        filled = self.state["total"] > 0
        left_out = np.nan_to_num(self._values(reward, g, without=True)[filled])
        changes = (left_out - left_out.mean(axis=0)) * np.sqrt((filled.sum() - 1) / max(filled.sum(), 1))
        covariance: FloatArray = changes.T @ changes
        return covariance


def dose_response(scores: Scores, case: Case, level: float) -> dict[str, Any] | None:
    """The curve of a reward as plain values; None unless actions are single numbers whose densities are known."""
    sums = DoseResponseSums.of(scores.log, scores.scorer.models)
    if sums is None:
        return None
    curve = DoseResponseCurve(sums, scores.state["diagnostics"]["dose response"], scores.scorer.origin)
    return curve.view(case.reward, scores.log.schema.rewards[case.reward], scores.reward_spread(case), level)

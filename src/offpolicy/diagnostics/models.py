"""Reward models and fits: how well they predict, and how much of a standard error comes from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from offpolicy.core.describe import described
from offpolicy.data.batch import Batch
from offpolicy.data.slate import reward_of
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.verdict import ESTIMATED, FIT_COUNTED, Finding, Measure, Verdict, in_all
from offpolicy.inference.functionals import sampling_variance
from offpolicy.inference.learning_curve import LearningCurve
from offpolicy.inference.scores import Scores
from offpolicy.scoring.plan import ModelKey, fit_of
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added
from offpolicy.statistics.calibration import Calibration

MOST_BINS = 12
ABOUT_THE_FIT = ("fit not covered", "uncertain fit")  # codes that do not apply to an interval from a refitting bootstrap

UNCHECKED_MODEL = Finding(
    Verdict.CAUTION,
    "unchecked model",
    "This value comes from the reward model alone, and nothing checks it: the log has no propensities, or the policy takes "
    "one number per round.",
    "A model fitted on what the logging policy did can be wrong about what the new policy does, and nothing here would show "
    "it.",
    "Log the probability of each action taken (propensity=, --propensity), or pass the logging policy (logging=, "
    "--logging). For actions that are numbers, compare with op.KernelDR.",
)

FIT_NOT_COVERED = Finding(
    Verdict.CAUTION,
    "fit not covered",
    "The interval does not include the error of what was fitted (its reward model or its weights).",
    "It is too narrow by as much as the fit varies from log to log.",
    "Treat it as a lower bound on the error, or use a bootstrap that refits (refit=True, --refit). The error of Ridge "
    "models and smooth posteriors is included for the log as a whole, except with clusters, sums over the nearest actions, "
    "or features that vary within an action; DR does not need it.",
)

FITTED_BEFORE = Finding(
    Verdict.CAUTION,
    "fit not covered",
    "The interval does not include the error of its reward model, which was fitted beforehand.",
    "It is too narrow by as much as the model varies with the log that it is fitted on.",
    "Treat it as a lower bound on the error. A bootstrap that refits (refit=True, --refit) leaves a saved model as it is: "
    "to include its error, have it fitted here (rewards=op.Ridge()); DR does not need it.",
)

TOO_MANY_FOR_REFITS = Finding(
    Verdict.CAUTION,
    "fit not covered",
    "The interval does not include the error of what was fitted: with so many actions, refits without parts of the log "
    "exceed the memory budget.",
    "It is too narrow by as much as the fit varies from log to log.",
    "Allow more memory (memory=, --memory), or treat it as a lower bound on the error; DR does not need it.",
)

SHARED_COVARIANCE = Finding(
    Verdict.CAUTION,
    "shared covariance",
    "The reward model assumes that the contexts of all actions have the same covariance: one matrix per action exceeds the "
    "memory budget.",
    "If contexts depend on the action, its coefficients are less precise; estimators that weight by π/π0 correct for it.",
    "Allow more memory (memory=, --memory), or use fewer context columns or fewer folds (cross_fit=2).",
)


@dataclass(frozen=True)
class ModelSums:
    """How well reward models predict the rounds: R², and the calibration of cross-fitted models."""

    columns: ClassVar[tuple[str, ...]] = ()
    models: tuple[ModelKey, ...]

    def zero(self) -> State:
        calibration = {str(k): Calibration().zero() for k, model in enumerate(self.models) if model.folds}
        return {"misfit": np.zeros((len(self.models), 4)), "calibration": calibration}

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:
        """Σω, Σωr, Σωr² and Σω(r − q)² of each model, which give R²."""
        for k, model in enumerate(self.models):
            origin, omega = scored.origin[model.reward], scored.omega
            reward = reward_of(batch, model.reward, model.fit.slot) - origin
            predicted = scored.controls[model] - origin
            residual = reward - predicted
            state["misfit"][k] += (omega.sum(), omega @ reward, (omega * reward) @ reward, (omega * residual) @ residual)
            if str(k) in state["calibration"]:
                Calibration().fold(state["calibration"][str(k)], predicted, reward, omega)
        return state

    def merge(self, a: State, b: State) -> State:
        return added(a, b)


@dataclass(frozen=True)
class Models(Reading):
    """How well reward models predict rounds they were not fitted on."""

    state: State
    scores: Scores

    def findings(self, subject: Subject) -> list[Finding]:
        member, model, findings = subject.member, subject.model, []
        if model is not None and member is not None:
            findings += model_findings(self.fit(model)[0], member.weight.weighs)
            findings += [] if subject.weighable or member.weight.weighs else [UNCHECKED_MODEL]
        return [*findings, SHARED_COVARIANCE] if self._shares_covariance(subject) else findings

    def numbers(self, subject: Subject) -> dict[str, Any]:
        return {} if subject.model is None else {"reward_model": self.fit(subject.model)[1]}

    def _shares_covariance(self, subject: Subject) -> bool:
        """Whether its reward model, or that of its embedding, had no memory for one matrix per action."""
        learned = None if subject.member is None else fit_of(subject.member.weight.ratio)
        own = None if subject.model is None else subject.model.fit
        fits = [self.scores.fitted.models[fit] for fit in (own, learned) if fit is not None]
        return any("covariance" in fit.diagnostics(subject.reward) for fit in fits)

    def fit(self, model: ModelKey) -> tuple[float | None, dict[str, Any]]:
        """Out-of-fold R²: from the scored residuals if the model was cross-fitted, otherwise from the fit's own folds."""
        fitted = self.scores.fitted.models[model.fit].diagnostics(model.reward)
        r2 = fitted.get("r2")
        if model.folds or not model.fit.rewards.fitted:  # these rounds were not used in the fit
            n, r, rr, misfit = map(float, self.state["misfit"][self.scores.scorer.plan.models.index(model)])
            total = rr - r * r / n
            r2 = 1 - misfit / total if total > 0 else None
        return r2, {**fitted, "r2": r2}

    def view(self, model: ModelKey, estimators: Sequence[str]) -> dict[str, Any]:
        """What a cross-fitted model predicted, and what was observed."""
        scorer, fit = self.scores.scorer, model.fit
        sums = self.state["calibration"][str(scorer.plan.models.index(model))]
        weighting = "" if fit.policy is None else f", rows weighted by w² of {self.scores.policies[fit.policy]}"
        slot = "" if fit.slot is None else f", slot {fit.slot + 1}"
        origin = float(scorer.origin[model.reward])
        bins = [
            {
                "predicted": b.predicted + origin,
                "observed": b.observed + origin,
                "std_error": b.std_error,
                "rounds": b.rounds,
            }
            for b in Calibration.bins(sums, MOST_BINS)
        ]
        return {
            "model": described(fit.rewards) + weighting + slot,
            "estimators": list(estimators),
            "r2": self.fit(model)[0],
            "bins": bins,
        }


class Learning(Reading):
    """Whether the value of a reward model alone would still change with more rounds, because it is shrunk."""

    def findings(self, subject: Subject) -> list[Finding]:
        curve, value = self._curve(subject), subject.functional.value
        if curve is None or not np.isfinite(value):
            return []
        size = abs(curve.change) / subject.std_error if curve.seen and subject.std_error > 0 else 0.0
        # The change falls like n^−γ and the error like n^−½, so that their quotient is 1 after this many times the rounds.
        enough = in_all(subject.sums.n * max(size, 1.0) ** (1 / (curve.rate - 0.5)))
        return [
            Measure("learning curve", size).finding(
                "learning",
                f"The reward model is still learning: from {value - curve.change:.4g} with half of the rounds its estimate "
                f"went to {value:.4g}, and with twice the rounds it would move by about {curve.next_change:+.2g}, to "
                f"{value + curve.next_change:.4g}."
                if curve.seen
                else f"Half of the rounds would have given the same estimate, within the error of {curve.std_error:.2g}.",
                "Its coefficients are still shrunk towards those of all actions together, and the interval does not include "
                "this bias.",
                f"Log more rounds ({enough}), use a lighter penalty (rewards=op.Ridge(0.1)), or lead with an estimate whose "
                "weights correct the model (op.SNDR, op.Auto).",
            )
        ]

    def numbers(self, subject: Subject) -> dict[str, Any]:
        curve = self._curve(subject)
        return {} if curve is None else {"learning": curve.to_dict(subject.functional.value)}

    def _curve(self, subject: Subject) -> LearningCurve | None:
        """The curve, if no weight corrects the model, so that it is that of the estimate."""
        return None if subject.member is None or subject.member.weight.weighs else subject.curve


@dataclass(frozen=True)
class FitError(Reading):
    """Whether the standard error includes what was fitted, and how much of it that is. `many`: too many actions to refit."""

    many: bool

    def findings(self, subject: Subject) -> list[Finding]:
        f, member = subject.functional, subject.member
        if subject.fit_missing:
            before = subject.model is not None and subject.model.fit.rewards.fitted_before
            return [FITTED_BEFORE if before else TOO_MANY_FOR_REFITS if self.many else FIT_NOT_COVERED]
        if f.fit is None or member is None or not member.weight.ratio.whole:
            return []  # with a reward model alone, first order is accurate
        sampling = float(np.sqrt(sampling_variance(f, subject.sums)))
        if not sampling > 0:
            return []
        times = subject.std_error / sampling
        return [
            Measure("fit beside sampling", times).finding(
                "uncertain fit",
                f"Including the fit, the standard error is {times:.1f} times that of sampling alone.",
                "The error of the fit is a first-order approximation, which is too large if the fit rests on few or noisy "
                "rounds.",
                'Use confidence_interval(method="bootstrap", refit=True) (--interval bootstrap --refit), which refits.',
            )
        ]

    def numbers(self, subject: Subject) -> dict[str, Any]:
        return {"fit_not_covered": True} if subject.fit_missing else {}


def model_findings(r2: float | None, corrected: bool) -> list[Finding]:
    """A concern if the reward model predicts nothing on rounds it was not fitted on."""
    if r2 is None or r2 > 0:
        return []
    why = (
        "The correction removes its bias, at the cost of variance."
        if corrected
        else "The direct method is only as good as its model."
    )
    return [
        Finding(
            Verdict.CAUTION,
            "reward model",
            f"Out of fold, the reward model explains nothing (R² = {r2:.3f}).",
            why,
            "Add context that predicts the reward, or pass a better model with `rewards=`.",
        )
    ]


def refitted(checks: Iterable[Finding]) -> tuple[Finding, ...]:
    """The checks that still apply to an interval from a bootstrap that refits everything except a saved model."""
    remaining = (check for check in checks if check.code not in ABOUT_THE_FIT or check == FITTED_BEFORE)
    return tuple(replace(check, why=FIT_COUNTED) if check.code == ESTIMATED else check for check in remaining)

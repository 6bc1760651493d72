"""Reward models and fits: how well they predict, and how much of an error comes from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from offpolicy.core.describe import described
from offpolicy.data.batch import Batch
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.verdict import ESTIMATED, FIT_COUNTED, Finding, Measure, Verdict
from offpolicy.inference.functionals import sampling_variance
from offpolicy.inference.scores import Scores
from offpolicy.scoring.plan import ModelKey, fit_of
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added
from offpolicy.statistics.calibration import Calibration

MOST_BINS = 12
ABOUT_THE_FIT = ("fit not covered", "uncertain fit")
"""Codes of findings that an interval takes away for which everything was fitted anew."""

UNCHECKED_MODEL = Finding(
    Verdict.CAUTION,
    "unchecked model",
    "This is the reward model's word alone, and the log has no propensities to check it with.",
    "A model fitted where the old policy went can be wrong where the new one goes, and nothing here would show it.",
    "Log the chance of each action taken (propensity=, --propensity), or give the old policy (logging=, --logging).",
)

FIT_NOT_COVERED = Finding(
    Verdict.CAUTION,
    "fit not covered",
    "The error of what was fitted (its reward model or its weights) is not in this interval.",
    "The interval is too narrow, by as much as the fit would change with another log.",
    "Read it as a lower bound of the error, or ask for a bootstrap that fits again (refit=True, --refit). Ridge models and "
    "smooth posteriors are counted for the log as a whole, but for clusters, for sums over near actions and for models with "
    "features that vary within actions; DR needs no such count.",
)

FITTED_BEFORE = Finding(
    Verdict.CAUTION,
    "fit not covered",
    "The error of its reward model, which was fitted before, is not in this interval.",
    "The interval is too narrow, by as much as the model would change if it were fitted on another log.",
    "Read it as a lower bound of the error. A bootstrap that fits again (refit=True, --refit) leaves a saved model as it "
    "is: to have its error counted, let it be fitted here (rewards=op.Ridge()); DR needs no such count.",
)

TOO_MANY_FOR_REFITS = Finding(
    Verdict.CAUTION,
    "fit not covered",
    "The error of what was fitted is not in this interval: with so many actions, refits without parts of the log do not fit "
    "the memory budget.",
    "The interval is too narrow, by as much as the fit would change with another log.",
    "Give more memory (memory=, --memory), or read it as a lower bound of the error; DR needs no such count.",
)

SHARED_COVARIANCE = Finding(
    Verdict.CAUTION,
    "shared covariance",
    "The reward model takes the contexts of all actions to vary alike: a matrix for each action does not fit the memory "
    "budget.",
    "Where contexts go with actions, its coefficients are less exact; estimators that weigh by π/π0 correct for it.",
    "Give more memory (memory=, --memory), fewer context columns, or fewer folds (cross_fit=2).",
)


@dataclass(frozen=True)
class ModelSums:
    """How well reward models predict the rounds: R², and for cross-fitted ones the calibration."""

    columns: ClassVar[tuple[str, ...]] = ()
    models: tuple[ModelKey, ...]

    def zero(self) -> State:
        calibration = {str(k): Calibration().zero() for k, model in enumerate(self.models) if model.folds}
        return {"misfit": np.zeros((len(self.models), 4)), "calibration": calibration}

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:
        """Σω, Σωr, Σωr² and Σω(r − q)² of each model, which give R²."""
        for k, model in enumerate(self.models):
            origin, omega = scored.origin[model.reward], scored.omega
            reward, predicted = batch.reward[:, model.reward] - origin, scored.controls[model] - origin
            residual = reward - predicted
            state["misfit"][k] += (omega.sum(), omega @ reward, (omega * reward) @ reward, (omega * residual) @ residual)
            if str(k) in state["calibration"]:
                Calibration().fold(state["calibration"][str(k)], predicted, reward, omega)
        return state

    def merge(self, a: State, b: State) -> State:
        return added(a, b)


@dataclass(frozen=True)
class Models(Reading):
    """How well reward models predict rounds that they were not fitted on."""

    state: State
    scores: Scores

    def findings(self, subject: Subject) -> list[Finding]:
        member, model, found = subject.member, subject.model, []
        if model is not None and member is not None:
            found += model_findings(self.fit(model)[0], member.weight.weighs)
            found += [] if subject.weighable else [UNCHECKED_MODEL]
        return [*found, SHARED_COVARIANCE] if self._shares_covariance(subject) else found

    def numbers(self, subject: Subject) -> dict[str, Any]:
        return {} if subject.model is None else {"reward_model": self.fit(subject.model)[1]}

    def _shares_covariance(self, subject: Subject) -> bool:
        """Whether its reward model, or that of its embedding, had no room for a matrix of each action."""
        learned = None if subject.member is None else fit_of(subject.member.weight.ratio)
        own = None if subject.model is None else subject.model.fit
        fits = [self.scores.fitted.models[fit] for fit in (own, learned) if fit is not None]
        return any("covariance" in fit.diagnostics(subject.reward) for fit in fits)

    def fit(self, model: ModelKey) -> tuple[float | None, dict[str, Any]]:
        """R² out of fold: from the scored residuals where the model was cross-fitted, else from the fit's own folds."""
        fitted = self.scores.fitted.models[model.fit].diagnostics(model.reward)
        r2 = fitted.get("r2")
        if model.folds or not model.fit.rewards.fitted:  # then these rounds are new to it
            n, r, rr, misfit = map(float, self.state["misfit"][self.scores.scorer.plan.models.index(model)])
            total = rr - r * r / n
            r2 = 1 - misfit / total if total > 0 else None
        return r2, {**fitted, "r2": r2}

    def view(self, model: ModelKey, estimators: Sequence[str]) -> dict[str, Any]:
        """What a cross-fitted model predicted, and what came."""
        scorer, fit = self.scores.scorer, model.fit
        sums = self.state["calibration"][str(scorer.plan.models.index(model))]
        told = described(fit.rewards) + (
            "" if fit.policy is None else f", rows weighed by w² of {self.scores.policies[fit.policy]}"
        )
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
        return {"model": told, "estimators": list(estimators), "r2": self.fit(model)[0], "bins": bins}


@dataclass(frozen=True)
class FitError(Reading):
    """Whether the error counts what was fitted, and how much of it that is."""

    many: bool
    """Whether there are too many actions for refits."""

    def findings(self, subject: Subject) -> list[Finding]:
        f, member = subject.functional, subject.member
        if subject.fit_missing:
            before = subject.model is not None and subject.model.fit.rewards.fitted_before
            return [FITTED_BEFORE if before else TOO_MANY_FOR_REFITS if self.many else FIT_NOT_COVERED]
        if f.fit is None or member is None or not member.weight.ratio.whole:
            return []  # a reward model alone moves values as it should
        sampling = float(np.sqrt(sampling_variance(f, subject.sums)))
        if not sampling > 0:
            return []
        times = subject.std_error / sampling  # the fit's share of the error is known to first order only
        return [
            Measure("fit beside sampling", times).finding(
                "uncertain fit",
                f"With what it fitted the standard error is {times:.1f} times that of the draw of rounds alone.",
                "That share is reckoned to first order, which overstates it where the fit hangs by few or noisy rounds.",
                'Ask for confidence_interval(method="bootstrap", refit=True) (--interval bootstrap --refit), which '
                "fits anew.",
            )
        ]

    def numbers(self, subject: Subject) -> dict[str, Any]:
        return {"fit_not_covered": True} if subject.fit_missing else {}


def model_findings(r2: float | None, corrected: bool) -> list[Finding]:
    """How well the reward model predicts rows it was not fitted on."""
    if r2 is None or r2 > 0:
        return []
    why = (
        "The correction repairs what is wrong on average, at the price of variance."
        if corrected
        else "The direct method is no better than its model."
    )
    return [
        Finding(
            Verdict.CAUTION,
            "reward model",
            f"Out of fold the reward model explains nothing (R² = {r2:.3f}).",
            why,
            "Add context that predicts the reward, or give a better model with `rewards=`.",
        )
    ]


def refitted(checks: Iterable[Finding]) -> tuple[Finding, ...]:
    """What is left to say of an interval for which everything was fitted anew: a saved model was not."""
    kept = (check for check in checks if check.code not in ABOUT_THE_FIT or check == FITTED_BEFORE)
    return tuple(replace(check, why=FIT_COUNTED) if check.code == ESTIMATED else check for check in kept)

"""Reward models and fits: how well they predict, and how much of an error comes from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offpolicy.core.describe import described
from offpolicy.diagnostics.verdict import Finding, Verdict, graded
from offpolicy.scoring.fit_pass import FitResults
from offpolicy.scoring.plan import ModelKey
from offpolicy.scoring.scorer import Scorer
from offpolicy.statistics.base import State
from offpolicy.statistics.calibration import Calibration

MOST_BINS = 12


@dataclass(frozen=True)
class ModelDiagnostics:
    """How well reward models predict rounds that they were not fitted on."""

    policies: tuple[str, ...]
    scorer: Scorer
    fitted: FitResults
    state: State

    def fit(self, model: ModelKey) -> tuple[float | None, dict[str, Any]]:
        """R² out of fold: from the scored residuals where the model was cross-fitted, else from the fit's own folds."""
        fitted = self.fitted.models[model.fit].diagnostics(model.reward)
        r2 = fitted.get("r2")
        if model.folds or not model.fit.rewards.fitted:  # then these rounds are new to it
            n, r, rr, misfit = map(float, self.state["misfit"][self.scorer.plan.models.index(model)])
            total = rr - r * r / n
            r2 = 1 - misfit / total if total > 0 else None
        return r2, {**fitted, "r2": r2}

    def view(self, model: ModelKey, estimators: Sequence[str]) -> dict[str, Any]:
        """What a cross-fitted model predicted, and what came."""
        fit, sums = model.fit, self.state["calibration"][str(self.scorer.plan.models.index(model))]
        told = described(fit.rewards) + (
            "" if fit.policy is None else f", rows weighed by w² of {self.policies[fit.policy]}"
        )
        return calibration_view(told, estimators, sums, float(self.scorer.origin[model.reward]), self.fit(model)[0])


def calibration_view(model: str, estimators: Sequence[str], sums: State, origin: float, r2: float | None) -> dict[str, Any]:
    """What was predicted of rounds that the model was not fitted on, and what came."""
    bins = [
        {"predicted": b.predicted + origin, "observed": b.observed + origin, "std_error": b.std_error, "rounds": b.rounds}
        for b in Calibration.bins(sums, MOST_BINS)
    ]
    return {"model": model, "estimators": list(estimators), "r2": r2, "bins": bins}


def uncertain_fit(error: float, sampling: float) -> list[Finding]:
    """Whether the fit's share of an error, known to first order only, makes nearly all of it."""
    if not sampling > 0:
        return []
    return [
        graded(
            "fit beside sampling",
            error / sampling,
            "uncertain fit",
            f"With what it fitted the standard error is {error / sampling:.1f} times that of the draw of rounds alone.",
            "That share is reckoned to first order, which overstates it where the fit hangs by few or noisy rounds.",
            'Ask for confidence_interval(method="bootstrap", refit=True) (--interval bootstrap --refit), which fits anew.',
        )
    ]


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

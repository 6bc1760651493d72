"""Findings about the propensities themselves: that they were estimated."""

from __future__ import annotations

from offpolicy.findings import Finding, Verdict
from offpolicy.policy import Policy
from offpolicy.propensities import FittedLogging


def propensity_findings(logging: Policy | None) -> list[Finding]:
    """For every estimate that weighs by π/π0."""
    return [_estimated(logging)] if isinstance(logging, FittedLogging) else []


def _estimated(logging: FittedLogging) -> Finding:
    told = logging.told
    fitted, rows = told["fitted_rows"], told["log_rows"]
    on = f"all {rows:,} rounds" if fitted == rows else f"{fitted:,} of {rows:,} rounds"
    new = told["rounds_with_an_action_new_to_the_fit"]
    besides = (
        f" {new:,} rounds have an action that the other folds do not hold; they take its share of the log." if new else ""
    )
    return Finding(
        Verdict.CAUTION,
        "estimated propensities",
        f"Propensities were not logged but estimated: {_MODELS[told['model']]}, on {on}, in {logging.setting.folds} folds."
        f"{besides}",
        "The error of that fit is not in the interval, and what the old policy saw besides the context biases the answer.",
        "Log the chance of each action taken. Until then prefer DR, which is right if the reward model is; look at "
        "result.plot.propensities().",
    )


_MODELS = {
    "logistic": "by multinomial logistic regression on the context",
    "boosting": "by boosted trees on the context",
    "counts": "by how often each action was taken, whatever the context",
}

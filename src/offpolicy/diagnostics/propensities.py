"""Findings about the propensities themselves: that they were estimated, or cannot be those of this log; and what they look
like, for pictures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from offpolicy.data.spaces import ActionSpace, Discrete, discrete
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.propensity_tests import CELLS, SURE, Misfit, PropensityTests
from offpolicy.diagnostics.verdict import ESTIMATED, FIT_LEFT_OUT, Finding, Verdict
from offpolicy.models.propensities import FittedLogging
from offpolicy.policies.base import Policy
from offpolicy.statistics.base import State

MATTERS, MATTERS_ESTIMATED = 1.02, 1.1
"""By what factor frequencies must be off to matter, however sure that is: of propensities that were logged, and of a fit."""
FAR = 1.5
"""From which factor on nothing that is weighed by them should be believed."""
SHOWN = 60
"""Actions of which a picture shows the mean of 1/p."""


@dataclass(frozen=True)
class Propensities(Reading):
    """Whether the propensities can be those of this log."""

    tests: PropensityTests | None
    state: State
    space: ActionSpace
    rounds: int

    @property
    def _actions(self) -> Discrete:
        return discrete(self.space, "PropensityTests")

    @property
    def logging(self) -> Policy | None:
        return None if self.tests is None else self.tests.logging

    def findings(self, subject: Subject) -> list[Finding]:
        member = subject.member
        return self._found if member is None or member.weight.weighs else []

    @cached_property
    def _found(self) -> list[Finding]:
        """For every estimate that weighs by π/π0."""
        if self.tests is None:
            return []
        estimated = isinstance(self.logging, FittedLogging)
        found = [self._estimated(self.logging)] if isinstance(self.logging, FittedLogging) else []
        off, asked = self.state["sums"]
        if off:
            found.append(_sums(int(off), int(asked)))
        least = MATTERS_ESTIMATED if estimated else MATTERS
        misfits = [m for m in self.tests.misfits(self.state, logged=not estimated) if _factor(m) >= least]
        if misfits and not off:
            found.append(self._implausible(misfits, estimated))
        return found

    def _estimated(self, logging: FittedLogging) -> Finding:
        told, trim = logging.told, logging.setting.trim
        fitted, rows = told["fitted_rows"], told["log_rows"]
        on = f"all {rows:,} rounds" if fitted == rows else f"{fitted:,} of {rows:,} rounds"
        said = [
            f"Propensities were estimated, not logged: {_MODELS[told['model']]}, on {on}, in {logging.setting.folds} folds."
        ]
        if new := told["rounds_with_an_action_new_to_the_fit"]:
            said.append(f"{new:,} rounds have an action that the other folds do not hold; they take its share of the log.")
        if trim is not None:
            raised = int(self.state["trimmed"])
            said.append(f"{raised:,} rounds ({raised / self.rounds:.1%}) had less than {trim:g}, and were raised to it.")
        return Finding(
            Verdict.CAUTION,
            ESTIMATED,
            " ".join(said),
            FIT_LEFT_OUT,
            "Log the chance of each action taken. Until then prefer DR, which is right if the reward model is; look at "
            "result.plot.propensities().",
        )

    def _implausible(self, misfits: list[Misfit], estimated: bool) -> Finding:
        """One finding with the worst of the tests."""
        first = max(misfits, key=lambda m: (m.kind != "inverse" or m.z > 0, abs(m.z)))
        others = f" (and {len(misfits) - 1:,} more tests fail)" if len(misfits) > 1 else ""
        seen = f"{self._seen(first)}, {abs(first.z):.1f} standard errors apart{others}."
        if estimated:
            return Finding(
                Verdict.CAUTION,
                "propensities do not fit",
                seen,
                "The model of the old policy misses something that the log shows out of fold.",
                'Try another model (op.EstimatedLogging("boosting")), or more context; look at result.plot.propensities().',
            )
        below = all(m.kind == "inverse" and m.z < 0 for m in misfits)
        far = not below and max(map(_factor, misfits)) >= FAR
        why = "Right propensities keep to this; these belong to another policy, to another step, or were changed on the way."
        if below:
            why = "Either the propensities are too large (clipped?), or those actions could not be taken in some rounds."
        return Finding(
            Verdict.DO_NOT_TRUST if far else Verdict.CAUTION,
            "propensities",
            seen,
            why,
            "Check which model and which moment they were logged from (before or after clipping, filters, positions), and "
            "compare with logging=op.EstimatedLogging() (--logging estimate).",
        )

    def _seen(self, m: Misfit) -> str:
        if m.kind == "bin":
            return f"Actions with a chance near {m.expected:.2g} were taken {m.observed:.2g} of the time"
        if m.kind == "sure":
            t = SURE[m.cell]
            return (
                f"Where an action had a chance of {t:g} or more, something else should have come, in {m.expected:.2%} of "
                f"all rounds or more; such came in {m.observed:.2%}"
            )
        if m.kind == "total":
            return f"The mean of 1/propensity is {m.observed:.3g}, and it cannot be above the {m.expected:,.0f} actions"
        of = self._named(m.cell)
        if m.kind == "action":
            return f"{of} was taken in {m.observed:.2%} of the rounds that gave it a mean chance of {m.expected:.2%}"
        law = "it cannot be above" if m.z > 0 else "where it can always be taken it is"
        whose = f"{of[0].lower()}{of[1:]} (0 in others)"
        return f"The mean of 1/propensity over the rounds of {whose} is {m.observed:.3g}, and {law} {m.expected:g}"

    def _named(self, cell: int) -> str:
        if self._actions.n_actions > CELLS:
            return f"A group of {self._actions.n_actions // CELLS:,} or so actions"
        return f"Action {self._actions.to_numpy()[cell]!s}"

    def view(self) -> dict[str, Any] | None:
        """As plain values, for pictures and JSON."""
        if self.tests is None:
            return None
        logging = self.logging
        told: dict[str, Any] = {"source": "policy" if logging is not None else "logged"}
        if isinstance(logging, FittedLogging):
            raised = int(self.state["trimmed"]) if logging.setting.trim is not None else None
            told = {"source": "estimated", **logging.told, "trim": logging.setting.trim, "trimmed_rounds": raised}
        return {**told, "bins": self._bins(), "actions": self._inverses()}

    def _bins(self) -> list[dict[str, Any]]:
        """Chances and frequencies, where the whole policy is known."""
        entries, taken, chances = self.state["bin"]["by_group"].sum(axis=1)
        error = np.sqrt(self.state["bin"]["variance"])
        return [
            {"predicted": float(chances[k] / entries[k]), "observed": float(taken[k] / entries[k]),
             "std_error": float(error[k] / entries[k]), "rounds": round(float(entries[k])), "of": "rounds × actions"}
            for k in np.flatnonzero(chances >= 1)  # of rarer ones nothing is to be seen
        ]  # fmt: skip

    def _inverses(self) -> list[dict[str, Any]]:
        """The mean of 1/p over the rounds of each of the actions most often logged (0 in other rounds)."""
        n = float(self.state["rounds"][0].sum())
        mean, squares = self.state["inverse"].sum(axis=0), self.state["inverse_squares"]
        if self._actions.n_actions > CELLS or n <= 0:
            return []
        logged = np.flatnonzero(squares > 0)
        often = logged[np.argsort(-(mean**2 / np.maximum(squares, 1e-300))[logged], kind="stable")][:SHOWN]
        names = self._actions.to_numpy()
        return [
            {"action": str(names[k]), "mean_inverse": float(mean[k] / n),
             "std_error": float(np.sqrt(max(squares[k] - mean[k] ** 2 / n, 0.0)) / n)}
            for k in often
        ]  # fmt: skip


def _factor(m: Misfit) -> float:
    """By what factor a frequency is off; of a likely action, that of what is left."""
    near, seen = (m.expected, m.observed) if m.kind in ("sure", "inverse", "total") else _rarer(m)
    return max(seen, near) / max(min(seen, near), 1e-12)


def _rarer(m: Misfit) -> tuple[float, float]:
    return (m.expected, m.observed) if m.expected <= 0.5 else (1 - m.expected, 1 - m.observed)


def _sums(off: int, asked: int) -> Finding:
    return Finding(
        Verdict.DO_NOT_TRUST,
        "propensities",
        f"In {off:,} of {asked:,} rounds that were looked at, the chances of the logging policy do not sum to 1.",
        "They are no probabilities, so weights by them are wrong by as much.",
        "Divide the chances of each round by their sum, over all actions that could be taken.",
    )


_MODELS = {
    "logistic": "by multinomial logistic regression on the context",
    "boosting": "by boosted trees on the context",
    "counts": "by how often each action was taken, whatever the context",
}

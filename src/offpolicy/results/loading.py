"""`load_result`: a result from its file, of the same class as the one that was saved."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy.core.storage import damaged
from offpolicy.diagnostics.verdict import Finding, Verdict
from offpolicy.inference.functionals import ScoreSums
from offpolicy.inference.intervals import Interval
from offpolicy.results.estimate import Estimate
from offpolicy.results.evaluation import Evaluation, Views
from offpolicy.results.evidence import KEPT, Evidence, LogHandle
from offpolicy.results.storage import read, unpacked, unpacked_sums

COPIED = ("reward", "rounds", "actions", "actions_logged", "level", "skipped", "settings", "input", "versions")


def load_result(path: str | Path) -> Evaluation:
    """What `Evaluation.save` wrote, checked: its format and version, its parts and their types, and its checksum.

    Files of the first format hold what was shown, and no sums: asked for more, such a result says so.
    """
    summary, evidence = read(path := Path(path))
    if evidence is None:
        return _evaluation(summary)
    try:
        return _with_evidence(_evaluation(summary), evidence)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, zlib.error) as error:
        raise damaged(path, f"its sums cannot be read ({type(error).__name__}: {error})") from None


def _evaluation(told: Mapping[str, Any]) -> Evaluation:
    """A result from its summary alone."""
    estimates = {(e["policy"], e["estimator"]): _estimate(e) for e in told["estimates"]}
    others = {name: _evaluation(part) for name, part in told.get("other_rewards", {}).items()}
    names = tuple(dict.fromkeys(estimator for _, estimator in estimates))
    logged = (e.estimator for e in estimates.values() if e.value == told["logged"]["value"] and not e.diagnostics)
    alone = Evaluation(
        estimates=estimates,
        policies=tuple(told["policies"]),
        estimators=names,
        headline_estimator=told["headline"]["estimator"],
        logged_estimator=next(logged, "LoggedMean"),
        saved=told,
        views=Views(told["overlap"], told["calibration"], told.get("propensities"), list(told.get("sensitivity") or ())),
        slices={name: _evaluation(part) for name, part in told.get("slices", {}).items()},
        action_space=told.get("action_space"),
        **{name: told[name] for name in COPIED},
    )
    return replace(alone, rewards={alone.reward: alone, **others}) if others else alone


def _estimate(told: Mapping[str, Any]) -> Estimate:
    reasons = (Finding(**{**r, "verdict": Verdict[r["verdict"]]}) for r in told["reasons"])
    copied = ("value", "std_error", "error_covers", "policy", "estimator", "reward", "n", "diagnostics")
    return Estimate(
        interval=Interval(**told["interval"]),
        evidence=None,
        checks=tuple(reasons),
        **{name: told[name] for name in copied},
    )


def _with_evidence(result: Evaluation, told: Any) -> Evaluation:
    """A result from a file with what it rests on; raises where the two do not belong together."""
    sums = list(map(unpacked_sums, told["sums"]))

    def to(part: Evaluation, own: Any) -> Evaluation:
        estimates = {
            key: _rested(estimate, part.settings.get("slice"), sums[own["sums"]], kept)
            for (key, estimate), kept in zip(part.estimates.items(), own["estimates"], strict=True)
        }
        if own["logged"] not in part.estimators:
            raise ValueError(f"no estimator is called {own['logged']!r}")
        alone = replace(part, estimates=estimates, logged_estimator=own["logged"], rewards={})
        others = {name: to(part.rewards[name], other) for name, other in own["other_rewards"].items()}
        slices = {name: to(part.slices[name], other) for name, other in own["slices"].items()}
        return replace(alone, rewards={part.reward: alone, **others} if others else {}, slices=slices)

    return to(result, told["parts"])


def _rested(estimate: Estimate, slice_: str | None, sums: ScoreSums, told: Any) -> Estimate:
    key = (slice_, estimate.reward, estimate.policy, estimate.estimator)
    evidence = Evidence(sums=sums, log=LogHandle(), key=key, **{name: unpacked(told[name]) for name in KEPT})
    f = evidence.functional
    found = (f.value, float(f.evaluate(sums.moments["mean"])), evidence.std_error)
    wanted = (estimate.value, f.value, evidence.std_error if np.isnan(estimate.std_error) else estimate.std_error)
    if f.gradient.shape != sums.moments["mean"].shape or not np.allclose(found, wanted, rtol=1e-6, equal_nan=True):
        raise ValueError(f"{estimate.name} does not follow from its sums")
    return replace(estimate, evidence=evidence)


SavedResult = Evaluation
SavedEstimate = Estimate
"""Their names when loaded results had classes of their own."""

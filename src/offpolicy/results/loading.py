"""`load_result`: a result from its file, of the same class as the saved one."""

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
from offpolicy.results.evidence import SAVED, Evidence, LogHandle
from offpolicy.results.storage import numbers, read, unpacked, unpacked_sums

ADDED_LATER = ("value_range", "scores", "slots")  # fields of the evidence that older files lack
COPIED = ("reward", "rounds", "actions", "actions_logged", "level", "skipped", "settings", "input", "versions")


def load_result(path: str | Path) -> Evaluation:
    """Load a result that `Evaluation.save` wrote, after checking its format, its parts and its checksum.

    Files of the first format contain what was shown, but no sums; whatever needs the sums then raises an error.

    Parameters
    ----------
    path : str or Path
        The JSON file.

    Returns
    -------
    Evaluation
        Without a handle to the log.

    Raises
    ------
    InputError
        If the file is damaged, or is not a saved result.

    Examples
    --------
    >>> import tempfile
    >>> import offpolicy as op
    >>> world = op.worlds.Linear(n_actions=5, seed=0)
    >>> result = op.evaluate(world.sample(500, seed=0), world.target, op.SNIPS())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.save(f"{folder}/result.json")
    ...     again = op.load_result(f"{folder}/result.json")
    >>> str(again) == str(result)
    True
    """
    summary, evidence = read(path := Path(path))
    if evidence is None:
        return _evaluation(summary)
    try:
        return _with_evidence(_evaluation(summary), evidence)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, zlib.error) as error:
        raise damaged(path, f"its sums cannot be read ({type(error).__name__}: {error})") from None


def evaluation_of(summary: Any, evidence: Any) -> Evaluation:
    """A result from its summary and evidence, as parts of another file; raises if they do not belong together."""
    return _with_evidence(_evaluation(numbers(summary)), evidence)


def _evaluation(summary: Mapping[str, Any]) -> Evaluation:
    """A result from its summary only."""
    estimates = {(e["policy"], e["estimator"]): _estimate(e) for e in summary["estimates"]}
    others = {name: _evaluation(part) for name, part in summary.get("other_rewards", {}).items()}
    names = tuple(dict.fromkeys(estimator for _, estimator in estimates))
    logged = (e.estimator for e in estimates.values() if e.value == summary["logged"]["value"] and not e.diagnostics)
    alone = Evaluation(
        estimates=estimates,
        policies=tuple(summary["policies"]),
        estimators=names,
        headline_estimator=summary["headline"]["estimator"],
        logged_estimator=next(logged, "LoggedMean"),
        saved=summary,
        views=Views(
            summary["overlap"],
            summary["calibration"],
            summary.get("propensities"),
            list(summary.get("sensitivity") or ()),
            summary.get("best"),
            list(summary.get("action_axis") or ()),
            summary.get("dose_response"),
        ),
        slices={name: _evaluation(part) for name, part in summary.get("slices", {}).items()},
        action_space=summary.get("action_space"),
        **{name: summary[name] for name in COPIED},
    )
    return replace(alone, rewards={alone.reward: alone, **others}) if others else alone


def _estimate(summary: Mapping[str, Any]) -> Estimate:
    reasons = (Finding(**{**r, "verdict": Verdict[r["verdict"]]}) for r in summary["reasons"])
    copied = ("value", "std_error", "error_covers", "policy", "estimator", "reward", "n", "diagnostics")
    return Estimate(
        interval=Interval(**summary["interval"]),
        evidence=None,
        checks=tuple(reasons),
        **{name: summary[name] for name in copied},
    )


def _with_evidence(result: Evaluation, saved: Any) -> Evaluation:
    """A loaded result with its evidence; raises if the two do not belong together."""
    sums = list(map(unpacked_sums, saved["sums"]))

    def to(part: Evaluation, own: Any) -> Evaluation:
        estimates = {
            key: _rested(estimate, part.settings.get("slice"), sums[own["sums"]], saved)
            for (key, estimate), saved in zip(part.estimates.items(), own["estimates"], strict=True)
        }
        if own["logged"] not in part.estimators:
            raise ValueError(f"no estimator is called {own['logged']!r}")
        alone = replace(part, estimates=estimates, logged_estimator=own["logged"], rewards={})
        others = {name: to(part.rewards[name], other) for name, other in own["other_rewards"].items()}
        slices = {name: to(part.slices[name], other) for name, other in own["slices"].items()}
        return replace(alone, rewards={part.reward: alone, **others} if others else {}, slices=slices)

    return to(result, saved["parts"])


def _rested(estimate: Estimate, slice_: str | None, sums: ScoreSums, saved: Any) -> Estimate:
    key = (slice_, estimate.reward, estimate.policy, estimate.estimator)
    fields = {name: unpacked(saved[name]) for name in SAVED if name in saved or name not in ADDED_LATER}
    evidence = Evidence(sums=sums, log=LogHandle(), key=key, **fields)
    f = evidence.functional
    computed = (f.value, float(f.evaluate(sums.moments["mean"])), evidence.std_error)
    expected = (estimate.value, f.value, evidence.std_error if np.isnan(estimate.std_error) else estimate.std_error)
    if f.gradient.shape != sums.moments["mean"].shape or not np.allclose(computed, expected, rtol=1e-6, equal_nan=True):
        raise ValueError(f"{estimate.name} does not follow from its sums")
    return replace(estimate, evidence=evidence)


# Their names when loaded results had separate classes.
SavedResult = Evaluation
SavedEstimate = Estimate

"""`Evaluation`: the answer as a value, with everything that can be asked of it. Only a few questions need the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy.core.arrays import NEXT_TO_NOTHING
from offpolicy.core.errors import InputError
from offpolicy.core.imports import pandas
from offpolicy.core.threads import one_blas_thread
from offpolicy.data.checks import factors
from offpolicy.diagnostics.embedding_map import map_view
from offpolicy.inference.functionals import ScoreSums
from offpolicy.inference.intervals import REFITTED
from offpolicy.inference.sensitivity import GAMMAS, Tilted
from offpolicy.report import text
from offpolicy.report.page import html
from offpolicy.report.plots import Plots
from offpolicy.results.estimate import Estimate
from offpolicy.results.estimate_set import EstimateSet
from offpolicy.results.evidence import KEPT, Key, LogHandle
from offpolicy.results.sensitivity import Sensitivity
from offpolicy.results.storage import packed, packed_sums, write

SCHEMA_VERSION = 1
MOST_COMPARED = 6
"""Policies of which every pair is compared; of more, each with the first."""
SHOWN_IN_A_FILE = 2_000
SHOWN_IN_A_NOTEBOOK = 300
"""Actions on the map of a report: a notebook keeps a copy of all that it shows."""


@dataclass(frozen=True)
class Views:
    """What a report shows besides the estimates, as plain values."""

    overlap: list[dict[str, Any]] = field(default_factory=list)
    calibration: list[dict[str, Any]] = field(default_factory=list)
    propensities: dict[str, Any] | None = None
    sensitivity: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation(EstimateSet):
    """All estimates of one reward: `result["DR"]`, or `result["new", "DR"]` with several policies.

    `rewards` holds the same for every reward column, `slices` for every value of the `by` column. It is a value: it can be
    pickled, copied and saved, and then shows the same without the log.
    """

    reward: str
    rounds: int
    actions: int | None
    """How many there are; None where they cannot be counted: then `action_space` says what they are."""
    actions_logged: int | None
    """How many of them occur in the log; None for a slice of it."""
    action_space: str | None = None
    rewards: Mapping[str, Evaluation] = field(default_factory=dict)
    slices: Mapping[str, Evaluation] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    input: Mapping[str, Any] = field(default_factory=dict)
    """What was read: a fingerprint of the rounds, where they come from, their columns."""
    versions: Mapping[str, str] = field(default_factory=dict)
    views: Views = field(repr=False, default_factory=Views)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: nothing that can be computed again."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def detach(self) -> Evaluation:
        """The same without the log, whose memory can then be freed. `refit=True`, `sensitivity` and `scores` need it."""

        def alone(estimate: Estimate) -> Estimate:
            return replace(
                estimate, evidence=None if estimate.evidence is None else replace(estimate.evidence, log=LogHandle())
            )

        return replace(
            self._each(lambda part: part.detach()),
            estimates={key: alone(estimate) for key, estimate in self.estimates.items()},
            log=LogHandle(),
        )

    def _each(self, change: Callable[[Evaluation], Evaluation]) -> Evaluation:
        """The same with its other rewards and slices changed."""
        return replace(
            self,
            rewards={name: change(part) for name, part in self.rewards.items()},
            slices={name: change(part) for name, part in self.slices.items()},
        )

    def with_interval(self, method: str, *, refit: bool = False) -> Evaluation:
        """The same with intervals by another method wherever none is named: in the table, JSON and pictures."""
        if refit and method != "bootstrap":
            raise InputError(f"refit is for the bootstrap, not for {method} intervals (--interval bootstrap --refit).")
        with one_blas_thread():
            estimates = {key: estimate.shown_with(method, refit) for key, estimate in self.estimates.items()}
            parts = self._each(lambda part: part.with_interval(method, refit=refit))
        settings = {**self.settings, "interval": REFITTED if refit else method}
        shown = replace(parts, estimates=estimates, settings=settings, saved=None)
        return replace(shown, saved=summary(shown)) if refit else shown  # which needs the log

    def values(self) -> dict[Key, float]:
        """The value of every estimate, by slice, reward, policy and estimator."""
        return {(name, e.reward, e.policy, e.estimator): e.value for name, e in self._every_estimate()}

    def _every_estimate(self) -> Iterator[tuple[str | None, Estimate]]:
        """Of the whole log and of each slice, for every reward; with the name of the slice."""
        for name, part in ((None, self), *self.slices.items()):
            for reward in (part.rewards or {part.reward: part}).values():
                yield from ((name, estimate) for estimate in reward)

    def sensitivity(self, gamma: float | Sequence[float] = GAMMAS, *, policy: str | None = None) -> Sensitivity:
        """Bounds on the value if true propensities differ from the given by a factor of up to Γ, in each round its own.

        They are those of the self-normalised value (SNIPS), which Γ = 1 gives, with the errors of sampling beside them, and
        the Γ at which "better than the log" stops to hold. By default of the first policy. The log is read once more.
        """
        return Sensitivity.of(self._tilted(policy), policy or self.policies[0], self.reward, gamma, self.level)

    def _tilted(self, policy: str | None = None) -> Tilted:
        policy = self.named(policy)
        if self.settings.get("slice") is not None:
            raise InputError("sensitivity: is worked out for the whole log, not for a slice of it; read the slice as a log.")
        return self.log.open("sensitivity(…)").tilted(policy, self.reward)

    def with_sensitivity(self, gamma: float | Sequence[float] = GAMMAS) -> Evaluation:
        """The same with `sensitivity` of every policy in the text, JSON, Markdown and HTML forms; a policy that does nothing
        of what was logged has none."""
        gammas = factors(gamma)
        with one_blas_thread():
            found = [
                self.sensitivity(gammas, policy=policy).to_dict()
                for policy in self.policies
                if self._tilted(policy).overlaps
            ]
        rewards = {name: part.with_sensitivity(gammas) for name, part in self.rewards.items()}
        return replace(self, views=replace(self.views, sensitivity=found), rewards=rewards, saved=None)

    def to_dict(self, shown: int = 0) -> dict[str, Any]:
        """Everything as plain values: the source of the text, JSON, Markdown and HTML forms.

        With `shown`, a map of up to so many actions by their embedding is among them, where some estimate has one.
        """
        told = deepcopy(dict(self._told))
        told["embedding"] = self._map(shown)
        return told

    @cached_property
    def _told(self) -> Mapping[str, Any]:
        """All but the map, computed once."""
        if self.saved is not None:
            return self.saved
        with one_blas_thread():  # or the last digits would depend on the number of cores
            return summary(self)

    def _map(self, shown: int) -> dict[str, Any] | None:
        """The actions by the first embedding that an estimate has; of a result from a file, the map that it holds."""
        if not shown:
            return None
        found = next((e for e in self if e.labelled is not None), None)
        if found is None:
            kept: dict[str, Any] | None = deepcopy((self.saved or {}).get("embedding"))
            return kept
        return map_view(found.estimator, found.embedding, shown, int(self.settings.get("seed", 0)))

    def to_frame(self) -> Any:
        """One row an estimate, as a pandas data frame."""
        pd = pandas("to_dict()")
        rows = [
            {"slice": name or "", "policy": e.policy, "reward": e.reward, "estimator": e.estimator, "value": e.value,
             "std_error": e.std_error, "low": e.interval.low, "high": e.interval.high, "error_covers": e.error_covers,
             "n": e.n, "effective_sample_size": e.diagnostics.get("effective_sample_size", np.nan),
             "verdict": e.verdict.name}
            for name, e in self._every_estimate()
        ]  # fmt: skip
        frame = pd.DataFrame(rows)
        return frame if self.slices else frame.drop(columns="slice")

    def to_markdown(self) -> str:
        return text.markdown(self.to_dict())

    @property
    def plot(self) -> Plots:
        """Pictures: `.estimates()`, `.weights()`, `.propensities()`, `.calibration()`, `.embedding()`, `.differences()`,
        `.sensitivity()`; each on axes."""
        return Plots(self.to_dict, self._bounds)

    def _bounds(self, gamma: Sequence[float], policy: str | None) -> dict[str, Any]:
        """For a picture: from the log; without it, what `with_sensitivity` computed, whatever Γ is asked for now."""
        if self.log.attached:
            return self.sensitivity(gamma, policy=policy).to_dict()
        policy = self.named(policy)
        found = next((each for each in self._told.get("sensitivity") or () if each["policy"] == policy), None)
        if found is None or len(found["rows"]) < 2:
            raise InputError(
                f"{policy}: the saved result has no bounds for several Γ, and no sums of weights to find them from; save "
                "evaluation.with_sensitivity(), or ask the evaluation itself for sensitivity()."
            )
        return {**found, "rows": sorted(found["rows"], key=lambda row: float(row["gamma"]))}

    def write_html(self, path: str | Path, *, shown: int = SHOWN_IN_A_FILE) -> None:
        """Write the report as one HTML file, whole or not at all. Its map shows up to `shown` actions."""
        html.write(self.to_dict(shown=shown), Path(path))

    def save(self, path: str | Path) -> None:
        """As JSON, for `op.load_result` and `offpolicy report`: what is said here and the sums behind it; no rounds, no
        policies, and of embeddings the map."""
        write(path, self.to_dict(shown=SHOWN_IN_A_FILE), packed_evidence(self))

    def _repr_html_(self) -> str:
        return html.embedded(self.to_dict(shown=SHOWN_IN_A_NOTEBOOK))

    def __str__(self) -> str:
        return text.plain(self.to_dict())

    __repr__ = __str__


def summary(result: Evaluation) -> dict[str, Any]:
    """Everything that a result says, as plain values; the map of actions is added where it is wanted."""
    views = result.views
    out: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "reward": result.reward,
        "rounds": result.rounds,
        "actions": result.actions,
        **({} if result.action_space is None else {"action_space": result.action_space}),
        "actions_logged": result.actions_logged,
        "level": result.level,
        "policies": list(result.policies),
        "headline": {"policy": result.policies[0], "estimator": result.headline_estimator},
        "verdict": result.verdict.name,
        **_compared(result),
        "estimates": [estimate.to_dict() for estimate in result],
        "overlap": views.overlap,
        "calibration": views.calibration,
        "propensities": views.propensities,
        "embedding": None,
        "sensitivity": views.sensitivity,
        "skipped": dict(result.skipped),
        "settings": dict(result.settings),
        "input": dict(result.input),
        "versions": dict(result.versions),
    }
    others = {name: other.to_dict() for name, other in result.rewards.items() if name != result.reward}
    if others:
        out["other_rewards"] = others
    if result.slices:
        out["slices"] = {name: part.to_dict() for name, part in result.slices.items()}
    return out


def _compared(result: Evaluation) -> dict[str, Any]:
    """What the log earned, by how much each policy is better, and every pair of policies: all by the headline."""
    logged = result.estimates[result.policies[0], result.logged_estimator].to_dict()
    whole, first = result.settings.get("slice") is None, result.policies[0]
    return {
        "logged": {name: logged[name] for name in ("value", "std_error", "interval")},
        "lifts": [
            {"policy": policy, **result.lift(policy).to_dict(), **_relative(result, policy)} for policy in result.policies
        ],
        "differences": [
            {"a": a, "b": b, "estimator": result.headline_estimator, **result.difference(a, b).to_dict()}
            for a, b in (combinations(result.policies, 2) if whole else ())
            if len(result.policies) <= MOST_COMPARED or a == first
        ],
    }


def _relative(result: Evaluation, policy: str) -> dict[str, Any]:
    """The relative lift and its interval; None where the log earned nothing, or there is no number."""
    logged = result.estimates[policy, result.logged_estimator].value
    if abs(logged) <= NEXT_TO_NOTHING or not np.isfinite(logged):
        return {"relative": None, "relative_interval": None}
    lift = result.relative_lift(policy)
    shown = lift.interval
    if not np.isfinite(shown.low):  # some draws of a bootstrap hold nothing to divide by
        shown = lift.confidence_interval(method="normal")
    return {"relative": lift.value, "relative_interval": asdict(shown)}


def packed_evidence(result: Evaluation) -> dict[str, Any] | None:
    """What the estimates rest on, those of slices and other rewards among them; None where it is not known.

    Sums stand in a list of their own, for all rewards share them.
    """
    sums: list[ScoreSums] = []

    def of(part: Evaluation) -> dict[str, Any]:
        kept = [estimate.evidence for estimate in part if estimate.evidence is not None]
        at = next((k for k, known in enumerate(sums) if known is kept[0].sums), len(sums))
        sums.extend([kept[0].sums] if at == len(sums) else [])
        return {
            "sums": at,
            "logged": part.logged_estimator,
            "estimates": [{name: packed(getattr(each, name)) for name in KEPT} for each in kept],
            "other_rewards": {name: of(other) for name, other in part.rewards.items() if name != part.reward},
            "slices": {name: of(other) for name, other in part.slices.items()},
        }

    if any(estimate.evidence is None for estimate in result):
        return None
    parts = of(result)
    return {"sums": list(map(packed_sums, sums)), "parts": parts}

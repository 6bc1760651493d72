"""`Evaluation`: the result of `evaluate` as a value, and its text, tables, pictures and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.core.imports import pandas
from offpolicy.core.threads import one_blas_thread
from offpolicy.data.checks import factors
from offpolicy.diagnostics.embedding_map import map_view
from offpolicy.inference.functionals import ScoreSums
from offpolicy.inference.intervals import REFITTED
from offpolicy.inference.sensitivity import GAMMAS, Tilted
from offpolicy.report import markdown, text
from offpolicy.report.formatting import THE_LOG
from offpolicy.report.page import html
from offpolicy.report.plots import Plots
from offpolicy.results.estimate import Estimate
from offpolicy.results.estimate_set import EstimateSet
from offpolicy.results.evidence import SAVED, Key, LogHandle
from offpolicy.results.sensitivity import Sensitivity
from offpolicy.results.slices import slice_rows
from offpolicy.results.slots import browsing, slot_rows
from offpolicy.results.storage import packed, packed_sums, write

SCHEMA_VERSION = 1
MOST_COMPARED = 6  # up to this number of policies every pair is compared; beyond it, each with the first
# Actions on the map of a report: a notebook stores a copy of everything it shows.
SHOWN_IN_A_FILE = 2_000
SHOWN_IN_A_NOTEBOOK = 300


@dataclass(frozen=True)
class Views:
    """What a report shows in addition to the estimates, as plain values."""

    overlap: list[dict[str, Any]] = field(default_factory=list)
    calibration: list[dict[str, Any]] = field(default_factory=list)
    propensities: dict[str, Any] | None = None
    sensitivity: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    action_axis: list[dict[str, Any]] = field(default_factory=list)
    dose_response: dict[str, Any] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation(EstimateSet):
    """The result of `evaluate`: every estimate of one reward, and how they compare.

    `result["DR"]` is an `Estimate`; with several policies write `result["new", "DR"]`. Iterating yields all estimates. It is
    a value: it can be pickled, copied and saved, and then shows the same without the log.

    Attributes
    ----------
    estimates : mapping of (str, str) to Estimate
        By policy and estimator.
    policies, estimators : tuple of str
        Their names.
    headline_estimator : str
        The estimator to report first.
    logged_estimator : str
        The name of the estimator that is the mean reward of the log.
    level : float
        The level of the confidence intervals.
    skipped : mapping of str to str
        Default estimators that were not computed, with the reason.
    reward : str
        The name of the reward.
    rounds : int
        The number of rounds.
    actions : int or None
        The number of actions; None if they cannot be counted.
    actions_logged : int or None
        The number of actions that occur in the log; None for a slice of it.
    gain : tuple of float or None
        How much each slot of a list counts; None if rewards do not belong to slots.
    action_space : str or None
        What the actions are, if they cannot be counted.
    rewards : mapping of str to Evaluation
        The same for every reward, if there are several.
    slices : mapping of str to Evaluation
        The same for every value of the log's `by` column.
    settings : mapping
        What was requested, as plain values.
    input : mapping
        What was read: a fingerprint of the rounds, their source and their columns.
    versions : mapping of str to str
        The versions of Python and of the packages that computed it.
    views : Views
        What reports show in addition to the estimates.
    saved : mapping or None
        The summary in the file that it was loaded from.
    log : LogHandle
        The handle to the log, for the methods that read it again.

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Linear(n_actions=5, seed=0)
    >>> result = op.evaluate(world.sample(1_000, seed=0), world.target, [op.SNIPS(), op.DR()])
    >>> result.headline
    Estimate(DR of target, reward: 0.446022 ± 0.078, CAUTION)
    >>> [estimate.estimator for estimate in result]
    ['LoggedMean', 'SNIPS', 'DR']
    """

    reward: str
    rounds: int
    actions: int | None
    actions_logged: int | None
    action_space: str | None = None
    gain: tuple[float, ...] | None = None
    rewards: Mapping[str, Evaluation] = field(default_factory=dict)
    slices: Mapping[str, Evaluation] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    input: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    views: Views = field(repr=False, default_factory=Views)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: nothing that can be recomputed."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def detach(self) -> Evaluation:
        """The same result without its handle to the log, whose memory can then be freed.

        Returns
        -------
        Evaluation
            Intervals with `refit=True`, `sensitivity` and `scores` are no longer available.
        """

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
        """The same result, with a change applied to its rewards and slices."""
        return replace(
            self,
            rewards={name: change(part) for name, part in self.rewards.items()},
            slices={name: change(part) for name, part in self.slices.items()},
        )

    def with_interval(self, method: str, *, refit: bool = False) -> Evaluation:
        """The same result with intervals by another method in tables, JSON and pictures.

        Parameters
        ----------
        method : {"auto", "student", "normal", "bootstrap", "bernstein", "cressie-read", "smoothing"}
            See `Estimate.confidence_interval`. Estimates without a finite-sample interval get a Student interval.
        refit : bool, default False
            Whether the bootstrap reads the log again and refits in each draw.

        Returns
        -------
        Evaluation
            A new result.

        Raises
        ------
        InputError
            If `refit` is requested for another method than the bootstrap, or without the log.
        """
        if refit and method != "bootstrap":
            raise InputError(f"refit applies to the bootstrap, not to {method} intervals (--interval bootstrap --refit).")
        with one_blas_thread():
            estimates = {key: estimate.shown_with(method, refit) for key, estimate in self.estimates.items()}
            parts = self._each(lambda part: part.with_interval(method, refit=refit))
        settings = {**self.settings, "interval": REFITTED if refit else method}
        shown = replace(parts, estimates=estimates, settings=settings, saved=None)
        return replace(shown, saved=summary(shown)) if refit else shown  # which needs the log

    def values(self) -> dict[Key, float]:
        """The value of every estimate.

        Returns
        -------
        dict of (str or None, str, str, str) to float
            By slice (None: the whole log), reward, policy and estimator.
        """
        return {(name, e.reward, e.policy, e.estimator): e.value for name, e in self._every_estimate()}

    def _every_estimate(self) -> Iterator[tuple[str | None, Estimate]]:
        """The estimates of the whole log and of each slice, for every reward, with the name of the slice."""
        for name, part in ((None, self), *self.slices.items()):
            for reward in (part.rewards or {part.reward: part}).values():
                yield from ((name, estimate) for estimate in reward)

    def sensitivity(self, gamma: float | Sequence[float] = GAMMAS, *, policy: str | None = None) -> Sensitivity:
        """Bounds on the value if the propensities are wrong by a factor of up to Γ; reads the log again.

        In each round, the true propensity may differ from the logged one by any factor between 1/Γ and Γ. The bounds are
        those of the self-normalised value (SNIPS), with standard errors, and with the Γ up to which the policy remains
        better (or worse) than the log.

        Parameters
        ----------
        gamma : float or sequence of float, default (1.0, 1.1, 1.25, 1.5, 2.0)
            Each Γ is 1 or more.
        policy : str, optional
            By default the first policy.

        Returns
        -------
        Sensitivity
            One row of bounds per Γ.

        Raises
        ------
        InputError
            If the log has no propensities or is not available, or if the result is one of a slice.

        References
        ----------
        Zhao, Small and Bhattacharya (2019). Sensitivity analysis for inverse probability weighting estimators via the
        percentile bootstrap.
        """
        return Sensitivity.of(self._tilted(policy), policy or self.policies[0], self.reward, gamma, self.level)

    def _tilted(self, policy: str | None = None) -> Tilted:
        policy = self._named(policy)
        if self.settings.get("slice") is not None:
            raise InputError(
                "sensitivity is computed for the whole log, not for a slice; read the slice as a log of its own."
            )
        return self.log.open("sensitivity(…)").tilted(policy, self.reward)

    def with_sensitivity(self, gamma: float | Sequence[float] = GAMMAS) -> Evaluation:
        """The same result with the `sensitivity` of every policy in its text, JSON, Markdown and HTML.

        Parameters
        ----------
        gamma : float or sequence of float, default (1.0, 1.1, 1.25, 1.5, 2.0)
            As for `sensitivity`.

        Returns
        -------
        Evaluation
            A new result. A policy that takes no logged action has no bounds.
        """
        gammas = factors(gamma)
        with one_blas_thread():
            bounds = [
                self.sensitivity(gammas, policy=policy).to_dict()
                for policy in self.policies
                if self._tilted(policy).overlaps
            ]
        rewards = {name: part.with_sensitivity(gammas) for name, part in self.rewards.items()}
        return replace(self, views=replace(self.views, sensitivity=bounds), rewards=rewards, saved=None)

    def with_best(self, baseline: str | None = None, level: float | None = None) -> Evaluation:
        """The same result with the comparison of all policies (`best`) in its text, JSON, Markdown and HTML.

        Parameters
        ----------
        baseline : str, optional
            The policy to compare the others with; by default what was logged.
        level : float, optional
            By default the level of the result.

        Returns
        -------
        Evaluation
            A new result.
        """
        with one_blas_thread():
            best = self.best(baseline, level).to_dict()
        rewards = {name: part.with_best(baseline, level) for name, part in self.rewards.items()}
        return replace(self, views=replace(self.views, best=best), rewards=rewards, saved=None)

    def to_dict(self, shown: int = 0) -> dict[str, Any]:
        """Everything as plain values, from which text, JSON, Markdown and HTML are made.

        Parameters
        ----------
        shown : int, default 0
            The largest number of actions on the map of the embedding, if an estimate has one; 0 for no map.

        Returns
        -------
        dict
            Of numbers, text, lists and dicts; docs/results.md describes it.
        """
        return {**deepcopy(dict(self._summary)), "embedding": self._map(shown)}

    @cached_property
    def _summary(self) -> Mapping[str, Any]:
        """Everything except the map, computed once."""
        if self.saved is not None:
            return self.saved
        with one_blas_thread():  # or the last digits would depend on the number of cores
            return summary(self)

    def _map(self, shown: int) -> dict[str, Any] | None:
        """A map of the actions by the first embedding of an estimate; for a loaded result, the map in its file."""
        if not shown:
            return None
        estimate = next((e for e in self if e.labelled is not None), None)
        if estimate is None:
            saved: dict[str, Any] | None = deepcopy((self.saved or {}).get("embedding"))
            return saved
        return map_view(estimate.estimator, estimate.embedding, shown, int(self.settings.get("seed", 0)))

    def to_frame(self, *, by_slice: bool = False) -> Any:
        """A table with one row per estimate, or one row per slice of the log; needs pandas.

        Parameters
        ----------
        by_slice : bool, default False
            Whether to give the headline estimate of each slice: its value, interval, number of rounds, verdict and
            difference from the whole log. The columns `simultaneous_…` are the ends of intervals that hold for all slices
            together.

        Returns
        -------
        pandas.DataFrame
            With slices, their estimates follow those of the whole log, and a column names the slice. The verdict of the mean
            reward of the log is "the log", as in printed tables.
        """
        pd = pandas("to_dict()")
        if by_slice:
            return pd.DataFrame([_flat(row) for row in self._summary.get("by_slice", ())])
        rows = [
            {"slice": name or "", "policy": e.policy, "reward": e.reward, "estimator": e.estimator, "value": e.value,
             "std_error": e.std_error, "low": e.interval.low, "high": e.interval.high, "error_covers": e.error_covers,
             "n": e.n, "effective_sample_size": e.diagnostics.get("effective_sample_size", np.nan),
             "verdict": THE_LOG if e.estimator == self.logged_estimator else e.verdict.name}
            for name, e in self._every_estimate()
        ]  # fmt: skip
        frame = pd.DataFrame(rows)
        return frame if self.slices else frame.drop(columns="slice")

    def to_markdown(self) -> str:
        """The report as Markdown.

        Returns
        -------
        str
            Headings, tables and paragraphs.
        """
        return markdown.markdown(self.to_dict())

    @property
    def plot(self) -> Plots:
        """Pictures, drawn with Matplotlib.

        `.estimates()`, `.weights()`, `.propensities()`, `.calibration()`, `.embedding()`, `.differences()`, `.best()` and
        `.sensitivity()`; where actions are numbers also `.actions()`, `.bandwidths()` and `.dose_response()`. Each takes
        `ax`, the axes to draw on.
        """
        return Plots(self.to_dict, self._bounds, lambda baseline: self.best(baseline).to_dict())

    def _bounds(self, gamma: Sequence[float], policy: str | None) -> dict[str, Any]:
        """For a picture: computed from the log; without it, the bounds of `with_sensitivity`, whatever Γ is requested."""
        if self.log.attached:
            return self.sensitivity(gamma, policy=policy).to_dict()
        policy = self._named(policy)
        bounds = next((each for each in self._summary.get("sensitivity") or () if each["policy"] == policy), None)
        if bounds is None or len(bounds["rows"]) < 2:
            raise InputError(
                f"{policy}: the saved result has no bounds for several Γ, and the log is needed to compute them; save "
                "evaluation.with_sensitivity(), or call sensitivity() on the evaluation itself."
            )
        return {**bounds, "rows": sorted(bounds["rows"], key=lambda row: float(row["gamma"]))}

    def write_html(self, path: str | Path, *, shown: int = SHOWN_IN_A_FILE) -> None:
        """Write the report as one self-contained HTML file; on failure no partial file is left.

        Parameters
        ----------
        path : str or Path
            The file to write.
        shown : int, default 2000
            The largest number of actions on the map of the embedding.
        """
        html.write(self.to_dict(shown=shown), Path(path))

    def save(self, path: str | Path) -> None:
        """Save the result as JSON, for `op.load_result` and `offpolicy report`.

        The file contains everything that is shown and the sums behind it, but no rounds, no policies, and only the map of
        an embedding.

        Parameters
        ----------
        path : str or Path
            A file name that ends in `.json`.
        """
        write(path, self.to_dict(shown=SHOWN_IN_A_FILE), packed_evidence(self))

    def _repr_html_(self) -> str:
        return html.embedded(self.to_dict(shown=SHOWN_IN_A_NOTEBOOK))

    def __str__(self) -> str:
        return text.plain(self.to_dict())

    __repr__ = __str__


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table of slices, with the ends of intervals in columns."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name == "difference":
            flat["difference"] = value["value"]
            flat |= {f"difference_{key}": each for key, each in _flat(value).items() if key != "value"}
        elif name.endswith("interval"):
            start = name.removesuffix("interval")
            flat |= {f"{start}low": value["low"], f"{start}high": value["high"]}
        else:
            flat[name] = value
    return flat


def summary(result: Evaluation) -> dict[str, Any]:
    """Everything that a result shows, as plain values, except the map of actions."""
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
        **({} if views.best is None else {"best": views.best}),
        **({"action_axis": views.action_axis} if views.action_axis else {}),
        **({} if views.dose_response is None else {"dose_response": views.dose_response}),
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
        out["by_slice"] = _by_slice(result)
    if rows := slot_rows(result, result.gain):
        out |= {"by_slot": rows, "browsing": browsing(result, result.gain)}
    return out


def _by_slice(result: Evaluation) -> list[dict[str, Any]]:
    """The headline of each slice for every reward, with its difference from the whole log."""
    rows = []
    for reward, whole in (result.rewards or {result.reward: result}).items():
        rows += slice_rows(whole, {name: part.rewards.get(reward, part) for name, part in result.slices.items()})
    return rows


def _compared(result: Evaluation) -> dict[str, Any]:
    """What the log earned, the lift of each policy, and the difference of every pair, by the headline estimator."""
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
    """The relative lift and its interval, or the reason why there is none."""
    if reason := result.no_relative_lift(policy):
        return {"relative": None, "relative_interval": None, "relative_reason": reason}
    lift = result.relative_lift(policy)
    shown = lift.interval
    if not np.isfinite(shown.low):  # in some bootstrap draws there is nothing to divide by
        shown = lift.confidence_interval(method="normal")
    return {"relative": lift.value, "relative_interval": asdict(shown), "relative_reason": None}


def packed_evidence(result: Evaluation) -> dict[str, Any] | None:
    """The evidence of all estimates, including those of slices and other rewards; None if it is not known.

    Sums are listed separately, because all rewards share them.
    """
    sums: list[ScoreSums] = []

    def of(part: Evaluation) -> dict[str, Any]:
        evidence = [estimate.evidence for estimate in part if estimate.evidence is not None]
        at = next((k for k, known in enumerate(sums) if known is evidence[0].sums), len(sums))
        sums.extend([evidence[0].sums] if at == len(sums) else [])
        return {
            "sums": at,
            "logged": part.logged_estimator,
            "estimates": [{name: packed(getattr(each, name)) for name in SAVED} for each in evidence],
            "other_rewards": {name: of(other) for name, other in part.rewards.items() if name != part.reward},
            "slices": {name: of(other) for name, other in part.slices.items()},
        }

    if any(estimate.evidence is None for estimate in result):
        return None
    parts = of(result)
    return {"sums": list(map(packed_sums, sums)), "parts": parts}

"""`Evaluation`: the answer, and everything that can be asked of it without reading the log again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy.core.arrays import NEXT_TO_NOTHING, FloatArray
from offpolicy.core.errors import InputError, unknown_name
from offpolicy.core.imports import pandas
from offpolicy.core.threads import one_blas_thread
from offpolicy.data.checks import factors
from offpolicy.diagnostics.embedding_map import map_view
from offpolicy.diagnostics.verdict import Verdict
from offpolicy.inference.bootstrap import Key
from offpolicy.inference.functionals import quotient, std_error
from offpolicy.inference.intervals import REFITTED
from offpolicy.inference.sensitivity import GAMMAS, Tilted
from offpolicy.report import text
from offpolicy.report.page import html
from offpolicy.report.plots import Plots
from offpolicy.results import saved_result as recalled
from offpolicy.results.estimate import Difference, Estimate, Later, Redrawn
from offpolicy.results.sensitivity import Sensitivity

SCHEMA_VERSION = 1
MOST_COMPARED = 6
"""Policies of which every pair is compared; of more, each with the first."""
SHOWN_IN_A_FILE = recalled.SHOWN
SHOWN_IN_A_NOTEBOOK = 300
"""Actions on the map of a report: a notebook keeps a copy of all that it shows."""


@dataclass(frozen=True)
class Views:
    """What a report shows besides the estimates, as plain values."""

    overlap: list[dict[str, Any]] = field(default_factory=list)
    calibration: list[dict[str, Any]] = field(default_factory=list)
    propensities: dict[str, Any] | None = None


@dataclass(frozen=True)
class Evaluation:
    """All estimates of one reward: `result["DR"]`, or `result["new", "DR"]` with several policies.

    `rewards` holds the same for every reward column, `slices` for every value of the `by` column.
    """

    estimates: Mapping[tuple[str, str], Estimate]
    policies: tuple[str, ...]
    estimators: tuple[str, ...]
    headline_estimator: str
    logged_estimator: str
    reward: str
    rounds: int
    actions: int | None
    """How many there are; None where they cannot be counted: then `action_space` says what they are."""
    actions_logged: int | None
    """How many of them occur in the log; None for a slice of it."""
    level: float
    action_space: str | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)
    rewards: Mapping[str, Evaluation] = field(default_factory=dict)
    slices: Mapping[str, Evaluation] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    input: Mapping[str, Any] = field(default_factory=dict)
    """What was read: a fingerprint of the rounds, where they come from, their columns."""
    versions: Mapping[str, str] = field(default_factory=dict)
    _tilted: Mapping[str, Later[Tilted]] = field(repr=False, default_factory=dict)
    """By policy; none of a slice, or without propensities."""
    _gammas: tuple[float, ...] = ()
    _views: Later[Views] = field(repr=False, default_factory=lambda: Later(Views))

    def __getitem__(self, key: str | tuple[str, str]) -> Estimate:
        policy, estimator = key if isinstance(key, tuple) else (self._only_policy(), key)
        if policy not in self.policies:
            raise KeyError(str(unknown_name("policy", policy, self.policies)))
        if estimator in self.skipped:
            raise KeyError(f"{estimator} was skipped: {self.skipped[estimator]}")
        if estimator not in self.estimators:
            raise KeyError(str(unknown_name("estimator", estimator, self.estimators)))
        return self.estimates[policy, estimator]

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.estimates.values())

    def _only_policy(self) -> str:
        if len(self.policies) > 1:
            raise KeyError(f"there are several policies ({', '.join(self.policies)}): ask for result[policy, estimator].")
        return self.policies[0]

    @property
    def headline(self) -> Estimate:
        """The estimate to lead with, for the first policy."""
        return self.estimates[self.policies[0], self.headline_estimator]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the leading estimator over the policies."""
        return max((self.estimates[p, self.headline_estimator].verdict for p in self.policies), key=lambda v: v.severity)

    def with_interval(self, method: str, *, refit: bool = False) -> Evaluation:
        """The same with intervals by another method wherever none is named: in the table, JSON and pictures."""
        if refit and method != "bootstrap":
            raise InputError(f"refit is for the bootstrap, not for {method} intervals (--interval bootstrap --refit).")
        return replace(
            self,
            estimates={key: replace(estimate, _method=method, _refit=refit) for key, estimate in self.estimates.items()},
            settings={**self.settings, "interval": REFITTED if refit else method},
            rewards={name: part.with_interval(method, refit=refit) for name, part in self.rewards.items()},
            slices={name: part.with_interval(method, refit=refit) for name, part in self.slices.items()},
        )

    def _values(self) -> dict[Key, float]:
        """The value of every estimate, by slice, reward, policy and estimator."""
        found: dict[Key, float] = {}
        for name, part in ((None, self), *self.slices.items()):
            for reward in (part.rewards or {part.reward: part}).values():
                found |= {(name, e.reward, e.policy, e.estimator): e.value for e in reward}
        return found

    def difference(self, a: str | tuple[str, str], b: str | tuple[str, str], *, estimator: str | None = None) -> Difference:
        """a − b, paired: two policies (with one `estimator`), two estimators, or two (policy, estimator) pairs."""
        first, second = self._resolve(a, estimator), self._resolve(b, estimator)
        f = first._functional.minus(second._functional)
        name = f"{first.policy}:{first.estimator} − {second.policy}:{second.estimator}"
        redrawn = _redrawn(first, second, lambda a, b: a - b)
        return Difference(name, f.value, std_error(f, first._sums), f.error_covers, f, first._sums, self.level, redrawn)

    def lift(self, policy: str | None = None, *, estimator: str | None = None) -> Difference:
        """What a policy would have earned more than the log did, paired; by default the first policy and the headline."""
        policy = self.policies[0] if policy is None else policy
        return self.difference((policy, estimator or self.headline_estimator), (policy, self.logged_estimator))

    def relative_lift(self, policy: str | None = None, *, estimator: str | None = None) -> Difference:
        """The lift as a part of what the log earned (0.1: a tenth more), whose own error counts as well."""
        policy = self.policies[0] if policy is None else policy
        first, logged = self[policy, estimator or self.headline_estimator], self[policy, self.logged_estimator]
        if abs(logged.value) <= NEXT_TO_NOTHING:
            raise InputError("the log earned 0, so nothing is a part of it; see lift().")
        f = first._functional.relative_to(logged._functional)
        name = f"{first.policy}:{first.estimator} relative to {self.logged_estimator}"
        redrawn = _redrawn(first, logged, lambda a, b: quotient(a - b, np.abs(b)))
        return Difference(name, f.value, std_error(f, first._sums), f.error_covers, f, first._sums, self.level, redrawn)

    def sensitivity(self, gamma: float | Sequence[float] = GAMMAS, *, policy: str | None = None) -> Sensitivity:
        """Bounds on the value if true propensities differ from the given by a factor of up to Γ, in each round its own.

        They are those of the self-normalised value (SNIPS), which Γ = 1 gives, with the errors of sampling beside them, and
        the Γ at which "better than the log" stops to hold. By default of the first policy. The log is read once more.
        """
        return Sensitivity.of(self._tilted_of(policy), policy or self.policies[0], self.reward, gamma, self.level)

    def _tilted_of(self, policy: str | None = None) -> Tilted:
        policy = self.policies[0] if policy is None else policy
        if policy not in self.policies:
            raise unknown_name("policy", policy, self.policies)
        if policy not in self._tilted and self.settings.get("slice") is not None:
            raise InputError("sensitivity: is worked out for the whole log, not for a slice of it; read the slice as a log.")
        if policy not in self._tilted:
            raise InputError("sensitivity: asks how wrong propensities may be, and the log has none (`propensity=`).")
        return self._tilted[policy]()

    def with_sensitivity(self, gamma: float | Sequence[float] = GAMMAS) -> Evaluation:
        """The same with `sensitivity` of every policy in the text, JSON, Markdown and HTML forms; a policy that does nothing
        of what was logged has none."""
        gammas = tuple(factors(gamma))
        self._tilted_of()  # an error where there are no propensities
        rewards = {name: replace(part, _gammas=gammas) for name, part in self.rewards.items()}
        return replace(self, _gammas=gammas, rewards=rewards)

    def _resolve(self, key: str | tuple[str, str], estimator: str | None) -> Estimate:
        if isinstance(key, tuple):
            return self[key]
        if key in self.policies:
            return self[key, estimator or self.headline_estimator]
        if estimator is not None or len(self.policies) > 1:
            raise unknown_name("policy", key, self.policies)
        return self[key]

    def to_dict(self, shown: int = 0) -> dict[str, Any]:
        """Everything as plain values: the source of the text, JSON, Markdown and HTML forms.

        With `shown`, a map of up to so many actions by their embedding is among them, where some estimate has one.
        """
        told = deepcopy(self._told)
        told["embedding"] = self._map(shown)
        return told

    @cached_property
    def _told(self) -> dict[str, Any]:
        """All but the map, worked out once: a bootstrap of every estimate takes its time."""
        with one_blas_thread():  # or the last digits would depend on the number of cores
            return self._worked_out()

    def _worked_out(self) -> dict[str, Any]:
        views = self._views()
        out: dict[str, Any] = {
            "schema": SCHEMA_VERSION,
            "reward": self.reward,
            "rounds": self.rounds,
            "actions": self.actions,
            **({} if self.action_space is None else {"action_space": self.action_space}),
            "actions_logged": self.actions_logged,
            "level": self.level,
            "policies": list(self.policies),
            "headline": {"policy": self.policies[0], "estimator": self.headline_estimator},
            "verdict": self.verdict.name,
            **self._compared(),
            "estimates": [estimate.to_dict() for estimate in self],
            "overlap": views.overlap,
            "calibration": views.calibration,
            "propensities": views.propensities,
            "embedding": None,
            "sensitivity": [
                self.sensitivity(self._gammas, policy=policy).to_dict()
                for policy in self.policies
                if self._gammas and self._tilted_of(policy).overlaps
            ],
            "skipped": dict(self.skipped),
            "settings": dict(self.settings),
            "input": dict(self.input),
            "versions": dict(self.versions),
        }
        others = {name: other.to_dict() for name, other in self.rewards.items() if name != self.reward}
        if others:
            out["other_rewards"] = others
        if self.slices:
            out["slices"] = {name: part.to_dict() for name, part in self.slices.items()}
        return out

    def _compared(self) -> dict[str, Any]:
        """What the log earned, by how much each policy is better, and every pair of policies: all by the headline."""
        refit = self.headline._refit
        method = "bootstrap" if self.headline._method == "bootstrap" else "normal"
        logged = self.estimates[self.policies[0], self.logged_estimator].to_dict()
        whole = self.settings.get("slice") is None
        return {
            "logged": {name: logged[name] for name in ("value", "std_error", "interval")},
            "lifts": [
                {"policy": policy, **self.lift(policy).to_dict(method, refit), **self._relative(policy, method, refit)}
                for policy in self.policies
            ],
            "differences": [
                {"a": a, "b": b, "estimator": self.headline_estimator, **self.difference(a, b).to_dict(method, refit)}
                for a, b in (combinations(self.policies, 2) if whole else ())
                if len(self.policies) <= MOST_COMPARED or a == self.policies[0]
            ],
        }

    def _relative(self, policy: str, method: str, refit: bool) -> dict[str, Any]:
        """The relative lift and its interval; None where the log earned nothing, or there is no number."""
        logged = self.estimates[policy, self.logged_estimator].value
        if abs(logged) <= NEXT_TO_NOTHING or not np.isfinite(logged):
            return {"relative": None, "relative_interval": None}
        told = self.relative_lift(policy).to_dict(method, refit)
        if not np.isfinite(told["interval"]["low"]):  # some draws of a bootstrap hold nothing to divide by
            told = self.relative_lift(policy).to_dict("normal")
        return {"relative": told["value"], "relative_interval": told["interval"]}

    def _map(self, shown: int) -> dict[str, Any] | None:
        """The actions by the first embedding that an estimate has."""
        found = next((e for e in self if e._embedding is not None), None)
        if found is None or not shown:
            return None
        return map_view(found.estimator, found.embedding, shown, int(self.settings.get("seed", 0)))

    def to_frame(self) -> Any:
        """One row an estimate, as a pandas data frame."""
        pd = pandas("to_dict()")
        rows = []
        for name, part in {"": self, **self.slices}.items():
            for e in (e for reward in (part.rewards or {"": part}).values() for e in reward):
                ci = e.confidence_interval()
                rows.append(
                    {"slice": name, "policy": e.policy, "reward": e.reward, "estimator": e.estimator, "value": e.value,
                     "std_error": e.std_error, "low": ci.low, "high": ci.high, "error_covers": e.error_covers, "n": e.n,
                     "effective_sample_size": e.diagnostics.get("effective_sample_size", np.nan), "verdict": e.verdict.name}
                )  # fmt: skip
        frame = pd.DataFrame(rows)
        return frame if self.slices else frame.drop(columns="slice")

    def to_markdown(self) -> str:
        return text.markdown(self.to_dict())

    @property
    def plot(self) -> Plots:
        """Pictures: `.estimates()`, `.weights()`, `.propensities()`, `.calibration()`, `.embedding()`, `.differences()`,
        `.sensitivity()`; each on axes."""
        return Plots(self.to_dict, lambda gamma, policy: self.sensitivity(gamma, policy=policy).to_dict())

    def write_html(self, path: str | Path, *, shown: int = SHOWN_IN_A_FILE) -> None:
        """Write the report as one HTML file, whole or not at all. Its map shows up to `shown` actions."""
        html.write(self.to_dict(shown=shown), Path(path))

    def save(self, path: str | Path) -> None:
        """Everything that is said here as JSON, for `op.load_result` and `offpolicy report`: no rounds, no policies."""
        recalled.write(self.to_dict(shown=SHOWN_IN_A_FILE), path)

    def _repr_html_(self) -> str:
        return html.embedded(self.to_dict(shown=SHOWN_IN_A_NOTEBOOK))

    def __str__(self) -> str:
        return text.plain(self.to_dict())

    __repr__ = __str__


def _redrawn(a: Estimate, b: Estimate, join: Callable[[FloatArray, FloatArray], FloatArray]) -> Redrawn | None:
    """The draws of a difference: both estimates on the same logs."""
    first, second = a._redrawn, b._redrawn
    if first is None or second is None or not (a._fitted or b._fitted):
        return None
    return lambda draws: join(first(draws), second(draws))

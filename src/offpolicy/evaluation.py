"""`Evaluation` and `Estimate`: the answer, and everything that can be asked of it without reading the log again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from offpolicy.actions import Actions
from offpolicy.diagnostics import Finding, Verdict, worst
from offpolicy.embedding import EmbeddingTable
from offpolicy.errors import InputError, InputWarning, unknown_name
from offpolicy.inference import Functional, Interval, Range, Sums, in_errors, interval, std_error
from offpolicy.pooled import PooledFits
from offpolicy.report import html, text
from offpolicy.report.plots import Plots
from offpolicy.report.views import map_view
from offpolicy.weights import Weight

SCHEMA_VERSION = 1
SHOWN_IN_A_FILE = 2_000
SHOWN_IN_A_NOTEBOOK = 300
"""Actions on the map of a report: a notebook keeps a copy of all that it shows."""
T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Difference:
    """The paired difference of two estimates on the same rounds."""

    name: str
    value: float
    std_error: float
    error_covers: str
    _functional: Functional = field(repr=False)
    _sums: Sums = field(repr=False)
    _level: float = 0.95

    def __repr__(self) -> str:
        return f"Difference({self.name}: {self.value:.6g} ± {self.std_error:.2g})"

    def confidence_interval(self, level: float | None = None, method: str = "normal") -> Interval:
        """`normal` or `bootstrap`."""
        return interval(self._functional, self._sums, self._level if level is None else level, method, None)

    @property
    def z(self) -> float:
        """The difference in standard errors."""
        return in_errors(self._functional, self._sums)

    def to_dict(self, method: str = "normal") -> dict[str, Any]:
        ci = self.confidence_interval(method=method)
        return {"value": self.value, "std_error": self.std_error, "interval": asdict(ci)}


class Later(Generic[T]):
    """A value that is worked out when it is first asked for: an error takes refits, and not everybody wants one."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make

    def __call__(self) -> T:
        if self._make is not None:
            self._value, self._make = self._make(), None  # what it was made from may go
        return self._value


@dataclass(frozen=True)
class Details:
    """What an estimate knows of itself besides its value."""

    functional: Functional
    std_error: float
    diagnostics: Mapping[str, Any]
    reasons: tuple[Finding, ...]


@dataclass(frozen=True, repr=False)
class Estimate:
    """One estimator's answer for one policy and one reward."""

    policy: str
    estimator: str
    reward: str
    value: float
    n: int
    _details: Later[Details]
    _sums: Sums = field(repr=False)
    _range: Range | None = field(repr=False)
    _range_given: bool = field(repr=False, default=True)
    _level: float = 0.95
    _method: str = "normal"
    _write_scores: Callable[[Path], None] | None = field(repr=False, default=None)
    _embedding: PooledFits | None = field(repr=False, default=None)
    _labels: Actions | None = field(repr=False, default=None)
    _weight: Weight | None = field(repr=False, default=None)
    """What it weighs rounds by; None for a blend."""
    _compared: Later[tuple[Finding, ...]] | None = None

    @property
    def std_error(self) -> float:
        return self._details().std_error

    @property
    def error_covers(self) -> str:
        """`sampling`, or `sampling+fit` where the error of what was fitted is in it."""
        return self._functional.error_covers

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        return self._details().diagnostics

    @property
    def reasons(self) -> tuple[Finding, ...]:
        """Every doubt: of the estimate itself, and of its difference to a nearly unbiased one."""
        return self._details().reasons + (() if self._compared is None else self._compared())

    @property
    def _functional(self) -> Functional:
        return self._details().functional

    def __repr__(self) -> str:
        shown = f"{self.estimator} of {self.policy}, {self.reward}: {self.value:.6g} ± {self.std_error:.2g}"
        return f"Estimate({shown}, {self.verdict.name})"

    @property
    def embedding(self) -> EmbeddingTable:
        """The embedding that its weights come from: one row an action. `.nearest(action)` gives the closest others."""
        if self._embedding is None or self._labels is None:
            raise InputError(f"{self.estimator} has no embedding of its own; ask op.LearnedMIPS for one.")
        return self._embedding.table(self._labels.to_numpy())

    @property
    def verdict(self) -> Verdict:
        return worst(self.reasons)

    def confidence_interval(self, level: float | None = None, method: str | None = None) -> Interval:
        """`normal`, `bootstrap`, `bernstein` or `cressie-read`; the last two need the log's `reward_range`."""
        if method is None:  # a blend has no interval for finite samples: its table shows the normal one
            method = self._method if self._range is not None or self._method == "bootstrap" else "normal"
        if method in ("bernstein", "cressie-read") and self._range is not None and not self._range_given:
            warnings.warn(
                f"{self.reward}: the log has no reward_range; the smallest and largest reward seen "
                f"({self._range.reward_low:g}, {self._range.reward_high:g}) stand in for it, which is no guarantee.",
                InputWarning,
                stacklevel=2,
            )
        return interval(self._functional, self._sums, self._level if level is None else level, method, self._range)

    def explain(self) -> str:
        """In words: of a blend, which candidates carry the weight and why; else the value, its error and every doubt."""
        return text.explained(self.to_dict())

    def scores(self, path: str | Path) -> None:
        """Write row, baseline, correction and weight of every round as Parquet. Reads the log once more."""
        if self._write_scores is None:
            raise InputError("scores are written for the whole log, not for a slice of it.")
        self._write_scores(Path(path))

    def to_dict(self) -> dict[str, Any]:
        ci = self.confidence_interval()
        return {
            "policy": self.policy,
            "estimator": self.estimator,
            "reward": self.reward,
            "value": self.value,
            "std_error": self.std_error,
            "error_covers": self.error_covers,
            "interval": asdict(ci),
            "n": self.n,
            "diagnostics": dict(self.diagnostics),
            "verdict": self.verdict.name,
            "reasons": [
                {"verdict": r.verdict.name, "code": r.code, "seen": r.seen, "why": r.why, "do": r.do} for r in self.reasons
            ],
        }


@dataclass(frozen=True)
class Views:
    """What a report shows besides the estimates, as plain values."""

    overlap: list[dict[str, Any]] = field(default_factory=list)
    calibration: list[dict[str, Any]] = field(default_factory=list)


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
    actions: int
    level: float
    skipped: Mapping[str, str] = field(default_factory=dict)
    rewards: Mapping[str, Evaluation] = field(default_factory=dict)
    slices: Mapping[str, Evaluation] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    input: Mapping[str, Any] = field(default_factory=dict)
    """What was read: a fingerprint of the rounds, where they come from, their columns."""
    versions: Mapping[str, str] = field(default_factory=dict)
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

    def with_interval(self, method: str) -> Evaluation:
        """The same with intervals by another method wherever none is named: in the table, JSON and pictures."""
        return replace(
            self,
            estimates={key: replace(estimate, _method=method) for key, estimate in self.estimates.items()},
            rewards={name: part.with_interval(method) for name, part in self.rewards.items()},
            slices={name: part.with_interval(method) for name, part in self.slices.items()},
        )

    def difference(self, a: str | tuple[str, str], b: str | tuple[str, str], *, estimator: str | None = None) -> Difference:
        """a − b, paired: two policies (with one `estimator`), two estimators, or two (policy, estimator) pairs."""
        first, second = self._resolve(a, estimator), self._resolve(b, estimator)
        f = first._functional.minus(second._functional)
        name = f"{first.policy}:{first.estimator} − {second.policy}:{second.estimator}"
        return Difference(name, f.value, std_error(f, first._sums), f.error_covers, f, first._sums, self.level)

    def lift(self, policy: str | None = None, *, estimator: str | None = None) -> Difference:
        """What a policy would have earned more than the log did, paired; by default the first policy and the headline."""
        policy = self.policies[0] if policy is None else policy
        return self.difference((policy, estimator or self.headline_estimator), (policy, self.logged_estimator))

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
        views = self._views()
        out: dict[str, Any] = {
            "schema": SCHEMA_VERSION,
            "reward": self.reward,
            "rounds": self.rounds,
            "actions": self.actions,
            "level": self.level,
            "policies": list(self.policies),
            "headline": {"policy": self.policies[0], "estimator": self.headline_estimator},
            "verdict": self.verdict.name,
            **self._compared(),
            "estimates": [estimate.to_dict() for estimate in self],
            "overlap": views.overlap,
            "calibration": views.calibration,
            "embedding": self._map(shown),
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
        method = "bootstrap" if self.headline._method == "bootstrap" else "normal"
        logged = self.estimates[self.policies[0], self.logged_estimator]
        lifts = {policy: self.lift(policy) for policy in self.policies}
        return {
            "logged": {name: logged.to_dict()[name] for name in ("value", "std_error", "interval")},
            "lifts": [
                {"policy": p, **lift.to_dict(method), "relative": lift.value / abs(logged.value) if logged.value else None}
                for p, lift in lifts.items()
            ],
            "differences": [
                {"a": a, "b": b, "estimator": self.headline_estimator, **self.difference(a, b).to_dict(method)}
                for a, b in combinations(self.policies, 2)
            ],
        }

    def _map(self, shown: int) -> dict[str, Any] | None:
        """The actions by the first embedding that an estimate has."""
        found = next((e for e in self if e._embedding is not None), None)
        if found is None or not shown:
            return None
        return map_view(found.estimator, found.embedding, shown, int(self.settings.get("seed", 0)))

    def to_frame(self) -> Any:
        """One row an estimate, as a pandas data frame."""
        try:
            import pandas as pd
        except ImportError:
            raise InputError(
                "to_frame() gives a pandas data frame, and pandas is not installed; to_dict() needs none."
            ) from None
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
        """Pictures: `.estimates()`, `.weights()`, `.calibration()`, `.embedding()`, `.differences()`; each on axes."""
        return Plots(lambda shown: self.to_dict(shown=shown))

    def write_html(self, path: str | Path, *, shown: int = SHOWN_IN_A_FILE) -> None:
        """Write the report as one HTML file, whole or not at all. Its map shows up to `shown` actions."""
        html.write(self.to_dict(shown=shown), Path(path))

    def _repr_html_(self) -> str:
        return html.embedded(self.to_dict(shown=SHOWN_IN_A_NOTEBOOK))

    def __str__(self) -> str:
        return text.plain(self.to_dict())

    __repr__ = __str__

"""Studies: the coverage and width of intervals, and how well the verdict identifies those that miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from offpolicy.core.arrays import FloatArray, IntArray, finite_or_none
from offpolicy.diagnostics.verdict import LIMITS, Limits, Verdict
from offpolicy.experiments.experiment import Experiment
from offpolicy.experiments.measurements import Measurements, check_column, column
from offpolicy.inference.intervals import normal_quantile

LEVEL = 0.95
NAIVE = "logged-mean"
"""It answers another question, so it is not in the tables of verdicts."""
UNBIASED = ("IPS", "SNIPS", "DR", "SNDR")
"""Estimators that miss for lack of data, not because of a bias of their own."""
OF_ANY = ("hidden bias", "disagreement", "disagreement of a blend", "candidates", "rounds to check a model")
"""Scales on which estimators with a bias of their own, or blends, are graded."""
LEAST_RUNS = 50
"""The fewest runs of one world in one bin for its share to be reported."""

COUNTS = (0, 2, 5, 10, 25, 50, 100, 200, 500, 1_000, np.inf)
ERRORS = (0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 6, np.inf)
SHARES = (0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.7, 0.9, np.inf)
ROUNDS = (0, 30, 100, 500, np.inf)
"""The bins of effective rounds in which methods are compared."""
EDGES: Mapping[str, tuple[float, ...]] = {
    "effective rounds": COUNTS, "rewards": COUNTS, "rounds to check a model": COUNTS,
    "clusters": (0, 5, 8, 15, 30, np.inf), "missing weight": ERRORS, "excess weight": ERRORS, "disagreement": ERRORS,
    "disagreement of a blend": ERRORS, "candidates": ERRORS, "hidden bias": (0, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 5, np.inf),
    "top weights": SHARES, "largest weight": SHARES, "concentration": SHARES,
}  # fmt: skip


@dataclass(frozen=True)
class Study:
    """The runs of a study, column by column."""

    experiment: Experiment
    keeping: Measurements
    columns: Mapping[str, Any]

    @classmethod
    def of(cls, experiment: Experiment, keeping: Measurements, table: pa.Table) -> Study:
        inside = table.filter(pa.compute.less(table["world"], experiment.worlds))
        return cls(experiment, keeping, {n: inside[n].to_numpy(zero_copy_only=False) for n in inside.column_names})

    def _numbers(self, name: str) -> FloatArray:
        numbers: FloatArray = np.asarray(self.columns[name], np.float64)
        return numbers

    def held(self, method: str, level: float = LEVEL) -> FloatArray:
        """For every row: 1 if the interval contains the true value, 0 if not, NaN if there is none."""
        low, high = (self._numbers(column(end, method, level)) for end in ("low", "high"))
        truth = self._numbers("truth")
        inside: FloatArray = np.where(np.isfinite(low), ((low <= truth) & (truth <= high)).astype(np.float64), np.nan)
        return inside

    @cached_property
    def severity(self) -> IntArray:
        """The verdict of every row by the current limits."""
        unmeasured: IntArray = np.nan_to_num(self._numbers("unmeasured")).astype(np.int64)
        graded = [grades(limits, self._numbers(check_column(scale))) for scale, limits in LIMITS.items()]
        worst: IntArray = np.maximum.reduce([unmeasured, *graded])
        return worst

    def cells(self) -> Iterator[tuple[int, str, IntArray]]:
        """The rows of each world and estimator with values there."""
        for p in range(len(self.experiment.points)):
            here = self.columns["point"] == p
            for label in self.experiment.labels:
                rows = np.flatnonzero(here & (self.columns["estimator"] == label) & np.isfinite(self._numbers("value")))
                if len(rows):
                    yield p, label, rows

    def summary(self) -> dict[str, Any]:
        """The whole summary as plain values; the schema has a version."""
        e = self.experiment
        names = [point.name for point in e.points]
        summary: dict[str, Any] = {
            "schema": "offpolicy.study/1", "name": e.name, "title": e.title, "note": e.note, "key": e.key,
            "estimators": e.labels,
            "methods": list(self.keeping.methods), "levels": list(self.keeping.levels), "worlds": self._worlds(names),
            "coverage": {name: {} for name in names}, "errors": {name: {} for name in names},
            "verdicts": {name: {} for name in names},
        }  # fmt: skip
        naive = [each.label for each in e.entries if each.text == NAIVE]
        for p, label, rows in self.cells():
            summary["coverage"][names[p]][label] = self._coverage(rows)
            summary["errors"][names[p]][label] = self._errors(rows)
            if label not in naive:
                summary["verdicts"][names[p]][label] = self._verdicts(rows)
        return summary | {"limits": {scale: self._limits(scale) for scale in EDGES}, "by_rounds": self._by_rounds()}

    def _worlds(self, names: list[str]) -> list[dict[str, Any]]:
        """The number of runs, and the typical effective sample size of the logs."""
        worlds = []
        for p, point in enumerate(self.experiment.points):
            here = self.columns["point"] == p
            runs = len({*zip(self.columns["world"][here], self.columns["log"][here], strict=True)})
            ess = _median(
                self._numbers(check_column("effective rounds"))[here & np.isin(self.columns["estimator"], UNBIASED)]
            )
            rewards = _median(self._numbers(check_column("rewards"))[here])
            worlds.append(
                {"world": names[p], "rounds": point.rounds, "runs": runs, "effective_rounds": ess,
                 "rewards": point.rounds if rewards is None else rewards}
            )  # fmt: skip
        return worlds

    def _coverage(self, rows: IntArray) -> dict[str, Any]:
        """By method: coverage at each level and the median width, both over the runs with an interval."""
        by_method = {}
        for method in self.keeping.methods:
            held = np.array([self.held(method, level)[rows] for level in self.keeping.levels])
            there = np.isfinite(held).all(axis=0)
            if there.any():
                widths = [self._median_width(method, level, rows[there]) for level in self.keeping.levels]
                by_method[method] = {"runs": int(there.sum()), "held": held[:, there].mean(axis=1).tolist(), "width": widths}
        return by_method

    def _median_width(self, method: str, level: float, rows: IntArray) -> float:
        low, high = (self._numbers(column(end, method, level))[rows] for end in ("low", "high"))
        return float(np.median(high - low))

    def _errors(self, rows: IntArray) -> dict[str, float]:
        """The mean error, the standard deviation over the logs of a world, and the median standard error."""
        off, world = self._numbers("value")[rows] - self._numbers("truth")[rows], self.columns["world"][rows]
        each = [off[world == w] for w in np.unique(world)]
        several = [part.var(ddof=1) for part in each if len(part) > 1]  # a single log has no spread
        spread = np.sqrt(np.mean(several)) if several else 0.0
        return {
            "bias": float(off.mean()),
            "spread": float(spread),
            "std_error": float(np.median(self._numbers("std_error")[rows])),
        }

    def _verdicts(self, rows: IntArray) -> dict[str, list[int]]:
        """By verdict: the number of runs, and how many of their intervals missed the true value."""
        held = self.held(self.keeping.methods[0])[rows]
        return {
            verdict.name: [int(there.sum()), int((held[there] == 0).sum())]
            for verdict in Verdict
            for there in [(self.severity[rows] == verdict.severity) & np.isfinite(held)]
        }

    def _limits(self, scale: str) -> dict[str, Any]:
        """Coverage in each bin of a scale, in all worlds and in the world with the lowest coverage."""
        limits, measure, held = LIMITS[scale], self._numbers(check_column(scale)), self.held(self.keeping.methods[0])
        counts = np.isfinite(measure) & np.isfinite(held)
        if scale not in OF_ANY:
            counts &= np.isin(self.columns["estimator"], UNBIASED)
        bins = []
        for low, high in zip(EDGES[scale], EDGES[scale][1:], strict=False):
            there = counts & (low <= measure) & (measure < high)
            if there.any():
                bin_ = {"from": low, "to": finite_or_none(high), "runs": int(there.sum()), "held": float(held[there].mean())}
                bins.append(bin_ | self._least(there, held))
        return {"caution": limits.caution, "stop": finite_or_none(limits.stop), "bins": bins}

    def _by_rounds(self) -> list[dict[str, Any]]:
        """Of the nearly unbiased estimators: coverage and width of every method, by effective rounds."""
        effective, rows = self._numbers(check_column("effective rounds")), []
        first = self._widths(self.keeping.methods[0])
        for label in (e.label for e in self.experiment.entries if e.label in UNBIASED):
            for low, high in pairwise(ROUNDS):
                there = (self.columns["estimator"] == label) & (low <= effective) & (effective < high)
                there &= np.isfinite(first) & (first > 0)
                if there.sum() < LEAST_RUNS:
                    continue
                methods = {
                    method: {"held": float(np.nanmean(self.held(method)[there])),
                             "width": float(np.nanmean(self._widths(method)[there] / first[there]))}
                    for method in self.keeping.methods
                }  # fmt: skip
                found = {"estimator": label, "from": low, "to": finite_or_none(high), "runs": int(there.sum())}
                rows.append(found | {"methods": methods})
        return rows

    def _widths(self, method: str) -> FloatArray:
        low, high = (self._numbers(column(end, method, LEVEL)) for end in ("low", "high"))
        width: FloatArray = high - low
        return width

    def _least(self, there: Any, held: FloatArray) -> dict[str, Any]:
        """The world with the lowest coverage, among those with enough runs."""
        coverage = []
        for p, point in enumerate(self.experiment.points):
            here = there & (self.columns["point"] == p)
            if here.sum() >= LEAST_RUNS:
                coverage.append((float(held[here].mean()), point.name))
        return {"least": min(coverage)[0], "least_in": min(coverage)[1]} if coverage else {"least": None, "least_in": None}


def grades(limits: Limits, measures: FloatArray) -> IntArray:
    """The severity of many measures; missing ones count as 0."""
    falling = limits.stop < limits.caution
    with np.errstate(invalid="ignore"):
        caution = measures < limits.caution if falling else measures >= limits.caution
        stop = measures < limits.stop if falling else measures >= limits.stop
    severities: IntArray = np.where(stop, Verdict.DO_NOT_TRUST.severity, np.where(caution, Verdict.CAUTION.severity, 0))
    return severities


def half_width(level: float = LEVEL) -> float:
    """The width of an interval in standard errors."""
    return 2 * normal_quantile(0.5 + level / 2)


def _median(values: FloatArray) -> float | None:
    there = values[np.isfinite(values)]
    return float(np.median(there)) if len(there) else None

"""What the defaults must hold on one half of the bench, from its stored runs.

offpolicy bench --half judging --openml FOLDER --data FOLDER --runs 100 --out RUNS
python -m benchmarks.judging RUNS --openml FOLDER --data FOLDER [--half judging] [--runs 100]

Prints one line per requirement, and writes docs/measured/HALF.json and the tables of it in docs. A requirement on simulated
figures counts as missed only if it is missed by more than two standard errors, which come from a bootstrap over worlds.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.common import table
from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.experiments.bench import Bench
from offpolicy.experiments.experiment import Experiment
from offpolicy.experiments.runs import Results
from offpolicy.experiments.standings import Standings
from offpolicy.experiments.store import Store
from offpolicy.worlds.registry import Folders, world

DOCS = Path("docs")
DRAWS = 400
FEW_PER_ACTION, MANY_ACTIONS = 20, 5_000
PENALTIES = ("0.03", "0.3", "1", "3", "10", "100")
MAIN = ("Auto", "StackedDR", "SNIPS", "SNDR", "DR", "DM", "Learned MIPS", "Learned MDR")
HARD = {
    "2% rewards": "few rewards",
    "Open Bandit": "few rewards",
    "6,000 actions": "most actions of the policy are not in the log",
}
"""Kinds in which many effective rounds are not enough, and why."""
FEWEST_OK = 20
"""The fewest runs with verdict *ok* from which the coverage of a kind of world is judged."""


@dataclass(frozen=True)
class Bar:
    """One requirement: a figure, its standard error, and the limit that it must not be above (or below, if `least`)."""

    says: str
    value: float
    error: float
    limit: float
    least: bool = False
    where: str = ""

    @property
    def verdict(self) -> str:
        beyond = (self.limit - self.value) if self.least else (self.value - self.limit)
        if beyond <= 0:
            return "met"
        return "missed" if beyond > 2 * self.error else "not met, within two standard errors"

    def row(self) -> list[str]:
        number = (lambda x: f"{100 * x:.1f}%") if self.least else (lambda x: f"{x:.2f}")
        where = f" ({self.where})" if self.where else ""
        limit = f"{'≥' if self.least else '≤'} {number(self.limit)}"
        return [self.says, f"{number(self.value)} ± {number(self.error)}{where}", limit, self.verdict]


@dataclass(frozen=True)
class Runs:
    """The runs of one half: squared errors by estimator, kind and world, and what else each run stored."""

    results: Results
    stored: dict[str, FloatArray]
    actions: list[int]

    @classmethod
    def read(cls, folder: Path, bench: Bench) -> Runs:
        experiment = bench.experiment()
        rows = Store.open(folder, experiment).read()
        experiment = replace(experiment, worlds=finished(experiment, rows))
        results = Results.of(experiment, rows)
        columns = {name: rows[name].to_numpy(zero_copy_only=False) for name in rows.column_names}
        inside = columns["world"] < experiment.worlds
        order = {label: k for k, label in enumerate(experiment.labels)}
        at = (
            [order[name] for name in columns["estimator"][inside]],
            *(columns[name][inside] for name in ("point", "world", "log")),
        )
        stored = {}
        for name in ("std_error", "effective_rounds"):
            stored[name] = np.full(results.values.shape, np.nan)
            stored[name][at] = columns[name][inside].astype(np.float64)
        actions = [world(p.kind, p.settings, 0).space.count or 0 for p in experiment.points]
        return cls(results, stored, actions)

    @property
    def kinds(self) -> list[str]:
        return [str(point.label) for point in self.results.experiment.points]

    def of(self, name: str) -> int:
        return self.results.experiment.labels.index(name)

    @cached_property
    def squared(self) -> FloatArray:
        """Estimators × kinds × worlds."""
        return self.results.units("mse")

    @cached_property
    def effective(self) -> FloatArray:
        """The effective rounds of each run under exact weights: kinds × worlds × logs."""
        return self.stored["effective_rounds"][self.of("SNIPS")]

    @cached_property
    def draws(self) -> list[IntArray]:
        """Resampled worlds, each half of them apart, since one half is used to choose and the other to score."""
        rng = np.random.default_rng(0)
        return [np.stack([rng.choice(half, len(half)) for half in self.halves]) for _ in range(DRAWS)]

    @property
    def halves(self) -> IntArray:
        """Every second world, and the others; of an odd number of worlds, the last one is left out."""
        worlds = self.squared.shape[2]
        return np.arange(worlds - worlds % 2).reshape(-1, 2).T

    def with_error(self, figure: Callable[[IntArray], FloatArray]) -> tuple[FloatArray, FloatArray]:
        """A figure of two halves of worlds, and its standard error."""
        return figure(self.halves), np.std([figure(each) for each in self.draws], axis=0)

    def to_best(self, name: str, others: Sequence[str]) -> Callable[[IntArray], FloatArray]:
        """By kind, the mean squared error of one estimator relative to the best of others, chosen on the other half."""
        mine, theirs = self.squared[self.of(name)], self.squared[[self.of(other) for other in others]]

        def figure(halves: IntArray) -> FloatArray:
            means = [theirs[:, :, half].mean(axis=2) for half in halves]
            picked = [mean.argmin(axis=0) for mean in means]
            kinds = np.arange(theirs.shape[1])
            reference = means[0][picked[1], kinds] + means[1][picked[0], kinds]
            ratio: FloatArray = sum(mine[:, half].mean(axis=1) for half in halves) / reference
            return ratio

        return figure


def finished(experiment: Experiment, rows: pa.Table) -> int:
    """The number of worlds that every kind has finished, from the first on; a run that was stopped may have fewer."""
    done = set(zip(rows["world"].to_pylist(), rows["point"].to_pylist(), rows["log"].to_pylist(), strict=True))
    each = len(experiment.points) * experiment.logs
    counts = np.bincount([world for world, _, _ in done], minlength=experiment.worlds + 1)
    return min(int((counts < each).argmax()), experiment.worlds)


def geometric(ratios: FloatArray, some: Sequence[bool] | None = None) -> FloatArray:
    """The geometric mean over all or some kinds."""
    mean: FloatArray = np.exp(np.log(ratios if some is None else ratios[np.asarray(some)]).mean())
    return mean


def bars(runs: Runs) -> Iterator[Bar]:
    """Every requirement."""
    yield from _learned(runs)
    for name, by_penalty in (("DM", PENALTIES), ("DR", PENALTIES[1:2] + PENALTIES[3:])):
        fixed = [f"{name}, penalty {each}" for each in by_penalty]
        yield _against_fixed(runs, name, fixed)
    yield _worst(runs, "StackedDR to the best of IPS, SNIPS, DR, SNDR, in every kind", runs.to_best(
        "StackedDR", ("IPS", "SNIPS", "DR", "SNDR")), 1.15)  # fmt: skip
    yield from _standard_error(runs)
    ranking, auto = Standings.of(runs.results), runs.of("Auto")
    best = ranking.ratios[auto]
    k = int(np.nanargmax(best))
    yield Bar(
        "Auto to the best single estimator, geometric mean", ranking.geometric[auto], ranking.geometric_errors[auto], 1.3
    )
    yield Bar("the same, worst", best[k], ranking.ratio_errors[auto, k], 2.2, where=runs.kinds[k])
    yield _worst(runs, "Auto to the better of SNIPS and SNDR, in every kind", runs.to_best("Auto", ("SNIPS", "SNDR")), 1.25)
    yield from _coverage(runs)
    yield from _verdicts(runs)


def _learned(runs: Runs) -> Iterator[Bar]:
    figure = runs.to_best("Learned MIPS", ("SNIPS",))
    rounds = [point.rounds for point in runs.results.experiment.points]
    few = [n / max(actions, 1) < FEW_PER_ACTION for n, actions in zip(rounds, runs.actions, strict=True)]
    many = [actions > MANY_ACTIONS for actions in runs.actions]
    for says, some, limit in (("", None, 0.95), (f", fewer than {FEW_PER_ACTION} rounds per action", few, 0.7)):
        value, error = runs.with_error(lambda halves, some=some: geometric(figure(halves), some))
        yield Bar(f"Learned MIPS to SNIPS, geometric mean{says}", float(value), float(error), limit)
    yield _worst(runs, "Learned MIPS to SNIPS, in every kind", figure, 1.3)
    if any(many):
        value, error = runs.with_error(lambda halves: geometric(figure(halves), many))
        yield Bar(f"Learned MIPS to SNIPS, above {MANY_ACTIONS:,} actions", float(value), float(error), 0.7)


def _against_fixed(runs: Runs, name: str, fixed: Sequence[str]) -> Bar:
    """The geometric mean of errors relative to that of the fixed penalty with the least geometric mean."""
    mine, theirs = runs.squared[runs.of(name)], runs.squared[[runs.of(each) for each in fixed]]

    def means(halves: IntArray) -> FloatArray:
        worlds = halves.ravel()
        ratio: FloatArray = np.log(theirs[:, :, worlds].mean(axis=2) / mine[:, worlds].mean(axis=1)).mean(axis=1)
        return ratio

    value, error = runs.with_error(lambda halves: np.exp(-means(halves).min()))
    where = fixed[int(means(np.stack([np.arange(mine.shape[1])])).argmin())]
    return Bar(f"{name} to the best fixed penalty, geometric mean", float(value), float(error), 1.1, where=where)


def _worst(runs: Runs, says: str, figure: Callable[[IntArray], FloatArray], limit: float) -> Bar:
    """The kind that exceeds the limit by the most standard errors, or else the largest."""
    value, error = runs.with_error(figure)
    beyond = (value - limit) / np.maximum(error, 1e-12)
    k = int(np.argmax(beyond)) if (value > limit + 2 * error).any() else int(np.argmax(value))
    return Bar(says, float(value[k]), float(error[k]), limit, where=runs.kinds[k])


def of_spread(runs: Runs, name: str) -> tuple[FloatArray, FloatArray]:
    """By kind, the standard error (root mean square) relative to the standard deviation of values within worlds."""
    k = runs.of(name)
    variance = runs.results.values[k].var(axis=2, ddof=1)
    stated = (runs.stored["std_error"][k] ** 2).mean(axis=2)
    return runs.with_error(lambda h: np.sqrt(stated[:, h.ravel()].mean(axis=1) / variance[:, h.ravel()].mean(axis=1)))


def _standard_error(runs: Runs) -> Iterator[Bar]:
    value, error = of_spread(runs, "StackedDR")
    enough = np.median(runs.effective.reshape(len(runs.kinds), -1), axis=1) >= 60
    off = np.where(enough, np.abs(np.log(value)), -np.inf)
    beyond = (off - np.log(1.15)) / np.maximum(error / value, 1e-12)
    k = int(np.argmax(beyond))
    says = "StackedDR: standard error off by a factor of, from 60 effective rounds"
    yield Bar(says, float(np.exp(off[k])), float(error[k] / value[k]), 1.15, where=f"{runs.kinds[k]}: {value[k]:.2f}")


def _coverage(runs: Runs) -> Iterator[Bar]:
    covered, ok = runs.results.covered[runs.of("Auto")], runs.results.ok[runs.of("Auto")]
    for low, high, limit in ((500, np.inf, 0.92), (100, 500, 0.88)):
        inside = (runs.effective >= low) & (runs.effective < high)
        by_world = np.where(inside, covered, 0).sum(axis=2), inside.sum(axis=2)
        value, error = runs.with_error(lambda h, b=by_world: b[0][:, h.ravel()].sum() / max(b[1][:, h.ravel()].sum(), 1))
        upper = "on" if np.isinf(high) else f"to {high:g}"
        yield Bar(
            f"Auto's 95% intervals from {low:g} effective rounds {upper}", float(value), float(error), limit, least=True
        )
    few = runs.effective < 100
    share = float(ok[few].mean()) if few.any() else 0.0
    yield Bar("Auto: share of ok below 100 effective rounds", share, 0.0, 0.0)


def ok_cells(runs: Runs) -> list[dict[str, Any]]:
    """By estimator and kind: the runs with verdict ok, and how many of their intervals held."""
    cells = []
    for k, name in enumerate(runs.results.experiment.labels):
        for p, kind in enumerate(runs.kinds):
            ok = runs.results.ok[k, p] == 1
            held = runs.results.covered[k, p]
            cells.append(
                {
                    "estimator": name, "kind": kind, "runs": int(np.isfinite(held).sum()), "held": float(np.nansum(held)),
                    "ok": int(ok.sum()), "ok_held": float(held[ok].sum()),
                }
            )  # fmt: skip
    return cells


def _verdicts(runs: Runs) -> Iterator[Bar]:
    cells = [c for c in ok_cells(runs) if c["ok"] >= FEWEST_OK]
    errors = [np.sqrt(0.92 * 0.08 / c["ok"]) for c in cells]
    below = [(0.92 - c["ok_held"] / c["ok"]) / e for c, e in zip(cells, errors, strict=True)]
    missed = sum(each > 2 for each in below)
    some = ", ".join(f"{c['estimator']} in {c['kind']}" for c, b in zip(cells, below, strict=True) if b > 2)
    if cells:
        k = int(np.argmax(below))
        c, where = cells[k], f"{cells[k]['estimator']}, {cells[k]['kind']}, {cells[k]['ok']} runs"
        said = f"; missed: {some}" if missed else ""
        says = f"intervals that held where the verdict was ok, by estimator and kind: lowest of {len(cells)}{said}"
        yield Bar(says, c["ok_held"] / c["ok"], float(errors[k]), 0.92, least=True, where=where)
    enough = np.median(runs.effective.reshape(len(runs.kinds), -1), axis=1) >= 500
    well = [p for p, kind in enumerate(runs.kinds) if enough[p] and not any(word in kind for word in HARD)]
    if well:
        shares = runs.results.ok[runs.of("Auto")][well].reshape(len(well), -1).mean(axis=1)
        k = int(shares.argmin())
        says = f"Auto: share of ok where all is well ({len(well)} kinds), lowest"
        yield Bar(says, float(shares[k]), 0.0, 0.8, least=True, where=runs.kinds[well[k]])


def by_kind(runs: Runs) -> str:
    """One row per kind: Auto and others relative to the best single estimator, and coverage."""
    ranking, e = Standings.of(runs.results), runs.results.experiment
    single = runs.squared.mean(axis=2)
    singles = [k for k, entry in enumerate(e.entries) if entry.label not in ("Auto", "StackedDR", "Blend", "SLOPE", "OCV")]
    rows = []
    for p, kind in enumerate(runs.kinds):
        best = e.labels[min(singles, key=lambda k, p=p: single[k, p])]
        auto = runs.of("Auto")
        cells = [f"{ranking.ratios[auto, p]:.2f} ± {ranking.ratio_errors[auto, p]:.2f}"]
        cells += [f"{ranking.ratios[runs.of(name), p]:.2f}" for name in ("StackedDR", "Learned MIPS", "SNIPS", "SNDR")]
        held = [f"{100 * np.nanmean(runs.results.covered[runs.of(name), p]):.0f}%" for name in ("Auto", "SNIPS")]
        effective = f"{np.median(runs.effective[p]):,.0f}"
        rows.append([kind, f"{e.points[p].rounds:,}", effective, *cells, best, *held])
    header = [
        "kind of world", "rounds", "effective rounds", "Auto", "StackedDR", "Learned MIPS", "SNIPS", "SNDR",
        "best single estimator", "coverage of Auto", "of SNIPS",
    ]  # fmt: skip
    return table(header, rows)


def leaders(runs: Runs) -> str:
    """One row per estimator: relative to the best single estimator."""
    ranking, labels = Standings.of(runs.results), runs.results.experiment.labels
    rows = [
        [
            labels[k],
            f"{ranking.geometric[k]:.2f} ± {ranking.geometric_errors[k]:.2f}",
            f"{ranking.worst[k]:.2f} ± {ranking.worst_errors[k]:.2f}",
        ]
        for k in np.argsort(ranking.geometric)
    ]
    return table(["estimator", "geometric mean", "worst"], rows)


def by_verdict(runs: Runs) -> str:
    """One row per estimator: coverage of all runs, and of those with verdict ok."""
    cells, rows = ok_cells(runs), []
    for name in runs.results.experiment.labels:
        mine = [c for c in cells if c["estimator"] == name]
        total, ok = sum(c["runs"] for c in mine), sum(c["ok"] for c in mine)
        if not total:
            continue
        judged = [c for c in mine if c["ok"] >= FEWEST_OK]
        least = min(judged, key=lambda c: c["ok_held"] / c["ok"], default=None)
        lowest = "–" if least is None else f"{100 * least['ok_held'] / least['ok']:.0f}% of {least['ok']} ({least['kind']})"
        held = f"{100 * sum(c['ok_held'] for c in mine) / ok:.1f}%" if ok else "–"
        rows.append(
            [
                name,
                f"{total:,}",
                f"{100 * sum(c['held'] for c in mine) / total:.1f}%",
                f"{100 * ok / total:.1f}%",
                held,
                lowest,
            ]
        )
    return table(["estimator", "runs", "held", "verdict ok", "of these held", f"lowest kind with {FEWEST_OK} ok runs"], rows)


def ok_by_kind(runs: Runs) -> str:
    """One row per kind: for the main estimators, how many of the ok runs held."""
    found = {(c["estimator"], c["kind"]): c for c in ok_cells(runs)}
    shown = lambda c: f"{c['ok_held']:.0f} of {c['ok']}" if c["ok"] else "–"  # noqa: E731
    rows = [[kind, *(shown(found[name, kind]) for name in MAIN)] for kind in runs.kinds]
    return table(["kind of world", *MAIN], rows)


TABLES: dict[str, Callable[[Runs], str]] = {
    "requirements": lambda runs: table(["requirement", "measured", "limit", ""], [bar.row() for bar in bars(runs)]),
    "leaders": leaders, "kinds": by_kind, "verdicts": by_verdict, "ok by kind": ok_by_kind,
}  # fmt: skip
PAGES = ("bench.md", "coverage.md")


def write(runs: Runs, half: str) -> None:
    """The figures to docs/measured, and the tables to their places in the pages."""
    spread = {name: dict(zip(runs.kinds, of_spread(runs, name)[0].tolist(), strict=True)) for name in MAIN}
    figures = {
        "schema": "offpolicy.judging/1", "half": half, "runs": runs.results.runs,
        "bars": [asdict(bar) | {"verdict": bar.verdict} for bar in bars(runs)],
        "cells": ok_cells(runs), "std_error_of_spread": spread,
        "mean_squared_errors": dict(zip(runs.results.experiment.labels, runs.squared.mean(axis=2).tolist(), strict=True)),
    }  # fmt: skip
    (DOCS / "measured" / f"{half}.json").write_text(json.dumps(figures, indent=1) + "\n")
    mark = re.compile(rf"(<!-- {half}: ([a-z ]+) -->\n).*?(<!-- end -->)", re.S)
    for name in PAGES:
        page = (DOCS / name).read_text()
        (DOCS / name).write_text(mark.sub(lambda m: f"{m[1]}\n{TABLES[m[2]](runs)}\n\n{m[3]}", page))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judging", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--half", default="judging")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--openml", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--write", action="store_true", help="write docs/measured and the tables of the pages")
    given = parser.parse_args()
    folders = Folders(open_bandit=given.data, openml=given.openml)
    runs = Runs.read(given.folder, Bench(half=given.half, runs=given.runs, folders=folders))
    for name, made in TABLES.items():
        print(f"## {name}\n\n{made(runs)}\n")
    spread = zip(runs.kinds, *of_spread(runs, "StackedDR"), strict=True)
    rows = [[kind, f"{value:.2f} ± {error:.2f}"] for kind, value, error in spread]
    print(table(["kind of world", "standard error of StackedDR / spread"], rows))
    if given.write:
        write(runs, given.half)


if __name__ == "__main__":
    main()

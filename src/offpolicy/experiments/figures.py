"""Figures of experiments, in the style of the paper (▽ uses only identities, × uses features), and of studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.files import whole_file
from offpolicy.experiments import tables
from offpolicy.experiments.runs import MEASURES, Results
from offpolicy.experiments.study import LEVEL
from offpolicy.report.formatting import label as one_line

COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c8c3c", "#000000", "#999999", "#a05a2c",
    "#2f4b7c",
)  # fmt: skip
DASHES = ("-", "--", ":")
WORST = 0.5
"""Coverage below this has a single colour."""


def write(results: Results, path: Path) -> None:
    """Write the figure of an experiment atomically."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "offpolicy", "font.size": 9}):
        figure = {"curves": _curves, "series": _series, "cdf": _cdf}[results.experiment.figure](results)
        with whole_file(path) as draft:
            figure.savefig(draft, dpi=110, format=path.suffix[1:], metadata={"Software": None})


def _figure(columns: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * columns + 2.2, 3.6), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(1, columns))


def _style(results: Results, k: int) -> dict[str, Any]:
    features = results.experiment.entries[k].features
    return {
        "color": COLOURS[k % len(COLOURS)], "linestyle": DASHES[k // len(COLOURS) % len(DASHES)],
        "marker": "x" if features else "v", "markersize": 5, "markerfacecolor": "none", "linewidth": 1.2,
    }  # fmt: skip


def _curves(results: Results) -> Any:
    """The measures against the points, with shaded standard errors."""
    points, numbers = results.experiment.points, [p.label for p in results.experiment.points]
    numeric = all(isinstance(n, (int, float)) for n in numbers)
    x = np.array(numbers, dtype=float) if numeric else np.arange(len(points), dtype=float)
    across = _Across(x, numbers, numeric, results.experiment.axis)
    measures = tables.measures(results)[-4:]  # of several medians the one over the most logs
    figure, axes = _figure(len(measures))
    for ax, measure in zip(axes, measures, strict=True):
        for k, label in enumerate(results.experiment.labels):
            mean, error = (m[k] for m in results.summary(measure))
            style = _style(results, k) | ({} if numeric else {"linestyle": "none"})  # worlds have no order
            _line(ax, x, mean, error, _name(label), **style)
        _axes(ax, across, tables.name_of(measure))
    _legend(figure, axes, results)
    return figure


def _series(results: Results) -> Any:
    """Estimators whose label ends in a number against that number; the others as horizontal lines."""
    experiment = results.experiment
    families: dict[str, list[tuple[float, int]]] = {}
    for k, label in enumerate(experiment.labels):
        stem, _, last = label.rpartition(" ")
        if last.isdigit():
            families.setdefault(stem.rpartition(",")[0] or stem, []).append((float(last), k))
    alone = [k for k, label in enumerate(experiment.labels) if not label.rpartition(" ")[2].isdigit()]
    figure, axes = _figure(len(MEASURES))
    for ax, measure in zip(axes, MEASURES, strict=True):
        mean, error = results.summary(measure)
        for p, point in enumerate(experiment.points):
            tail = f", {point.label:,} {experiment.axis}" if len(experiment.points) > 1 else ""
            for f, (stem, members) in enumerate(families.items()):
                x, rows = np.array([n for n, _ in members]), [k for _, k in members]
                style = _style(results, rows[0]) | {"color": COLOURS[f], "linestyle": DASHES[p % len(DASHES)]}
                _line(ax, x, mean[rows, p], error[rows, p], _name(stem + tail), **style)
            for c, k in enumerate(alone):
                if mean[k, p] > 0:
                    ax.axhline(
                        mean[k, p], color=COLOURS[len(families) + c], linestyle=DASHES[p % len(DASHES)], linewidth=0.9,
                        label=_name(experiment.labels[k] + tail),
                    )  # fmt: skip
        x = np.array([n for n, _ in next(iter(families.values()))])
        _axes(ax, _Across(x, x.astype(int).tolist(), True, "size of the embedding"), tables.name_of(measure))
    _legend(figure, axes, results)
    return figure


def _line(ax: Any, x: FloatArray, mean: FloatArray, error: FloatArray, label: str, **style: Any) -> None:
    """A curve with its band; values that are not above 0 have no place on a log scale and are omitted."""
    shown = np.where(mean > 0, mean, np.nan)
    ax.plot(x, shown, label=label, **style)
    low = np.maximum(mean - error, np.where(mean > 0, mean / 20, np.nan))
    if style["linestyle"] != "none":
        ax.fill_between(x, low, np.where(mean > 0, mean + error, np.nan), color=style["color"], alpha=0.12, linewidth=0)


@dataclass(frozen=True)
class _Across:
    """The horizontal axis: the positions and labels of its points, and whether they are numbers."""

    places: FloatArray
    labels: list[Any]
    numeric: bool
    name: str


def _axes(ax: Any, across: _Across, title: str) -> None:
    from matplotlib.ticker import NullLocator

    x, numeric = across.places, across.numeric
    if any((np.asarray(line.get_ydata(), dtype=float) > 0).any() for line in ax.get_lines()):
        ax.set_yscale("log")
    if numeric and (x > 0).all() and x.max() / x.min() > 5:
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(x, [f"{n:,}" if numeric else _name(str(n)) for n in across.labels], rotation=45, fontsize=8, ha="right")
    ax.set_xlabel(_name(across.name))
    ax.set_title(title)
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)


def _cdf(results: Results) -> Any:
    """The distribution of each squared error relative to one estimator's, run by run."""
    experiment = results.experiment
    squared = results.errors**2
    figure, axes = _figure(len(experiment.relative_to))
    for ax, other in zip(axes, experiment.relative_to, strict=True):
        base = squared[experiment.labels.index(other)].ravel()
        for k, label in enumerate(experiment.labels):
            if label != other:
                ratio = squared[k].ravel() / base
                ratio = np.sort(ratio[np.isfinite(ratio)])
                share = np.arange(1, len(ratio) + 1) / max(len(ratio), 1)
                style = _style(results, k) | {"markevery": max(len(ratio) // 8, 1)}
                ax.plot(np.clip(ratio, 1e-4, 1e4), share, label=_name(label), **style)
        ax.axvline(1, color="#555555", linewidth=0.8)
        ax.axhline(0.5, color="#555555", linewidth=0.5, linestyle=":")
        ax.set(xscale="log", xlim=(1e-3, 1e2), ylim=(0, 1), xlabel=f"squared error relative to {_name(other)}",
               ylabel="share of samples")  # fmt: skip
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.3)
    _legend(figure, axes, results)
    return figure


def _legend(figure: Any, axes: Any, results: Results) -> None:
    """Every line once, whichever panel it is in."""
    shown = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    title = "▽ identities only   × features" if any(e.features for e in results.experiment.entries) else None
    look = {"loc": "outside right center", "frameon": False, "fontsize": 8, "title_fontsize": 7}
    figure.legend(list(shown.values()), list(shown), title=title, **look)


def _name(label: str) -> str:
    """A label that Matplotlib shows as plain text and does not hide."""
    plain = one_line(label).replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain


def write_study(summary: Mapping[str, Any], path: Path) -> None:
    """Write a grid of coverage by estimator and world atomically."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    at, worlds, method = summary["levels"].index(LEVEL), [w["world"] for w in summary["worlds"]], summary["methods"][0]
    cells = [[summary["coverage"][w].get(n, {}).get(method) for w in worlds] for n in summary["estimators"]]
    names = [n for n, row in zip(summary["estimators"], cells, strict=True) if any(row)]
    shares = np.array([[np.nan if cell is None else cell["held"][at] for cell in row] for row in cells if any(row)])
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(2.2 + 0.95 * len(worlds), 1.5 + 0.27 * len(names)), layout="constrained")
        axes = figure.subplots()
        colours = mpl.colormaps["RdYlGn"].with_extremes(bad="#eeeeee")
        axes.imshow(np.ma.masked_invalid(shares), cmap=colours, vmin=WORST, vmax=1.0, aspect="auto")
        for (row, col), share in np.ndenumerate(shares):
            shown = "–" if np.isnan(share) else f"{100 * share:.0f}"
            axes.text(col, row, shown, ha="center", va="center", color="white" if share < 0.55 else "black")
        axes.set_xticks(range(len(worlds)), [w.replace(", ", ",\n").replace(" ", "\n", 1) for w in worlds])
        axes.set_yticks(range(len(names)), names)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel(f"runs in 100 whose {LEVEL:.0%} interval ({method}) contains the true value")
        with whole_file(path) as draft:
            figure.savefig(draft, dpi=130, format=path.suffix[1:], metadata={"Software": None})

"""Pictures of a result, drawn from its plain dict. Each takes and returns Matplotlib axes; colours tell apart for all."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.checks import factors
from offpolicy.report.formatting import THE_LOG, VERDICTS, count, label, number, percent
from offpolicy.report.tables import is_naive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Summary = Mapping[str, Any]
BLUE, ORANGE, RED, GREY = "#0072b2", "#e69f00", "#d55e00", "#555555"
COLOURS = {"OK": BLUE, "CAUTION": ORANGE, "DO_NOT_TRUST": RED, THE_LOG: GREY}
MARKERS = {"OK": "o", "CAUTION": "s", "DO_NOT_TRUST": "X", THE_LOG: "D"}
LINES = ("-", "--", ":", "-.")
OUTLINES = (BLUE, RED, "#009e73", "#cc79a7", ORANGE, "#56b4e9")
TWO_SIDED_95 = 1.96
LABELLED = 12
"""Of the actions most often logged, so many are named where there is room."""
SMALL = 8
STEPS = 101


def estimates(summary: Summary, ax: Axes | None = None) -> Axes:
    """Every estimate with its interval; the verdict by colour and shape; the logged mean and a known truth as lines."""
    rows = _drawn(summary)
    ax = _axes(ax, _size(summary))
    kinds = [THE_LOG if is_naive(e) else e["verdict"] for e in rows]
    for k, (e, kind) in enumerate(zip(rows, kinds, strict=True)):
        leads = e["estimator"] == summary["headline"]["estimator"]
        if leads:
            ax.axhspan(k - 0.5, k + 0.5, color=BLUE, alpha=0.08, linewidth=0)
        _interval(ax, k, e, _Look(COLOURS[kind], MARKERS[kind], 3.0 if leads else 1.8))
    several = len(summary["policies"]) > 1
    names = [_name(e["estimator"]) if not several or is_naive(e) else _of(e) for e in rows]
    _rows(ax, names, [e["estimator"] == summary["headline"]["estimator"] for e in rows])
    lines = [(e["value"], "logged mean", "-") for e in rows if is_naive(e)][:1]
    for policy, truth in (summary.get("truth") or {}).items():
        lines.append((truth, f"true value of {_name(policy)}" if several else "true value", "--"))
    for k, (value, words, style) in enumerate(lines):
        _marked_line(ax, value, words, style, k)
    ax.set_xlabel(f"{_name(summary['reward'])} a round, with {percent(summary['level'])} intervals")
    _legend_of_verdicts(ax, kinds)
    return ax


def write(summary: Summary, path: Path, kind: str) -> None:
    """The estimates as a file, such as "png"; pyplot, which would ask for a screen, is not needed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_size(summary), layout="constrained")
    estimates(summary, figure.subplots())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script that the font lacks: boxes, no error
        figure.savefig(path, format=kind, dpi=150)


def _drawn(summary: Summary) -> list[Summary]:
    """The estimates, the logged mean only once: before all others where there are several policies."""
    rows = [e for e in summary["estimates"] if not is_naive(e) or e["policy"] == summary["policies"][0]]
    return sorted(rows, key=lambda e: not is_naive(e)) if len(summary["policies"]) > 1 else rows


def _size(summary: Summary) -> tuple[float, float]:
    return 7.5, 1.2 + 0.36 * len(_drawn(summary))


def weights(summary: Summary, ax: Axes | None = None, policy: str | None = None) -> Axes:
    """How the weights of the rounds spread, on a logarithmic axis; one outline for each policy and kind of weight."""
    shown = [o for o in summary.get("overlap", ()) if policy in (None, o["policy"])]
    if policy is not None and policy not in summary["policies"]:
        raise InputError(f"there is no policy {policy!r}; there are: {', '.join(map(repr, summary['policies']))}.")
    if not shown:
        raise InputError(
            "no weights were kept: they need the propensities of the logged actions (propensity= or logging=), and are kept "
            "for the whole log, not for a slice."
        )
    ax = _axes(ax, (6.5, 3.2 + 0.2 * len(shown)))
    ax.set_xscale("log")
    for k, o in enumerate(shown):
        edges, counts = np.asarray(o["edges"], dtype=float), np.asarray(o["counts"], dtype=float)
        colour, words = OUTLINES[k % len(OUTLINES)], _weights_in_words(summary, o)
        if len(shown) == 1:
            ax.bar(edges[:-1], counts, np.diff(edges), align="edge", color=colour, alpha=0.75, label=words)
        else:
            ax.stairs(counts, edges, color=colour, linestyle=LINES[k % len(LINES)], linewidth=1.6, label=words)
    ax.axvline(1, color=GREY, linewidth=0.8)
    ax.set_xlabel("weight of a round: how much likelier under the new policy")
    ax.set_ylabel("rounds")
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", alpha=0.3)
    ax.legend(fontsize=SMALL, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
    return ax


def calibration(summary: Summary, ax: Axes | None = None, model: int = 0) -> Axes:
    """What a reward model predicted and what was seen, in bins of rounds that it was not fitted on."""
    models = summary.get("calibration", ())
    if not models:
        raise InputError(
            "no reward model was cross-fitted; ask for op.DR(), op.SNDR() or op.Auto() on the whole log, not on a slice."
        )
    if not 0 <= model < len(models):
        raise InputError(f"there is no model {model}; there are {len(models)}, counted from 0.")
    chosen = models[model]
    ax = _axes(ax, (4.8, 4.4))
    ends = _against_predicted(ax, chosen["bins"])
    ax.annotate(
        "as predicted", (ends[0], ends[0]), (8, 0), textcoords="offset points", va="center", fontsize=SMALL, color=GREY
    )
    r2 = "" if chosen["r2"] is None else f": R² = {number(chosen['r2'], 0.01)} out of fold"
    ax.set_title(f"{_name(chosen['model'])}{r2}", fontsize=10)
    ax.set_xlabel(f"predicted {_name(summary['reward'])}")
    ax.set_ylabel("observed, with 95% intervals")
    ax.grid(alpha=0.3)
    return ax


def _against_predicted(ax: Axes, bins: Sequence[Mapping[str, Any]], least: float | None = None) -> tuple[float, float]:
    """What was observed in each bin, with 95% intervals, and the diagonal that it should lie on; gives the ends of that."""
    predicted, observed, errors = (
        np.array([bin_[key] for bin_ in bins], dtype=float) for key in ("predicted", "observed", "std_error")
    )
    low, high = (float(end([*predicted, *observed])) for end in (np.nanmin, np.nanmax))
    ends = (low if least is None else least, high)
    ax.plot(ends, ends, color=GREY, linewidth=0.9, linestyle="--", zorder=1)
    ax.errorbar(
        predicted, observed, TWO_SIDED_95 * errors, fmt="o", color=BLUE, markersize=5, linewidth=1.4, capsize=2, zorder=2
    )
    return ends


def propensities(summary: Summary, ax: Axes | None = None) -> Axes:
    """Chances of the logging policy and how often actions were taken; of logged actions alone, the mean of 1/p by action."""
    found = summary.get("propensities")
    if not found or not (found["bins"] or found["actions"]):
        raise InputError("there are no propensities to draw: give propensity= or logging=; of a slice none are kept.")
    ax = _axes(ax, (4.8, 4.4))
    if found["bins"]:
        _against_predicted(ax, found["bins"], least=0.0)
        ax.set_xlabel(
            "chance of an action, estimated out of fold" if found["source"] == "estimated" else "chance of an action"
        )
        ax.set_ylabel("how often it was taken, and 95% range")
    else:
        means = [(a["mean_inverse"], TWO_SIDED_95 * a["std_error"]) for a in found["actions"]]
        values, errors = np.array(means, dtype=float).T
        ax.axhline(1, color=GREY, linewidth=0.9, linestyle="--", zorder=1)
        ax.errorbar(range(len(values)), values, errors, fmt="o", color=BLUE, markersize=4, linewidth=1.2, zorder=2)
        ax.set_xticks(range(len(values)), [_name(a["action"]) for a in found["actions"]], rotation=90, fontsize=SMALL)
        ax.set_ylabel("mean of 1/propensity (0 in rounds of others)")
        ax.set_title("1 where an action can always be taken; never above", fontsize=10)
    ax.grid(alpha=0.3)
    return ax


def embedding(summary: Summary, ax: Axes | None = None) -> Axes:
    """The learned embedding in two dimensions: size by how often an action was logged, colour by its expected reward."""
    table = summary.get("embedding")
    if table is None:
        raise InputError(
            "there is no embedding to draw: ask for op.LearnedMIPS() or op.LearnedMDR() on the whole log, and for "
            "to_dict(shown=2000)."
        )
    ax = _axes(ax, (6.4, 4.8))
    points = sorted(table["points"], key=lambda point: -point["count"])  # small ones on top, or they would be hidden
    x, y, counts = (np.array([p[key] for p in points], dtype=float) for key in ("x", "y", "count"))
    reward = np.array([math.nan if p["reward"] is None else p["reward"] for p in points], dtype=float)
    size = 6 + 110 * np.sqrt(counts / max(counts.max(initial=0.0), 1.0))
    never, known = counts == 0, np.isfinite(reward) & (counts > 0)
    unknown = ~never & ~known
    ax.scatter(x[never], y[never], s=14, facecolors="none", edgecolors=GREY, linewidths=0.6)
    ax.scatter(x[unknown], y[unknown], s=size[unknown], color=GREY, edgecolors="white", linewidths=0.4, alpha=0.9)
    dots = ax.scatter(
        x[known], y[known], s=size[known], c=reward[known], cmap="cividis", edgecolors="white", linewidths=0.4, alpha=0.9
    )
    if known.any():
        bar = ax.figure.colorbar(dots, ax=ax, shrink=0.85)
        bar.set_label(f"{_name(summary['reward'])} expected at the mean context", fontsize=SMALL)
        bar.outline.set_visible(False)
    _name_points(ax, [p["action"] for p in points], x, y)
    shown = f"{count(len(points))} of {count(table['actions'])} actions"
    hollow = f"; hollow: never logged ({count(float(never.sum()))})" if never.any() else ""
    ax.set_title(f"{_name(table['estimator'])}: {shown}{hollow}", fontsize=10)
    ax.set_xlabel(f"first axis (the two show {percent(table['explained'], 0.01)} of the variance)")
    ax.set_ylabel("second axis")
    return ax


def differences(summary: Summary, ax: Axes | None = None) -> Axes:
    """The paired differences between policies; filled where the interval does not hold 0."""
    pairs = summary.get("differences", ())
    if not pairs:
        raise InputError(
            "there are no two policies to compare; give op.evaluate several, such as {'new': new, 'old': old}. "
            "What one earns more than the log is in to_dict()['lifts']."
        )
    ax = _axes(ax, (6.5, 0.9 + 0.4 * len(pairs)))
    ax.axvline(0, color=GREY, linewidth=0.9)
    for k, d in enumerate(pairs):
        apart = d["interval"]["low"] > 0 or d["interval"]["high"] < 0
        _interval(ax, k, d, _Look(BLUE, "o", 2.0, filled=apart))
    _rows(ax, [f"{_name(d['a'])} − {_name(d['b'])}" for d in pairs])
    by, level = _name(pairs[0]["estimator"]), percent(pairs[0]["interval"]["level"])
    ax.set_xlabel(f"paired difference in {_name(summary['reward'])} a round by {by}, with {level} intervals")
    return ax


def sensitivity(summary: Summary, ax: Axes | None = None) -> Axes:
    """The bounds by Γ, the interval around them, and the log's mean, with the Γ at which they meet."""
    rows = summary["rows"]
    gamma = [row["gamma"] for row in rows]
    ax = _axes(ax, (6.0, 3.6))
    ax.fill_between(
        gamma, [row["interval_low"] for row in rows], [row["interval_high"] for row in rows],
        color=BLUE, alpha=0.12, linewidth=0, label=f"with {percent(summary['level'])} interval",
    )  # fmt: skip
    ax.fill_between(
        gamma, [row["low"] for row in rows], [row["high"] for row in rows], color=BLUE, alpha=0.35, linewidth=0,
        label=f"bounds on {_name(summary['policy'])}",
    )  # fmt: skip
    ax.axhline(summary["logged"], color=GREY, linestyle="--", linewidth=0.9, label="logged mean")
    for name, style in (("holds_to", "-"), ("surely_to", ":")):
        if summary[name] is not None and summary[name] <= gamma[-1]:
            words = f"{summary['claim']} up to {summary[name]:.3g}" + (", surely" if name == "surely_to" else "")
            ax.axvline(summary[name], color=RED, linestyle=style, linewidth=1.2, label=words)
    ax.set_xlabel("Γ: true propensities up to so many times larger or smaller")
    ax.set_ylabel(f"{_name(summary['reward'])} a round")
    ax.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


@dataclass(frozen=True)
class Plots:
    """The pictures of one result, as methods: `result.plot.estimates()`. Each takes and returns Matplotlib axes."""

    summary: Callable[[int], Summary]
    """Gives the plain dict, with so many actions of the embedding in it."""
    bounded: Callable[[Sequence[float], str | None], Summary]
    """Gives the bounds for so many Γ of a policy."""

    def estimates(self, ax: Axes | None = None) -> Axes:
        """Every estimate with its interval and verdict."""
        return estimates(self.summary(0), ax)

    def weights(self, ax: Axes | None = None, policy: str | None = None) -> Axes:
        """How the weights of the rounds spread."""
        return weights(self.summary(0), ax, policy)

    def calibration(self, ax: Axes | None = None, model: int = 0) -> Axes:
        """Predicted and observed rewards of a cross-fitted model."""
        return calibration(self.summary(0), ax, model)

    def propensities(self, ax: Axes | None = None) -> Axes:
        """Chances of the logging policy against what was taken."""
        return propensities(self.summary(0), ax)

    def embedding(self, ax: Axes | None = None, shown: int = 2000) -> Axes:
        """The learned embedding of up to so many actions."""
        return embedding(self.summary(shown), ax)

    def differences(self, ax: Axes | None = None) -> Axes:
        """The paired differences between policies."""
        return differences(self.summary(0), ax)

    def sensitivity(self, ax: Axes | None = None, gamma: float | Sequence[float] = 2.0, policy: str | None = None) -> Axes:
        """What wrong propensities would do: by Γ from 1 to the largest given, of one policy (by default the first).

        Of a saved result, what it holds: the Γ of `with_sensitivity`.
        """
        largest = max(factors(gamma))
        steps = np.geomspace(1.0, largest, STEPS).tolist() if largest > 1 else [largest]
        return sensitivity(self.bounded(steps, policy), ax)


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The given axes, or those of a figure of their own."""
    import matplotlib.pyplot as plt

    axes: Axes = plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _name(text: object) -> str:
    """A name from the data: a dollar sign is no formula."""
    return label(text).replace("$", r"\$")


def _of(estimate: Summary) -> str:
    return f"{_name(estimate['policy'])}: {_name(estimate['estimator'])}"


@dataclass(frozen=True)
class _Look:
    """How a value and its interval are drawn."""

    colour: str
    marker: str
    width: float
    filled: bool = True


def _interval(ax: Axes, row: int, found: Summary, look: _Look) -> None:
    """A value and its interval in a row; what is not finite cannot be drawn, and is said."""
    low, high, value = found["interval"]["low"], found["interval"]["high"], found["value"]
    if math.isfinite(low) and math.isfinite(high):
        ax.plot([low, high], [row, row], color=look.colour, linewidth=look.width, solid_capstyle="round")
    if math.isfinite(value):
        face = look.colour if look.filled else "white"
        ax.plot([value], [row], look.marker, color=look.colour, markersize=7, markerfacecolor=face, linestyle="none")
    else:
        across = ax.get_yaxis_transform()
        ax.text(0.01, row, "no number", transform=across, va="center", fontsize=SMALL, color=look.colour)


def _rows(ax: Axes, names: Sequence[str], bold: Sequence[bool] = ()) -> None:
    """Names at the left, the first row at the top."""
    ax.set_yticks(range(len(names)), names)
    for tick, leads in zip(ax.get_yticklabels(), bold, strict=False):
        tick.set_fontweight("bold" if leads else "normal")
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="x", alpha=0.3)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)


def _marked_line(ax: Axes, value: float, words: str, style: str, row: int) -> None:
    """A line from top to bottom, named above the axes; further names stand higher, so that they never meet."""
    if not math.isfinite(value):
        return
    ax.axvline(value, color=GREY, linestyle=style, linewidth=0.9, zorder=0.5)
    ax.annotate(words, (value, 1), (0, 2 + 10 * row), xycoords=("data", "axes fraction"), textcoords="offset points",
                ha="center", fontsize=SMALL, color=GREY)  # fmt: skip


def _legend_of_verdicts(ax: Axes, kinds: Sequence[str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Line2D([], [], color=COLOURS[kind], marker=MARKERS[kind], label=VERDICTS.get(kind, kind))
        for kind in COLOURS
        if kind in kinds
    ]
    handles.append(Patch(color=BLUE, alpha=0.15, label="leads"))
    ax.legend(handles=handles, title="verdict", fontsize=SMALL, title_fontsize=SMALL, loc="center left",
              bbox_to_anchor=(1, 0.5), frameon=False)  # fmt: skip


def _weights_in_words(summary: Summary, overlap: Summary) -> str:
    """The kind of weight, what the rounds count like, and how many have none."""
    kind = "π/π₀" if overlap["kind"] == "action" else f"by embedding ({', '.join(map(_name, overlap['estimators']))})"
    of = f" of {_name(overlap['policy'])}" if len(summary["policies"]) > 1 else ""
    zero = f"; {count(overlap['zero'])} rounds have weight 0" if overlap["zero"] else ""
    largest = number(overlap["largest"], overlap["largest"] / 10)
    return f"{kind}{of}: {count(overlap['effective_sample_size'])} effective rounds, largest weight {largest}{zero}"


def _name_points(ax: Axes, names: Sequence[str], x: Any, y: Any) -> None:
    """Name the first points, but none over the name of another."""
    from matplotlib.patheffects import withStroke

    ax.autoscale_view()
    scale = ax.figure.dpi / 72
    taken: list[tuple[float, float, float, float]] = []
    for name, place in zip(names[:LABELLED], np.column_stack([x, y])[:LABELLED], strict=True):
        left, low = ax.transData.transform(place) + 4 * scale
        box = (left, low, left + 0.62 * SMALL * scale * len(label(name)), low + 1.2 * SMALL * scale)
        if not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken):
            taken.append(box)
            halo = [withStroke(linewidth=2, foreground="white")]
            ax.annotate(_name(name), place, (4, 4), textcoords="offset points", fontsize=SMALL, path_effects=halo)

"""Plots of a result, drawn from its plain dict. Each takes and returns Matplotlib axes; colours are colour-blind safe."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.checks import factors
from offpolicy.report import action_axis, comparison
from offpolicy.report.formatting import THE_LOG, VERDICTS, Summary, count, label, number, percent
from offpolicy.report.sentences import excludes_zero, is_naive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, RED, GREY = "#0072b2", "#e69f00", "#d55e00", "#555555"
COLOURS = {"OK": BLUE, "CAUTION": ORANGE, "DO_NOT_TRUST": RED, THE_LOG: GREY}
MARKERS = {"OK": "o", "CAUTION": "s", "DO_NOT_TRUST": "X", THE_LOG: "D"}
BEST_COLOURS = {"better": BLUE, "worse": RED, "undecided": GREY, "not compared": GREY}
BEST_MARKERS = {"baseline": "D", "not compared": "x"}
LINES = ("-", "--", ":", "-.")
OUTLINES = (BLUE, RED, "#009e73", "#cc79a7", ORANGE, "#56b4e9")
TWO_SIDED_95 = 1.96
LABELLED = 12
"""The number of actions, the most frequently logged ones, that are labelled where there is room."""
SMALL = 8
STEPS = 101


def estimates(summary: Summary, ax: Axes | None = None) -> Axes:
    """Every estimate with its interval; colour and shape show the verdict, lines the logged mean and known true values."""
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
    ax.set_xlabel(f"{_name(summary['reward'])} per round, with {percent(summary['level'])} intervals")
    _legend_of_verdicts(ax, kinds)
    return ax


def write(summary: Summary, path: Path, kind: str) -> None:
    """Write the estimates as a file of a kind such as "png", without pyplot, which may need a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_size(summary), layout="constrained")
    estimates(summary, figure.subplots())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the font lacks a script: boxes, no error
        figure.savefig(path, format=kind, dpi=150)


def _drawn(summary: Summary) -> list[Summary]:
    """The estimates, with the logged mean once: first where there are several policies."""
    rows = [e for e in summary["estimates"] if not is_naive(e) or e["policy"] == summary["policies"][0]]
    return sorted(rows, key=lambda e: not is_naive(e)) if len(summary["policies"]) > 1 else rows


def _size(summary: Summary) -> tuple[float, float]:
    return 7.5, 1.2 + 0.36 * len(_drawn(summary))


def weights(summary: Summary, ax: Axes | None = None, policy: str | None = None) -> Axes:
    """The distribution of the weights on a logarithmic axis; one outline per policy and kind of weight."""
    shown = [o for o in summary.get("overlap", ()) if policy in (None, o["policy"])]
    if policy is not None and policy not in summary["policies"]:
        raise InputError(f"there is no policy {policy!r}; the policies are {', '.join(map(repr, summary['policies']))}.")
    if not shown:
        raise InputError(
            "there are no weights to plot: they need the propensities of the logged actions (propensity= or logging=), and "
            "are stored for the whole log, not for slices."
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
    ax.set_xlabel("weight of a round: how many times likelier under the new policy")
    ax.set_ylabel("rounds")
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", alpha=0.3)
    ax.legend(fontsize=SMALL, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
    return ax


def slots(summary: Summary, ax: Axes | None = None, policy: str | None = None) -> Axes:
    """The value of each slot of lists with its interval, beside what was logged there; below, its effective rounds."""
    policy = summary["policies"][0] if policy is None else policy
    rows = [row for row in summary.get("by_slot") or () if row["policy"] == policy]
    if not rows:
        raise InputError(f"there are no slots to plot for {policy!r}: they need lists with a reward for each slot.")
    ax = _axes(ax, (1.6 + 0.8 * len(rows), 3.6))
    at = np.arange(len(rows), dtype=float)
    logged = [row["value"] - row["lift"]["value"] for row in rows]
    ax.plot(at - 0.08, logged, MARKERS[THE_LOG], color=GREY, linestyle=":", linewidth=1, label="in the log")
    for x, row in zip(at, rows, strict=True):
        ax.plot([x + 0.08] * 2, [row["interval"]["low"], row["interval"]["high"]], color=BLUE, linewidth=2.5)
    values, of = [row["value"] for row in rows], _name(policy if len(summary["policies"]) > 1 else "new policy")
    words = f"{of}, by {_name(rows[0]['estimator'])}, with {percent(summary['level'])} intervals"
    ax.plot(at + 0.08, values, "o", color=BLUE, markersize=7, label=words)
    weak = ["–" if row["effective_sample_size"] is None else count(row["effective_sample_size"]) for row in rows]
    ax.set_xticks(at, [f"{row['slot']}\n{each}" for row, each in zip(rows, weak, strict=True)])
    ax.set_xlabel("slot, and the effective rounds that its value rests on")
    ax.set_ylabel(_name(summary["reward"]))
    ax.grid(axis="y", alpha=0.3)
    ax.legend(fontsize=SMALL, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
    return ax


def examination(summary: Summary, ax: Axes | None = None) -> Axes:
    """How often users look at each slot, compared with the first, with intervals of two standard errors."""
    own = next((each for each in summary.get("browsing") or () if each.get("examination")), None)
    if own is None:
        raise InputError("there is no examination curve to plot; evaluate op.PBM().")
    curve = np.array(own["examination"])
    errors = np.array(own.get("examination_std_errors") or np.zeros(len(curve)))
    ax = _axes(ax, (1.6 + 0.8 * len(curve), 3.2))
    ax.errorbar(
        np.arange(1, len(curve) + 1), curve, TWO_SIDED_95 * errors, fmt="o-", color=BLUE, linewidth=1, elinewidth=2.5
    )
    ax.set_xticks(range(1, len(curve) + 1))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("slot")
    ax.set_ylabel("users look, compared with slot 1")
    ax.grid(axis="y", alpha=0.3)
    return ax


def calibration(summary: Summary, ax: Axes | None = None, model: int = 0) -> Axes:
    """Predicted and observed rewards of a reward model, in bins of rounds that it was not fitted on."""
    models = summary.get("calibration", ())
    if not models:
        raise InputError(
            "no reward model was cross-fitted; add op.DR(), op.SNDR() or op.Auto(), and plot the whole log, not a slice."
        )
    if not 0 <= model < len(models):
        raise InputError(f"there is no model {model}; there are {len(models)}, numbered from 0.")
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


def _against_predicted(ax: Axes, bins: Sequence[Summary], least: float | None = None) -> tuple[float, float]:
    """The observed values of each bin with 95% intervals, and the diagonal they should lie on; returns its ends."""
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
    """Logging probabilities and observed frequencies; where only those of logged actions are known, the mean of 1/p."""
    logged = summary.get("propensities")
    if not logged or not (logged["bins"] or logged["actions"]):
        raise InputError("there are no propensities to plot: give propensity= or logging=; slices have none.")
    ax = _axes(ax, (4.8, 4.4))
    if logged["bins"]:
        _against_predicted(ax, logged["bins"], least=0.0)
        source = ", estimated out of fold" if logged["source"] == "estimated" else ""
        ax.set_xlabel(f"probability of an action{source}")
        ax.set_ylabel("how often it was taken, with 95% intervals")
    else:
        means = [(a["mean_inverse"], TWO_SIDED_95 * a["std_error"]) for a in logged["actions"]]
        values, errors = np.array(means, dtype=float).T
        ax.axhline(1, color=GREY, linewidth=0.9, linestyle="--", zorder=1)
        ax.errorbar(range(len(values)), values, errors, fmt="o", color=BLUE, markersize=4, linewidth=1.2, zorder=2)
        ax.set_xticks(range(len(values)), [_name(a["action"]) for a in logged["actions"]], rotation=90, fontsize=SMALL)
        ax.set_ylabel("mean of 1/propensity (0 in rounds of other actions)")
        ax.set_title("1 if an action is always available; never above 1", fontsize=10)
    ax.grid(alpha=0.3)
    return ax


def embedding(summary: Summary, ax: Axes | None = None) -> Axes:
    """The learned embedding in two dimensions; size shows how often an action was logged, colour its expected reward."""
    table = summary.get("embedding")
    if table is None:
        raise InputError(
            "there is no embedding to plot: add op.LearnedMIPS() or op.LearnedMDR(), plot the whole log, not a slice, and "
            "use to_dict(shown=2000)."
        )
    ax = _axes(ax, (6.4, 4.8))
    points = sorted(table["points"], key=lambda point: -point["count"])  # small ones last, or they would be hidden
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
    """The paired differences between policies; filled where the interval excludes 0."""
    pairs = summary.get("differences", ())
    if not pairs:
        raise InputError(
            "there is only one policy; to compare several, give op.evaluate a dict such as {'new': new, 'old': old}. "
            "The difference from the log is in to_dict()['lifts']."
        )
    ax = _axes(ax, (6.5, 0.9 + 0.4 * len(pairs)))
    ax.axvline(0, color=GREY, linewidth=0.9)
    for k, d in enumerate(pairs):
        _interval(ax, k, d, _Look(BLUE, "o", 2.0, filled=excludes_zero(d)))
    _rows(ax, [f"{_name(d['a'])} − {_name(d['b'])}" for d in pairs])
    by, level = _name(pairs[0]["estimator"]), percent(pairs[0]["interval"]["level"])
    ax.set_xlabel(f"paired difference in {_name(summary['reward'])} per round by {by}, with {level} intervals")
    return ax


def best(summary: Summary, ax: Axes | None = None) -> Axes:
    """The value of every policy with its simultaneous interval; filled where it differs from the baseline."""
    rows, against = summary["rows"], comparison.baseline(summary)
    ax = _axes(ax, (7.5, 1.3 + min(0.3 * len(rows), 15)))
    baseline = next((row["value"] for row in rows if row["conclusion"] == "baseline"), summary["logged"])
    for k, row in enumerate(rows):
        decided = row["conclusion"] in ("better", "worse")
        colour = BEST_COLOURS.get(row["conclusion"], GREY)
        if row["policy"] == summary["choice"]:
            ax.axhspan(k - 0.5, k + 0.5, color=BLUE, alpha=0.08, linewidth=0)
        _interval(ax, k, row, _Look(colour, BEST_MARKERS.get(row["conclusion"], "o"), 2.0, filled=decided))
    _rows(ax, [_name(row["policy"]) for row in rows], [row["policy"] == summary["choice"] for row in rows])
    _marked_line(ax, baseline, _name(against), "-", 0)
    level, by = percent(summary["level"]), _name(summary["estimator"])
    ax.set_xlabel(f"{_name(summary['reward'])} per round by {by}; {level} intervals that hold together")
    present = [kind for kind in BEST_COLOURS if any(row["conclusion"] == kind for row in rows)]
    for kind in present:
        decided = kind in ("better", "worse")
        colour, words = BEST_COLOURS[kind], f"{kind} than {_name(against)}" if decided else kind
        face = colour if decided else "white"
        ax.plot([], [], BEST_MARKERS.get(kind, "o"), color=colour, markerfacecolor=face, linestyle="none", label=words)
    if present:
        ax.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def backtested(summary: Summary, ax: Axes | None = None) -> Axes:
    """Every estimate minus what was earned, with the interval of the difference; filled where it contains 0."""
    outcomes = [each for each in summary["outcomes"] if each["defined"]]
    ax = _axes(ax, (7.5, 1.3 + min(0.3 * len(outcomes), 15)))
    for k, each in enumerate(outcomes):
        colour = BLUE if each["held"] else RED
        shown = {"value": each["difference"]["value"], "interval": each["difference"]}
        _interval(ax, k, shown, _Look(colour, "o", 2.0, filled=each["held"]))
    _rows(ax, [f"{_name(each['estimator'])}, {_name(each['pair'])}" for each in outcomes])
    ax.axvline(0.0, color=GREY, linewidth=0.9, linestyle="--", zorder=1)
    ax.set_xlabel(f"estimate minus what was earned; {percent(summary['level'])} intervals with the errors of both")
    for colour, face, word in ((BLUE, BLUE, "held"), (RED, "white", "did not hold")):
        ax.plot([], [], "o", color=colour, markerfacecolor=face, label=word)
    ax.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def watched(summary: Summary, ax: Axes | None = None) -> Axes:
    """The difference of each policy from the baseline at every look, with its bounds, and when it was decided."""
    ax = _axes(ax, (7.0, 3.8))
    looks, decisions = summary["looks"], summary["decisions"]
    against = "the log" if summary["baseline"] is None else _name(summary["baseline"])
    for k, policy in enumerate(decisions):
        seen = [(look["rounds"], look["policies"][policy]) for look in looks]
        seen.sort(key=lambda pair: pair[0])
        rounds, colour = [n for n, _ in seen], f"C{k}"
        low, value, high = ([each[f"difference{end}"] for _, each in seen] for end in ("_low", "", "_high"))
        ax.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.plot(rounds, value, color=colour, linewidth=1.4, marker="o", markersize=2.5, label=_name(policy))
        decision = decisions[policy]
        if decision["rounds"] is not None:
            ax.axvline(decision["rounds"], color=colour, linestyle=":", linewidth=1.2,
                       label=f"{decision['conclusion']} from {decision['rounds']:,} rounds on")  # fmt: skip
    ax.axhline(0.0, color=GREY, linestyle="--", linewidth=0.9)
    widest = [look["policies"][policy] for look in looks[len(looks) // 10 :] for policy in decisions]
    if widest:  # the first looks know next to nothing, and would flatten the rest
        ends = [abs(each[name]) for each in widest for name in ("difference_low", "difference_high")]
        ax.set_ylim(-1.1 * max(ends), 1.1 * max(ends))
    ax.set_xlabel("rounds so far")
    ax.set_ylabel(f"minus {against}")
    ax.set_title(f"bounds that hold at every look, {percent(summary['level'])}", fontsize=SMALL)
    if decisions:
        ax.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def planned(summary: Summary, ax: Axes | None = None) -> Axes:
    """The rounds that each policy needs under each share of exploration, with their range, and those for a decision."""
    rows = [row for row in summary["rows"] if math.isfinite(row["rounds"])]
    ax = _axes(ax, (7.5, 1.3 + min(0.3 * len(rows), 15)))
    for k, row in enumerate(rows):
        shown = {"value": row["rounds"], "interval": {"low": row["rounds_low"], "high": row["rounds_high"]}}
        _interval(ax, k, shown, _Look(BLUE, "o", 2.0))
        if math.isfinite(row["decision_rounds"]):
            ax.plot([row["decision_rounds"]], [k], "D", color=ORANGE, markersize=6)
    _rows(ax, [f"{_name(row['policy'])}, {percent(row['explore'])} exploration" for row in rows])
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    _marked_line(ax, summary["logged"], "logged so far", "--", 0)
    ax.set_xlabel("rounds")
    against = "the log" if summary["baseline"] is None else _name(summary["baseline"])
    ax.plot([], [], "o-", color=BLUE, label=f"{percent(summary['level'])} interval of ±{summary['half_width']:.3g}")
    if any(math.isfinite(row["decision_rounds"]) for row in rows):
        ax.plot([], [], "D", color=ORANGE, linestyle="none", label=f"decided against {against}")
    ax.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def sensitivity(summary: Summary, ax: Axes | None = None) -> Axes:
    """The bounds by Γ, the interval around them, and the logged mean, with the Γ at which they meet."""
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
            words = f"{summary['claim']} up to {summary[name]:.3g}" + (", with the interval" if name == "surely_to" else "")
            ax.axvline(summary[name], color=RED, linestyle=style, linewidth=1.2, label=words)
    ax.set_xlabel("Γ: true propensities are up to Γ times larger or smaller")
    ax.set_ylabel(f"{_name(summary['reward'])} per round")
    ax.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def actions(summary: Summary, ax: Axes | None = None, dimension: int = 0) -> Axes:
    """Where the log has actions along one dimension, and an outline of where each policy goes."""
    every = summary.get("action_axis", ())
    if not every:
        raise InputError("there is no axis of actions to plot: it needs actions that are numbers, and the whole log.")
    if not 0 <= dimension < len(every):
        raise InputError(f"there is no dimension {dimension}; there are {len(every)}, numbered from 0.")
    chosen = every[dimension]
    edges = np.asarray(chosen["edges"], dtype=float)
    ax = _axes(ax, (6.5, 3.4))
    logged = np.asarray(chosen["logged"]["shares"], dtype=float)
    ax.bar(edges[:-1], 100 * logged, np.diff(edges), align="edge", color=BLUE, alpha=0.35, label="logged")
    for k, policy in enumerate(chosen["policies"]):
        shares = 100 * np.asarray(policy["shares"], dtype=float)
        colour = OUTLINES[(k + 1) % len(OUTLINES)]
        ax.stairs(shares, edges, color=colour, linestyle=LINES[k % len(LINES)], linewidth=1.8, label=_name(policy["policy"]))
    ax.set_xlabel("action" if chosen["dimension"] is None else f"dimension {dimension} of the action")
    ax.set_ylabel("% of actions")
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", alpha=0.3)
    ax.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def bandwidths(summary: Summary, ax: Axes | None = None, estimator: str | None = None, policy: str | None = None) -> Axes:
    """What each width of a kernel estimator gives, and the mix of all with its interval."""
    mixes = [e for e in summary["estimates"] if e["diagnostics"].get("bandwidths")]
    lead = summary["headline"]["estimator"]
    mixes = sorted(mixes, key=lambda e: e["estimator"] != lead)
    chosen = next((e for e in mixes if estimator in (None, e["estimator"]) and policy in (None, e["policy"])), None)
    if chosen is None:
        known = ", ".join(f"{e['estimator']} for {e['policy']}" for e in mixes) or "none"
        raise InputError(f"there is no such estimate with several bandwidths; there are: {known}. Add op.KernelDR().")
    rows, interval = chosen["diagnostics"]["bandwidths"], chosen["interval"]
    ax = _axes(ax, (6.5, 3.6))
    ax.axhspan(interval["low"], interval["high"], color=BLUE, alpha=0.12, linewidth=0)
    mixed = f"{_name(chosen['estimator'])}: the mix of all, with its {percent(summary['level'])} interval"
    ax.axhline(chosen["value"], color=BLUE, linewidth=1.4, label=mixed)
    kinds, widths = action_axis.kinds(rows), sorted({row["share_of_range"]: row for row in rows}.items())
    place = {share: k for k, (share, _) in enumerate(widths)}
    for k, kind in enumerate(kinds):
        own = [row for row in rows if row["estimator"] == kind]
        at = [place[row["share_of_range"]] + (k - (len(kinds) - 1) / 2) * 0.2 for row in own]
        values, errors = ([row[name] for row in own] for name in ("value", "std_error"))
        ax.errorbar(at, values, TWO_SIDED_95 * np.array(errors), fmt="o", color=OUTLINES[k + 1], markersize=6, linewidth=1.6,
                    label=f"{_name(kind)}, one width, with 95% intervals")  # fmt: skip
    for share, row in widths:
        ax.annotate(count(row["effective_rounds"]), (place[share], 0), (0, 3), xycoords=("data", "axes fraction"),
                    textcoords="offset points", ha="center", fontsize=SMALL, color=GREY)  # fmt: skip
    shares = any(isinstance(row["bandwidth"], (list, tuple)) for row in rows)
    labels = [f"{row['share_of_range' if shares else 'bandwidth']:.2g}" for _, row in widths]
    ax.set_xticks(range(len(widths)), labels)
    ax.set_xlabel(f"width of the kernel{', as a share of the range' if shares else ''} (above it: effective rounds)")
    ax.set_ylabel(f"{_name(summary['reward'])} per round")
    ax.margins(y=0.15)
    ax.grid(axis="y", alpha=0.3)
    ax.legend(fontsize=SMALL, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
    return ax


def dose_response(summary: Summary, ax: Axes | None = None) -> Axes:
    """The value of each action taken in every round, with pointwise intervals; dashed where there are too few rounds."""
    curve = summary.get("dose_response")
    if curve is None:
        raise InputError(
            "there is no curve to plot: it needs actions that are single numbers, their densities, and the whole log."
        )
    ax = _axes(ax, (6.5, 3.6))
    points = [p for p in curve["points"] if p["value"] is not None]
    smooth = [p for p in points if not p["point"]]
    action, value, low, high = (
        np.array([math.nan if p[key] is None else p[key] for p in smooth], dtype=float)
        for key in ("action", "value", "low", "high")
    )
    known = np.isfinite(low)
    ax.fill_between(action, low, high, color=BLUE, alpha=0.15, linewidth=0, label=f"{percent(curve['level'])} intervals")
    ax.plot(action, value, color=GREY, linewidth=1.2, linestyle=":", zorder=1,
            label=None if known.all() else "too few rounds: the reward model alone")  # fmt: skip
    ax.plot(action, np.where(known, value, np.nan), color=BLUE, linewidth=1.8, marker="o", markersize=3.5,
            label=f"always this action, by {_name(curve['estimator'])}")  # fmt: skip
    for p in (p for p in points if p["point"]):
        error = None if p["std_error"] is None else TWO_SIDED_95 * p["std_error"]
        ax.errorbar([p["action"]], [p["value"]], error, fmt="D", color=RED, markersize=5)
    if summary.get("logged"):
        ax.axhline(summary["logged"]["value"], color=GREY, linestyle="--", linewidth=0.9, label="logged mean")
    ax.set_xlabel("action")
    ax.set_ylabel(f"{_name(summary['reward'])} per round")
    ax.grid(alpha=0.3)
    ax.legend(fontsize=SMALL, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return ax


@dataclass(frozen=True)
class Plots:
    """The plots of one result, such as `result.plot.estimates()`.

    Each method takes Matplotlib axes, by default those of a new figure, and returns them.

    Parameters
    ----------
    summary : function
        Returns the result as a plain dict, with up to this many actions of the embedding.
    bounded : function
        Returns the sensitivity bounds of a policy for a sequence of Γ.
    compared : function
        Returns the comparison of all policies with a baseline.
    """

    summary: Callable[[int], Summary]
    bounded: Callable[[Sequence[float], str | None], Summary]
    compared: Callable[[str | None], Summary]

    def estimates(self, ax: Axes | None = None) -> Axes:
        """Plot every estimate with its interval and verdict.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return estimates(self.summary(0), ax)

    def weights(self, ax: Axes | None = None, policy: str | None = None) -> Axes:
        """Plot the distribution of the weights.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.
        policy : str, optional
            Only the weights of this policy.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return weights(self.summary(0), ax, policy)

    def slots(self, ax: Axes | None = None, policy: str | None = None) -> Axes:
        """Plot the value of each slot of lists, beside what was logged there.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.
        policy : str, optional
            The policy; the first by default.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return slots(self.summary(0), ax, policy)

    def examination(self, ax: Axes | None = None) -> Axes:
        """Plot how often users look at each slot of lists, by `op.PBM`.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return examination(self.summary(0), ax)

    def calibration(self, ax: Axes | None = None, model: int = 0) -> Axes:
        """Plot predicted against observed rewards of a cross-fitted reward model.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.
        model : int, default=0
            Which of the reward models.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return calibration(self.summary(0), ax, model)

    def propensities(self, ax: Axes | None = None) -> Axes:
        """Plot logging probabilities against observed frequencies.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return propensities(self.summary(0), ax)

    def embedding(self, ax: Axes | None = None, shown: int = 2000) -> Axes:
        """Plot the learned embedding of actions in two dimensions.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.
        shown : int, default=2000
            The largest number of actions to show.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return embedding(self.summary(shown), ax)

    def differences(self, ax: Axes | None = None) -> Axes:
        """Plot the paired differences between policies.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return differences(self.summary(0), ax)

    def best(self, ax: Axes | None = None, baseline: str | None = None) -> Axes:
        """Plot the value of every policy with intervals that hold together.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.
        baseline : str, optional
            The policy that the others are compared with, by default what was logged.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return best(self.compared(baseline), ax)

    def actions(self, ax: Axes | None = None, dimension: int = 0) -> Axes:
        """Plot where the log has actions, and where each policy goes, if actions are numbers.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.
        dimension : int, default=0
            Which dimension of actions that are vectors.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return actions(self.summary(0), ax, dimension)

    def bandwidths(self, ax: Axes | None = None, estimator: str | None = None, policy: str | None = None) -> Axes:
        """Plot what each width of a kernel estimator gives, and the mix of all.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.
        estimator : str, optional
            The estimator; by default the headline, or the first that mixes several widths.
        policy : str, optional
            The policy, by default the first.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return bandwidths(self.summary(0), ax, estimator, policy)

    def dose_response(self, ax: Axes | None = None) -> Axes:
        """Plot the value of each action taken in every round, if actions are single numbers.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return dose_response(self.summary(0), ax)

    def sensitivity(self, ax: Axes | None = None, gamma: float | Sequence[float] = 2.0, policy: str | None = None) -> Axes:
        """Plot the bounds on the value if the propensities are wrong.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.
        gamma : float or sequence of float, default=2.0
            The plot runs from Γ = 1 to the largest of these. A saved result has only the Γ of `with_sensitivity`.
        policy : str, optional
            The policy, by default the first.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        largest = max(factors(gamma))
        steps = np.geomspace(1.0, largest, STEPS).tolist() if largest > 1 else [largest]
        return sensitivity(self.bounded(steps, policy), ax)


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The given axes, or those of a new figure."""
    import matplotlib.pyplot as plt

    axes: Axes = plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _name(text: object) -> str:
    """A name from the data, in which a dollar sign does not start a formula."""
    return label(text).replace("$", r"\$")


def _of(estimate: Summary) -> str:
    return f"{_name(estimate['policy'])}: {_name(estimate['estimator'])}"


@dataclass(frozen=True)
class _Look:
    """The style of a value and its interval."""

    colour: str
    marker: str
    width: float
    filled: bool = True


def _interval(ax: Axes, row: int, estimate: Summary, look: _Look) -> None:
    """A value and its interval in a row; a note where the value is not finite."""
    low, high, value = estimate["interval"]["low"], estimate["interval"]["high"], estimate["value"]
    if math.isfinite(low) and math.isfinite(high):
        ax.plot([low, high], [row, row], color=look.colour, linewidth=look.width, solid_capstyle="round")
    if math.isfinite(value):
        face = look.colour if look.filled else "white"
        ax.plot([value], [row], look.marker, color=look.colour, markersize=7, markerfacecolor=face, linestyle="none")
    else:
        across = ax.get_yaxis_transform()
        ax.text(0.01, row, "no estimate", transform=across, va="center", fontsize=SMALL, color=look.colour)


def _rows(ax: Axes, names: Sequence[str], bold: Sequence[bool] = ()) -> None:
    """Names on the left, the first row at the top."""
    ax.set_yticks(range(len(names)), names)
    for tick, leads in zip(ax.get_yticklabels(), bold, strict=False):
        tick.set_fontweight("bold" if leads else "normal")
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="x", alpha=0.3)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)


def _marked_line(ax: Axes, value: float, words: str, style: str, row: int) -> None:
    """A vertical line, labelled above the axes; further labels are placed higher, so that they never overlap."""
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
    handles.append(Patch(color=BLUE, alpha=0.15, label="headline"))
    ax.legend(handles=handles, title="verdict", fontsize=SMALL, title_fontsize=SMALL, loc="center left",
              bbox_to_anchor=(1, 0.5), frameon=False)  # fmt: skip


def _weights_in_words(summary: Summary, overlap: Summary) -> str:
    """The kind of weight, the effective sample size, and the number of rounds with weight 0."""
    kind = "π/π₀" if overlap["kind"] == "action" else f"by embedding ({', '.join(map(_name, overlap['estimators']))})"
    of = f" of {_name(overlap['policy'])}" if len(summary["policies"]) > 1 else ""
    zero = f"; {count(overlap['zero'])} rounds have weight 0" if overlap["zero"] else ""
    largest = number(overlap["largest"], overlap["largest"] / 10)
    return f"{kind}{of}: {count(overlap['effective_sample_size'])} effective rounds, largest weight {largest}{zero}"


def _name_points(ax: Axes, names: Sequence[str], x: Any, y: Any) -> None:
    """Label the first points, without overlapping labels."""
    from matplotlib.patheffects import withStroke

    ax.autoscale_view()
    scale = ax.figure.dpi / 72
    boxes: list[tuple[float, float, float, float]] = []
    for name, place in zip(names[:LABELLED], np.column_stack([x, y])[:LABELLED], strict=True):
        left, low = ax.transData.transform(place) + 4 * scale
        box = (left, low, left + 0.62 * SMALL * scale * len(label(name)), low + 1.2 * SMALL * scale)
        if not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in boxes):
            boxes.append(box)
            halo = [withStroke(linewidth=2, foreground="white")]
            ax.annotate(_name(name), place, (4, 4), textcoords="offset points", fontsize=SMALL, path_effects=halo)

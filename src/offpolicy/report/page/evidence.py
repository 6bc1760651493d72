"""What the answer rests on: the overlap of the policies, the reward models and the map of actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offpolicy.diagnostics.verdict import LIMITS
from offpolicy.report.formatting import count, label, number, shortened
from offpolicy.report.page import charts
from offpolicy.report.page.answer import Summary, isolated, listed, rough, share, shown
from offpolicy.report.page.charts import CalibrationPlot, Dot, Histogram, finite

MOST_SAID = 240_000
"""Bytes that are said of all points together, so that the page stays small."""
SHORTER = ((None, 5), (20, 3), (12, 2), (8, 1))
"""Letters of a label, and nearest actions: the first that keeps within it, or the last."""
MOST_LOGGED = 20


@dataclass(frozen=True)
class Fact:
    """A number with what it means and what is good."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class OverlapView:
    policy: str
    kind: str
    estimators: str
    picture: Histogram
    alternative: str
    facts: tuple[Fact, ...]


def overlaps(summary: Summary) -> list[OverlapView]:
    return [_overlap(o) for o in summary.get("overlap") or []]


def _overlap(o: Summary) -> OverlapView:
    picture = charts.histogram(o["edges"], o["counts"], o["zero"])
    facts = [_effective(o), *_concentrated(o), *_mean(o), *_support(o)]
    return OverlapView(
        policy=label(o["policy"]),
        kind=o["kind"],
        estimators=listed(o["estimators"]),
        picture=picture,
        alternative=(
            f"Distribution of {o['rounds']:,} weights on a log scale. "
            f"Effective sample size {count(o['effective_sample_size'])}; largest weight {_few_digits(o['largest'])}."
        ),
        facts=tuple(facts),
    )


def _effective(o: Summary) -> Fact:
    ess, rounds = o["effective_sample_size"], o["rounds"]
    part = f", {share(ess / rounds)} of the {rounds:,} logged" if rounds and finite(ess) else ""
    good = LIMITS["effective rounds"]
    meaning = (
        f"The log counts like this many rounds of the new policy{part}. {good.caution:,.0f} or more is good; below "
        f"{good.stop:,.0f} is too few."
    )
    return Fact("Effective rounds", count(ess), meaning)


def _few_digits(value: float | None) -> str:
    return number(value, None if value is None else abs(value) / 100)


def _concentrated(o: Summary) -> list[Fact]:
    top, largest = o["top_1_percent_share"], o["largest"]
    part = f" One round has at most {share(o['largest_share'])} of the sum." if finite(o["largest_share"]) else ""
    return [
        Fact(
            "Held by the top 1%",
            share(top),
            f"Of the sum of all weights. Below {LIMITS['top weights'].caution:.0%} is good; near 100% a few rounds decide.",
        ),
        Fact(
            "Largest weight",
            _few_digits(largest),
            f"Of any one round.{part} Below {LIMITS['largest weight'].caution:.0%} is good.",
        ),
    ]


def _mean(o: Summary) -> list[Fact]:
    if o["kind"] != "action":
        return [
            Fact(
                "Mean weight",
                _few_digits(o["mean"]),
                "Near 1 for most such weights; those that are divided by it need not be.",
            )
        ]
    meaning = "1, but for chance, where the propensities are right and the log covers what the new policy does."
    return [Fact("Mean weight", _few_digits(o["mean"]), meaning)]


def _support(o: Summary) -> list[Fact]:
    """What the new policy does where the log is silent; only what is known."""
    said = (
        (
            "target_mass_without_support",
            "No chance in the old policy",
            "Choices of the new policy that the old one never makes.",
        ),
        ("target_mass_never_logged", "Never logged", "Choices of the new policy that are not in this log."),
    )
    return [
        Fact(name, share(o[key]), f"{meaning} Below 1% is good; there the log says nothing.")
        for key, name, meaning in said
        if o[key] is not None
    ]


@dataclass(frozen=True)
class ModelView:
    name: str
    estimators: str
    r2: str
    meaning: str
    picture: CalibrationPlot
    alternative: str
    bins: tuple[tuple[str, str, str], ...]


def models(summary: Summary) -> list[ModelView]:
    return [_model(m) for m in summary.get("calibration") or []]


def _model(m: Summary) -> ModelView:
    picture, r2 = charts.calibration(m["bins"]), m["r2"]
    bins = [b for b in m["bins"] if finite(b["predicted"]) and finite(b["observed"])]
    off = [b for b in bins if finite(b["std_error"]) and abs(b["observed"] - b["predicted"]) > 2 * b["std_error"]]
    said = f"{len(off)} of {len(bins)} groups lie more than two standard errors from the diagonal"
    return ModelView(
        name=label(m["model"]),
        estimators=listed(m["estimators"]),
        r2=shown(r2, 0.01),
        meaning=_explains(r2) + (f" {said}." if bins else ""),
        picture=picture,
        alternative=f"Observed against predicted reward in {len(bins)} groups of rounds with error bars; {said}.",
        bins=tuple((shown(b["predicted"], b["std_error"]), _observed(b), count(b["rounds"])) for b in bins),
    )


def _observed(b: Summary) -> str:
    error = b["std_error"]
    return f"{shown(b['observed'], error)} ± {rough(error)}" if finite(error) else shown(b["observed"])


def _explains(r2: float | None) -> str:
    if r2 is None or not finite(r2):
        return "How much it explains of rounds that it was not fitted on is not known."
    if r2 <= 0:
        return "It explains nothing of rounds that it was not fitted on."
    return f"It explains {share(r2)} of how rewards vary in rounds that it was not fitted on."


@dataclass(frozen=True)
class PropensityView:
    meaning: str
    picture: CalibrationPlot
    alternative: str
    bins: tuple[tuple[str, str, str], ...]


def propensities(summary: Summary) -> PropensityView | None:
    """Chances of the logging policy against what was taken; only where the whole policy is known."""
    p = summary.get("propensities")
    if not p or not p["bins"]:
        return None
    off = sum(abs(b["observed"] - b["predicted"]) > 2 * b["std_error"] for b in p["bins"])
    said = f"{off} of {len(p['bins'])} groups lie more than two standard errors from the diagonal"
    how = {"estimated": f"Estimated ({p.get('model')}), for rounds that the model was not fitted on"}
    return PropensityView(
        meaning=f"{how.get(p['source'], 'As given')}: {said}.",
        picture=charts.calibration(p["bins"]),
        alternative=f"How often actions were taken against their chance, in {len(p['bins'])} groups; {said}.",
        bins=tuple((shown(b["predicted"], b["std_error"]), _observed(b), count(b["rounds"])) for b in p["bins"]),
    )


@dataclass(frozen=True)
class MapPoint:
    dot: Dot
    title: str


@dataclass(frozen=True)
class ActionRow:
    action: str
    count: str
    reward: str
    nearest: tuple[str, ...]


@dataclass(frozen=True)
class MapView:
    estimator: str
    chosen: str
    dimensions: int
    explained: str
    logged: str
    points: tuple[MapPoint, ...]
    alternative: str
    low: str
    high: str
    shaded: bool
    unknown: bool
    unlogged: bool
    sizes: tuple[tuple[float, str], ...]
    table: tuple[ActionRow, ...]
    without_place: int


def action_map(summary: Summary) -> MapView | None:
    """The map; large points first, so that small ones stay in sight."""
    e = summary.get("embedding")
    if not e or not e["points"]:
        return None
    points = sorted(e["points"], key=lambda p: p["count"] if finite(p["count"]) else 0.0, reverse=True)
    shades = charts.Shades.of([p["reward"] for p in points])
    dots = charts.dots(points, shades)
    step = None if shades is None else (shades.high - shades.low) / 10  # the digits that tell rewards apart
    titles = _titles(points, step)
    drawn = tuple(MapPoint(dot, title) for title, dot in zip(titles, dots, strict=True) if dot is not None)
    ends = ("≤\u00a0", "≥\u00a0") if shades is not None and shades.beyond else ("", "")
    return MapView(
        estimator=label(e["estimator"]),
        chosen=e["chosen"],
        dimensions=e["dimensions"],
        explained=share(e["explained"]),
        logged=f"{e['logged']:,} of {e['actions']:,}",
        points=drawn,
        alternative=(
            f"Map of {len(drawn):,} actions by their learned embedding, in two dimensions. Larger is logged more often, "
            "colour is the estimated reward. The most logged actions stand in the table below."
        ),
        low="" if shades is None else ends[0] + shown(shades.low, step),
        high="" if shades is None else ends[1] + shown(shades.high, step),
        shaded=shades is not None,
        unknown=any(not finite(p["reward"]) for p in points),
        unlogged=any(not (finite(p["count"]) and p["count"] > 0) for p in points),
        sizes=_sizes(points),
        table=tuple(_action(p, step) for p in points[:MOST_LOGGED]),
        without_place=len(points) - len(drawn),
    )


def _sizes(points: Sequence[Mapping[str, Any]]) -> tuple[tuple[float, str], ...]:
    """Examples for the legend: the largest count and about a tenth of it."""
    largest = max((p["count"] for p in points if finite(p["count"])), default=0.0)
    shown_counts = [c for c in (largest / 10, largest) if c >= 1]
    return tuple((charts.radius(c, largest, len(points)), count(c)) for c in shown_counts)


def _titles(points: Sequence[Mapping[str, Any]], step: float | None) -> list[str]:
    """What is said of each point, in as many words as there is room for."""
    for letters, nearest in SHORTER:
        titles = [_title(p, letters, nearest, step) for p in points]
        if sum(len(title.encode("utf-8", "replace")) for title in titles) <= MOST_SAID:
            break
    return titles


def _title(p: Mapping[str, Any], cut: int | None, most: int, step: float | None) -> str:
    """A fact a line: the script makes its tooltip of these."""
    nearest = [_named(name, cut) for name in p["nearest"][:most]]
    lines = [_named(p["action"], cut), f"{count(p['count'])} rounds", f"reward {shown(p['reward'], step)}"]
    return "\n".join([*lines, *(["near " + ", ".join(nearest)] if nearest else [])])


def _named(name: str, cut: int | None) -> str:
    return isolated(label(name) if cut is None else shortened(label(name), cut))


def _action(p: Mapping[str, Any], step: float | None) -> ActionRow:
    nearest = tuple(label(name) for name in p["nearest"])
    return ActionRow(label(p["action"]), count(p["count"]), shown(p["reward"], step), nearest)

"""The geometry of the report's pictures: scales, ticks, marks and bars, all in percent of the drawing.

A drawing in percent adapts to the width of the page and keeps its font size. Nothing here depends on HTML, and no value,
however extreme, gives a coordinate outside 0..100.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HUGE, TINY = 1e300, 1e-290
"""Beyond these, differences overflow or have no digits left: such a value is treated as infinite, or as 0."""
COLOURS = 9
"""The number of colours in the scale for rewards."""
MOST_LETTERS = 36
"""The limit for all tick labels of an axis together, so that they do not overlap on a phone."""
WIDE = 2.5
"""An axis may be this many times wider than the headline intervals before it is cut."""


def finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and abs(value) < HUGE


def percent(share: float) -> float:
    """A share as a coordinate."""
    return round(100 * min(max(share, 0.0), 1.0), 2)


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Scale:
    """A map from values to positions between 0 and 100."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float | None], margin: float = 0.05) -> Scale:
        """A scale that contains all finite values with a margin; 0 to 1 where there are none.

        >>> Scale.over([2.0, 4.0, float("nan"), None], margin=0.1)
        Scale(low=1.8, high=4.2)
        """
        known = [float(v) if abs(v) > TINY else 0.0 for v in values if v is not None and finite(v)]
        if not known:
            return cls(0.0, 1.0)
        low, high = min(known), max(known)
        padding = margin * (high - low)
        if high - low <= 1e-12 * max(abs(low), abs(high)):
            padding = 0.1 * abs(low) or 1.0
        return cls(low - padding, high + padding)

    def at(self, value: float) -> float:
        """The position of a value, clipped to the edges."""
        if math.isnan(value):
            return 0.0
        return percent((min(max(value, self.low), self.high) - self.low) / (self.high - self.low))

    def ticks(self, number: int = 6) -> tuple[Tick, ...]:
        """Round numbers: none so close to the edge that its label is cut, and fewer where labels are long.

        >>> [tick.text for tick in Scale(0.03, 0.42).ticks()]
        ['0.1', '0.2', '0.3', '0.4']
        """
        step = _round_step((self.high - self.low) / number)
        first = math.ceil(self.low / step)
        values = [k * step for k in range(first, math.floor(self.high / step) + 1)]
        ticks = [tick for tick in (Tick(self.at(v), tick_text(v, step)) for v in values) if 3 <= tick.at <= 97]
        return tuple(ticks[:: -(-sum(len(tick.text) for tick in ticks) // MOST_LETTERS) or 1])


def _round_step(rough: float) -> float:
    """The next of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(k * power for k in (1, 2, 5, 10, 20) if k * power >= rough * (1 - 1e-9))


def tick_text(value: float, step: float) -> str:
    """The label of a tick, with as many digits as the step needs."""
    size = math.floor(math.log10(step))
    if abs(value) < step / 2:
        return "0"
    if abs(value) >= 1e6 or step < 1e-4:
        digits = max(0, math.floor(math.log10(abs(value))) - size)
        mantissa, _, power = f"{value:.{min(digits, 12)}e}".partition("e")
        return f"{mantissa}e{int(power)}".replace("-", "−")
    return f"{value:,.{max(0, -size)}f}".replace("-", "−")


@dataclass(frozen=True)
class Line:
    """A value shown across all rows: the logged mean, a known true value, no difference."""

    kind: str
    at: float


@dataclass(frozen=True)
class Axis:
    """The axis that the intervals of a table share."""

    scale: Scale
    ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]

    @classmethod
    def of(cls, core: Sequence[float | None], others: Sequence[float | None], lines: Mapping[str, float | None]) -> Axis:
        """An axis that contains the `core`, and the others as far as they leave the core visible."""
        inner, scale = Scale.over([*core, *lines.values()]), Scale.over([*core, *lines.values(), *others])
        width = inner.high - inner.low
        if scale.high - scale.low > WIDE * width:
            margin = (WIDE - 1) / 2 * width
            scale = Scale(max(scale.low, inner.low - margin), min(scale.high, inner.high + margin))
        drawn = [Line(kind, scale.at(v)) for kind, v in lines.items() if v is not None and finite(v)]
        known = any(map(finite, [*core, *others, *lines.values()]))
        return cls(scale, scale.ticks() if known else (), tuple(drawn))


@dataclass(frozen=True)
class Strip:
    """A value and its interval; None where there is nothing to draw."""

    value: float | None
    low: float | None
    high: float | None
    cut_low: bool
    cut_high: bool

    @classmethod
    def of(cls, scale: Scale, value: float | None, interval: Mapping[str, Any]) -> Strip:
        low, high = interval["low"], interval["high"]
        whole = low is not None and high is not None and not math.isnan(low) and not math.isnan(high)
        return cls(
            value=scale.at(value) if value is not None and finite(value) and scale.low <= value <= scale.high else None,
            low=scale.at(low) if whole else None,
            high=scale.at(high) if whole else None,
            cut_low=whole and low < scale.low,
            cut_high=whole and high > scale.high,
        )


@dataclass(frozen=True)
class Bar:
    left: float
    width: float
    rounds: float
    weight: float
    title: str


@dataclass(frozen=True)
class Histogram:
    """Weights on a log scale: the share of rounds in each bin, and their share of the sum of weights."""

    bars: tuple[Bar, ...]
    zero: Bar | None
    start: float
    """The start of the log scale, after the bar of rounds with weight 0."""
    ticks: tuple[Tick, ...]
    heights: tuple[Tick, ...]
    one: float | None
    """The position of weight 1: as likely under the new policy as under the logging policy."""


MOST_BARS = 36
SMALLEST = 0.002
"""The share of rounds, those with the smallest weights, that the first bar collects."""
ZERO_WIDTH = 9.0


def histogram(edges: Sequence[float], counts: Sequence[float], zero: float) -> Histogram:
    """The bars, without empty ones at the ends, and with neighbours merged where there are many."""
    edges, counts = _trimmed(edges, counts)
    zero = zero if finite(zero) else 0.0
    while len(counts) > MOST_BARS:
        if len(counts) % 2:  # add an empty one, so that all bars have the same width
            edges, counts = [*edges, edges[-1] ** 2 / edges[-2]], [*counts, 0.0]
        counts = [sum(counts[k : k + 2]) for k in range(0, len(counts), 2)]
        edges = [*edges[:-1:2], edges[-1]]
    rounds = sum(counts) + max(zero, 0.0)
    sums = [c * math.sqrt(low * high) for c, low, high in zip(counts, edges, edges[1:], strict=False)]
    shares = [s / sum(sums) for s in sums]
    up = Scale(0.0, 108 * max([c / rounds for c in (*counts, zero) if c > 0] + shares, default=1.0))  # in percent
    start = ZERO_WIDTH + 3 if zero > 0 else 0.0
    along = _log_scale(edges[0], edges[-1]) if counts else Scale(-1.0, 1.0)

    def x(value: float) -> float:
        return round(start + along.at(math.log10(value)) * (100 - start) / 100, 2)

    bars = [
        Bar(x(low), round(x(high) - x(low), 2), up.at(100 * c / rounds), up.at(100 * s),
            f"weights {low:.3g} to {high:.3g}: {c / rounds:.1%} of rounds, about {s:.1%} of the sum of weights")
        for low, high, c, s in zip(edges, edges[1:], counts, shares, strict=False) if c > 0
    ]  # fmt: skip
    title = f"weight 0: {zero / rounds:.1%} of rounds" if zero > 0 else ""
    none = Bar(0.0, ZERO_WIDTH, up.at(100 * zero / rounds), 0.0, title) if zero > 0 else None
    heights = tuple(Tick(tick.at, f"{tick.text}%") for tick in up.ticks(4))
    inside = bool(counts) and along.low <= 0 <= along.high
    return Histogram(tuple(bars), none, start, _powers(along, start), heights, x(1.0) if inside else None)


def _trimmed(edges: Sequence[float], counts: Sequence[float]) -> tuple[list[float], list[float]]:
    """Edges and counts without empty bins at the ends; the smallest weights, which hardly count, are merged."""
    whole = all(finite(e) and e > 0 for e in edges) and all(finite(c) for c in counts) and len(edges) == len(counts) + 1
    used = [k for k, c in enumerate(counts) if c > 0] if whole else []
    if not used:
        return [], []
    total, first = sum(counts), used[0]
    while sum(counts[: first + 1]) < SMALLEST * total:
        first += 1
    return list(edges[first : used[-1] + 2]), [sum(counts[: first + 1]), *counts[first + 1 : used[-1] + 1]]


def _log_scale(low: float, high: float) -> Scale:
    """In powers of ten, at least two of them, so that similar weights look similar."""
    middle, half = math.log10(low * high) / 2, max(math.log10(high / low) / 2, 1.0)
    return Scale(middle - half, middle + half)


def _powers(along: Scale, start: float) -> tuple[Tick, ...]:
    """At most seven ticks at powers of ten."""
    powers = range(math.ceil(along.low - 1e-9), math.floor(along.high + 1e-9) + 1)
    values = [10.0**k for k in powers if k % max(1, -(-len(powers) // 7)) == 0]
    places = [(start + along.at(math.log10(v)) * (100 - start) / 100, v) for v in values]
    return tuple(Tick(round(at, 2), f"{v:,.9g}" if 1e-4 <= v < 1e6 else f"{v:.2g}") for at, v in places if at <= 99)


@dataclass(frozen=True)
class Outline:
    """The steps of a histogram that is drawn over another, as the points of a line."""

    name: str
    points: str


@dataclass(frozen=True)
class ActionAxisChart:
    """Shares of actions along one dimension: bars of the log, and an outline of each policy."""

    bars: tuple[Bar, ...]
    outlines: tuple[Outline, ...]
    ticks: tuple[Tick, ...]
    heights: tuple[Tick, ...]


def action_axis(dimension: Mapping[str, Any]) -> ActionAxisChart:
    """The picture of one dimension; policies share the bars of the log."""
    edges, logged = dimension["edges"], dimension["logged"]["shares"]
    along = Scale(edges[0], edges[-1])
    every = [logged, *(policy["shares"] for policy in dimension["policies"])]
    up = Scale(0.0, 108 * max([share for shares in every for share in shares if finite(share)], default=0.0) or 100.0)
    bars = [
        Bar(along.at(low), round(along.at(high) - along.at(low), 2), up.at(100 * share), 0.0,
            f"{short(low)} to {short(high)}: {share:.1%} of logged actions")
        for low, high, share in zip(edges, edges[1:], logged, strict=False) if share > 0
    ]  # fmt: skip
    outlines = [
        Outline(
            policy["policy"], _steps([along.at(edge) for edge in edges], [up.at(100 * share) for share in policy["shares"]])
        )
        for policy in dimension["policies"]
    ]
    return ActionAxisChart(tuple(bars), tuple(outlines), along.ticks(), tuple(Tick(t.at, f"{t.text}%") for t in up.ticks(4)))


def _steps(edges: Sequence[float], heights: Sequence[float]) -> str:
    """The outline of bars; y grows downwards."""
    corners = [(edges[0], 0.0)]
    for left, right, height in zip(edges, edges[1:], heights, strict=False):
        corners += [(left, height), (right, height)]
    return _line([*corners, (edges[-1], 0.0)])


def _line(points: Sequence[tuple[float, float]]) -> str:
    """Points with y counted from the bottom, as SVG writes them."""
    return " ".join(f"{x:g},{round(100 - y, 2):g}" for x, y in points)


def short(value: float) -> str:
    """Four digits."""
    return f"{value:,.4g}".replace("-", "−")


@dataclass(frozen=True)
class CurveDot:
    x: float
    y: float
    low: float | None
    high: float | None
    title: str
    kind: int = 0


@dataclass(frozen=True)
class Curve:
    """Values along an axis: runs of a line and of its band, runs without a band, and dots; with lines across."""

    bands: tuple[str, ...]
    solid: tuple[str, ...]
    dashed: tuple[str, ...]
    dots: tuple[CurveDot, ...]
    ticks: tuple[Tick, ...]
    heights: tuple[Tick, ...]
    lines: tuple[Line, ...]
    shade: tuple[float, float] | None = None
    """The lower and the upper edge of a band across the whole picture."""


def dose_response(points: Sequence[Mapping[str, Any]], logged: float | None, titles: Sequence[str]) -> Curve:
    """The curve; dashed where there are too few rounds for an interval. Points with a probability stand alone."""
    supported = [p for p in points if finite(p["low"]) and finite(p["high"])]
    core = [end for p in supported for end in (p["low"], p["high"])]
    axis = Axis.of(core or [p["value"] for p in points], [p["value"] for p in points], {"logged": logged})
    along, up = Scale(points[0]["action"], points[-1]["action"]), axis.scale
    # What a model alone predicts far from the log may be far off, and must not flatten the rest.
    smooth = [
        p for p in points if not p["point"] and finite(p["value"]) and (finite(p["low"]) or up.low <= p["value"] <= up.high)
    ]
    drawn = [*smooth, *(p for p in points if p["point"] and finite(p["value"]))]
    places = {id(p): (along.at(p["action"]), up.at(p["value"])) for p in drawn}
    bands, solid, dashed = [], [], []
    for known, run in _runs(smooth):
        if known:
            above = [(along.at(p["action"]), up.at(p["high"])) for p in run]
            below = [(along.at(p["action"]), up.at(p["low"])) for p in run]
            bands.append(_line([*above, *reversed(below)]))
            solid.append(_line([places[id(p)] for p in run]))
        else:
            dashed.append(_line([places[id(p)] for p in run]))
    dots = [_curve_dot(places[id(p)], p, up, title) for p, title in zip(points, titles, strict=True) if id(p) in places]
    return Curve(tuple(bands), tuple(solid), tuple(dashed), tuple(dots), along.ticks(), up.ticks(5), axis.lines)


def _curve_dot(place: tuple[float, float], p: Mapping[str, Any], up: Scale, title: str) -> CurveDot:
    """A dot, with its interval if it stands alone."""
    alone = p["point"] and finite(p["low"]) and finite(p["high"])
    low, high = (round(100 - up.at(p[end]), 2) if alone else None for end in ("low", "high"))
    return CurveDot(place[0], round(100 - place[1], 2), low, high, title)


def _runs(points: Sequence[Mapping[str, Any]]) -> list[tuple[bool, list[Mapping[str, Any]]]]:
    """Runs of points with an interval, and between them runs without, which share their ends with their neighbours."""
    runs: list[tuple[bool, list[Mapping[str, Any]]]] = []
    for p in points:
        known = finite(p["low"]) and finite(p["high"])
        if not runs or runs[-1][0] != known:
            joint = [runs[-1][1][-1]] if runs and not known else []
            if runs and known:
                runs[-1][1].append(p)
            runs.append((known, joint))
        runs[-1][1].append(p)
    return runs


def bandwidths(estimate: Mapping[str, Any], titles: Sequence[str], errors: float = 2.0) -> Curve:
    """A dot with an error bar for each width, evenly spaced, and the mix of all as a line with its interval."""
    rows, interval = estimate["diagnostics"]["bandwidths"], estimate["interval"]
    ends = [(r["value"] - errors * r["std_error"], r["value"] + errors * r["std_error"]) for r in rows]
    whole = {"mix": estimate["value"]}
    axis = Axis.of(
        [interval["low"], interval["high"], *(r["value"] for r in rows)], [e for pair in ends for e in pair], whole
    )
    up, kinds = axis.scale, list(dict.fromkeys(r["estimator"] for r in rows))
    widths = sorted({r["share_of_range"]: r for r in rows}.items())
    step = 100 / max(len(widths), 1)
    centre = {share: (k + 0.5) * step for k, (share, _) in enumerate(widths)}
    apart = 0.3 * step / len(kinds)

    def place(r: Mapping[str, Any]) -> float:
        return round(centre[r["share_of_range"]] + (kinds.index(r["estimator"]) - (len(kinds) - 1) / 2) * apart, 2)

    dots = [
        CurveDot(place(r), round(100 - up.at(r["value"]), 2), round(100 - up.at(low), 2), round(100 - up.at(high), 2), title,
                 kinds.index(r["estimator"]))
        for r, (low, high), title in zip(rows, ends, titles, strict=True) if finite(r["value"])
    ]  # fmt: skip
    labels = _width_labels([r for _, r in widths])
    ticks = tuple(Tick(round(at, 2), text) for at, text in zip(centre.values(), labels, strict=True))
    known = finite(interval["low"]) and finite(interval["high"])
    shade = (round(100 - up.at(interval["low"]), 2), round(100 - up.at(interval["high"]), 2)) if known else None
    return Curve((), (), (), tuple(dots), ticks, up.ticks(5), axis.lines, shade)


def _width_labels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Widths as numbers; of vectors, as shares of the range."""
    if any(isinstance(r["bandwidth"], (list, tuple)) for r in rows):
        return [f"{r['share_of_range']:.2g}" for r in rows]
    return [short(float(f"{r['bandwidth']:.2g}")) for r in rows]


@dataclass(frozen=True)
class CalibrationDot:
    x: float
    y: float
    low: float
    high: float
    title: str


@dataclass(frozen=True)
class CalibrationPlot:
    """Predicted against observed on one scale, so that the diagonal runs from corner to corner."""

    dots: tuple[CalibrationDot, ...]
    ticks: tuple[Tick, ...]


def calibration(bins: Sequence[Mapping[str, Any]], errors: float = 2.0) -> CalibrationPlot:
    """Dots with bars of `errors` standard errors each way; y grows downwards, as in SVG."""
    known = [b for b in bins if finite(b["predicted"]) and finite(b["observed"])]
    margin = [errors * b["std_error"] if finite(b["std_error"]) else 0.0 for b in known]
    values = [v for b, r in zip(known, margin, strict=True) for v in (b["predicted"], b["observed"] - r, b["observed"] + r)]
    scale = Scale.over(values)
    dots = [
        CalibrationDot(
            scale.at(b["predicted"]), 100 - scale.at(b["observed"]),
            round(100 - scale.at(b["observed"] - r), 2), round(100 - scale.at(b["observed"] + r), 2),
            f"predicted {b['predicted']:.4g}, observed {b['observed']:.4g}{_give_or_take(b['std_error'])} in "
            f"{b['rounds']:,} {b.get('of', 'rounds')}",
        )
        for b, r in zip(known, margin, strict=True)
    ]  # fmt: skip
    return CalibrationPlot(tuple(dots), scale.ticks() if known else ())


@dataclass(frozen=True)
class Shades:
    """Colours of rewards, linear between the 5% and 95% quantiles, so that one extreme action does not use up the scale."""

    low: float
    high: float
    beyond: bool
    """Whether some rewards are outside and have the colour of an end."""

    @classmethod
    def of(cls, rewards: Sequence[float | None]) -> Shades | None:
        known = sorted(float(r) for r in rewards if r is not None and finite(r))
        if not known:
            return None
        low, high = known[round(0.05 * (len(known) - 1))], known[round(0.95 * (len(known) - 1))]
        return cls(low, high, known[0] < low or known[-1] > high)

    def step(self, reward: float) -> int:
        """The index of the colour."""
        if self.high <= self.low:
            return COLOURS // 2
        return min(COLOURS - 1, int(COLOURS * max(0.0, (reward - self.low) / (self.high - self.low))))


MAP_RATIO = 4 / 3
"""Width divided by height of the map. Both axes have the same unit, so that distances mean the same in any direction."""


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    radius: float
    colour: str


def radius(count: float, largest: float, points: int) -> float:
    """The radius of a point, whose area grows with the count. Points are smaller where there are many."""
    most = 11.0 if points <= 200 else 8.0
    share = count / largest if largest > 0 and finite(count) and count > 0 else 0.0
    return round(2.5 + (most - 2.5) * math.sqrt(share), 1)


def dots(points: Sequence[Mapping[str, Any]], shades: Shades | None) -> list[Dot | None]:
    """The position of each point; None for one without coordinates."""
    placed = [p for p in points if finite(p["x"]) and finite(p["y"])]
    across, up = Scale.over([p["x"] for p in placed]), Scale.over([p["y"] for p in placed])
    half = max((across.high - across.low) / 2, MAP_RATIO * (up.high - up.low) / 2)
    across, up = _around(across, half), _around(up, half / MAP_RATIO)
    largest = max((p["count"] for p in placed if finite(p["count"])), default=0.0)

    def dot(p: Mapping[str, Any]) -> Dot | None:
        if not (finite(p["x"]) and finite(p["y"])):
            return None
        known = shades is not None and finite(p["reward"])
        colour = f"k{shades.step(p['reward'])}" if shades is not None and known else "none"
        colour += "" if finite(p["count"]) and p["count"] > 0 else " unlogged"
        r = radius(p["count"], largest, len(points))
        return Dot(round(across.at(p["x"]), 1), round(100 - up.at(p["y"]), 1), r, colour)

    return [dot(p) for p in points]


def _around(scale: Scale, half: float) -> Scale:
    middle = scale.low + (scale.high - scale.low) / 2
    return Scale(middle - half, middle + half)


def _give_or_take(error: float | None) -> str:
    return f" ± {error:.2g}" if error is not None and finite(error) else ""

"""Words and tables about actions that are numbers: where they are, the value of each, and the estimate over bandwidths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offpolicy.report.formatting import Summary, count, label, number, percent, span

Table = tuple[list[str], list[list[str]]]
"""The header and the cells."""
BANDWIDTH_HEADER = (
    "width", "of range", "value", "std. error", "eff. rounds", "mean weight", "over a bound", "share",
)  # fmt: skip
BANDWIDTH_MEANING = (
    "Over a bound: the share of rounds whose kernel would leave the box, and is corrected. The shares of all candidates in "
    "the mix sum to 100%."
)
CURVE_HEADER = ("action", "value", "interval", "eff. rounds")


def notes(result: Summary) -> Iterator[str]:
    """Where the actions are, and which single action would earn most; nothing unless actions are numbers."""
    for dimension in result.get("action_axis") or ():
        where = "" if dimension["dimension"] is None else f" in dimension {dimension['dimension']}"
        yield f"The middle 90% of actions{where}: {'; '.join(_middles(dimension))}."
    best = best_point(result)
    if best is not None:
        curve = result["dose_response"]
        error = best["std_error"]
        interval = f"{percent(curve['level'])} interval {span(best, error)}"
        yield (
            f"The best single action for all rounds is about {few(best['action'])}: it would earn "
            f"{number(best['value'], error)} per round ({interval}), somewhat overestimated as the best of "
            f"{len(curve['points'])}."
        )


def _middles(dimension: Summary) -> Iterator[str]:
    for name, part in (("the log", dimension["logged"]), *((label(p["policy"]), p) for p in dimension["policies"])):
        low, high = part["middle"]
        yield f"{name} {few(low)} to {few(high)}"


def best_point(result: Summary) -> Summary | None:
    """The point of the curve with the largest value, among those with an interval."""
    curve = result.get("dose_response")
    known = [p for p in (curve or {}).get("points", ()) if p["low"] is not None]
    return max(known, key=lambda p: float(p["value"]), default=None)


def bandwidth_table(rows: Sequence[Summary]) -> Table:
    """The widths of an estimate, with the kernel estimator where there are several."""
    error = min((row["std_error"] for row in rows if row["std_error"] > 0), default=None)
    several = len(kinds(rows)) > 1
    cells = [
        [
            *([label(row["estimator"])] if several else []),
            width(row),
            f"1/{1 / row['share_of_range']:.4g}",
            number(row["value"], error),
            number(row["std_error"], error),
            count(row["effective_rounds"]),
            number(row["mean_weight"], 0.01),
            "–" if row["actions_within_it_of_a_bound"] is None else percent(row["actions_within_it_of_a_bound"], 0.01),
            percent(row["weight"], 0.01),
        ]
        for row in rows
    ]
    return [*(["estimator"] if several else []), *BANDWIDTH_HEADER], cells


def kinds(rows: Sequence[Summary]) -> list[str]:
    """The kernel estimators that an estimate mixes."""
    return list(dict.fromkeys(row["estimator"] for row in rows))


def width(row: Summary) -> str:
    """The width in the unit of the actions, of vectors one per dimension."""
    value = row["bandwidth"]
    return " × ".join(few(each) for each in value) if isinstance(value, (list, tuple)) else few(value)


def curve_table(curve: Summary) -> Table:
    """The points of the dose–response curve."""
    points = curve["points"]
    error = min((p["std_error"] for p in points if p["std_error"]), default=None)
    cells = [
        [
            few(p["action"]),
            number(p["value"], error),
            "too few rounds" if p["low"] is None else span(p, error),
            count(p["effective_rounds"]),
        ]
        for p in points
    ]
    header = list(CURVE_HEADER)
    header[2] = f"{percent(curve['level'])} interval"
    return header, cells


def curve_meaning(curve: Summary) -> str:
    """What the curve shows."""
    return (
        f"What taking the same action in every round would earn, by {curve['estimator']} on {curve['rounds']:,} rounds. The "
        f"{percent(curve['level'])} intervals hold for one action at a time."
    )


def widths_in_words(estimate: Summary, of: str = "") -> str:
    """The widths that an estimate mixes, in one sentence; and what has no width."""
    name, diagnostics = label(estimate["estimator"]), estimate["diagnostics"]
    names, first = kinds(diagnostics["bandwidths"]), kinds(diagnostics["bandwidths"])[0]
    rows = [row for row in diagnostics["bandwidths"] if row["estimator"] == first]
    error = min((row["std_error"] for row in rows if row["std_error"] > 0), default=None)
    ends = [(width(row), number(row["value"], error), count(row["effective_rounds"])) for row in (rows[0], rows[-1])]
    own = "" if names == [estimate["estimator"]] else f" of {' and of '.join(map(label, names))}"
    which = "" if len(names) == 1 else f" of {label(first)}"
    others = [
        f"{label(c['name'])} (share {percent(c['weight'], 0.01)})"
        for c in diagnostics["candidates"]
        if c["name"].partition(" (")[0] not in names
    ]
    besides = f", and {', '.join(others)}" if others else ""
    return (
        f"{name}{of} mixes {len(rows)} kernel widths{own}{besides}: the narrowest{which}, {ends[0][0]}, gives {ends[0][1]} "
        f"with {ends[0][2]} effective rounds, and the widest, {ends[1][0]}, {ends[1][1]} with {ends[1][2]}."
    )


def few(value: float) -> str:
    """Three significant digits.

    >>> few(0.4296875), few(27.5), few(60.0)
    ('0.43', '27.5', '60')
    """
    return number(float(f"{value:.3g}"))

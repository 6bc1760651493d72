"""The slices of a log in words and as one table, with a row per slice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from offpolicy.report.formatting import (
    VERDICTS,
    WIDTH,
    Summary,
    count,
    label,
    number,
    percent,
    room_for_names,
    shortened,
    span,
)
from offpolicy.report.sentences import leading, resolution, worst_first

RIGHT = frozenset({"rounds", "value", "vs. whole"})
MOST_ROWS = 50
MOST_NAMED = 5
SHORTEST_NAME = 12
DIFFERS = "≠"


class SliceTable(NamedTuple):
    """The slices for one reward and policy, the largest first: a heading, the table, and what it shows in words."""

    heading: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str]


def tables(result: Summary, width: int = WIDTH) -> Iterator[SliceTable]:
    """One table per reward and policy."""
    every: Sequence[Summary] = result.get("by_slice") or ()
    several = len(result["policies"]) > 1
    for reward, policy in dict.fromkeys((row["reward"], row["policy"]) for row in every):
        of = f" for {label(policy)}" if several else ""
        rows = sorted((r for r in every if (r["reward"], r["policy"]) == (reward, policy)), key=lambda r: -r["rounds"])
        heading = f"{label(reward)} by slice: {label(rows[0]['estimator'])}{of}"
        header = ["slice", "rounds", "value", f"{percent(result['level'])} interval", "vs. whole", "verdict"]
        error = resolution(rows, rows[:1])
        cells = [_cells(row, error) for row in rows[:MOST_ROWS]]
        room = max(room_for_names(header, cells, width), SHORTEST_NAME)
        yield SliceTable(
            heading,
            header,
            [[shortened(name, room), *rest] for name, *rest in cells],
            [*_notes(rows, of), *_concerns(result, rows)],
        )


def differs(row: Summary) -> bool:
    """Whether the simultaneous interval of the difference from the whole log excludes 0, and can be trusted."""
    interval = row["difference"]["simultaneous_interval"]
    return row["verdict"] != "DO_NOT_TRUST" and bool(interval["low"] > 0 or interval["high"] < 0)


def change(row: Summary, error: float | None) -> str:
    """The difference from the whole log, with its sign, and a mark if it is significant."""
    difference = row["difference"]
    if not math.isfinite(difference["value"]):
        return "–"
    sign = "+" if difference["value"] > 0 else ""
    return f"{sign}{number(difference['value'], error)}{f' {DIFFERS}' if differs(row) else ''}"


def _cells(row: Summary, error: float | None) -> list[str]:
    interval, verdict = span(row["simultaneous_interval"], error), VERDICTS[row["verdict"]]
    return [label(row["slice"]), count(row["rounds"]), number(row["value"], error), interval, change(row, error), verdict]


def _concerns(result: Summary, rows: Sequence[Summary]) -> list[str]:
    """The main concern about each slice whose verdict is not ok; slices with the same concern share a line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        part = result["slices"][row["slice"]]
        part = part if part["reward"] == row["reward"] else part["other_rewards"][row["reward"]]
        for reason in next((worst_first(e) for e in leading(part) if e["policy"] == row["policy"]), [])[:1]:
            line = f"{label(row['slice'])} ({VERDICTS[row['verdict']]}): {reason['seen']}"
            groups.setdefault((row["verdict"], reason["code"]), []).append(line)
    more = {1: " The same concern applies to 1 more slice."}
    return [
        line + ("" if not others else more.get(len(others), f" The same concern applies to {len(others):,} more slices."))
        for line, *others in groups.values()
    ]


def _notes(rows: Sequence[Summary], of: str) -> list[str]:
    """What the intervals mean, which slices differ, and how many are not shown."""
    level = percent(rows[0]["interval"]["level"])
    apart = [label(row["slice"]) for row in rows if differs(row)]
    named = ", ".join(apart[:MOST_NAMED]) + (f" and {len(apart) - MOST_NAMED} more" if len(apart) > MOST_NAMED else "")
    verb = "differs" if len(apart) == 1 else "differ"
    known = sum(math.isfinite(row["simultaneous_interval"]["low"]) for row in rows)
    notes = [
        f"{DIFFERS} {named} {verb} from the whole log{of}."
        if apart
        else f"No slice is shown to differ from the whole log{of}.",
        f"The intervals are simultaneous: with {level} confidence, all {known:,} contain the true values. So do the "
        "intervals of the differences.",
    ]
    more = f"The {MOST_ROWS} largest of {len(rows):,} slices are shown; all are in to_dict() and --json."
    return [*notes, more] if len(rows) > MOST_ROWS else notes

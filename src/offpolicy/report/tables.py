"""Tables: in columns of terminal cells, as Markdown; and the rows of the main one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from offpolicy.inference.intervals import REFITTED
from offpolicy.report.formatting import THE_LOG, VERDICTS, WIDTH, count, label, number, percent, shortened, span

RIGHT = frozenset({"value", "eff. rounds", "off by"})
LEAST_NEEDED = ("eff. rounds", "off by", "verdict", "interval")
VERDICT = 4
"""Where the verdict stands in a row: its word is coloured."""
SHORTEST_NAME = 14
MEANING = {
    "*": "the error of what it fitted is not in this interval.",
    "†": "a normal interval: there is none of the kind asked for.",
}
COLOURS = {"OK": "green", "CAUTION": "yellow", "DO_NOT_TRUST": "red"}
Cell = str | Text


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], right: Set[str] = RIGHT) -> list[str]:
    """A table in columns; those with a name among `right` are set to the right."""
    return [line.plain for line in columns(header, rows, right)]


def columns(header: Sequence[str], rows: Sequence[Sequence[Cell]], right: Set[str] = RIGHT) -> list[Text]:
    """The same with styles. A row of one cell goes across all columns."""
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in [header, *rows]]
    widths = [max(row[k].cell_len for row in cells if len(row) == len(header)) for k in range(len(header))]

    def line(row: Sequence[Text]) -> Text:
        whole = Text()
        for k, cell in enumerate(row):
            space = " " * (widths[k] - cell.cell_len) if len(row) > 1 else ""
            whole += Text("  " if k else "") + (Text(space) + cell if header[k] in right else cell + Text(space))
        whole.rstrip()
        return whole

    head, *body = (line(row) for row in cells)
    rule = Text("  ".join("─" * w for w in widths))
    head.stylize("dim")
    rule.stylize("dim")
    return [head, rule, *body]


def room_for_names(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = WIDTH) -> int:
    """How many cells the other columns leave to the first."""
    rule = columns(header[1:], [row[1:] for row in rows])[1]
    return width - 2 - rule.cell_len


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Set[str] = frozenset()) -> list[str]:
    """The lines of a Markdown table; columns with a name among `right` are set to the right."""
    rule = ["---:" if name in right else "---" for name in header]
    return ["| " + " | ".join(_barred(cell) for cell in row) + " |" for row in [header, rule, *rows]]


def _barred(cell: str) -> str:
    """A bar ends a cell, unless it is escaped already."""
    return re.sub(r"(?<!\\)\|", r"\\|", cell)


@dataclass(frozen=True)
class EstimateRow:
    """One estimate in the main table."""

    policy: str | None
    """None: the logged mean, which is the same for all."""
    name: str
    marks: str
    cells: tuple[str, ...]
    verdict: str
    leads: bool


def is_naive(estimate: Mapping[str, Any]) -> bool:
    """Whether it is the logged mean."""
    return any(reason["code"] == "naive" for reason in estimate["reasons"])


def header_of(result: Mapping[str, Any]) -> list[str]:
    """Of the main table, without the policy."""
    truth = ["off by"] if result.get("truth") is not None else []
    return ["estimator", "value", f"{percent(result['level'])} interval", "eff. rounds", "verdict", *truth]


def estimate_rows(result: Mapping[str, Any]) -> Iterator[EstimateRow]:
    """The rows of the main table. The logged mean, the same for all policies, stands once."""
    truth = result.get("truth")
    for e in result["estimates"]:
        naive, error = is_naive(e), e["std_error"]
        if naive and e["policy"] != result["policies"][0]:
            continue
        cells = [
            number(e["value"], error),
            span(e["interval"], error),
            count(_ess(e)),
            THE_LOG if naive else VERDICTS[e["verdict"]],
            *([] if truth is None else [number(e["value"] - truth[e["policy"]], error)]),
        ]
        marks = "".join(f" {mark}" for mark in marks_of(result, e))
        leads = e["estimator"] == result["headline"]["estimator"]
        policy = None if naive else e["policy"]
        yield EstimateRow(policy, label(e["estimator"]), marks, tuple(cells), e["verdict"], leads)


def _ess(estimate: Mapping[str, Any]) -> float | None:
    ess = estimate["diagnostics"].get("effective_sample_size")
    return None if ess is None or math.isnan(ess) else float(ess)


def marks_of(result: Mapping[str, Any], estimate: Mapping[str, Any]) -> str:
    """The marks of `MEANING` that an estimate has. There are no intervals for finite samples of a blend."""
    methods = {e["interval"]["method"] for e in result["estimates"]}
    otherwise = len(methods) > 1 and estimate["interval"]["method"] == "normal"
    seen = estimate["diagnostics"]
    covered = estimate["interval"]["method"] == REFITTED and "fitted_before" not in (seen.get("reward_model") or {})
    return ("*" if seen.get("fit_not_covered") and not covered else "") + ("†" if otherwise else "")


def meanings(marks: Iterable[str]) -> list[str]:
    """What the marks that occur mean."""
    found = "".join(marks)
    return [f"{mark} {meaning}" for mark, meaning in MEANING.items() if mark in found]


def rows_of(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The header and the cells of the main table as text, with the policy in a column where there are several."""
    several = len(result["policies"]) > 1
    rows = [
        [
            *(["(the log)" if row.policy is None else label(row.policy)] if several else []),
            row.name + row.marks,
            *row.cells,
        ]
        for row in estimate_rows(result)
    ]
    return [*(["policy"] if several else []), *header_of(result)], rows


def main_table(result: Mapping[str, Any], width: int = WIDTH) -> list[Text]:
    """The main table in so many cells, policies as headings; what there is no room for is said below it."""
    header, rows = header_of(result), list(estimate_rows(result))
    dropped: list[str] = []
    for least in (None, *LEAST_NEEDED):
        name = next((h for h in header if least is not None and h.endswith(least)), None)
        dropped += [name] if name else []
        kept = [k for k, h in enumerate(header) if h not in dropped]
        room = room_for_names(
            [header[k] for k in kept], [["", *(row.cells[k - 1] for k in kept[1:])] for row in rows], width
        )
        if room >= SHORTEST_NAME:
            break
    lines = columns([header[k] for k in kept], [*_styled(result, rows, kept, room)])
    note = [Text(shortened(f"(No room for: {', '.join(dropped)}.)", width))] if dropped else []
    return [*lines, *note]


def _styled(result: Mapping[str, Any], rows: Sequence[EstimateRow], kept: Sequence[int], room: int) -> Iterator[list[Cell]]:
    """The logged mean first where there are several policies, then each policy's name and its estimates."""
    several = len(result["policies"]) > 1
    groups = [None, *result["policies"]] if several else [None]
    for group in groups:
        if group is not None:
            yield [label(group)]
        for row in (row for row in rows if not several or row.policy == group):
            indent = "  " if group is not None else ""
            name = indent + shortened(row.name, max(room - len(row.marks) - len(indent), 2)) + row.marks
            weight, colour = "bold" if row.leads else "", COLOURS[row.verdict] if row.policy is not None else ""
            cells = [name, *row.cells]
            yield [Text(cells[k], f"{weight} {colour if k == VERDICT else ''}".strip()) for k in kept]

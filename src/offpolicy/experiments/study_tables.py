"""The tables of a study, from its summary: for a terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from offpolicy.experiments.study import LEVEL, half_width
from offpolicy.report.formatting import aligned, label as one_line, markdown_table

Summary = Mapping[str, Any]
Table = tuple[list[str], list[list[str]]]
MAIN = ("IPS", "SNIPS", "DR", "MIPS (true)", "Auto")
"""The estimators that methods and levels are compared by, of those that the study has; where it has few, all."""


def worlds(told: Summary, of: str = "") -> Table:  # noqa: ARG001
    """What the logs are like."""
    header = ["world", "runs", "rounds", "effective rounds", "rewards other than 0"]
    rows = [
        [w["world"], *(_count(w[key]) for key in ("runs", "rounds", "effective_rounds", "rewards"))] for w in told["worlds"]
    ]
    return header, rows


def coverage(told: Summary, of: str = "normal") -> Table:
    """The share of 95% intervals that hold the truth: estimators by worlds."""
    at = told["levels"].index(LEVEL)
    return _by_world(
        told, told["estimators"], lambda cell: _percent(cell[of]["held"][at]) if of in cell else "–", "coverage"
    )


def width(told: Summary, of: str = "normal") -> Table:
    """The width of 95% intervals, relative to the spread of the values over logs."""
    at = told["levels"].index(LEVEL)
    rows = []
    for name in told["estimators"]:
        cells = []
        for world in (w["world"] for w in told["worlds"]):
            cell, spread = told["coverage"][world].get(name, {}), told["errors"][world].get(name, {}).get("spread", 0.0)
            there = of in cell and spread > 0
            cells.append(f"{cell[of]['width'][at] / (half_width() * spread):.2f}" if there else "–")
        rows.append([name, *cells])
    return _header(told), [row for row in rows if set(row[1:]) != {"–"}]


def levels(told: Summary, of: str = "normal") -> Table:
    """The share that holds at 90, 95 and 99%."""
    return _by_world(
        told, _main(told), lambda cell: " / ".join(_percent(h) for h in cell[of]["held"]) if of in cell else "–", "coverage"
    )


def methods(told: Summary, of: str = "") -> Table:
    """The share of 95% intervals that hold, by method, of the main estimators or of one."""
    at = told["levels"].index(LEVEL)
    rows = []
    for name in [of] if of else _main(told):
        for method in told["methods"]:
            cells = [told["coverage"][w["world"]].get(name, {}).get(method) for w in told["worlds"]]
            if any(cells):
                rows.append([f"{name}, {method}", *("–" if c is None else _percent(c["held"][at]) for c in cells)])
    return ["interval", *_header(told)[1:]], rows


def verdicts(told: Summary, of: str = "worlds") -> Table:
    """How well the verdict tells runs that missed from those that did not: by world, or by estimator."""
    first = "world" if of == "worlds" else "estimator"
    names = [w["world"] for w in told["worlds"]] if of == "worlds" else told["estimators"]
    rows = []
    for name in [*names, "all"]:
        cells = [
            cell
            for world, each in told["verdicts"].items()
            for label, cell in each.items()
            if name in (world if of == "worlds" else label, "all")
        ]
        if cells:
            rows.append([name, *_separation(cells)])
    shares = [
        "missed",
        "DO_NOT_TRUST",
        "of these missed",
        "OK",
        "of these missed ",
        "missed: DO_NOT_TRUST",
        "missed: not OK",
    ]
    return [first, "runs", *shares], rows


def _separation(cells: Sequence[Mapping[str, Sequence[int]]]) -> list[str]:
    runs, missed = ({v: sum(cell[v][k] for cell in cells) for v in ("OK", "CAUTION", "DO_NOT_TRUST")} for k in (0, 1))
    all_runs, all_missed = sum(runs.values()), sum(missed.values())
    by_verdict = [share for v in ("DO_NOT_TRUST", "OK") for share in (_share(runs[v], all_runs), _share(missed[v], runs[v]))]
    caught = _share(missed["DO_NOT_TRUST"], all_missed), _share(all_missed - missed["OK"], all_missed)
    return [f"{all_runs:,}", _share(all_missed, all_runs), *by_verdict, *caught]


def limits(told: Summary, of: str) -> Table:
    """Coverage by the size of a number behind the verdict."""
    header = [of, "runs", "coverage of 95% intervals", "lowest in one world", "which world"]
    rows = [
        [
            f"{b['from']:g} to {b['to']:g}" if b["to"] is not None else f"{b['from']:g} or more",
            f"{b['runs']:,}",
            _percent(b["held"]),
            "–" if b["least"] is None else _percent(b["least"]),
            b["least_in"] or "–",
        ]
        for b in told["limits"][of]["bins"]
    ]
    return header, rows


TABLES: dict[str, Callable[[Summary, str], Table]] = {
    "worlds": worlds, "coverage": coverage, "width": width, "levels": levels, "methods": methods, "verdicts": verdicts,
    "limits": limits,
}  # fmt: skip


def chosen(told: Summary) -> Iterable[tuple[str, Table]]:
    """The tables that are shown by default."""
    yield "The logs", worlds(told)
    yield "Coverage of 95% intervals (normal)", coverage(told)
    yield "Coverage of 90%, 95% and 99% intervals (normal)", levels(told)
    if len(told["methods"]) > 1:
        yield "Coverage of 95% intervals, by method", methods(told)
    yield "Width of 95% intervals (normal), relative to the spread over logs", width(told)
    yield "The verdict, by world, and whether the 95% interval missed", verdicts(told)
    yield "The verdict, by estimator", verdicts(told, "estimators")
    for scale in told["limits"]:
        if told["limits"][scale]["bins"]:
            yield f"Coverage by {scale}", limits(told, scale)


def plain(told: Summary) -> str:
    """As text."""
    lines = [told["title"], ""]
    for heading, (header, rows) in chosen(told):
        shown = [[one_line(row[0]), *row[1:]] for row in rows]
        lines += [heading, *aligned(header, shown, right=set(header[1:])), ""]
    return "\n".join([*lines, *([told["note"]] if told["note"] else [])])


def markdown(told: Summary) -> str:
    """The same for a page."""
    lines = [f"# {told['title']}", "", *([told["note"], ""] if told["note"] else [])]
    for heading, table in chosen(told):
        lines += [f"## {heading}", "", *as_markdown(table), ""]
    return "\n".join(lines)


def as_markdown(table: Table) -> list[str]:
    header, rows = table
    return markdown_table(header, rows, set(header[1:]))


def _header(told: Summary) -> list[str]:
    return ["estimator", *(w["world"] for w in told["worlds"])]


def _main(told: Summary) -> list[str]:
    names: list[str] = told["estimators"]
    return names if len(names) < 10 else [name for name in names if name in MAIN]


def _by_world(told: Summary, names: Iterable[str], shown: Callable[[Any], str], part: str) -> Table:
    rows = [[name, *(shown(told[part][w["world"]].get(name, {})) for w in told["worlds"])] for name in names]
    return _header(told), [row for row in rows if set(row[1:]) != {"–"}]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "–"


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"

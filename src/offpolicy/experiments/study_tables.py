"""The tables of a study, from its summary: for a terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from offpolicy.experiments.study import LEVEL, half_width
from offpolicy.report.formatting import WIDTH, blocks, label as one_line, markdown_table

Summary = Mapping[str, Any]
Table = tuple[list[str], list[list[str]]]
MAIN = ("IPS", "SNIPS", "DR", "MIPS (true)", "Auto")
"""The estimators that methods and levels are compared by, of those that the study has; where it has few, all."""


def worlds(summary: Summary, of: str = "") -> Table:  # noqa: ARG001
    """The size of the logs, and their effective sample size."""
    header = ["world", "runs", "rounds", "effective rounds", "rewards other than 0"]
    rows = [
        [w["world"], *(_count(w[key]) for key in ("runs", "rounds", "effective_rounds", "rewards"))]
        for w in summary["worlds"]
    ]
    return header, rows


def coverage(summary: Summary, of: str = "") -> Table:
    """The share of 95% intervals that hold the truth: estimators by worlds. By the first method, or by another."""
    of = of or summary["methods"][0]
    at = summary["levels"].index(LEVEL)
    return _by_world(
        summary, summary["estimators"], lambda cell: _percent(cell[of]["held"][at]) if of in cell else "–", "coverage"
    )


def width(summary: Summary, of: str = "") -> Table:
    """The width of 95% intervals, relative to the spread of the values over logs."""
    of = of or summary["methods"][0]
    at = summary["levels"].index(LEVEL)
    rows = []
    for name in summary["estimators"]:
        cells = []
        for world in (w["world"] for w in summary["worlds"]):
            cell, spread = (
                summary["coverage"][world].get(name, {}),
                summary["errors"][world].get(name, {}).get("spread", 0.0),
            )
            there = of in cell and spread > 0
            cells.append(f"{cell[of]['width'][at] / (half_width() * spread):.2f}" if there else "–")
        rows.append([name, *cells])
    return _header(summary), [row for row in rows if set(row[1:]) != {"–"}]


def levels(summary: Summary, of: str = "") -> Table:
    """The share that holds at 90, 95 and 99%."""
    of = of or summary["methods"][0]
    return _by_world(
        summary,
        _main(summary),
        lambda cell: " / ".join(_percent(h) for h in cell[of]["held"]) if of in cell else "–",
        "coverage",
    )


def methods(summary: Summary, of: str = "") -> Table:
    """The share of 95% intervals that hold, by method, of the main estimators or of one."""
    at = summary["levels"].index(LEVEL)
    rows = []
    for name in [of] if of else _main(summary):
        for method in summary["methods"]:
            cells = [summary["coverage"][w["world"]].get(name, {}).get(method) for w in summary["worlds"]]
            if any(cells):
                rows.append([f"{name}, {method}", *("–" if c is None else _percent(c["held"][at]) for c in cells)])
    return ["interval", *_header(summary)[1:]], rows


def by_rounds(summary: Summary, of: str = "") -> Table:  # noqa: ARG001
    """Coverage of 95% intervals and their width relative to the first method's, by effective rounds."""
    header = ["estimator, effective rounds", "runs", *summary["methods"]]
    rows = []
    for row in summary.get("by_rounds", ()):
        upper = f"{row['from']:g} or more" if row["to"] is None else f"{row['from']:g} to {row['to']:g}"
        cells = [f"{_percent(cell['held'])} at {cell['width']:.2f}" for cell in row["methods"].values()]
        rows.append([f"{row['estimator']}, {upper}", f"{row['runs']:,}", *cells])
    return header, rows


def verdicts(summary: Summary, of: str = "worlds") -> Table:
    """How well the verdict separates runs that missed from those that did not, by world or by estimator."""
    first = "world" if of == "worlds" else "estimator"
    names = [w["world"] for w in summary["worlds"]] if of == "worlds" else summary["estimators"]
    rows = []
    for name in [*names, "all"]:
        cells = [
            cell
            for world, each in summary["verdicts"].items()
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


def limits(summary: Summary, of: str) -> Table:
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
        for b in summary["limits"][of]["bins"]
    ]
    return header, rows


TABLES: dict[str, Callable[[Summary, str], Table]] = {
    "worlds": worlds, "coverage": coverage, "width": width, "levels": levels, "methods": methods, "rounds": by_rounds,
    "verdicts": verdicts, "limits": limits,
}  # fmt: skip


def chosen(summary: Summary) -> Iterable[tuple[str, Table]]:
    """The tables that are shown by default."""
    yield "The logs", worlds(summary)
    first = summary["methods"][0]
    yield f"Coverage of 95% intervals ({first})", coverage(summary)
    yield f"Coverage of 90%, 95% and 99% intervals ({first})", levels(summary)
    if len(summary["methods"]) > 1:
        yield "Coverage of 95% intervals, by method", methods(summary)
        if summary.get("by_rounds"):
            yield "Coverage of 95% intervals, and mean width relative to the first method", by_rounds(summary)
    yield f"Width of 95% intervals ({first}), relative to the spread over logs", width(summary)
    yield "The verdict, by world, and whether the 95% interval missed", verdicts(summary)
    yield "The verdict, by estimator", verdicts(summary, "estimators")
    for scale in summary["limits"]:
        if summary["limits"][scale]["bins"]:
            yield f"Coverage by {scale}", limits(summary, scale)


def plain(summary: Summary, width: int = WIDTH) -> str:
    """As text."""
    lines = [summary["title"], ""]
    for heading, (header, rows) in chosen(summary):
        shown = [[one_line(row[0]), *row[1:]] for row in rows]
        lines += [heading, *blocks(header, shown, width), ""]
    return "\n".join([*lines, *([summary["note"]] if summary["note"] else [])])


def markdown(summary: Summary) -> str:
    """The same for a page."""
    lines = [f"# {summary['title']}", "", *([summary["note"], ""] if summary["note"] else [])]
    for heading, table in chosen(summary):
        lines += [f"## {heading}", "", *as_markdown(table), ""]
    return "\n".join(lines)


def as_markdown(table: Table) -> list[str]:
    header, rows = table
    return markdown_table(header, rows, set(header[1:]))


def _header(summary: Summary) -> list[str]:
    return ["estimator", *(w["world"] for w in summary["worlds"])]


def _main(summary: Summary) -> list[str]:
    names: list[str] = summary["estimators"]
    return names if len(names) < 10 else [name for name in names if name in MAIN]


def _by_world(summary: Summary, names: Iterable[str], shown: Callable[[Any], str], part: str) -> Table:
    rows = [[name, *(shown(summary[part][w["world"]].get(name, {})) for w in summary["worlds"])] for name in names]
    return _header(summary), [row for row in rows if set(row[1:]) != {"–"}]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "–"


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"

"""The result as a table in the terminal, as Markdown, and as a small HTML table for notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

VERDICTS = {"OK": "ok", "CAUTION": "caution", "DO_NOT_TRUST": "do not trust"}


def number(value: float | None, error: float | None = None) -> str:
    """A number with the digits that its error allows.

    >>> number(0.123456, 0.00234), number(123456.0, 3200.0), number(2.5e10, 3e9), number(float("nan"))
    ('0.1235', '123,500', '2.50e+10', 'undefined')
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "undefined"
    if not error or not math.isfinite(error) or error <= 0:
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.4e}"
    if max(abs(value), error) >= 1e7 or error < 1e-9:
        return f"{value:.{max(2, min(12, 1 + _magnitude(value) - _magnitude(error)))}e}"
    digits = 1 - _magnitude(error)
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def rows_of(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The header and the cells of the main table."""
    several = len(result["policies"]) > 1
    header = [
        *(["policy"] if several else []),
        "estimator",
        "value",
        f"{result['level']:.0%} interval",
        "eff. rounds",
        "verdict",
    ]
    truth = result.get("truth")
    header += ["off by"] if truth is not None else []
    rows = []
    for e in result["estimates"]:
        ci, error = e["interval"], e["std_error"]
        ess = e["diagnostics"].get("effective_sample_size")
        name = e["estimator"] + (" *" if e["error_covers"] == "sampling" and e["diagnostics"].get("fit_not_covered") else "")
        rows.append(
            [
                *([e["policy"]] if several else []),
                name,
                number(e["value"], error),
                f"{number(ci['low'], error)} to {number(ci['high'], error)}" if math.isfinite(ci["low"]) else "undefined",
                "–" if ess is None else f"{ess:,.0f}",
                VERDICTS[e["verdict"]],
                *([number(e["value"] - truth[e["policy"]], error)] if truth is not None else []),
            ]
        )
    return header, rows


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    right = {"value", "eff. rounds", "off by"}

    def line(cells: Sequence[str]) -> str:
        parts = [c.rjust(w) if h in right else c.ljust(w) for c, w, h in zip(cells, widths, header, strict=True)]
        return "  ".join(parts).rstrip()

    return [line(header), "  ".join("─" * w for w in widths), *(line(row) for row in rows)]


def notes(result: Mapping[str, Any]) -> list[str]:
    """What stands below the table: the headline in words, its reasons, what was left out."""
    lead = result["headline"]
    e = next(x for x in result["estimates"] if (x["policy"], x["estimator"]) == (lead["policy"], lead["estimator"]))
    lines = [f"{lead['estimator']} says {number(e['value'], e['std_error'])}; verdict: {VERDICTS[e['verdict']]}."]
    for reason in sorted(e["reasons"], key=lambda r: list(VERDICTS).index(r["verdict"]), reverse=True):
        lines.append(f"- {reason['seen']} {reason['why']} {reason['do']}")
    if any(x["diagnostics"].get("fit_not_covered") for x in result["estimates"]):
        lines.append("* the error of its fitted reward model is not in this interval.")
    for policy, truth in (result.get("truth") or {}).items():
        lines.append(f"The true value of {policy} is {number(truth, e['std_error'])}: known, since this log was simulated.")
    lines += [f"Not shown: {name} ({why})" for name, why in result["skipped"].items()]
    return lines


def title(result: Mapping[str, Any]) -> str:
    return f"{result['reward']}: {result['rounds']:,} rounds, {result['actions']:,} actions"


def plain(result: Mapping[str, Any]) -> str:
    """The table and its notes as plain text."""
    header, rows = rows_of(result)
    lines = [title(result), "", *_aligned(header, rows), "", *notes(result)]
    for other in result.get("other_rewards", {}).values():
        lines += ["", title(other), "", *_aligned(*rows_of(other))]
    for name, part in result.get("slices", {}).items():
        lines += ["", f"{name} · {title(part)}", "", *_aligned(*rows_of(part))]
    return "\n".join(lines)


def markdown(result: Mapping[str, Any]) -> str:
    """The same as Markdown."""

    def table(part: Mapping[str, Any]) -> list[str]:
        header, rows = rows_of(part)
        cells = [[c.replace("|", "\\|") for c in row] for row in [header, ["---"] * len(header), *rows]]
        return ["| " + " | ".join(row) + " |" for row in cells]

    lines = [f"# {title(result)}", "", *table(result), "", *notes(result)]
    for part in result.get("other_rewards", {}).values():
        lines += ["", f"## {title(part)}", "", *table(part)]
    for name, part in result.get("slices", {}).items():
        lines += ["", f"## {name}: {title(part)}", "", *table(part)]
    return "\n".join(lines) + "\n"


def html_table(result: Mapping[str, Any]) -> str:
    """A plain HTML table for notebooks."""
    header, rows = rows_of(result)
    head = "".join(f"<th>{escape(h)}</th>" for h in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    below = "".join(f"<p>{escape(line)}</p>" for line in notes(result))
    return f"<table><caption>{escape(title(result))}</caption><tr>{head}</tr>{body}</table>{below}"

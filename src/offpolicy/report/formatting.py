"""Numbers, names, paragraphs and tables as people write them; widths are counted in terminal cells."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

Summary = Mapping[str, Any]
"""A result, or a part of one, as plain values."""
WIDTH = 80
LONGEST_LABEL = 40
MOST_DIGITS = 9
VERDICTS = {"OK": "ok", "CAUTION": "caution", "DO_NOT_TRUST": "do not trust"}
THE_LOG = "the log"
"""Shown instead of a verdict for the logged mean, which is about the logging policy."""
SCALES = ((1e12, "trillion"), (1e9, "billion"))
JOINERS = "\u200c\u200d"
"""Invisible, but part of words in some scripts and of emoji."""
RIGHT = frozenset({"value", "eff. rounds", "error"})
"""Right-aligned columns of the main table."""


def number(value: float | None, error: float | None = None) -> str:
    """A number, with as many digits as its standard error supports.

    >>> number(0.123456, 0.00234), number(123456.0, 3200.0), number(2.5e10, 3e9), number(float("nan"))
    ('0.1235', '123,500', '25.0 billion', 'undefined')
    >>> number(0.5), number(123456.7), number(3.4e-7, 1.2e-8), number(-0.0001, 0.01), number(1e300, 1e298)
    ('0.5', '123,457', '3.40e-7', '0.000', '1.000e300')
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "undefined" if math.isnan(value) else "∞" if value > 0 else "-∞"
    known = error if error is not None and math.isfinite(error) and error > 1e-14 * abs(value) else None
    largest = max(abs(value), known or 0.0)
    precision = 1 - _magnitude(known) if known else max(3 - _magnitude(value), 0)
    precision = min(precision, MOST_DIGITS - 1 - _magnitude(largest))
    if not 1e-5 <= largest < 1e15:
        if not value:
            return "0"
        shown, _, power = f"{value:.{max(precision + _magnitude(value), 0)}e}".partition("e")
        return f"{shown}e{int(power)}"
    scale, word = next((s for s in SCALES if largest >= s[0]), (1.0, ""))
    precision = min(precision + _magnitude(scale), MOST_DIGITS)
    shown = f"{round(value / scale, precision) + 0.0:,.{max(precision, 0)}f}"  # + 0.0: no negative zero
    shown = shown if known or "." not in shown else shown.rstrip("0").rstrip(".")
    return f"{shown} {word}".rstrip()


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def percent(share: float, error: float | None = None) -> str:
    """A share in percent.

    >>> percent(0.95), percent(0.999), percent(3.061, 0.12), percent(-0.0312, 0.004)
    ('95%', '99.9%', '306%', '-3.12%')
    """
    return number(100 * share, None if error is None else min(max(100 * error, 0.01), 10.0)) + "%"


def count(value: float | None) -> str:
    """A count with thousands separators."""
    return number(value) if value is None or not math.isfinite(value) or abs(value) >= 1e9 else f"{round(value):,}"


def span(interval: Summary, error: float | None) -> str:
    """An interval as text."""
    low, high = interval["low"], interval["high"]
    return "undefined" if math.isnan(low) or math.isnan(high) else f"{number(low, error)} to {number(high, error)}"


def visible(text: object) -> str:
    r"""Text on one line that cannot control a terminal or a page: characters without a glyph are spelled out.

    >>> visible("a\tb\x1b[31m\u202ec")
    'a b\\x1b[31m\\u202ec'
    """
    line = " ".join(str(text).split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() or c in JOINERS else _spelled(c) for c in line)


def _spelled(text: str) -> str:
    return text.encode("unicode_escape").decode()


def label(text: object) -> str:
    """A name from the data, on one line and shortened if long."""
    line = visible(str(text)[: 10 * LONGEST_LABEL])
    line = line if cell_len(line) else _spelled(line)  # combining marks alone
    return shortened(line, LONGEST_LABEL) or "(empty)"


def shortened(line: str, width: int) -> str:
    """The line, cut with … if it is wider than this many cells."""
    line = line[: 4 * width]  # combining marks have no width, so there may be any number of them
    return line if cell_len(line) <= width else set_cell_size(line, max(width - 1, 0)).rstrip() + "…"


def wrapped(text: str, width: int = WIDTH, indent: str = "") -> list[str]:
    """Lines of at most this many cells, indented after the first. Words wider than a line are broken."""
    room = max(width - cell_len(indent), 2)
    unbroken = re.split("(?<!±) ", visible(text))  # keep the sign with its number
    words = [
        piece for word in unbroken for piece in (chop_cells(word, room) if cell_len(word) > room else [word] * bool(word))
    ]
    lines: list[str] = []
    for word in words:
        if lines and cell_len(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(indent + word if lines else word)
    return lines or [""]


Cell = str | Text


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], right: Set[str] = RIGHT) -> list[str]:
    """A table as lines of text; columns named in `right` are right-aligned."""
    return [line.plain for line in columns(header, rows, right)]


def blocks(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """A table with numbers in all columns but the first, as blocks that fit the width; each repeats the first column."""
    cells = [max(cell_len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    groups: list[list[int]] = [[0]]
    for k in range(1, len(header)):
        if len(groups[-1]) > 1 and sum(cells[j] + 2 for j in groups[-1]) + cells[k] > width:
            groups.append([0])
        groups[-1].append(k)
    lines: list[str] = []
    for group in groups:
        names = [header[k] for k in group]
        block = aligned(names, [[row[k] for k in group] for row in rows], right=set(names[1:]))
        lines += ["", *block] if lines else block
    return lines


def columns(header: Sequence[str], rows: Sequence[Sequence[Cell]], right: Set[str] = RIGHT) -> list[Text]:
    """The same with styles. A row with one cell spans all columns."""
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
    """The number of cells left for the first column."""
    rule = columns(header[1:], [row[1:] for row in rows])[1]
    return width - 2 - rule.cell_len


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Set[str] = frozenset()) -> list[str]:
    """The lines of a Markdown table; columns named in `right` are right-aligned."""
    rule = ["---:" if name in right else "---" for name in header]
    return ["| " + " | ".join(_barred(cell) for cell in row) + " |" for row in [header, rule, *rows]]


def _barred(cell: str) -> str:
    """Escape the bars that are not escaped yet, since a bar ends a cell."""
    return re.sub(r"(?<!\\)\|", r"\\|", cell)

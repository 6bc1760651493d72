"""Numbers, names and paragraphs as a person would write them; widths are counted in terminal cells."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from rich.cells import cell_len, chop_cells, set_cell_size

WIDTH = 80
LONGEST_LABEL = 40
MOST_DIGITS = 9
VERDICTS = {"OK": "ok", "CAUTION": "caution", "DO_NOT_TRUST": "do not trust"}
THE_LOG = "the log"
"""In place of a verdict on the logged mean: it is right, but about the old policy."""
SCALES = ((1e12, "trillion"), (1e9, "billion"))
JOINERS = "\u200c\u200d"
"""Invisible, but part of words in some scripts and of emoji; they move nothing."""


def number(value: float | None, error: float | None = None) -> str:
    """A number with the digits that its error allows.

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
    """A share in hundredths.

    >>> percent(0.95), percent(0.999), percent(3.061, 0.12), percent(-0.0312, 0.004)
    ('95%', '99.9%', '306%', '-3.12%')
    """
    return number(100 * share, None if error is None else min(max(100 * error, 0.01), 10.0)) + "%"


def count(value: float | None) -> str:
    """How many, with thousands separators."""
    return number(value) if value is None or not math.isfinite(value) or abs(value) >= 1e9 else f"{round(value):,}"


def span(interval: Mapping[str, Any], error: float | None) -> str:
    """An interval in words."""
    low, high = interval["low"], interval["high"]
    return "undefined" if math.isnan(low) or math.isnan(high) else f"{number(low, error)} to {number(high, error)}"


def visible(text: object) -> str:
    r"""Text on one line in which nothing can act on a terminal or a page: what has no glyph is spelt out.

    >>> visible("a\tb\x1b[31m\u202ec")
    'a b\\x1b[31m\\u202ec'
    """
    line = " ".join(str(text).split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() or c in JOINERS else _spelt(c) for c in line)


def _spelt(text: str) -> str:
    return text.encode("unicode_escape").decode()


def label(text: object) -> str:
    """A name from the data, on one line and of a bearable length."""
    line = visible(str(text)[: 10 * LONGEST_LABEL])
    line = line if cell_len(line) else _spelt(line)  # marks that lack a letter to stand on
    return shortened(line, LONGEST_LABEL) or "(empty)"


def shortened(line: str, width: int) -> str:
    """The line itself, or its beginning and … in so many cells."""
    line = line[: 4 * width]  # marks without a width of their own could go on for ever
    return line if cell_len(line) <= width else set_cell_size(line, max(width - 1, 0)).rstrip() + "…"


def wrapped(text: str, width: int = WIDTH, indent: str = "") -> list[str]:
    """Lines of at most so many cells; all but the first begin with the indent. Words wider than a line are broken."""
    room = max(width - cell_len(indent), 2)
    unbroken = re.split("(?<!±) ", visible(text))  # a sign stays with its number
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

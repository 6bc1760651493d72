"""The text on its way to standard output: colours on a terminal, none in a pipe, with NO_COLOR or TERM=dumb."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from offpolicy.report import text
from offpolicy.report.formatting import WIDTH

NARROWEST = 40
SIMPLER = str.maketrans({"─": "-", "–": "-", "…": "~", "·": "-", "±": "+-"})
"""For an output that has only some of Unicode, as a file on Windows may."""


def shown(summary: Mapping[str, Any]) -> str:
    """What to print: the plain text in 80 columns, or on a terminal the same with colours, and narrower if that is."""
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        return text.plain(summary)
    page = text.page(summary, max(NARROWEST, min(console.width, WIDTH)))
    if console.no_color:  # Rich would leave bold and dim
        return page.plain
    with console.capture() as captured:
        console.print(page, soft_wrap=True, end="")
    return captured.get()


def say(words: str) -> None:
    """Print; what the output cannot hold becomes a simpler character, never an error."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        words.encode(encoding)
    except UnicodeEncodeError:
        words = words.translate(SIMPLER).encode(encoding, "replace").decode(encoding)
    print(words)

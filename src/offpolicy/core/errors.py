"""Errors about a user's input. Each message states what was seen and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt


class InputError(ValueError):
    """The input cannot be used. The message names the column, the number of rows, the first of them, and a remedy."""


class InputWarning(UserWarning):
    """The input was used under an assumption that the user should check."""


class RowsError(InputError):
    """Some rows cannot be used. The message names the column, the number of rows and the first of them."""

    def __init__(
        self, column: str, what: str, rows: npt.ArrayLike, advice: str, *, where: Sequence[str] | None = None
    ) -> None:
        self.column, self.what, self.advice = column, what, advice
        self.rows = np.sort(np.asarray(rows))
        first = [str(row) for row in self.rows[:3]] if where is None else list(where[:3])
        count = len(self.rows)
        rest = ", …" if count > len(first) else ""
        summary = f"1 row {_singular(what)}" if count == 1 else f"{count:,} rows {what}"
        super().__init__(f"{column}: {summary} (first, counted from 0: {', '.join(first)}{rest}). {advice}")


def _singular(what: str) -> str:
    verb, _, rest = what.partition(" ")
    return f"{ {'have': 'has', 'hold': 'holds', 'are': 'is', 'do': 'does', 'differ': 'differs'}.get(verb, verb) } {rest}"


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a misspelt name, which suggests the nearest known one."""
    names = list(known)
    folded = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    hint = f" Did you mean {folded[near[0]]!r}?" if near else ""
    shown = ", ".join(repr(n) for n in names[:20]) + (", …" if len(names) > 20 else "")
    return InputError(f"there is no {kind} {name!r}.{hint} Known: {shown or 'none'}.")


def first_line(error: BaseException) -> str:
    """The first line of another library's error, without its period; the name of the error if it has no text."""
    return next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), type(error).__name__)

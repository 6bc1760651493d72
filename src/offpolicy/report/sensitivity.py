"""Bounds where propensities may be wrong, in words and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offpolicy.report.formatting import label, number, percent

RIGHT = frozenset({"Γ", "at least", "at most"})


def heading(found: Mapping[str, Any], several: bool = True) -> str:
    of = f" of {label(found['policy'])}" if several else ""
    return f"If true propensities are up to Γ times larger or smaller, the value{of} lies within:"


def table(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The header and the cells of each Γ."""
    rows = [
        [
            f"{row['gamma']:g}",
            number(row["low"], row["low_error"]),
            number(row["high"], row["high_error"]),
            f"{number(row['interval_low'], row['low_error'])} to {number(row['interval_high'], row['high_error'])}",
        ]
        for row in found["rows"]
    ]
    return ["Γ", "at least", "at most", f"with its {percent(found['level'])} interval"], rows


def claims(found: Mapping[str, Any]) -> list[str]:
    """How far the claim holds, and how exact the bounds are."""
    claim, always, level = found["claim"], found["always"], percent(found["level"])
    error = found["rows"][0]["low_error"]
    logged = number(found["logged"], error)
    than = f"{claim.capitalize()} than the log's {logged}"
    holds = "at any Γ" if "holds_to" in always else f"up to Γ = {_gamma(found['holds_to'])}"
    if "surely_to" in always:
        sure = f"with the {level} interval, too"
    elif found["surely_to"] is None:
        sure = f"but the {level} interval does not show it even at Γ = 1, where the propensities are right"
    else:
        sure = f"with the {level} interval up to {_gamma(found['surely_to'])}"
    lines = [f"{than} {holds}; {sure}."]
    if found["holds_to"] is not None and _gamma(found["holds_to"]) == "1.00":
        lines = [f"Even if the propensities are right, the value is not clearly {claim} than the log's {logged}."]
    if found["resolution"] > 0:
        lines.append(f"The bounds are at most {number(found['resolution'], found['resolution'])} wider than need be.")
    return lines


def _gamma(value: float) -> str:
    """Rounded down, since it holds up to there.

    >>> _gamma(1.3799), _gamma(1.15), _gamma(1234.5)
    ('1.37', '1.15', '1234')
    """
    digits = 2 if value < 100 else 0
    return f"{int(value * 10**digits + 1e-9) / 10**digits:.{digits}f}"

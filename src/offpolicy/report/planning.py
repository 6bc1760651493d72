"""How many rounds are needed, in words and as a table."""

from __future__ import annotations

import math

from offpolicy.report.formatting import Summary, label, percent

RIGHT = frozenset({"exploration", "rounds", "for a decision"})


def heading(plan: Summary) -> str:
    """What the table shows."""
    return (
        f"Rounds for a {percent(plan['level'])} interval of ±{plan['half_width']:.3g} by {label(plan['estimator'])}; the "
        f"log has {plan['logged']:,}."
    )


def table(plan: Summary) -> tuple[list[str], list[list[str]]]:
    """The header and the cells, one row per policy and share of exploration."""
    header = ["policy", "exploration", "rounds", "90% range", "for a decision"]
    cells = [
        [
            label(row["policy"]),
            percent(row["explore"]),
            rounds(row["rounds"]),
            "–" if math.isnan(row["rounds"]) else f"{rounds(row['rounds_low'])} to {rounds(row['rounds_high'])}",
            rounds(row["decision_rounds"]),
        ]
        for row in plan["rows"]
    ]
    return header, cells


def rounds(count: float) -> str:
    """Two digits: nothing here is known to three."""
    if math.isnan(count):
        return "–"
    if math.isinf(count):
        return "never"
    digits = max(len(str(int(count))) - 2, 0)
    return f"{math.ceil(count / 10**digits) * 10**digits:,}"


def note(plan: Summary) -> str:
    """What a decision is."""
    against = "the log" if plan["baseline"] is None else label(plan["baseline"])
    sure = "is significant with a probability of 80%, if it is what is estimated now"
    return f"A decision: the difference from {against} {sure}."

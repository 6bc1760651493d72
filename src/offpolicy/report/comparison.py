"""Several policies compared at once, in words and as one table."""

from __future__ import annotations

from collections.abc import Sequence

from offpolicy.report.formatting import WIDTH, Summary, label, number, percent, room_for_names, shortened, span
from offpolicy.report.planning import rounds
from offpolicy.report.sentences import resolution

RIGHT = frozenset({"value"})
MOST_ROWS = 50
MOST_NAMED = 10
SHORTEST_NAME = 10
MAY_BE_BEST = "*"


def baseline(best: Summary) -> str:
    """What the policies are compared with."""
    return "the log" if best["baseline"] is None else label(best["baseline"])


def choice(best: Summary) -> str:
    """Which policy to choose, and what is certain about it."""
    level, row = percent(best["level"]), next((r for r in best["rows"] if r["policy"] == best["choice"]), None)
    if row is not None and row["difference_interval"] is not None:
        least = number(row["difference_interval"]["low"], row["difference_error"])
        many = f" for all {len(best['rows'])} policies together" if len(best["rows"]) > 1 else ""
        sure = f"with {level} confidence{many}"
        return f"Choose {label(row['policy'])}: it earns at least {least} more than {baseline(best)}, {sure}."
    stay = "keep the logging policy" if best["baseline"] is None else f"keep {baseline(best)}"
    if all(r["conclusion"] in ("baseline", "not compared") for r in best["rows"]):
        return f"No policy can be compared with {baseline(best)}: {stay}."
    return f"No policy is shown to earn more than {baseline(best)}: {stay}{_or_log_more(best)}."


def _or_log_more(best: Summary) -> str:
    """How many rounds would probably show that one is better; nothing if none seems to be."""
    ahead = [r for r in best["rows"] if r.get("decision_rounds") and r["difference"] > 0]
    if not ahead:
        return ""
    row = min(ahead, key=lambda r: float(r["decision_rounds"]))
    return (
        f", or log more rounds. If {label(row['policy'])} earns as much as it seems to, about "
        f"{rounds(row['decision_rounds'])} rounds in all would show it with a probability of 80%"
    )


def heading(best: Summary) -> str:
    """What the table shows."""
    if len(best["rows"]) == 1:
        return f"By {label(best['estimator'])}, with {percent(best['level'])} intervals."
    return (
        f"All policies at once, by {label(best['estimator'])}: {percent(best['level'])} intervals that hold for all of them "
        "together."
    )


def table(best: Summary, width: int = WIDTH) -> tuple[list[str], list[list[str]]]:
    """The header and the cells, one row per policy."""
    error = resolution(best["rows"], best["rows"][:1])
    header = [
        "policy",
        "value",
        f"{percent(best['level'])} interval",
        f"minus {shortened(baseline(best), 16)}",
        "conclusion",
    ]
    cells = [
        [
            label(row["policy"]),
            number(row["value"], error),
            "–" if row["conclusion"] == "not compared" else span(row["interval"], error),
            "–" if row["difference_interval"] is None else span(row["difference_interval"], row["difference_error"]),
            conclusion(row) if len(best["rows"]) > 1 else str(row["conclusion"]),
        ]
        for row in best["rows"][:MOST_ROWS]
    ]
    room = max(room_for_names(header, cells, width), SHORTEST_NAME)
    return header, [[shortened(name, room), *rest] for name, *rest in cells]


def conclusion(row: Summary) -> str:
    """Compared with the baseline; marked if it may be the best."""
    return f"{row['conclusion']} {MAY_BE_BEST}" if row["may_be_best"] else str(row["conclusion"])


def notes(best: Summary) -> list[str]:
    """Which policies may be the best, which are not compared, and how many are not shown."""
    rows: Sequence[Summary] = best["rows"]
    level = percent(best["level"])
    named = [row["policy"] for row in rows if row["may_be_best"]]
    untrusted = [row["policy"] for row in rows if row["conclusion"] == "not compared" and row["verdict"] == "DO_NOT_TRUST"]
    lines = []
    if len(named) == 1 and len(rows) > 1:
        lines.append(f"{MAY_BE_BEST} With {level} confidence, {label(named[0])} is the best of them.")
    elif len(named) > 1:
        lines.append(f"{MAY_BE_BEST} With {level} confidence, the best of them is one of these {len(named)}.")
    if untrusted:
        rest = f" and {len(untrusted) - MOST_NAMED:,} more" if len(untrusted) > MOST_NAMED else ""
        names = ", ".join(map(label, untrusted[:MOST_NAMED]))
        lines.append(f"Not compared, because their estimates should not be trusted: {names}{rest}.")
    hidden = len(rows) - MOST_ROWS
    return [*lines, f"{hidden:,} more policies are in to_dict() and --json."] if hidden > 0 else lines

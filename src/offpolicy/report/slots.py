"""The slots of lists as one table, with a row per slot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from offpolicy.report.formatting import Summary, count, label, number, percent, span
from offpolicy.report.sentences import resolution

RIGHT = frozenset({"slot", "gain", "value", "lift", "eff. rounds"})
DIFFERS = "≠"
LIKELY = 0.2
"""The probability from which a way to read is mentioned."""


class SlotTable(NamedTuple):
    """The slots for one policy, from the top: a heading, the table, and what it shows in words."""

    heading: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str]


def tables(result: Summary) -> Iterator[SlotTable]:
    """One table per policy."""
    every: Sequence[Summary] = result.get("by_slot") or ()
    several = len(result["policies"]) > 1
    for policy in dict.fromkeys(row["policy"] for row in every):
        of = f" for {label(policy)}" if several else ""
        rows = [row for row in every if row["policy"] == policy]
        error = resolution(rows, rows[:1])
        yield SlotTable(
            f"{label(result['reward'])} by slot: {label(rows[0]['estimator'])}{of}",
            ["slot", "gain", "value", f"{percent(result['level'])} interval", "lift", "eff. rounds"],
            [_cells(row, error) for row in rows],
            [*_notes(rows), *_reading(result, policy)],
        )


def _cells(row: Summary, error: float | None) -> list[str]:
    rounds = row["effective_sample_size"]
    return [
        str(row["slot"]), number(row["gain"]), number(row["value"], error), span(row["interval"], error), _lift(row, error),
        "–" if rounds is None else count(rounds),
    ]  # fmt: skip


def _lift(row: Summary, error: float | None) -> str:
    value = row["lift"]["value"]
    if not math.isfinite(value):
        return "–"
    return f"{'+' if value > 0 else ''}{number(value, error)}{f' {DIFFERS}' if _differs(row) else ''}"


def _differs(row: Summary) -> bool:
    """Whether the interval of the lift excludes 0."""
    interval = row["lift"]["interval"]
    return bool(interval["low"] > 0 or interval["high"] < 0)


def _notes(rows: Sequence[Summary]) -> list[str]:
    apart = [str(row["slot"]) for row in rows if _differs(row)]
    which = f"{DIFFERS} The lift excludes 0 in {'slot' if len(apart) == 1 else 'slots'} {', '.join(apart)}." if apart else ""
    alone = "Each interval holds for its slot alone. Values are before the gain, by which they add up to that of the list."
    return [each for each in (which, alone) if each]


def _reading(result: Summary, policy: str) -> list[str]:
    """What the log says about how people read its lists."""
    own = next((each for each in result.get("browsing") or () if each["policy"] == policy), None)
    return [] if own is None else [*_tested(own["assumptions"]), *_likely(own["readings"]), *_looks(own)]


def _tested(assumptions: Sequence[Summary]) -> Iterator[str]:
    for each in assumptions:
        if each["contradicted"]:
            yield (
                f"The log contradicts that {each['assumption']}: in slot {each['slot']}, an estimate that assumes so "
                f"differs from {label(each['compared_with'])} by {each['difference']:+.2g} ± {each['std_error']:.2g} "
                f"(p = {each['p_value']:.2g})."
            )
    borne = [each["assumption"] for each in assumptions if not each["contradicted"]]
    if borne:
        yield f"The log does not contradict that {', or that '.join(borne)}."


def _likely(readings: Summary) -> Iterator[str]:
    likely = [(name, p) for name, p in readings.items() if p >= LIKELY]
    if likely:
        words = (f"{name} ({p:.0%})" for name, p in sorted(likely, key=lambda item: -item[1]))
        yield f"From its candidates, Auto finds it likely that {', or that '.join(words)}."


def _looks(own: Summary) -> Iterator[str]:
    """The examination curve."""
    if curve := own.get("examination"):
        errors = own.get("examination_std_errors") or [0.0] * len(curve)
        each = ", ".join(f"{b:.2f}{f' ± {e:.2f}' if e > 0 else ''}" for b, e in zip(curve, errors, strict=True))
        yield f"How often users look at each slot, compared with the first: {each}."

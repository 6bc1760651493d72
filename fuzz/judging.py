"""The oracle: the right answer, computed without offpolicy, and what counts as a failure.

A case passes in one of two ways: with the right answer (n is the number of rows passed, and the values of LoggedMean, IPS
and SNIPS are those of exact sums), or with a refusal, an `InputError` with a message (exit code 2 on the command line).
Everything else fails: another exception, a number where none is defined, another n, a refusal of certainly valid input.
"""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import offpolicy as op

TOLERANCE = 1e-9
ROUNDING = 1e-14
"""Rewards are summed relative to one of them, so that each keeps 14 digits of the largest."""
NEXT_TO_NOTHING = 1e-100
"""A weight below this is 0."""
NAMES = ("LoggedMean", "IPS", "SNIPS")


class Outcome(Enum):
    """How a case ended."""

    RIGHT = "right answer"
    REFUSED = "refused"
    FAILED = "failure"


@dataclass(frozen=True)
class Verdict:
    """How a case ended, and its message."""

    outcome: Outcome
    why: str = ""


@dataclass(frozen=True)
class Truth:
    """The right answer: the number of rows, and each estimator's value with the scale of its rounding errors."""

    n: int
    values: Mapping[str, tuple[float, float]]
    certain: bool = True
    """Whether this input must be answered; if not, it may be refused as well (such as text that reads as a number)."""

    @classmethod
    def of(
        cls, reward: Sequence[float], propensity: Sequence[float], target: Sequence[float],
        weight: Sequence[float] | None = None, certain: bool = True,
    ) -> Truth:  # fmt: skip
        """Computed from exact sums (math.fsum) of w = π/π0; SNIPS is undefined (NaN) if every weight is 0."""
        omega = [1.0] * len(reward) if weight is None else list(weight)
        ratio = [0.0 if q / p < NEXT_TO_NOTHING else q / p for p, q in zip(propensity, target, strict=True)]
        total = math.fsum(omega)
        logged = [o * r for o, r in zip(omega, reward, strict=True)]
        weighted = [w * x for w, x in zip(ratio, logged, strict=True)]
        below = math.fsum(o * w for o, w in zip(omega, ratio, strict=True))
        largest = max(map(abs, reward), default=0.0) * ROUNDING / TOLERANCE
        values = {}
        for name, terms, under in (("LoggedMean", logged, total), ("IPS", weighted, total), ("SNIPS", weighted, below)):
            defined = under and all(map(math.isfinite, terms))  # infinite weights of either sign have no sum
            value = math.fsum(terms) / under if defined else math.nan
            counted = total if terms is logged else below
            values[name] = (value, (math.fsum(map(abs, terms)) + largest * counted) / under if under else math.nan)
        return cls(len(reward), values, certain)

    def differs(self, n: Mapping[str, int], found: Mapping[str, float | None]) -> str | None:
        """How an answer differs from this one, in words; None if it is right."""
        if missing := [name for name in self.values if name not in found]:
            return f"{missing[0]} is not in the answer"
        for name, value in found.items():
            if n[name] != self.n:
                return f"{name}: n is {n[name]}, but {self.n} rows were passed"
            right, scale = self.values[name]
            if math.isnan(right):
                if value is not None and not math.isnan(value):
                    return f"{name} is {value!r}, but is not defined"
            elif value is None or not abs(value - right) <= TOLERANCE * scale:
                return f"{name} is {value!r}, but {right!r} is right"
        return None


def number(value: Any) -> float | None:
    """A finite number, or None if it is not one."""
    if isinstance(value, (bytes, complex)) or value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def truth_of(columns: Mapping[str, Sequence[Any]], certain: bool = True) -> Truth | None:
    """Computed from the columns reward, p (π0), q (π) and weight of a log; None if a cell is invalid."""
    read: dict[str, list[float]] = {}
    for name in ("reward", "p", "q", "weight"):
        cells = columns.get(name)
        if cells is None:
            continue
        found = [number(cell) for cell in cells]
        values = [each for each in found if each is not None]
        if len(values) < len(cells):
            return None
        # Far outside what anyone logs, squares of products overflow: an answer must be right, but a refusal is fine.
        if any(abs(v) > 1e30 or (v and abs(v) < 1e-30) for v in values):
            certain = False
        read[name] = values
    good = (
        all(0 < p <= 1 for p in read["p"])
        and all(0 <= q <= 1 for q in read["q"])
        and (read.get("weight") is None or (min(read["weight"], default=0) >= 0 and sum(read["weight"]) > 0))
        and len(read["reward"]) >= 2
    )
    try:
        return Truth.of(read["reward"], read["p"], read["q"], read.get("weight"), certain) if good else None
    except (OverflowError, ZeroDivisionError):
        return None


OURS = Path(op.__file__).parent


def blamed(error: BaseException) -> str:
    """The exception, and the innermost frame in offpolicy that it passed through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(OURS)]
    place = f"{Path(frames[-1].filename).relative_to(OURS)}:{frames[-1].name}" if frames else "outside"
    return f"{type(error).__name__} at {place}: {str(error)[:200]}"


def refusal(message: str, truth: Truth | None) -> Verdict:
    """Whether a refusal was right and had a message."""
    if not message.strip():
        return Verdict(Outcome.FAILED, "refused without a message")
    if truth is not None and truth.certain:
        return Verdict(Outcome.FAILED, f"valid input was refused: {message[:300]}")
    return Verdict(Outcome.REFUSED, message)


def judged(run: Callable[[], op.Evaluation | None], truth: Truth | None, *, answered: bool = False) -> Verdict:
    """Run it and compare. With `answered`, any answer is enough, whatever its value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)  # NumPy's overflows and divisions by zero are our own faults
        try:
            result = run()
        except op.InputError as error:
            return refusal(str(error), truth)
        except Exception as error:
            return Verdict(Outcome.FAILED, blamed(error))
    if truth is None and not answered:
        return Verdict(Outcome.FAILED, "invalid input was answered")
    if result is None or truth is None:
        return Verdict(Outcome.RIGHT)
    found = {name: result[name] for name in truth.values}
    differs = truth.differs({name: e.n for name, e in found.items()}, {name: e.value for name, e in found.items()})
    return Verdict(Outcome.RIGHT) if differs is None else Verdict(Outcome.FAILED, differs)

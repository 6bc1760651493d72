"""Claims about an experiment, and the verdict on each: holds, does not hold, or undecided, with the numbers.

Two measures are compared by their paired differences over worlds (over logs, if there is one world). Squared errors are
skewed, so the differences are tested by a bootstrap of Student's t, which accounts for skewness; with fewer than ten worlds
there is no verdict. A claim about each of several comparisons holds if all of them are significant, which needs no
correction; it does not hold if one is significant in the opposite direction, at a level divided among all. A claim about
most points ignores the largest p-values that it can spare (the partial conjunction of Benjamini & Heller 2008).
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, final

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError, unknown_name

LEVEL = 0.05
LEAST_UNITS = 10
RESAMPLES = 10_000
TINY = 1e-300
Outcome = Literal["holds", "does not hold", "undecided"]


class Comparable(Protocol):
    """What a claim needs from the runs of an experiment."""

    @property
    def labels(self) -> Sequence[str]: ...

    @property
    def places(self) -> Sequence[Any]: ...

    @property
    def values(self) -> FloatArray: ...

    @property
    def failures(self) -> Mapping[str, Counter[str]]: ...

    def units(self, measure: str) -> FloatArray: ...

    def shares(self, label: str, other: str) -> tuple[float, float, float, int]: ...

    def at(self, place: int) -> str: ...


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict and the evidence for it."""

    says: str
    verdict: Outcome
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Claim(ABC):
    """A statement about the results of an experiment."""

    says: str

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The estimators that the claim is about."""

    @final
    def judge(self, results: Comparable) -> Judged:
        """The verdict; undecided if an estimator failed in some runs, since the remaining ones may be easier."""
        failed = {name: sum(results.failures[name].values()) for name in self.names if name in results.failures}
        if failed:
            lines = tuple(f"{name} failed in {count:,} runs, so it cannot be compared" for name, count in failed.items())
            return Judged(self.says, "undecided", lines)
        return self._judge(results)

    @abstractmethod
    def _judge(self, results: Comparable) -> Judged: ...


@dataclass(frozen=True)
class Lower(Claim):
    """A's measure is below `factor` times that of each of B, at each point or at most of them."""

    lower: str
    than: tuple[str, ...]
    measure: str = "mse"
    factor: float = 1.0
    at: tuple[Any, ...] = ()
    need: Literal["each", "most"] = "each"

    @property
    def names(self) -> tuple[str, ...]:
        return self.lower, *self.than

    def _judge(self, results: Comparable) -> Judged:
        labels, units = results.labels, results.units(self.measure)
        p_values, evidence = [], []
        for p in (p for p, place in enumerate(results.places) if not self.at or place in self.at):
            a = units[labels.index(self.lower), p]
            others = [units[labels.index(other), p] for other in self.than]
            here = [_p_values(a - self.factor * b) for b in others]
            p_values.append(here)
            for other, b, pair in zip(self.than, others, here, strict=True):
                compared = _compare(a, b, other, pair, self.factor)
                evidence.append(f"{results.at(p)}{_measured(self.measure)}{self.lower} {compared}")
        return Judged(self.says, _overall(p_values, self.need), tuple(evidence))


@dataclass(frozen=True)
class Falling(Claim):
    """A's measure falls from each point to the next."""

    falling: str
    measure: str = "mse"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.falling,)

    def _judge(self, results: Comparable) -> Judged:
        units = results.units(self.measure)[results.labels.index(self.falling)]
        p_values, evidence = [], []
        for p in range(1, len(results.places)):
            pair = _p_values(units[p] - units[p - 1])
            p_values.append([pair])
            change = _compare(units[p], units[p - 1], "before", pair, 1.0)
            evidence.append(f"{results.at(p)}{_measured(self.measure)}{change}")
        return Judged(self.says, _overall(p_values, "each"), tuple(evidence))


@dataclass(frozen=True)
class Crossover(Claim):
    """Of two, the first is better at the first point and the second at the last."""

    crossover: tuple[str, str]
    measure: str = "mse"

    @property
    def names(self) -> tuple[str, ...]:
        return self.crossover

    def _judge(self, results: Comparable) -> Judged:
        first, second = self.crossover
        ends = (results.places[0], results.places[-1])
        each = [
            Lower(self.says, a, (b,), self.measure, at=(end,)).judge(results)
            for (a, b), end in zip([(first, second), (second, first)], ends, strict=True)
        ]
        verdicts = [judged.verdict for judged in each]
        order: tuple[Outcome, ...] = ("does not hold", "undecided", "holds")
        return Judged(self.says, min(verdicts, key=order.index), tuple(line for j in each for line in j.evidence))


@dataclass(frozen=True)
class Share(Claim):
    """A is nearer to the truth than B in more than half of the runs."""

    better: str
    than: str
    published: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.better, self.than

    def _judge(self, results: Comparable) -> Judged:
        share, low, high, n = results.shares(self.better, self.than)
        worlds, logs = results.values.shape[2:]
        verdict: Outcome = "holds" if low > 0.5 else "does not hold" if high < 0.5 else "undecided"
        if (worlds if worlds > 1 else logs) < LEAST_UNITS:
            verdict = "undecided"
        known = "" if self.published is None else f" (published: about {self.published:.0%})"
        line = f"nearer in {share:.0%} of {n} samples{known}; 95% interval {low:.0%} to {high:.0%}"
        return Judged(self.says, verdict, (line,))


MEASURE = re.compile(r"mse|bias2|variance|median[1-9][0-9]*")

TEXT: tuple[Any, str] = (lambda v: isinstance(v, str), "text")
VALID: dict[Any, tuple[Any, str]] = {
    "says": TEXT, "lower": TEXT, "falling": TEXT, "better": TEXT, Share: TEXT,
    Lower: (lambda v: isinstance(v, tuple) and v and all(isinstance(n, str) for n in v), "a label, or a list of labels"),
    "crossover": (lambda v: isinstance(v, tuple) and len(v) == 2 and all(isinstance(n, str) for n in v), "two labels"),
    "measure": (
        lambda v: isinstance(v, str) and MEASURE.fullmatch(v), "mse, bias2, variance, or median and a number of logs"
    ),
    "need": (lambda v: v in ("each", "most"), '"each" or "most"'),
    "at": (lambda v: isinstance(v, tuple) and v, "a list of points"),
    "factor": (lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0, "a number above 0"),
    "published": (lambda v: isinstance(v, (int, float)) and 0 <= v <= 1, "a share from 0 to 1"),
}  # fmt: skip

KINDS: dict[str, type[Claim]] = {"lower": Lower, "falling": Falling, "crossover": Crossover, "better": Share}


def claim(name: str, table: Any) -> Claim:
    """A claim from TOML; a setting that is specific to it identifies its kind."""
    kind = next((kind for key, kind in KINDS.items() if isinstance(table, dict) and key in table), None)
    if kind is None:
        raise InputError(f"{name}: a claim needs one of {', '.join(KINDS)}: {table!r}")
    plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    if kind is Lower and isinstance(plain.get("than"), str):
        plain["than"] = (plain["than"],)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    needed = [f.name for f in fields.values() if f.default is dataclasses.MISSING]
    for key in (*needed, *plain):
        if key not in fields:
            raise InputError(f"{name}: a claim of {kind.__name__.lower()!r}: {unknown_name('setting', key, fields)}")
        if key not in plain:
            raise InputError(f"{name}: a claim needs {key!r}: {table!r}")
        test, words = VALID[kind if key == "than" else key]
        if not test(plain[key]):
            raise InputError(f"{name}: {key} is {table[key]!r}, but must be {words}.")
    return kind(**plain)


PValues = tuple[float, float]
"""One-sided p-values of a mean difference below 0, and above 0."""


def _p_values(differences: FloatArray) -> PValues:
    known = differences[np.isfinite(differences)]
    if len(known) < LEAST_UNITS:
        return 1.0, 1.0
    rng = np.random.default_rng(0)
    drawn = known[rng.integers(len(known), size=(RESAMPLES, len(known)))]
    # the distribution of t = (mean − truth) / error, including its skewness, is that of resamples around the observed mean
    t = (drawn.mean(axis=1) - known.mean()) / np.maximum(drawn.std(axis=1, ddof=1), TINY)
    observed = known.mean() / max(float(known.std(ddof=1)), TINY)
    return float(((t <= observed).sum() + 1) / (RESAMPLES + 1)), float(((t >= observed).sum() + 1) / (RESAMPLES + 1))


def _measured(measure: str) -> str:
    """The name of a measure other than the mean squared error."""
    names = {"mse": "", "bias2": "bias² of ", "variance": "variance of "}
    return names.get(measure, f"median over {measure[6:]} logs, ")


def _compare(a: FloatArray, b: FloatArray, other: str, p_values: PValues, factor: float) -> str:
    both = np.isfinite(a) & np.isfinite(b)
    if not both.any():
        return f"and {other}: unknown (bias² and variance need two logs)"
    times = "" if factor == 1 else f"{factor:g} × "
    few = f" ({both.sum()} worlds, too few to decide)" if both.sum() < LEAST_UNITS else ""
    sign = "<" if p_values[0] < LEVEL / 2 else ">" if p_values[1] < LEVEL / 2 else "?"
    return f"{a[both].mean():.3g} {sign} {times}{b[both].mean():.3g} {other}{few}"


def _overall(p_values: Sequence[Sequence[PValues]], need: str) -> Outcome:
    """The verdict from the p-values of all comparisons at each point."""
    if not p_values:
        return "undecided"
    points = len(p_values)
    many = sum(len(pairs) for pairs in p_values)
    for_it = sorted(max(below for below, _ in pairs) for pairs in p_values)
    against = sorted(min(above for _, above in pairs) * len(pairs) for pairs in p_values)
    if need == "most":
        enough, half = points // 2 + 1, -(-points // 2)
        holds, fails = for_it[enough - 1] * (points - enough + 1), against[half - 1] * (points - half + 1)
    else:
        holds, fails = for_it[-1], min(above for pairs in p_values for _, above in pairs) * many
    return "does not hold" if fails < LEVEL / 2 else "holds" if holds < LEVEL / 2 else "undecided"

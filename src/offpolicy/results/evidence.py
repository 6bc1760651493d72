"""`Evidence`: what intervals and differences of an estimate are computed from, and the handle to its log."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError, InputWarning
from offpolicy.core.progress import PassProgress
from offpolicy.data.checks import whole
from offpolicy.inference.functionals import Functional, ScoreSums, quotient, std_error
from offpolicy.inference.intervals import FINITE_SAMPLE, Interval, Range, interval, refitted_interval
from offpolicy.inference.sensitivity import Tilted, Tilting
from offpolicy.inference.sequences import ValueScores, spent
from offpolicy.scoring.export import RoundScores, write_scores
from offpolicy.scoring.scorer import Scorer

Key = tuple[str | None, str, str, str]  # slice, reward, policy and estimator
FEWEST = 10


@dataclass(frozen=True)
class Redraws:
    """The values of every estimate on resampled logs, computed when first requested.

    Each draw is one evaluation of the log, `run` by its number, and serves every estimate, difference and slice.
    """

    run: Callable[[int], Mapping[Key, float]]
    progress: bool | None = None
    _done: list[Mapping[Key, float]] = field(default_factory=list, repr=False, compare=False)

    def of(self, key: Key, draws: int) -> FloatArray:
        """The values of one estimate in the first `draws` draws."""
        draws = whole("draws", draws, FEWEST, besides=" (100 is usual)")
        with PassProgress("refitting", draws, self.progress, done=len(self._done)) as progress:
            while len(self._done) < draws:
                self._done.append(self._drawn(len(self._done)))
                progress(1)
        return np.array([values[key] for values in self._done[:draws]])

    def _drawn(self, draw: int) -> Mapping[Key, float]:
        try:
            return self.run(draw)
        except (InputError, OSError) as error:
            raise InputError(
                f"a bootstrap that refits reads the log again for each draw, and draw {draw} failed: {error} The log and "
                "its files must not change, and must have enough units for every fold; without refit=True (--refit) the "
                "bootstrap does not read the log."
            ) from error


@dataclass(frozen=True)
class LogAccess:
    """Everything about a result that requires another pass over its log.

    `weighable`: policies and rewards with weights. `scorer`: returns what computes the columns of a batch.
    """

    redraws: Redraws
    tilting: Tilting
    policies: tuple[str, ...]
    rewards: tuple[str, ...]
    weighable: frozenset[tuple[int, int]]
    scores: Mapping[Key, RoundScores]
    scorer: Callable[[], Scorer]

    def write_scores(self, key: Key, path: Path) -> None:
        if key not in self.scores:
            raise InputError("scores are written for the whole log, not for a slice.")
        write_scores(path, self.tilting.log, self.scorer(), self.scores[key])

    def tilted(self, policy: str, reward: str) -> Tilted:
        """The weighted rewards of a policy, for bounds on its value."""
        at = self.policies.index(policy), self.rewards.index(reward)
        if at not in self.weighable:
            raise InputError("sensitivity needs discrete actions and their propensities (`propensity=` or `logging=`).")
        return self.tilting.of(*at)


class LogHandle:
    """The access to a log, or nothing: pickling, saving and detaching a result drop it."""

    def __init__(self, access: LogAccess | None = None) -> None:
        self._access = access

    @property
    def attached(self) -> bool:
        return self._access is not None

    def open(self, operation: str) -> LogAccess:
        if self._access is None:
            raise InputError(
                f"{operation} reads the log again, and this result no longer has it: it was pickled, saved or detached. "
                "Call op.evaluate again and use that result."
            )
        return self._access

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


@dataclass(frozen=True)
class SlotValue:
    """The value of one slot of a list, or a difference of two.

    Parameters
    ----------
    slot : int
        The slot, from 1 at the top.
    value : float
        The mean reward of the slot, before it is multiplied by its gain.
    std_error : float
        Its standard error.
    interval : Interval
        Its confidence interval.
    """

    slot: int
    value: float
    std_error: float
    interval: Interval


# In a file; estimates share their sums.
SAVED = ("functional", "bounds", "range_given", "fitted", "value_range", "scores", "slots")


@dataclass(frozen=True)
class Evidence:
    """A functional of the columns' means, with the sums that its standard error comes from.

    `bounds` is None for differences and blends, which have no finite-sample interval. `range_given`: whether the log states
    the range of its rewards. `fitted`: whether anything was fitted or selected, so that there is something to refit. In a
    difference, the estimate `other` is subtracted; if `relative`, the difference is divided by it. `value_range` is what the
    value must lie between, if that is known. `scores` are those of an estimate that has a confidence sequence, and `against`
    those of the other estimate in a difference. `slots` are the values of each slot, if rewards belong to the slots of
    a list.
    """

    functional: Functional
    sums: ScoreSums
    log: LogHandle
    key: Key
    bounds: Range | None = None
    range_given: bool = True
    fitted: bool = True
    other: Key | None = None
    relative: bool = False
    value_range: tuple[float, float] | None = None
    scores: ValueScores | None = None
    against: ValueScores | None = None
    slots: tuple[Functional, ...] = ()

    @property
    def std_error(self) -> float:
        return std_error(self.functional, self.sums)

    def interval(self, level: float, method: str, draws: int | None = None) -> Interval:
        """A confidence interval; with `draws`, from a bootstrap that refits that many times."""
        return self.limited(self._interval(level, method, draws))

    def limited(self, interval: Interval) -> Interval:
        """The part of an interval that is possible; an estimate that is impossible itself keeps the whole interval."""
        low, high = self.value_range or (-np.inf, np.inf)
        if not low <= self.functional.value <= high:
            return interval
        ends = np.clip([interval.low, interval.high], low, high)
        return replace(interval, low=float(ends[0]), high=float(ends[1]))

    def _interval(self, level: float, method: str, draws: int | None) -> Interval:
        if draws is not None:
            if method != "bootstrap":
                raise InputError(
                    f"refit=True refits in each draw of a bootstrap, and a {method} interval has none; use "
                    'method="bootstrap" (--interval bootstrap).'
                )
            if self.fitted:
                return refitted_interval(self.functional, self.sums, level, self.refitted(draws))
        if method in FINITE_SAMPLE and self.bounds is not None and self.bounds.has(method) and not self.range_given:
            low, high = self.bounds.reward_low, self.bounds.reward_high
            warnings.warn(
                f"{self.key[1]}: the log has no reward_range; the smallest and largest reward seen "
                f"({low:g}, {high:g}) are used instead, so that the interval carries no guarantee.",
                InputWarning,
                stacklevel=4,
            )
        return interval(self.functional, self.sums, level, method, self.bounds)

    def refitted(self, draws: int) -> FloatArray:
        """The values on resampled logs, with everything refitted."""
        redraws = self.log.open("a bootstrap that refits").redraws
        first = redraws.of(self.key, draws)
        if self.other is None:
            return first
        second = redraws.of(self.other, draws)
        return quotient(first - second, np.abs(second)) if self.relative else first - second

    def sequence(self, level: float, weight_bound: float | None, look: int) -> Interval:
        """A confidence interval that holds at every look."""
        scores, sums, name = self.scores, self.sums, self.key[3]
        if self.key[0] is not None:
            raise InputError("a confidence sequence is computed for the whole log, not for a slice.")
        if scores is None or (self.other is not None and self.against is None) or self.relative:
            raise InputError(
                f"{name}: a confidence sequence exists for estimates whose rounds each have the value as their mean "
                "(IPS, SNIPS, and DR with a reward model that was fitted on other rounds), and for differences of "
                "these, if the log states its reward_range."
            )
        for each in (scores, self.against):
            if each is not None:
                each.check(weight_bound)
        alpha = spent(1 - level, look) if sums.clustered else 1 - level
        if self.other is None or self.against is None:
            bounds = scores.bounds(sums)
        else:
            bounds = scores.difference(self.against, sums, (self.key[2], self.other[2]))
        ends = scores.rescaled(bounds.ends(alpha, weight_bound), shift=self.other is None)
        return Interval(*ends, level, "sequence", self.functional.value)

    def minus(self, other: Evidence) -> Evidence:
        paired = self._paired(other, self.functional.minus(other.functional), relative=False)
        slots = tuple(a.minus(b) for a, b in zip(self.slots, other.slots, strict=False))
        return replace(paired, scores=self.scores, against=other.scores, slots=slots)

    def of_slots(self, level: float) -> tuple[SlotValue, ...]:
        """The value of each slot with its standard error and Student interval."""
        return tuple(
            SlotValue(k, f.value, std_error(f, self.sums), interval(f, self.sums, level, "student", None))
            for k, f in enumerate(self.slots, start=1)
        )

    def relative_to(self, other: Evidence) -> Evidence:
        """(this − other) / |other|."""
        return self._paired(other, self.functional.relative_to(other.functional), relative=True)

    def _paired(self, other: Evidence, functional: Functional, relative: bool) -> Evidence:
        fitted = self.fitted or other.fitted
        return Evidence(functional, self.sums, self.log, self.key, fitted=fitted, other=other.key, relative=relative)

"""`Evidence`: what intervals and differences of an estimate are computed from, without its log."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError, InputWarning
from offpolicy.inference.bootstrap import Key
from offpolicy.inference.functionals import Functional, ScoreSums, quotient, std_error
from offpolicy.inference.intervals import FINITE_SAMPLE, Interval, Range, interval, refitted_interval
from offpolicy.results.log_handle import LogHandle

KEPT = ("functional", "bounds", "range_given", "fitted")
"""What a file keeps of each evidence; sums are kept beside, as estimates share them."""


@dataclass(frozen=True)
class RefittedValues:
    """The values of an estimate, or of two, on resampled logs with everything fitted again."""

    log: LogHandle
    key: Key
    other: Key | None = None
    relative: bool = False

    def __call__(self, draws: int) -> FloatArray:
        redraws = self.log.open("a bootstrap that refits").redraws
        first = redraws.of(self.key, draws)
        if self.other is None:
            return first
        second = redraws.of(self.other, draws)
        return quotient(first - second, np.abs(second)) if self.relative else first - second


@dataclass(frozen=True)
class Evidence:
    """A functional of the columns' means, with the sums that its error comes from."""

    functional: Functional
    sums: ScoreSums
    refitted: RefittedValues
    bounds: Range | None = None
    """None for a difference or a blend, which have no interval for finite samples."""
    range_given: bool = True
    """Whether the log states the range of its rewards."""
    fitted: bool = True
    """Whether anything was fitted or selected, so that there is something to refit."""

    @property
    def std_error(self) -> float:
        return std_error(self.functional, self.sums)

    def interval(self, level: float, method: str, draws: int | None = None) -> Interval:
        """A confidence interval; given `draws`, from a bootstrap that refits so many times."""
        if draws is not None:
            if method != "bootstrap":
                raise InputError(
                    f"refit=True fits again in each draw of a bootstrap, and a {method} interval has none; say "
                    'method="bootstrap" (--interval bootstrap).'
                )
            if self.fitted:
                return refitted_interval(self.functional, self.sums, level, self.refitted(draws))
        if method in FINITE_SAMPLE and self.bounds is not None and not self.range_given:
            low, high = self.bounds.reward_low, self.bounds.reward_high
            warnings.warn(
                f"{self.refitted.key[1]}: the log has no reward_range; the smallest and largest reward seen "
                f"({low:g}, {high:g}) stand in for it, which is no guarantee.",
                InputWarning,
                stacklevel=3,
            )
        return interval(self.functional, self.sums, level, method, self.bounds)

    def minus(self, other: Evidence) -> Evidence:
        return self._paired(other, self.functional.minus(other.functional), relative=False)

    def relative_to(self, other: Evidence) -> Evidence:
        """(this − other) / |other|."""
        return self._paired(other, self.functional.relative_to(other.functional), relative=True)

    def _paired(self, other: Evidence, functional: Functional, relative: bool) -> Evidence:
        values = replace(self.refitted, other=other.refitted.key, relative=relative)
        return Evidence(functional, self.sums, values, fitted=self.fitted or other.fitted)

    def detached(self) -> Evidence:
        """The same without the log."""
        return replace(self, refitted=replace(self.refitted, log=LogHandle()))

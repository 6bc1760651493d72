"""`Estimate` and `Difference`: one answer, and everything that can be asked of it without reading the log again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from offpolicy.core.arrays import FloatArray
from offpolicy.core.describe import described
from offpolicy.core.errors import InputError, InputWarning
from offpolicy.data.spaces import ActionSpace, discrete
from offpolicy.diagnostics import coverage as measured
from offpolicy.diagnostics.verdict import Finding, Verdict, refitted, worst
from offpolicy.inference.functionals import Functional, ScoreSums, in_errors
from offpolicy.inference.intervals import Interval, Range, checked_level, interval, refitted_interval
from offpolicy.models.embedding_table import EmbeddingTable
from offpolicy.ratios.embedding_fits import PooledFits
from offpolicy.ratios.weights import Weight
from offpolicy.report import text

T = TypeVar("T")
Redrawn = Callable[[int], FloatArray]
"""The values on so many logs drawn anew, with everything fitted again."""
DRAWS = 100


@dataclass(frozen=True, repr=False)
class Difference:
    """The paired difference of two estimates on the same rounds."""

    name: str
    value: float
    std_error: float
    error_covers: str
    _functional: Functional = field(repr=False)
    _sums: ScoreSums = field(repr=False)
    _level: float = 0.95
    _redrawn: Redrawn | None = field(repr=False, default=None)
    """None where nothing was fitted."""

    def __repr__(self) -> str:
        return f"Difference({self.name}: {self.value:.6g} ± {self.std_error:.2g})"

    def confidence_interval(
        self, level: float | None = None, method: str = "normal", *, refit: bool = False, draws: int = DRAWS
    ) -> Interval:
        """`normal` or `bootstrap`; with `refit`, everything is fitted again in each of `draws` draws of the bootstrap."""
        level = self._level if level is None else checked_level(level)
        if refit and _refits(method) and self._redrawn is not None:
            return refitted_interval(self._functional, self._sums, level, self._redrawn(draws))
        return interval(self._functional, self._sums, level, method, None)

    @property
    def z(self) -> float:
        """The difference in standard errors."""
        return in_errors(self._functional, self._sums)

    def to_dict(self, method: str = "normal", refit: bool = False) -> dict[str, Any]:
        ci = self.confidence_interval(method=method, refit=refit)
        return {"value": self.value, "std_error": self.std_error, "interval": asdict(ci)}


def _refits(method: str) -> bool:
    """True; or an error for a method that has no draws."""
    if method != "bootstrap":
        raise InputError(
            f"refit=True fits again in each draw of a bootstrap, and a {method} interval has none; say "
            'method="bootstrap" (--interval bootstrap).'
        )
    return True


class Later(Generic[T]):
    """A value that is worked out when it is first asked for: an error takes refits, and not everybody wants one."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make

    def __call__(self) -> T:
        if self._make is not None:
            self._value, self._make = self._make(), None  # what it was made from may go
        return self._value


@dataclass(frozen=True)
class Details:
    """What an estimate knows of itself besides its value."""

    functional: Functional
    std_error: float
    diagnostics: Mapping[str, Any]
    checks: tuple[Finding, ...]
    """What was found good as well."""


@dataclass(frozen=True, repr=False)
class Estimate:
    """One estimator's answer for one policy and one reward."""

    policy: str
    estimator: str
    reward: str
    value: float
    n: int
    _details: Later[Details]
    _sums: ScoreSums = field(repr=False)
    _range: Range | None = field(repr=False)
    _range_given: bool = field(repr=False, default=True)
    _level: float = 0.95
    _method: str = "normal"
    _write_scores: Callable[[Path], None] | None = field(repr=False, default=None)
    _embedding: PooledFits | None = field(repr=False, default=None)
    _space: ActionSpace | None = field(repr=False, default=None)
    _weight: Weight | None = field(repr=False, default=None)
    """What it weighs rounds by; None for a blend."""
    _kind: str = ""
    """The class of the estimator, whatever name it goes by."""
    _compared: Later[tuple[Finding, ...]] | None = None
    _redrawn: Redrawn | None = field(repr=False, default=None)
    _fitted: bool = True
    """Whether anything was fitted or chosen, so that there is something to fit again."""
    _refit: bool = False

    @property
    def std_error(self) -> float:
        return self._details().std_error

    @property
    def error_covers(self) -> str:
        """`sampling`, or `sampling+fit` where the error of what was fitted is in it."""
        return self._functional.error_covers

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        return {**self._details().diagnostics, **measured.diagnostics(self._kind)}

    @property
    def reasons(self) -> tuple[Finding, ...]:
        """Every doubt: of the estimate itself, and of its difference to a nearly unbiased one."""
        return tuple(measured.added(check, self._kind) for check in self._checks if check.verdict is not Verdict.OK)

    @property
    def _checks(self) -> tuple[Finding, ...]:
        """All that was looked at, what was found good as well."""
        own = self._details().checks
        if self._refit and self._fitted:  # then the fit is in the interval, and reckoned anew
            own = refitted(own)
        return own + (() if self._compared is None else self._compared())

    @property
    def _functional(self) -> Functional:
        return self._details().functional

    def __repr__(self) -> str:
        shown = f"{self.estimator} of {self.policy}, {self.reward}: {self.value:.6g} ± {self.std_error:.2g}"
        return f"Estimate({shown}, {self.verdict.name})"

    @property
    def embedding(self) -> EmbeddingTable:
        """The embedding that its weights come from: one row an action. `.nearest(action)` gives the closest others."""
        if self._embedding is None or self._space is None:
            raise InputError(f"{self.estimator} has no embedding of its own; ask op.LearnedMIPS for one.")
        model = self._embedding.ratio.rewards
        return self._embedding.table(
            discrete(self._space, "embedding").to_numpy(), "" if model is None else described(model)
        )

    @property
    def verdict(self) -> Verdict:
        return worst(self.reasons)

    def confidence_interval(
        self, level: float | None = None, method: str | None = None, *, refit: bool | None = None, draws: int = DRAWS
    ) -> Interval:
        """`normal`, `bootstrap`, `bernstein` or `cressie-read`; the last two need the log's `reward_range`.

        With `refit`, the log is read again for each of `draws` draws of the bootstrap, and reward models, embeddings and
        choices among candidates are made anew in each: what no other interval counts in full. The draws serve every
        estimate of the evaluation, and are made once.
        """
        refit = self._refit and method is None if refit is None else refit
        if method is None:  # a blend has no interval for finite samples: its table shows the normal one
            method = self._method if self._range is not None or self._method == "bootstrap" else "normal"
        level = self._level if level is None else checked_level(level)
        if refit and _refits(method) and self._fitted:
            if self._redrawn is None:
                raise InputError(f"{self.estimator} does not know its log any more; call op.evaluate again, and ask that.")
            return refitted_interval(self._functional, self._sums, level, self._redrawn(draws))
        if method in ("bernstein", "cressie-read") and self._range is not None and not self._range_given:
            warnings.warn(
                f"{self.reward}: the log has no reward_range; the smallest and largest reward seen "
                f"({self._range.reward_low:g}, {self._range.reward_high:g}) stand in for it, which is no guarantee.",
                InputWarning,
                stacklevel=2,
            )
        return interval(self._functional, self._sums, level, method, self._range)

    def explain(self) -> str:
        """In words: of a blend, which candidates carry the weight and why; else the value, its error and every doubt."""
        return text.explained(self.to_dict())

    def scores(self, path: str | Path) -> None:
        """Write row, baseline, correction and weight of every round as Parquet. Reads the log once more."""
        if self._write_scores is None:
            raise InputError("scores are written for the whole log, not for a slice of it.")
        self._write_scores(Path(path))

    def to_dict(self) -> dict[str, Any]:
        ci = self.confidence_interval()
        return {
            "policy": self.policy,
            "estimator": self.estimator,
            "reward": self.reward,
            "value": self.value,
            "std_error": self.std_error,
            "error_covers": self.error_covers,
            "interval": asdict(ci),
            "n": self.n,
            "diagnostics": dict(self.diagnostics),
            "verdict": self.verdict.name,
            "reasons": [
                {"verdict": r.verdict.name, "code": r.code, "seen": r.seen, "why": r.why, "do": r.do} for r in self.reasons
            ],
        }

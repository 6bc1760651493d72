"""`Estimate` and `Difference`: one answer, and everything that can be asked of it without reading the log again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.diagnostics.models import refitted
from offpolicy.diagnostics.verdict import Finding, Verdict, worst
from offpolicy.estimators.selection import standardised
from offpolicy.inference.functionals import in_errors
from offpolicy.inference.intervals import (
    FINITE_SAMPLE,
    REFITTED,
    Interval,
    Method,
    checked_level,
    normal_interval,
)
from offpolicy.models.embedding_table import EmbeddingTable, LabelledEmbedding
from offpolicy.report import text
from offpolicy.results.evidence import Evidence, LogHandle

DRAWS = 100


@dataclass(frozen=True, repr=False, eq=False)
class Answer(ABC):
    """A number with its error. Without `evidence`, as in files of the first format, it has the interval that was saved."""

    value: float
    std_error: float
    error_covers: str
    """`sampling`, or `sampling+fit` where the error of what was fitted is in it."""
    interval: Interval
    """The one that is shown."""
    evidence: Evidence | None = field(repr=False)

    @property
    @abstractmethod
    def name(self) -> str: ...

    def confidence_interval(
        self, level: float | None = None, method: str | None = None, *, refit: bool | None = None, draws: int = DRAWS
    ) -> Interval:
        """`normal`, `bootstrap`, `bernstein` or `cressie-read`; the last two are for estimates, and need a `reward_range`.

        With `refit`, the log is read again for each of `draws` draws of the bootstrap, and reward models, embeddings and
        choices among candidates are made again in each: what no other interval counts in full. The draws serve every
        estimate of the evaluation, and are made once.
        """
        shown = self.interval
        if method is None:
            refit = shown.method == REFITTED if refit is None else refit
            method = "bootstrap" if shown.method == REFITTED else shown.method
        elif method == REFITTED:
            refit, method = True, "bootstrap"
        level = shown.level if level is None else checked_level(level)
        asked = f"{method}, refitted" if refit else method
        if (level, asked, draws) == (shown.level, shown.method, DRAWS):
            return shown
        if method not in get_args(Method):
            raise unknown_name("interval method", str(method), get_args(Method))
        if self.evidence is not None:
            return self.evidence.interval(level, method, draws if refit else None)
        if asked == "normal":
            return normal_interval(self.value, self.std_error, level)
        raise InputError(
            f"{self.name}: was saved by an older offpolicy, which kept no sums: it has normal intervals at any level, and "
            f"the {shown.method} one at level {shown.level:g}; for others evaluate again."
        )


@dataclass(frozen=True, repr=False, eq=False)
class Difference(Answer):
    """The paired difference of two estimates on the same rounds."""

    name: str = ""

    @classmethod
    def of(cls, name: str, evidence: Evidence, level: float) -> Difference:
        f = evidence.functional
        return cls(f.value, evidence.std_error, f.error_covers, evidence.interval(level, "normal"), evidence, name)

    def __repr__(self) -> str:
        return f"Difference({self.name}: {self.value:.6g} ± {self.std_error:.2g})"

    @property
    def z(self) -> float:
        """The difference in standard errors."""
        if self.evidence is None:
            return standardised(self.value, self.std_error)
        return in_errors(self.evidence.functional, self.evidence.sums)

    def to_dict(self) -> dict[str, Any]:
        return {"value": self.value, "std_error": self.std_error, "interval": asdict(self.interval)}


@dataclass(frozen=True, repr=False, eq=False)
class Estimate(Answer):
    """One estimator's answer for one policy and one reward."""

    policy: str
    estimator: str
    reward: str
    n: int
    diagnostics: Mapping[str, Any]
    checks: tuple[Finding, ...] = field(repr=False)
    """All that was checked, what was found good as well."""
    labelled: LabelledEmbedding | None = field(repr=False, default=None)

    @property
    def name(self) -> str:
        return f"{self.policy}:{self.estimator}"

    @property
    def reasons(self) -> tuple[Finding, ...]:
        """Every doubt: of the estimate itself, and of its difference to a nearly unbiased one."""
        return tuple(check for check in self.checks if check.verdict is not Verdict.OK)

    def __repr__(self) -> str:
        shown = f"{self.estimator} of {self.policy}, {self.reward}: {self.value:.6g} ± {self.std_error:.2g}"
        return f"Estimate({shown}, {self.verdict.name})"

    @property
    def embedding(self) -> EmbeddingTable:
        """The embedding that its weights come from: one row an action. `.nearest(action)` gives the closest others."""
        if self.labelled is None:
            raise InputError(
                f"{self.estimator} has no embedding of its own; ask op.LearnedMIPS for one. (A "
                "file keeps the map of an embedding alone: save result[…].embedding, too.)"
            )
        return self.labelled.table()

    @property
    def verdict(self) -> Verdict:
        return worst(self.reasons)

    def shown_with(self, method: str, refit: bool) -> Estimate:
        """The same with another interval; what has none for finite samples keeps the normal one.

        An interval that refits counts the fit, so that doubts about the fit go.
        """
        evidence = self.evidence
        method = "normal" if method in FINITE_SAMPLE and evidence is not None and evidence.bounds is None else method
        shown = self.confidence_interval(self.interval.level, method, refit=refit)
        counted = refit and evidence is not None and evidence.fitted
        return replace(self, interval=shown, checks=refitted(self.checks) if counted else self.checks)

    def explain(self) -> str:
        """In words: of a blend, which candidates carry the weight and why; else the value, its error and every doubt."""
        return text.explained(self.to_dict())

    def scores(self, path: str | Path) -> None:
        """Write row, baseline, correction and weight of every round as Parquet. Reads the log once more."""
        log = LogHandle() if self.evidence is None else self.evidence.log
        key = (None, self.reward, self.policy, self.estimator) if self.evidence is None else self.evidence.key
        log.open("scores(…)").write_scores(key, Path(path))

    def to_dict(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "estimator": self.estimator,
            "reward": self.reward,
            "value": self.value,
            "std_error": self.std_error,
            "error_covers": self.error_covers,
            "interval": asdict(self.interval),
            "n": self.n,
            "diagnostics": dict(self.diagnostics),
            "verdict": self.verdict.name,
            "reasons": [
                {"verdict": r.verdict.name, "code": r.code, "seen": r.seen, "why": r.why, "do": r.do} for r in self.reasons
            ],
        }

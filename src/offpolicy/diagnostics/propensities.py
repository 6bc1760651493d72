"""Can the propensities be those of this log? Sums over some of its rounds, and tests that correct logs hardly ever fail.

Correct propensities obey three laws. If the whole policy is known, an action is taken as often as its probabilities add up
to, over all rounds and over rounds that give it a similar probability. For the logged actions alone, the mean of
1{a}/π0(a|x) is the share of rounds in which a was possible, hence at most 1 (and exactly 1 if it always was). And if an
action has a probability p ≥ t ≥ ½, then with probability 1 − p another one of at most 1 − t is taken: the mean of
1{p ≥ t}(1 − p)/p is at most P(p ≤ 1 − t).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import BUCKETS
from offpolicy.data.batch import Batch
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.cells import Cells
from offpolicy.diagnostics.verdict import ESTIMATED, FIT_LEFT_OUT, Finding, Verdict
from offpolicy.models.estimated_policy import EstimatedPolicy
from offpolicy.policies.base import Policy
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added

CHECK_ROWS, WHOLE_ROWS = 10_000, 2_000  # rounds whose logged propensity, and whose whole policy, is tested
WHOLE_ELEMENTS, LEAST_WHOLE = 1 << 22, 500
# Groups of units: the spread between them shows how much rounds that depend on each other affect the tests.
GROUPS, FEWEST_BUCKETS = 32, 64
_SHIFT = np.int64(51)  # keeps the exponent and 1 bit of the fraction of a float64: 2 bins per octave
_LOW = np.int64((1023 - 16) << 1)
BINS = (16 << 1) + 1  # of the probabilities: 2 per octave down to 2⁻¹⁶, and 1 itself
ALARM = 0.002  # the probability that any test fails on a correct log
LEAST_ROUNDS = 20.0  # the effective number of rounds that a test needs
# Rounds of an action at the smallest propensity of all. With fewer, a mean of 1/p may be small by chance, because rounds
# with the largest 1/p have not occurred yet. The floor is where propensities end (or where someone clipped them).
LEAST_FLOOR = 50.0
CLOSE = 1e-6
SURE = (0.5, 0.7, 0.9)
RANGES = (0.1 + CLOSE, 0.3 + CLOSE, 0.5 - CLOSE, 0.5 + CLOSE, 0.7 - CLOSE, 0.9 - CLOSE)
ABOVE, BELOW = (3, 5, 6), (4, 2, 1)  # for each t: the first range with p ≥ t, and the first without p ≤ 1 − t


@dataclass(frozen=True)
class Misfit:
    """A failed test: the expected and the observed value, and their difference in standard errors.

    The kind is "bin" (actions of similar probability), "action" (one action), "inverse" (the mean of 1/p of an action),
    "total" (the same over all actions) or "sure" (what was taken if one action was likely).
    """

    kind: str
    cell: int
    expected: float
    observed: float
    z: float

    @property
    def ratio(self) -> float:
        return self.observed / self.expected


@dataclass(frozen=True)
class PropensityTests:
    """The statistic: sums of a fixed size, whatever the size of the log.

    `trim` is the value to which estimated probabilities were raised; the rounds concerned are counted.
    """

    columns: ClassVar[tuple[str, ...]] = ()
    of: Cells
    rows: int
    logging: Policy | None
    trim: float | None = None

    @property
    def cells(self) -> int:
        return self.of.count

    @property
    def whole_rows(self) -> int:
        """About how many rounds have all their probabilities tested: none if these are unknown, or too many."""
        if self.logging is None or not self.logging.whole or not self.of.elements:
            return 0
        rows = WHOLE_ROWS if self.logging.lists else min(WHOLE_ROWS, WHOLE_ELEMENTS // self.of.elements)
        return rows if rows >= min(LEAST_WHOLE, self.rows) else 0

    def _some(self, batch: Batch, bucket: IntArray, rows: int) -> tuple[slice | IntArray, IntArray]:
        """A sample of about `rows` rounds, by hash, and the group of each: neighbouring buckets, thinned if necessary."""
        share = rows / max(self.rows, 1)
        limit = math.ceil(BUCKETS * min(1.0, max(share, FEWEST_BUCKETS / BUCKETS)))
        if limit == BUCKETS:
            return slice(None), bucket * GROUPS // BUCKETS
        some = np.flatnonzero(bucket < limit)
        if share * BUCKETS < limit - 1:
            some = some[(batch.unit[some] & np.uint64(0xFFFF)) < share * BUCKETS / limit * 0x10000]
        return some, bucket[some] * GROUPS // limit

    def zero(self) -> State:
        return {
            "rounds": np.zeros((2, GROUPS)),
            "inverse": np.zeros((GROUPS, self.cells)),
            "inverse_squares": np.zeros(self.cells),
            "sure": np.zeros((3, GROUPS, len(RANGES) + 1)),
            "largest": np.zeros(()),
            "at_floor": np.zeros(self.cells),
            "trimmed": np.zeros(()),
            "action": _zero(self.cells),
            "bin": _zero(BINS),
            "sums": np.zeros(2),
        }

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:
        if scored.propensity is not None:
            self._fold(state, batch, scored.bucket, scored.propensity)
        return state

    def _fold(self, state: State, batch: Batch, bucket: IntArray, propensity: FloatArray) -> None:
        if self.trim is not None:
            state["trimmed"] += (propensity <= self.trim).sum()
        rows, group = self._some(batch, bucket, CHECK_ROWS)
        cell = self.of.of(batch.action[rows])
        inverse = 1 / propensity[rows]
        if not len(inverse):  # and so none of the fewer whose whole policy is tested
            return
        omega = None if batch.weight is None else batch.weight[rows]
        self._fold_floor(state, cell, inverse)
        if self.of.likelihood == "probability":
            _add_sure(state["sure"], group, propensity[rows], omega)
        if omega is not None:
            inverse *= omega
        state["inverse"] += np.bincount(group * self.cells + cell, inverse, GROUPS * self.cells).reshape(GROUPS, -1)
        state["inverse_squares"] += np.bincount(cell, inverse**2, self.cells)
        state["rounds"][0] += np.bincount(group, omega, GROUPS)
        if self.whole_rows:
            rows, group = self._some(batch, bucket, self.whole_rows)
            self._fold_whole(state, batch.take(rows), group)

    def _fold_floor(self, state: State, cell: IntArray, inverse: FloatArray) -> None:
        """How many rounds of each action have the smallest propensity of all."""
        largest = float(inverse.max())
        part = {"largest": np.asarray(largest), "at_floor": np.zeros(self.cells)}
        part["at_floor"] += np.bincount(cell[inverse >= largest * (1 - CLOSE)], minlength=self.cells)
        state |= _floor(state, part)

    def _fold_whole(self, state: State, batch: Batch, group: IntArray) -> None:
        omega = np.ones(len(batch)) if batch.weight is None else batch.weight
        state["rounds"][1] += np.bincount(group, omega, GROUPS)
        assert self.logging is not None
        for rows, row, cells, p, taken in self.of.entries(self.logging, batch):
            weight, of = omega[rows][row], group[rows][row]
            expected, possible, variance = weight * p, weight * (p > 0), weight**2 * p * (1 - p)
            for key, cell in (("action", cells), ("bin", _bin(p))):
                _add(state[key], 0, of, cell, possible)
                _add(state[key], 1, of[taken], cell[taken], weight[taken])
                _add(state[key], 2, of, cell, expected)
                state[key]["variance"] += np.bincount(cell, variance, len(state[key]["variance"]))
            off = np.abs(np.bincount(row, p, rows.stop - rows.start) - 1)
            state["sums"] += ((off > self.of.tolerance).sum(), len(off))

    def merge(self, a: State, b: State) -> State:
        return added(a, b) | _floor(a, b)

    def misfits(self, state: State, logged: bool = True) -> list[Misfit]:
        """The tests that failed, worst first; without the means of 1/p if propensities were estimated, not logged."""
        misfits: list[Misfit] = []
        tests = 0
        for key in ("action", "bin") if self.whole_rows else ():
            part, count = _calibration(key, state[key], state["rounds"][1])
            misfits, tests = misfits + part, tests + count
        if logged:
            for part, count in (self._inverses(state), _instead(state["sure"], state["rounds"][0])):
                misfits, tests = misfits + part, tests + count
        return sorted((m for m in misfits if abs(m.z) > _threshold(tests)), key=lambda m: -abs(m.z))

    def _inverses(self, state: State) -> tuple[list[Misfit], int]:
        """Test the mean of 1/p of each action against 1: from above, and from below if actions seem always possible."""
        rounds, sums, squares = state["rounds"][0], state["inverse"].sum(axis=0), state["inverse_squares"]
        n = float(rounds.sum())
        if n <= 0:
            return [], 0
        mean = sums / n
        variance, alike = _variance(np.maximum(squares - n * mean**2, 0.0), state["inverse"], rounds)
        error = np.sqrt(variance) / n
        effective = sums**2 / np.maximum(squares, 1e-300) / alike
        logged = squares > 0
        sizes = self.of.sizes
        always = float(mean.sum()) >= 0.5 * float(sizes[logged].sum())
        z = (mean - sizes) / np.maximum(error, 1e-12 * sizes)
        tested = logged & (effective >= LEAST_ROUNDS) & ((z > 0) | (always & (state["at_floor"] >= LEAST_FLOOR * alike)))
        misfits = [Misfit("inverse", int(c), float(sizes[c]), float(mean[c]), float(z[c])) for c in np.flatnonzero(tested)]
        total, most = float(mean.sum()), float(sizes.sum())
        naive = np.maximum(squares.sum(keepdims=True) - n * total**2, 1e-24 * n**2)
        variance, alike = _variance(naive, state["inverse"].sum(axis=1, keepdims=True), rounds)
        if total > most and (n * total) ** 2 >= LEAST_ROUNDS * alike * float(squares.sum()):
            misfits.append(Misfit("total", 0, most, total, (total - most) * n / math.sqrt(float(variance[0]))))
        return misfits, int(logged.sum()) + 1


def _floor(a: State, b: State) -> State:
    """The rounds at the smaller of two floors; of both if they are equal."""
    largest = max(float(a["largest"]), float(b["largest"]))
    counts = [part["at_floor"] for part in (a, b) if float(part["largest"]) >= largest * (1 - CLOSE)]
    return {"largest": np.asarray(largest), "at_floor": np.sum(counts, axis=0)}


def _add_sure(sums: FloatArray, group: IntArray, p: FloatArray, omega: FloatArray | None) -> None:
    """By group and range of p: Σω, Σωv with v = (1 − p)/p, and Σω²v(1 + v)."""
    at = group * (len(RANGES) + 1)
    for edge in RANGES:
        at += p >= edge
    v = (1 - p) / p
    variance = v * (1 + v)
    if omega is not None:
        v, variance = omega * v, omega**2 * variance
    for part, values in zip(sums, (omega, v, variance), strict=True):
        part += np.bincount(at, values, part.size).reshape(part.shape)


def _instead(sums: FloatArray, rounds: FloatArray) -> tuple[list[Misfit], int]:
    """Test whether other actions were taken at least as often as the likely ones leave room for."""
    n = max(float(rounds.sum()), 1e-300)
    by_group = np.stack([sums[1, :, at:].sum(axis=1) for at in ABOVE], axis=1)
    lower = np.stack([sums[0, :, :at].sum(axis=1) for at in BELOW], axis=1)
    others, came = by_group.sum(axis=0), lower.sum(axis=0)
    least = np.array([sums[2, :, at:].sum() for at in ABOVE])
    variance, alike = _variance(least, by_group - lower, rounds)
    z = (others - came) / np.sqrt(np.maximum(variance, 1e-300))
    tested = np.flatnonzero((others**2 >= LEAST_ROUNDS * alike * least) & (z > 0))
    return [Misfit("sure", int(k), float(others[k] / n), float(came[k] / n), float(-z[k])) for k in tested], len(SURE)


def _zero(cells: int) -> State:
    """By group and cell: Σω, Σω·1{taken}, Σωp; and by cell Σω²p(1 − p)."""
    return {"by_group": np.zeros((3, GROUPS, cells)), "variance": np.zeros(cells)}


def _add(state: State, which: int, group: IntArray, cell: IntArray, values: FloatArray) -> None:
    sums = state["by_group"][which]
    sums += np.bincount(group * sums.shape[1] + cell, values, sums.size).reshape(sums.shape)


def _bin(p: FloatArray) -> IntArray:
    at: IntArray = np.clip((np.ascontiguousarray(p).view(np.int64) >> _SHIFT) - _LOW, 0, BINS - 1)
    return at


def _variance(naive: FloatArray, sums: FloatArray, rounds: FloatArray) -> tuple[FloatArray, float]:
    """The variance of the total of each cell, and by how much dependent rounds raise it over all cells.

    It is the variance of independent rounds, or that from the differences between groups (`sums` is groups × cells) if that
    is larger. The factor between the two over all cells is for cells too rare to show it.
    """
    share = rounds / max(float(rounds.sum()), 1e-300)
    apart = sums - share[:, None] * sums.sum(axis=0)
    between = (apart**2).sum(axis=0) * GROUPS / (GROUPS - 1)
    alike = max(1.0, float(between.sum()) / max(float(naive.sum()), 1e-100))
    return np.maximum(naive * alike, between), alike


def _calibration(key: str, state: State, rounds: FloatArray) -> tuple[list[Misfit], int]:
    """Test how often actions were taken against the sum of their probabilities."""
    entries, taken, expected = state["by_group"].sum(axis=1)
    variance, alike = _variance(state["variance"], state["by_group"][1] - state["by_group"][2], rounds)
    smaller = np.minimum(expected, entries - expected)
    tested = np.flatnonzero(smaller**2 >= LEAST_ROUNDS * alike * np.maximum(state["variance"], 1e-300))
    z = (taken - expected) / np.sqrt(np.maximum(variance, 1e-300))
    return [
        Misfit(key, int(c), float(expected[c] / entries[c]), float(taken[c] / entries[c]), float(z[c])) for c in tested
    ], len(tested)


def _threshold(tests: int) -> float:
    """The limit of |z| at which all tests together hardly ever fail; Student's t, as variances come from groups."""
    from scipy.special import stdtrit  # imported here to keep `import offpolicy` fast

    return -float(stdtrit(GROUPS - 1, ALARM / 2 / max(tests, 1)))


# The factor by which frequencies must be off to matter, however certain that is: for logged and for estimated propensities.
MATTERS, MATTERS_ESTIMATED = 1.02, 1.1
FAR = 1.5  # the factor from which nothing weighted by them should be trusted
SHOWN = 60  # actions whose mean of 1/p a picture shows


@dataclass(frozen=True)
class Propensities(Reading):
    """Whether the propensities can be those of this log."""

    tests: PropensityTests | None
    state: State
    rounds: int

    @property
    def _cells(self) -> Cells:
        assert self.tests is not None
        return self.tests.of

    @property
    def logging(self) -> Policy | None:
        return None if self.tests is None else self.tests.logging

    def findings(self, subject: Subject) -> list[Finding]:
        member = subject.member
        return self._findings if member is None or member.weight.weighs else []

    @cached_property
    def _findings(self) -> list[Finding]:
        """The findings of every estimate weighted by π/π0."""
        if self.tests is None:
            return []
        estimated = isinstance(self.logging, EstimatedPolicy)
        findings = [self._estimated(self.logging)] if isinstance(self.logging, EstimatedPolicy) else []
        off, checked = self.state["sums"]
        if off:
            findings.append(_sums(int(off), int(checked), self._cells.likelihood))
        least = MATTERS_ESTIMATED if estimated else MATTERS
        misfits = [m for m in self.tests.misfits(self.state, logged=not estimated) if _factor(m) >= least]
        if misfits and not off:
            findings.append(self._implausible(misfits, estimated))
        return findings

    def _estimated(self, logging: EstimatedPolicy) -> Finding:
        report, trim = logging.report, logging.setting.trim
        fitted, rows = report["fitted_rows"], report["log_rows"]
        on = f"all {rows:,} rounds" if fitted == rows else f"{fitted:,} of {rows:,} rounds"
        what, of = ("Propensities", "propensity") if self._cells.likelihood == "probability" else ("Densities", "density")
        seen = [f"{what} were estimated, not logged: {_MODELS[report['model']]}, on {on}, in {logging.setting.folds} folds."]
        if new := report.get("rounds_with_an_action_new_to_the_fit", 0):
            seen.append(
                f"{new:,} rounds have an action that does not occur in the other folds; its share of the log is used."
            )
        if trim is not None:
            raised = int(self.state["trimmed"])
            least = f"{trim:g}" if of == "propensity" else f"{trim:g} of the even density"
            seen.append(f"{raised:,} rounds ({raised / self.rounds:.1%}) had a {of} below {least}, raised to it.")
        return Finding(
            Verdict.CAUTION,
            ESTIMATED,
            " ".join(seen),
            FIT_LEFT_OUT,
            f"Log the {self._cells.likelihood} of each action taken. Until then prefer "
            f"{_PREFERRED[self._cells.likelihood]}, which is right if the reward model is; look at "
            "result.plot.propensities().",
        )

    def _implausible(self, misfits: list[Misfit], estimated: bool) -> Finding:
        """One finding with the worst of the tests."""
        first = max(misfits, key=lambda m: (m.kind != "inverse" or m.z > 0, abs(m.z)))
        others = f" (and {len(misfits) - 1:,} more tests fail)" if len(misfits) > 1 else ""
        seen = f"{self._seen(first)}, {abs(first.z):.1f} standard errors apart{others}."
        if estimated:
            return Finding(
                Verdict.CAUTION,
                "propensities do not fit",
                seen,
                "The model of the logging policy misses something that the log shows out of fold.",
                f'Try another model (op.EstimatedLogging("{_FLEXIBLE[self._cells.likelihood]}")), or more context; look at '
                "result.plot.propensities().",
            )
        below = all(m.kind == "inverse" and m.z < 0 for m in misfits)
        far = not below and max(map(_factor, misfits)) >= FAR
        why = (
            "Correct propensities satisfy this; these belong to another policy or another step, or were changed on the way."
        )
        if below:
            why = "Either the propensities are too large (clipped?), or those actions were not available in some rounds."
        return Finding(
            Verdict.DO_NOT_TRUST if far else Verdict.CAUTION,
            "propensities",
            seen,
            why,
            _CHECKS[self._cells.likelihood],
        )

    def _seen(self, m: Misfit) -> str:
        density = self._cells.likelihood == "density"
        if m.kind == "bin":
            if density:
                return f"Ranges of actions with a probability near {m.expected:.2g} were taken {m.observed:.2g} of the time"
            return f"Actions with a probability near {m.expected:.2g} were taken {m.observed:.2g} of the time"
        if m.kind == "sure":
            t = SURE[m.cell]
            return (
                f"If an action had a probability of {t:g} or more, another one should have been taken in at least "
                f"{m.expected:.2%} of all rounds; it was in {m.observed:.2%}"
            )
        if m.kind == "total":
            inverse = "1/density" if density else "1/propensity"
            return f"The mean of {inverse} is {m.observed:.3g}, and cannot exceed {self._cells.all}"
        of = self._cells.named(m.cell)
        if m.kind == "action" and density:
            return f"{of} were taken in {m.observed:.2%} of the rounds, and their mean probability is {m.expected:.2%}"
        if m.kind == "action":
            return f"{of} was taken in {m.observed:.2%} of the rounds that gave it a mean probability of {m.expected:.2%}"
        law = "it cannot exceed" if m.z > 0 else "for an action that is always available it is"
        whose = f"{of[0].lower()}{of[1:]} (0 in others)"
        if density:
            law = "it cannot exceed" if m.z > 0 else "if they are always possible, it is"
            return f"The mean of 1/density over the rounds of {whose} is {m.observed:.3g}, and {law} {m.expected:.4g}"
        return f"The mean of 1/propensity over the rounds of {whose} is {m.observed:.3g}, and {law} {m.expected:g}"

    def view(self) -> dict[str, Any] | None:
        """As plain values, for pictures and JSON."""
        if self.tests is None:
            return None
        logging = self.logging
        source: dict[str, Any] = {"source": "policy" if logging is not None else "logged"}
        if isinstance(logging, EstimatedPolicy):
            raised = int(self.state["trimmed"]) if logging.setting.trim is not None else None
            source = {"source": "estimated", **logging.report, "trim": logging.setting.trim, "trimmed_rounds": raised}
        return {**source, "bins": self._bins(), "actions": self._inverses()}

    def _bins(self) -> list[dict[str, Any]]:
        """Probabilities and frequencies, if the whole policy is known."""
        entries, taken, expected = self.state["bin"]["by_group"].sum(axis=1)
        error = np.sqrt(self.state["bin"]["variance"])
        return [
            {"predicted": float(expected[k] / entries[k]), "observed": float(taken[k] / entries[k]),
             "std_error": float(error[k] / entries[k]), "rounds": round(float(entries[k])), "of": "rounds × actions"}
            for k in np.flatnonzero(expected >= 1)  # rarer ones show nothing
        ]  # fmt: skip

    def _inverses(self) -> list[dict[str, Any]]:
        """The mean of 1/p over the rounds of the most often logged actions, or groups of actions if there are very many."""
        n = float(self.state["rounds"][0].sum())
        mean, squares = self.state["inverse"].sum(axis=0), self.state["inverse_squares"]
        if self.tests is None or n <= 0:
            return []
        logged = np.flatnonzero(squares > 0)
        often = logged[np.argsort(-(mean**2 / np.maximum(squares, 1e-300))[logged], kind="stable")][:SHOWN]
        names, sizes = self._cells.names, self._cells.sizes
        return [
            {"action": names[k],
             "mean_inverse": float(mean[k] / n / sizes[k]),
             "std_error": float(np.sqrt(max(squares[k] - mean[k] ** 2 / n, 0.0)) / n / sizes[k])}
            for k in often
        ]  # fmt: skip


def _factor(m: Misfit) -> float:
    """The factor by which a frequency is off; for a likely action, that of its complement."""
    near, seen = (m.expected, m.observed) if m.kind in ("sure", "inverse", "total") else _rarer(m)
    return max(seen, near) / max(min(seen, near), 1e-12)


def _rarer(m: Misfit) -> tuple[float, float]:
    return (m.expected, m.observed) if m.expected <= 0.5 else (1 - m.expected, 1 - m.observed)


def _sums(off: int, checked: int, likelihood: str) -> Finding:
    law, parts, remedy = {
        "probability": (
            "sum to 1",
            "probabilities",
            "Divide the probabilities of each round by their sum over all available actions.",
        ),
        "density": (
            "integrate to 1 over the box",
            "densities",
            "Divide the density by its integral over the bounds of the actions.",
        ),
    }[likelihood]
    return Finding(
        Verdict.DO_NOT_TRUST,
        "propensities",
        f"In {off:,} of {checked:,} rounds that were checked, the {parts} of the logging policy do not {law}.",
        f"They are not {parts}, so the weights are off by the same factor.",
        remedy,
    )


_PREFERRED = {"probability": "DR", "density": "KernelDR or DR"}
_FLEXIBLE = {"probability": "boosting", "density": "kernel"}
_CHECKS = {
    "probability": "Check which model and which moment they were logged from (before or after clipping, filters, "
    "positions), and compare with logging=op.EstimatedLogging() (--logging estimate).",
    "density": "Check that they are densities, in the unit of the actions: the probability of a step of width w is w times "
    "the density, and the density of a price in cents is 1/100 of that in dollars. Compare with "
    "logging=op.EstimatedLogging() (--logging estimate).",
}


_MODELS = {
    "logistic": "by multinomial logistic regression on the context",
    "boosting": "by boosted trees on the context",
    "counts": "by the frequency of each action, regardless of the context",
    "normal": "by a normal regression on the context, truncated to the bounds",
    "kernel": "by additive regressions for location and spread, and a kernel density of what remains",
}

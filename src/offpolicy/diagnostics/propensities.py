"""Can the propensities be those of this log? Sums from some of its rounds, and tests that a right log hardly ever fails.

Three laws hold for right propensities. Of the whole policy: an action is taken as often as its chances add up to, among all
rounds and among those that give it a like chance. Of the logged actions alone: the mean of 1{a}/π0(a|x) is the part of the
rounds in which a was possible, so never above 1 (and 1 where it always was); and where an action has a chance p of t ≥ ½ or
more, another one, of 1 − t or less, comes instead with 1 − p: the mean of 1{p ≥ t}(1 − p)/p is at most P(p ≤ 1 − t).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import BUCKETS
from offpolicy.data.batch import Batch
from offpolicy.data.spaces import ActionSpace, Discrete, Serves, discrete
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.verdict import ESTIMATED, FIT_LEFT_OUT, Finding, Verdict
from offpolicy.models.propensities import FittedLogging
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import blocks
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added

CHECK_ROWS, WHOLE_ROWS = 10_000, 2_000
"""Rounds whose logged propensity is looked at, and for which the whole policy is asked: enough to see what matters."""
WHOLE_ELEMENTS, LEAST_WHOLE = 1 << 22, 500
CELLS = 1_024
"""Actions beyond so many share cells."""
GROUPS, FEWEST_BUCKETS = 32, 64
"""Of units: the spread between them shows what units that keep an action, or rounds alike in other ways, do to the tests."""
_SHIFT = np.int64(51)  # keeps the exponent and 1 bit of the fraction of a float64: 2 bins an octave
_LOW = np.int64((1023 - 16) << 1)
BINS = (16 << 1) + 1
"""Of the chances: 2 an octave down to 2⁻¹⁶, and 1 itself."""
ALARM = 0.002
"""The chance of an alarm on a right log, over all tests together."""
LEAST_ROUNDS = 20.0
"""Rounds that a test needs, in effect."""
LEAST_FLOOR = 50.0
"""Rounds of an action at the smallest propensity of all, without which a mean of 1/p may be small by chance: those with the
largest 1/p have just not come yet. A floor is where they end (or where somebody clipped them)."""
CLOSE = 1e-6
SURE = (0.5, 0.7, 0.9)
RANGES = (0.1 + CLOSE, 0.3 + CLOSE, 0.5 - CLOSE, 0.5 + CLOSE, 0.7 - CLOSE, 0.9 - CLOSE)
ABOVE, BELOW = (3, 5, 6), (4, 2, 1)
"""For each t: from which range on p ≥ t, and before which p ≤ 1 − t."""


@dataclass(frozen=True)
class Misfit:
    """One test that failed: what was tested, what it should have been and was, and how far away that is."""

    kind: str
    """Of like chances ("bin"), of an "action", of the mean of 1/p of an action ("inverse") or of all ("total"), or of what
    came where an action was likely ("sure")."""
    cell: int
    expected: float
    observed: float
    z: float

    @property
    def ratio(self) -> float:
        return self.observed / self.expected


@dataclass(frozen=True)
class PropensityTests(Serves):
    """The statistic. Only sums are kept, whatever the size of the log."""

    columns: ClassVar[tuple[str, ...]] = ()
    n_actions: int
    rows: int
    logging: Policy | None
    trim: float | None = None
    """Estimated chances were raised to this; how many rounds that concerns is counted."""

    @property
    def cells(self) -> int:
        return min(self.n_actions, CELLS)

    @cached_property
    def sizes(self) -> FloatArray:
        """Actions of each cell."""
        return np.bincount(np.arange(self.n_actions) % self.cells).astype(np.float64)

    @property
    def whole_rows(self) -> int:
        """About how many rounds are asked for all chances: none where they are not known, or are too many."""
        if self.logging is None or not self.logging.whole:
            return 0
        rows = WHOLE_ROWS if self.logging.lists else min(WHOLE_ROWS, WHOLE_ELEMENTS // self.n_actions)
        return rows if rows >= min(LEAST_WHOLE, self.rows) else 0

    def _some(self, batch: Batch, bucket: IntArray, rows: int) -> tuple[slice | IntArray, IntArray]:
        """About so many rounds of the log, by hash, and the group of each: neighbouring buckets, thinned if need be."""
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
        cell = batch.codes[rows] % self.cells if self.n_actions > self.cells else batch.codes[rows]
        inverse = 1 / propensity[rows]
        if not len(inverse):  # and so none of the fewer that are asked for all chances
            return
        omega = None if batch.weight is None else batch.weight[rows]
        self._fold_floor(state, cell, inverse)
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
        for rows, row, code, p, taken in self._entries(batch):
            weight, of = omega[rows][row], group[rows][row]
            expected, possible, variance = weight * p, weight * (p > 0), weight**2 * p * (1 - p)
            for key, cell in (("action", code % self.cells), ("bin", _bin(p))):
                _add(state[key], 0, of, cell, possible)
                _add(state[key], 1, of[taken], cell[taken], weight[taken])
                _add(state[key], 2, of, cell, expected)
                state[key]["variance"] += np.bincount(cell, variance, len(state[key]["variance"]))
            off = np.abs(np.bincount(row, p, rows.stop - rows.start) - 1)
            state["sums"] += ((off > 1e-3).sum(), len(off))

    def _entries(self, batch: Batch) -> Iterator[tuple[slice, IntArray, IntArray, FloatArray, IntArray]]:
        """Some rounds at a time: the round, the action and the chance of every entry, and which entries were taken."""
        assert self.logging is not None
        if self.logging.lists and len(batch):
            listed = self.logging.listed(batch)
            taken = np.flatnonzero(listed.codes == batch.codes[listed.row])
            yield slice(0, len(batch)), listed.row, listed.codes, listed.probabilities, taken
            return
        for rows in blocks(len(batch), self.n_actions):
            p = self.logging.probabilities(batch.take(rows))
            row, code = np.divmod(np.arange(p.size), self.n_actions)
            yield rows, row, code, p.ravel(), np.arange(len(p)) * self.n_actions + batch.codes[rows]

    def merge(self, a: State, b: State) -> State:
        return added(a, b) | _floor(a, b)

    def misfits(self, state: State, logged: bool = True) -> list[Misfit]:
        """The tests that failed, the worst first; without the means of 1/p where chances were estimated, not logged."""
        found: list[Misfit] = []
        tests = 0
        for key in ("action", "bin") if self.whole_rows else ():
            part, count = _calibration(key, state[key], state["rounds"][1])
            found, tests = found + part, tests + count
        if logged:
            for part, count in (self._inverses(state), _instead(state["sure"], state["rounds"][0])):
                found, tests = found + part, tests + count
        return sorted((m for m in found if abs(m.z) > _threshold(tests)), key=lambda m: -abs(m.z))

    def _inverses(self, state: State) -> tuple[list[Misfit], int]:
        """The mean of 1/p of each action against 1: from above, and from below where actions seem to be possible always."""
        rounds, sums, squares = state["rounds"][0], state["inverse"].sum(axis=0), state["inverse_squares"]
        n = float(rounds.sum())
        if n <= 0:
            return [], 0
        mean = sums / n
        variance, alike = _variance(np.maximum(squares - n * mean**2, 0.0), state["inverse"], rounds)
        error = np.sqrt(variance) / n
        effective = sums**2 / np.maximum(squares, 1e-300) / alike
        logged = squares > 0
        always = float(mean.sum()) >= 0.5 * float(self.sizes[logged].sum())
        z = (mean - self.sizes) / np.maximum(error, 1e-12)
        tested = logged & (effective >= LEAST_ROUNDS) & ((z > 0) | (always & (state["at_floor"] >= LEAST_FLOOR * alike)))
        found = [
            Misfit("inverse", int(c), float(self.sizes[c]), float(mean[c]), float(z[c])) for c in np.flatnonzero(tested)
        ]
        total, most = float(mean.sum()), float(self.n_actions)
        naive = np.maximum(squares.sum(keepdims=True) - n * total**2, 1e-24 * n**2)
        variance, alike = _variance(naive, state["inverse"].sum(axis=1, keepdims=True), rounds)
        if total > most and (n * total) ** 2 >= LEAST_ROUNDS * alike * float(squares.sum()):
            found.append(Misfit("total", 0, most, total, (total - most) * n / math.sqrt(float(variance[0]))))
        return found, int(logged.sum()) + 1


def _floor(a: State, b: State) -> State:
    """The rounds at the smaller of two floors; of both where they are the same."""
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
    """Whether something else came as often, at least, as likely actions leave room for."""
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
    """Of the total of each cell: as if rounds were independent, or from how groups differ (`sums` is groups × cells) where
    that is more; and by what factor it is more over all cells, for those that are too rare to show it."""
    share = rounds / max(float(rounds.sum()), 1e-300)
    apart = sums - share[:, None] * sums.sum(axis=0)
    between = (apart**2).sum(axis=0) * GROUPS / (GROUPS - 1)
    alike = max(1.0, float(between.sum()) / max(float(naive.sum()), 1e-300))
    return np.maximum(naive * alike, between), alike


def _calibration(key: str, state: State, rounds: FloatArray) -> tuple[list[Misfit], int]:
    """How often actions were taken, against the sum of their chances."""
    entries, taken, chances = state["by_group"].sum(axis=1)
    variance, alike = _variance(state["variance"], state["by_group"][1] - state["by_group"][2], rounds)
    smaller = np.minimum(chances, entries - chances)
    tested = np.flatnonzero(smaller**2 >= LEAST_ROUNDS * alike * np.maximum(state["variance"], 1e-300))
    z = (taken - chances) / np.sqrt(np.maximum(variance, 1e-300))
    return [
        Misfit(key, int(c), float(chances[c] / entries[c]), float(taken[c] / entries[c]), float(z[c])) for c in tested
    ], len(tested)


def _threshold(tests: int) -> float:
    """Of |z|, so that all tests together hardly ever alarm; Student's t, since spreads come from groups."""
    from scipy.special import stdtrit  # here, so that importing stays light

    return -float(stdtrit(GROUPS - 1, ALARM / 2 / max(tests, 1)))


MATTERS, MATTERS_ESTIMATED = 1.02, 1.1
"""By what factor frequencies must be off to matter, however sure that is: of propensities that were logged, and of a fit."""
FAR = 1.5
"""From which factor on nothing that is weighed by them should be believed."""
SHOWN = 60
"""Actions of which a picture shows the mean of 1/p."""


@dataclass(frozen=True)
class Propensities(Reading):
    """Whether the propensities can be those of this log."""

    tests: PropensityTests | None
    state: State
    space: ActionSpace
    rounds: int

    @property
    def _actions(self) -> Discrete:
        return discrete(self.space, "PropensityTests")

    @property
    def logging(self) -> Policy | None:
        return None if self.tests is None else self.tests.logging

    def findings(self, subject: Subject) -> list[Finding]:
        member = subject.member
        return self._found if member is None or member.weight.weighs else []

    @cached_property
    def _found(self) -> list[Finding]:
        """For every estimate that weighs by π/π0."""
        if self.tests is None:
            return []
        estimated = isinstance(self.logging, FittedLogging)
        found = [self._estimated(self.logging)] if isinstance(self.logging, FittedLogging) else []
        off, asked = self.state["sums"]
        if off:
            found.append(_sums(int(off), int(asked)))
        least = MATTERS_ESTIMATED if estimated else MATTERS
        misfits = [m for m in self.tests.misfits(self.state, logged=not estimated) if _factor(m) >= least]
        if misfits and not off:
            found.append(self._implausible(misfits, estimated))
        return found

    def _estimated(self, logging: FittedLogging) -> Finding:
        told, trim = logging.told, logging.setting.trim
        fitted, rows = told["fitted_rows"], told["log_rows"]
        on = f"all {rows:,} rounds" if fitted == rows else f"{fitted:,} of {rows:,} rounds"
        said = [
            f"Propensities were estimated, not logged: {_MODELS[told['model']]}, on {on}, in {logging.setting.folds} folds."
        ]
        if new := told["rounds_with_an_action_new_to_the_fit"]:
            said.append(f"{new:,} rounds have an action that the other folds do not hold; they take its share of the log.")
        if trim is not None:
            raised = int(self.state["trimmed"])
            said.append(f"{raised:,} rounds ({raised / self.rounds:.1%}) had less than {trim:g}, and were raised to it.")
        return Finding(
            Verdict.CAUTION,
            ESTIMATED,
            " ".join(said),
            FIT_LEFT_OUT,
            "Log the chance of each action taken. Until then prefer DR, which is right if the reward model is; look at "
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
                "The model of the old policy misses something that the log shows out of fold.",
                'Try another model (op.EstimatedLogging("boosting")), or more context; look at result.plot.propensities().',
            )
        below = all(m.kind == "inverse" and m.z < 0 for m in misfits)
        far = not below and max(map(_factor, misfits)) >= FAR
        why = "Right propensities keep to this; these belong to another policy, to another step, or were changed on the way."
        if below:
            why = "Either the propensities are too large (clipped?), or those actions could not be taken in some rounds."
        return Finding(
            Verdict.DO_NOT_TRUST if far else Verdict.CAUTION,
            "propensities",
            seen,
            why,
            "Check which model and which moment they were logged from (before or after clipping, filters, positions), and "
            "compare with logging=op.EstimatedLogging() (--logging estimate).",
        )

    def _seen(self, m: Misfit) -> str:
        if m.kind == "bin":
            return f"Actions with a chance near {m.expected:.2g} were taken {m.observed:.2g} of the time"
        if m.kind == "sure":
            t = SURE[m.cell]
            return (
                f"Where an action had a chance of {t:g} or more, something else should have come, in {m.expected:.2%} of "
                f"all rounds or more; such came in {m.observed:.2%}"
            )
        if m.kind == "total":
            return f"The mean of 1/propensity is {m.observed:.3g}, and it cannot be above the {m.expected:,.0f} actions"
        of = self._named(m.cell)
        if m.kind == "action":
            return f"{of} was taken in {m.observed:.2%} of the rounds that gave it a mean chance of {m.expected:.2%}"
        law = "it cannot be above" if m.z > 0 else "where it can always be taken it is"
        whose = f"{of[0].lower()}{of[1:]} (0 in others)"
        return f"The mean of 1/propensity over the rounds of {whose} is {m.observed:.3g}, and {law} {m.expected:g}"

    def _named(self, cell: int) -> str:
        if self._actions.n_actions > CELLS:
            return f"A group of {self._actions.n_actions // CELLS:,} or so actions"
        return f"Action {self._actions.to_numpy()[cell]!s}"

    def view(self) -> dict[str, Any] | None:
        """As plain values, for pictures and JSON."""
        if self.tests is None:
            return None
        logging = self.logging
        told: dict[str, Any] = {"source": "policy" if logging is not None else "logged"}
        if isinstance(logging, FittedLogging):
            raised = int(self.state["trimmed"]) if logging.setting.trim is not None else None
            told = {"source": "estimated", **logging.told, "trim": logging.setting.trim, "trimmed_rounds": raised}
        return {**told, "bins": self._bins(), "actions": self._inverses()}

    def _bins(self) -> list[dict[str, Any]]:
        """Chances and frequencies, where the whole policy is known."""
        entries, taken, chances = self.state["bin"]["by_group"].sum(axis=1)
        error = np.sqrt(self.state["bin"]["variance"])
        return [
            {"predicted": float(chances[k] / entries[k]), "observed": float(taken[k] / entries[k]),
             "std_error": float(error[k] / entries[k]), "rounds": round(float(entries[k])), "of": "rounds × actions"}
            for k in np.flatnonzero(chances >= 1)  # of rarer ones nothing is to be seen
        ]  # fmt: skip

    def _inverses(self) -> list[dict[str, Any]]:
        """The mean of 1/p over the rounds of each of the actions most often logged (0 in other rounds)."""
        n = float(self.state["rounds"][0].sum())
        mean, squares = self.state["inverse"].sum(axis=0), self.state["inverse_squares"]
        if self._actions.n_actions > CELLS or n <= 0:
            return []
        logged = np.flatnonzero(squares > 0)
        often = logged[np.argsort(-(mean**2 / np.maximum(squares, 1e-300))[logged], kind="stable")][:SHOWN]
        names = self._actions.to_numpy()
        return [
            {"action": str(names[k]), "mean_inverse": float(mean[k] / n),
             "std_error": float(np.sqrt(max(squares[k] - mean[k] ** 2 / n, 0.0)) / n)}
            for k in often
        ]  # fmt: skip


def _factor(m: Misfit) -> float:
    """By what factor a frequency is off; of a likely action, that of what is left."""
    near, seen = (m.expected, m.observed) if m.kind in ("sure", "inverse", "total") else _rarer(m)
    return max(seen, near) / max(min(seen, near), 1e-12)


def _rarer(m: Misfit) -> tuple[float, float]:
    return (m.expected, m.observed) if m.expected <= 0.5 else (1 - m.expected, 1 - m.observed)


def _sums(off: int, asked: int) -> Finding:
    return Finding(
        Verdict.DO_NOT_TRUST,
        "propensities",
        f"In {off:,} of {asked:,} rounds that were looked at, the chances of the logging policy do not sum to 1.",
        "They are no probabilities, so weights by them are wrong by as much.",
        "Divide the chances of each round by their sum, over all actions that could be taken.",
    )


_MODELS = {
    "logistic": "by multinomial logistic regression on the context",
    "boosting": "by boosted trees on the context",
    "counts": "by how often each action was taken, whatever the context",
}

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
from typing import ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import BUCKETS
from offpolicy.data.batch import Batch
from offpolicy.data.spaces import Serves
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
            yield slice(0, len(batch)), listed.row, listed.codes, listed.chances, taken
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

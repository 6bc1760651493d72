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

import numpy as np

from offpolicy.batch import Batch, FloatArray
from offpolicy.policy import Policy, blocks
from offpolicy.statistics import State
from offpolicy.units import BUCKETS, IntArray

CHECK_ROWS, WHOLE_ROWS = 100_000, 5_000
"""Rounds whose logged propensity is looked at, and for which the whole policy is asked: enough to see what matters."""
WHOLE_ELEMENTS, LEAST_WHOLE = 1 << 22, 500
CELLS = 1_024
"""Actions beyond so many share cells."""
GROUPS = 32
"""Of units: the spread between them shows what units that keep an action, or rounds alike in other ways, do to the tests."""
EDGES = 1 / (1 + np.exp(-np.linspace(-9.0, 9.0, 25)))
"""Bins of the chances, of equal width in log-odds."""
ALARM = 0.002
"""The chance of an alarm on a right log, over all tests together."""
LEAST_ROUNDS = 20.0
"""Rounds that a test needs, in effect."""
LEAST_FLOOR = 50.0
"""Rounds of an action at the smallest propensity of all, without which a mean of 1/p may be small by chance: those with the
largest 1/p have just not come yet. A floor is where they end (or where somebody clipped them)."""
SURE = np.array([0.5, 0.7, 0.9])
CLOSE = 1e-6


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
class Plausible:
    """The statistic. Only sums are kept, whatever the size of the log."""

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

    @cached_property
    def whole_limit(self) -> int:
        """The buckets of rounds for which all chances are asked: none where they are not known, or are too many."""
        if self.logging is None or not self.logging.whole:
            return 0
        rows = WHOLE_ROWS if self.logging.lists else min(WHOLE_ROWS, WHOLE_ELEMENTS // self.n_actions)
        return _limit(rows, self.rows) if rows >= min(LEAST_WHOLE, self.rows) else 0

    def zero(self) -> State:
        return {
            "rounds": np.zeros((2, GROUPS)),
            "inverse": np.zeros((GROUPS, self.cells)),
            "inverse_squares": np.zeros(self.cells),
            "sure": np.zeros((3, GROUPS, len(SURE))),
            "largest": np.zeros(()),
            "at_floor": np.zeros(self.cells),
            "trimmed": np.zeros(()),
            "action": _zero(self.cells),
            "bin": _zero(len(EDGES) + 1),
            "sums": np.zeros(2),
        }

    def fold(self, state: State, batch: Batch, bucket: IntArray, propensity: FloatArray) -> None:
        if self.trim is not None:
            state["trimmed"] += (propensity <= self.trim).sum()
        limit = _limit(CHECK_ROWS, self.rows)
        rows = slice(None) if limit == BUCKETS else np.flatnonzero(bucket < limit)
        cell = batch.action[rows] % self.cells if self.n_actions > self.cells else batch.action[rows]
        inverse = 1 / propensity[rows]
        if not len(inverse):
            return
        omega = None if batch.weight is None else batch.weight[rows]
        self._fold_floor(state, cell, inverse)
        group = bucket[rows] * GROUPS // limit
        _add_sure(state["sure"], group, propensity[rows], omega)
        if omega is not None:
            inverse *= omega
        state["inverse"] += np.bincount(group * self.cells + cell, inverse, GROUPS * self.cells).reshape(GROUPS, -1)
        state["inverse_squares"] += np.bincount(cell, inverse**2, self.cells)
        state["rounds"][0] += np.bincount(group, omega, GROUPS)
        if self.whole_limit:
            asked = np.flatnonzero(bucket < self.whole_limit)
            self._fold_whole(state, batch.take(asked), bucket[asked] * GROUPS // self.whole_limit)

    def _fold_floor(self, state: State, cell: IntArray, inverse: FloatArray) -> None:
        """How many rounds of each action have the smallest propensity of all."""
        largest = float(inverse.max())
        part = {"largest": np.asarray(largest), "at_floor": np.zeros(self.cells)}
        part["at_floor"] += np.bincount(cell[inverse >= largest * (1 - CLOSE)], minlength=self.cells)
        state |= _floor(state, part)

    def _fold_whole(self, state: State, batch: Batch, group: IntArray) -> None:
        omega = np.ones(len(batch)) if batch.weight is None else batch.weight
        state["rounds"][1] += np.bincount(group, omega, GROUPS)
        for rows, row, code, p in self._entries(batch):
            weight = omega[rows][row]
            taken = (batch.action[rows][row] == code).astype(np.float64)
            for key, cell in (("action", code % self.cells), ("bin", np.searchsorted(EDGES, p))):
                _add(state[key], group[rows][row], cell, weight, taken, p)
            off = np.abs(np.bincount(row, p, rows.stop - rows.start) - 1)
            state["sums"] += ((off > 1e-3).sum(), len(off))

    def _entries(self, batch: Batch) -> Iterator[tuple[slice, IntArray, IntArray, FloatArray]]:
        """Some rounds at a time: the round, the action and the chance of every entry that has one."""
        assert self.logging is not None
        if self.logging.lists and len(batch):
            listed = self.logging.listed(batch)
            yield slice(0, len(batch)), listed.row, listed.codes, listed.chances
            return
        for rows in blocks(len(batch), self.n_actions):
            p = self.logging.probabilities(batch.take(rows))
            row, code = np.nonzero(p)
            yield rows, row, code, p[row, code]

    def merge(self, a: State, b: State) -> State:
        return _added(a, b) | _floor(a, b)

    def misfits(self, state: State, logged: bool = True) -> list[Misfit]:
        """The tests that failed, the worst first; without the means of 1/p where chances were estimated, not logged."""
        found: list[Misfit] = []
        tests = 0
        for key in ("action", "bin") if self.whole_limit else ():
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


def _limit(rows: int, of: int) -> int:
    """So many buckets hold about so many rounds."""
    return min(BUCKETS, max(4 * GROUPS, math.ceil(BUCKETS * rows / max(of, 1))))


def _added(a: State, b: State) -> State:
    return {name: _added(part, b[name]) if isinstance(part, dict) else part + b[name] for name, part in a.items()}


def _floor(a: State, b: State) -> State:
    """The rounds at the smaller of two floors; of both where they are the same."""
    largest = max(float(a["largest"]), float(b["largest"]))
    counts = [part["at_floor"] for part in (a, b) if float(part["largest"]) >= largest * (1 - CLOSE)]
    return {"largest": np.asarray(largest), "at_floor": np.sum(counts, axis=0)}


def _add_sure(sums: FloatArray, group: IntArray, p: FloatArray, omega: FloatArray | None) -> None:
    """By group and t: Σωv with v = 1{p ≥ t}(1 − p)/p, Σω·1{p ≤ 1 − t}, and Σω²v(1 + v), the variance of their difference."""
    for k, t in enumerate(SURE):
        others = np.where(p >= t - CLOSE, (1 - p) / p, 0.0)
        came = (p <= 1 - t + CLOSE).astype(np.float64)
        variance = others * (1 + others)
        if omega is not None:
            others, came, variance = omega * others, omega * came, omega**2 * variance
        for part, values in zip(sums, (others, came, variance), strict=True):
            part[:, k] += np.bincount(group, values, GROUPS)


def _instead(sums: FloatArray, rounds: FloatArray) -> tuple[list[Misfit], int]:
    """Whether something else came as often, at least, as likely actions leave room for."""
    n = max(float(rounds.sum()), 1e-300)
    others, came, least = sums.sum(axis=1)
    variance, alike = _variance(least, sums[0] - sums[1], rounds)
    z = (others - came) / np.sqrt(np.maximum(variance, 1e-300))
    tested = np.flatnonzero((others**2 >= LEAST_ROUNDS * alike * least) & (z > 0))
    return [Misfit("sure", int(k), float(others[k] / n), float(came[k] / n), float(-z[k])) for k in tested], len(SURE)


def _zero(cells: int) -> State:
    """By group and cell: Σω, Σω·1{taken}, Σωp; and by cell Σω²p(1 − p)."""
    return {"by_group": np.zeros((3, GROUPS, cells)), "variance": np.zeros(cells)}


def _add(state: State, group: IntArray, cell: IntArray, weight: FloatArray, taken: FloatArray, p: FloatArray) -> None:
    cells = len(state["variance"])
    at = group * cells + cell
    for sums, values in zip(state["by_group"], (weight, weight * taken, weight * p), strict=True):
        sums += np.bincount(at, values, sums.size).reshape(sums.shape)
    state["variance"] += np.bincount(cell, weight**2 * p * (1 - p), cells)


def _variance(naive: FloatArray, sums: FloatArray, rounds: FloatArray) -> tuple[FloatArray, float]:
    """Of the total of each cell: as if rounds were independent, or from how groups of units differ (`sums`: groups × cells)
    where that is more; and by what factor it is more over all cells, for those that are too rare to show it."""
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

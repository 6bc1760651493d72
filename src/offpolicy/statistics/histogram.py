"""A histogram of non-negative numbers on a logarithmic scale, for tails in constant memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import BoolArray, FloatArray, rounded_to_24_bits, sums_by
from offpolicy.statistics.base import State, added

_SHIFT = np.int32(17)  # retains the exponent and 6 bits of the fraction of a float32: bins about 1% wide
FINE = 64  # bins per octave
LOWEST = -64  # values below 2⁻⁶⁴ share the bin of zero
OCTAVES = 128
_LOW = np.int32((127 + LOWEST) * FINE)
_LAST = OCTAVES * FINE - 1
_HALF = 27  # of 64 parts of an octave: 1 + 27/64 is about √2
AT_ONCE = 1 << 15
"""Values that are placed at a time: what is computed for them stays in the cache."""
LARGEST_OF = ("max", "heaviest")  # entries that are merged by their maximum instead of their sum


@dataclass(frozen=True)
class LogHistogram:
    """Counts, masses and sums of values in bins from 2⁻⁶⁴ to 2⁶⁴ whose edges grow by about 1%; or, `coarse`, by √2.

    Values are rounded to 24 bits, so that the sums do not depend on their order. The mass and the sum count each value with
    the weight of its row. `max` is the largest value, and `heaviest` the largest product of a value and the weight of its
    row.
    """

    coarse: bool = False

    @property
    def _bins(self) -> int:
        return 1 + (2 * OCTAVES if self.coarse else OCTAVES * FINE)

    def zero(self, sets: int = 0) -> State:
        """Without any values; with the counts and sums of so many sets of values, if any."""
        bins = {name: np.zeros(self._bins) for name in ("count", "mass", "sum")}
        own = {name: np.zeros((sets, self._bins)) for name in ("count of set", "sum of set")} if sets else {}
        return {**bins, **own, "max": np.zeros(()), "heaviest": np.zeros(())}

    def fold(
        self, state: State, values: FloatArray, omega: FloatArray | None = None, sets: Sequence[BoolArray] = ()
    ) -> State:
        """Add values; `omega` are the weights of their rows, and `sets` say which values belong to each set."""
        for some in (slice(start, start + AT_ONCE) for start in range(0, len(values), AT_ONCE)):
            own = None if omega is None else omega[some]
            state = self._fold_some(state, values[some], own, [members[some] for members in sets])
        return state

    def _fold_some(self, state: State, values: FloatArray, omega: FloatArray | None, sets: Sequence[BoolArray]) -> State:
        rounded = rounded_to_24_bits(values)
        bins = self._places(rounded)
        state = {**state, "max": np.maximum(state["max"], largest := values.max())}
        weighted = rounded if omega is None else omega * rounded
        count, sums = self._count_sets(state, bins, rounded, sets) if sets else _counted(bins, weighted, self._bins)
        return {
            **state,
            "count": state["count"] + count,
            "mass": state["mass"] + (count if omega is None else np.bincount(bins, omega, self._bins)),
            "sum": state["sum"] + sums,
            "heaviest": np.maximum(state["heaviest"], largest if omega is None else (omega * values).max()),
        }

    def _places(self, rounded: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
        """The bin of each value."""
        bins = _fine(rounded)
        if not self.coarse:
            return bins
        octave, part = np.divmod(bins - 1, FINE)
        return np.where(bins == 0, 0, 1 + 2 * octave + (part >= _HALF))

    def _count_sets(
        self, state: State, bins: npt.NDArray[np.int32], rounded: npt.NDArray[np.float32], sets: Sequence[BoolArray]
    ) -> tuple[Any, FloatArray]:
        """Add to the counts and sums of each set; those of all values. Counting both at once costs little more."""
        size = self._bins
        for k, members in enumerate(sets):
            place = bins + members * np.int32(size)
            count, sums = _counted(place, rounded, 2 * size)
            state["count of set"][k] += count[size:]
            state["sum of set"][k] += sums[size:]
        return count[:size] + count[size:], sums[:size] + sums[size:]

    @staticmethod
    def of_set(state: State, k: int) -> State:
        """The counts and sums of the values in a set."""
        return {name: state[f"{name} of set"][k] for name in ("count", "sum")}

    @staticmethod
    def outside(state: State, k: int) -> State:
        """The counts and sums of the values that are not in a set."""
        return {name: state[name] - state[f"{name} of set"][k] for name in ("count", "sum")}

    def merge(self, a: State, b: State) -> State:
        return added(a, b, LARGEST_OF)

    @staticmethod
    def top_share(state: State, share: float) -> float:
        """The share of the total that the largest `share` of the values accounts for."""
        total = float(state["sum"].sum())
        if total == 0:
            return 0.0
        mass, sums = state["mass"][::-1], state["sum"][::-1]
        target = share * mass.sum()
        before = np.concatenate([[0.0], np.cumsum(mass)[:-1]])
        part = np.clip((target - before) / np.where(mass > 0, mass, 1.0), 0, 1)
        return float((part * sums).sum() / total)

    @staticmethod
    def largest_share(state: State) -> float:
        """The largest share of the total that one value accounts for."""
        total = float(state["sum"].sum())
        return float(state["heaviest"]) / total if total > 0 else 0.0

    @staticmethod
    def tail(state: State, size: float) -> tuple[FloatArray, FloatArray, float]:
        """The centres (ascending) and counts of the fine bins that hold the largest `size` values, and the largest below."""
        used = np.flatnonzero(state["count"][1:])
        count, start = state["count"][1:][used], used.astype(np.float64)
        centre = _value(start + 0.5)
        first = int((np.cumsum(count[::-1])[::-1] >= size).sum()) - 1
        k = max(first - 1, 0)
        inside = count[k] / (count[k] + 1) if first > 0 else 0.0  # of values spread evenly over a bin, where the largest is
        below = _value(start[[k]] + inside)[0] if len(used) else 0.0
        return centre[max(first, 0) :], count[max(first, 0) :], float(below)

    @staticmethod
    def geometric_mean(state: State) -> tuple[float, float]:
        """The share of the mass with values above 0 (in fine bins), and their geometric mean to within 1%."""
        used = 1 + np.flatnonzero(state["mass"][1:] > 0)
        mass, total = state["mass"][used], float(state["mass"].sum())
        if not len(used):
            return 0.0, 0.0
        logs = np.log(_value(used.astype(np.float64) - 0.5))
        return float(mass.sum()) / total, float(np.exp(mass @ logs / mass.sum()))

    def steps(self, state: State) -> tuple[FloatArray, FloatArray, float]:
        """Edges that grow by about √2, the masses between them, and the mass of 0 (or below 2⁻⁶⁴)."""
        masses = state["mass"][1:]
        if not self.coarse:
            masses = np.add.reduceat(masses, np.add.outer(64 * np.arange(OCTAVES), (0, _HALF)).ravel())
        used = np.flatnonzero(masses)
        if not len(used):
            return np.empty(0), np.empty(0), float(state["mass"][0])
        first, last = int(used[0]), int(used[-1]) + 1
        k = np.arange(first, last + 1)
        edges = np.ldexp(np.where(k % 2 == 0, 1.0, 1 + _HALF / 64), k // 2 - 64)
        return edges, masses[first:last], float(state["mass"][0])

    @staticmethod
    def count_above(state: State, value: float) -> float:
        """The number of values above a bound, to about 1% of the bound."""
        (edge,) = _fine(rounded_to_24_bits(np.array([value])))
        return float(state["count"][edge + 1 :].sum())


def _fine(rounded: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """The fine bin of each value."""
    bins = rounded.view(np.int32) >> _SHIFT
    bins -= _LOW - 1
    np.clip(bins, 0, _LAST + 1, out=bins)
    return bins


def _counted(place: npt.NDArray[np.int32], values: Any, bins: int) -> tuple[Any, FloatArray]:
    """How many values are in each bin, and their sum."""
    return np.bincount(place, minlength=bins), sums_by(place, values, bins)


def _value(position: FloatArray) -> FloatArray:
    """The number at a position on the scale of the fine bins, in which each octave has 64 equal parts."""
    octave = np.floor(position / 64)
    number: FloatArray = np.ldexp(1 + position / 64 - octave, octave.astype(int) - 64)
    return number

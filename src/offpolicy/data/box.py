"""`Box`: actions that are numbers, or vectors of numbers, such as doses or prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from offpolicy.core.arrays import LARGEST_NUMBER, FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.data.checks import decoded, is_number
from offpolicy.data.spaces import ActionSpace, unserved
from offpolicy.data.splines import SplineBasis

FEWEST_REPEATED = 20
"""So many rounds per distinct action show that actions come from a few values, which a density does not describe."""


@final
@dataclass(frozen=True)
class Box(ActionSpace):
    """Actions that are numbers in an interval, such as doses or prices, or vectors of such numbers.

    The `propensity` of such a log is the density of the logged action under the logging policy, in the unit of the actions:
    if actions are multiplied by 10, densities are divided by 10. At the values in `points`, which the logging policy takes
    with positive probability, it is that probability.

    Parameters
    ----------
    low : float or sequence of float
        The smallest possible action, or that of each dimension.
    high : float or sequence of float
        The largest possible action, or that of each dimension.
    points : sequence of float, default=()
        Values that are logged with a probability instead of a density, such as "no change" or a list of prices. Only for
        actions of one dimension.

    Examples
    --------
    >>> import offpolicy as op
    >>> op.Log([[0.0], [1.0]], action=[20.0, 75.0], reward=[1, 0], propensity=[0.01, 0.01], actions=op.Box(0, 100))
    Log(2 rounds, actions: numbers from 0 to 100, context 1, rewards ['reward'])
    >>> op.Box([0, -1], [10, 1]).nature
    'vectors of 2 numbers from (0, -1) to (10, 1)'
    """

    low: float | Sequence[float]
    high: float | Sequence[float]
    _: KW_ONLY
    points: Sequence[float] = ()
    kind = "numbers from an interval"
    likelihood = "density"
    count = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, _bound(name, getattr(self, name)))
        if np.shape(self.low) != np.shape(self.high):
            raise InputError(f"Box: low is {self.low} and high is {self.high}; give both for the same dimensions.")
        for low, high in zip(self.lows.tolist(), self.highs.tolist(), strict=True):
            if not low < high:
                raise InputError(f"Box: low is {low:g} and high is {high:g}; low must be smaller than high.")
        points = tuple(float(p) if is_number(p) else np.nan for p in self.points)
        if points and (self.shape or len(set(points)) < len(points) or self.outside(np.array(points)).any()):
            raise InputError(
                f"Box: points is {self.points!r}; give different numbers from low to high, for actions of one dimension."
            )
        object.__setattr__(self, "points", tuple(sorted(points)))

    @property
    def nature(self) -> str:
        if not self.shape:
            at = f", with probabilities at {_listed(self.points)}" if self.points else ""
            return f"numbers from {self.lows[0]:.12g} to {self.highs[0]:.12g}{at}"
        return f"vectors of {self.dimensions} numbers from ({_listed(self.lows)}) to ({_listed(self.highs)})"

    @property
    def shape(self) -> tuple[int, ...]:
        return () if is_number(self.low) else (self.dimensions,)

    @cached_property
    def lows(self) -> FloatArray:
        """The smallest action of each dimension."""
        return np.atleast_1d(np.asarray(self.low, dtype=np.float64))

    @cached_property
    def highs(self) -> FloatArray:
        """The largest action of each dimension."""
        return np.atleast_1d(np.asarray(self.high, dtype=np.float64))

    @property
    def dimensions(self) -> int:
        """The number of numbers of an action."""
        return len(self.lows)

    @cached_property
    def axes(self) -> tuple[Box, ...]:
        """The box of each dimension."""
        return tuple(Box(low, high) for low, high in zip(self.lows.tolist(), self.highs.tolist(), strict=True))

    @property
    def ranges(self) -> FloatArray:
        """The length of each dimension."""
        ranges: FloatArray = self.highs - self.lows
        return ranges

    def vectors(self, actions: FloatArray) -> FloatArray:
        """Actions as vectors, also if they are numbers: with the dimensions along a last axis.

        Parameters
        ----------
        actions : array of float
            Encoded actions, of any number of axes.
        """
        return actions if self.shape else actions[..., None]

    def outside(self, actions: FloatArray) -> npt.NDArray[np.bool_]:
        """Which actions are not in the box, NaN among them.

        Parameters
        ----------
        actions : array of float
            Encoded actions, of any number of axes.
        """
        vectors = self.vectors(actions)
        inside: npt.NDArray[np.bool_] = np.asarray(((vectors >= self.lows) & (vectors <= self.highs)).all(axis=-1))
        return ~inside

    def at_point(self, actions: FloatArray) -> npt.NDArray[np.bool_]:
        """Which actions have a probability instead of a density.

        Parameters
        ----------
        actions : array of float
            Encoded actions, one per round.
        """
        return np.isin(actions, self.points) if self.points else np.zeros(len(actions), np.bool_)

    @cached_property
    def basis(self) -> SplineBasis:
        """The functions of actions that models are tables over."""
        return SplineBasis(tuple(self.lows.tolist()), tuple(self.highs.tolist()))

    @property
    def table_rows(self) -> int:
        return self.basis.size

    def expand(self, table: FloatArray, action: npt.NDArray[Any]) -> FloatArray:
        return self.basis.values(self.vectors(action)) @ table

    def collect(self, values: FloatArray, action: npt.NDArray[Any]) -> FloatArray:
        sums: FloatArray = self.basis.values(self.vectors(action)).T @ values.T
        return sums

    def encode(self, column: pa.Array) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        column = decoded(column)
        if self.shape:
            return self._encode_vectors(column)
        if not _numeric(column.type):
            raise InputError(f"actions are {self.nature}, but the column contains {column.type}.")
        values: FloatArray = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return values, self.outside(values)

    def _encode_vectors(self, column: pa.Array) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        nested = pt.is_list(column.type) or pt.is_large_list(column.type) or pt.is_fixed_size_list(column.type)
        if not nested or not _numeric(column.type.value_type):
            raise InputError(
                f"actions are {self.nature}, but the column contains {column.type}; each action must be a list of "
                f"{self.dimensions} numbers."
            )
        lengths = column.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
        whole = lengths == self.dimensions
        values = np.full((len(column), self.dimensions), np.nan)
        flat = column.filter(pa.array(whole)).flatten().cast(pa.float64(), safe=False)
        values[whole] = flat.to_numpy(zero_copy_only=False).reshape(-1, self.dimensions)
        return values, self.outside(values)

    def unknown(self, examples: Sequence[Any]) -> tuple[str, str]:
        bounds = f"{_listed(self.lows)}..{_listed(self.highs)}" if not self.shape else f"the {self.nature}"
        return f"have an action outside {bounds} ({examples[0]!r})", "Correct the actions or the bounds."

    def check_sample(self, actions: npt.NDArray[Any]) -> None:
        vectors = self.vectors(actions[~self.at_point(actions)])
        for j, values in enumerate(vectors.T if len(vectors) else ()):
            distinct = np.unique(values)
            where = f" in dimension {j}" if self.shape else ""
            if len(values) >= FEWEST_REPEATED and len(distinct) == 1:
                raise InputError(
                    f"action: the first {len(values):,} rounds all have the action {distinct[0]:.6g}{where}. A policy that "
                    "never varies its action shows nothing about other actions; evaluate a log with varied actions."
                )
            if len(values) >= FEWEST_REPEATED * len(distinct):
                raise InputError(
                    f"action: the first {len(values):,} rounds have only {len(distinct)} different actions{where} "
                    f"({_listed(distinct[:3])}, …), which have probabilities and not densities. List them as "
                    'op.Box(…, points=[…]) (--actions box:LOW:HIGH:POINT,POINT), or pass actions="labels" (--actions '
                    "labels) if the new policy takes no others."
                )

    def tally(self, action: npt.NDArray[Any]) -> IntArray:  # noqa: ARG002
        return np.empty(0, np.int64)

    def fingerprint(self) -> bytes:
        return repr((self.low, self.high, self.points) if self.points else (self.low, self.high)).encode()


def _bound(name: str, value: Any) -> float | tuple[float, ...]:
    """A number, or a tuple of numbers, of which none is too large."""
    several = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str) and np.ndim(value) == 1
    values = list(value) if several else [value]
    if not values or not all(is_number(v) and abs(v) <= LARGEST_NUMBER for v in values):
        raise InputError(
            f"Box: {name} is {value!r}; give a number within ±{LARGEST_NUMBER:g}, or a list of one per dimension."
        )
    return tuple(map(float, values)) if several else float(value)


def _listed(values: Sequence[float] | FloatArray) -> str:
    return ", ".join(f"{value:.12g}" for value in values)


def _numeric(type_: pa.DataType) -> bool:
    return bool(pt.is_floating(type_) or pt.is_integer(type_) or pt.is_decimal(type_))


def box(space: ActionSpace, what: str) -> Box:
    """The space, for code that supports numeric actions only."""
    if not isinstance(space, Box):
        raise InputError(f"{what} is for {unserved((Box,), space)}.")
    return space

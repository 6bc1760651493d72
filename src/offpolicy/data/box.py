"""`Box`: actions that are numbers, such as doses or prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from offpolicy.core.arrays import LARGEST_NUMBER, FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.data.checks import decoded, is_number
from offpolicy.data.spaces import ActionSpace, unserved


@final
@dataclass(frozen=True)
class Box(ActionSpace):
    """Actions that are numbers in an interval, such as doses or prices.

    The `propensity` of such a log is the density of the logged action under the logging policy.

    Parameters
    ----------
    low : float
        The smallest possible action.
    high : float
        The largest possible action.

    Examples
    --------
    >>> import offpolicy as op
    >>> op.Log([[0.0], [1.0]], action=[20.0, 75.0], reward=[1, 0], propensity=[0.01, 0.01], actions=op.Box(0, 100))
    Log(2 rounds, actions: numbers from 0 to 100, context 1, rewards ['reward'])
    """

    low: float
    high: float
    kind = "numbers from an interval"
    likelihood = "density"
    count = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            if not is_number(value) or not abs(value) <= LARGEST_NUMBER:
                raise InputError(f"Box: {name} is {value!r}; give a number within ±{LARGEST_NUMBER:g}.")
            object.__setattr__(self, name, float(value))
        if not self.low < self.high:
            raise InputError(f"Box: low is {self.low:g} and high is {self.high:g}; low must be smaller than high.")

    @property
    def nature(self) -> str:
        return f"numbers from {self.low:.12g} to {self.high:.12g}"

    def encode(self, column: pa.Array) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        column = decoded(column)
        if not (pt.is_floating(column.type) or pt.is_integer(column.type) or pt.is_decimal(column.type)):
            raise InputError(f"actions are {self.nature}, but the column contains {column.type}.")
        values: FloatArray = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return values, ~((values >= self.low) & (values <= self.high))

    def unknown(self, examples: Sequence[Any]) -> tuple[str, str]:
        seen = f"have an action outside {self.low:.12g}..{self.high:.12g} ({examples[0]!r})"
        return seen, "Correct the actions or the bounds."

    def tally(self, action: npt.NDArray[Any]) -> IntArray:  # noqa: ARG002
        return np.empty(0, np.int64)

    def fingerprint(self) -> bytes:
        return repr(self).encode()


def box(space: ActionSpace, what: str) -> Box:
    """The space, for code that supports numeric actions only."""
    if not isinstance(space, Box):
        raise InputError(f"{what} is for {unserved((Box,), space)}.")
    return space

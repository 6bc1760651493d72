"""SLOPE: pick from a family that is ordered by bias, by comparing intervals (Su et al. 2020; Tucker & Lee 2021)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from offpolicy.batch import FloatArray

REACH = np.sqrt(6) - 1
"""Tucker & Lee's constant: how far below an earlier member's half-width counts as agreement."""


def slope(values: npt.ArrayLike, half_widths: npt.ArrayLike) -> int:
    """The last member that agrees with every one before it. Members stand from the least biased to the most.

    Member i stands as long as |V_i − V_j| ≤ c_i + (√6 − 1)·c_j for all j < i, c being half-widths that are made to fall
    along the family.

    >>> slope([1.0, 1.1, 3.0], [0.5, 0.2, 0.1])
    1
    """
    v: FloatArray = np.asarray(values, dtype=np.float64)
    c = np.minimum.accumulate(np.asarray(half_widths, dtype=np.float64))
    for i in range(1, len(v)):
        if not (np.abs(v[i] - v[:i]) <= c[i] + REACH * c[:i]).all():
            return i - 1
    return len(v) - 1

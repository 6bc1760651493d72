"""Selection over a family that is ordered by bias, after SLOPE (Su et al. 2020; Tucker & Lee 2021).

SLOPE keeps moving to the next, smoother member for as long as its interval meets all earlier ones. The members here are
scored on the same rows, so their *differences* are known far better than each of them, and the intervals that must meet are
those of the differences.

The rule and its reach of 2 were picked by hand from six variants in a few small linear worlds; the bench is to judge them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

REACH = 2.0


def standardised(value: float, error: float) -> float:
    """The value in standard errors; 0 where it is exactly 0, as for the difference of two equal estimates."""
    if error > 0:
        return value / error
    return 0.0 if abs(value) < 1e-12 else math.copysign(math.inf, value)


def slope(count: int, z: Callable[[int, int], float], reach: float = REACH) -> int:
    """The last member that agrees with every one before it. Members stand from the least biased to the most.

    `z(i, j)` is the difference of members i and j in standard errors of that difference.

    >>> slope(3, lambda i, j: [[0, 0, 0], [1.2, 0, 0], [3.1, 2.5, 0]][i][j])
    1
    """
    for i in range(1, count):
        if any(abs(z(i, j)) > reach for j in range(i)):
            return i - 1
    return count - 1


def smallest_error(
    sets: Sequence[frozenset[str]], z: Callable[[int, int], float], errors: Sequence[float], reach: float = REACH
) -> int:
    """Among subsets of dimensions, the full one first: the one of least error that agrees with all that contain it.

    >>> sets = [frozenset("ab"), frozenset("a"), frozenset("b")]
    >>> smallest_error(sets, lambda i, j: 0.5 if i == 1 else 9.0, [0.3, 0.1, 0.05])
    1
    """
    agree: set[int] = set()
    for i, subset in enumerate(sets):
        above = [j for j in range(i) if subset < sets[j]]
        if all(j in agree and abs(z(i, j)) <= reach for j in above):
            agree.add(i)
    return min(agree, key=lambda i: errors[i])

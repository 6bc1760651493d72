"""Sums without rounding: any order and any partitioning gives the same bits."""

from __future__ import annotations

import math
from functools import reduce
from operator import add

import numpy as np
import pytest

from offpolicy.core.exact_sum import ExactSum

TINY = 5e-324


def test_the_mean_is_the_exact_one_rounded_once() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=20_000) * 10.0 ** rng.integers(-300, 30, 20_000)
    assert ExactSum.of(values).mean == math.fsum(values) / len(values)


@pytest.mark.parametrize("parts", [1, 2, 7, 500])
def test_order_and_partitioning_do_not_change_a_bit(parts: int) -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(1e8, 1e3, 3_000), rng.normal(size=3_000), [1e30, -1e30, TINY, -0.0]])
    pieces = np.array_split(rng.permutation(values), parts)
    assert reduce(add, map(ExactSum.of, pieces)) == ExactSum.of(values)


def test_the_smallest_numbers_and_no_numbers() -> None:
    assert ExactSum.of(np.array([TINY, TINY])).mean == TINY
    assert ExactSum.of(np.array([-1e30, 1e30, TINY])).scaled == ExactSum.of(np.array([TINY])).scaled != 0
    assert math.isnan(ExactSum().mean)

"""`Box`: its bounds, and the columns that hold its actions. tests/data/test_spaces.py takes it through a log and a report."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import offpolicy as op


def test_a_box_says_what_it_is() -> None:
    box = op.Box(0, 1_000_000)
    assert box == op.Box(np.int64(0), 1e6) != op.Box(0, 1)
    assert (box.count, box.described, box.likelihood) == (None, "actions: numbers from 0 to 1000000", "density")
    assert pickle.loads(pickle.dumps(box)) == box
    assert box.fingerprint() == op.Box(np.float64(0), 1e6).fingerprint() != op.Box(0, 1).fingerprint()


@pytest.mark.parametrize(
    "bounds", [(1, 1), (2, 1), (0, np.inf), (np.nan, 1), ("a", 1), (False, True), (0, None), (-1e31, 0)]
)
def test_wrong_bounds_are_refused(bounds: tuple[Any, Any]) -> None:
    with pytest.raises(op.InputError, match=r"^Box: (low|high) is .*; (give a number|low must be smaller)"):
        op.Box(*bounds)


@pytest.mark.parametrize("column", [
    pa.array([0, 1, 3]), pa.array([0.0, 1.0, 3.0], pa.float32()), pa.array([Decimal("0"), Decimal("1.0"), Decimal(3)]),
    pa.array([0.0, 1.0, 3.0]).dictionary_encode(),
])  # fmt: skip
def test_columns_of_numbers_are_actions(column: pa.Array) -> None:
    values, bad = op.Box(0, 2).encode(column)
    assert (values.tolist(), values.dtype, bad.tolist()) == ([0, 1, 3], np.float64, [False, False, True])


@pytest.mark.parametrize("density", [np.nan, 0.0, -1.0, np.inf])
def test_wrong_densities_are_named(density: float) -> None:
    with pytest.raises(op.InputError, match=r"^propensity: 1 row .*first, counted from 0: 1\)"):
        op.Log([1, 2, 3], [0.1, 0.2, 0.3], [1, 1, 1], propensity=[1, density, 1], actions=op.Box(0, 1))

"""Statistics merge like the sets of rows behind them, and keep their digits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from offpolicy.core.hashing import BUCKETS, buckets, group_of_bucket, hash_rows
from offpolicy.statistics.gram import Gram
from offpolicy.statistics.histogram import LogHistogram
from offpolicy.statistics.moments import Moments

numbers = st.floats(-100, 100, allow_nan=False)
columns = st.integers(0, 12).flatmap(lambda n: arrays(np.float64, (3, n), elements=numbers))


def close(a: object, b: object) -> None:
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-9, atol=1e-7)


@settings(max_examples=60, deadline=None)
@given(columns, columns, columns)
def test_moments_merge(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    m = Moments(3)
    x, y, z = (m.fold(m.zero(), part) for part in (a, b, c))
    close(m.merge(m.merge(x, y), z), m.merge(x, m.merge(y, z)))  # associative
    close(m.merge(x, y), m.merge(y, x))  # commutative
    close(m.merge(x, m.zero()), x)  # zero is neutral
    close(m.merge(m.merge(x, y), z), m.fold(m.zero(), np.hstack([a, b, c])))  # splitting changes nothing


def test_moments_at_a_great_height() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1, 10_000))
    m = Moments(1)
    state = m.zero()
    for part in np.array_split(values + 1e8, 13, axis=1):
        state = m.fold(state, part)
    assert state["m2"][0, 0] == pytest.approx(((values - values.mean()) ** 2).sum(), rel=1e-7)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.booleans())
def test_gram_matrices_merge(seed: int, n: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    key, values = rng.integers(0, 5, n), rng.normal(size=(4, n)) + 50
    weight = rng.uniform(0.1, 3, n) if weighted else None
    gram = Gram(5, 3, 1)
    whole = gram.fold(gram.zero(), key, values, weight)
    cut = rng.integers(0, n + 1)
    parts = [
        gram.fold(gram.zero(), key[rows], values[:, rows], None if weight is None else weight[rows])
        for rows in (slice(0, cut), slice(cut, n))
        if len(key[rows])
    ]
    merged = gram.zero()
    for part in parts:
        merged = gram.merge(merged, part)
    close(gram.dense(merged), gram.dense(whole))
    state = gram.unpack(gram.dense(whole), 0)
    w = np.ones(n) if weight is None else weight
    for k in range(5):
        rows = key == k
        if rows.any():
            mean = np.average(values[:, rows], axis=1, weights=w[rows])
            centred = values[:, rows] - mean[:, None]
            products = (centred * w[rows]) @ centred.T
            np.testing.assert_allclose(state.xx[k], products[:3, :3], atol=1e-9)
            np.testing.assert_allclose(state.xr[k], products[:3, 3], atol=1e-9)
            np.testing.assert_allclose(state.rr[k], products[3, 3], atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 30), min_size=1, max_size=8), st.booleans())
def test_few_of_many_keys(seed: int, sizes: list[int], shared: bool) -> None:
    """A state that holds only the keys it has seen says the same as one that holds all, however parts are merged."""
    rng = np.random.default_rng(seed)
    gram = Gram(200, 2, 1, shared=2 if shared else 0)
    keys = [rng.choice(200, n) for n in sizes]
    parts = [rng.normal(size=(3, n)) + 5 for n in sizes]
    merged = gram.zero()
    for key, values in zip(keys, parts, strict=True):
        merged = gram.merge(merged, gram.fold(gram.zero(), key, values, None))
    folded = gram.zero()
    for key, values in zip(keys, parts, strict=True):
        folded = gram.fold(folded, key, values, None)
    key, values = np.concatenate(keys), np.hstack(parts)
    full = gram.dense(merged)
    close(full, gram.dense(folded))
    assert ("key" in merged) == (len(np.unique(key)) < 100)
    within = np.zeros((2, 2, 2))
    for k in np.unique(key):
        rows = values[:, key == k]
        centred = rows - rows.mean(axis=1, keepdims=True)
        assert full["n"][k] == rows.shape[1]
        np.testing.assert_allclose(full["mean"][k], rows.mean(axis=1))
        np.testing.assert_allclose(full["m2"][k][-3:-1], (centred @ centred.T)[:2, 2], atol=1e-9)
        within[k // 100] += (centred @ centred.T)[:2, :2]
    if shared:
        np.testing.assert_allclose(full["xx"], within, atol=1e-8)


def test_pooled_gram_is_the_gram_of_all() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(3, 200))
    by_key, as_one = Gram(7, 2, 1), Gram(1, 2, 1)
    pooled = by_key.unpack(by_key.dense(by_key.fold(by_key.zero(), rng.integers(0, 7, 200), values, None)), 0).pooled()
    whole = as_one.unpack(as_one.dense(as_one.fold(as_one.zero(), np.zeros(200, int), values, None)), 0).at(0)
    np.testing.assert_allclose(pooled.xx, whole.xx, atol=1e-10)
    np.testing.assert_allclose(pooled.xr, whole.xr, atol=1e-10)
    np.testing.assert_allclose(pooled.rr, whole.rr, atol=1e-10)


def test_histogram_tells_the_tail() -> None:
    weights = np.concatenate([np.ones(990), np.full(10, 99.0)])
    h = LogHistogram()
    state = h.merge(h.fold(h.zero(), weights[:400]), h.fold(h.zero(), weights[400:]))
    assert h.top_share(state, 0.01) == pytest.approx(990 / 1980, rel=1e-12)
    assert float(state["max"]) == 99.0
    assert h.count_above(state, 50.0) == 10
    assert h.top_share(h.fold(h.zero(), np.zeros(5)), 0.01) == 0.0


def test_buckets_are_even_and_depend_on_the_seed() -> None:
    unit = hash_rows("day.parquet", 0, 400_000)
    counts = np.bincount(buckets(unit, 0), minlength=BUCKETS)
    chi2 = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(chi2 - (BUCKETS - 1)) < 5 * np.sqrt(2 * BUCKETS)
    assert (buckets(unit, 0) == buckets(unit, 1)).mean() < 0.01
    assert (np.diff(np.bincount(group_of_bucket(20))) <= 1).all()

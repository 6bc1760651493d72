"""Sums by bin that are the same bytes in any order and any partitioning."""

from __future__ import annotations

import numpy as np
import pytest

from offpolicy.statistics.base import State
from offpolicy.statistics.histogram import LogHistogram
from offpolicy.statistics.signed_histogram import BINS, Bins, SignedHistogram


def folded(*parts: np.ndarray) -> State:
    state = SignedHistogram.zero()
    for part in parts:
        state = SignedHistogram.merge(state, SignedHistogram.fold(SignedHistogram.zero(), part))
    return state


def test_by_hand() -> None:
    bins = Bins.of(folded(np.array([0.0, 1.0, 1.1, 1.2, -2.0])))
    assert bins.low.tolist() == [0.0, 1.0, 1.125, -2.25]
    assert bins.high.tolist()[1:] == [1.125, 1.25, -2.0]
    assert bins.count.tolist() == [1, 2, 1, 1]
    assert bins.total == pytest.approx([0, 2.1, 1.2, -2])


def test_the_same_bytes_in_any_order_and_partitioning() -> None:
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, 3, 30_000) * rng.choice([-1, 0, 1], 30_000)
    whole = folded(values)
    for k in (2, 7):
        shuffled = np.array_split(rng.permutation(values), k)
        again = folded(*shuffled)
        assert again["count"].tobytes() == whole["count"].tobytes()
        assert again["sum"].tobytes() == whole["sum"].tobytes()
    assert whole["count"].sum() == 30_000
    assert whole["sum"].sum() == pytest.approx(values.sum(), rel=1e-6)


@pytest.mark.parametrize("value", [1e-300, 1e-40, 1e38, 1e300, -1e300])
def test_extreme_values_are_kept(value: float) -> None:
    bins = Bins.of(folded(np.array([value])))
    assert bins.n == 1
    assert np.isfinite([*bins.low, *bins.high, *bins.total]).all()
    assert (bins.low <= bins.total).all()
    assert (bins.total <= bins.high).all()
    assert len(folded(np.array([value]))["count"]) == BINS


def test_affine_bins() -> None:
    bins = Bins.of(folded(np.array([1.0, 1.1])))
    turned = bins.affine(-2.0, 3.0)
    assert (turned.low.tolist(), turned.high.tolist()) == ([0.75], [1.0])
    assert turned.total == pytest.approx([6 - 4.2])


def test_weights_of_a_finer_histogram() -> None:
    """Those of a set and those outside add up to all; what is too small or too large for it stays within its bins."""
    rng = np.random.default_rng(3)
    weights = np.concatenate([rng.lognormal(0, 2, 5_000), [0.0, 1e-30, 1e25]])
    members, fine = rng.random(len(weights)) < 0.3, LogHistogram()
    state = fine.fold(fine.zero(1), weights, None, [members])
    for part, chosen in ((fine.of_set(state, 0), members), (fine.outside(state, 0), ~members)):
        own = SignedHistogram.with_weights(SignedHistogram.zero(), part)
        direct = folded(np.clip(np.where(weights < 1e-19, 0.0, weights), 0, 1.8e19)[chosen])
        assert own["count"].tolist() == direct["count"].tolist()
        usual = slice(0, np.flatnonzero(direct["count"])[-1])
        assert own["sum"][usual].tobytes() == direct["sum"][usual].tobytes()
    plain = fine.fold(fine.zero(), weights)
    assert all(np.array_equal(state[name], plain[name]) for name in plain)

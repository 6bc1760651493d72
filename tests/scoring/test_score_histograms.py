"""Histograms of scores that are made of those of all weights and of the rounds with a reward: those of every round."""

from __future__ import annotations

import numpy as np
import pytest

import offpolicy as op
from offpolicy.core.arrays import FloatArray
from offpolicy.statistics.signed_histogram import Bins, SignedHistogram

N = 3_000
P_OLD, P_NEW, P_OTHER = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5]), np.array([0.3, 0.0, 0.7])


def same(name: str, bins: Bins, scores: FloatArray) -> None:
    expected = Bins.of(SignedHistogram.of(scores + 0.0))  # −0.0 has a bin of its own
    for field in ("low", "high", "count", "total"):
        assert getattr(bins, field).tobytes() == getattr(expected, field).tobytes(), (name, field)


@pytest.mark.parametrize("rewards", [(0.0, 1.0), (0.0, 0.3, 1.0), (0.2, 0.7)])
@pytest.mark.parametrize("baseline", ["log", "other"])
def test_every_score_of_every_round_is_counted(rewards: tuple[float, ...], baseline: str) -> None:
    rng = np.random.default_rng(0)
    a, r = rng.choice(3, N, p=P_OLD), rng.choice(rewards, N)
    log = op.Log(None, a, r, propensity=P_OLD[a], reward_range=(0, 1), n_actions=3)
    policies = {"new": op.Fixed(P_NEW), "other": op.Fixed(P_OTHER)}
    engine = op.Local(threads=1, batch_rows=700)
    result = op.evaluate(log, policies, op.IPS(), sequence=baseline, engine=engine)
    w, scores = (P_NEW / P_OLD)[a], result["new", "IPS"].evidence.scores
    found = dict(scores.bins)
    same("hits", found["hits"], w * r)
    same("misses", found["misses"], w - w * r)
    logged = dict(result["new", result.logged_estimator].evidence.scores.bins)
    same("logged hits", logged["hits"], r)
    same("logged misses", logged["misses"], 1 - r)
    second = np.ones(N) if baseline == "log" else (P_OTHER / P_OLD)[a]
    gains = dict(dict(scores.gains)[None if baseline == "log" else "other"])
    same("gains", gains["gains"], (w - second) * r)
    same("ahead", gains["ahead"], second + (w - second) * r)
    same("behind", gains["behind"], w - (w - second) * r)


def test_weights_that_no_diagnostic_sorts() -> None:
    """Those of densities."""
    rng = np.random.default_rng(1)
    dose, r = rng.uniform(0, 1, N), rng.integers(0, 2, N) * 1.0
    log = op.Log(np.zeros((N, 1)), dose, r, propensity=np.ones(N), actions=op.Box(0, 1), reward_range=(0, 1))
    result = op.evaluate(log, op.Density(lambda _, u: 2 * u), op.IPS(), sequence=True)
    found = dict(result["IPS"].evidence.scores.bins)
    same("hits", found["hits"], 2 * dose * r)
    same("misses", found["misses"], 2 * dose * (1 - r))

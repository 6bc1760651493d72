"""The laws of the kernel ratio: its mass in the box, its mean under the logging policy, its limit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

import offpolicy as op
from offpolicy.ratios.kernels import KernelRatio, epanechnikov, half_mass
from offpolicy.ratios.weights import Weight


def tau(x: np.ndarray) -> np.ndarray:
    return x[:, 0]


@pytest.mark.parametrize("v", [0.0, 0.3, 1.0, 4.0])
def test_half_the_mass_is_the_integral_of_the_kernel(v: float) -> None:
    integral, _ = quad(lambda u: float(epanechnikov(np.array(u))), 0, v, points=[1.0])
    assert float(half_mass(np.array(v))) == pytest.approx(integral)


@pytest.mark.parametrize("bandwidth", [1e-6, 0.1, 0.7, 1e25])
@pytest.mark.parametrize("target", [0.0, 0.05, 0.5, 1.0])
def test_the_smoothed_policy_has_mass_1_in_the_box(bandwidth: float, target: float) -> None:
    """Over a fine grid of actions with density 1: the mean weight is the integral of K_h/α."""
    low, high = max(0.0, target - bandwidth), min(1.0, target + bandwidth)
    a = low + (high - low) * (np.arange(20_000) + 0.5) / 20_000
    log = op.Log(np.full(len(a), target), a, a, propensity=np.full(len(a), 1 / (high - low)), actions=op.Box(0, 1))
    estimate = op.evaluate(log, op.Deterministic(tau), [op.KernelIPS(bandwidth)])["KernelIPS"]
    assert estimate.diagnostics["mean_weight"] == pytest.approx(1, abs=1e-6)


def test_the_mean_weight_is_1_under_the_logging_policy() -> None:
    """Logged by Beta(2, 2), which seldom goes where x, and with it the kernel, lies near the bounds."""
    rng = np.random.default_rng(0)
    n = 100_000
    x, a = rng.uniform(0.02, 0.98, n), rng.beta(2, 2, n)
    log = op.Log(x, a, np.ones(n), propensity=6 * a * (1 - a), actions=op.Box(0, 1))
    for bandwidth in (0.05, 0.2, 2.0):
        estimate = op.evaluate(log, op.Deterministic(tau), [op.KernelIPS(bandwidth)])["KernelIPS"]  # rewards are 1
        assert abs(estimate.value - 1) < 3 * estimate.std_error, bandwidth


def test_a_smaller_bandwidth_has_a_smaller_bias() -> None:
    """E[r|x, a] = 10(a − τ)², so that the truth is 0, and the bias 10·h²·∫u²K = 2h² where the kernel lies inside the box.

    200 logs of 1,000 rounds. Biases must fall with the bandwidth, up to two standard errors of the mean over logs.
    """
    bandwidths, runs, n = (0.25, 0.15, 0.05), 200, 1_000
    values = np.empty((runs, len(bandwidths)))
    for run in range(runs):
        rng = np.random.default_rng(run)
        x, a = rng.uniform(0.25, 0.75, n), rng.uniform(0, 1, n)
        log = op.Log(x, a, 10 * (a - x) ** 2 + rng.normal(0, 0.1, n), propensity=np.ones(n), actions=op.Box(0, 1))
        every = [op.KernelIPS(h, name=str(h)) for h in bandwidths]
        result = op.evaluate(log, op.Deterministic(tau), every, engine=op.Local(threads=1), errors=False)
        values[run] = [result[str(h)].value for h in bandwidths]
    bias, error = values.mean(axis=0), values.std(axis=0) / np.sqrt(runs)
    np.testing.assert_allclose(bias, [2 * h * h for h in bandwidths], atol=3 * error.max())
    assert bias[0] > 2 * error[0]  # seen at all
    for wide, narrow in ((0, 1), (1, 2)):
        difference = values[:, wide] - values[:, narrow]
        assert difference.mean() > -2 * difference.std() / np.sqrt(runs)


def test_it_has_mean_1_and_is_not_exact() -> None:
    weight = Weight(KernelRatio(0.1))
    assert weight.mean_one
    assert not weight.exact
    assert not weight.model_error_cancels
    log = op.Log([0.1, 0.2], [0.1, 0.2], [1, 2], propensity=[1, 1], actions=op.Box(0, 1))
    with pytest.raises(op.InputError, match=r"^Blend: none of the candidates \(KernelIPS, wide\) is nearly unbiased"):
        op.evaluate(log, op.Deterministic(tau), [op.Blend([op.KernelIPS(), op.KernelIPS(0.2, name="wide")])])

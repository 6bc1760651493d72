"""The laws of the kernel ratio: its mass in the box, its mean under the logging policy, its limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

import offpolicy as op
from offpolicy.ratios.kernels import KERNELS, KernelRatio, SmoothingKernel, bandwidth_of
from offpolicy.ratios.weights import Weight


def tau(x: np.ndarray) -> np.ndarray:
    return x[:, 0]


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=str)
@pytest.mark.parametrize("v", [0.0, 0.3, 1.0, 4.0])
def test_the_parts_of_the_moments_are_integrals(v: float, kernel: SmoothingKernel) -> None:
    for power, part in enumerate((kernel.mass, kernel.first, kernel.second)):
        integral, _ = quad(lambda u, k=power: u**k * float(kernel.density(np.array(u))), 0, v, points=[1.0])
        assert float(part(np.array(v))) == pytest.approx(integral, abs=1e-13)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=str)
@pytest.mark.parametrize("boundary", ["exact", "linear"])
@pytest.mark.parametrize("target", [0.0, 0.05, 0.5, 1.0])
def test_the_corrected_kernel_integrates_to_1(target: float, boundary: Any, kernel: SmoothingKernel) -> None:
    """Gauss–Legendre quadrature on both sides of the target, to 1e-12; the linear one also has its mean at the target."""
    ratio, space, h = KernelRatio(bandwidth_of(0.2), kernel, boundary), op.Box(0, 1), 0.2
    reach = min(kernel.reach, 20) * h
    total, mean = 0.0, 0.0
    for low, high in ((max(0, target - reach), target), (target, min(1, target + reach))):
        at, weights = np.polynomial.legendre.leggauss(80)
        a, weights = low + (at + 1) / 2 * (high - low), weights * (high - low) / 2
        density = ratio.smoothed(a[:, None], np.full((80, 1), target), space)
        total, mean = total + weights @ density, mean + weights @ (density * (a - target))
    assert total == pytest.approx(1, abs=1e-12)
    if boundary == "linear":
        assert mean == pytest.approx(0, abs=1e-12)


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
    weight = Weight(KernelRatio(bandwidth_of(0.1)))
    assert weight.mean_one
    assert not weight.exact
    assert weight.model_error_cancels
    log = op.Log([0.1, 0.2], [0.1, 0.2], [1, 2], propensity=[1, 1], actions=op.Box(0, 1))
    with pytest.raises(op.InputError, match=r"^Blend: none of the candidates \(KernelIPS, wide\) is nearly unbiased"):
        op.evaluate(log, op.Deterministic(tau), [op.Blend([op.KernelIPS(0.1), op.KernelIPS(0.2, name="wide")])])

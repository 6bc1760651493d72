"""Kernel estimators: values by hand, laws, vectors, points, the mix of widths, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import offpolicy as op
from offpolicy.estimators.widths import CRUDE, WIDTHS, KernelEstimates, WidthMix
from offpolicy.worlds import Doses

X = np.array([0, 0.5, 1, 1, 0.5])
A = np.array([0, 0.75, 0.75, 0, 0.5])
R = np.array([1, 2, 1, 5, 4.0])
P = np.array([2, 1, 1, 1, 0.5])
FIVE = op.Log(X, A, R, propensity=P, actions=op.Box(0, 1))
SAME = op.Deterministic(lambda x: x[:, 0])
W = np.array([1.5, 1.125, 2.25, 0, 3])
"""h = 1/2: K/h is 1.5, 1.125, 1.125, 0, 1.5; the mass inside is 1/2, 1, 1/2, 1/2, 1; divided by both and by P."""


def test_values_by_hand() -> None:
    q = op.Given(lambda x, a: x[:, 0] + a)
    every = [op.KernelIPS(0.5), op.KernelSNIPS(0.5), op.KernelDR(0.5, rewards=q)]
    every.append(op.KernelDR(0.5, rewards=q, normalised=True, name="normalised"))
    result = op.evaluate(FIVE, SAME, every)
    residuals = W * (R - X - A)
    assert result["KernelIPS"].value == pytest.approx((W @ R) / 5, rel=1e-12)
    assert result["KernelSNIPS"].value == pytest.approx((W @ R) / W.sum(), rel=1e-12)
    assert result["KernelDR"].value == pytest.approx((2 * X).mean() + residuals.mean(), rel=1e-12)
    assert result["normalised"].value == pytest.approx((2 * X).mean() + residuals.sum() / W.sum(), rel=1e-12)


def test_a_width_may_be_a_share_of_the_range() -> None:
    share = op.evaluate(FIVE, SAME, op.KernelIPS("range/2"))["KernelIPS"]
    assert share.value == op.evaluate(FIVE, SAME, op.KernelIPS(0.5))["KernelIPS"].value
    for wrong in ("range/0", "range", "range/x", "1/2"):
        with pytest.raises(op.InputError, match='a share of the range such as "range/16"'):
            op.KernelIPS(wrong)


def test_a_gaussian_kernel_by_hand() -> None:
    """h = 1/4: u is 0, 1, -1, -4, 0; the mass inside is Phi(4) - Phi(0) at a bound, and Phi(2) - Phi(-2) in the middle."""
    density = np.array(
        [0.3989422804014327, 0.24197072451914337, 0.24197072451914337, 0.00013383022576488537, 0.3989422804014327]
    )
    inside = np.array([0.4999683287581669, 0.9544997361036416, 0.4999683287581669, 0.4999683287581669, 0.9544997361036416])
    w = density / 0.25 / inside / P
    value = op.evaluate(FIVE, SAME, op.KernelIPS(0.25, kernel="gaussian"))["KernelIPS"].value
    assert value == pytest.approx((w @ R) / 5, rel=1e-12)


def test_a_linear_boundary_kernel_by_hand() -> None:
    """At a bound, the moments of half an Epanechnikov kernel are 1/2, 3/16 and 1/10: K(u)(1/10 - 3u/16) / (1/20 - 9/256)."""
    u = np.array([0, 0.5, 0.5, 2, 0])
    bound = np.array([1, 0, 1, 1, 0])
    k = np.where(u < 1, 0.75 * (1 - u * u), 0) / 0.5
    corrected = np.where(bound, k * (0.1 - 3 / 16 * u) / (0.05 - 9 / 256), k)
    value = op.evaluate(FIVE, SAME, op.KernelIPS(0.5, boundary="linear"))["KernelIPS"].value
    assert value == pytest.approx((corrected / P) @ R / 5, rel=1e-12)


def test_vectors_multiply_the_kernels_of_their_dimensions() -> None:
    both = np.column_stack([A, A[::-1] * 10])
    log = op.Log(X, both, R, propensity=P, actions=op.Box([0, 0], [1, 10]))
    target = op.Deterministic(lambda x: np.column_stack([x[:, 0], 10 * x[:, 0]]))

    def kernel(a: np.ndarray, tau: np.ndarray, h: float, high: float) -> np.ndarray:
        def below(v: np.ndarray) -> np.ndarray:
            v = np.clip(v, -1, 1)
            return 0.5 + 0.75 * (v - v**3 / 3)

        u = (a - tau) / h
        return np.where(abs(u) < 1, 0.75 * (1 - u * u), 0) / h / (below((high - tau) / h) - below(-tau / h))

    w = kernel(A, X, 0.5, 1) * kernel(both[:, 1], 10 * X, 8, 10) / P
    assert op.evaluate(log, target, op.KernelIPS([0.5, 8]))["KernelIPS"].value == pytest.approx((w @ R) / 5, rel=1e-12)
    with pytest.raises(op.InputError, match="it has 2 bandwidths, and the actions are numbers from 0 to 1"):
        op.evaluate(FIVE, SAME, op.KernelIPS([0.5, 8]))


def columns(n: int = 2_000) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    x = rng.uniform(size=n)
    a = rng.beta(2, 2, n)
    return {"x": x, "a": a, "r": 1 - (a - x) ** 2 + rng.normal(size=n) / 10, "p": 6 * a * (1 - a)}


def log(scale: float = 1.0, **more: Any) -> op.Log:
    c = columns()
    given = {"propensity": c["p"] / scale, "actions": op.Box(0, scale), **more}
    return op.Log(c["x"], c["a"] * scale, c["r"], **given)


EVERY = [op.KernelIPS(), op.KernelSNIPS(), op.KernelDR(), op.KernelDR(normalised=True, name="normalised")]


def test_rescaling_the_action_and_its_density_changes_nothing() -> None:
    one = op.evaluate(log(), SAME, EVERY)
    other = op.evaluate(log(40.0), op.Deterministic(lambda x: 40 * x[:, 0]), EVERY)
    for each in EVERY:
        assert other[each.name].value == pytest.approx(one[each.name].value, rel=1e-6)
        assert other[each.name].std_error == pytest.approx(one[each.name].std_error, rel=1e-5)


def test_on_a_grid_a_narrow_kernel_is_the_discrete_case() -> None:
    """Prices 1, 2, 3 as points: the kernel estimate is IPS with the actions as labels, at any width."""
    rng = np.random.default_rng(0)
    x, a = rng.integers(3, size=300), rng.integers(1, 4, size=300)
    r, p = a + rng.normal(size=300), np.full(300, 1 / 3)
    points = op.Log(x, a.astype(float), r, propensity=p, actions=op.Box(0, 4, points=[1, 2, 3]))
    labels = op.Log(x, a.astype(str), r, propensity=p)
    narrow = op.evaluate(points, op.Deterministic(lambda x: 1.0 + x[:, 0]), [op.KernelIPS(0.3), op.KernelSNIPS(3.0)])
    exact = op.evaluate(labels, op.Deterministic(lambda x: (1 + x[:, 0]).astype(int).astype(str)), [op.IPS(), op.SNIPS()])
    assert narrow["KernelIPS"].value == pytest.approx(exact["IPS"].value, rel=1e-12)
    assert narrow["KernelSNIPS"].value == pytest.approx(exact["SNIPS"].value, rel=1e-12)


@pytest.mark.parametrize("kernel", ["epanechnikov", "gaussian"])
def test_the_mean_weight_of_two_smoothed_policies_is_1_at_the_bounds(kernel: Any) -> None:
    """Targets next to both bounds, which e leaves, and a density; 4,000 rounds, 3 standard errors."""
    rng = np.random.default_rng(5)
    x = rng.uniform(size=4_000)
    a = 0.3 + 0.4 * x + 0.3 * rng.normal(size=4_000)
    keep = (a > 0) & (a < 1)
    logging = op.Normal(lambda x: 0.3 + 0.4 * x[:, 0], 0.3)
    of = op.Log(x[keep], a[keep], np.ones(keep.sum()), logging=logging, actions=op.Box(0, 1))
    targets = {"low": op.Deterministic(lambda x: 0.02 * x[:, 0]), "high": op.Deterministic(lambda x: 1 - 0.1 * x[:, 0])}
    targets["density"] = op.Normal(0.1, 0.1)
    result = op.evaluate(of, targets, [op.KernelMIPS(0.1, kernel=kernel)])
    for name in targets:
        estimate = result[name, "KernelMIPS"]  # rewards are 1
        assert abs(estimate.value - 1) < 3 * estimate.std_error
        assert estimate.std_error < 0.2


def test_without_the_logging_policy_there_is_nothing_to_smooth() -> None:
    with pytest.raises(op.InputError, match="^KernelMIPS cannot be computed: it needs the density of the logging policy"):
        op.evaluate(log(), SAME, [op.KernelMIPS()])


def mixed(values: Any, covariance: Any, widths: Any, effective: Any, modelled: Any = ()) -> WidthMix:
    return KernelEstimates(values, covariance, widths, effective, 1.0, modelled).mixed()


def test_the_mix_of_widths_extrapolates_a_linear_bias() -> None:
    widths = np.array(WIDTHS)
    many, little = np.full(7, 1e4), np.diag(np.full(7, 1e-8))
    mix = mixed(2 - 0.5 * widths, little, widths, many)
    assert mix.weights.sum() == pytest.approx(1)
    assert abs(mix.weights @ (-0.5 * widths)) < 0.5 * widths[0] / 3  # nearer than the narrowest
    nested = 1e-4 / np.maximum.outer(widths, widths)  # the rounds of a narrow kernel are among those of a wide one
    equal = mixed(np.full(7, 2.0), nested, widths, many)
    assert equal.weights[-3:].min() > 10 * equal.weights[0]
    assert equal.variance < CRUDE / 2 * nested[3, 3]
    assert mixed(np.array([1.0, 2.0]), np.eye(2), widths[:2], np.array([3.0, 5.0])).weights.tolist() == [0, 1]


def test_two_equal_widths_are_as_uncertain_as_their_bias_may_be() -> None:
    """Nothing shows a bias that they share: much of it is possible at a quarter of the range, and little at 1/128."""
    sampling, few = np.diag([0.04, 0.01]), np.array([500.0, 900.0])
    wide, narrow = (mixed(np.zeros(2), sampling, np.full(2, h), few) for h in (0.25, 1 / 128))
    np.testing.assert_allclose([wide.weights, narrow.weights], [[0.2, 0.8]] * 2, atol=0.01)  # by their variances
    assert 0.008 < narrow.variance < 0.03
    assert 0.05 < wide.variance / CRUDE < 0.25


def test_a_model_that_is_right_takes_the_mix_and_one_that_is_wrong_does_not() -> None:
    """Kernels with a model agree at every width, and those without do not; or the other way round."""
    widths = np.array([*WIDTHS, *WIDTHS, np.inf])
    modelled = [False] * 7 + [True] * 8
    sampling = np.diag(1e-4 / np.minimum(widths, 1.0))
    smoothed = np.append(-2 * np.array(WIDTHS), -2 * np.array(WIDTHS))
    right = mixed(2 + np.append(np.where(modelled[:14], 0, smoothed), 0), sampling, widths, np.full(15, 1e4), modelled)
    assert right.weights[np.array(modelled)].sum() > 0.9
    assert right.weights[-3:].sum() > 0.5  # the wide ones, and the model alone
    wrong = mixed(2 + np.append(smoothed, -3), sampling, widths, np.full(15, 1e4), modelled)
    assert abs(wrong.weights[-1]) < 0.2
    assert abs(float(wrong.weights @ np.append(smoothed, -3))) < 0.1
    unweighted = mixed(
        np.array([1.0, 2.0]), np.diag([0.1, 0.1]), np.array([0.1, np.inf]), np.array([3.0, 1e4]), [True, True]
    )
    assert unweighted.weights.tolist() == [1, 0]  # a model alone is never all of the answer


def test_the_mix_holds_the_truth_and_shows_its_widths() -> None:
    world = Doses(3, noise=0.1)
    result = op.evaluate(world.sample(3_000, seed=1), world.target, EVERY)
    truth = world.value(world.target)
    for each in EVERY:
        estimate = result[each.name]
        assert abs(estimate.value - truth) < 4 * estimate.std_error
        assert truth in estimate.interval
    shown = result["KernelDR"].diagnostics["candidates"]
    assert {row["name"] for row in shown} <= {f"KernelDR (1/{2**k} of the range)" for k in range(1, 8)}
    assert sum(row["weight"] for row in shown) == pytest.approx(1)
    again = op.evaluate(world.sample(3_000, seed=1), world.target, EVERY, engine=op.Local(threads=1))
    assert again["KernelDR"].value == pytest.approx(result["KernelDR"].value, rel=1e-9)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: op.KernelDR(kernel="box"), "no kernel|unknown kernel|kernel 'box'"),
        (lambda: op.KernelDR(boundary="none"), 'give "exact" or "linear"'),
        (lambda: op.KernelMIPS("wide"), 'or "slope"'),
    ],
)
def test_settings_that_are_refused(made: Any, message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        made()


def test_a_policy_without_density_is_evaluated_by_default() -> None:
    result = op.evaluate(log(), SAME)
    auto = result.headline
    assert auto.estimator == "Auto"
    assert {*result.skipped} == {"SNIPS", "DR"}
    names = {row["name"] for row in auto.diagnostics["candidates"]}
    assert {"DM", "KernelSNIPS (1/2 of the range)", "KernelDR (1/128 of the range)"} <= names
    assert len(names) == 15
    assert auto.diagnostics["left_out"] == {}
    assert abs(auto.value - 1) < 3 * auto.std_error  # 1 − (x − x)²
    assert re.search(r"KernelDR +0\.25 +1/4 ", auto.explain())
    assert "nearly unbiased" not in auto.explain()
    named = op.evaluate(log(), SAME, op.Auto([op.KernelIPS(0.1), op.KernelIPS(0.3, name="wide")]))["Auto"]
    assert [row["name"] for row in named.diagnostics["candidates"]] in (["KernelIPS", "wide"], ["wide", "KernelIPS"])
    with pytest.raises(
        op.InputError, match=r"^Auto: none of the candidates \(DM\) is nearly unbiased, .* one with a kernel: op.KernelDR"
    ):
        op.evaluate(log(), SAME, op.Auto([op.DM()]))


def test_a_rule_and_a_density_have_auto_in_common() -> None:
    log = Doses().sample(300, seed=0)
    one, spread = op.Deterministic(lambda x: 0.5 + 0 * x[:, 0]), op.Normal(0.5, 0.1)
    result = op.evaluate(log, {"one": one, "spread": spread})
    assert result.headline.estimator == "Auto"
    assert {"KernelDR for 'spread'", "SNIPS for 'one'"} <= {*result.skipped}
    assert abs(result.difference(("one", "Auto"), ("spread", "Auto")).value) < 0.2

"""Pictures of actions that are numbers: where they are, the value of each, and the estimate over bandwidths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

import offpolicy as op
from offpolicy.diagnostics import action_axis, dose_response
from offpolicy.worlds import Doses, Pricing

mpl.use("Agg")

DOSES = np.array([0.05, 0.05, 0.3, 0.55, 0.9])
X = np.arange(5.0)[:, None]


def five(target: Any, action: Any = DOSES, **how: Any) -> op.Evaluation:
    log = op.Log(X, action, action, propensity=np.ones(5), actions=op.Box(0, 1), **how)
    return op.evaluate(log, target, op.KernelSNIPS(bandwidth=0.5))


def constant(action: float) -> op.Deterministic:
    return op.Deterministic(lambda x: np.full(len(x), action))


def bars(part: Any, edges: list[float]) -> dict[float, float]:
    """The left edge of each bar that is not empty, with its share."""
    return {round(edge, 3): round(share, 9) for edge, share in zip(edges, part["shares"], strict=False) if share}


def test_five_rounds_by_hand() -> None:
    target = op.Deterministic(lambda x: np.where(x[:, 0] < 2, 0.05, 1.0))
    (axis,) = five(target, weight=np.array([1.0, 1.0, 2.0, 0.0, 4.0])).to_dict()["action_axis"]
    assert axis["dimension"] is None
    edges = axis["edges"]
    assert (edges[0], edges[-1]) == (0.05, 1.0)
    logged = bars(axis["logged"], edges)
    assert list(logged.values()) == [2 / 8, 2 / 8, 4 / 8]
    (policy,) = axis["policies"]
    assert list(bars(policy, edges).values()) == [2 / 8, 6 / 8]
    assert (policy["at_low"], policy["at_high"], axis["logged"]["at_high"]) == (0, 0.75, 0)


def test_actions_far_from_the_log_and_at_a_bound() -> None:
    result = five({"near": constant(0.31), "far": constant(0.7)}, np.array([0.0, 0.0, 0.3, 0.55, 0.9]))
    near, far = (result[name, "KernelSNIPS"] for name in ("near", "far"))
    assert near.diagnostics["actions_far_from_the_log"] == 0
    assert far.diagnostics["actions_far_from_the_log"] == 1
    assert near.diagnostics["logged_actions_at_a_bound"] == 0.4
    found = {finding.code: finding for finding in far.reasons}
    assert "100.0% of the new policy's actions are farther than 1/60 of the range" in found["actions far from the log"].seen
    assert "40.0% of the logged actions are exactly 0, a bound" in found["actions at a bound"].seen
    assert "op.Box(…, points=[0])" in found["actions at a bound"].do
    assert "actions far from the log" not in {finding.code for finding in near.reasons}


def test_an_action_that_is_taken_with_a_probability() -> None:
    a = np.linspace(0.1, 0.9, 200)
    a[:20] = 0.3
    log = op.Log(a[:, None], a, a, propensity=np.ones(200), actions=op.Box(0, 1))
    (found,) = [
        f for f in op.evaluate(log, constant(0.5), op.KernelSNIPS())["KernelSNIPS"].reasons if f.code == "repeated action"
    ]
    assert found.seen == "10.0% of the first 200 logged actions are exactly 0.3."
    assert "points=[0.3]" in found.do


def test_a_point_at_a_bound_has_a_probability() -> None:
    a = np.array([0.0, 0.0, 0.3, 0.55, 0.9])
    log = op.Log(X, a, a, propensity=np.where(a == 0, 0.4, 0.6), actions=op.Box(0, 1, points=[0]))
    result = op.evaluate(log, constant(0.0), op.KernelSNIPS())
    assert result["KernelSNIPS"].diagnostics["logged_actions_at_a_bound"] == 0
    (axis,) = result.to_dict()["action_axis"]
    assert (axis["logged"]["at_points"], axis["policies"][0]["at_points"]) == ([0.4], [1.0])
    first = result.to_dict()["dose_response"]["points"][0]
    assert (first["action"], first["point"]) == (0.0, True)


@pytest.mark.parametrize("dimensions", [1, 2])
def test_where_a_density_goes(dimensions: int) -> None:
    """The shares are those of a normal distribution in each dimension, up to the draws; the middle holds 90%."""
    rng = np.random.default_rng(0)
    a = rng.random((1_500, dimensions))
    bounds = (op.Box(0, 1), a[:, 0]) if dimensions == 1 else (op.Box([0, 0], [1, 1]), a)
    log = op.Log(a[:, :1], bounds[1], a[:, 0], propensity=np.ones(1_500), actions=bounds[0])
    result = op.evaluate(log, op.Normal(0.5 if dimensions == 1 else [0.5, 0.5], 0.1), op.SNIPS())
    for axis in result.to_dict()["action_axis"]:
        (policy,) = axis["policies"]
        assert sum(policy["shares"]) == pytest.approx(1, abs=1e-9)
        assert policy["middle"] == pytest.approx([0.5 - 0.1645, 0.5 + 0.1645], abs=0.005)
        assert axis["logged"]["middle"] == pytest.approx([0.05, 0.95], abs=0.02)


def test_where_a_density_and_a_point_go() -> None:
    a = np.linspace(0, 1, 200)
    a[:50] = 0.25
    p = np.where(a == 0.25, 0.25, 0.75)
    log = op.Log(a[:, None], a, a, propensity=p, actions=op.Box(0, 1, points=[0.25]))
    target = op.Mixture([constant(0.25), op.Normal(0.6, 0.1)], [0.3, 0.7])
    (axis,) = op.evaluate(log, target, op.SNIPS()).to_dict()["action_axis"]
    (policy,) = axis["policies"]
    assert policy["at_points"] == pytest.approx([0.3], abs=1e-3)
    assert sum(policy["shares"]) == pytest.approx(1, abs=1e-9)


def test_the_share_of_rounds_does_not_depend_on_batches() -> None:
    batch = op.Log(X, DOSES, DOSES, propensity=np.ones(5), actions=op.Box(0, 1)).head()
    for share in (0.3, 0.8, 1.0):
        whole = action_axis.drawn(batch, share)
        parts = [action_axis.drawn(batch.take(np.array([k])), share) for k in range(5)]
        np.testing.assert_array_equal(whole, np.concatenate(parts))
    many = Pricing().sample(20_000, seed=0).head(20_000)
    assert action_axis.drawn(many, 0.25).mean() == pytest.approx(0.25, abs=4.5 * np.sqrt(0.19 / 20_000))


@pytest.fixture(scope="module")
def priced() -> op.Log:
    return Pricing().sample(1_500, seed=1)


@pytest.mark.parametrize("estimator", [op.KernelDR(), op.KernelSNIPS()])
def test_the_curve_is_the_value_of_constant_actions(estimator: op.Estimator, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many groups as there are buckets of units, every digit is that of the estimator."""
    monkeypatch.setattr(dose_response, "GROUPS", 4096)
    world = Doses(trust=0.3, noise=0.1)
    log = world.sample(4_000, seed=1)
    curve = op.evaluate(log, world.target, estimator).to_dict()["dose_response"]
    assert (curve["estimator"], curve["rounds"]) == (estimator.name, 4_000)
    for point in curve["points"][3:22:9]:
        alone = op.evaluate(log, constant(point["action"]), estimator)[estimator.name]
        assert (point["value"], point["std_error"]) == pytest.approx((alone.value, alone.std_error), rel=1e-9)


def test_a_curve_by_a_regressor_and_without_rounds_nearby(priced: op.Log) -> None:
    """A given q(x, a) is taken as it is where there is nothing to correct it, and has no interval there."""
    result = op.evaluate(priced, Pricing().target, op.KernelDR(rewards=op.Given(lambda x, a: a / 10), cross_fit=2))
    points = result.to_dict()["dose_response"]["points"]
    assert [p["value"] for p in points if p["low"] is None] == pytest.approx(
        [p["action"] / 10 for p in points if p["low"] is None]
    )
    assert {p["low"] is None for p in points} == {True, False}


def test_the_widths_of_an_estimate(priced: op.Log) -> None:
    estimate = op.evaluate(priced, Pricing().target, op.KernelIPS())["KernelIPS"]
    rows = estimate.diagnostics["bandwidths"]
    assert [row["bandwidth"] for row in rows] == pytest.approx([50 / 2**k for k in range(7, 0, -1)])
    assert sum(row["weight"] * row["value"] for row in rows) == pytest.approx(estimate.value)
    third = op.evaluate(priced, Pricing().target, op.KernelIPS(bandwidth=rows[2]["bandwidth"]))["KernelIPS"]
    same = ("effective_sample_size", "mean_weight")
    assert [rows[2][name] for name in ("effective_rounds", "mean_weight")] == [third.diagnostics[name] for name in same]
    assert rows[2]["value"] == third.value
    assert rows[-1]["actions_within_it_of_a_bound"] == 1
    assert "mixes 7 kernel widths" in str(estimate.explain())
    assert "bandwidths" not in third.diagnostics


def test_the_pictures_are_shown_and_saved(priced: op.Log, tmp_path: Path) -> None:
    policies = {"<new>": Pricing().target, "low": constant(12.0)}
    result = op.evaluate(priced, policies, [op.KernelDR(), op.KernelSNIPS()])
    result.save(tmp_path / "result.json")
    loaded = op.load_result(tmp_path / "result.json")
    assert loaded.to_dict() == json.loads(json.dumps(result.to_dict()))
    loaded.write_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert all(
        heading in page for heading in ("The value of each action", "The estimate over bandwidths", 'href="#actions"')
    )
    assert "&lt;new&gt;" in page
    assert "The middle 90% of actions: the log" in str(loaded)
    assert "## KernelDR over bandwidths for \\<new\\>" in loaded.to_markdown()
    outline = loaded.plot.actions()
    assert len(outline.patches) == len(result.to_dict()["action_axis"][0]["edges"]) - 1 + len(policies)
    widths = loaded.plot.bandwidths(policy="low", estimator="KernelSNIPS")
    assert len(widths.containers[0].lines[0].get_xdata()) == 7
    curve = loaded.plot.dose_response()
    assert np.isfinite(curve.lines[0].get_ydata()).all()
    with pytest.raises(op.InputError, match="KernelDR for <new>"):
        loaded.plot.bandwidths(estimator="IPS")
    with pytest.raises(op.InputError, match="there is no dimension 1"):
        loaded.plot.actions(dimension=1)
    mpl.pyplot.close("all")


def test_discrete_actions_have_none_of_it() -> None:
    log = op.Log(X, [0, 1, 0, 1, 1], DOSES, propensity=np.full(5, 0.5))
    result = op.evaluate(log, op.Uniform(), op.SNIPS())
    assert not {"action_axis", "dose_response"} & set(result.to_dict())
    for plot in (result.plot.actions, result.plot.dose_response, result.plot.bandwidths):
        with pytest.raises(op.InputError, match="there is no"):
            plot()

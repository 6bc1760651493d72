"""`KernelIPS`: its value by hand, whole evaluations on both engines, and what it refuses."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from offpolicy.estimators.text import estimator as from_text
from tests.engines.sessions import NEEDS_SPARK, OWN_WARNINGS, classic
from tests.logs import Small

N = 2_000
BOX = op.Box(-1, 1)
POLICIES = {
    "near": op.Deterministic(lambda x: x[:, 0] / 2),
    "far": op.Deterministic(lambda c: np.clip(c["x0"] + 0.4, -1, 1), columns=["x0"]),
}
EVERY = [op.KernelIPS(0.1), op.KernelIPS(0.3, name="wide")]


def columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x, a = rng.uniform(-1, 1, N), 2 * rng.beta(2, 2, N) - 1
    r = 1 - (a - x) ** 2 + rng.normal(0, 0.2, N)
    return {"x0": x, "a": a, "r": r, "p": 0.75 * (1 - a * a), "user": np.arange(N) // 2, "side": np.where(x > 0, "b", "a")}


def doses(**more: Any) -> op.Log:
    c = columns()
    return op.Log(c["x0"], c["a"], c["r"], propensity=c["p"], actions=BOX, **more)


def weights(target: np.ndarray, h: float) -> np.ndarray:
    """K_h/α over p0, with α from the distribution function of the kernel."""
    c = columns()

    def below(u: np.ndarray) -> np.ndarray:
        u = np.clip(u, -1, 1)
        return 0.5 + 0.75 * (u - u**3 / 3)

    u = (c["a"] - target) / h
    alpha = below((1 - target) / h) - below((-1 - target) / h)
    return np.where(np.abs(u) < 1, 0.75 * (1 - u**2) / h, 0) / alpha / c["p"]


def test_the_value_by_hand() -> None:
    """τ = x and h = 1/2: u is 0, 1/2, 1/2, −2 and 0, and half of the kernel lies outside the box in the first round."""
    log = op.Log(
        [0, 0.5, 1, 1, 0.5], [0, 0.75, 0.75, 0, 0.5], [1, 2, 1, 5, 4], propensity=[2, 1, 1, 1, 0.5], actions=op.Box(0, 1)
    )
    # K/h is 1.5, 1.125, 1.125, 0 and 1.5; α is 1/2, 1, 1/2, 1/2 and 1; so K/(h·α·p0) is 1.5, 1.125, 2.25, 0 and 3.
    result = op.evaluate(log, op.Deterministic(lambda x: x[:, 0]), [op.KernelIPS(0.5)])
    assert result["KernelIPS"].value == pytest.approx((1.5 * 1 + 1.125 * 2 + 2.25 * 1 + 0 * 5 + 3 * 4) / 5, rel=1e-12)
    assert result["KernelIPS"].diagnostics["mean_weight"] == pytest.approx(7.875 / 5, rel=1e-12)


@pytest.fixture(scope="module")
def result() -> op.Evaluation:
    c = columns()
    return op.evaluate(doses(cluster=c["user"], by=c["side"]), POLICIES, EVERY)


def test_policies_slices_and_clusters(result: op.Evaluation) -> None:
    c = columns()
    for name, target in (("near", c["x0"] / 2), ("far", np.clip(c["x0"] + 0.4, -1, 1))):
        for estimator, h in (("KernelIPS", 0.1), ("wide", 0.3)):
            score = weights(target, h) * c["r"]
            assert result[name, estimator].value == pytest.approx(score.mean(), rel=1e-9)
            assert result.slices["b"][name, estimator].value == pytest.approx(score[c["x0"] > 0].mean(), rel=1e-9)
            units = score.reshape(-1, 2).mean(axis=1)  # of each user; users share buckets, so this is not to the last digit
            assert result[name, estimator].std_error == pytest.approx(units.std() / np.sqrt(len(units)), rel=0.1)
    paired = result.difference(("near", "KernelIPS"), ("far", "KernelIPS"))
    assert paired.value == pytest.approx(result["near", "KernelIPS"].value - result["far", "KernelIPS"].value)
    assert result.headline.estimator == "KernelIPS"


def test_findings_speak_of_weights_and_not_of_discrete_actions(result: op.Evaluation, tmp_path: Path) -> None:
    w = weights(columns()["x0"] / 2, 0.1)
    estimate = result["near", "KernelIPS"]
    assert estimate.diagnostics["effective_sample_size"] == pytest.approx(w.sum() ** 2 / (w @ w))
    codes = {check.code for check in estimate.checks}
    assert {"effective sample size", "mean weight"} <= codes
    assert "support" not in codes
    result.write_html(tmp_path / "report.html")
    for shown in (str(result), estimate.explain(), (tmp_path / "report.html").read_text()):
        assert "KernelIPS" in shown
        assert "does not hold" not in shown
        assert "None actions" not in shown
    assert not [key for key in estimate.diagnostics if key.startswith("target_mass")]


def test_rounds_that_are_all_far_away_are_not_trusted() -> None:
    log = op.Log(np.zeros(50), np.linspace(0.5, 1, 50), np.ones(50), propensity=np.full(50, 2.0), actions=op.Box(0, 1))
    estimate = op.evaluate(log, op.Deterministic(lambda x: x[:, 0]), [op.KernelIPS(0.1)])["KernelIPS"]
    assert estimate.value == 0
    assert estimate.verdict is op.Verdict.DO_NOT_TRUST
    assert [reason.code for reason in estimate.reasons][:2] == ["out of range", "effective sample size"]


def test_results_are_saved_loaded_and_pickled(result: op.Evaluation, tmp_path: Path) -> None:
    result.save(tmp_path / "result.json")
    for again in (op.load_result(tmp_path / "result.json"), pickle.loads(pickle.dumps(result))):
        assert str(again) == str(result)
        assert again["far", "wide"].value == result["far", "wide"].value
        assert again.action_space == "numbers from -1 to 1"


def test_scores_and_resampling_work_on_numbers(result: op.Evaluation, tmp_path: Path) -> None:
    estimate = result["near", "KernelIPS"]
    estimate.scores(tmp_path / "scores.parquet")
    assert pq.read_table(tmp_path / "scores.parquet")["weight"].to_numpy() == pytest.approx(
        weights(columns()["x0"] / 2, 0.1)
    )
    assert estimate.value in estimate.confidence_interval(method="bootstrap")


@OWN_WARNINGS
@NEEDS_SPARK
def test_spark_gives_the_same_numbers(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not find the tests
    table = pa.table(columns())
    pq.write_table(table.slice(0, 900), tmp_path / "one.parquet")
    pq.write_table(table.slice(900), tmp_path / "two.parquet")
    roles: dict[str, Any] = {
        "context": "x0", "action": "a", "reward": "r", "propensity": "p", "cluster": "user", "by": "side", "actions": BOX,
    }  # fmt: skip
    here = op.evaluate(op.read_log(tmp_path, **roles), POLICIES, EVERY)
    there = op.evaluate(op.read_log(classic().read.parquet(str(tmp_path)), **roles), POLICIES, EVERY)
    for policy in POLICIES:
        for name in ("KernelIPS", "wide"):
            for one, other in ((here, there), (here.slices["a"], there.slices["a"])):
                assert other[policy, name].value == pytest.approx(one[policy, name].value, rel=1e-12)
                assert other[policy, name].std_error == pytest.approx(one[policy, name].std_error, rel=1e-9)
    wrong = {"out": op.Deterministic(lambda x: 5 * x[:, 0])}
    with pytest.raises(op.InputError, match=r"^Deterministic: \d+ rows have an action outside -1..1 .*partition \d row"):
        op.evaluate(op.read_log(classic().read.parquet(str(tmp_path)), **roles), wrong, EVERY)


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (
            op.IPS(),
            "it needs the new policy's density, and a policy that takes one action per round has none; use op.KernelDR",
        ),
        (op.DR(), "it needs the new policy's density"),
        (op.LearnedMIPS(), "it weights rounds by discrete actions"),
    ],
)
def test_estimators_of_densities_point_to_it(estimator: op.Estimator, said: str) -> None:
    with pytest.raises(op.InputError, match=f"^{estimator.name} cannot be computed: {said}"):
        op.evaluate(doses(), POLICIES, [estimator])


@pytest.mark.parametrize("policy", [op.Fixed([0.5, 0.5]), op.Softmax(lambda x: x)])
def test_policies_over_discrete_actions_are_refused(policy: op.Policy) -> None:
    with pytest.raises(
        op.InputError, match=f"^{type(policy).__name__} is a policy over discrete actions, and the actions here"
    ):
        op.evaluate(doses(), policy, [op.KernelIPS(0.1)])


def test_it_is_refused_on_discrete_actions(small: Small) -> None:
    said = "it weights rounds by numbers from an interval, and the actions here are discrete; use IPS, SNIPS, "
    with pytest.raises(op.InputError, match=f"^KernelIPS cannot be computed: {said}"):
        op.evaluate(small.log(), small.target, [op.KernelIPS(0.1)])


def test_what_it_lacks_is_named() -> None:
    class Flat(op.Policy):
        spaces = (op.Box,)

        def distribution(self, batch: Any) -> Any:
            raise NotImplementedError

        def entries(self, batch: Any, row: np.ndarray, code: np.ndarray) -> np.ndarray:
            return np.full(len(row), 0.5)

    with pytest.raises(
        op.InputError,
        match="^KernelIPS cannot be computed for 'flat': it needs one action per round, which the policy does not",
    ):
        op.evaluate(doses(), {**POLICIES, "flat": Flat()}, [op.KernelIPS(0.1)])
    c = columns()
    without = op.Log(c["x0"], c["a"], c["r"], actions=BOX)
    with pytest.raises(op.InputError, match="^KernelIPS cannot be computed: .* neither propensities nor a logging policy"):
        op.evaluate(without, POLICIES["near"], [op.KernelIPS(0.1)])


@pytest.mark.parametrize("bandwidth", [0, -1, np.nan, np.inf, True, "auto", None, 1e-40, [], [1, "a"]])
def test_the_bandwidth_is_a_positive_number(bandwidth: Any) -> None:
    with pytest.raises(
        op.InputError, match="^KernelIPS: bandwidth is .*; give a positive number, in the unit of the actions, or"
    ):
        op.KernelIPS(bandwidth)


def test_it_is_written_as_text() -> None:
    assert from_text("kernel-ips:bandwidth=0.25") == op.KernelIPS(0.25)

"""Logs of several loggers: weights, stratified errors, agreement, and what each logger supports."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

import offpolicy as op

FIRST, SECOND, TARGET = op.Fixed([0.99, 0.01]), op.Fixed([0.1, 0.9]), op.Fixed([0.1, 0.9])


def exact(n: int = 10_000) -> dict[str, Any]:
    """Two loggers of n/2 rounds each that take the actions exactly as often as their policies say; r = a."""
    ones = [n // 2 // 100, n // 2 * 9 // 10]
    action = np.concatenate([np.arange(n // 2) < count for count in ones]).astype(int)
    return {"action": action, "reward": action.astype(float), "logger": np.repeat(["v1", "v2"], n // 2)}


def log_of(data: dict[str, Any], **more: Any) -> op.Log:
    more = {"logging": {"v2": SECOND, "v1": FIRST}, **more}
    return op.Log(None, data["action"], data["reward"], logger=data["logger"], n_actions=2, **more)


def scaled_variance(log: op.Log, estimator: op.Estimator) -> float:
    estimate = op.evaluate(log, TARGET, estimator)[estimator.name]
    assert estimate.value == pytest.approx(0.9)
    return len(log) * estimate.std_error**2


@pytest.mark.parametrize(("loggers", "variance"), [("balanced", 0.1954), ("own", 40.14), ("weighted", 0.1798)])
def test_the_variance_of_each_combination_in_the_exact_example(loggers: str, variance: float) -> None:
    assert scaled_variance(log_of(exact(), loggers=loggers), op.IPS()) == pytest.approx(variance, rel=1e-3)


def test_balanced_weights_without_strata_have_the_variance_of_a_mixture() -> None:
    data = exact()
    mixed = op.Log(None, data["action"], data["reward"], logging=op.Mixture([FIRST, SECOND], [0.5, 0.5]))
    assert scaled_variance(mixed, op.IPS()) == pytest.approx(0.9702, rel=1e-3)


def test_five_rounds_by_hand() -> None:
    """Shares 2/5 and 3/5; action 1 has π0 = .4·.01 + .6·.9 = .544 and action 0 has .4·.99 + .6·.1 = .456."""
    data = {"action": np.array([0, 1, 1, 0, 1]), "reward": np.array([1.0, 2, 3, 4, 5]), "logger": list("aabbb")}
    logging = {"a": FIRST, "b": SECOND}
    weights = np.array([0.1 / 0.456, 0.9 / 0.544, 0.9 / 0.544, 0.1 / 0.456, 0.9 / 0.544])
    z = weights * data["reward"]
    estimate = op.evaluate(log_of(data, logging=logging), TARGET, op.IPS())["IPS"]
    assert estimate.value == pytest.approx(z.mean())
    strata = (2 / 5) ** 2 * z[:2].var(ddof=1) / 2 + (3 / 5) ** 2 * z[2:].var(ddof=1) / 3
    assert estimate.std_error == pytest.approx(np.sqrt(strata))
    own = op.evaluate(log_of(data, logging=logging, loggers="own"), TARGET, op.IPS())["IPS"]
    assert own.value == pytest.approx(np.mean([0.1 / 0.99 * 1, 90 * 2, 3, 4, 5]))


def simulated(n: int = 6_000, seed: int = 0, shift: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    logger = np.repeat(["v1", "v2", "v3"], n // 3)
    p = np.select([logger == "v1", logger == "v2"], [0.1, 0.5], 0.8)
    action = (rng.random(n) < p).astype(int)
    x = rng.normal(size=n)
    reward = x + action + rng.normal(size=n) + shift * (logger == "v1")
    frame = {"x": x, "a": action, "r": reward, "version": logger, "p": np.where(action == 1, p, 1 - p)}
    return pd.DataFrame(frame).assign(user=rng.integers(0, n // 3, n), omega=rng.random(n) + 0.5)


COLUMNS: dict[str, Any] = {"context": "x", "action": "a", "reward": "r", "logger": "version"}
LOGGING = {"v1": op.Fixed([0.9, 0.1]), "v2": op.Fixed([0.5, 0.5]), "v3": op.Fixed([0.2, 0.8])}


def test_propensities_of_the_rounds_equal_the_policies_of_their_loggers() -> None:
    data = simulated()
    results = [
        op.evaluate(op.read_log(data, **COLUMNS, **how), TARGET, [op.SNIPS(), op.DR()])
        for how in ({"propensity": "p"}, {"logging": LOGGING, "loggers": "own"})
    ]
    for name in ("SNIPS", "DR"):
        first, second = (result[name] for result in results)
        assert first.value == pytest.approx(second.value)
        assert first.std_error == pytest.approx(second.std_error)
        assert first.diagnostics["loggers"]["v1"]["value"] == pytest.approx(second.diagnostics["loggers"]["v1"]["value"])


@pytest.mark.parametrize("loggers", ["balanced", "own", "weighted"])
def test_answers_do_not_depend_on_files_order_or_engine(loggers: str, tmp_path: Path) -> None:
    data = simulated(3_000).assign(id=np.arange(3_000))
    how = {**COLUMNS, "logging": LOGGING, "loggers": loggers, "row_id": "id", "weight": "omega", "by": "version"}
    whole = op.evaluate(op.read_log(data, **how), TARGET, [op.SNIPS(), op.DR()])
    shuffled = data.sample(frac=1, random_state=1)
    for k, (a, b) in enumerate(pairwise([0, 7, 1_400, 3_000])):
        shuffled.iloc[a:b].to_parquet(tmp_path / f"{k}.parquet")
    parts = op.evaluate(op.read_log(str(tmp_path), **how), TARGET, [op.SNIPS(), op.DR()], engine=op.Local(threads=2))
    for name in ("SNIPS", "DR"):
        assert parts[name].value == pytest.approx(whole[name].value, rel=1e-10)
        assert parts[name].std_error == pytest.approx(whole[name].std_error, rel=1e-8)
        assert parts[name].diagnostics["loggers_agree_p"] == pytest.approx(whole[name].diagnostics["loggers_agree_p"])


def test_a_slice_of_one_logger_has_the_error_of_its_rounds_alone() -> None:
    data = simulated()
    result = op.evaluate(op.read_log(data, **COLUMNS, propensity="p", by="version"), TARGET, op.IPS())
    alone = data[data["version"] == "v2"]
    other = op.evaluate(op.read_log(alone, **{**COLUMNS, "logger": None}, propensity="p"), TARGET, op.IPS())["IPS"]
    assert result.slices["v2"]["IPS"].value == pytest.approx(other.value)
    assert result.slices["v2"]["IPS"].std_error == pytest.approx(other.std_error)


def test_a_saved_result_has_the_same_intervals(tmp_path: Path) -> None:
    result = op.evaluate(op.read_log(simulated(), **COLUMNS, logging=LOGGING), {"new": TARGET, "old": op.Uniform()})
    result.save(tmp_path / "result.json")
    again = op.load_result(tmp_path / "result.json")
    assert str(again) == str(result)
    assert again.difference("new", "old").std_error == pytest.approx(result.difference("new", "old").std_error)
    assert again["new", "SNIPS"].confidence_interval(method="bootstrap") == result["new", "SNIPS"].confidence_interval(
        method="bootstrap"
    )


def finding(result: op.Evaluation, name: str = "SNIPS") -> op.Finding | None:
    return next((reason for reason in result[name].reasons if reason.code == "loggers"), None)


@pytest.mark.parametrize("how", [{"propensity": "p"}, {"logging": LOGGING}, {"logging": LOGGING, "loggers": "weighted"}])
def test_loggers_with_other_rewards_are_reported(how: dict[str, Any]) -> None:
    agreeing = op.evaluate(op.read_log(simulated(), **COLUMNS, **how), TARGET, op.SNIPS())
    assert finding(agreeing) is None
    assert set(agreeing["SNIPS"].diagnostics["loggers"]) == {"v1", "v2", "v3"}
    shifted = finding(op.evaluate(op.read_log(simulated(shift=1.0), **COLUMNS, **how), TARGET, op.SNIPS()))
    assert shifted is not None
    assert shifted.verdict is op.Verdict.DO_NOT_TRUST
    assert "The loggers disagree about the same policy: v1 " in shifted.seen


def test_rounds_of_one_user_under_several_loggers_are_not_independent() -> None:
    """Every round 20 times: the p-value with clusters is that of the rounds once."""
    data = simulated(3_000, seed=3).assign(user=np.arange(3_000))
    often = pd.concat([data] * 20)
    p = [
        op.evaluate(op.read_log(each, **COLUMNS, logging=LOGGING, cluster="user"), TARGET, op.SNIPS())["SNIPS"]
        for each in (data, often)
    ]
    assert p[1].diagnostics["loggers_agree_p"] == pytest.approx(p[0].diagnostics["loggers_agree_p"], rel=1e-6)


def test_a_logger_with_hardly_any_support_is_not_compared() -> None:
    data = exact(400)  # two rounds of the first logger took action 1
    estimate = op.evaluate(log_of(data), TARGET, op.SNIPS())["SNIPS"]
    assert estimate.diagnostics["loggers_agree_p"] is None
    assert estimate.diagnostics["loggers"]["v1"]["effective_sample_size"] < 5


def flat(values: Any) -> npt.NDArray[Any]:
    return np.asarray(values)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"logging": {"v1": FIRST}}, r"logging: no policy for 'v2' among 1 \('v1'\); the log has 2 loggers"),
        ({"logger": None}, "a dict of logging policies needs the logger of each round"),
        ({"logger": None, "logging": FIRST, "loggers": "own"}, "loggers= needs the logger of each round"),
        ({"loggers": "mixed"}, "'mixed'"),
        ({"logging": None, "loggers": "balanced", "propensity": np.full(100, 0.5)}, "under every logger"),
        ({"propensity": np.full(100, 0.5)}, "give one of the two"),
        ({"logger": flat(["v1"] * 7)}, "logger has shape"),
    ],
)
def test_loggers_that_do_not_fit_are_refused(more: dict[str, Any], message: str) -> None:
    data = exact(100)
    how = {"logger": data["logger"], "logging": {"v1": FIRST, "v2": SECOND}, **more}
    with pytest.raises(op.InputError, match=message):
        op.Log(None, data["action"], data["reward"], n_actions=2, **how)


def test_learned_embeddings_use_the_combined_logging_policy() -> None:
    result = op.evaluate(op.read_log(simulated(), **COLUMNS, logging=LOGGING), TARGET, [op.LearnedMIPS(), op.SNIPS()])
    assert result["LearnedMIPS"].value == pytest.approx(result["SNIPS"].value, abs=4 * result["SNIPS"].std_error)


@pytest.mark.parametrize("loggers", ["balanced", "weighted"])
def test_a_policy_that_cannot_have_taken_an_action_is_refused(loggers: str) -> None:
    """As when the labels of two loggers are swapped; the balanced probability alone is positive everywhere."""
    data = {"action": np.array([0, 1, 1, 0, 1]), "reward": np.ones(5), "logger": list("aabbb")}
    log = log_of(data, logging={"a": op.Fixed([1.0, 0.0]), "b": SECOND}, loggers=loggers)
    words = "1 row has an action with zero probability under the policy of the logger .*: 1.*Check the policy of 'a'"
    with pytest.raises(op.InputError, match=words):
        op.evaluate(log, TARGET, op.IPS())

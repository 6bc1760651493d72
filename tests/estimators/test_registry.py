"""What every estimator in the registry must do; a new one is covered by being registered."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import offpolicy as op
from offpolicy.estimators import REGISTRY, Combined, Member
from offpolicy.estimators.text import estimator as from_text
from tests.logs import DISCRETE, Small, make_small

EVERY = sorted(DISCRETE)
BLENDS = [name for name in EVERY if issubclass(REGISTRY[name], Combined)] + ["LearnedMIPS", "LearnedMDR"]


@pytest.fixture(scope="module")
def result() -> op.Evaluation:
    w = make_small(n=600)
    log = w.log(reward_range=(-20, 20), cluster=np.arange(600) // 2, action_features=w.features)
    return op.evaluate(log, {"new": w.target, "old": w.logging}, [REGISTRY[name]() for name in EVERY])


@pytest.mark.parametrize("name", EVERY)
def test_the_estimate_is_complete(result: op.Evaluation, name: str) -> None:
    estimate = result["new", name]
    assert np.isfinite(estimate.value)
    assert estimate.std_error > 0
    assert estimate.error_covers in ("sampling", "sampling+fit")
    assert estimate.n == 600
    assert isinstance(estimate.verdict, op.Verdict)
    for reason in estimate.reasons:
        assert reason.seen
        assert reason.why
        assert reason.do


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("method", ["normal", "bootstrap", "bernstein", "cressie-read"])
def test_intervals_are_nested(result: op.Evaluation, name: str, method: str) -> None:
    if name in (*BLENDS, "ScaledDR") and method in ("bernstein", "cressie-read"):
        with pytest.raises(op.InputError, match="by one estimator"):
            result["new", name].confidence_interval(0.5, method=method)
        assert result.with_interval(method)["new", name].confidence_interval().method == "student"
        return
    evidence = result["new", name].evidence
    assert evidence is not None
    unlimited = dataclasses.replace(evidence, value_range=None)  # or both may end where the rewards do
    narrow, wide = (unlimited.interval(level, method) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high
    limited = result["new", name].confidence_interval(0.99, method=method)
    assert (limited.low, limited.high) == (max(wide.low, -20), min(wide.high, 20))
    if method in ("normal", "bootstrap", "bernstein"):
        assert result["new", name].value in wide


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_settings_are_frozen_and_named(name: str) -> None:
    estimator = REGISTRY[name]()
    assert estimator.name == name
    with pytest.raises(dataclasses.FrozenInstanceError):
        estimator.name = "other"
    assert REGISTRY[name](name="mine").name == "mine"
    assert type(from_text(name.lower())) is REGISTRY[name]
    assert estimator.members()


@pytest.mark.parametrize("name", EVERY)
def test_differences_are_paired(result: op.Evaluation, name: str) -> None:
    difference = result.difference("new", "old", estimator=name)
    assert difference.value == pytest.approx(result["new", name].value - result["old", name].value)
    nothing = result.difference(("new", name), ("new", name))
    assert (nothing.value, nothing.std_error) == (0.0, 0.0)


@pytest.mark.parametrize("name", EVERY)
def test_scores_reproduce_the_value(small: Small, name: str, tmp_path: object) -> None:
    import pyarrow.parquet as pq

    weight = np.random.default_rng(0).uniform(0.5, 2, len(small.action))
    estimate = op.evaluate(small.log(weight=weight, action_features=small.features), small.target, [REGISTRY[name]()])[name]
    estimate.scores(tmp_path / "scores.parquet")
    table = pq.read_table(tmp_path / "scores.parquet").to_pandas()
    assert table["row"].tolist() == list(range(len(small.action)))
    mean = np.average(table, axis=0, weights=weight)
    row = dict(zip(table.columns, mean, strict=True))
    normalised = name not in BLENDS and REGISTRY[name]().members()[0].normalised
    assert row["baseline"] + row["correction"] / (row["weight"] if normalised else 1) == pytest.approx(
        estimate.value, rel=1e-9
    )


def moves_with_an_offset(member: Member) -> bool:
    """Whether a constant added to the rewards is multiplied with a mean weight that is not exactly 1."""
    modelled = member.rewards is not None and not member.remainder
    return member.weight.weighs and not member.normalised and not modelled and member.smoothing is None


@pytest.mark.parametrize("name", EVERY)
def test_large_offsets_lose_no_digits(name: str) -> None:
    """Rewards around 1e8 (or 1e-8) give the same standard error, in their unit, as rewards around 0 (or 1).

    Weights of mean 1 move an unnormalised estimate with the offset, so only what does not move is compared there. A mix with
    a candidate that moves leaves it out, so that its error is about the same.
    """
    w = make_small(n=2_000)
    exact = np.round(w.reward * 2**12) / 2**12  # so that adding 1e8 changes no digit

    def error(reward: np.ndarray) -> float:
        ends = (float(reward.min()), float(reward.max()))  # for LogSmoothing, which measures rewards in their range
        log = op.Log(w.context, w.action, reward, logging=w.logging, action_features=w.features, reward_range=ends)
        return op.evaluate(log, w.target, [REGISTRY[name]()])[name].std_error

    iterated = REGISTRY[name] in (op.LearnedMIPS, op.LearnedMDR)  # a logistic regression stops within a tolerance
    assert error(exact * 1e-8) == pytest.approx(1e-8 * error(exact), rel=1e-3 if iterated else 1e-9)
    moving = [moves_with_an_offset(member) for member in REGISTRY[name]().members()]
    if all(moving):
        assert error(exact + 1e8) > 1e4 * error(exact)
    elif name == "StackedDR":
        assert any(moving)
        assert error(exact + 1e8) == pytest.approx(error(exact), rel=0.01)
    else:
        assert error(exact + 1e8) == pytest.approx(error(exact), rel=1e-3 if iterated else 1e-6)


@pytest.mark.parametrize("name", EVERY)
def test_a_constant_reward_is_known_exactly_where_weights_sum_to_one(small: Small, name: str) -> None:
    log = op.Log(
        small.context, small.action, np.full(len(small.action), 7.0), logging=small.logging, action_features=small.features
    )
    if REGISTRY[name] in (op.GroupIPS, op.OffCEM, op.LearnedMIPS, op.LearnedMDR):  # nothing tells the actions apart
        with pytest.raises(op.InputError, match="the same for every action"):
            op.evaluate(log, small.target, [REGISTRY[name]()])
        return
    estimate = op.evaluate(log, small.target, [REGISTRY[name]()])[name]
    if name == "LogSmoothing":  # its weights do not sum to one
        return
    if not all(moves_with_an_offset(member) for member in REGISTRY[name]().members()):
        assert estimate.value == pytest.approx(7.0, rel=1e-9)
        assert estimate.std_error == pytest.approx(0.0, abs=1e-7)


def test_the_result_as_json_and_text(result: op.Evaluation) -> None:
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["schema"] == 1
    assert {e["estimator"] for e in plain["estimates"]} == set(EVERY)
    for form in (str(result), result.to_markdown(), result._repr_html_()):
        assert all(name in form for name in EVERY)
    frame = result.to_frame()
    assert len(frame) == 2 * len(EVERY)
    assert max(len(line) for line in str(result).splitlines()) <= 80

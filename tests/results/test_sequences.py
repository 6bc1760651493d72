"""Confidence sequences of estimates and differences, and the smoothing interval, through `op.evaluate`."""

from __future__ import annotations

import numpy as np
import pytest

import offpolicy as op

N = 4_000


def rounds(seed: int = 0, n: int = N, binary: bool = True) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    action = rng.integers(0, 4, n)
    reward = rng.random(n) < 0.2 + 0.15 * action if binary else rng.beta(2, 5, n) * (1 + action) / 4
    return {"action": action, "reward": reward.astype(float), "propensity": np.full(n, 0.25)}


def log_of(columns: dict[str, np.ndarray], **more: object) -> op.Log:
    return op.Log(np.zeros((len(columns["action"]), 1)), **columns, n_actions=4, **{"reward_range": (0, 1), **more})


POLICIES = {"new": op.Fixed([0.1, 0.1, 0.2, 0.6]), "old": op.Fixed([0.4, 0.3, 0.2, 0.1])}


@pytest.fixture(scope="module")
def result() -> op.Evaluation:
    return op.evaluate(log_of(rounds()), POLICIES, [op.IPS(), op.SNIPS(), op.LogSmoothing()], sequence="old")


def test_they_contain_the_interval_of_today(result: op.Evaluation) -> None:
    for policy in POLICIES:
        estimate = result[policy, "IPS"]
        today, always = estimate.confidence_interval(), estimate.confidence_sequence()
        assert (always.level, always.method) == (0.95, "sequence")
        assert always.low < today.low < today.high < always.high
        assert estimate.confidence_sequence(0.8).low > always.low
    assert result["new", "SNIPS"].confidence_sequence().low == result["new", "IPS"].confidence_sequence().low


def test_a_difference_from_the_baseline_is_paired(result: op.Evaluation) -> None:
    plain = op.evaluate(log_of(rounds()), POLICIES, op.IPS(), sequence=True)
    difference = result.difference("new", "old", estimator="IPS")
    paired, apart = difference.confidence_sequence(), plain.difference("new", "old", estimator="IPS").confidence_sequence()
    assert apart.low < paired.low < 0.195 < paired.high < apart.high
    bounded = difference.confidence_sequence(weight_bound=2.4)
    assert bounded.low < 0.195 < bounded.high
    reverse = result.difference("old", "new", estimator="IPS").confidence_sequence(weight_bound=2.4)
    assert (-reverse.high, -reverse.low) == (bounded.low, bounded.high)


def test_a_lift_over_the_log_knows_the_weights_of_the_log() -> None:
    result = op.evaluate(log_of(rounds()), POLICIES, op.IPS(), sequence="log")
    lift, apart = result.lift("new", estimator="IPS"), op.evaluate(log_of(rounds()), POLICIES, op.IPS(), sequence=True)
    assert lift.confidence_sequence().low > apart.lift("new", estimator="IPS").confidence_sequence().low
    assert lift.confidence_sequence().low > 0


def test_rare_rewards_with_a_known_bound_on_the_weights() -> None:
    columns = rounds(n=20_000)
    columns["reward"] = columns["reward"] * (np.random.default_rng(1).random(20_000) < 0.05)
    ips = op.evaluate(log_of(columns), POLICIES, op.IPS(), sequence=True)["new", "IPS"]
    free, bounded = ips.confidence_sequence(), ips.confidence_sequence(weight_bound=2.4)
    assert bounded.high - ips.value < 0.5 * (free.high - ips.value)


def test_a_reward_model_that_was_fitted_before() -> None:
    model = op.Given(np.tile([0.2, 0.35, 0.5, 0.65], (N, 1)))
    result = op.evaluate(log_of(rounds()), POLICIES["new"], [op.IPS(), op.DR(model), op.SNDR(model)], sequence=True)
    with pytest.raises(op.InputError, match="weight_bound"):
        result["DR"].confidence_sequence()
    with pytest.raises(op.InputError, match="fitted on other rounds"):
        result["SNDR"].confidence_sequence()
    always, today = result["DR"].confidence_sequence(weight_bound=2.4), result["DR"].interval
    assert always.low < today.low < 0.545 < today.high < always.high
    assert always.high - always.low < 2.2 * (today.high - today.low)
    beyond = op.Given(np.tile([-9.0, 9.0, -9.0, 9.0], (N, 1)))
    result = op.evaluate(log_of(rounds()), POLICIES["new"], op.DR(beyond), sequence=True)
    with pytest.raises(op.InputError, match="beyond the range"):
        result["DR"].confidence_sequence(weight_bound=2.4)


def test_the_same_bytes_whatever_the_order_and_the_engine() -> None:
    columns, order = rounds(binary=False), np.random.default_rng(2).permutation(N)
    ids = np.arange(N)
    moved = {name: column[order] for name, column in columns.items()}
    ends = [
        op.evaluate(log_of(own, row_id=own_ids), POLICIES, op.IPS(), sequence="old", engine=engine)
        .difference("new", "old", estimator="IPS")
        .evidence.scores
        for own, own_ids, engine in (
            (columns, ids, op.Local(threads=1)),
            (moved, ids[order], op.Local(threads=2, batch_rows=333)),
        )
    ]
    for first, second in zip(ends[0].bins + ends[0].gains[0][1], ends[1].bins + ends[1].gains[0][1], strict=True):
        assert first[1].count.tobytes() == second[1].count.tobytes()
        assert first[1].total.tobytes() == second[1].total.tobytes()


def test_clusters_bet_as_units_and_spend_over_looks() -> None:
    users = np.repeat(np.arange(N // 10), 10)
    columns = rounds()
    columns["reward"] = np.repeat(columns["reward"][::10], 10)  # one outcome per user
    alone = op.evaluate(log_of(columns), POLICIES, op.IPS(), sequence=True)["new", "IPS"].confidence_sequence()
    clustered = op.evaluate(log_of(columns, cluster=users), POLICIES, op.IPS())  # needs no further sums
    first, tenth = (clustered["new", "IPS"].confidence_sequence(look=look) for look in (1, 10))
    assert first.high - first.low > 1.3 * (alone.high - alone.low)
    assert tenth.low < first.low < first.high < tenth.high
    lift = clustered.difference("new", "old", estimator="IPS").confidence_sequence()
    assert lift.low < 0 < lift.high  # what is earned does not depend on the actions


def test_a_saved_result_has_them(result: op.Evaluation, tmp_path: object) -> None:
    result.save(tmp_path / "result.json")
    again = op.load_result(tmp_path / "result.json")
    assert again["new", "IPS"].confidence_sequence() == result["new", "IPS"].confidence_sequence()
    assert (
        again.difference("new", "old", estimator="IPS").confidence_sequence()
        == result.difference("new", "old", estimator="IPS").confidence_sequence()
    )


def test_rewards_in_another_range() -> None:
    columns = rounds()
    plain = op.evaluate(log_of(columns), POLICIES, op.IPS(), sequence=True)["new", "IPS"].confidence_sequence()
    columns["reward"] = 10 * columns["reward"] - 3
    moved = op.evaluate(log_of(columns, reward_range=(-3, 7)), POLICIES, op.IPS(), sequence=True)["new", "IPS"]
    assert [moved.confidence_sequence().low, moved.confidence_sequence().high] == pytest.approx(
        [10 * plain.low - 3, 10 * plain.high - 3], rel=1e-6
    )


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"reward_range": None}, "reward_range"),
        ({"weight": np.linspace(1, 2, N)}, "row weights"),
    ],
)
def test_what_they_need(how: dict[str, object], message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        op.evaluate(log_of(rounds(), **how), POLICIES, op.IPS(), sequence=True)


def test_misuse_is_explained(result: op.Evaluation) -> None:
    with pytest.raises(op.InputError, match="largest weight of the log is 2.4"):
        result["new", "IPS"].confidence_sequence(weight_bound=2)
    with pytest.raises(op.InputError, match="1 or more"):
        result["new", "IPS"].confidence_sequence(weight_bound=0.5)
    with pytest.raises(op.InputError, match="look"):
        result["new", "IPS"].confidence_sequence(look=0)
    with pytest.raises(op.InputError, match="sequence=True"):
        op.evaluate(log_of(rounds()), POLICIES["new"], op.IPS())["IPS"].confidence_sequence()
    with pytest.raises(op.InputError, match="did you mean|old"):
        op.evaluate(log_of(rounds()), POLICIES, op.IPS(), sequence="odl")


def test_the_smoothing_interval_by_hand(result: op.Evaluation) -> None:
    columns, estimate = rounds(), result["new", "LogSmoothing"]
    w = np.array([0.4, 0.4, 0.8, 2.4])[columns["action"]]
    lam, r = 1 / np.sqrt(N), columns["reward"]
    low = np.expm1(lam * (np.log1p(lam * w * r) / lam).mean() - np.log(40) / N) / lam
    high = 1 - np.expm1(lam * (np.log1p(lam * w * (1 - r)) / lam).mean() - np.log(40) / N) / lam
    assert estimate.value == pytest.approx((np.log1p(lam * w * r) / lam).mean())
    interval = estimate.confidence_interval(method="smoothing")
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-9)
    assert estimate.interval == interval
    with pytest.raises(op.InputError, match="LogSmoothing"):
        result["new", "IPS"].confidence_interval(method="smoothing")
    assert result.with_interval("smoothing")["new", "IPS"].interval.method == "cressie-read"


def test_smoothing_needs_independent_rounds_and_a_range() -> None:
    users = np.arange(N) // 2
    clustered = op.evaluate(log_of(rounds(), cluster=users), POLICIES["new"], op.LogSmoothing())["LogSmoothing"]
    assert clustered.interval.method == "student"
    unknown = op.evaluate(log_of(rounds(), reward_range=None), POLICIES["new"], op.LogSmoothing())["LogSmoothing"]
    assert unknown.interval.method == "student"
    with pytest.raises(op.InputError, match="smoothing"):
        unknown.confidence_interval(method="smoothing")


def test_slices_have_none() -> None:
    by = np.where(np.arange(N) % 2, "a", "b")
    result = op.evaluate(log_of(rounds(), by=by), POLICIES["new"], op.IPS(), sequence=True)
    with pytest.raises(op.InputError, match="slice"):
        result.slices["a"]["IPS"].confidence_sequence()

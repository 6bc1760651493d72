"""A monitor: one evaluation of all logs, whatever their order; each log once; files that are whole or absent."""

from __future__ import annotations

from copy import copy
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import offpolicy as op
from benchmarks.streams import ALPHA, EVERY, good, reached

RATES = {"a": 0.2, "b": 0.3, "c": 0.45, "d": 0.6}
P_OLD, P_NEW = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
POLICIES = {"new": op.Column("p_new"), "same": op.Column("p_same")}


def day(k: int, n: int = 400, labels: str = "abcd") -> dict[str, object]:
    import pandas as pd

    rng = np.random.default_rng([k, 1])
    p = P_OLD[: len(labels)] / P_OLD[: len(labels)].sum()
    code = rng.choice(len(labels), n, p=p)
    target = P_NEW[: len(labels)] / P_NEW[: len(labels)].sum()
    return pd.DataFrame({
        "x": rng.normal(size=n), "item": np.array(list(labels))[code], "p": p[code], "p_new": target[code], "p_same": p[code],
        "click": (rng.random(n) < np.array([RATES[each] for each in labels])[code]).astype(float), "user": rng.integers(0, 90, n),
    })  # fmt: skip


def log_of(frame: object, **more: object) -> op.Log:
    settings = {"context": "x", "action": "item", "reward": "click", "propensity": "p", "reward_range": (0, 1)}
    return op.read_log(frame, **{**settings, **more})


def filled(days: list[int], **more: object) -> op.Monitor:
    monitor = op.Monitor(POLICIES, **more)
    for k in days:
        monitor.update(log_of(day(k)))
    return monitor


@pytest.fixture(scope="module")
def six() -> op.Monitor:
    return filled(list(range(6)))


def of_days(days: list[int]) -> op.Monitor:
    monitor = op.Monitor(POLICIES["new"], estimators=[op.IPS(), op.SNIPS()])
    for k in days:
        monitor.update(log_of(small(k), row_id="id"))
    return monitor


def small(k: int) -> object:
    return day(k, n=60).assign(id=60 * k + np.arange(60))


def test_thirty_logs_are_one_evaluation_in_any_order_merged_or_not(tmp_path: Path) -> None:
    import pandas as pd

    whole = pd.concat([small(k) for k in range(30)], ignore_index=True)
    result = op.evaluate(log_of(whole, row_id="id"), POLICIES["new"], [op.IPS(), op.SNIPS()], sequence="log")
    order = np.random.default_rng(0).permutation(30).tolist()
    parts = [of_days(days) for days in (order[:3], order[3:15], order[15:])]
    parts[2].save(tmp_path / "part.op")
    loaded = op.Monitor.load(tmp_path / "part.op", POLICIES["new"])
    merged = parts[0].merge(parts[1]).merge(loaded)
    for monitor in (of_days(list(range(30))), merged, loaded.merge(parts[1].merge(parts[0]))):
        assert (monitor.logs, monitor.rounds) == (30, len(whole))
        for estimate in result:
            again = monitor.result[estimate.estimator]
            ours, theirs = (
                [each.value, each.std_error, each.n, each.interval.low, each.interval.high] for each in (again, estimate)
            )
            assert ours == pytest.approx(theirs, 1e-9)
            assert again.verdict == estimate.verdict
        ours, theirs = (each["IPS"].confidence_sequence() for each in (monitor.result, result))
        assert (ours.low, ours.high) == (theirs.low, theirs.high)
        lift, again_lift = (each.lift(estimator="IPS") for each in (result, monitor.result))
        assert (again_lift.value, again_lift.std_error) == pytest.approx((lift.value, lift.std_error), rel=1e-9)


def test_the_range_of_the_first_log_holds_from_the_start() -> None:
    frame = day(0).assign(click=lambda each: 4 * each["click"] + 1)
    stated, given = op.Monitor(POLICIES), op.Monitor(POLICIES, reward_range=(1, 5))
    stated.update(log_of(frame, reward_range=(1, 5)))
    given.update(log_of(frame, reward_range=None))
    assert stated.looks == given.looks
    assert stated.looks[0].policies["new"].low > 1


def test_what_another_monitor_decided_is_decided_again() -> None:
    """The error probability of 5% is promised for one series of looks."""
    hasty, careful = op.Monitor(POLICIES, weight_bound=4), op.Monitor(POLICIES, weight_bound=4)
    hasty.update(log_of(day(0, n=3_000)))
    careful.update(log_of(day(1)))
    assert hasty.decisions["new"].logs == 1
    both = careful.merge(hasty)
    assert both.decisions["new"].logs == 2
    assert [look.rounds for look in both.looks] == [400, 3_400]


def test_a_log_counts_once(six: op.Monitor) -> None:
    again = copy(six)
    with pytest.raises(op.InputError, match="each log counts once"):
        again.update(log_of(day(3)))
    with pytest.raises(op.InputError, match="each log counts once"):
        again.update(log_of(day(3).sample(frac=1, random_state=0)))  # the same rounds in another order
    assert (again.rounds, again.looks) == (six.rounds, six.looks)
    with pytest.raises(op.InputError, match="same log"):
        six.merge(filled([3]))


def test_a_saved_monitor_goes_on(six: op.Monitor, tmp_path: Path) -> None:
    first = filled(list(range(4)))
    first.save(tmp_path / "state.op")
    again = op.Monitor.load(tmp_path / "state.op", POLICIES)
    assert str(again.result) == str(first.result)
    for k in range(4, 6):
        again.update(log_of(day(k)))
    assert again.looks == six.looks
    assert again.decisions == six.decisions
    for estimate in six.result:
        assert again.result[estimate.policy, estimate.estimator].value == pytest.approx(estimate.value, rel=1e-9)
    shown = op.Monitor.load(tmp_path / "state.op")
    assert shown.to_dict() == first.to_dict()
    with pytest.raises(op.InputError, match="new"):
        op.Monitor.load(tmp_path / "state.op", {"new": op.Column("p_new")})


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.op"
    filled([0]).save(path)
    whole = path.read_bytes()
    for damaged in (whole[:-9], whole[:200], b"", whole.replace(b'rounds\\":400', b'rounds\\":401')):
        (tmp_path / "bad.op").write_bytes(damaged)
        with pytest.raises(op.InputError):
            op.Monitor.load(tmp_path / "bad.op", POLICIES)
    with pytest.raises(op.InputError, match="no such file"):
        op.Monitor.load(tmp_path / "none.op", POLICIES)


def test_new_labels_extend_the_map() -> None:
    monitor = op.Monitor(POLICIES)
    frames = [day(0, labels="ab"), day(1, labels="bcd"), day(2)]
    for frame in frames:
        monitor.update(log_of(frame))
    assert monitor.result.actions == 4
    import pandas as pd

    whole = op.evaluate(log_of(pd.concat(frames, ignore_index=True)), POLICIES, op.SNIPS())
    assert monitor.result["new", "SNIPS"].value == pytest.approx(whole["new", "SNIPS"].value, rel=1e-9)
    with pytest.raises(op.InputError, match="each log counts once"):
        monitor.update(log_of(day(1, labels="bcd")))
    with pytest.raises(op.InputError, match="codes"):
        monitor.update(log_of(day(3).assign(item=np.arange(400) % 4)))


def test_it_decides_and_stays_decided() -> None:
    monitor = op.Monitor(POLICIES, weight_bound=4)
    for k in range(6):
        monitor.update(log_of(day(k, n=1_500)))
    assert monitor.decisions["new"].conclusion == "better"
    decided = monitor.decisions["new"].logs
    assert decided is not None
    for look in monitor.looks:
        assert (look.policies["new"].difference_low > 0) == (look.logs >= decided) or look.logs > decided
    assert monitor.decisions["same"].conclusion == "undecided"
    assert all(a.rounds < b.rounds for a, b in pairwise(monitor.looks))
    against = op.Monitor(POLICIES, baseline="new", weight_bound=4)
    for k in range(3):
        against.update(log_of(day(k, n=3_000)))
    assert against.decisions["same"].conclusion == "worse"
    assert list(against.decisions) == ["same"]
    ax = monitor.plot()
    assert "better from" in " ".join(text.get_text() for text in ax.get_legend().get_texts())


def test_the_streams_of_the_benchmark_are_what_a_monitor_sees() -> None:
    """At each look, the capital against a bound is what the bound requires; bins of scores make it a little wider."""
    import pandas as pd

    stream = good(np.random.default_rng([0, 24]))
    w, r = stream.weight, stream.reward
    item = np.where(w > 1, "a", "b")
    frame = pd.DataFrame({"x": 0.0, "item": item, "p": 0.2, "p_new": 0.2 * w, "click": r})
    monitor = op.Monitor({"new": op.Column("p_new")})
    for rounds in (30_000, 100_000):
        monitor.update(log_of(frame[monitor.rounds : rounds]))
        bounds, look = monitor.result["new", "IPS"].confidence_sequence(), rounds // EVERY - 1
        for name, bound in (("hits", bounds.low), ("misses", 1 - bounds.high)):
            assert reached(stream.at_looks(name), bound)[look] == pytest.approx(np.log(2 / ALPHA), rel=0.02)


def test_users_spend_over_looks(six: op.Monitor) -> None:
    monitor = op.Monitor(POLICIES)
    for k in range(4):
        monitor.update(log_of(day(k), cluster="user"))
    last = monitor.looks[-1].policies["new"]
    same = monitor.result["new", "IPS"].confidence_sequence(look=4)
    assert (last.low, last.high) == (same.low, same.high)


def test_a_model_that_was_fitted_before() -> None:
    world = op.worlds.Linear(n_actions=5, clicks=True, seed=0)
    model = op.fit_rewards(world.sample(2_000, seed=9))
    monitor = op.Monitor(world.target, estimators=[op.DR(model), op.IPS()], reward_range=(0, 1), weight_bound=1e6)
    with pytest.raises(op.InputError, match="fitted to them"):
        op.Monitor(world.target, estimators=op.DR(), reward_range=(0, 1)).update(world.sample(500, seed=0))
    for seed in range(2):
        monitor.update(world.sample(1_000, seed=seed))
    assert monitor.result["DR"].n == 2_000


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ({"reward_range": None}, "reward_range"),
        ({"reward_range": (0, 2)}, "log states"),
        ({"weight": "p"}, "row weights"),
        ({"by": "user"}, "slices"),
        ({"context": ("x", "p_new")}, "context"),
        ({"cluster": "user"}, "clusters"),
    ],
)
def test_what_does_not_go_together_is_refused(log: dict[str, object], message: str) -> None:
    monitor = op.Monitor(POLICIES) if log.get("reward_range", 0) is None else filled([0])
    rounds = monitor.rounds
    with pytest.raises(op.InputError, match=message):
        monitor.update(log_of(day(1), **log))
    assert monitor.rounds == rounds


def test_settings_are_checked() -> None:
    with pytest.raises(op.InputError, match="baseline"):
        op.Monitor(POLICIES, baseline="old")
    with pytest.raises(op.InputError, match="weight_bound"):
        op.Monitor(POLICIES, weight_bound=0)
    with pytest.raises(op.InputError, match="no rounds yet"):
        _ = op.Monitor(POLICIES).result
    with pytest.raises(op.InputError, match="settings"):
        filled([0]).merge(filled([1], level=0.9))

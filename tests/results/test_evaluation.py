"""What a report shows besides estimates: weights, calibration, the map of actions, the lift, the fingerprint."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import offpolicy as op
from offpolicy.diagnostics.embedding_map import map_view
from offpolicy.statistics.calibration import Calibration
from offpolicy.statistics.histogram import LogHistogram
from offpolicy.worlds import Linear
from tests.logs import Ragged


@pytest.fixture(scope="module")
def world() -> Linear:
    return Linear(20, clicks=True, seed=3)


@pytest.fixture(scope="module")
def log(world: Linear) -> op.Log:
    return world.sample(4_000, seed=4)


@pytest.fixture(scope="module")
def result(world: Linear, log: op.Log) -> op.Evaluation:
    estimators = [op.SNIPS(), op.DR(), op.DM(), op.LearnedMIPS(posterior=op.Gaussian(0.5))]
    return op.evaluate(log, {"new": world.target, "old": world.logging}, estimators)


def table(rows: int = 3_000) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "x": rng.normal(size=rows),
            "y": rng.normal(size=rows),
            "item": rng.choice(["a", "b", "c"], rows),
            "click": (rng.random(rows) < 0.3).astype(float),
            "p": np.full(rows, 1 / 3),
            "p_new": rng.random(rows),
        }
    )


def fingerprint(source: object, **settings: object) -> str:
    log = op.read_log(source, context=["x", "y"], action="item", reward="click", propensity="p")
    return op.evaluate(log, op.Column("p_new"), op.SNIPS(), **settings).to_dict()["input"]["fingerprint"]


def test_the_fingerprint_is_that_of_the_data_not_of_its_files(tmp_path: Path) -> None:
    """Not of their order, their format, their batches, or the threads that read them."""
    data = table()
    expected = fingerprint(data)
    order = np.random.default_rng(1).permutation(len(data))
    assert fingerprint(data.take(order)) == expected
    for k, part in enumerate((data.slice(2_000), data.slice(0, 2_000))):
        pq.write_table(part, tmp_path / f"{k}.parquet", row_group_size=700)
    assert fingerprint(tmp_path) == expected
    pc.write_csv(data, tmp_path / "all.csv")
    assert fingerprint(tmp_path / "all.csv") == expected
    assert fingerprint(data, engine=Ragged(77)) == expected
    x = np.column_stack([data["x"], data["y"]])
    in_memory = op.Log(x, data["item"].to_numpy(), data["click"].to_numpy(), propensity=data["p"].to_numpy())
    other_names = op.evaluate(in_memory, data_policy(len(data)), op.SNIPS()).to_dict()["input"]
    assert other_names["fingerprint"] != expected
    assert other_names["source"] == "arrays in memory"


def data_policy(rows: int) -> np.ndarray:
    return np.full((rows, 3), 1 / 3)


@given(st.integers(0, 2_999), st.sampled_from(["x", "y", "item", "click", "p"]))
def test_any_change_of_one_value_changes_the_fingerprint(row: int, column: str) -> None:
    data = table()
    values = data[column].to_pylist()
    values[row] = {"item": "b" if values[row] == "a" else "a", "click": 1 - float(values[row] == 1)}.get(
        column, float(np.nextafter(data[column][row].as_py(), 0)) if column != "item" else ""
    )
    changed = data.set_column(data.schema.get_field_index(column), column, pa.array(values))
    assert fingerprint(changed) != fingerprint(data)


def test_roles_clusters_slices_and_catalogs_are_in_the_fingerprint() -> None:
    data = table().append_column("user", pa.array(np.arange(3_000) % 50)).append_column("c", pa.array(np.full(3_000, 0.5)))

    def of(**roles: object) -> str:
        usual = {"context": ["x", "y"], "action": "item", "reward": "click", "propensity": "p"} | roles
        log = op.read_log(data, **usual)
        return op.evaluate(log, op.Uniform(), op.LoggedMean()).to_dict()["input"]["fingerprint"]

    catalogs = [pa.table({"item": ["a", "b", "c"], "size": sizes}) for sizes in ([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])]
    found = [
        of(), of(propensity="c"), of(propensity=None, weight="c"), of(context=["x"], reward=["y", "click"]), of(cluster="user"),
        of(by="user"), *(of(catalog=catalog) for catalog in catalogs),
    ]  # fmt: skip
    assert len(set(found)) == len(found)


def test_runs_that_differ_are_told_apart(world: Linear, log: op.Log) -> None:
    """What is needed to get the same again."""
    data = table().append_column("q", pa.array(np.full(3_000, 0.2)))
    read = op.read_log(data, context="x", action="item", reward="click", propensity="p")
    told = [op.evaluate(read, name, op.SNIPS()).to_dict() for name in ("p_new", "q")]
    assert told[0]["settings"]["policies"] == {"target": "Column('p_new')"} != told[1]["settings"]["policies"]
    assert told[0]["input"]["columns"]["action"] == "item"
    folds = [op.evaluate(log, world.target, op.DR(), cross_fit=k).to_dict()["settings"] for k in (2, 4)]
    assert [f["cross_fit"] for f in folds] == [2, 4]
    result = op.evaluate(log, world.target, op.SNIPS()).with_interval("bootstrap")
    assert result.to_dict()["settings"]["interval"] == "bootstrap"


def test_settings_that_have_no_one_truth_are_told() -> None:
    import pandas as pd

    from offpolicy.core.describe import described

    class Own(op.Policy):
        def distribution(self, batch: object) -> np.ndarray:
            raise NotImplementedError

    assert "rewards" in described(op.DR(rewards=op.Given(pd.DataFrame({"a": [1.0]}))))
    assert "Own" in described(Own())


def test_swapped_columns_and_swapped_rewards_change_the_fingerprint() -> None:
    data = table()
    assert fingerprint(data.rename_columns(["y", "x", "item", "click", "p", "p_new"])) != fingerprint(data)
    rolled = data.set_column(3, "click", pa.array(np.roll(data["click"].to_numpy(), 1)))
    assert fingerprint(rolled) != fingerprint(data)


def test_the_lift_is_the_paired_difference_to_the_log(world: Linear, log: op.Log, result: op.Evaluation) -> None:
    told = result.to_dict()
    for policy, lift in zip(("new", "old"), told["lifts"], strict=True):
        own = result.difference((policy, "DR"), (policy, "LoggedMean"))
        assert {name: lift[name] for name in ("value", "std_error", "interval")} == own.to_dict()
        assert lift["relative"] == pytest.approx(own.value / told["logged"]["value"])
        assert result.lift(policy).value == own.value
    assert told["logged"]["value"] == pytest.approx(np.mean(next(iter(log.batches(4_000))).reward))
    apart = np.hypot(result["new", "DR"].std_error, told["logged"]["std_error"])
    assert result.lift("old").std_error < 0.5 * apart
    assert [d["value"] for d in told["differences"]] == [result.difference("new", "old").value]


def test_intervals_of_the_lift_follow_the_method(result: op.Evaluation) -> None:
    assert result.with_interval("bootstrap").to_dict()["lifts"][0]["interval"]["method"] == "bootstrap"
    with pytest.warns(op.InputWarning, match="reward_range"):
        told = result.with_interval("bernstein").to_dict()
    assert told["lifts"][0]["interval"]["method"] == "student"  # there is no such for differences


def test_weights_are_those_of_the_rounds(world: Linear, log: op.Log, result: op.Evaluation) -> None:
    batch = next(iter(log.batches(4_000)))
    w = world.target.probabilities(batch, batch.action) / world.logging.probabilities(batch, batch.action)
    seen = next(o for o in result.to_dict()["overlap"] if o["policy"] == "new" and o["kind"] == "action")
    assert seen["estimators"] == ["SNIPS", "DR"]
    counts, _ = np.histogram(w, seen["edges"])
    assert counts.tolist() == seen["counts"]
    assert seen["largest"] == w.max()
    assert seen["mean"] == pytest.approx(w.mean())
    assert seen["effective_sample_size"] == pytest.approx(w.sum() ** 2 / (w**2).sum())
    ratios = np.array(seen["edges"][1:]) / seen["edges"][:-1]
    assert ratios == pytest.approx(np.sqrt(2), rel=0.01)
    pooled = next(o for o in result.to_dict()["overlap"] if o["policy"] == "new" and o["kind"] == "embedding")
    assert pooled["estimators"] == ["LearnedMIPS"]
    assert sum(pooled["counts"]) + pooled["zero"] == 4_000
    assert pooled["effective_sample_size"] > seen["effective_sample_size"]


def test_weights_of_zero_are_counted_apart() -> None:
    histogram = LogHistogram().fold(LogHistogram().zero(), np.array([0.0, 0.0, 1.0, 1.3, 3.0]))
    edges, counts, zero = LogHistogram().steps(histogram)
    assert zero == 2
    assert counts.tolist() == [2, 0, 0, 1]
    assert edges[0] == 1
    assert LogHistogram().steps(LogHistogram().zero())[0].tolist() == []


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_coarse_steps_are_those_of_fine_bins(values: list[float]) -> None:
    w = np.array(values)
    omega = np.arange(1.0, len(w) + 1)
    fine, coarse = LogHistogram(), LogHistogram(coarse=True)
    for a, b in zip(
        fine.steps(fine.fold(fine.zero(), w, omega)), coarse.steps(coarse.fold(coarse.zero(), w, omega)), strict=True
    ):
        assert np.asarray(a).tolist() == np.asarray(b).tolist()


def test_row_weights_count_in_the_weights(world: Linear) -> None:
    """A round that counts 3 times is as 3 rounds, for the shares of the sum as for the rest."""
    batch = next(iter(world.sample(2_000, seed=9).batches(2_000)))
    omega = np.random.default_rng(0).integers(1, 4, 2_000)
    w = world.target.probabilities(batch, batch.action) / world.logging.probabilities(batch, batch.action)
    told = []
    for rows, weight in ((np.arange(2_000), omega), (np.repeat(np.arange(2_000), omega), None)):
        log = op.Log(
            None, batch.action[rows], batch.reward[rows], propensity=batch.propensity[rows], n_actions=20, weight=weight
        )
        told.append(op.evaluate(log, op.Column(w[rows] * batch.propensity[rows]), op.SNIPS()).to_dict()["overlap"][0])
    for name in ("top_1_percent_share", "mean", "largest"):
        assert told[0][name] == pytest.approx(told[1][name])
    assert told[0]["largest_share"] == pytest.approx((omega * w).max() / (omega @ w))
    assert np.array(told[0]["counts"]) / 2_000 == pytest.approx(np.array(told[1]["counts"]) / omega.sum())


def test_the_relative_lift_knows_that_the_log_is_an_estimate_too() -> None:
    """Its 95% interval holds the truth in about 95% of logs, where dividing by the logged mean alone would in 64%."""
    rng, p, means, sd = np.random.default_rng(0), np.array([0.7, 0.3]), np.array([0.2, 1.0]), np.array([3.0, 0.2])
    target, held = np.array([0.02, 0.98]), 0
    truth = target @ means / (p @ means) - 1
    for _ in range(300):
        action = (rng.random(4_000) < p[1]).astype(int)
        reward = means[action] + sd[action] * rng.normal(size=4_000)
        found = op.evaluate(op.Log(None, action, reward, propensity=p[action]), op.Fixed(target), op.SNIPS())
        held += truth in found.relative_lift().confidence_interval()
    assert 0.91 < held / 300 < 0.98


def test_a_relative_lift_of_hardly_any_rewards_has_an_interval() -> None:
    """Some draws of a bootstrap hold no reward at all."""
    rng = np.random.default_rng(0)
    reward = np.zeros(2_000)
    reward[:5] = 1
    log = op.Log(None, rng.integers(0, 2, 2_000), reward, propensity=np.full(2_000, 0.5))
    (lift,) = op.evaluate(log, op.Fixed([0.4, 0.6]), op.SNIPS()).with_interval("bootstrap").to_dict()["lifts"]
    assert lift["relative_interval"]["low"] < lift["relative"] < lift["relative_interval"]["high"]


@pytest.mark.parametrize(
    ("shift", "reason"),
    [(-1.5, "earned -1.5, and a percentage of a negative number"), (0.0, "not clearly above 0"), (None, "earned 0")],
)
def test_no_relative_lift_over_a_negative_or_tiny_base(shift: float | None, reason: str) -> None:
    rng = np.random.default_rng(0)
    action = rng.integers(0, 2, 1_000)
    effect = np.array([-0.5, 0.5])[action] + rng.normal(size=1_000)
    reward = np.zeros(1_000) if shift is None else effect - effect.mean() + shift + 0.01 * (shift == 0)
    result = op.evaluate(op.Log(None, action, reward, propensity=np.full(1_000, 0.5)), op.Fixed([0.0, 1.0]), op.SNIPS())
    (lift,) = result.to_dict()["lifts"]
    assert lift["relative"] is None
    assert lift["relative_interval"] is None
    assert reason in lift["relative_reason"]
    with pytest.raises(op.InputError, match=f"no relative lift, because .*{reason}"):
        result.relative_lift()
    if shift is not None:
        assert f"not in percent, because {lift['relative_reason']}" in " ".join(str(result).split())


def test_a_relative_lift_over_a_clear_base_is_given() -> None:
    rng = np.random.default_rng(0)
    action = rng.integers(0, 2, 1_000)
    log = op.Log(None, action, 1.0 + action + rng.normal(size=1_000), propensity=np.full(1_000, 0.5))
    result = op.evaluate(log, op.Fixed([0.0, 1.0]), op.SNIPS())
    (lift,) = result.to_dict()["lifts"]
    assert lift["relative"] == result.relative_lift().value == pytest.approx(1 / 3, abs=0.1)
    assert lift["relative_reason"] is None


def binary(n: int = 60) -> op.Log:
    """Nearly every reward is 1, and the target takes what was rarely logged: normal intervals reach beyond 1."""
    rng = np.random.default_rng(0)
    action, reward = (rng.random(n) < 0.9).astype(int), np.ones(n)
    reward[:3] = 0
    return op.Log(None, action, reward, propensity=np.where(action == 1, 0.9, 0.1))


def test_intervals_of_binary_rewards_stay_between_0_and_1(tmp_path: Path) -> None:
    result = op.evaluate(binary(), op.Fixed([0.9, 0.1]), [op.IPS(), op.SNIPS(), op.DM()])
    result.save(tmp_path / "result.json")
    for each in (result, op.load_result(tmp_path / "result.json")):
        for estimate in each:
            for method in ("normal", "bootstrap"):
                interval = estimate.confidence_interval(0.999, method)
                assert 0 <= interval.low <= interval.high <= 1
        ips = each["IPS"]
        assert ips.value + 1.96 * ips.std_error > 1.2
        assert ips.interval.high == 1
        assert each.lift(estimator="IPS").interval.high > 0.1  # a difference is not cut


def test_intervals_of_other_rewards_are_not_cut() -> None:
    rng = np.random.default_rng(0)
    log = op.Log(None, rng.integers(0, 2, 50), rng.random(50), propensity=np.full(50, 0.5))
    assert op.evaluate(log, op.Fixed([0.99, 0.01]), op.IPS())["IPS"].confidence_interval(1 - 1e-9, "normal").low < 0


def test_the_frame_calls_the_log_what_the_table_calls_it() -> None:
    frame = op.evaluate(binary(), op.Fixed([0.9, 0.1]), op.SNIPS()).to_frame().set_index("estimator")
    assert frame.loc["LoggedMean", "verdict"] == "the log"
    assert frame.loc["SNIPS", "verdict"] == "CAUTION"


def test_calibration_is_out_of_fold(result: op.Evaluation, log: op.Log, tmp_path: Path) -> None:
    """Against the predictions of each round, read back from the scores: r − q is the correction over the weight."""
    (seen,) = result.to_dict()["calibration"]
    assert seen["estimators"] == ["DR"]  # DM is not cross-fitted
    result["new", "DR"].scores(tmp_path / "scores.parquet")
    scores = pq.read_table(tmp_path / "scores.parquet").sort_by("row")
    r = next(iter(log.batches(4_000))).reward[:, 0]
    q = r - scores["correction"].to_numpy() / scores["weight"].to_numpy()
    bins = seen["bins"]
    assert sum(b["rounds"] for b in bins) == 4_000
    assert all(a["predicted"] < b["predicted"] for a, b in itertools.pairwise(bins))
    order = np.argsort(q)
    for b, rows in zip(bins, np.split(order, np.cumsum([b["rounds"] for b in bins])[:-1]), strict=True):
        assert b["predicted"] == pytest.approx(q[rows].mean(), abs=1e-9)
        assert b["observed"] == pytest.approx(r[rows].mean(), abs=1e-9)
        assert b["std_error"] == pytest.approx(r[rows].std() / np.sqrt(len(rows)), abs=1e-9)
    assert seen["r2"] == pytest.approx(1 - ((r - q) ** 2).mean() / r.var(), abs=1e-9)


def test_errors_of_calibration_know_row_weights_and_what_they_do_not_know() -> None:
    """In standard errors, the observed means of a calibrated model have a spread of 1, however uneven the row weights."""
    rng, z = np.random.default_rng(0), []
    for _ in range(300):
        omega, q = rng.pareto(2.5, 500) + 1, np.zeros(500)
        (found,) = Calibration.bins(Calibration().fold(Calibration().zero(), q, rng.normal(size=500), omega), 1)
        assert found.std_error is not None
        z.append(found.observed / found.std_error)
    assert np.std(z) == pytest.approx(1, abs=0.15)
    (same,) = Calibration.bins(Calibration().fold(Calibration().zero(), np.zeros(9), np.full(9, 0.1), np.ones(9)), 1)
    assert same.std_error is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.integers(1, 20))
def test_bins_hold_every_round_once(values: list[float], most: int) -> None:
    q = np.array(values)
    state = Calibration().fold(Calibration().zero(), q, q + 1, np.ones(len(q)))
    bins = Calibration.bins(state, most)
    assert 1 <= len(bins) <= most
    assert sum(b.rounds for b in bins) == len(q)
    assert sum(b.predicted * b.rounds for b in bins) == pytest.approx(q.sum(), abs=1e-6)
    for b in bins:
        assert b.observed == pytest.approx(b.predicted + 1, rel=1e-9, abs=1e-6)


def test_the_map_keeps_distances_and_names_the_nearest(result: op.Evaluation) -> None:
    shown = result.to_dict(shown=2_000)["embedding"]
    embedding = result["new", "LearnedMIPS"].embedding
    assert shown["chosen"] == "all 20"
    assert len(shown["points"]) == 20
    for point in shown["points"]:
        nearest = [str(other) for other, _ in embedding.nearest(int(point["action"]), 5)]
        assert point["nearest"] == nearest
    places = np.array([(p["x"], p["y"]) for p in shown["points"]])
    share = embedding.counts / embedding.counts.sum()
    centred = embedding.scaled - share @ embedding.scaled
    total = (share[:, None] * centred**2).sum()
    assert (share[:, None] * places**2).sum() / total == pytest.approx(shown["explained"])
    assert share @ places == pytest.approx(np.zeros(2), abs=1e-9)


def test_of_many_actions_some_are_shown() -> None:
    rng = np.random.default_rng(0)
    counts = np.r_[np.arange(500.0, 0.0, -1), np.zeros(500)]
    points = rng.normal(size=(1_000, 3))
    from offpolicy.models.embedding_table import EmbeddingTable

    embedding = EmbeddingTable(np.arange(1_000), counts, None, points, points, points)
    shown = map_view("LearnedMIPS", embedding, 100, 0)
    codes = [int(p["action"]) for p in shown["points"]]
    assert len(set(codes)) == 100
    assert set(range(50)) <= set(codes)
    assert max(codes) < 500
    assert shown["chosen"] == "the 50 most often logged of 1,000, and 50 other logged ones at random"
    assert map_view("LearnedMIPS", embedding, 600, 0)["chosen"] == "the 500 of 1,000 that were logged"
    assert map_view("LearnedMIPS", embedding, 100, 0) == shown


def test_no_map_unless_asked_for_and_none_without_an_embedding(world: Linear, log: op.Log, result: op.Evaluation) -> None:
    assert result.to_dict()["embedding"] is None
    assert op.evaluate(log, world.target, op.DR()).to_dict(shown=10)["embedding"] is None


def test_settings_are_told_as_one_would_type_them(result: op.Evaluation) -> None:
    told = result.to_dict()
    assert "DR()" in told["settings"]["estimators"]
    assert told["versions"]["numpy"] == np.__version__

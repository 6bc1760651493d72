"""Numbers and arrays as users give them: what hostile input has found stays refused, or stays answered."""

from __future__ import annotations

import datetime
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from offpolicy.data.sources.files import find_files

GOOD = {"context": None, "action": [0, 1, 1, 0], "reward": [1.0, 0.0, 2.0, 1.0], "propensity": [0.5, 0.5, 0.25, 0.5]}
CHANCE = op.Column([0.5, 0.5, 0.5, 0.25])


def evaluate(*, policy: object = CHANCE, settings: dict[str, object] | None = None, **changed: object) -> op.Evaluation:
    return op.evaluate(op.Log(**{**GOOD, **changed}), policy, [op.IPS(), op.SNIPS()], **(settings or {}))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"reward": [1.0, 0.0, 2.0, 1e31]}, "reward: 1 row is beyond ±1e+30 (first, counted from 0: 3)"),
        ({"context": [0.0, 0.0, -1e200, 1e200]}, "context: 2 rows are beyond ±1e+30"),
        ({"propensity": [0.5, 0.5, 0.5, 1e-300]}, "propensity: 1 row has a propensity below 1e-30"),
        ({"reward": [[], [], [], []]}, "reward has no column"),
        ({"weight": [1.0, 1.0, 1.0, 5e-324]}, "weight: 1 row has a weight between 0 and 1e-30"),
        ({"propensity": ["a", "b", "c", "d"]}, "propensity is not numeric"),
        ({"propensity": [0.5, 0.5, [0.5], 0.5]}, "propensity is not numeric"),
        ({"reward": np.array(["2024-01-01"] * 4, "M8[D]")}, "reward is not numeric"),
        ({"reward": np.array([1j, 0, 0, 0])}, "reward is not numeric"),
        ({"reward": [datetime.date(2024, 1, 1)] * 4}, "reward is not numeric"),
        ({"weight": np.array([b"1", b"1", b"1", b"1"])}, "weight is not numeric"),
        ({"action": ["a", np.nan, "b", "a"]}, "action: text is mixed with other types"),
        ({"action": ["a", [], "b", "a"]}, "action: cannot be read as an array"),
        ({"action": np.array([1, 2**64 - 1, 0, 0], "u8")}, "the largest here is 18,446,744,073,709,551,615"),
        ({"action": [0, 1, 2**63, 2**63 + 1]}, "action: 2 rows have an integer beyond ±9,007,199,254,740,992"),
        (
            {"cluster": [-1, 0, 1, 2**63]},
            "cluster: 1 row has an integer beyond ±9,007,199,254,740,992, which would be rounded",
        ),
        ({"by": ["a", None, "b", "a"]}, "by: 1 row is missing"),
        ({"by": np.array([b"\xff"] * 4, "O")}, "by: contains bytes that are not text"),
        ({"actions": "label"}, "`actions` is 'label'"),
        ({"actions": [[0, 1]]}, "`actions` must be a flat list of labels"),
        ({"n_actions": 2.5}, "n_actions is 2.5; give a whole number from 1"),
        ({"n_actions": "2"}, "n_actions is '2'"),
        ({"n_actions": True}, "n_actions is True"),
        ({"n_actions": 10**30}, "n_actions is 1000000"),
        ({"reward_range": (0,)}, "reward_range is (0,); give two finite numbers"),
        ({"reward_range": 1}, "reward_range is 1"),
        ({"reward_range": (None, 1)}, "reward_range is (None, 1)"),
        ({"reward_range": (0, float("inf"))}, "reward_range is (0, inf)"),
        ({"settings": {"level": None}}, "level is None"),
        ({"settings": {"level": "0.9"}}, "level is '0.9'"),
        ({"settings": {"level": float("nan")}}, "level is nan"),
        ({"settings": {"cross_fit": 2.5}}, "cross_fit is 2.5"),
        ({"settings": {"cross_fit": float("nan")}}, "cross_fit is nan"),
        ({"settings": {"seed": 1.5}}, "seed is 1.5; give a whole number of at most 64 bits"),
        ({"settings": {"memory": "1e400GB"}}, "memory is '1e400GB'"),
    ],
)
def test_refused_in_words(changed: dict[str, object], words: str) -> None:
    with pytest.raises(op.InputError) as error:
        evaluate(**changed)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: op.Column(["x", 0.5]), "Column is not numeric"),
        (lambda: op.Fixed([1j, 0]), "Fixed is not numeric"),
        (lambda: op.Fixed({0: "x", 1: 0.5}), "Fixed is not numeric"),
        (lambda: op.Mixture([op.Uniform()], ["x"]), "Mixture is not numeric"),
        (lambda: op.Candidates([[0, 1]], [["x", 0.5]]), "Candidates: values have mixed or unsupported types"),
        (lambda: op.TwoTower([[1.0], [1.0, 2.0]]), "TwoTower: items: cannot be read as an array"),
    ],
)
def test_policies_that_are_no_numbers(made: object, words: str) -> None:
    with pytest.raises(op.InputError, match=words):
        evaluate(policy=made())  # type: ignore[operator]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ([[0.5, 0.5], [1.0]], "policy: cannot be read as an array"),
        (lambda x: "a policy", "policy function: the function returned a str, which is not an array of numbers"),
        (lambda x: sys.exit(0), "policy function: the function raised SystemExit: 0"),
        (lambda x: object(), "policy function: the function returned a object"),
        (lambda x: [[0.5, 0.5], [1.0]], "policy function: the function returned a list"),
        (op.Softmax(lambda x: [["x", 0.5]] * len(x)), "the function returned a list, which is not an array of numbers"),
        (np.full((4, 2), 1e308), "do not sum to 1 \\(the worst sum is inf\\)"),
        (op.Candidates([[0, 1]] * 4, [[1e308, 1e308]] * 4), "do not sum to 1 \\(the worst sum is inf\\)"),
    ],
)
def test_what_policies_say(policy: object, words: str) -> None:
    with pytest.raises(op.InputError, match=words):
        evaluate(policy=policy)


def test_a_seed_below_zero_resamples_too() -> None:
    estimate = evaluate(settings={"seed": -3})["IPS"]
    assert estimate.confidence_interval(method="bootstrap").low < estimate.value


def test_numbers_of_numpy_are_numbers() -> None:
    assert evaluate(n_actions=np.int32(2), settings={"seed": np.int64(3), "level": np.float32(0.9)})["IPS"].n == 4


@pytest.mark.parametrize("kind", ["f2", "u1", "u8"])
def test_actions_of_any_type(kind: str) -> None:
    assert evaluate(action=np.array(GOOD["action"], kind))["IPS"].value == evaluate()["IPS"].value


def test_a_slice_without_weight_has_no_answer() -> None:
    result = evaluate(weight=[1.0, 0.0, 1.0, 1.0], by=["a", "b", "a", "a"]).with_interval("bootstrap")
    assert np.isnan(result.slices["b"]["IPS"].value)
    assert result.slices["a"]["IPS"].value == pytest.approx(result["IPS"].value, rel=1e-12)
    assert "b" in str(result)


def test_a_chance_next_to_nothing_is_none() -> None:
    """Or 1/w would overflow. The estimate does not exist, as where every weight is 0."""
    result = evaluate(policy=op.Column([1e-310] * 4))
    assert result["IPS"].value == 0
    assert np.isnan(result["SNIPS"].value)


def test_a_log_that_earned_next_to_nothing() -> None:
    result = evaluate(reward=[1e-310] * 4)
    assert "LoggedMean" in str(result)
    with pytest.raises(op.InputError, match="the log earned 0"):
        result.relative_lift()


def table(**changed: object) -> pa.Table:
    return pa.table({"x": [0.0, 0.5], "a": [0, 1], "r": [1.0, 0.0], "p": [0.5, 0.5], "q": [0.5, 0.25], **changed})


def read(source: object, **more: object) -> op.Evaluation:
    log = op.read_log(source, context="x", action="a", reward="r", propensity="p", **more)
    return op.evaluate(log, "q", [op.IPS()])


def test_types_of_tables() -> None:
    plain = read(table())["IPS"].value
    assert read(table(a=pa.array(np.array([0.0, 1.0], np.float16))))["IPS"].value == plain
    with pytest.raises(op.InputError, match="a has type list<.*>, but each round needs a single value"):
        read(table(a=[[0], [1]]))
    with pytest.raises(op.InputError, match="u has type struct"):
        read(table(u=[{"v": 1}, {"v": 2}]), cluster="u")
    with pytest.raises(op.InputError, match="q: contains binary"):
        read(table(q=[b"0.5", b"0.25"]))
    with pytest.raises(op.InputError, match="bytes must be UTF-8 text"):
        read(table(u=[b"\xff", b"a"]), cluster="u")
    with pytest.raises(op.InputError, match="n_actions is 0"):
        read(table(), n_actions=0)


def test_a_file_without_the_column_of_the_policy(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "a.parquet")
    pq.write_table(table().drop_columns("q"), tmp_path / "b.parquet")
    with pytest.raises(op.InputError, match=r"b.parquet: there is no column 'q'"):
        read(tmp_path)


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(op.InputError, match=r"cannot be read: File name too long\."):
        find_files("a" * 300)
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    if not os.access(closed, os.R_OK):  # root may read all
        with pytest.raises(op.InputError, match="cannot be read"):
            find_files(closed)
    closed.chmod(0o700)


def test_a_range_of_texts_is_one_of_numbers() -> None:
    log = op.Log(**{**GOOD, "reward_range": ("0", "5")})
    assert log.reward_range == (0.0, 5.0)
    assert op.evaluate(log, CHANCE, [op.IPS()])["IPS"].confidence_interval(method="bernstein").method == "bernstein"


@pytest.mark.parametrize(
    "extreme",
    [
        {
            "action": [0, 1, 0, 1, 0, 1],
            "reward": [0.0, 1.0, 1e30, 0.0, 1.0, 1.0],
            "propensity": [0.5, 1.0, 0.25, 1e-10, 0.5, 0.5],
            "weight": [1.0, 1e30, 1e-30, 1.0, 1.0, 1.0],
        },
        {"action": [0, 1], "reward": [0.0, 1.0], "propensity": [1e-30, 0.5], "weight": [1.0, 0.0], "by": ["b", "a"]},
        {"action": [0, 1], "reward": [1.0, 1e-30], "propensity": [0.5, 1e-30], "weight": [1e-20, 1.0]},
    ],
)
def test_extreme_numbers_give_no_warnings(extreme: dict[str, object]) -> None:
    rows = len(extreme["reward"])
    policy = op.Column([0.5, 0.5, 0.5, 0.5, 0.5, 0.0][:rows])
    result = op.evaluate(op.Log(**{**GOOD, **extreme}), policy, [op.IPS(), op.SNIPS()])
    assert "SNIPS" in str(result.with_interval("bootstrap"))
    assert result.to_dict()["estimates"]


@pytest.mark.parametrize("level", ["x", "0.9", 0, 1.5, float("nan"), True])
def test_the_level_of_an_interval(level: object, tmp_path: Path) -> None:
    result = evaluate()
    result.save(tmp_path / "r.json")
    for of in (result["IPS"], result.lift(), op.load_result(tmp_path / "r.json")["IPS"]):
        with pytest.raises(op.InputError, match="lies between 0 and 1; it is "):
            of.confidence_interval(level)
    assert result["IPS"].confidence_interval(np.float32(0.5)).level == 0.5


def test_actions_of_no_plain_type() -> None:
    with pytest.raises(op.InputError, match="struct"):
        op.Log(None, action=[{}, {}], reward=[0.0, 1.0], propensity=[0.5, 0.5])


def test_a_fixed_policy_may_leave_actions_out() -> None:
    log = op.Log(None, action=[0, 2], reward=[1.0, 5.0], propensity=[0.5, 0.5], n_actions=3)
    assert op.evaluate(log, op.Fixed({0: 1.0, 1: 0.0}), [op.IPS()])["IPS"].value == 1.0

"""Bad input gives an error that says which column, how many rows, the first of them, and what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from tests.logs import Small

N = 8
GOOD = {
    "x": np.linspace(0, 1, N),
    "item": [0, 1, 2, 0, 1, 2, 0, 1],
    "click": np.ones(N),
    "p": np.full(N, 0.5),
    "p_new": np.full(N, 0.5),
}


def write(path: Path, **changed: object) -> Path:
    pq.write_table(pa.table({**GOOD, **changed}), path)
    return path


def evaluate(path: object, target: object = "p_new", **more: object) -> op.Evaluation:
    columns = {"context": ["x"], "action": "item", "reward": "click", "propensity": "p", **more}
    return op.evaluate(op.read_log(path, **columns), target, [op.IPS()])


def with_at(values: object, rows: list[int], bad: float) -> np.ndarray:
    out = np.array(values, dtype=float)
    out[rows] = bad
    return out


@pytest.mark.parametrize(
    ("column", "bad", "words"),
    [
        (
            "click",
            np.nan,
            "click: 2 rows are missing, NaN or infinite (first, counted from 0: log.parquet row 3, log.parquet row 6)",
        ),
        (
            "click",
            np.inf,
            "click: 2 rows are missing, NaN or infinite (first, counted from 0: log.parquet row 3, log.parquet row 6)",
        ),
        (
            "x",
            -np.inf,
            "x: 2 rows are missing, NaN or infinite (first, counted from 0: log.parquet row 3, log.parquet row 6)",
        ),
        ("p", np.nan, "p: 2 rows are missing, NaN or infinite"),
        ("p", 0.0, "p: 2 rows have a propensity of 0 or less (first, counted from 0: log.parquet row 3, log.parquet row 6)"),
        ("p", -0.1, "p: 2 rows have a propensity of 0 or less"),
        ("p", 1.5, "p: 2 rows have a propensity above 1"),
        (
            "p_new",
            -0.5,
            "p_new: 2 rows have a target probability that is missing or outside 0..1 (first, counted from 0: log.parquet row 3",
        ),
        ("p_new", np.nan, "p_new: 2 rows have a target probability that is missing or outside 0..1"),
    ],
)
def test_bad_values_in_a_file(tmp_path: Path, column: str, bad: float, words: str) -> None:
    with pytest.raises(op.InputError) as error:
        evaluate(write(tmp_path / "log.parquet", **{column: with_at(GOOD[column], [3, 6], bad)}))
    assert words in str(error.value)
    assert str(error.value).endswith(".")


def test_bad_values_are_counted_over_all_files(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", click=with_at(GOOD["click"], [7], np.nan))
    write(tmp_path / "b.parquet", click=with_at(GOOD["click"], [0, 1, 2], np.nan))
    with pytest.raises(
        op.InputError,
        match=r"click: 4 rows .* \(first, counted from 0: a.parquet row 7, b.parquet row 0, b.parquet row 1, …\)",
    ):
        evaluate(tmp_path)


def test_nulls(tmp_path: Path) -> None:
    with pytest.raises(op.InputError, match=r"item: 1 row is missing \(null\) \(first, counted from 0: log.parquet row 2\)"):
        evaluate(write(tmp_path / "log.parquet", item=pa.array([0, 1, None, 0, 1, 2, 0, 1])))
    with pytest.raises(op.InputError, match="user: 1 row is missing"):
        evaluate(write(tmp_path / "log.parquet", user=["a", None, *"cdefgh"]), cluster="user")


@pytest.mark.parametrize(
    ("array", "bad", "words"),
    [
        ("reward", np.nan, "reward: 2 rows are missing, NaN or infinite (first, counted from 0: 3, 6)"),
        ("context", np.inf, "context: 2 rows are missing, NaN or infinite (first, counted from 0: 3, 6)"),
        ("propensity", 0.0, "propensity: 2 rows have a propensity of 0 or less (first, counted from 0: 3, 6)"),
        ("propensity", 1.01, "propensity: 2 rows have a propensity above 1 (first, counted from 0: 3, 6)"),
        ("weight", -1.0, "weight: 2 rows have a negative weight (first, counted from 0: 3, 6)"),
    ],
)
def test_bad_values_in_arrays(array: str, bad: float, words: str) -> None:
    good = {
        "context": GOOD["x"],
        "action": GOOD["item"],
        "reward": GOOD["click"],
        "propensity": GOOD["p"],
        "weight": np.ones(N),
    }
    with pytest.raises(op.InputError) as error:
        op.Log(**{**good, array: with_at(good[array], [3, 6], bad)})
    assert words in str(error.value)


def test_misspelt_columns_are_suggested(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet")
    with pytest.raises(op.InputError, match="there is no column 'clik'. Did you mean 'click'"):
        evaluate(path, reward="clik")
    with pytest.raises(op.InputError, match="there is no column 'p_nex'. Did you mean 'p_new'"):
        evaluate(path, target="p_nex")


def target(*rows: tuple[int, list[float]]) -> np.ndarray:
    out = np.full((N, 3), 1 / 3)
    for row, values in rows:
        out[row] = values
    return out


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (target((2, [0.5, 0.5, 0.5])), "Table: 1 row does not sum to 1 (the worst sum is 1.5) (first, counted from 0: 2)"),
        (target((2, [1.5, -0.5, 0.0])), "Table: 1 row has a negative or NaN probability (first, counted from 0: 2)"),
        (target((2, [np.nan, 0.5, 0.5])), "Table: 1 row has a negative or NaN probability (first, counted from 0: 2)"),
        (np.full((N, 4), 0.25), "Table: shape (8, 4), but the log has 8 rounds × 3 actions"),
        (np.full((N + 1, 3), 1 / 3), "Table: shape (9, 3), but the log has 8 rounds × 3 actions"),
        (lambda x: np.full((len(x), 2), 0.5), "2); rounds × actions, ("),
        (op.Softmax(lambda x: np.zeros((len(x), 2))), "Softmax: the scores have shape"),
        (op.Softmax(lambda x: np.full((len(x), 3), np.nan)), "Softmax: 8 rows have a NaN or infinite score"),
        (op.EpsilonGreedy(lambda x: np.full((len(x), 3), np.nan)), "EpsilonGreedy: 8 rows have a NaN score"),
        (op.Fixed([0.5, 0.5]), "Fixed: 2 probabilities for 3 actions"),
        (op.Fixed({"apple": 1.0}), "a column of actions has type"),
        (op.Column(np.ones(3)), "Column: shape (3,), but the log has 8 rounds"),
        (op.Candidates([[0, 1]] * N, [[0.5, 0.4]] * N), "Candidates: 8 rows do not sum to 1"),
        (op.Candidates([[0, 1]] * N, [[1.0]] * N), "Candidates: 8 rows have lists of different lengths"),
        (op.Candidates([[0, 9]] * N, [[0.5, 0.5]] * N), "Candidates: 8 rows have an action code outside 0..2 (9"),
        (op.Candidates([[0, 1]] * N, [[1.5, -0.5]] * N), "Candidates: 8 rows have a negative or missing probability"),
        (op.Candidates([[0, 1]] * 2, [[0.5, 0.5]] * 2), "Candidates: 2 and 2 lists for 8 rounds"),
        ([0.5, 0.5], "a flat list of numbers is ambiguous"),
        (7, "cannot read a policy from int"),
        ({}, "pass a policy, or a dict of at least one policy"),
    ],
)  # fmt: skip
def test_bad_policies(policy: object, words: str) -> None:
    log = op.Log(GOOD["x"], GOOD["item"], GOOD["click"], propensity=GOOD["p"])
    with pytest.raises(op.InputError) as error:
        op.evaluate(log, policy, [op.IPS(), op.DM(op.Given(np.zeros((N, 3))))])
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: op.Fixed([0.5, 0.6]), "sum to 1.1"),
        (lambda: op.Fixed([1e308, 1e308]), "sum to inf"),
        (lambda: op.Softmax(lambda x: x, temperature=0), "temperature is 0"),
        (lambda: op.EpsilonGreedy(lambda x: x, epsilon=2), "epsilon is 2"),
        (lambda: op.Mixture([op.Uniform()], [0.5]), "the weights sum to 0.5"),
        (lambda: op.Table([1.0]), "rounds × actions is expected"),
        (lambda: op.ClippedIPS(-1), "clip is -1; give a number from 0"),
        (lambda: op.SubGaussianIPS(2), "shrinkage is 2; give a number from 0 to 1"),
        (lambda: op.SwitchDR(threshold="high"), "threshold is 'high'"),
        (lambda: op.Ridge(-1), "penalty is -1"),
        (lambda: op.DR(rewards="best"), "str is not a reward model"),
        (lambda: op.DR(cross_fit=1), "cross_fit is 1"),
        (lambda: op.Local(threads=0), "threads is 0; give a whole number from 1 to 1,024"),
    ],
)
def test_bad_settings(make: object, words: str) -> None:
    with pytest.raises(op.InputError, match=words):
        make()


def test_sizes(tmp_path: Path) -> None:
    empty = pa.table({name: pa.array(values)[:0] for name, values in GOOD.items()})
    pq.write_table(empty, tmp_path / "empty.parquet")
    with pytest.raises(op.InputError, match="the log is empty"):
        evaluate(tmp_path / "empty.parquet")
    with pytest.raises(op.InputError, match=r"fewer than 2 rounds \(0\)"):
        op.Log(None, [], [])
    with pytest.raises(op.InputError, match=r"fewer than 2 rounds \(1\)"):
        op.Log(None, [0], [1.0], n_actions=2)
    with pytest.raises(op.InputError, match="only one action"):
        op.Log(None, [0, 0], [1.0, 2.0])
    with pytest.raises(op.InputError, match=r"reward has shape \(3,\), which does not fit 2 rounds"):
        op.Log(None, [0, 1], [1.0, 2.0, 3.0])
    with pytest.raises(op.InputError, match=r"propensity has shape \(1,\), which does not fit 2 rounds"):
        op.Log(None, [0, 1], [1.0, 2.0], propensity=[0.5])
    with pytest.raises(op.InputError, match="catalog: 3 rows for 2 actions"):
        op.Log(None, [0, 1], [1.0, 2.0], n_actions=2, catalog=np.eye(3))


def test_actions_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(
        op.InputError, match=r"action: 2 rows have an action code outside 0..2 \(-1, 5\) \(first, counted from 0: 1, 2\)"
    ):
        op.Log(None, [0, -1, 5], [1.0, 2, 3], n_actions=3)
    path = write(tmp_path / "log.parquet", item=[0, 1, 7, 0, 1, 7, 0, 1])
    with pytest.raises(
        op.InputError,
        match=r"item: 2 rows have an action code outside 0..2 \(7\) \(first, counted from 0: log.parquet row 2",
    ):
        evaluate(path, n_actions=3)
    with pytest.raises(op.InputError, match=r"action: 1 row has an action that is not among the 2 known \('c'\)"):
        op.Log(None, ["a", "b", "c"], [1.0, 2, 3], actions=["a", "b"])
    with pytest.raises(op.InputError, match="the largest here is 123,456,789 in 2 rows"):
        op.Log(None, [0, 123_456_789], [1.0, 2])
    with pytest.raises(op.InputError, match="mixed or unsupported types"):
        op.Log(None, np.array([0, "a", 2.5], dtype=object), [1.0, 2, 3])


def test_files(tmp_path: Path) -> None:
    with pytest.raises(op.InputError, match="nothing.parquet: no such file"):
        evaluate(tmp_path / "nothing.parquet")
    with pytest.raises(op.InputError, match="no file matches this pattern"):
        evaluate(str(tmp_path / "*.parquet"))
    with pytest.raises(op.InputError, match="the folder contains no Parquet or CSV files"):
        evaluate(tmp_path)
    (tmp_path / "text.parquet").write_text("not parquet at all")
    with pytest.raises(op.InputError, match=r"text.parquet: cannot be read as Parquet \(is it truncated, damaged"):
        evaluate(tmp_path / "text.parquet")
    whole = write(tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(op.InputError, match="cut.parquet: cannot be read as Parquet"):
        evaluate(tmp_path / "cut.parquet")
    (tmp_path / "log.txt").write_text("x")
    with pytest.raises(op.InputError, match="expected a name that ends in"):
        evaluate(tmp_path / "log.txt")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(op.InputError, match="empty.csv: cannot be read as CSV"):
        evaluate(tmp_path / "empty.csv")
    with pytest.raises(op.InputError, match="cannot read a log from int"):
        evaluate(3)


def test_a_parquet_file_with_damaged_names(tmp_path: Path) -> None:
    pq.write_table(pa.table({"wxyz": [0.0, 1.0], "a": [0, 1], "r": [1.0, 0.0], "p": [0.5, 0.5]}), tmp_path / "log.parquet")
    content = (tmp_path / "log.parquet").read_bytes()
    (tmp_path / "log.parquet").write_bytes(content.replace(b"wxyz", b"w\xffyz"))
    with pytest.raises(op.InputError, match=r"log.parquet: cannot be read as Parquet"):
        op.read_log(tmp_path / "log.parquet", context=["a"], action="a", reward="r", propensity="p")


def test_damage_inside_a_file(tmp_path: Path) -> None:
    """A flipped page is noticed in the pass that reads it, and named."""
    x = np.random.default_rng(0).normal(size=4000 * N)  # does not compress
    table = pa.table({**{name: np.tile(values, 4000) for name, values in GOOD.items()}, "x": x})
    pq.write_table(table, tmp_path / "log.parquet", compression="zstd", write_page_checksum=True, use_dictionary=False)
    column = pq.read_metadata(tmp_path / "log.parquet").row_group(0).column(table.schema.names.index("x"))
    raw = bytearray((tmp_path / "log.parquet").read_bytes())
    inside = column.data_page_offset + column.total_compressed_size // 2
    raw[inside : inside + 1000] = bytes(1000)
    (tmp_path / "log.parquet").write_bytes(bytes(raw))
    with pytest.raises(op.InputError, match=r"log.parquet: row group 0 \(of 1, counted from 0\) cannot be read"):
        evaluate(tmp_path / "log.parquet")


def test_schemas_that_differ(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", item=list("abcabcab"))
    with pytest.raises(
        op.InputError, match=r"item: the type differs between files, int64 in .*a.parquet and string in .*b.parquet"
    ):
        evaluate(tmp_path)
    pq.write_table(pa.table({k: v for k, v in GOOD.items() if k != "x"}), tmp_path / "b.parquet")
    with pytest.raises(op.InputError, match=r"b.parquet: there is no column 'x'"):
        evaluate(tmp_path)


def test_types(tmp_path: Path) -> None:
    with pytest.raises(op.InputError, match="click: 8 rows do not contain a number .the first: 'a'."):
        evaluate(write(tmp_path / "log.parquet", click=list("abcdefgh")))
    with pytest.raises(op.InputError, match="x has type list"):
        evaluate(write(tmp_path / "log.parquet", x=[[1.0]] * N))
    many = pa.table({name: np.tile(values, 200) for name, values in GOOD.items()} | {"x": [f"v{k}" for k in range(1600)]})
    pq.write_table(many, tmp_path / "log.parquet")
    with pytest.raises(op.InputError, match="x: 1,600 different values are too many for one-hot encoding"):
        evaluate(tmp_path / "log.parquet")


def test_what_is_lacking_is_said(small: Small) -> None:
    bare = op.Log(small.context, small.action, small.reward)
    with pytest.raises(op.InputError, match="the log has neither propensities nor a logging policy"):
        op.evaluate(bare, small.target, [op.IPS()])
    with pytest.raises(op.InputError, match="the new policy cannot be evaluated: it weights rounds by"):
        op.evaluate(bare, op.Column(np.full(400, 0.5)))
    result = op.evaluate(bare, small.target)
    assert set(result.skipped) == {"Auto", "SNIPS", "DR", "LearnedMIPS"}
    assert result.headline.estimator == "DM"
    part = op.Log(small.context, small.action, small.reward, propensity=small.propensity)
    with pytest.raises(
        op.InputError, match="CAB cannot be computed: it needs the logging policy's probability of every action"
    ):
        op.evaluate(part, small.target, [op.CAB()])


def test_logging_that_contradicts_the_log(small: Small) -> None:
    with pytest.raises(op.InputError, match="propensity: 400 rows differ from the probability under `logging`"):
        op.evaluate(small.log(propensity=np.full(400, 0.9)), small.target, [op.IPS()])
    never = np.zeros_like(small.logging)
    never[np.arange(400), (small.action + 1) % 4] = 1
    with pytest.raises(
        op.InputError, match="logging: 400 rows have an action with zero probability under the logging policy"
    ):
        op.evaluate(small.log(logging=never, propensity=None), small.target, [op.IPS()])


def test_estimators(small: Small) -> None:
    with pytest.raises(op.InputError, match=r"is not an estimator; write IPS\(\)"):
        op.evaluate(small.log(), small.target, [op.IPS])
    with pytest.raises(op.InputError, match="two estimators are called 'IPS'"):
        op.evaluate(small.log(), small.target, [op.IPS(), op.IPS()])
    with pytest.raises(op.InputError, match="level is 95"):
        op.evaluate(small.log(), small.target, level=95)
    with pytest.raises(op.InputError, match="have no small common multiple"):
        op.evaluate(small.log(), small.target, [op.DR(cross_fit=11), op.SNDR(cross_fit=23)])
    result = op.evaluate(small.log(), small.target, [op.IPS()])
    with pytest.raises(KeyError, match="Did you mean 'IPS'"):
        result["IPSS"]
    with pytest.raises(op.InputError, match="there is no interval method 'normall'. Did you mean 'normal'"):
        result["IPS"].confidence_interval(method="normall")
    with pytest.raises(op.InputError, match="Given: q has shape"):
        op.evaluate(small.log(), small.target, [op.DM(op.Given(lambda x: np.zeros((len(x), 2))))])
    with pytest.raises(op.InputError, match="Given: 400 rows have a NaN or infinite q"):
        op.evaluate(small.log(), small.target, [op.DM(op.Given(np.full((400, 4), np.nan)))])


def test_a_file_that_changes_between_passes(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("x,item,click,p,p_new\n" + "0.5,0,1,0.5,0.5\n0.1,1,0,0.5,0.5\n" * 50)
    log = op.read_log(path, context="x", action="item", reward="click", propensity="p")
    path.write_text("x,item,click,p,p_new\n" + "0.5,0,1,0.5,0.5\n0.1,1,0,0.5,0.5\n" * 30)
    with pytest.raises(
        op.InputError, match=r"log.csv has changed since the log was opened \(it had 1,621 bytes, and now has 981\)"
    ):
        op.evaluate(log, "p_new", [op.IPS()])


def test_units_that_are_missing() -> None:
    with pytest.raises(op.InputError, match=r"cluster: 1 row is missing \(first, counted from 0: 1\)"):
        op.Log(None, [0, 1, 0], [1.0, 2, 3], cluster=["a", None, "b"])
    with pytest.raises(op.InputError, match="row_id: 1 row is missing"):
        op.Log(None, [0, 1, 0], [1.0, 2, 3], row_id=[0.0, np.nan, 2.0])


def test_ids_that_look_like_codes() -> None:
    ids = 1_000_234 + np.arange(40) % 4
    with pytest.raises(
        op.InputError, match='the largest here is 1,000,237 in 40 rows. If these are ids, pass actions="labels"'
    ):
        op.Log(None, ids, np.ones(40))
    assert op.Log(None, ids, np.ones(40), actions="labels").n_actions == 4
    assert op.Log(None, ids, np.ones(40), n_actions=2_000_000).n_actions == 2_000_000


def test_policies_that_raise_or_are_not_made(small: Small) -> None:
    def broken(x: np.ndarray) -> np.ndarray:
        raise RuntimeError("no model today")

    for policy in (broken, op.Softmax(broken), op.EpsilonGreedy(broken)):
        with pytest.raises(op.InputError, match=r"the function raised RuntimeError: no model today \(rows \d+ to \d+"):
            op.evaluate(small.log(), policy)
    with pytest.raises(op.InputError, match=r"Uniform is a class; write Uniform\(…\)"):
        op.evaluate(small.log(), op.Uniform)


def test_columns_that_are_no_probabilities(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", town=list("abcdefgh"), cands=[[0, 1]] * N)
    with pytest.raises(op.InputError, match="town: contains string, such as 'a', but probabilities are numbers"):
        evaluate(path, target="town")
    with pytest.raises(op.InputError, match="cands: contains lists. Candidates need two columns"):
        evaluate(path, target="cands")


def test_rewards_outside_their_range(small: Small) -> None:
    with pytest.raises(op.InputError, match=r"reward: rewards from .* leave the reward_range \(0, 1\)"):
        op.evaluate(small.log(reward_range=(0, 1)), small.target)
    with pytest.raises(op.InputError, match="the first below the second"):
        small.log(reward_range=(1, 0))


def test_levels_seeds_and_names(small: Small, tmp_path: Path) -> None:
    result = op.evaluate(small.log(), {"a": small.target, "b": small.logging}, [op.IPS()])
    with pytest.raises(op.InputError, match="the level of an interval lies between 0 and 1; it is 0"):
        result["a", "IPS"].confidence_interval(level=0)
    with pytest.raises(op.InputError, match="there is no policy 'nope'"):
        result.difference("a", "nope")
    with pytest.raises(op.InputError, match="must end in .parquet"):
        result["a", "IPS"].scores(tmp_path / "scores.csv")
    for seed in (1.5, 2**70):
        with pytest.raises(op.InputError, match="seed is"):
            op.evaluate(small.log(), small.target, seed=seed)
    with pytest.raises(op.InputError, match="every row has weight 0"):
        op.evaluate(small.log(weight=np.zeros(400)), small.target, [op.IPS()])


def test_propensities_in_percent_are_called_so(tmp_path: Path) -> None:
    percent = {**GOOD, "p": [100 * p for p in GOOD["p"]]}
    pq.write_table(pa.table(percent), tmp_path / "log.parquet")
    for source in (pa.table(percent), tmp_path):
        with pytest.raises(
            op.InputError, match=r"p: \d+ rows have a propensity above 1 .*look like percent: divide .* by 100"
        ):
            evaluate(source)
    with pytest.raises(op.InputError, match="above 1 .*densities or inverse weights") as other:
        evaluate(pa.table({**GOOD, "p": [250.0, *GOOD["p"][1:]]}))
    assert "percent" not in str(other.value)


def test_missing_propensities_name_the_remedy_once() -> None:
    log = op.Log([[0.0], [1.0], [2.0]], action=[0, 1, 0], reward=[1, 0, 1])
    with pytest.raises(op.InputError, match="cannot be evaluated") as refused:
        op.evaluate(log, op.Column([0.5, 0.5, 0.5]))
    assert str(refused.value).count("neither propensities nor a logging policy") == 1
    assert str(refused.value).count("logging=op.EstimatedLogging()") == 1
    assert "--logging estimate" in str(refused.value)
    with pytest.raises(op.InputError, match="IPS cannot be computed: .*EstimatedLogging"):
        op.evaluate(log, op.Uniform(), [op.IPS()])
    doses = op.Log([[0.0], [1.0]], action=[0.2, 0.4], reward=[1, 0], actions=op.Box(0, 1))
    with pytest.raises(op.InputError, match="neither propensities nor a logging policy") as continuous:
        op.evaluate(doses, op.Deterministic(lambda x: x[:, 0]), [op.KernelIPS(0.1)])
    assert str(continuous.value).count("EstimatedLogging") == 1

"""One statistic, one answer: every estimator on every engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import Ridge as SklearnRidge

import offpolicy as op
from tests.engines.sessions import NEEDS_SPARK, OWN_WARNINGS, SESSIONS
from tests.logs import DISCRETE

pytestmark = OWN_WARNINGS
N_ACTIONS = 6
EVERY = {
    "rows": [DISCRETE[name]() for name in sorted(DISCRETE)],
    "clusters": [op.DM(), op.DR(), op.SNIPS(), op.MR(), op.OffCEM(), op.LearnedMIPS(posterior=op.Gaussian())],
}
"""Every registered estimator, and some of each kind on a log of another kind."""
ENGINES = ["local-4", *(pytest.param(name, marks=NEEDS_SPARK) for name in SESSIONS)]


def write_files(folder: Path) -> None:
    """Three files of several row groups, in two folders."""
    rng = np.random.default_rng(0)
    coefficients = rng.normal(size=(2, N_ACTIONS))
    names = np.array(["ash", "birch", "cedar", "fir", "oak", "yew"])
    for k, (name, n) in enumerate({"a b.parquet": 1200, "more/b.parquet": 700, "more/c%20.parquet": 900}.items()):
        x = rng.normal(size=(n, 2))
        scores = x @ coefficients
        old, new = (np.exp(t * scores) for t in (0.5, -0.5))
        old, new = (p / p.sum(axis=1, keepdims=True) for p in (old, new))
        action = (old.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
        table = pa.table({
            "x0": x[:, 0], "x1": x[:, 1], "country": rng.choice(["DE", "FR", "US"], n), "item": action, "tree": names[action],
            "reward": scores[np.arange(n), action] + rng.normal(size=n) + action, "p": old[np.arange(n), action],
            "user": rng.integers(0, 500, n), "id": [f"r{k}-{i}" for i in range(n)], "weight": rng.uniform(0.5, 2, n),
            "items": [list(range(N_ACTIONS))] * n, "trees": [names.tolist()] * n, "p_old": old.tolist(), "p_new": new.tolist(),
            "kind": (action + rng.integers(0, 2, n)) % 3, "size": action + rng.normal(size=n),
        })  # fmt: skip
        (folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(table, folder / name, row_group_size=250)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    write_files(folder)
    return folder


CATALOG = pa.table({"tree": ["ash", "birch", "cedar", "fir", "oak", "yew"], "hard": [1.0, 0.5, 0.3, 0.2, 1.1, 0.9]})
LOGS: dict[str, dict[str, Any]] = {
    "rows": {
        "context": ["x0", "x1"], "action": "item", "logging": op.Candidates("items", "p_old"),
        "action_features": ["kind", "size"],
    },
    "clusters": {
        "context": ["x0", "x1", "country"], "action": "tree", "logging": op.Candidates("trees", "p_old"), "catalog": CATALOG,
        "cluster": "user", "weight": "weight", "by": "country",
    },
}  # fmt: skip


def opened(engine: str, folder: Path, kind: str, **more: Any) -> tuple[op.Log, Any]:
    """The log as the engine reads it, and the engine."""
    settings = {"reward": "reward", "propensity": "p", **LOGS[kind], **more}
    if engine in SESSIONS:
        return op.read_log(SESSIONS[engine]().read.parquet(str(folder), recursiveFileLookup=True), **settings), None
    return op.read_log(folder, **settings), op.Local(threads=int(engine[-1]))


def target(kind: str) -> op.Policy:
    return op.Candidates("items" if kind == "rows" else "trees", "p_new")


Numbers = dict[tuple[str, ...], tuple[float, ...]]


def numbers(result: op.Evaluation) -> Numbers:
    """Value, error and bootstrap interval of each estimator, and the value in each slice."""
    found: Numbers = {}
    for name in result.estimators:
        estimate = result[name]
        interval = estimate.confidence_interval(0.9, method="bootstrap")
        found[name,] = (estimate.value, estimate.std_error, interval.low, interval.high)
        for slice_, part in result.slices.items():
            found[name, slice_] = (part[name].value,)
    return found


@pytest.fixture(scope="module")
def expected(folder: Path) -> Callable[[str], Numbers]:
    """What one thread says, for each kind of log: what the others are held against."""
    made: dict[str, Numbers] = {}

    def of(kind: str) -> Numbers:
        if kind not in made:
            log, engine = opened("local-1", folder, kind)
            made[kind] = numbers(op.evaluate(log, target(kind), EVERY[kind], engine=engine))
        return made[kind]

    return of


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_same_answer(
    folder: Path, expected: Callable[[str], Numbers], engine: str, kind: str
) -> None:
    log, runner = opened(engine, folder, kind)
    found = numbers(op.evaluate(log, target(kind), EVERY[kind], engine=runner))
    assert found.keys() == expected(kind).keys()
    for key, values in found.items():
        wanted = np.array(expected(kind)[key])
        assert values[0] == pytest.approx(wanted[0], rel=1e-9, abs=1e-9), key
        np.testing.assert_allclose(values, wanted, rtol=1e-9, atol=1e-9, err_msg=str(key))


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_for_sequences_are_the_same_bytes(folder: Path, engine: str) -> None:
    found = []
    for each in ("local-1", engine):
        log, runner = opened(each, folder, "rows", reward="kind", reward_range=(0, 2), action_features=())
        lift = op.evaluate(log, target("rows"), op.IPS(), sequence="log", engine=runner).lift(estimator="IPS")
        scores = lift.evidence.scores
        bins = [part for _, part in (*scores.bins, *scores.gains[0][1])]
        found.append([array.tobytes() for part in bins for array in (part.low, part.count, part.total)])
    assert len(found[0]) == 15
    assert found[0] == found[1]


@pytest.mark.parametrize("engine", ENGINES)
def test_models_that_need_rows_are_fitted_on_a_stated_sample(folder: Path, engine: str) -> None:
    model = op.Regressor(SklearnRidge(), rows=500)
    values = []
    for each in ("local-1", engine):
        log, runner = opened(each, folder, "rows")
        estimate = op.evaluate(log, target("rows"), op.DR(rewards=model), engine=runner)["DR"]
        told = estimate.diagnostics["reward_model"]
        assert (told["fitted_rows"], told["log_rows"]) == (500, 2800)
        values.append((estimate.value, estimate.std_error))
    np.testing.assert_allclose(values[1], values[0], rtol=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_embeddings_and_row_ids(folder: Path, engine: str) -> None:
    tables, values = [], []
    for each in ("local-1", engine):
        log, runner = opened(each, folder, "rows", row_id="id", action="tree", logging=op.Candidates("trees", "p_old"))
        tables.append(op.embed(log, engine=runner))
        new = op.Softmax(lambda x: x @ np.arange(2.0 * N_ACTIONS).reshape(2, -1))
        result = op.evaluate(log, {"new": new, "all": op.Uniform()}, [op.DR(), op.SNIPS()], engine=runner)
        values.append([result["new", "DR"].value, result["new", "DR"].std_error, result.difference("new", "all").std_error])
    np.testing.assert_allclose(tables[1].values, tables[0].values, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(values[1], values[0], rtol=1e-9)
    assert tables[0].to_arrow().column("action").to_pylist() == sorted(CATALOG["tree"].to_pylist())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_reward_model_is_fitted_and_used_the_same(folder: Path, tmp_path: Path, engine: str) -> None:
    values = []
    for each in ("local-1", engine):
        log, runner = opened(each, folder, "clusters")
        op.fit_rewards(log, engine=runner).save(tmp_path / f"{each}.safetensors")
        model = op.load_rewards(tmp_path / "local-1.safetensors")
        result = op.evaluate(log, target("clusters"), [op.DM(model), op.DR(model)], engine=runner)
        coef = op.load_rewards(tmp_path / f"{each}.safetensors").by_reward["reward"].coef
        values.append([*coef.ravel(), result["DM"].value, result["DR"].value, result["DR"].std_error])
    np.testing.assert_allclose(values[1], values[0], rtol=1e-9, atol=1e-9)

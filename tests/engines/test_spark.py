"""Spark where things go wrong: killed workers, failing policies, bad rows, what cannot travel, and the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from offpolicy.cli import settings
from offpolicy.data.sources.spark_session import frame_of, spark_errors
from offpolicy.engines.resampling import Resampled
from offpolicy.engines.spark import use_this_python
from tests.engines.sessions import NEEDS_SPARK, OWN_WARNINGS, SESSIONS, classic, server

pytestmark = [OWN_WARNINGS, NEEDS_SPARK]
N_ACTIONS = 4
COLUMNS: dict[str, Any] = {
    "context": ["x0", "x1"],
    "action": "action",
    "reward": "reward",
    "propensity": "p",
    "n_actions": 4,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    rng = np.random.default_rng(0)
    for name, n in {"one.parquet": 600, "two.parquet": 500}.items():
        x = rng.normal(size=(n, 2))
        table = {
            "x0": x[:, 0], "x1": x[:, 1], "action": rng.integers(0, N_ACTIONS, n), "reward": x[:, 0] + rng.normal(size=n),
            "p": np.full(n, 1 / N_ACTIONS), "new": rng.uniform(0, 1, n), "id": rng.permutation(n) + (n if n == 500 else 10_000),
        }  # fmt: skip
        pq.write_table(pa.table(table), folder / name)
    return folder


@pytest.fixture
def log(folder: Path) -> op.Log:
    return op.read_log(classic().read.parquet(str(folder)), **COLUMNS)


@pytest.mark.parametrize("session", SESSIONS)
def test_a_killed_worker_does_not_change_the_answer(folder: Path, tmp_path: Path, session: str) -> None:
    marker, calls, kill = tmp_path / "killed", [0], signal.SIGKILL

    def policy(x: np.ndarray) -> np.ndarray:
        calls[0] += 1
        if calls[0] == 3 and not marker.exists():  # in the middle of a pass, once
            marker.touch()
            os.kill(os.getpid(), kill)
        p = np.exp(x[:, :1] * np.arange(N_ACTIONS))
        return p / p.sum(axis=1, keepdims=True)

    log = op.read_log(SESSIONS[session]().read.parquet(str(folder)), **COLUMNS)
    found = op.evaluate(log, policy, op.DR(), engine=op.Spark(batch_rows=100))["DR"]
    assert marker.exists()
    local = op.evaluate(op.read_log(folder, **COLUMNS), policy, op.DR())["DR"]
    assert (found.value, found.std_error) == pytest.approx((local.value, local.std_error), rel=1e-9)


@pytest.mark.parametrize("session", SESSIONS)
def test_a_failing_policy_is_told_with_its_partition_and_row(folder: Path, session: str) -> None:
    x0 = pq.read_table(folder / "two.parquet")["x0"].to_numpy()
    worst = float(x0[321])

    def policy(x: np.ndarray) -> np.ndarray:
        if (x[:, 0] == worst).any():
            raise ZeroDivisionError("no such user")
        return np.full((len(x), 4), 0.25)

    log = op.read_log(SESSIONS[session]().read.parquet(str(folder)), **COLUMNS)
    with pytest.raises(
        op.InputError, match=r"ZeroDivisionError: no such user.*\(partition \d row \d+ \(two.parquet row 321\)\)"
    ) as e:
        op.evaluate(log, policy, op.IPS())
    assert "org.apache" not in str(e.value)
    assert "raise ZeroDivisionError" in str(e.value.__cause__)


@pytest.mark.parametrize("session", SESSIONS)
def test_named_columns_reach_the_workers(folder: Path, tmp_path: Path, session: str) -> None:
    for name in ("one.parquet", "two.parquet"):
        table = pq.read_table(folder / name)
        country = pa.array(np.where(table["id"].to_numpy() % 3 == 0, "DE", "FR"))
        pq.write_table(table.append_column("country", country), tmp_path / name)

    def score(columns: dict[str, np.ndarray]) -> np.ndarray:
        assert list(columns) == ["x0", "country", "country=DE", "new"]
        np.testing.assert_array_equal(columns["country"] == "DE", columns["country=DE"] == 1)
        return np.outer(columns["x0"] + columns["new"] * columns["country=DE"], np.arange(N_ACTIONS))

    policy = op.Softmax(score, columns=["x0", "country", "country=DE", "new"])
    roles = {**COLUMNS, "context": ["x0", "country"]}
    log = op.read_log(SESSIONS[session]().read.parquet(str(tmp_path)), **roles)
    found, local = (op.evaluate(each, policy, op.DR())["DR"] for each in (log, op.read_log(tmp_path, **roles)))
    assert (found.value, found.std_error) == pytest.approx((local.value, local.std_error), rel=1e-9)
    with pytest.raises(op.InputError, match="no column 'contry'. Did you mean 'country'"):
        op.evaluate(log, op.Function(score, columns=["contry"]), op.IPS())


def test_a_policy_of_ones_own_class_fails_in_the_same_way(log: op.Log) -> None:
    class Broken(op.Policy):
        def distribution(self, batch: Any) -> np.ndarray:
            return np.zeros((len(batch), 4))[:, batch.row[0] + 99]

    with pytest.raises(op.InputError, match=r"IndexError: .* \(partition \d row 0 \(\w+.parquet row 0\)\)"):
        op.evaluate(log, Broken(), op.IPS())


def test_rows_that_do_not_sum_to_one_are_named(log: op.Log, folder: Path) -> None:
    worst = float(pq.read_table(folder / "one.parquet")["x0"][77].as_py())

    def policy(x: np.ndarray) -> np.ndarray:
        return np.where(x[:, :1] == worst, np.full((len(x), 4), 0.5), 0.25)

    with pytest.raises(op.InputError, match=r"1 row does not sum to 1 .*partition \d row \d+ \(one.parquet row 77\)"):
        op.evaluate(log, policy, op.IPS())


@pytest.mark.parametrize(("column", "value", "said"), [
    ("p", 0.0, "p: 1 row has a propensity of 0 or less .*partition \\d row \\d+"),
    ("reward", np.nan, "reward: 1 row is missing, NaN or infinite .*partition \\d row \\d+"),
    ("action", 7, "action: 1 row has an action code outside 0..3 .*partition \\d row \\d+"),
])  # fmt: skip
def test_bad_values_name_their_column_and_row(folder: Path, tmp_path: Path, column: str, value: float, said: str) -> None:
    table = pa.concat_tables([pq.read_table(folder / "one.parquet")] * 3)
    values = table[column].to_numpy().copy()
    values[1500] = value
    pq.write_table(table.set_column(table.column_names.index(column), column, pa.array(values)), tmp_path / "bad.parquet")
    with pytest.raises(op.InputError, match=said):
        op.evaluate(op.read_log(classic().read.parquet(str(tmp_path)), **COLUMNS), op.Uniform(), op.IPS())


def test_what_cannot_travel_is_named(log: op.Log) -> None:
    lock = threading.Lock()

    def policy(x: np.ndarray) -> np.ndarray:
        with lock:
            return np.full((len(x), 4), 0.25)

    with pytest.raises(op.InputError, match=r"Function: holds a lock, which cannot be sent to Spark's workers .*plain data"):
        op.evaluate(log, policy, op.IPS())


def test_a_module_that_workers_lack_is_named(log: op.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("import numpy as np\ndef policy(x):\n    return np.full((len(x), 4), 0.25)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    with pytest.raises(op.InputError, match=r"could not be loaded: No module named 'only_here'.*addArtifacts"):
        op.evaluate(log, only_here.policy, op.IPS())


def test_workers_on_this_machine_use_this_python(log: op.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a virtual environment that is not activated, where PySpark finds another `python3`, or none."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(classic().sparkContext, "pythonExec", "/no/such/python3")
    result = op.evaluate(log, op.Uniform(), op.IPS())
    assert result["IPS"].value == pytest.approx(result["LoggedMean"].value)  # the logging policy is uniform, too


@pytest.mark.parametrize(("master", "environment", "used"), [
    ("local[2]", None, sys.executable),
    ("local[2]", "/usr/bin/theirs", "python3"),
    ("yarn", None, "python3"),
])  # fmt: skip
def test_a_cluster_and_a_python_that_is_named_are_left_alone(
    master: str, environment: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(master=master, pythonExec="python3")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if environment is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", environment)
    use_this_python(SimpleNamespace(sparkContext=context))
    assert context.pythonExec == used


def test_workers_without_offpolicy_are_reported_with_the_remedy() -> None:
    error = type("PythonException", (Exception,), {"__module__": "pyspark.errors"})
    said = r"workers lacks offpolicy .*No module named 'pyarrow'\).*PYSPARK_PYTHON"
    with pytest.raises(op.InputError, match=said), spark_errors():
        raise error("An exception was thrown:\n  ModuleNotFoundError: No module named 'pyarrow'\n")


@pytest.mark.parametrize(("target", "estimator"), [
    (np.full((1100, 4), 0.25), op.IPS()),
    (op.Column(np.full(1100, 0.25)), op.IPS()),
    (op.Candidates([[0, 1]] * 1100, [[0.5, 0.5]] * 1100), op.IPS()),
    (op.Mixture([op.Uniform(), np.full((1100, 4), 0.25)], [0.5, 0.5]), op.IPS()),
    (op.Uniform(), op.DR(rewards=op.Given(np.zeros((1100, 4))))),
])  # fmt: skip
def test_arrays_by_row_are_refused(log: op.Log, target: Any, estimator: op.Estimator) -> None:
    with pytest.raises(op.InputError, match="one row per round of the log, but the rows of a Spark DataFrame have no order"):
        op.evaluate(log, target, estimator)


def test_engines_read_their_own_logs_only(log: op.Log, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(op.InputError, match="the log is a Spark DataFrame.*Leave out `engine`"):
        op.evaluate(log, op.Uniform(), op.IPS(), engine=op.Local())
    with pytest.raises(op.InputError, match="Spark: the log is not a Spark DataFrame"):
        op.evaluate(op.read_log(folder, **COLUMNS), op.Uniform(), op.IPS(), engine=op.Spark())
    with pytest.raises(op.InputError, match="scores, batches"):
        op.evaluate(log, op.Uniform(), op.IPS())["IPS"].scores(tmp_path / "scores.parquet")
    with pytest.raises(op.InputError, match="scores, batches"):
        next(log.batches())
    with pytest.raises(op.InputError, match="batch_rows must be at least 1"):
        op.Spark(batch_rows=0)


def test_rows_must_be_known_again(folder: Path) -> None:
    frame = classic().read.parquet(str(folder)).repartition(3)
    shuffled = classic().createDataFrame(pq.read_table(folder / "one.parquet"))
    with pytest.raises(op.InputError, match="row_id: folds and resampling must identify each row"):
        op.read_log(shuffled, **COLUMNS)
    local = op.evaluate(op.read_log(folder, **COLUMNS, row_id="id"), "new", op.SNIPS())["SNIPS"]
    found = op.evaluate(op.read_log(frame, **COLUMNS, row_id="id"), "new", op.SNIPS())["SNIPS"]
    assert (found.value, found.std_error) == pytest.approx((local.value, local.std_error), rel=1e-9)


def test_files_keep_their_names_when_rows_are_left_out(folder: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        shutil.copy(folder / f"{name}.parquet", tmp_path / name / "log.parquet")
    frame = classic().read.parquet(str(tmp_path), recursiveFileLookup=True)
    names = op.read_log(frame.filter("id >= 10000"), **COLUMNS).source.table.columns.place.names
    assert list(names.values()) == ["one/log.parquet"]


def test_a_frame_that_changes_is_noticed(log: op.Log) -> None:
    before = op.Log.from_source(replace(log.source, rows=1000))
    with pytest.raises(
        op.InputError, match="had 1,000 rows at first and has 1,100 now. It must return the same rows each time"
    ):
        op.evaluate(before, op.Uniform(), op.IPS())


def test_columns_are_checked_before_anything_runs(folder: Path) -> None:
    frame = classic().read.parquet(str(folder))
    with pytest.raises(op.InputError, match="there is no column 'rewards'. Did you mean 'reward'"):
        op.read_log(frame, **{**COLUMNS, "reward": "rewards"})
    with pytest.raises(op.InputError, match="there is no column 'newer'. Did you mean 'new'"):
        op.evaluate(op.read_log(frame, **COLUMNS), "newer", op.IPS())
    with pytest.raises(op.InputError, match="the log is empty"):
        op.read_log(frame.filter("x0 > 1000"), **COLUMNS)
    with pytest.raises(op.InputError, match="1,100 different values are too many"):
        op.read_log(frame.withColumn("text", frame["x0"].cast("string")), **{**COLUMNS, "context": ["text"]})


def run(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(__file__).parent.parent.parent / "src"), os.environ.get("PYTHONPATH", "")])
    command = [
        sys.executable, "-m", "offpolicy", "evaluate", str(folder), "--context", "x0,x1", "--action", "action", "--reward",
        "reward", "--propensity", "p", "--target", "new", "--estimator", "SNIPS", "--json", *options,
    ]  # fmt: skip
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


@pytest.mark.parametrize("where", ["master", "remote"])
def test_the_command_runs_on_spark(folder: Path, where: str) -> None:
    option = ("--master", "local[1]") if where == "master" else ("--remote", f"sc://127.0.0.1:{server()}")
    spark, local = run(folder, "--engine", "spark", *option), run(folder)
    assert spark.returncode == local.returncode, spark.stderr
    values = [[each["value"] for each in json.loads(done.stdout)["estimates"]] for done in (spark, local)]
    assert values[0] == pytest.approx(values[1], rel=1e-9)


def test_a_machine_without_java_says_what_to_install(folder: Path, tmp_path: Path) -> None:
    done = run(folder, "--engine", "spark", PATH=f"{tmp_path}:/usr/sbin", JAVA_HOME=str(tmp_path))
    assert done.returncode == 2
    assert "Spark needs Java 17 or newer" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("given", "said"), [
    ({"engine": "flink"}, "there is no engine 'flink'"),
    ({"engine": "spark", "threads": 2}, "threads has no effect on the engine 'spark'"),
    ({"master": "local[2]"}, "master has no effect on the engine 'local'; add --engine spark"),
    ({"engine": "spark", "master": "local[2]", "remote": "sc://here"}, "master, remote: give one of the two"),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(op.InputError, match=said), settings.opened({"logs": ["log.parquet"], **given}):
        pass


def test_a_machine_without_pyspark_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with (
        pytest.raises(op.InputError, match=r"pip install 'offpolicy\[spark\]'"),
        settings.opened({"logs": ["a"], "engine": "spark"}),
    ):
        pass


@pytest.mark.parametrize(
    ("settings", "words"),
    [(("local[x]", None), "is not a Spark master"), ((None, "sc://localhost:1"), "no Spark Connect server answers"),
     ((None, "localhost:15002"), "is not the address of a Spark Connect server")],
)  # fmt: skip
def test_a_place_that_is_none_is_told_at_once(settings: tuple[str | None, str | None], words: str) -> None:
    from offpolicy.data.sources.spark_session import session

    with pytest.raises(op.InputError, match=words), session(*settings):
        pass


def test_a_log_drawn_anew_and_bounds_are_those_of_one_machine(folder: Path) -> None:
    """The statistics do it, not the engine."""
    columns = {**COLUMNS, "row_id": "id"}
    logs = (op.read_log(classic().read.parquet(str(folder)), **columns), op.read_log(folder, **columns))
    drawn = [
        op.evaluate(log, op.Uniform(), [op.DM(), op.DR()], engine=Resampled(engine, 0, 3)).values()
        for log, engine in zip(logs, (op.Spark(), op.Local(threads=1)), strict=True)
    ]
    assert drawn[0] == pytest.approx(drawn[1], rel=1e-6)
    found, local = (op.evaluate(log, op.Fixed([0.1, 0.2, 0.3, 0.4]), [op.SNIPS()]).sensitivity(1.5) for log in logs)
    assert found.rows[0].low == pytest.approx(local.rows[0].low, abs=found.resolution + local.resolution + 1e-9)
    assert found.value == pytest.approx(local.value)


def test_folders_are_read_as_on_one_machine(folder: Path, tmp_path: Path) -> None:
    """Hive partitions are columns, and a Delta table is refused: its files also contain deleted rows."""
    for k, file in enumerate(sorted(folder.rglob("*.parquet"))[:2]):
        (tmp_path / f"land={'ab'[k]}").mkdir()
        shutil.copy(file, tmp_path / f"land={'ab'[k]}" / "0.parquet")
    columns = {**COLUMNS, "context": ["x0", "land"]}
    logs = (op.read_log(frame_of(classic(), [str(tmp_path)]), **columns), op.read_log(tmp_path, **columns))
    values = [op.evaluate(log, op.Uniform(), [op.DM()])["DM"].value for log in logs]
    assert values[0] == pytest.approx(values[1], rel=1e-9)
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(op.InputError, match="is a Delta table"):
        frame_of(classic(), [str(tmp_path)])


@pytest.mark.parametrize("session", SESSIONS)
def test_missing_values_dates_and_many_levels_are_prepared_as_without_spark(tmp_path: Path, session: str) -> None:
    rng = np.random.default_rng(0)
    for k, n in enumerate((700, 500)):
        seconds = rng.integers(0, 90 * 86_400, n) + 1_770_000_000
        table = {
            "x": pa.array(rng.normal(1e6, 1, n), mask=rng.random(n) < 0.2),
            "land": pa.array(rng.choice(["DE", "FR"], n), mask=rng.random(n) < 0.3),
            "time": pa.array(seconds * 10**6, pa.timestamp("us"), mask=rng.random(n) < 0.1),
            "seen": pa.array(seconds * 10**6, pa.timestamp("us", "UTC")),
            "shop": [f"shop {k}.{s}" for s in range(n)], "action": rng.integers(0, N_ACTIONS, n),
            "reward": rng.normal(size=n), "p": np.full(n, 1 / N_ACTIONS),
        }  # fmt: skip
        pq.write_table(pa.table(table), tmp_path / f"{k}.parquet")
    roles = {**COLUMNS, "context": ["x", "land", "time", "seen", "shop"]}
    options = {"missing": "mean", "dates": ["hour", "weekday"], "levels": 20}
    frame = SESSIONS[session]().read.parquet(str(tmp_path))
    local, spark = op.read_log(tmp_path, **roles, **options), op.read_log(frame, **roles, **options)
    assert spark.schema.context == local.schema.context
    assert spark.schema.preparation == local.schema.preparation
    np.testing.assert_array_equal(spark.head(50).context, local.head(50).context)
    assert _dr(spark) == pytest.approx(_dr(local), rel=1e-9)
    for name, option in {"land": "--missing level", "time": "--dates", "shop": "--levels 64"}.items():
        with pytest.raises(op.InputError, match=rf"^{name}\b.*{option}"):
            op.read_log(frame, **{**roles, "context": [name]})


def _dr(log: op.Log) -> tuple[float, float]:
    found = op.evaluate(log, op.Softmax(lambda x: x @ np.ones((x.shape[1], 1)) * 1e-6 * np.arange(N_ACTIONS)), op.DR())["DR"]
    return found.value, found.std_error

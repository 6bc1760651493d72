"""Parts written with public names alone work together: on each engine, in each output, saved and on the command line."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from tests.engines.sessions import NEEDS_SPARK, OWN_WARNINGS, SESSIONS
from tests.extension.action_means import ActionMeans
from tests.extension.country_share import CountryShare, germany
from tests.extension.weekday_estimator import WeekdayDR
from tests.extension.weekday_policy import monday
from tests.extension.weekday_ratio import DAYS

pytestmark = OWN_WARNINGS
ROWS, ACTIONS = 900, 3
MIX = np.array([0.5, 0.3, 0.2])
COLUMNS = {"context": ["x"], "action": "a", "reward": "r", "propensity": "p"}
ESTIMATORS = [op.IPS(), op.DM(ActionMeans()), WeekdayDR(), WeekdayDR(normalised=True, name="normalised")]
ENGINES = ["local-4", *(pytest.param(name, marks=NEEDS_SPARK) for name in SESSIONS)]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(5)
    day, action = rng.choice(3, ROWS, p=[0.2, 0.3, 0.5]), rng.choice(ACTIONS, ROWS, p=[0.5, 0.3, 0.2])
    country = np.where(rng.random(ROWS) < np.where(action == 2, 0.95, 0.25), "DE", "FR")
    return pa.table(
        {
            "weekday": np.array(DAYS)[day], "country": country, "x": rng.normal(size=ROWS), "a": action,
            "r": day + action + rng.normal(size=ROWS), "p": np.array([0.5, 0.3, 0.2])[action],
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extension")
    for k in range(3):
        pq.write_table(table.slice(300 * k, 300), folder / f"{k}.parquet", row_group_size=100)
    return folder


def evaluated(folder: Path, engine: str = "local-1", **settings: Any) -> op.Evaluation:
    source = SESSIONS[engine]().read.parquet(str(folder)) if engine in SESSIONS else folder
    runner = None if engine in SESSIONS else op.Local(threads=int(engine[-1]))
    log = op.read_log(source, **COLUMNS)
    return op.evaluate(
        log, monday, ESTIMATORS, engine=runner, progress=False, **{"diagnostics": [germany], **settings}
    )  # fmt: skip


@pytest.fixture(scope="module")
def result(folder: Path) -> op.Evaluation:
    return evaluated(folder)


def arrays(table: pa.Table) -> tuple[np.ndarray, ...]:
    """By hand: the weekday, the target's probabilities, π/π0, the weekday's ratio, and the mean reward of each action."""
    day = np.array([DAYS.index(name) for name in table["weekday"].to_pylist()])
    action, r = table["a"].to_numpy(), table["r"].to_numpy()
    target = np.where(day[:, None] == 0, np.eye(ACTIONS)[2], 1 / ACTIONS)
    w = target[np.arange(ROWS), action] / table["p"].to_numpy()
    by_day = (MIX / (np.bincount(day) / ROWS))[day]
    return day, target, w, by_day, np.bincount(action, r) / np.bincount(action)


def test_values_and_errors_by_hand(table: pa.Table, result: op.Evaluation) -> None:
    _, target, w, by_day, means = arrays(table)
    action, r = table["a"].to_numpy(), table["r"].to_numpy()
    direct, residual = target @ means, r - means[action]
    each = {"IPS": w * r, "DM": direct, "WeekdayDR": direct + by_day * residual}
    for name, scores in each.items():
        np.testing.assert_allclose(result[name].value, scores.mean(), rtol=1e-12)
        np.testing.assert_allclose(result[name].std_error, scores.std(ddof=1) / np.sqrt(ROWS), rtol=1e-9)
    np.testing.assert_allclose(
        result["normalised"].value, direct.mean() + (by_day @ residual) / by_day.sum(), rtol=1e-12
    )  # fmt: skip


def test_the_diagnostic_by_hand(table: pa.Table, result: op.Evaluation) -> None:
    there = np.array(table["country"].to_pylist()) == "DE"
    w = arrays(table)[2]
    share = w[there].sum() / w.sum()
    assert share > 0.5 > there.mean()
    for estimate in result:
        shown = estimate.diagnostics
        found = [reason for reason in estimate.reasons if reason.code == "one country"]
        if estimate.estimator == "LoggedMean":
            assert not found
        else:
            assert shown["country_share_of_rounds"] == there.mean()
            assert shown["country_share_of_weight"] == pytest.approx(share, rel=1e-12)
            assert found[0].verdict is op.Verdict.CAUTION
            assert found[0].seen == f"{share:.1%} of the weight lies on rounds from DE."
            assert estimate.verdict is not op.Verdict.OK


def test_a_good_finding_is_no_reason(folder: Path) -> None:
    relaxed = evaluated(folder, diagnostics=CountryShare(most=0.99))
    assert all(reason.code != "one country" for estimate in relaxed for reason in estimate.reasons)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_same(folder: Path, result: op.Evaluation, engine: str) -> None:
    other = evaluated(folder, engine)
    for estimate in result:
        same = other[estimate.estimator]
        np.testing.assert_allclose([same.value, same.std_error], [estimate.value, estimate.std_error], rtol=1e-9)
        assert [reason.code for reason in same.reasons] == [reason.code for reason in estimate.reasons]
        shares = [{k: v for k, v in e.diagnostics.items() if k.startswith("country")} for e in (same, estimate)]
        assert len(shares[1]) == (0 if estimate.estimator == "LoggedMean" else 2)
        assert shares[0] == pytest.approx(shares[1], rel=1e-9)


def test_every_output_shows_the_finding(result: op.Evaluation, tmp_path: Path) -> None:
    seen = next(reason.seen for reason in result["WeekdayDR"].reasons if reason.code == "one country")
    result.write_html(tmp_path / "report.html")
    told = json.loads(json.dumps(result.to_dict()))
    of = next(e for e in told["estimates"] if e["estimator"] == "WeekdayDR")
    assert seen in [reason["seen"] for reason in of["reasons"]]
    assert of["diagnostics"]["country_share_of_rounds"] == result["WeekdayDR"].diagnostics["country_share_of_rounds"]
    for text in (str(result), result.to_markdown(), (tmp_path / "report.html").read_text()):
        words = " ".join(text.split())
        assert seen in words
        assert "WeekdayDR" in words


def test_a_loaded_result_shows_the_same(result: op.Evaluation, tmp_path: Path) -> None:
    result.save(tmp_path / "result.json")
    again = op.load_result(tmp_path / "result.json")
    assert str(again) == str(result)
    assert again.to_dict() == json.loads(json.dumps(result.to_dict()))
    assert again["WeekdayDR"].reasons == result["WeekdayDR"].reasons
    assert again["WeekdayDR"].confidence_interval(0.8, "bootstrap") == result["WeekdayDR"].confidence_interval(
        0.8, "bootstrap"
    )
    assert again.difference(("target", "WeekdayDR"), ("target", "DM")).std_error == pytest.approx(
        result.difference(("target", "WeekdayDR"), ("target", "DM")).std_error, rel=1e-12
    )


def test_a_fitted_reward_model_is_saved(folder: Path, result: op.Evaluation, tmp_path: Path) -> None:
    log = op.read_log(folder, **COLUMNS)
    op.fit_rewards(log, ActionMeans()).save(tmp_path / "means.safetensors")
    loaded = op.load_rewards(tmp_path / "means.safetensors")
    assert op.evaluate(log, monday, op.DM(loaded), progress=False)["DM"].value == pytest.approx(result["DM"].value)


def test_a_column_that_is_not_there_is_named_before_a_row_is_read(table: pa.Table) -> None:
    log = op.read_log(table.drop_columns(["country"]), **COLUMNS)
    with pytest.raises(op.InputError, match="no column 'country'"):
        op.evaluate(log, monday, op.IPS(), diagnostics=[germany], progress=False)


@pytest.mark.parametrize("wrong", [[3], [CountryShare], CountryShare, "overlap"])
def test_what_is_not_a_diagnostic_is_refused(table: pa.Table, wrong: Any) -> None:
    with pytest.raises(op.InputError, match="is not an op.Diagnostic"):
        op.evaluate(op.read_log(table, **COLUMNS), monday, op.IPS(), diagnostics=wrong)


def test_the_parts_use_public_names_alone() -> None:
    files = [path for path in Path(__file__).parent.glob("*.py") if not path.name.startswith("test_")]
    assert len(files) == 5
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not str(node.module).startswith("offpolicy"), path.name
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "op":
                assert node.attr in op.__all__, (path.name, node.attr)

"""Studies: what is kept of a run, what is counted of it, and that a stopped study goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import offpolicy as op
from offpolicy.cli.app import app
from offpolicy.diagnostics.verdict import LIMITS, Limits, Verdict
from offpolicy.experiments import reproduce, study_tables
from offpolicy.experiments.config import STUDIES, Size, load
from offpolicy.experiments.experiment import Experiment
from offpolicy.experiments.measurements import Measurements, check_column, column
from offpolicy.experiments.store import Store
from offpolicy.experiments.study import EDGES, Study, grades
from offpolicy.worlds import Users
from tests.logs import DISCRETE

SMALL = """
title = "small"
worlds = 2
logs = 3
[study]
methods = ["normal", "bootstrap", "bernstein"]
[[points]]
label = "easy"
world = "synthetic"
n_actions = 4
epsilon = 0.5
rounds = 400
[[points]]
label = "users"
world = "users"
rounds = 300
[estimators]
"LoggedMean" = "logged-mean"
"IPS" = "ips"
"DM" = "dm"
"Auto" = "auto"
[features]
"MIPS (true)" = "mips-true"
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "small.toml"
    path.write_text(SMALL)
    return path


def test_a_stopped_study_goes_on_and_gives_the_same(settings: Path, tmp_path: Path) -> None:
    experiment = load(str(settings))
    whole = reproduce.study(experiment, tmp_path / "whole", processes=1, progress=False)
    reproduce.study(load(str(settings), Size(worlds=1)), tmp_path / "parts", processes=1, progress=False)
    again = reproduce.study(experiment, tmp_path / "parts", processes=1, progress=False)
    assert json.dumps(again) == json.dumps(whole)
    assert json.loads((tmp_path / "parts" / "summary.json").read_text())["worlds"][0]["runs"] == 6
    assert (tmp_path / "parts" / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert whole["coverage"]["easy"]["Auto"].keys() == {"normal", "bootstrap"}, "a blend has no bernstein interval"
    assert "LoggedMean" not in whole["verdicts"]["easy"]
    assert whole["worlds"][1]["rounds"] == 300


def test_the_command(settings: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["study", str(settings), "--out", str(tmp_path), "--worlds", "1", "--processes", "1", "--json"]
    )
    assert done.exit_code == 0
    assert json.loads(done.stdout)["schema"] == "offpolicy.study/1"
    shown = CliRunner().invoke(app, ["study", str(settings), "--out", str(tmp_path), "--worlds", "1", "--processes", "1"])
    assert "Coverage of 95% intervals (normal)" in shown.stdout


@pytest.mark.parametrize("methods", ['["maximal"]', "[]", "3"])
def test_unknown_methods_are_refused(settings: Path, tmp_path: Path, methods: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(SMALL.replace('["normal", "bootstrap", "bernstein"]', methods))
    with pytest.raises(op.InputError, match="study"):
        load(str(path))


def test_an_experiment_is_no_study_and_the_reverse(settings: Path, tmp_path: Path) -> None:
    with pytest.raises(op.InputError, match="offpolicy reproduce"):
        reproduce.study(load("table1"), tmp_path)
    with pytest.raises(op.InputError, match="offpolicy study"):
        reproduce.reproduce(load(str(settings)), tmp_path)


@pytest.mark.parametrize("name", STUDIES)
def test_studies_can_be_read(name: str) -> None:
    experiment = load(name)
    assert experiment.study is not None
    assert load(name, Size(quick=True)).worlds * load(name, Size(quick=True)).logs < experiment.worlds * experiment.logs


def test_the_coverage_study_has_every_estimator() -> None:
    experiment = load("coverage")
    built = {type(each.build(op.worlds.Synthetic(4))).__name__ for each in experiment.entries}
    elsewhere = {"Blend", "StackedDR", "LogSmoothing"}  # lists of your own; the anchor of Auto; benchmarks/bounds.py
    assert {*DISCRETE} <= built | elsewhere
    assert experiment.worlds * experiment.logs == 1_000


def by_hand(experiment: Experiment, rows: list[dict[str, object]]) -> Study:
    store = Store(Path("nowhere"), experiment)
    assert experiment.study is not None
    return Study.of(experiment, experiment.study, pa.Table.from_pylist(rows, store.schema))


def test_counts_by_hand(settings: Path) -> None:
    """Four runs: two hold, one of the two that miss has too few effective rounds to be trusted."""
    experiment = replace(load(str(settings)), study=Measurements(("normal",)), worlds=1, logs=4)
    rows = []
    for log, (low, ess) in enumerate([(0.0, 1000.0), (0.5, 1000.0), (2.0, 1000.0), (3.0, 1.0)]):  # ends are low + 1 + level
        row: dict[str, object] = {"point": 0, "world": 0, "log": log, "estimator": "IPS", "value": low + 0.5, "truth": 1.0, "truth_error": 0.0,
                                  "std_error": 0.25, check_column("effective rounds"): ess, "unmeasured": 0}  # fmt: skip
        for level in (0.9, 0.95, 0.99):
            row |= {column("low", "normal", level): low, column("high", "normal", level): low + 1.0 + level}
        rows.append(row)
    told = by_hand(experiment, rows).summary()
    assert told["coverage"]["easy"]["IPS"]["normal"] == {
        "runs": 4,
        "held": [0.5, 0.5, 0.5],
        "width": pytest.approx([1.9, 1.95, 1.99]),
    }
    assert told["verdicts"]["easy"]["IPS"] == {"OK": [3, 1], "CAUTION": [0, 0], "DO_NOT_TRUST": [1, 1]}
    assert told["errors"]["easy"]["IPS"]["bias"] == pytest.approx(0.875)
    assert told["errors"]["easy"]["IPS"]["spread"] == pytest.approx(np.std([0.5, 1.0, 2.5, 3.5], ddof=1))
    bins = told["limits"]["effective rounds"]["bins"]
    assert [(b["from"], b["runs"], b["held"]) for b in bins] == [(0, 1, 0.0), (1000, 3, pytest.approx(2 / 3))]
    header, rows_shown = study_tables.verdicts(told)
    assert dict(zip(header, rows_shown[0], strict=True))["missed: DO_NOT_TRUST"] == "50%"


@pytest.mark.parametrize(
    ("limits", "bad", "doubtful", "good"), [(Limits(500, 50), 49.9, 50.0, 500.0), (Limits(2, 3), 3.0, 2.0, 1.9)]
)
def test_limits_count_from_both_ends(limits: Limits, bad: float, doubtful: float, good: float) -> None:
    expected = [Verdict.DO_NOT_TRUST, Verdict.CAUTION, Verdict.OK]
    assert [limits.grade(x) for x in (bad, doubtful, good)] == expected
    assert grades(limits, np.array([bad, doubtful, good, np.nan])).tolist() == [*(v.severity for v in expected), 0]


def test_scales_are_known() -> None:
    assert EDGES.keys() <= LIMITS.keys()


def test_users_share_a_context_and_an_effect() -> None:
    world = Users(4, seed=1)
    log = world.sample(105, 2)
    batch = next(iter(log.batches()))
    assert len(np.unique(batch.context, axis=0)) == 11
    plain = Users(4, effect=0.0, seed=1)
    assert world.value(world.target) == plain.value(plain.target)
    assert log.schema.clustered
    assert not Users(4, told=False, seed=1).sample(105, 2).schema.clustered
    with pytest.raises(op.InputError, match="rounds_each"):
        Users(4, rounds_each=0)

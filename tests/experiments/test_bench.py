"""The suite of the bench: its two halves, its estimators, and the data that are not part of the package."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import offpolicy as op
from offpolicy.cli.app import app
from offpolicy.experiments import bench
from offpolicy.experiments.bench import Bench
from offpolicy.experiments.config import point
from offpolicy.experiments.experiment import HALVES, Experiment
from offpolicy.experiments.runner import run
from offpolicy.experiments.standings import is_blend
from offpolicy.experiments.store import Store
from offpolicy.worlds.registry import Folders, world
from tests.worlds.test_worlds import open_bandit

DEFAULT = Path(__file__).parents[3] / "shared" / "data" / "classification"
FOLDER = Path(os.environ.get("OPENML_CSV", DEFAULT))
SETS = ("balance-scale", "ecoli", "page-blocks", "satimage", "vehicle", "yeast")


needs_data = pytest.mark.skipif(
    not all((FOLDER / f"{name}.csv").exists() for name in SETS),
    reason="the OpenML sets are not here; give the folder of their CSV files in OPENML_CSV",
)


@pytest.fixture(autouse=True)
def _no_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENML_CSV", "OPEN_BANDIT_DATASET"):
        monkeypatch.delenv(variable, raising=False)


def openml(folder: Path) -> Path:
    """A folder with small files in place of the OpenML sets: two numbers, and one of three classes."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for name in SETS:
        rows = "".join(f"{x:.3f},{y:.3f},{'abc'[k % 3]}\n" for k, (x, y) in enumerate(rng.normal(size=(90, 2))))
        (folder / f"{name}.csv").write_text("u,v,class\n" + rows)
    return folder


def places(experiment: Experiment) -> list[str]:
    return [each.name for each in experiment.points]


def test_the_suite_has_two_halves(tmp_path: Path) -> None:
    folders = Folders(open_bandit(tmp_path / "open bandit"), openml(tmp_path / "openml"))
    whole = Bench(folders=folders).experiment()
    halves = {half: Bench(half=half, folders=folders).experiment() for half in HALVES}
    assert {half: len(each.points) for half, each in halves.items()} == {"building": 30, "judging": 26}
    assert places(whole) == places(halves["building"]) + places(halves["judging"])
    assert len(set(places(whole))) == 56
    assert places(whole)[-1] == "Open Bandit, all"
    for half, each in halves.items():
        assert {place.half for place in each.points} == {half}
    assert (whole.worlds, whole.logs) == (20, 10)


def test_no_data_set_is_in_both_halves(tmp_path: Path) -> None:
    experiment = Bench(folders=Folders(openml=openml(tmp_path / "openml"))).experiment()
    used = {half: {p.settings.get("data") for p in experiment.points if p.half == half} - {None} for half in HALVES}
    assert not used["building"] & used["judging"]


def test_a_point_has_no_half_or_one_of_two() -> None:
    assert point("mine.toml", {"world": "toy", "half": "judging"}, 10).half == "judging"
    assert point("mine.toml", {"world": "toy"}, 10).half is None
    with pytest.raises(op.InputError, match=r"mine.toml: there is no half 'jugding'. Did you mean 'judging'\?"):
        point("mine.toml", {"world": "toy", "half": "jugding"}, 10)


def test_numbers_have_a_suite_in_which_mixes_of_widths_are_blends(tmp_path: Path) -> None:
    whole = Bench(suite="continuous").experiment()
    halves = {half: Bench(suite="continuous", half=half).experiment() for half in HALVES}
    assert {half: len(each.points) for half, each in halves.items()} == {"building": 9, "judging": 10}
    assert {each.label for each in whole.entries if is_blend(each)} == {"Auto", "KernelDR", "KernelSNIPS", "KernelIPS"}
    assert sum(not is_blend(each) for each in whole.entries) == 2 + 2 * 7
    some = Bench(
        ["kernel-snips", "kernel-snips:bandwidth=range/8", "dm"], suite="continuous", runs=2, rounds=200
    ).experiment()
    results = run(replace(some, points=(some.points[0], some.points[8])), Store.open(tmp_path / "out", some), 1)
    assert not results.failures
    with pytest.raises(op.InputError, match="there is no suite 'numbers'"):
        Bench(suite="numbers").experiment()


def test_every_single_estimator_may_be_the_best() -> None:
    """Tuned ones among them; blends are left out."""
    entries = Bench().experiment().entries
    assert {each.label for each in entries if is_blend(each)} == {"Auto", "StackedDR", "Blend", "SLOPE", "OCV"}
    assert {"SNDR, penalty 0.3", "DM, penalty 100", "DR, penalty 100", "Learned MIPS, kernel"} < {e.label for e in entries}


def test_without_the_openml_sets_their_worlds_are_left_out_and_counted(tmp_path: Path) -> None:
    experiment = Bench(["ips"], half="building", runs=2, rounds=50).experiment()
    assert len(experiment.points) == 16
    small = replace(experiment, points=experiment.points[:2])
    results = run(small, Store.open(tmp_path / "out", small), 1)
    said = "14 kinds of world need the OpenML sets and are left out"
    shown = bench.plain(results)
    assert said in " ".join(shown.split())
    assert "w1: synthetic, 10 actions, 50 rounds, building half; least" in shown
    assert bench.as_dict(results)["notes"][0].startswith(said)
    assert [each["half"] for each in bench.as_dict(results)["worlds"]] == ["building", "building"]


def test_the_folder_may_be_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = openml(tmp_path / "openml")
    monkeypatch.setenv("OPENML_CSV", str(folder))
    experiment = Bench().experiment()
    assert len(experiment.points) == 55
    assert not experiment.note
    assert world("classification", {"data": "openml:yeast"}).n_actions == 3
    assert world("items", {"data": "openml:yeast", "n_actions": 5}).sample(20, 0).head(20) is not None
    (folder / "ecoli.csv").unlink()
    with pytest.raises(op.InputError, match=r"ecoli.csv: no such file"):
        Bench().experiment()


def test_runs_are_identified_by_the_data_wherever_they_are(tmp_path: Path) -> None:
    def key(folder: Path) -> str:
        return Bench(["ips"], ["classification:data=openml:yeast"], folders=Folders(openml=folder)).experiment().key

    one, other = openml(tmp_path / "one"), openml(tmp_path / "other")
    assert key(one) == key(other)
    (other / "yeast.csv").write_text((other / "yeast.csv").read_text() + "0.1,0.2,a\n")
    assert key(one) != key(other)


def test_an_openml_set_on_the_command_line(tmp_path: Path) -> None:
    words = ["bench", "--estimator", "snips", "--world", "classification:data=openml:vehicle,rounds=60", "--runs", "2"]
    more = ["--openml", str(openml(tmp_path / "openml")), "--processes", "1", "--json"]
    done = CliRunner().invoke(app, [*words, *more])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["notes"] == []
    assert found["coverage"] == {"snips": {"share": [pytest.approx(found["coverage"]["snips"]["share"][0])], "runs": [2]}}


@needs_data
def test_every_world_of_real_data_can_be_sampled() -> None:
    experiment = Bench(folders=Folders(openml=FOLDER)).experiment()
    real = [each for each in experiment.points if str(each.settings.get("data")).endswith(".csv")]
    assert len(real) == 28
    for each in real:
        there = world(each.kind, each.settings)
        assert len(there.sample(20, 0).head(20).action) == 20


@needs_data
def test_real_data_in_the_bench(tmp_path: Path) -> None:
    """SNIPS is near the value of the target on the OpenML set with the fewest rows."""
    worlds = ["classification:data=openml:ecoli,rounds=300", "items:data=openml:ecoli,n_actions=30,rounds=300"]
    experiment = Bench(["snips", "logged-mean"], worlds, runs=4, folders=Folders(openml=FOLDER)).experiment()
    results = run(experiment, Store.open(tmp_path, experiment), 1)
    assert not results.failures
    assert np.abs(results.errors[0]).max() < 0.2
    assert results.summary("mse")[0][0].tolist() < results.summary("mse")[0][1].tolist()

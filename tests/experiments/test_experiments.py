"""Experiments: every one at a tiny size, the arithmetic of their tables, and what happens when they are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

import offpolicy as op
from offpolicy.cli.app import app
from offpolicy.experiments import bench, figures, runner, tables
from offpolicy.experiments.claims import Crossover, Falling, Lower, Share, claim
from offpolicy.experiments.config import NAMES, Size, load
from offpolicy.experiments.entries import Entry, from_text
from offpolicy.experiments.experiment import AxisPoint, Experiment
from offpolicy.experiments.reproduce import reproduce
from offpolicy.experiments.runner import run, run_task
from offpolicy.experiments.runs import Results
from offpolicy.experiments.standings import Standings, is_blend
from offpolicy.experiments.store import Store
from offpolicy.worlds import DoseResponse, Toy
from offpolicy.worlds.registry import Folders
from tests.worlds.test_continuous import patients
from tests.worlds.test_worlds import equal_actions, open_bandit

TINY = """
title = "Tiny"
axis = "rounds"
worlds = 4
logs = 2
[world]
kind = "toy"
n_actions = 5
[vary]
rounds = [60, 120]
[estimators]
"IPS" = "ips"
"DM" = "dm"
[[claims]]
says = "DM is better."
lower = "DM"
than = "IPS"
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def smaller(experiment: Experiment) -> Experiment:
    """The same estimators and claims in small worlds, with a fraction of the rounds."""

    def shrunk(k: int, point: AxisPoint) -> AxisPoint:
        settings = dict(point.settings) | ({"n_actions": 8 + k} if "n_actions" in point.settings else {})
        settings |= {"dimensions": 4, "hidden": settings["hidden"] // 2} if "hidden" in settings else {}
        return replace(point, settings=settings, rounds=300 + 10 * k)

    return replace(experiment, points=tuple(shrunk(k, p) for k, p in enumerate(experiment.points)))


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_at_a_tiny_size(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARFARIN_CSV", str(patients(tmp_path)))
    monkeypatch.setattr(DoseResponse, "value_rounds", 20_000)
    data = open_bandit(tmp_path / "data") if name == "real" else None
    experiment = smaller(
        load(
            name, Size(quick=True, worlds=1 if name == "real" else 2, logs=3 if name == "real" else 2), folders=Folders(data)
        )
    )
    if name == "models":  # what needs PyTorch has tests of its own
        experiment = replace(experiment, entries=tuple(e for e in experiment.entries if "rewards=" not in e.text), claims=())
    results = reproduce(experiment, tmp_path / "out", processes=1)
    assert not results.failures
    assert np.isfinite(results.values).all()
    printed, written = tables.plain(results), (tmp_path / "out" / "summary.md").read_text()
    for label in experiment.labels:
        assert label in printed
        assert label in written
    assert len(tables.judged(results)) == len(experiment.claims)
    assert (tmp_path / "out" / "figure.png").stat().st_size > 10_000
    assert json.loads(json.dumps(tables.as_dict(results), allow_nan=False))["schema"] == "offpolicy.experiment/1"


def test_a_part_of_the_published_table() -> None:
    """30 reward functions with 100 actions: within 3.5 standard errors of the published entries."""
    experiment = load("table1", Size(worlds=30, logs=15))
    wanted = tuple(replace(e, worlds=None) for e in experiment.entries if e.label in experiment.published)
    experiment = replace(experiment, points=(experiment.points[1],), entries=wanted)
    rows = [row for w in range(30) for row in run_task(experiment, (0, w, 0))]
    results = results_of(experiment, rows)
    mean, error = results.summary("median15")
    for k, label in enumerate(experiment.labels):
        there, there_error = experiment.published[label]["100"]
        assert abs(mean[k, 0] - there) < 3.5 * np.hypot(error[k, 0], there_error)


def results_of(experiment: Experiment, rows: list[dict[str, object]]) -> Results:
    import pyarrow as pa

    from offpolicy.experiments.store import SCHEMA

    return Results.of(experiment, pa.Table.from_pylist(rows, SCHEMA))


def made(values: np.ndarray, truth: np.ndarray | float = 0.0, truth_error: float = 0.0) -> Results:
    """Results with these values (estimators × points × worlds × logs), estimators called A, B, …"""
    labels = [chr(65 + k) for k in range(len(values))]
    points = tuple(AxisPoint(k + 1, "toy", {}, 10) for k in range(values.shape[1]))
    experiment = Experiment(
        "made", "made", points, tuple(Entry(label, "ips") for label in labels), values.shape[2], values.shape[3]
    )
    shape = values.shape[1:3]
    return Results(experiment, values, np.broadcast_to(truth, shape), np.full(shape, truth_error), {})


def test_measures_by_hand() -> None:
    """Two worlds of two logs with errors (1, 3) and (−2, 2)."""
    results = made(np.array([[[[1.0, 3.0], [-2.0, 2.0]]]]))
    mean, error = results.summary("mse")
    assert mean[0, 0] == pytest.approx((5 + 4) / 2)
    assert error[0, 0] == pytest.approx(0.5)
    assert results.summary("variance")[0][0, 0] == pytest.approx((2 + 8) / 2)
    assert results.summary("bias2")[0][0, 0] == pytest.approx(((4 - 1) + (0 - 4)) / 2)
    assert results.summary("median2")[0][0, 0] == pytest.approx(10 * (5 + 4) / 2)


@pytest.mark.parametrize("worlds", [1, 5])
def test_the_error_is_bias_and_variance(worlds: int) -> None:
    rng = np.random.default_rng(0)
    results = made(rng.normal(1, 2, size=(2, 3, worlds, 6)), truth=0.3)
    total = results.summary("bias2")[0] + results.summary("variance")[0]
    np.testing.assert_allclose(results.summary("mse")[0], total)


def test_bias_is_not_overstated() -> None:
    """The bias² of an unbiased estimator is 0 on average, however few the logs."""
    results = made(np.random.default_rng(0).normal(size=(1, 1, 4000, 2)))
    mean, error = results.summary("bias2")
    assert abs(mean[0, 0]) < 4 * error[0, 0]


def test_lower() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 2, 40, 2))
    values[1] *= 3
    assert Lower("", "A", ("B",)).judge(made(values[:, :, :9])).verdict == "undecided"
    results = made(values)
    assert Lower("", "A", ("B",)).judge(results).verdict == "holds"
    assert Lower("", "B", ("A",)).judge(results).verdict == "does not hold"
    assert Lower("", "A", ("C",)).judge(results).verdict == "undecided"
    assert Lower("", "A", ("C",), factor=3).judge(results).verdict == "holds"
    values[1, 1] /= 30
    assert Lower("", "A", ("B",)).judge(made(values)).verdict == "does not hold"
    assert Lower("", "A", ("B",), at=(1,)).judge(made(values)).verdict == "holds"
    assert Crossover("", ("A", "B")).judge(made(values)).verdict == "holds"
    assert Crossover("", ("B", "A")).judge(made(values)).verdict == "does not hold"


def test_most_points() -> None:
    values = np.random.default_rng(0).normal(size=(2, 5, 40, 2))
    values[1, :3] *= 4
    assert Lower("", "A", ("B",), need="most").judge(made(values)).verdict == "holds"
    assert Lower("", "A", ("B",)).judge(made(values)).verdict == "undecided"


def test_falling() -> None:
    values = np.random.default_rng(0).normal(size=(1, 3, 50, 4))
    assert Falling("", "A").judge(made(values)).verdict == "undecided"
    values *= np.array([9, 3, 1])[None, :, None, None]
    assert Falling("", "A").judge(made(values)).verdict == "holds"
    assert Falling("", "A").judge(made(values[:, ::-1])).verdict == "does not hold"


def test_share_depends_on_how_well_the_truth_is_known() -> None:
    """A is at 1, B at −1: A is nearer to any truth above 0."""
    values = np.array([1.0, -1.0])[:, None, None, None] * np.ones((2, 1, 1, 100))
    assert Share("", "A", "B").judge(made(values, 0.5, 0.1)).verdict == "holds"
    assert Share("", "B", "A").judge(made(values, 0.5, 0.1)).verdict == "does not hold"
    judged = Share("", "A", "B", 0.75).judge(made(values, 0.5, 0.4))
    assert judged.verdict == "undecided"
    assert "100% of 100 samples (published: about 75%); 95% interval 0% to 100%" in judged.evidence[0]


def test_a_share_from_samples_of_one_log_knows_that_the_log_is_a_sample() -> None:
    """Logs whose own deviation is as large as that of samples from them: a true share of about a half is seldom decided."""
    rng, decided, naive = np.random.default_rng(0), 0, 0
    for _ in range(100):
        own = rng.normal(size=(2, 1, 1, 1))  # how far this log's estimates are from the truth
        results = made(own + rng.normal(size=(2, 1, 1, 150)))
        share = results.shares("A", "B")[0]
        decided += Share("", "A", "B").judge(results).verdict != "undecided"
        naive += abs(share - 0.5) > 1.96 * np.sqrt(0.25 / 150)
    assert naive > 40
    assert decided <= 12


def test_shares_of_several_worlds_are_drawn_by_world() -> None:
    """In each world all logs agree on who is nearer: ten worlds are ten coins, not a hundred."""
    nearer = np.random.default_rng(1).random(10) < 0.5
    values = np.where(nearer, 1.0, 3.0)[None, None, :, None] * np.ones((2, 1, 10, 10))
    values[1] = 2.0
    _, low, high, n = made(values).shares("A", "B")
    assert n == 100
    assert high - low > 0.4


def test_shares_do_not_depend_on_how_far_points_are_apart() -> None:
    """Two data sets with their own values: what moves a sample from one of them is no distance between the two."""
    values = np.random.default_rng(2).normal(size=(2, 2, 1, 60))
    values[0] *= 0.5
    apart = np.array([0.0, 40.0])[:, None]
    near = made(values).shares("A", "B")
    far = made(values + apart[None, :, :, None], truth=apart).shares("A", "B")
    np.testing.assert_allclose(far, near, atol=1e-12)


def test_real_runs_every_campaign_of_the_folder(tmp_path: Path) -> None:
    folder = open_bandit(open_bandit(tmp_path / "data", 400, "men"), 300, "women")
    experiment = load("real", Size(quick=True, logs=2), folders=Folders(folder))
    assert [point.label for point in experiment.points] == ["men", "women"]
    small = replace(experiment, points=tuple(replace(point, rounds=200) for point in experiment.points))
    results = reproduce(small, tmp_path / "out", processes=1, progress=False)
    shown = tables.plain(results)
    assert "another policy" in tables.as_dict(results)["notes"][0]
    assert "campaign →" in shown
    assert "women" in shown
    assert " ".join(shown.split()).count("so this is the value of another policy") == 1


def test_skewed_errors_are_not_decided_too_often() -> None:
    """A is heavy-tailed with the same mean as B: calling it lower should be rare, though it mostly looks so."""
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(200):
        tails = np.sqrt(rng.lognormal(0, 1.2, size=20) / np.exp(0.72))
        values = np.stack([tails, np.ones(20)])[:, None, :, None]
        wrong += Lower("", "A", ("B",)).judge(made(values)).verdict == "holds"
    assert wrong <= 20


def test_the_error_of_the_truth_is_in_the_error_of_the_measure() -> None:
    values = np.full((1, 1, 1, 50), 3.0) + np.random.default_rng(0).normal(0, 0.1, 50)
    known, unknown = (made(values, 0.0, tau).summary("mse")[1][0, 0] for tau in (0.0, 1.0))
    assert unknown == pytest.approx(np.hypot(known, np.sqrt(4 * 9 + 2)), rel=0.02)


def test_a_claim_must_be_one() -> None:
    with pytest.raises(op.InputError, match="needs one of lower"):
        claim("x", {"says": "all is well"})
    with pytest.raises(op.InputError, match="there is no setting 'by'"):
        claim("x", {"says": "", "lower": "A", "than": "B", "by": 3})
    with pytest.raises(op.InputError, match="measure is 'MSE'"):
        claim("x", {"says": "", "lower": "A", "than": "B", "measure": "MSE"})
    with pytest.raises(op.InputError, match="measure is 'medianx'"):
        claim("x", {"says": "", "lower": "A", "than": "B", "measure": "medianx"})
    with pytest.raises(op.InputError, match="needs one of lower"):
        claim("x", 3)
    with pytest.raises(op.InputError, match="need is 'all'"):
        claim("x", {"says": "", "lower": "A", "than": "B", "need": "all"})


def test_a_task_is_done_when_all_its_logs_are(tiny: Path, tmp_path: Path) -> None:
    """With one world, tasks are blocks of ten logs; more worlds later find the rest missing, and make it."""
    tiny.write_text(TINY.replace("logs = 2", "logs = 14").replace("[60, 120]", "[60]"))
    one = load(str(tiny), Size(worlds=1))
    store = Store.open(tmp_path / "out", one)
    store.write((0, 0, 0), run_task(one, (0, 0, 0)))
    two = load(str(tiny), Size(worlds=2))
    assert np.isfinite(run(two, Store.open(tmp_path / "out", two), 1).values).all()


def test_a_run_goes_on_where_it_stopped(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = load(str(tiny))
    whole = reproduce(experiment, tmp_path / "whole", processes=1)
    half = reproduce(load(str(tiny), Size(worlds=2)), tmp_path / "half", processes=1)
    assert half.values.shape[2] == 2
    with monkeypatch.context() as patch:
        made_again: list[object] = []
        patch.setattr(runner, "run_task", lambda e, task: made_again.append(task) or run_task(e, task))
        reproduce(load(str(tiny), Size(worlds=3)), tmp_path / "half", processes=1)
    assert made_again == [(0, 2, 0), (1, 2, 0)]
    store = Store.open(tmp_path / "half", experiment)
    store.write((0, 0, 0), run_task(experiment, (0, 0, 0)))  # as if a merge had been cut short: the same rows twice
    reproduce(experiment, tmp_path / "half", processes=2)
    for name in ("summary.md", "figure.png"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "half" / name).read_bytes()
    assert pq.read_table(tmp_path / "half" / "runs.parquet").equals(pq.read_table(tmp_path / "whole" / "runs.parquet"))
    assert np.isfinite(whole.values).all()


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """SIGKILL while results come in: no worker stays behind, and the next run ends with the same table, byte for byte."""
    path = tmp_path / "long.toml"
    path.write_text(TINY.replace("worlds = 4", "worlds = 12").replace("logs = 2", "logs = 5"))
    command = [sys.executable, "-m", "offpolicy", "reproduce", str(path), "--processes", "2", "--out"]
    process = subprocess.Popen([*command, "cut"], cwd=tmp_path, start_new_session=True)
    while len(list((tmp_path / "cut").glob("runs*"))) < 3:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    workers = [int(p) for p in _children(process.pid)]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = pq.read_table(sorted((tmp_path / "cut").glob("runs*.parquet"))[0])
    assert len(kept) > 0
    ended = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() and "Z" not in _state(pid) for pid in workers):
        assert time.monotonic() < ended, "a worker was left behind"
        time.sleep(0.1)
    outputs = [
        subprocess.run([*command, out], cwd=tmp_path, capture_output=True, check=True).stdout for out in ("cut", "whole")
    ]
    assert outputs[0] == outputs[1]
    assert (tmp_path / "cut/summary.md").read_bytes() == (tmp_path / "whole/summary.md").read_bytes()


def _children(pid: int) -> list[str]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    if not path.exists():
        pytest.skip("this system does not tell the children of a process")
    return path.read_text().split()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def test_results_of_other_settings_are_refused_and_kept(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    reproduce(load(str(tiny)), out, processes=1)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    tiny.write_text(TINY.replace("logs = 2", "logs = 3"))
    with pytest.raises(op.InputError, match=r"other settings \(logs 2, now 3\)"):
        reproduce(load(str(tiny)), out, processes=1)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    (out / "settings.json").write_text("{}")
    with pytest.raises(op.InputError, match="not a settings file"):
        reproduce(load(str(tiny)), out, processes=1)
    (out / "settings.json").unlink()
    with pytest.raises(op.InputError, match="without their settings"):
        reproduce(load(str(tiny)), out, processes=1)


def test_every_run_has_a_stream_of_its_own(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs of two worlds at two points: their first uniforms, and where the actions fall, have nothing in common."""
    experiment, logs = load(str(tiny)), []
    plain = Toy.sample
    monkeypatch.setattr(Toy, "sample", lambda self, n, seed: logs.append(plain(self, 2000, seed)) or logs[-1])
    for task in runner.tasks(experiment)[:4]:
        run_task(experiment, task)
    firsts = {float(next(log.batches()).context[0, 0]) for log in logs}
    assert len(firsts) == len(logs) == 8
    for k, one in enumerate(logs):
        for two in logs[:k]:
            assert abs(equal_actions([one, two], 5)[0]) < 4.5


def test_no_bias_to_draw(tiny: Path, tmp_path: Path) -> None:
    """Where every bias² comes out below 0 there is no log scale to draw it on, and the picture is drawn all the same."""
    experiment = replace(load(str(tiny)), claims=())
    results = made(
        np.random.default_rng(0).choice([-1.0, 1.0], size=(1, 2, 1, 1)) * np.array([1.0, -1.0]) * np.ones((1, 2, 6, 1))
    )
    assert (results.summary("bias2")[0] < 0).all()
    figures.write(replace(results, experiment=replace(results.experiment, axis=experiment.axis)), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5_000


def test_two_runs_in_one_folder(tiny: Path, tmp_path: Path) -> None:
    experiment = load(str(tiny))
    store = Store.open(tmp_path / "out", experiment)
    with store.alone(), pytest.raises(op.InputError, match="another run is using this folder"):
        run(experiment, store, 1)
    assert np.isfinite(run(experiment, store, 1).values).all()


def test_a_broken_part_is_named(tiny: Path, tmp_path: Path) -> None:
    experiment = load(str(tiny))
    store = Store.open(tmp_path / "out", experiment)
    (tmp_path / "out" / "runs-0-0-0.parquet").write_text("no parquet")
    with pytest.raises(op.InputError, match=r"runs-0-0-0\.parquet: cannot be read"):
        store.read()


OWN = """
import numpy as np
import offpolicy as op

def mean(log, target):
    return 0.5

def raises(log, target):
    raise ZeroDivisionError("no such luck")

def nan(log, target):
    return float("nan")

def spoils(log, target):
    for batch in log.batches():
        batch.reward[:] = 0
    return 0.5

def leaves(log, target):
    raise SystemExit(3)

def draws(log, target):
    return np.random.random()

def words(log, target):
    print("what a user prints stays out of the answer")
    return "0.5"

class Plain:
    def __call__(self, log, target):
        return 0.5

class Needs(op.Estimator):
    pass

def sometimes(log, target):
    first = next(iter(log.partitions()[0].batches(10)))
    if first.reward[0, 0] > 0.5:
        raise ValueError("sometimes")
    return 0.5

instance = op.ClippedIPS(clip=3)
number = 7
"""


def test_own_estimators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions, objects and classes by module:object; those that fail are counted, and the others go on."""
    (tmp_path / "own_estimators.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    names = ("mean", "raises", "nan", "sometimes", "instance", "spoils", "leaves", "draws", "words")
    texts = [f"own_estimators:{name}" for name in names]
    alone = bench.Bench(["ips"], ["toy:n_actions=5,rounds=50"], runs=6).experiment()
    experiment = bench.Bench([*texts, "lib=offpolicy:SNIPS", "ips"], ["toy:n_actions=5,rounds=50"], runs=6).experiment()
    results = run(experiment, Store.open(tmp_path / "out", experiment), 1)
    labels = experiment.labels
    assert labels[-2:] == ["lib", "ips"]
    np.testing.assert_array_equal(results.values[0], 0.5)
    assert sum(results.failures["own_estimators:raises"].values()) == 6
    assert "ZeroDivisionError: no such luck (own_estimators.py, line 9)" in results.failures["own_estimators:raises"]
    assert results.failures["own_estimators:nan"] == {"returned NaN": 6}
    assert np.isfinite(results.values[[4, 5, 7, 9, 10]]).all()
    assert next(iter(results.failures["own_estimators:leaves"])).startswith("SystemExit: 3 (own_estimators.py")
    assert results.failures["own_estimators:words"] == {"returned '0.5', of type str, instead of a number": 6}
    again = run(experiment, Store.open(tmp_path / "again", experiment), 1)
    np.testing.assert_array_equal(again.values, results.values)
    plain = run(alone, Store.open(tmp_path / "alone", alone), 1)
    np.testing.assert_array_equal(plain.values[0], results.values[10])
    failed = sum(results.failures["own_estimators:sometimes"].values())
    assert 0 < failed < 6
    printed = bench.plain(results)
    assert f"own_estimators:sometimes failed in {failed} of 6 runs" in printed
    ranked = {row["estimator"]: row for row in bench.leaders(results)}
    assert ranked["own_estimators:sometimes"]["worlds"] == 0
    assert "no such luck" in printed
    for name, said in (("number", "has type int"), ("Plain", "is a class"), ("Needs", "cannot be created without settings")):
        with pytest.raises(op.InputError, match=said):
            from_text(f"own_estimators:{name}")
    key = experiment.key
    (tmp_path / "own_estimators.py").write_text(OWN.replace("return 0.5", "return 0.25"))
    sys.modules.pop("own_estimators")
    assert bench.Bench([*texts, "lib=offpolicy:SNIPS", "ips"], ["toy:n_actions=5,rounds=50"], runs=6).experiment().key != key
    sys.modules.pop("own_estimators")


def test_a_claim_about_an_estimator_that_failed_is_not_judged() -> None:
    """Who answers only in easy runs looks better than it is."""
    results = made(np.stack([np.full((1, 20, 2), 0.1), np.ones((1, 20, 2))]))
    assert Lower("", "A", ("B",)).judge(results).verdict == "holds"
    failed = replace(results, failures={"A": Counter({"too hard": 3})})
    judged = Lower("", "A", ("B",)).judge(failed)
    assert judged.verdict == "undecided"
    assert judged.evidence == ("A failed in 3 runs, so it cannot be compared",)
    assert "A (failed in 3 runs)" in tables.plain(failed)


def test_ties_are_no_wins() -> None:
    """The same estimator twice, but for rounding, is nearer in half of the runs; of nine worlds nothing is said."""
    values = np.random.default_rng(0).normal(size=(1, 1, 30, 2)) * np.array([1.0, 1 + 1e-15])[:, None, None, None]
    share, low, high, _ = made(values).shares("A", "B")
    assert share == low == high == 0.5
    wins = np.array([1.0, 2.0])[:, None, None, None] * np.ones((2, 1, 9, 4))
    assert Share("", "A", "B").judge(made(wins)).verdict == "undecided"


def test_the_source_of_a_package_is_part_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("VALUE = 1.0")
    (package / "mod.py").write_text("from own_package.helper import VALUE\ndef f(log, target):\n    return VALUE\n")
    monkeypatch.chdir(tmp_path)
    before = from_text("own_package.mod:f").identity
    (package / "helper.py").write_text("VALUE = 2.0")
    assert from_text("own_package.mod:f").identity != before


def test_stopped_by_hand(tmp_path: Path) -> None:
    """Ctrl-C says where the rest is kept."""
    (tmp_path / "long.toml").write_text(TINY.replace("worlds = 4", "worlds = 400").replace("logs = 2", "logs = 10"))
    command = [sys.executable, "-m", "offpolicy", "reproduce", "long.toml", "--processes", "1", "--out", "cut"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while len(list((tmp_path / "cut").glob("runs*"))) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Finished runs are in cut" in said
    assert "Traceback" not in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tiny: Path, tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o500)
    with pytest.raises(op.InputError, match="cannot be read or written"):
        reproduce(load(str(tiny)), shut, processes=1)


def test_a_file_where_a_folder_should_be(tiny: Path) -> None:
    with pytest.raises(op.InputError, match="cannot be read or written"):
        reproduce(load(str(tiny)), tiny, processes=1)


def test_odd_labels_are_drawn(tmp_path: Path) -> None:
    results = made(np.random.default_rng(0).normal(size=(3, 2, 3, 2)))
    odd = tuple(
        replace(e, label=label) for e, label in zip(results.experiment.entries, ["$x^{$", "_a|b\nc", "x" * 90], strict=True)
    )
    results = replace(results, experiment=replace(results.experiment, entries=odd))
    figures.write(results, tmp_path / "figure.png")
    assert "_a\\|b c" in tables.markdown(results)


def test_claims_that_a_size_cannot_judge_are_named(tmp_path: Path) -> None:
    experiment = load("table1", Size(quick=True, worlds=2, logs=5))
    assert experiment.unjudged == ("Learned MIPS is below IPS and DM in each row (medians over 15 logs).",)
    assert not experiment.claims


def test_the_leaderboard_by_hand() -> None:
    """Squared errors of A: 1, 9; of B: 2, 2; C serves the first world only, and best of all: 1/4."""
    values = np.array([[1.0, 3.0], [np.sqrt(2), np.sqrt(2)], [0.5, np.nan]])[:, :, None, None] * np.ones((3, 2, 3, 1))
    rows = bench.leaders(made(values))
    assert [row["estimator"] for row in rows] == ["B", "A", "C"]
    by_name = {row["estimator"]: row for row in rows}
    assert by_name["A"]["relative"] == pytest.approx([4.0, 4.5])
    assert by_name["A"]["geometric_mean"] == pytest.approx(np.sqrt(18))
    assert by_name["B"]["worst"] == pytest.approx(8)
    assert by_name["C"]["worlds"] == 1


def test_the_best_is_chosen_on_one_half_and_scored_on_the_other() -> None:
    """A is best in the even worlds (1 against 4), B in the odd ones: so B judges the even and A the odd, 4 in each."""
    even = np.arange(8) % 2 == 0
    values = np.array([np.where(even, 1.0, 2.0), np.where(even, 2.0, 1.0)])[:, None, :, None]
    ranking = Standings.of(made(values))
    assert ranking.ratios[:, 0] == pytest.approx([2.5 / 4, 2.5 / 4])
    assert (ranking.geometric_errors >= 0).all()


def test_blends_are_no_judges() -> None:
    assert [is_blend(Entry("x", text)) for text in ("auto", "blend:reach=1", "SLOPE", "ips", "os:getcwd")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    values = np.array([0.1, 1.0])[:, None, None, None] * np.ones((2, 1, 6, 1))
    results = made(values)
    entries = (Entry("A", "auto"), Entry("B", "ips"))
    blended = Standings.of(replace(results, experiment=replace(results.experiment, entries=entries)))
    assert blended.ratios[:, 0] == pytest.approx([0.01, 1.0])


def test_the_bench_counts_intervals_that_hold(tmp_path: Path) -> None:
    experiment = bench.Bench(["auto", "snips"], ["linear:n_actions=4,rounds=200"], runs=6).experiment()
    results = runner.run(experiment, Store.open(tmp_path, experiment), processes=1)
    held = bench.coverage(results)
    assert set(held) == {"auto", "snips"}
    assert results.widths.shape == (2, 1, 6, 1)
    inside = np.abs(results.errors) <= results.widths / 2 + 1e-12
    assert held["auto"] == {"share": [pytest.approx(inside[0].mean())], "runs": [6]}
    assert "coverage of 95% intervals" in bench.plain(results)
    covered = results.covered.copy()
    covered[0], covered[1, :, :2] = np.nan, np.nan  # as of an estimator without intervals, and of one that runs less often
    fewer = replace(results, covered=covered)
    assert bench.coverage(fewer)["snips"] == {"share": [pytest.approx(inside[1, :, 2:].mean())], "runs": [4]}
    rows = [
        line.split("  ")
        for line in bench.plain(fewer).partition("95% intervals")[2].partition("coverage of")[0].splitlines()
    ]
    cells = {row[0]: row[-1].strip() for row in rows if row[0] in ("auto", "snips")}
    assert cells["auto"] == "–"
    assert cells["snips"].endswith("% of 4")
    ok = results.ok == 1
    assert bench.verdicts(results)["auto"]["runs"] == [ok[0].sum()]
    assert bench.Bench(runs=400).experiment().worlds * bench.Bench(runs=400).experiment().logs == 400


def test_the_bench_on_the_command_line() -> None:
    words = ["bench", "--estimator", "ips", "--estimator", "mine=clipped-ips:clip=2", "--world", "toy:n_actions=6,rounds=80"]
    done = CliRunner().invoke(app, [*words, "--runs", "3", "--processes", "1", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["schema"] == "offpolicy.bench/3"
    assert {row["estimator"] for row in found["leaderboard"]} == {"ips", "mine"}
    assert found["worlds"][0]["half"] is None
    assert found["coverage"]["ips"]["runs"] == [3]
    done = CliRunner().invoke(app, [*words, "--runs", "3", "--processes", "1"])
    assert "geo. mean" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["reproduce", "tabel1"], "Did you mean 'table1'"),
        (["reproduce", "nowhere.toml"], "cannot be read"),
        (["reproduce", "real", "--data", "nowhere"], "not a folder of the Open Bandit Dataset"),
        (["reproduce", "real"], "OPEN_BANDIT_DATASET"),
        (["bench", "--world", "tyo"], "Did you mean 'toy'"),
        (["bench", "--estimator", "lerned-mips"], "Did you mean 'LearnedMIPS'"),
        (["bench", "--estimator", "nowhere:thing"], "cannot import"),
        (["bench", "--estimator", "ips", "--estimator", "ips"], "two estimators are called 'ips'"),
        (["bench", "--runs", "1"], "at least 2"),
        (["bench", "--estimator", "=ips"], "empty label"),
        (["bench", "--world", "toy:logging_seed=abc"], "logging_seed is 'abc'"),
        (["bench", "--world", "toy:n_actions=3,n_actions=4"], "given twice"),
        (["bench", "--world", "toy:noise=-1"], "at least 0"),
        (["bench", "--world", "toy:n_actions=100000000000000"], "whole number from 2"),
        (["bench", "--world", "toy", "--rounds", "100000000000000"], "rounds is 100000000000000"),
        (["bench", "--world", "classification:data=3"], "the name of a data set"),
        (["bench", "--world", "toy:rounds=many"], "rounds is 'many'"),
        (["bench", "--half", "jugding"], "there is no half 'jugding'. Did you mean 'judging'"),
        (["bench", "--half", "judging", "--world", "toy"], "leave out --half"),
        (["bench", "--world", "items:data=openml:yeast"], "OPENML_CSV"),
        (["bench", "--world", "items:data=openml:yeast", "--openml", "nowhere"], "nowhere/yeast.csv: no such file"),
        (["bench", "--openml", "nowhere"], "nowhere/yeast.csv: no such file"),
        (["bench", "--world", "items:data=nowhere.csv"], "nowhere.csv: no such file"),
    ],
)
def test_bad_words(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("OPEN_BANDIT_DATASET", "OPENML_CSV"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    done = subprocess.run([sys.executable, "-m", "offpolicy", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("axis", "axes"), "Did you mean 'axis'"),
        (("worlds = 4", "worlds = 0"), "worlds is 0"),
        (("rounds = [60, 120]", "rounds = [60, 1]"), "rounds is 1"),
        (('kind = "toy"', ""), "needs [world] with its kind"),
        (('"DM" = "dm"', '"DM" = "dmm"'), "there is no estimator 'dmm'"),
        (('lower = "DM"', 'lower = "DR"'), "there is no estimator 'DR'"),
        (("[vary]", "[vary]\nnoise = [1]"), "one is the axis"),
        (('axis = "rounds"', "axis = 3"), "axis is 3, but must be text"),
        (('axis = "rounds"', "seed = -1"), "seed is -1"),
        (('axis = "rounds"', 'medians = ["a"]'), "medians is ['a']"),
        (('axis = "rounds"', "relative_to = [3]"), "relative_to is [3]"),
        (('axis = "rounds"', 'figure = "series"'), "end in a number"),
        (('axis = "rounds"', 'figure = "cdf"'), "name them in relative_to"),
        (('kind = "toy"', "kind = 3"), "as text"),
        (('"DM" = "dm"', '"DM" = { estimator = 3 }'), "is not an estimator"),
        (('"DM" = "dm"', '"DM" = { estimator = "dm", worlds = -2 }'), "worlds is -2"),
        (('lower = "DM"', "lower = 3"), "lower is 3"),
        (('than = "IPS"', "than = []"), "than is []"),
        (('than = "IPS"', 'than = "IPS"\nfactor = -1'), "factor is -1"),
        (('than = "IPS"', 'than = "IPS"\nat = 60'), "at is 60"),
        (('says = "DM is better."', ""), "needs 'says'"),
        (('lower = "DM"\nthan = "IPS"', 'crossover = ["IPS"]'), "must be two labels"),
        (("[[claims]]", "[published.DMM]\n60 = [1, 2]\n[[claims]]"), "there is no estimator 'DMM'"),
        (("[[claims]]", "[published.DM]\n60 = 'much'\n[[claims]]"), "[published] needs"),
        (('axis = "rounds"', 'figure = "pie"'), "there is no figure 'pie'"),
        (("rounds = [60, 120]", "rounds = 60"), "give a list"),
        (('"DM" = "dm"', '"DM" = 3'), "3 is not an estimator"),
        (('than = "IPS"', 'than = "IPS"\nat = [61]'), "is about 61"),
        (("[vary]", "[[points]]\nworld = 'toy'\n[vary]"), "leave out [world]"),
        (('says = "DM', 'measure = "MSE"\nsays = "DM'), "measure is 'MSE'"),
        (("[[claims]]", "[quick]\nworlts = 2\n[[claims]]"), "[quick]: there is no setting 'worlts'"),
        (("n_actions = 5", "n_actons = 5"), "Did you mean 'n_actions'"),
        (("[estimators]", "[estimators"), "not a readable TOML"),
    ],
)
def test_bad_toml(change: tuple[str, str], said: str, tiny: Path) -> None:
    tiny.write_text(TINY.replace(*change))
    with pytest.raises(op.InputError) as caught:
        load(str(tiny))
    assert said in str(caught.value)


def test_the_bench_fits_the_width_of_the_terminal() -> None:
    values = np.random.default_rng(3).normal(size=(3, 30, 2, 2))
    results = made(values)
    named = replace(
        results.experiment,
        points=tuple(replace(p, label=f"world {k} of many") for k, p in enumerate(results.experiment.points)),
    )
    for width in (60, 80, 200):
        shown = bench.plain(replace(results, experiment=named), width)
        assert max(map(cell_len, shown.splitlines())) <= width
        header = [line.split() for line in shown.splitlines() if line.startswith("estimator ")]
        assert [name for line in header for name in line if name[:1] == "w" and name[1:].isdigit()] == [
            f"w{k}" for k in range(1, 31)
        ]
        assert all(f"w{k}: world {k - 1} of many" in shown for k in range(1, 31))

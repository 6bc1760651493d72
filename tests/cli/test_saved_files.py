"""What commands save and read again, and that no file may choose which code is run."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import offpolicy as op
from offpolicy.cli import settings
from offpolicy.cli.app import app, evaluate
from offpolicy.core import storage
from offpolicy.experiments.config import load
from offpolicy.models.rewards.base import Savable
from offpolicy.results import storage as files

SOURCE = Path(op.__file__).parent


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli")
    assert run("simulate", path / "log.parquet", "--rounds", 3000, "--actions", 5).exit_code == 0
    (path / "mine_saved.py").write_text("import offpolicy as op\nnew = op.Uniform()\nestimator = op.SNIPS(name='mine')\n")
    return path


def usual(folder: Path) -> list[object]:
    return [folder / "log.parquet", "--context", "x0,x1,x2,x3,x4", "--action", "item", "--reward", "click",
            "--propensity", "propensity"]  # fmt: skip


def test_the_command_saves_and_reports_again(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    done = run("evaluate", *usual(folder), "--target", "items,p_items_new", "--save", path)
    again = run("report", path, "--html", tmp_path / "r.html", "--markdown", tmp_path / "r.md", "--plot", tmp_path / "r.png")
    assert (again.exit_code, again.stdout) == (done.exit_code, done.stdout)
    assert f"Saved: {path}" in done.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"r.json", "r.html", "r.md", "r.png"}
    assert json.loads(run("report", path, "--json").stdout)["rounds"] == 3000
    loud = run("evaluate", *usual(folder), "--target", "p_new", "--estimator", "snips", "--save", tmp_path / "LOUD.JSON")
    assert f"Saved: {tmp_path / 'LOUD.JSON'}" in loud.stderr
    with pytest.raises(op.InputError, match=r"the name must end in \.json"):
        raise run("evaluate", *usual(folder), "--target", "p_new", "--save", tmp_path / "r.txt").exception


def test_a_verdict_keeps_its_exit_code(awkward_result: op.Evaluation, tmp_path: Path) -> None:
    told = awkward_result.to_dict()
    lead = next(e for e in told["estimates"] if e["estimator"] == told["headline"]["estimator"])
    reason = {"verdict": "DO_NOT_TRUST", "code": "a", "seen": "b", "why": "c", "do": "d"}
    lead |= {"verdict": "DO_NOT_TRUST", "reasons": [reason]}
    files.write(tmp_path / "r.json", {**told, "verdict": "DO_NOT_TRUST"}, None)
    assert run("report", tmp_path / "r.json").exit_code == 3


def test_the_embedding_of_the_command_can_be_loaded(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.parquet"
    assert run("embed", *usual(folder)[:-2], "--out", out).exit_code == 0
    assert op.load_embedding(out).model == "Ridge()"


SETTINGS = """
logs = "{folder}/log.parquet"
context = "x0,x1,x2,x3,x4"
action = "item"
reward = "click"
propensity = "propensity"
"""


@pytest.mark.parametrize(
    "line", ['target = "a=mine_saved:new"', 'logging = "mine_saved:new"', 'estimator = ["mine_saved:estimator"]']
)
def test_a_settings_file_may_not_choose_what_is_imported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(folder)
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS.format(folder=folder) + line)
    loaded: list[str] = []
    monkeypatch.setattr(settings, "imported", lambda text: loaded.append(text) or op.Uniform())
    given = {} if line.startswith("target") else {"target": ["p_new"]}
    with pytest.raises(op.InputError, match=r"settings.toml: \w+ names 'mine_saved:\w+'.*add --import mine_saved"):
        settings.merged(file, given, settings.Accepted(settings.settings_of(evaluate)))
    with pytest.raises(op.InputError, match="--import mine_saved"):
        settings.merged(file, given, settings.Accepted(settings.settings_of(evaluate)), imports=["mine"])
    assert not loaded
    assert (
        settings.merged(file, given, settings.Accepted(settings.settings_of(evaluate)), imports=["mine_saved"])["action"]
        == "item"
    )


def test_embed_sees_of_a_shared_file_what_it_uses(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "imported", lambda text: pytest.fail(f"{text} was imported"))
    file, out = tmp_path / "settings.toml", tmp_path / "e.parquet"
    code = 'target = "mine_saved:new"\nlogging = "mine_saved:new"\nestimator = "mine_saved:estimator"\n'
    file.write_text(SETTINGS.format(folder=folder).replace('propensity = "propensity"', code))
    assert run("embed", "--config", file, "--out", out).exit_code == 0
    assert op.load_embedding(out).model == "Ridge()"


def test_the_user_may_allow_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS.format(folder=folder) + 'target = "mine_saved:new"\nestimator = "mine_saved:estimator"')
    refused = run("evaluate", "--config", file)
    assert isinstance(refused.exception, op.InputError)
    done = run("evaluate", "--config", file, "--import", "mine_saved", "--json")
    assert "mine" in [e["estimator"] for e in json.loads(done.stdout)["estimates"]]
    typed = run("evaluate", *usual(folder), "--target", "mine_saved:new", "--estimator", "mine_saved:estimator", "--json")
    assert typed.stdout == done.stdout  # what is typed needs no leave


def test_nor_may_a_file_of_an_experiment(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    file = tmp_path / "e.toml"
    file.write_text('rounds = 100\n[world]\nkind = "linear"\n[estimators]\n"Mine" = "mine_saved:estimator"\n')
    with pytest.raises(op.InputError, match="Mine names 'mine_saved:estimator'.*--import mine_saved"):
        load(str(file))
    assert load(str(file), imports=["mine_saved"]).entries[0].foreign


FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "yaml", "code"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_METHODS = {
    ("torch", "load"), ("torch", "save"), ("np", "load"), ("np", "save"), ("numpy", "load"), ("pd", "read_pickle"),
    ("yaml", "load"), ("joblib", "load"), ("os", "system"), ("os", "popen"),
}  # fmt: skip
SPARK = {"engines/spark_errors.py", "engines/spark.py"}
"""PySpark sends functions to its workers as pickles of its own making; ours are wrapped once more, for words in errors."""


def breaches(source: str) -> list[str]:
    """What could run code that came from a file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] + ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
            found += [name for name in names if FORBIDDEN_MODULES & set(name.split("."))]
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
                found.append(node.func.id)
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                called = (node.func.value.id, node.func.attr)
                found += [".".join(called)] if called in FORBIDDEN_METHODS else []
            for word in node.keywords:
                risky = word.arg in ("allow_pickle", "shell") and getattr(word.value, "value", True) is not False
                found += [str(word.arg)] if risky else []
    return found


def test_the_package_reads_no_pickle_and_evaluates_no_text() -> None:
    found = {str(f.relative_to(SOURCE)): breaches(f.read_text()) for f in sorted(SOURCE.rglob("*.py"))}
    assert len(found) > 100
    assert {name: what for name, what in found.items() if what and name not in SPARK} == {}
    assert {name for name in SPARK if set(found[name]) - {"cloudpickle"}} == set()


@pytest.mark.parametrize(
    "line",
    ["import pickle", "from joblib import load", "from pyspark import cloudpickle", "eval('1')", "np.load(f, allow_pickle=True)",
     "import torch\ntorch.load(f)", "read(allow_pickle=x)", "run('ls', shell=True)", "import os.path, dill.source"],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(line: str) -> None:
    assert breaches(line)


def test_modules_are_imported_by_name_in_one_place() -> None:
    """Optional packages, and what the user typed or allowed. (Our own names are loaded by lazy-loader.)"""
    users = {str(f.relative_to(SOURCE)) for f in SOURCE.rglob("*.py") if "import_module" in f.read_text()}
    assert users == {"core/imports.py"}
    callers = {str(f.relative_to(SOURCE)) for f in SOURCE.rglob("*.py") if "imported(" in f.read_text()}
    assert callers == {"core/imports.py", "cli/settings.py", "estimators/text.py", "policies/text.py"}


def test_states_travel_as_plain_arrays() -> None:
    """Even Spark: what comes back from the workers is Arrow, and an array of objects, which is a pickle, is no dtype there."""
    from offpolicy.statistics.wire import Leaf

    row = {"piece": "a", "leaf": 0, "dtype": "|O", "shape": [1], "data": bytes(8)}
    scalars = {name: pa.scalar(value) for name, value in row.items()}
    with pytest.raises(ValueError, match="cannot create an OBJECT array"):
        Leaf.of(scalars)


def test_kinds_of_saved_files_have_loaders() -> None:
    assert all(callable(getattr(op, f"load_{kind}")) for kind in storage.VERSIONS if kind != "monitor")
    assert callable(op.Monitor.load)
    own = {kind for kind, made in Savable.kinds().items() if made.__module__.startswith("offpolicy.")}
    assert own == {"linear", "dotted", "network"}

"""The command and settings files take each part of the user's own as `module:object`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import offpolicy as op
from offpolicy.cli import settings
from offpolicy.cli.app import app, evaluate

MODULE = """
import dataclasses
import numpy as np
import offpolicy as op

rng = np.random.default_rng(0)
action = rng.integers(0, 3, 300)
log = op.Log(rng.normal(size=(300, 2)), action, action + rng.normal(size=300), propensity=np.full(300, 1 / 3))
new = op.Fixed([0.2, 0.3, 0.5])
estimator = op.SNIPS(name="mine")
number = 3


def read():
    print("reading")
    return log


def fails():
    raise OSError("no such table")


def nothing():
    return None


def mean(log, policy):
    print("averaging")
    batch = log.head(len(log))
    return float(policy.probabilities(batch, batch.action) @ batch.reward[:, 0] * 3 / len(batch))


def words(log, policy):
    return "0.5"


def raises(log, policy):
    raise ZeroDivisionError("no rounds")


@dataclasses.dataclass(frozen=True)
class Share(op.Diagnostic):
    action: int = 2

    def zero(self):
        return {"rounds": np.zeros(2)}

    def fold(self, state, batch, scored):
        return {"rounds": state["rounds"] + [(batch.codes == self.action).sum(), len(batch)]}

    def findings(self, state, subject):
        seen = f"{self.numbers(state, subject)['share']:.1%} of the rounds."
        return [op.Finding(op.Verdict.CAUTION, f"share of {self.action}", seen, "Why.", "Do.")]

    def numbers(self, state, subject):
        return {"share": state["rounds"][0] / state["rounds"][1]}


class Needy(Share):
    def __init__(self, action):
        pass


first = Share(0)
"""
USUAL = ["--target", "own_command:new", "--estimator", "own_command:estimator"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_command.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_command", raising=False)
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["evaluate", *arguments])


def told(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return json.loads(done.stdout)


def codes(result: dict[str, Any], estimator: str) -> list[str]:
    return [r["code"] for e in result["estimates"] if e["estimator"] == estimator for r in e["reasons"]]


@pytest.mark.parametrize("name", ["log", "read"])
def test_a_log_is_named_in_the_place_of_files(name: str) -> None:
    done = run(f"own_command:{name}", *USUAL, "--json")
    printed = json.loads(done.stdout)  # what the function prints goes to stderr
    assert ("reading" in done.stderr) == (name == "read")
    own = sys.modules["own_command"]
    expected = op.evaluate(own.log, own.new, own.estimator, progress=False)
    assert printed == json.loads(json.dumps(expected.to_dict()))


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("own_command:number", "own_command:number has type int; name an op.Log, or a function"),
        ("own_command:nothing", "own_command:nothing has type NoneType; name an op.Log"),
        ("own_command:fails", "own_command:fails: the function raised OSError: no such table"),
        ("own_command:lgo", "Did you mean 'log'"),
        ("no_such_module:log", "cannot import 'no_such_module'"),
        ("own_command:Needy", "own_command:Needy: the function raised TypeError"),
    ],
)
def test_what_is_not_a_log(named: str, message: str) -> None:
    refused = run(named, *USUAL).exception
    assert isinstance(refused, op.InputError)
    assert message in str(refused)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--context", "x0"], "context: only for logs in files; own_command:log is already a log"),
        (["--by", "day", "--reward-range", "0,1"], "by, reward_range: only for logs in files"),
        (["other.parquet"], "logs: own_command:log is a complete log; give nothing else."),
        (["--engine", "spark", "--threads", "2"], "threads has no effect on the engine 'spark'"),
    ],
)
def test_settings_of_files_are_refused(options: list[str], message: str) -> None:
    refused = run("own_command:log", *USUAL, *options).exception
    assert isinstance(refused, op.InputError)
    assert message in str(refused)


def test_a_file_of_such_a_name_is_a_file(folder: Path) -> None:
    (folder / "own_command:log").write_text("no log")
    assert "action: missing" in str(run("own_command:log", *USUAL).exception)


def test_an_embedding_is_learned_from_it(folder: Path) -> None:
    done = CliRunner().invoke(app, ["embed", "own_command:log", "--out", "e.parquet"])
    assert done.exit_code == 0, done.exception
    assert len(op.load_embedding(folder / "e.parquet")) == 3


def test_diagnostics_are_named() -> None:
    result = told("own_command:log", *USUAL, "--diagnostic", "own_command:first", "--diagnostic", "own_command:Share")
    assert [code for code in codes(result, "mine") if code.startswith("share")] == ["share of 0", "share of 2"]
    own = sys.modules["own_command"]
    assert result["estimates"][-1]["diagnostics"]["share"] == (own.action == 2).mean()  # the last one with this name
    assert "share of 0" not in codes(told("own_command:log", *USUAL), "mine")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("own_command:number", "own_command:number has type int; give an op.Diagnostic."),
        ("own_command:Needy", "own_command:Needy: cannot be created without settings"),
        ("own_command:estimator", "own_command:estimator has type SNIPS; give an op.Diagnostic."),
        ("builtins:int", "builtins:int has type type; give an op.Diagnostic."),
        ("own_command:frist", "Did you mean 'first'"),
        ("no_such_module:check", "cannot import 'no_such_module'"),
        ("overlap", "diagnostic 'overlap': name your own as module:object"),
    ],
)
def test_what_is_not_a_diagnostic(named: str, message: str) -> None:
    refused = run("own_command:log", *USUAL, "--diagnostic", named).exception
    assert isinstance(refused, op.InputError)
    assert message in str(refused)


def test_a_settings_file_names_all_of_them(folder: Path) -> None:
    (folder / "job.toml").write_text(
        'logs = "own_command:log"\ntarget = "new=own_command:new"\nestimator = "own_command:estimator"\n'
        'diagnostic = ["own_command:first", "own_command:Share"]\n'
    )
    result = told("--config", "job.toml", "--import", "own_command")
    assert result["policies"] == ["new"]
    assert "share of 0" in codes(result, "mine")
    assert "share of 2" in codes(result, "mine")
    typed = told("--config", "job.toml", "--import", "own_command", "--diagnostic", "own_command:first")
    assert "share of 2" not in codes(typed, "mine")  # options win over the file


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('logs = "own_command:log"', "own_command:log"),
        ('diagnostic = "own_command:first"', "own_command:first"),
        ('diagnostic = "own_command:x=allowed:first"', "own_command:x=allowed:first"),
        ('logging = "own_command:x=allowed:new"', "own_command:x=allowed:new"),
    ],
)
def test_a_settings_file_may_not_choose_what_is_imported(folder: Path, line: str, named: str) -> None:
    (folder / "job.toml").write_text(line)
    with pytest.raises(op.InputError, match=f"names '{named}'.*add --import own_command"):
        settings.merged(Path("job.toml"), {}, settings.Accepted(settings.settings_of(evaluate)), imports=["allowed"])
    assert "own_command" not in sys.modules


def test_an_estimator_of_your_own_has_the_name_it_is_given() -> None:
    done = run("own_command:log", "--target", "own_command:new", "--estimator", "own_command:estimator",
               "--estimator", "again=own_command:estimator", "--estimator", "A=dr,B=ips", "--json")  # fmt: skip
    estimates = {e["estimator"]: e["value"] for e in json.loads(done.stdout)["estimates"]}
    assert list(estimates) == ["LoggedMean", "mine", "again", "A", "B"]
    assert estimates["again"] == estimates["mine"]


def test_plain_functions_are_estimators_of_evaluate(tmp_path: Path) -> None:
    """The function is IPS: its value is the same, and it has no error; in text, JSON, HTML and a saved result."""
    arguments = ["own_command:log", "--target", "a=own_command:new", "--target", "b=own_command:new"]
    arguments += ["--estimator", "ips", "--estimator", "own_command:mean", "--estimator", "mine=own_command:mean"]
    saved, page = tmp_path / "r.json", tmp_path / "r.html"
    done = run(*arguments, "--json", "--save", str(saved), "--report", str(page))
    assert done.exit_code == 0, done.output
    estimates = {(e["policy"], e["estimator"]): e for e in json.loads(done.stdout)["estimates"]}
    for policy in ("a", "b"):
        assert estimates[policy, "mine"]["value"] == pytest.approx(estimates[policy, "IPS"]["value"], rel=1e-12)
        assert estimates[policy, "own_command:mean"]["std_error"] is None
        assert estimates[policy, "mine"]["verdict"] == "CAUTION"
    loaded = op.load_result(saved)
    assert loaded["a", "mine"].value == estimates["a", "mine"]["value"]
    assert "without a standard error" in str(loaded)
    assert "without a standard error" in page.read_text()
    alone = run("own_command:log", "--target", "own_command:new", "--estimator", "mine=own_command:mean")
    assert "mine estimates" in alone.stdout
    assert "averaging" not in alone.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--estimator", "x=own_command:words"], "x: the function returned '0.5'; it must return a finite number."),
        (["--estimator", "own_command:raises"], "own_command:raises: the function raised ZeroDivisionError: no rounds"),
        (["--estimator", "own_command:mean"] * 2, "two estimators are called 'own_command:mean'"),
        (["--estimator", "IPS=own_command:mean", "--estimator", "ips"], "two estimators are called 'IPS'"),
        (["--estimator", "x=own_command:number"], "own_command:number has type int; give an op.Estimator"),
    ],
)
def test_what_a_function_may_not_do(options: list[str], message: str) -> None:
    done = run("own_command:log", "--target", "own_command:new", *options)
    assert message in str(done.exception)


def test_a_file_may_not_hide_an_import_behind_a_name(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('estimator = "harmless=own_command:estimator"')
    done = run("own_command:log", "--target", "own_command:new", "--config", str(config))
    assert "add --import own_command" in str(done.exception)

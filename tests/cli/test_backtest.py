"""`offpolicy backtest`: tests in a TOML file, and what is wrong with some of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import offpolicy as op
from offpolicy.cli.app import app

COMMON = """
context = "x0,x1,x2,x3,x4"
action = "item"
reward = "click"
propensity = "propensity"
target = "p_new"
estimator = "snips"
"""
BOTH = """
[[pair]]
name = "May"
logs = "may.parquet"
earned = 0.25
std_error = 0.01
[[pair]]
name = "June"
logs = "june.parquet"
earned_logs = "may.parquet"
"""


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("backtest")
    for seed, name in enumerate(("may", "june")):
        done = run("simulate", path / f"{name}.parquet", "--rounds", 500, "--actions", 5, "--seed", seed)
        assert done.exit_code == 0
    (path / "mine_tested.py").write_text("import offpolicy as op\nnew = op.Uniform()\n")
    return path


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def backtest(text: str, *options: object) -> Any:
    Path("tests.toml").write_text(text)
    return run("backtest", "tests.toml", *options)


def test_the_command_says_what_python_says() -> None:
    def log(name: str) -> op.Log:
        columns = [f"x{k}" for k in range(5)]
        return op.read_log(name, context=columns, action="item", reward="click", propensity="propensity")

    pairs = [
        op.Pair(log("may.parquet"), op.Column("p_new"), 0.25, 0.01, name="May"),
        op.Pair(log("june.parquet"), op.Column("p_new"), log("may.parquet"), name="June"),
    ]
    expected = op.backtest(pairs, op.SNIPS(), level=0.9)
    done = backtest("level = 0.9\n" + COMMON + BOTH, "--plot", "b.png")
    assert (done.exit_code, done.stdout.strip()) == (0, str(expected))
    assert Path("b.png").stat().st_size > 5_000
    told = json.loads(backtest("level = 0.9\n" + COMMON + BOTH, "--json").stdout)
    assert told == json.loads(json.dumps(expected.to_dict()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (COMMON, r"tests.toml has no pairs: describe each past test in a table \[\[pair\]\]"),
        (COMMON + BOTH.replace("earned = 0.25\n", ""), "pair 1: give what the policy earned"),
        (COMMON + BOTH.replace("earned = 0.25\n", 'earned = 0.25\nearned_logs = "may.parquet"\n'), "either earned and std_error"),
        (COMMON + BOTH.replace("std_error = 0.01\n", ""), "May: std_error is missing"),
        (COMMON + BOTH.replace("earned = 0.25", 'earned = "much"'), "pair 1: earned is 'much', but must be a number"),
        (COMMON + BOTH.replace("std_error", "sd_error"), "pair 1: .*sd_error"),
        (COMMON + BOTH.replace("may.parquet", "april.parquet"), "april.parquet"),
        (COMMON.replace("p_new", "p_newer") + BOTH, "May: .*p_newer"),
        (COMMON.replace("propensity = ", "propensities = ") + BOTH, "pair 1: .*propensities"),
        (COMMON.replace('"p_new"', '["a=p_new", "b=uniform"]') + BOTH, "target names 2 policies"),
        (COMMON.replace('"p_new"', '"mine_tested:new"') + BOTH, "pair 1: target names 'mine_tested:new'.*--import mine_tested"),
        (COMMON.replace('"snips"', '"mine_tested:new"') + BOTH, "--import mine_tested"),
        ("pair = 3\n" + COMMON, "has no pairs"),
    ],
)  # fmt: skip
def test_awkward_files(text: str, message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        raise backtest(text).exception


def test_the_user_may_allow_an_import() -> None:
    done = backtest(COMMON.replace('"p_new"', '"mine_tested:new"') + BOTH, "--import", "mine_tested")
    assert done.exit_code == 0, done.exception


def test_a_missing_file_and_a_wrong_picture() -> None:
    with pytest.raises(op.InputError, match="no such file"):
        raise run("backtest", "nowhere.toml").exception
    with pytest.raises(op.InputError, match=r"must end in \.png"):
        raise backtest(COMMON + BOTH, "--plot", "b.txt").exception

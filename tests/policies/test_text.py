"""Policies as text: by name, by column, and as an object of a module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import offpolicy as op
from offpolicy.cli.app import app
from offpolicy.policies.text import names_module, policy


def table() -> pd.DataFrame:
    lists = [["a", "b"], ["c", "b", "b"], ["a", "b", "c"]]
    return pd.DataFrame({
        "x": np.arange(60) / 60, "action": np.tile(["a", "b", "c"], 20), "p": 1 / 3, "reward": np.arange(60) % 7 / 7,
        "best": np.repeat(["a", "b"], 30), "items": [lists[k % 3] for k in range(60)], "uniform": 1 / 3,
    })  # fmt: skip


@pytest.fixture(scope="module")
def log() -> op.Log:
    return op.read_log(table(), context=["x"], action="action", reward="reward", propensity="p")


def test_uniform_over_candidates_counts_each_candidate_once(log: op.Log) -> None:
    p = np.zeros((60, 3))
    for k, items in enumerate(table()["items"]):
        for item in set(items):
            p[k, "abc".index(item)] = 1 / len(set(items))
    result = op.evaluate(log, {"lists": op.Uniform(candidates="items"), "table": p}, [op.IPS(), op.DR()])
    for name in ("IPS", "DR"):
        assert result["lists", name].value == pytest.approx(result["table", name].value, rel=1e-12)
    np.testing.assert_allclose(op.Uniform("items").probabilities(log.head(60, ("items",))), p)
    with pytest.raises(op.InputError, match="^Uniform: the column of actions contains double, not lists"):
        op.evaluate(log, op.Uniform(candidates="x"), [op.IPS()])
    with pytest.raises(op.InputError, match="^Uniform: candidates must be the name of one list column"):
        op.Uniform(candidates=["a", "b"])


def test_a_round_without_candidates_is_named() -> None:
    frame = table()
    frame.at[4, "items"] = []
    log = op.read_log(frame, context=["x"], action="action", reward="reward", propensity="p")
    with pytest.raises(op.InputError, match=r"^Uniform: 1 row has no candidate .*row 4\). Every round needs at least one"):
        op.evaluate(log, op.Uniform(candidates="items"), [op.IPS()])


@pytest.mark.parametrize(("text", "expected"), [
    ("uniform", op.Uniform()),
    ("uniform:items", op.Uniform(candidates="items")),
    ("deterministic:best", op.Deterministic("best")),
    ("offpolicy:Uniform", op.Uniform()),
])  # fmt: skip
def test_policies_by_name(text: str, expected: op.Policy) -> None:
    assert policy(text) == expected
    assert names_module(text) == text.startswith("offpolicy")


def test_a_column_with_the_name_of_a_policy() -> None:
    assert repr(policy("column:uniform")) == "Column('uniform')"
    assert repr(policy("deterministic")) == "Column('deterministic')"
    with pytest.raises(op.InputError, match="policy 'deterministic:': name a column of the log"):
        policy("deterministic:")


def test_the_advice_for_a_class_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = r"^offpolicy:Softmax is a class that needs arguments\. Create the policy in a Python file, such as `new = Softmax\(…\)`"
    with pytest.raises(op.InputError, match=said):
        policy("offpolicy:Softmax")
    with pytest.raises(op.InputError, match="^offpolicy:IPS is a class, but not one of policies"):
        policy("offpolicy:IPS")
    (tmp_path / "policies_of_a_test.py").write_text("import offpolicy as op\nnew = op.Softmax(lambda x: x @ [[0, 0, 1]])\n")
    monkeypatch.chdir(tmp_path)
    assert isinstance(policy("policies_of_a_test:new"), op.Softmax)


def test_the_command_takes_them_also_from_a_settings_file(tmp_path: Path, log: op.Log) -> None:
    """A name is no module, so that a file needs no --import for it."""
    table().to_parquet(tmp_path / "log.parquet")
    settings = tmp_path / "settings.toml"
    settings.write_text('target = ["same=uniform", "best=deterministic:best", "few=uniform:items"]\nestimator = ["ips"]\n')
    usual = ["--context", "x", "--action", "action", "--reward", "reward", "--propensity", "p", "--json"]
    result = CliRunner().invoke(app, ["evaluate", str(tmp_path / "log.parquet"), "--config", str(settings), *usual])
    assert result.exit_code in (0, 3), result.output
    import json

    values = {each["policy"]: each["value"] for each in json.loads(result.stdout)["estimates"]}
    policies = {"same": op.Uniform(), "best": op.Deterministic("best"), "few": op.Uniform("items")}
    for name, target in policies.items():
        assert values[name] == pytest.approx(op.evaluate(log, target, [op.IPS()])["IPS"].value)

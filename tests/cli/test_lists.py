"""Logs of lists on the command line: CSV cells and one row per slot, and policies as text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import offpolicy as op
from offpolicy.cli.app import app
from offpolicy.data.space_text import action_space
from offpolicy.policies.text import names_module, policy

N, ITEMS = 60, ["a", "b", "c"]
ROLES = ["--context", "x", "--reward", "clicks", "--propensity", "p", "--actions", "slate:2", "--gain", "1,0.5", "--json"]


def table() -> pd.DataFrame:
    """Two of three items, all orders equally likely; scores of the new policy in a list column."""
    rng = np.random.default_rng(0)
    shown = [list(rng.permutation(ITEMS)[:2]) for _ in range(N)]
    return pd.DataFrame({
        "id": np.arange(N), "x": rng.normal(size=N), "items": shown, "clicks": rng.integers(2, size=(N, 2)).tolist(),
        "p": [[1 / 3, 1 / 2]] * N, "eligible": [ITEMS[::-1]] * N, "scores": rng.normal(size=(N, 3)).tolist(),
    })  # fmt: skip


def answer(*arguments: object) -> dict[str, float]:
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments), *ROLES])
    assert result.exit_code in (0, 3), result.output
    return {each["estimator"]: each["value"] for each in json.loads(result.stdout)["estimates"]}


def test_cells_and_rows_give_the_answer_of_python(tmp_path: Path) -> None:
    whole = table()
    scores = np.array(whole["scores"].tolist())[:, ::-1]  # those of a, b, c
    log = op.Log(
        whole["x"], whole["items"].tolist(), whole["clicks"].tolist(), logging=op.PlackettLuce(0), actions=op.Slate(2, ITEMS),
        gain=[1, 0.5],
    )  # fmt: skip
    expected = op.evaluate(log, op.PlackettLuce(scores, 0.5), [op.SIPS(), op.IIPS()])
    for name in ("items", "clicks", "p", "eligible", "scores"):
        whole[name] = ["|".join(map(str, cell)) for cell in whole[name]]
    whole.to_csv(tmp_path / "cells.csv")
    both = ["--estimator", "sips", "--estimator", "iips", "--logging", "shuffled"]
    values = answer(tmp_path / "cells.csv", "--action", "items", "--target", "plackett-luce:eligible,scores,0.5", *both)
    assert values == pytest.approx({each.estimator: each.value for each in expected})
    rows = table().explode(["items", "clicks", "p"])
    rows["slot"] = np.tile([1, 2], N)
    rows.drop(columns=["eligible", "scores"]).to_csv(tmp_path / "rows.csv")
    one = ["--list-id", "id", "--slot", "slot", "--action", "items", "--target", "p", "--estimator", "sips"]
    assert answer(tmp_path / "rows.csv", *one)["SIPS"] == pytest.approx(
        op.evaluate(log, op.PlackettLuce(0))["LoggedMean"].value
    )


def test_policies_of_lists_as_text() -> None:
    for text in ("plackett-luce:scores", "plackett-luce:items,scores", "shuffled", "shuffled:items", "factored:uniform"):
        assert repr(policy(text)).startswith(("PlackettLuce(", "Factored("))
        assert not names_module(text)
    with pytest.raises(op.InputError, match=r"give plackett-luce:ITEMS,SCORES, two list columns"):
        policy("plackett-luce:a,b,c")
    with pytest.raises(op.InputError, match=r"write op.Factored\(…\) in the module"):
        policy("factored:module:policy")


@pytest.mark.parametrize("text", ["slate", "slate:", "slate:many", "slate:2:3:4"])
def test_malformed_slates(text: str) -> None:
    with pytest.raises(op.InputError, match="give slate:SLOTS, such as slate:8"):
        action_space(text)

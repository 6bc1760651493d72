"""Candidates per round for rankings: only they can be shown, in any order of the list columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import offpolicy as op

SCORES = {"a": 0.3, "b": -1.0, "c": 0.8, "d": 2.0}


def frame() -> pd.DataFrame:
    eligible = [["c", "a"], ["d", "b", "a"], ["a", "b", "c", "d"]]
    return pd.DataFrame({
        "x": [1.0, 2.0, 3.0], "items": [["a", "c"], ["b", "d"], ["d", "a"]], "clicks": [[1, 0], [0, 1], [1, 1]],
        "p": [[0.5, 1.0], [1 / 3, 1 / 2], [1 / 4, 1 / 3]], "eligible": eligible,
        "scores": [[SCORES[item] for item in each] for each in eligible],
    })  # fmt: skip


def log(changed: pd.DataFrame | None = None, **more: object) -> op.Log:
    given = {"context": "x", "action": "items", "reward": "clicks", "propensity": "p", "actions": op.Slate(2), **more}
    return op.read_log(frame() if changed is None else changed, **given)  # type: ignore[arg-type]


def by_hand() -> list[float]:
    """π of each list: the product over slots of v / (the sum of v of what is left of the candidates)."""
    out = []
    for items, eligible in zip(frame()["items"], frame()["eligible"], strict=True):
        v = {item: np.exp(SCORES[item]) for item in eligible}
        out.append(v[items[0]] / sum(v.values()) * v[items[1]] / (sum(v.values()) - v[items[0]]))
    return out


def test_by_hand_with_scores_from_a_function_a_matrix_or_a_column() -> None:
    weights = np.array(by_hand()) / [0.5, 1 / 6, 1 / 12]
    every = np.tile([SCORES[item] for item in "abcd"], (3, 1))
    for scores in (lambda x: every[: len(x)], every, "scores"):
        estimate = op.evaluate(log(), op.PlackettLuce(scores, candidates="eligible"), op.SIPS())["SIPS"]
        assert estimate.value == pytest.approx(weights @ [1, 1, 2] / 3, rel=1e-12)
    logging = op.PlackettLuce(0, candidates="eligible")
    for estimator in (op.SIPS(), op.IIPS(), op.PBM([1, 1]), op.PI()):
        own = op.evaluate(log(logging=logging), logging, estimator)[estimator.name]
        assert own.value == pytest.approx(4 / 3, rel=1e-6)  # the mean of the log: all weights are 1


@pytest.mark.parametrize(("column", "cell", "message"), [
    ("eligible", ["c"], r"PlackettLuce: 1 row has 2 scores for 1 candidates, or other numbers .*row 0"),
    ("eligible", ["a", "z"], r"PlackettLuce: 1 row has an action that is not among the 4 known .*'z'.*row 0"),
    ("eligible", [], r"PlackettLuce: 1 row has no candidate .*row 0"),
    ("scores", [0.5, None], r"PlackettLuce: 1 row has a score that is missing or infinite .*row 0"),
    ("items", ["a", "a"], r"1 row has an item twice \(the second in slot 2\) .*row 0"),
])  # fmt: skip
def test_what_is_wrong(column: str, cell: list[object], message: str) -> None:
    changed = frame()
    changed.at[0, column] = cell
    with pytest.raises(op.InputError, match=message):
        op.evaluate(log(changed), op.PlackettLuce("scores", candidates="eligible"), op.SIPS())


def test_an_item_that_the_logging_policy_could_not_show() -> None:
    changed = frame()
    changed.at[1, "eligible"] = ["a", "b", "c"]
    with pytest.raises(op.InputError, match=r"zero probability under the logging policy \(the first: slot 2\) .*row 1"):
        op.evaluate(log(changed, logging=op.PlackettLuce(0, candidates="eligible")), op.PlackettLuce(0), op.SIPS())

"""A new policy's chance of every candidate from a CSV file: lists as text, or one column an action."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

import offpolicy as op
from offpolicy.data.list_cells import plain_lists
from offpolicy.data.sources import read_log

ITEMS = ["red shoe", "blue, hat", "it's", "7"]
ROWS = 400


@pytest.fixture(scope="module")
def chances() -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(4), ROWS)


@pytest.fixture(scope="module")
def frame(chances: np.ndarray) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    taken = rng.integers(0, 4, ROWS)
    columns = {"age": rng.normal(size=ROWS), "item": np.array(ITEMS)[taken], "click": rng.integers(0, 2, ROWS), "p": 0.25}
    return pd.DataFrame(columns)


def value(path: Path, target: object) -> float:
    log = read_log(path, context="age", action="item", reward="click", propensity="p")
    return op.evaluate(log, target, [op.DR()])["DR"].value


WAYS = {
    "json": lambda items, p: (json.dumps(items), json.dumps(p.tolist())),
    "python": lambda items, p: (str(items), str(p.tolist())),
    "numpy": lambda items, p: (str([np.str_(i) for i in items]), str([np.float64(x) for x in p])),
    "numpy, no commas": lambda items, p: (json.dumps(items), np.array2string(p, precision=17)),
    "bars": lambda items, p: ("|".join(items).replace(", ", "/"), " | ".join(map(repr, p.tolist()))),
}


@pytest.mark.parametrize("way", WAYS)
def test_lists_as_text(tmp_path: Path, frame: pd.DataFrame, chances: np.ndarray, way: str) -> None:
    order = np.argsort(np.random.default_rng(2).random((ROWS, 4)), axis=1)  # each round in an order of its own
    cells = [WAYS[way]([ITEMS[k] for k in row], p[row]) for row, p in zip(order, chances, strict=True)]
    frame = frame.assign(items=[c[0] for c in cells], p_items=[c[1] for c in cells])
    if way == "bars":
        frame["item"] = frame["item"].str.replace(", ", "/")
    frame.to_csv(tmp_path / "log.csv", index=False)
    codes = np.argsort(np.argsort(sorted(ITEMS)))
    table = chances[:, [ITEMS.index(label) for label in sorted(ITEMS)]][:, codes]
    expected = value(tmp_path / "log.csv", op.Table(table))
    assert value(tmp_path / "log.csv", op.Candidates("items", "p_items")) == pytest.approx(expected, rel=1e-12)


def test_one_column_an_action(tmp_path: Path, frame: pd.DataFrame, chances: np.ndarray) -> None:
    wide = frame.assign(**{f"new_{item}": chances[:, k] for k, item in enumerate(ITEMS)})
    wide.to_csv(tmp_path / "log.csv", index=False)
    expected = value(tmp_path / "log.csv", op.Table(chances[:, [ITEMS.index(label) for label in sorted(ITEMS)]]))
    assert value(tmp_path / "log.csv", "new_*") == expected
    assert value(tmp_path / "log.csv", op.Columns({item: f"new_{item}" for item in ITEMS})) == expected
    mixed = op.Mixture(["new_*", op.Uniform()], [0.5, 0.5])
    uniform = value(tmp_path / "log.csv", op.Uniform())
    assert value(tmp_path / "log.csv", mixed) == pytest.approx((expected + uniform) / 2, rel=1e-9)


def test_what_is_wrong_is_said(tmp_path: Path, frame: pd.DataFrame, chances: np.ndarray) -> None:
    wide = frame.assign(**{f"new_{item}": chances[:, k].round(3) for k, item in enumerate(ITEMS)})
    wide.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(op.InputError, match=r"Columns: \d+ rows do not sum to 1 .*rounding to a few digits"):
        value(tmp_path / "log.csv", "new_*")
    with pytest.raises(op.InputError, match="there is no column 'neu_7'"):
        value(tmp_path / "log.csv", "neu_*")
    with pytest.raises(op.InputError, match="'hat' is not an action of this log"):
        value(tmp_path / "log.csv", op.Columns({"hat": "new_7"}))
    with pytest.raises(op.InputError, match=r"needs one \*"):
        op.Columns("new")
    with pytest.raises(op.InputError, match="contains double, not lists"):
        value(tmp_path / "log.csv", op.Candidates("item", "new_7"))


def test_codes_as_text(tmp_path: Path) -> None:
    """Whole numbers in lists are codes where actions are; other text is refused."""
    frame = pd.DataFrame(
        {"x": 0.0, "a": [0, 1, 2, 1], "r": 1.0, "p": 0.5, "l": ["0|1", "1|2", "2|0", "1|0"], "q": "0.5|0.5"}
    )
    frame.to_csv(tmp_path / "log.csv", index=False)
    log = read_log(tmp_path / "log.csv", context="x", action="a", reward="r", propensity="p")
    assert op.evaluate(log, op.Candidates("l", "q"), [op.IPS()])["IPS"].value == 1.0
    frame.assign(l="a|b").to_csv(tmp_path / "log.csv", index=False)
    log = read_log(tmp_path / "log.csv", context="x", action="a", reward="r", propensity="p")
    with pytest.raises(op.InputError, match="actions are integer codes here"):
        op.evaluate(log, op.Candidates("l", "q"), [op.IPS()])


@given(
    st.lists(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1), min_size=1), min_size=1)
)
def test_json_lists_come_back_as_they_were(lists: list[list[str]]) -> None:
    import pyarrow as pa

    assert plain_lists(pa.array([json.dumps(each) for each in lists])).to_pylist() == lists


@given(st.lists(st.text(), min_size=1))
def test_any_text_gives_lists(cells: list[str]) -> None:
    import pyarrow as pa

    found = plain_lists(pa.array(cells)).to_pylist()
    assert len(found) == len(cells)
    assert all(isinstance(part, str) for each in found for part in each)

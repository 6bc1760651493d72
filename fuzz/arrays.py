"""Logs from arrays: `op.Log` with columns of any type, in which one cell or one setting may be invalid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import offpolicy as op
from fuzz.judging import Truth, Verdict, judged, truth_of
from fuzz.values import ODD_CELLS, ODD_TEXTS, columns, hurts

DTYPES = ("f2", "f4", "f8", "i1", "i8", "u1", "u8", "O", "U", "S", "?", "c8", "M8[D]", "m8[s]", "longdouble")
FINE, ODD, BAD = "fine", "odd", "bad"
"""Whether a setting must be accepted, may be refused, or must be refused."""

SETTINGS: tuple[tuple[str, Any, str], ...] = (
    ("level", 0.5, FINE), ("level", 0, BAD), ("level", 1, BAD), ("level", math.nan, BAD), ("level", math.inf, BAD),
    ("level", "0.9", BAD), ("level", None, BAD), ("level", 1 - 1e-17, BAD), ("level", True, BAD), ("level", 5e-324, ODD),
    ("level", [0.5], BAD), ("seed", 2**63 - 1, FINE), ("seed", -(2**63), FINE), ("seed", 2**63, BAD), ("seed", 1.5, BAD),
    ("seed", "0", BAD), ("seed", None, BAD), ("seed", True, ODD), ("seed", np.int64(3), FINE), ("cross_fit", 2, FINE),
    ("cross_fit", 1, BAD), ("cross_fit", -3, BAD), ("cross_fit", 2.5, BAD), ("cross_fit", "2", BAD), ("cross_fit", 10**9, ODD),
    ("cross_fit", math.nan, BAD), ("memory", "1GB", FINE), ("memory", 10**9, FINE), ("memory", "1 gb ", FINE), ("memory", "", BAD),
    ("memory", "GB", BAD), ("memory", -1, BAD), ("memory", 0, BAD), ("memory", math.nan, BAD), ("memory", math.inf, BAD),
    ("memory", "1e400GB", ODD), ("memory", "١GB", ODD), ("memory", [1], BAD), ("memory", True, BAD),
)  # fmt: skip
LOG_SETTINGS: tuple[tuple[str, Any, str], ...] = (
    ("n_actions", 3, FINE), ("n_actions", 50, FINE), ("n_actions", 2, BAD), ("n_actions", 0, BAD), ("n_actions", -1, BAD),
    ("n_actions", 2.5, BAD), ("n_actions", "3", BAD), ("n_actions", True, BAD), ("n_actions", 10**30, ODD), ("n_actions", [3], BAD),
    ("n_actions", math.nan, BAD), ("n_actions", np.int32(3), FINE), ("actions", "labels", FINE), ("actions", [2, 1, 0], FINE),
    ("actions", [0, 1], BAD), ("actions", [0, 1, 1, 2], BAD), ("actions", [0, 1, 2, None], BAD), ("actions", "label", BAD),
    ("actions", ["0", "1", "2"], ODD), ("actions", [], BAD), ("actions", [[0, 1, 2]], BAD), ("actions", [0, "1", 2.0], ODD),
    ("actions", 3, BAD), ("actions", {0: 1, 1: 1, 2: 1}, ODD), ("actions", range(3), FINE), ("actions", [0.0, 1.0, 2.0], FINE),
    ("actions", [0, 1, 2, math.nan], ODD), ("actions", op.Discrete(3), FINE), ("actions", op.Discrete([2, 1, 0]), FINE),
    ("actions", op.Discrete(2), BAD), ("actions", op.Discrete([0, 1]), BAD), ("actions", op.Discrete, BAD),
    ("reward_range", (-1e9, 1e9), FINE), ("reward_range", (1, 0), BAD), ("reward_range", (0, 0), BAD), ("reward_range", (0,), BAD),
    ("reward_range", (math.nan, 1), BAD), ("reward_range", 1, BAD), ("reward_range", ("a", "b"), BAD),
    ("reward_range", (-math.inf, math.inf), ODD), ("reward_range", (None, 1), BAD), ("reward_range", (0, 1, 2), BAD),
    ("missing", "median", BAD), ("missing", 3, BAD), ("missing", ["mean"], BAD), ("missing", np.array(["mean", "level"]), BAD),
    ("dates", 5, BAD), ("dates", "minute", BAD), ("dates", [["hour"]], BAD), ("dates", "hour", BAD), ("levels", 0, BAD), ("levels", "8", BAD),
    ("levels", 2.5, BAD), ("levels", math.nan, BAD), ("levels", True, BAD), ("levels", 10**300, BAD),
)  # fmt: skip
COLUMNS = ("action", "reward", "p", "q", "x", "weight")


@dataclass(frozen=True)
class Arrays:
    """One log in memory."""

    columns: Mapping[str, Sequence[Any]]
    dtypes: Mapping[str, str] = field(default_factory=dict)
    log: Mapping[str, Any] = field(default_factory=dict)
    evaluate: Mapping[str, Any] = field(default_factory=dict)
    expected: str = FINE
    """What the settings deserve; what the columns deserve is computed."""

    def arrays(self) -> dict[str, Any]:
        return {name: np.array(cells, self.dtypes[name]) if name in self.dtypes else list(cells)
                for name, cells in self.columns.items()}  # fmt: skip

    def truth(self) -> Truth | None:
        if self.expected == BAD:
            return None
        plain = {
            name: np.array(v, self.dtypes[name]).tolist() if name in self.dtypes else v for name, v in self.columns.items()
        }
        if any(
            "M8" in kind or "m8" in kind or kind == "c8"
            for name, kind in self.dtypes.items()
            if name in ("reward", "p", "q", "weight")
        ):
            return None
        for name in ("reward", "x"):  # a matrix of one column is a column
            if all(isinstance(cell, list) and len(cell) == 1 for cell in plain[name]):
                plain[name] = [cell[0] for cell in plain[name]]
        certain = self.expected == FINE and all(_plain(name, plain[name], self.dtypes.get(name)) for name in plain)
        certain = certain and len(set(map(str, plain.get("row_id", (0, 1))))) > 1  # a constant one identifies nothing
        if len({len(v) for v in plain.values()}) > 1 or not _has_actions(plain["action"], self.log):
            return None
        if any(
            not isinstance(cell, str) and (cell is None or cell != cell or cell in (math.inf, -math.inf))
            for cell in plain["x"]
        ):
            return None
        return truth_of(plain, certain)

    def judge(self) -> Verdict:
        with np.errstate(all="ignore"):
            given, truth = self.arrays(), self.truth()

        def run() -> op.Evaluation:
            log = op.Log(
                given["x"], given["action"], given["reward"], propensity=given["p"], weight=given.get("weight"),
                cluster=given.get("cluster"), row_id=given.get("row_id"), by=given.get("by"), **self.log,
            )  # fmt: skip
            settings = dict(self.evaluate)
            method = settings.pop("interval", "normal")
            result = op.evaluate(log, op.Column(given["q"]), [op.IPS(), op.SNIPS()], **settings).with_interval(method)
            str(result)
            return result

        return judged(run, truth)


def _plain(name: str, cells: Sequence[Any], dtype: str | None) -> bool:
    """Whether nothing is objectionable: numbers where numbers belong, and values of one kind for units and slices."""
    kinds = {type(cell) for cell in cells}
    if name in ("reward", "p", "q", "weight", "x"):
        return (
            dtype not in ("O", "U", "S", "longdouble") and kinds <= {int, float, bool} and all(abs(c) <= 1e30 for c in cells)
        )
    if kinds == {int}:
        return min(cells) >= -(2**63) and max(cells) < 2**63
    return (
        not any(cell != cell for cell in cells)
        and kinds in ({str}, {float})
        and dtype not in ("O", "S")
        and "\x00" not in "".join(map(str, cells))
    )


def _has_actions(cells: Sequence[Any], log: Mapping[str, Any]) -> bool:
    """Whether there are at least two; codes must be 0 or more, and not so large that they look like ids."""
    if any(cell is None or cell != cell for cell in cells) or not cells:
        return False
    codes = all(type(cell) is int for cell in cells) and "actions" not in log
    if not codes and len(set(map(str, cells))) < 2 and not log:
        return False
    return not codes or (
        max(cells, default=0) > 0 and min(cells) >= 0 and (max(cells) < log.get("n_actions", max(10_000, len(cells))))
    )


LABELS = st.one_of(
    st.just([0, 1, 2]), st.just(["a", "b", "c"]), st.just([0.5, 1.5]), st.just([False, True]), st.just([0, 5, 9_999]), st.just([0, 10_000]),
    st.lists(st.sampled_from(ODD_TEXTS), min_size=2, max_size=3, unique=True),
)  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> Arrays:
    """A valid log, sometimes corrupted."""
    setting = draw(st.sampled_from(["none", "none", "log", "evaluate"]))
    made = draw(columns(None if setting == "log" else LABELS))
    n = len(made["reward"])
    if draw(st.booleans()):
        name = draw(st.sampled_from(["cluster", "row_id", "by"]))
        kind = st.one_of(st.integers(-3, 3), st.sampled_from(ODD_TEXTS), st.floats(), st.sampled_from(ODD_CELLS))
        made[name] = draw(
            st.lists(kind if draw(st.integers(0, 2)) == 0 else st.sampled_from(ODD_TEXTS), min_size=n, max_size=n)
        )
    dtypes: dict[str, str] = {}
    if setting == "none":
        for _ in range(hurts(draw)):
            _corrupt(draw, made, dtypes)
    log: dict[str, Any] = {}
    evaluate: dict[str, Any] = {}
    expected = FINE
    if setting != "none":
        name, value, expected = draw(st.sampled_from(LOG_SETTINGS if setting == "log" else SETTINGS))
        (log if setting == "log" else evaluate)[name] = value
        if name == "seed" and expected == FINE:
            evaluate["interval"] = "bootstrap"  # the one that draws
    return Arrays(made, dtypes, log, evaluate, expected)


def _corrupt(draw: st.DrawFn, made: dict[str, list[Any]], dtypes: dict[str, str]) -> None:
    how = draw(st.sampled_from(["cell", "cell", "all", "dtype", "shape"]))
    name = draw(st.sampled_from([each for each in COLUMNS if each in made]))
    cells = made[name]
    if not cells:
        return
    dtypes.pop(name, None)
    if how == "cell":
        cells[draw(st.integers(0, len(cells) - 1))] = draw(st.sampled_from(ODD_CELLS))
    elif how == "all":
        made[name] = [draw(st.sampled_from(ODD_CELLS))] * len(cells)
    elif how == "shape":
        made[name] = draw(
            st.sampled_from([cells[:1], cells[:-1], [*cells, cells[0]], [], [[c] for c in cells], [cells], [[]]])
        )
    else:
        dtype = draw(st.sampled_from(DTYPES))
        try:
            with np.errstate(all="ignore"):
                np.array(cells, dtype)
        except (TypeError, ValueError, OverflowError):
            return
        dtypes[name] = dtype

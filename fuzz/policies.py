"""Policies of every kind on a valid log: matrices, functions, scores, mixtures, columns and lists that may be invalid."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

import offpolicy as op
from fuzz.judging import Truth, Verdict, judged, number
from fuzz.values import hurts

ACTIONS = 3
PROBABILITY_CELLS: tuple[Any, ...] = (
    math.nan,
    math.inf,
    -math.inf,
    -0.25,
    -1e-12,
    1e-9,
    1e-300,
    2.0,
    1e308,
    -0.0,
    None,
    "x",
    "0.5",
    [0.5],
    1j,
    True,
)
KINDS = (
    "matrix",
    "function",
    "fixed",
    "labelled",
    "column",
    "mixture",
    "candidates",
    "candidate columns",
    "columns",
    "softmax",
    "greedy",
)


def probabilities(rows: Sequence[Sequence[Any]]) -> list[list[float]] | None:
    """The rows as numbers, if each is a distribution: not negative, with sum 1."""
    try:
        read = [[float(cell) for cell in row] for row in rows]
    except (TypeError, ValueError):
        return None
    if len({len(row) for row in read}) > 1 or not all(len(row) == ACTIONS for row in read):
        return None
    good = all(cell >= 0 and math.isfinite(cell) for row in read for cell in row) and all(
        abs(sum(row) - 1) <= 1e-5 for row in read
    )
    return read if good else None


@dataclass(frozen=True)
class Policy:
    """One policy, as a matrix of probabilities (or scores) that is passed in some form."""

    kind: str
    action: Sequence[int]
    reward: Sequence[float]
    rows: Sequence[Sequence[Any]]
    strange: str = ""
    """What the function does instead, or the invalid setting."""
    as_logging: bool = False

    def truth(self) -> Truth | None:
        n = len(self.action)
        if self.strange:
            return None
        if self.kind in ("softmax", "greedy"):
            read = self._scored()
        elif self.kind == "column":  # only the probability of the logged action is passed
            cells = [row[a] if a < len(row) else None for row, a in zip(self.rows, self.action, strict=False)]
            found = [number(cell) for cell in cells]
            read = None if None in found else [[f] * ACTIONS for f in found if f is not None]
        else:
            lists = "candidate" in self.kind or self.kind == "labelled"  # where an unlisted action has probability 0
            read = probabilities([[*row, *[0.0] * (ACTIONS - len(row))] if row and lists else row for row in self.rows])
        plain = all(type(cell) is float for row in self.rows for cell in row)
        if read is None or len(read) != n:
            return None
        logged = [row[a] for row, a in zip(read, self.action, strict=True)]
        if self.kind == "column" and not all(0 <= q <= 1 for q in logged):
            return None
        if self.as_logging:
            if not all(q > 0 for q in logged):
                return None
            return Truth.of(self.reward, logged, [1 / ACTIONS] * n, certain=plain and min(logged) > 1e-30)
        # Probabilities that sum to 1 within the tolerance are used as they are.
        return Truth.of(self.reward, [0.5] * n, logged, certain=plain)

    def _scored(self) -> list[list[float]] | None:
        """Softmax at temperature 1, or the best action with probability 0.9 + 0.1/3 (ties go to the first)."""
        try:
            scores = np.array(self.rows, dtype=np.float64)
        except (TypeError, ValueError):
            return None
        if scores.shape != (len(self.action), ACTIONS) or np.isnan(scores).any():
            return None
        if self.kind == "softmax" and not np.isfinite(scores.max(axis=1)).all():  # a score of −∞ is a probability of 0
            return None
        with np.errstate(all="ignore"):
            if self.kind == "softmax":
                e = np.exp(scores - scores.max(axis=1, keepdims=True))
                return (e / e.sum(axis=1, keepdims=True)).tolist()
        best = np.equal.outer(scores.argmax(axis=1), np.arange(ACTIONS))
        return (0.9 * best + 0.1 / ACTIONS).tolist()

    def judge(self) -> Verdict:
        with tempfile.TemporaryDirectory() as folder:
            return judged(lambda: self._run(Path(folder)), self.truth())

    def _run(self, folder: Path) -> op.Evaluation:
        n = len(self.action)
        policy = self.policy()
        old: dict[str, Any] = {"logging": policy} if self.as_logging else {"propensity": [0.5] * n}
        target = op.Uniform() if self.as_logging else policy
        if self.kind not in ("candidate columns", "columns"):
            log = op.Log([[k] for k in range(n)], list(self.action), list(self.reward), n_actions=ACTIONS, **old)
        else:
            table = pa.table(
                {"x": list(map(float, range(n))), "a": self.action, "r": self.reward, "p": [0.5] * n, **self._columns()}
            )
            pq.write_table(table, folder / "log.parquet")
            old = {"logging": policy} if self.as_logging else {"propensity": "p"}
            log = op.read_log(folder, context="x", action="a", reward="r", n_actions=ACTIONS, **old)
        return op.evaluate(log, target, [op.IPS(), op.SNIPS()])

    def _columns(self) -> dict[str, Any]:
        if self.kind == "columns":
            width = max(map(len, self.rows), default=0)
            return {f"c{k}": _array([row[k] if k < len(row) else None for row in self.rows]) for k in range(width)}
        return {"acts": [list(range(len(row))) for row in self.rows], "probs": _array([list(row) for row in self.rows])}

    def policy(self) -> Any:
        rows = [list(row) for row in self.rows]
        match self.kind:
            case "matrix":
                return rows
            case "function":
                return self._function()
            case "softmax":
                return op.Softmax(self._function())
            case "greedy":
                return op.EpsilonGreedy(self._function(), epsilon=0.1)
            case "fixed":
                return op.Fixed(rows[0])
            case "labelled":
                return op.Fixed(dict(enumerate(rows[0])))
            case "column":
                return op.Column([row[a] if a < len(row) else math.nan for row, a in zip(rows, self.action, strict=False)])
            case "mixture":
                return op.Mixture([rows, rows], [0.25, 0.75])
            case "candidates":
                return op.Candidates([list(range(len(row))) for row in rows], rows)
            case "candidate columns":
                return ("acts", "probs")
        return "c*"

    def _function(self) -> Callable[[Any], Any]:
        rows = [list(row) for row in self.rows]

        def function(x: Any) -> Any:
            match self.strange:
                case "raises":
                    raise KeyError("no such user")
                case "nothing":
                    return None
                case "text":
                    return "a policy"
                case "too few":
                    return [rows[int(k)] for k in x[:-1, 0]]
                case "transposed":
                    return np.full((ACTIONS, len(x) + 1), 0.25)
                case "flat":
                    return [1 / ACTIONS] * len(x)
                case "object":
                    return object()
                case "exits":
                    raise ZeroDivisionError
            return [rows[int(k)] for k in x[:, 0]]

        return function


def _array(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array([json.dumps(v, default=str) for v in values])


STRANGE = ("raises", "nothing", "text", "too few", "transposed", "flat", "object", "exits")


@st.composite
def cases(draw: st.DrawFn) -> Policy:
    """A valid policy, sometimes corrupted."""
    kind = draw(st.sampled_from(KINDS))
    random = Random(draw(st.integers(0, 2**32)))
    n = random.randint(2, 5)
    action = [0, 2, *(random.randrange(ACTIONS) for _ in range(n - 2))]
    reward = [random.randint(-40, 40) / 8 for _ in range(n)]
    rows: list[list[Any]] = []
    for _ in range(n):
        cut = sorted((random.randint(1, 15), random.randint(1, 15)))
        rows.append([cut[0] / 16, (cut[1] - cut[0]) / 16, (16 - cut[1]) / 16])
    if kind in ("fixed", "labelled"):
        rows = [rows[0]] * n
    strange = ""
    for _ in range(hurts(draw)):
        how = draw(st.sampled_from(["cell", "cell", "cell", "row", "shape", "strange"]))
        at = draw(st.integers(0, len(rows) - 1)) if rows else 0
        if how == "cell" and rows and rows[at]:
            rows[at] = [*rows[at]]
            rows[at][draw(st.integers(0, len(rows[at]) - 1))] = draw(st.sampled_from(PROBABILITY_CELLS))
        elif how == "row" and rows:
            rows[at] = draw(
                st.sampled_from(
                    [[], [1.0, 0.0], [0.25] * 4, [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1e-6, 1 - 1e-6, 1e-6], [1e3, -1e3, 0.0]]
                )
            )
        elif how == "shape" and kind not in (
            "function",
            "softmax",
            "greedy",
            "columns",
            "candidate columns",
            "column",
            "fixed",
            "labelled",
        ):
            rows = draw(st.sampled_from([rows[:-1], [*rows, *rows[:1]], rows[:1]]))
        elif how == "strange" and kind in ("function", "softmax", "greedy"):
            strange = draw(st.sampled_from(STRANGE))
    if kind in ("fixed", "labelled"):
        rows = [rows[0]] * n if rows else rows
    as_logging = draw(st.integers(0, 4)) == 4
    return Policy(kind, action, reward, rows, strange, as_logging)

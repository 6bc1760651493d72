"""Logs as they were collected: several loggers, propensities from draws, lines of Vowpal Wabbit, lakes, and addresses."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import offpolicy as op
from fuzz.judging import Truth, Verdict, judged, number
from fuzz.values import ODD_CELLS, ODD_TEXTS, columns, hurts
from offpolicy.data.monte_carlo import SAMPLINGS
from offpolicy.data.sources import stores

ESTIMATORS = (op.IPS(), op.SNIPS())
SHARES = ([0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.0625, 0.0625, 0.875])
ODD_SHARES: tuple[Any, ...] = (
    [0.5, 0.5, 0.5], [1.0], [], [np.nan, 0.5, 0.5], [-1.0, 1.0, 1.0], [1.0, 0.0, 0.0], {"a": 1.0}, "p", None, 3, [[0.5, 0.25, 0.25]]
)  # fmt: skip
ODD_JSON: tuple[Any, ...] = (
    None, True, "", "x", "0.5", -1, 0, 1, 2, 3, 99, 0.5, 1.5, 1e308, -1e308, 1e400, float("nan"), 10**30, [], [1], [1, 1], [0, 1],
    [1, 2, 3], ["a"], [None], {}, {"id": "x"}, [{}], [{"id": "x"}, {"id": "x"}], [{"id": 1}, {"id": {"id": 2}}], [[1, 2]], 1e-320,
)  # fmt: skip
ODD_VERSIONS: tuple[Any, ...] = (0, 1, 2, -1, 2**63, 2**70, True, 1.0, "1", None, "", [0], float("nan"))
ODD_TIMES: tuple[Any, ...] = (
    "2026-03-01", "2026-13-01", "noon", "", 0, 1e9, [], "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1970-01-01", b"x",
    "2200-01-01T00:00:00Z",
)  # fmt: skip
ADDRESSES = (
    "s3://", "s3:///", "s3://b", "s3://b/", "s3://b/*", "s3://b/[", "s3://b/**", "s3://b//x.parquet", "s3://b/x.parquet?y=1", "S3://b/x",
    "s3://b/%00", "s3://b/%zz", "s3://é/ü.parquet", "s3://b/" + "a" * 2000, "s3://u:p@b/x.parquet", "s3:/b/x", "s3:b", "s3a://b/x",
    "https://", "http://127.0.0.1:9/x.parquet", "http://127.0.0.1:9/x", "http://[", "http://127.0.0.1:99999/x.csv", "ftp://host/x.csv",
    "gs:", "abfss://x", "abfss://a@/x", "://x", "file://host/x", "s3://b/x.parquet#y", "s3://..", "s3://b/../x.parquet",
)  # fmt: skip


@dataclass(frozen=True)
class Draws:
    """Propensities from draws, with counts of any kind."""

    columns: Mapping[str, Sequence[Any]]
    sampling: Any

    def truth(self) -> Truth | None:
        wins, draws = (list(map(number, self.columns[name])) for name in ("wins", "draws"))
        n = len(self.columns["reward"])
        least = 0 if self.sampling == "separate" else 1
        if self.sampling not in SAMPLINGS or (len(wins), len(draws)) != (n, n):
            return None
        p = []
        for k, m in zip(wins, draws, strict=True):
            if k is None or m is None or k != int(k) or m != int(m) or not least <= k <= m or m < 1:
                return None
            p.append((k + 1) / (m + 1) if self.sampling == "separate" else k / m)
        plain = all(type(cell) in (int, float) for name in ("wins", "draws") for cell in self.columns[name])
        certain = plain and all(abs(m) < 1e15 for m in draws if m is not None)
        try:
            return Truth.of(self.columns["reward"], p, self.columns["q"], None, certain)
        except (OverflowError, ZeroDivisionError):
            return None

    def judge(self) -> Verdict:
        made = self.columns
        truth = self.truth()

        def run() -> op.Evaluation:
            counts = op.MonteCarlo(list(made["wins"]), list(made["draws"]), self.sampling)
            log = op.Log(made["x"], made["action"], made["reward"], propensity=counts)
            return op.evaluate(log, op.Column(made["q"]), ESTIMATORS)

        odd = any(not isinstance(cell, (int, float)) for name in ("wins", "draws") for cell in made[name])
        return judged(run, truth, answered=truth is None and odd)


@dataclass(frozen=True)
class Collected:
    """A log of several loggers, with the policy of each."""

    columns: Mapping[str, Sequence[Any]]
    logger: Sequence[Any]
    policies: Mapping[Any, Any]
    loggers: Any
    intact: bool

    def truth(self) -> Truth | None:
        """The oracle's answer, with balanced weights or those of each logger; None if something was corrupted."""
        if not self.intact or self.loggers == "weighted":
            return None
        n = len(self.logger)
        share = {label: self.logger.count(label) / n for label in self.policies}  # type: ignore[attr-defined]
        action = self.columns["action"]
        if self.loggers == "own":
            p = [self.policies[label][a] for label, a in zip(self.logger, action, strict=True)]
        else:
            p = [sum(share[label] * shares[a] for label, shares in self.policies.items()) for a in action]
        return Truth.of(self.columns["reward"], p, [SHARES[0][a] for a in action])

    def judge(self) -> Verdict:
        made = self.columns

        def run() -> op.Evaluation:
            logging = {label: op.Fixed(shares) for label, shares in self.policies.items()}
            log = op.Log(
                made["x"], made["action"], made["reward"], n_actions=3, logger=list(self.logger), logging=logging,
                loggers=self.loggers,
            )  # fmt: skip
            result = op.evaluate(log, op.Fixed(SHARES[0]), ESTIMATORS)
            str(result)
            return result

        truth = self.truth()
        return judged(run, truth, answered=truth is None)


def vw_lines(n: int = 4) -> list[dict[str, Any]]:
    """A valid log of Vowpal Wabbit."""
    return [
        {
            "_label_cost": -float(k % 2), "_label_probability": 0.75, "_label_Action": 1 + k % 2, "_labelIndex": k % 2,
            "EventId": str(k), "a": [1 + k % 2, 2 - k % 2], "p": [0.75, 0.25], "pdrop": 0.0,
            "c": {"User": {"age": 20 + k, "place": "DE"}, "_multi": [{"id": "x", "n": {"s": 1}}, {"id": "y"}]},
        }
        for k in range(n)
    ]  # fmt: skip


@dataclass(frozen=True)
class Lines:
    """A file of Vowpal Wabbit, after edits: of a value by its path, or of the text."""

    edits: Sequence[tuple[int, tuple[Any, ...], Any]]
    text: Sequence[tuple[float, int, bytes]]
    action: str | None

    def data(self) -> bytes:
        lines = vw_lines()
        for at, path, value in self.edits:
            inner: Any = lines[at]
            for key in path[:-1]:
                inner = inner[key] if isinstance(inner, (dict, list)) and _has(inner, key) else None
            if isinstance(inner, dict) and value is ...:
                inner.pop(path[-1], None)
            elif inner is not None and _has(inner, path[-1]):
                inner[path[-1]] = None if value is ... else value
        data = "\n".join(map(json.dumps, lines)).encode()
        for part, out, written in self.text:
            at = int(part * len(data))
            data = data[:at] + written + data[at + out :]
        return data

    def judge(self) -> Verdict:
        intact = not self.edits and not self.text
        truth = Truth.of([0.0, 1.0, 0.0, 1.0], [0.75] * 4, [0.5] * 4) if intact and self.action == "id" else None
        data = self.data()

        def run() -> op.Evaluation:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "log.dsjson"
                path.write_bytes(data)
                log = op.read_vw(path, action=self.action)
                result = op.evaluate(log, op.Uniform(candidates="candidates"), ESTIMATORS)
            if not 0 < result["LoggedMean"].n <= len(data.splitlines()) or not np.isfinite(result["LoggedMean"].value):
                raise AssertionError(f"{result['LoggedMean'].n} rounds, mean {result['LoggedMean'].value}")
            return result

        return judged(run, truth, answered=True)


def _has(inner: Any, key: Any) -> bool:
    return isinstance(inner, dict) or (isinstance(inner, list) and isinstance(key, int) and key < len(inner))


ROWS = {"x": [0.0, 1.0, 2.0, 3.0], "item": [0, 1, 0, 1], "click": [1.0, 0.0, 1.0, 1.0], "p": [0.5] * 4, "id": [0, 1, 2, 3]}
LAKES = tuple(name for name in ("deltalake", "pyiceberg") if importlib.util.find_spec(name))


@functools.cache
def lake(name: str) -> Path:
    """A folder with a small table of two versions."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    table = pa.table(ROWS)
    if name == "deltalake":
        from deltalake import DeltaTable, write_deltalake

        write_deltalake(folder / "t", table)
        DeltaTable(folder / "t").delete("id = 3")
        return folder / "t"
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("fuzz", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    made = catalog.create_table("n.t", table.schema)
    made.append(table)
    made.append(table)
    return Path(made.location().removeprefix("file://"))


@dataclass(frozen=True)
class Lake:
    """A table with a damaged file of its log, or one that is gone, and any version."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    damage: Sequence[tuple[float, float, int, bytes | None]] = ()

    def judge(self) -> Verdict:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "t"
            shutil.copytree(lake(self.name), folder)
            for which, part, out, written in self.damage:
                files = sorted(path for path in folder.rglob("*") if path.is_file())
                path = files[int(which * len(files)) % len(files)]
                if written is None:
                    path.unlink()
                else:
                    data = path.read_bytes()
                    path.write_bytes(data[: int(part * len(data))] + written + data[int(part * len(data)) + out :])

            def run() -> op.Evaluation:
                log = op.read_log(
                    folder, context="x", action="item", reward="click", propensity="p", row_id="id", **self.settings
                )
                return op.evaluate(log, op.Uniform(), ESTIMATORS)

            return judged(run, None, answered=True)


@dataclass(frozen=True)
class Address:
    """An address at which there is no log."""

    url: Any

    def judge(self) -> Verdict:
        unreachable = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
        with mock.patch.dict(os.environ, unreachable), mock.patch.object(stores, "S3_ATTEMPTS", 1):

            def run() -> op.Evaluation:
                log = op.read_log(self.url, context="x", action="item", reward="click", propensity="p")
                return op.evaluate(log, op.Uniform(), ESTIMATORS)

            return judged(run, None)


@st.composite
def draws(draw: st.DrawFn) -> Draws:
    made = draw(columns())
    n = len(made["reward"])
    made.pop("weight", None)
    made["draws"] = [draw(st.integers(1, 40)) for _ in range(n)]
    made["wins"] = [draw(st.integers(0, m)) for m in made["draws"]]
    for _ in range(hurts(draw)):
        name = draw(st.sampled_from(["wins", "draws"]))
        made[name][draw(st.integers(0, n - 1))] = draw(st.sampled_from(ODD_CELLS))
    return Draws(made, draw(st.sampled_from([*SAMPLINGS, *SAMPLINGS, "odd", None])))


@st.composite
def collected(draw: st.DrawFn) -> Collected:
    made = draw(columns())
    made.pop("weight", None)
    n = len(made["reward"])
    named = [text for text in ODD_TEXTS if "\x00" not in text]  # NumPy drops NUL at the end
    labels = draw(st.lists(st.sampled_from(named), min_size=2, max_size=2, unique=True))
    logger: list[Any] = [labels[k % 2] for k in range(n)]
    policies: dict[Any, Any] = {label: draw(st.sampled_from(SHARES)) for label in labels}
    loggers: Any = draw(st.sampled_from([None, "balanced", "own", "weighted"]))
    intact = True
    for _ in range(hurts(draw)):
        intact = False
        how = draw(st.sampled_from(["cell", "all", "policy", "gone", "loggers", "shape"]))
        if how == "cell":
            logger[draw(st.integers(0, len(logger) - 1))] = draw(st.sampled_from(ODD_CELLS))
        elif how == "all":
            logger = [draw(st.sampled_from(ODD_CELLS))] * n
        elif how == "policy":
            policies[draw(st.sampled_from(labels))] = draw(st.sampled_from(ODD_SHARES))
        elif how == "gone":
            policies.pop(draw(st.sampled_from(labels)), None)
        elif how == "loggers":
            loggers = draw(st.sampled_from(["Own", "", 3, True, ["own"], "balanced "]))
        else:
            logger = draw(st.sampled_from([logger[:-1] or [""], [*logger, labels[0]], [[each] for each in logger]]))
    return Collected(made, logger, policies, loggers, intact)


PATHS = (
    ("_label_cost",), ("_label_probability",), ("_label_Action",), ("_labelIndex",), ("EventId",), ("a",), ("p",), ("c",),
    ("pdrop",), ("_skipLearn",), ("a", 0), ("p", 1), ("c", "_multi"), ("c", "User"), ("c", "User", "age"), ("c", "_multi", 0),
    ("c", "_multi", 1, "id"), ("c", "new"),
)  # fmt: skip
BITS = (b"", b"\n", b"\n\n", b"{", b"}", b"[", b'"', b"\xff", b"\x00", b"NaN", b"1e999", b",", b"null", b"[[[[")


@st.composite
def lines(draw: st.DrawFn) -> Lines:
    edits: list[tuple[int, tuple[Any, ...], Any]] = []
    text: list[tuple[float, int, bytes]] = []
    for _ in range(hurts(draw)):
        if draw(st.integers(0, 3)):
            value = draw(st.sampled_from([..., *ODD_JSON]))
            edits.append((draw(st.integers(0, 3)), draw(st.sampled_from(PATHS)), value))
        else:
            text.append((draw(st.floats(0, 1)), draw(st.integers(0, 8)), draw(st.sampled_from(BITS))))
    return Lines(edits, text, draw(st.sampled_from(["id", "id", None, "nothing", "", "n.s"])))


@st.composite
def lakes(draw: st.DrawFn) -> Lake:
    settings: dict[str, Any] = {}
    if draw(st.booleans()):
        settings["version"] = draw(st.sampled_from(ODD_VERSIONS))
    if draw(st.integers(0, 3)) == 0:
        settings["as_of"] = draw(st.sampled_from(ODD_TIMES))
    damage = st.tuples(st.floats(0, 0.999), st.floats(0, 1), st.integers(0, 8), st.sampled_from([*BITS, None]))
    return Lake(draw(st.sampled_from(LAKES)), settings, draw(st.lists(damage, max_size=2)))


def cases() -> st.SearchStrategy[Any]:
    """All kinds of places; lakes where their libraries are installed."""
    addresses = st.builds(Address, st.sampled_from(ADDRESSES))
    kinds = [draws(), draws(), collected(), collected(), lines(), lines(), lines(), addresses, *([lakes()] if LAKES else [])]
    return st.one_of(kinds)

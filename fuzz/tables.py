"""Logs from tables: Arrow in memory, Parquet and CSV files, one or several, with invalid types, cells or bytes."""

from __future__ import annotations

import datetime
import gzip
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

import offpolicy as op
from fuzz.judging import Truth, Verdict, judged, truth_of
from fuzz.values import ODD_TEXTS, columns, hurts

NUMERIC = ("reward", "p", "q", "weight")
TYPES: dict[str, pa.DataType] = {
    "half": pa.float16(), "float": pa.float32(), "double": pa.float64(), "int8": pa.int8(), "int64": pa.int64(),
    "uint8": pa.uint8(), "uint64": pa.uint64(), "decimal": pa.decimal128(20, 6), "decimal256": pa.decimal256(50, 6),
    "bool": pa.bool_(), "text": pa.string(), "large text": pa.large_string(), "text view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()), "numbers by code": pa.dictionary(pa.int32(), pa.float64()),
    "binary": pa.binary(), "date": pa.date32(), "time": pa.timestamp("us"), "zone": pa.timestamp("ns", "Europe/Berlin"),
    "duration": pa.duration("s"), "list": pa.list_(pa.float64()), "struct": pa.struct([("a", pa.float64())]), "null": pa.null(),
}  # fmt: skip
NUMBERS = ("half", "float", "double", "int8", "int64", "uint8", "uint64", "decimal", "decimal256", "bool")
TEXTS = ("text", "large text", "text view", "dictionary", "numbers by code")
PLAIN = ("float", "double", "int64", "decimal", "bool", "text", "large text", "dictionary")
"""Types that are valid for each role."""


@dataclass(frozen=True)
class Table:
    """Columns by name, each with an Arrow type, or None for the natural one; a name may occur twice."""

    columns: Sequence[tuple[str, Sequence[Any], str | None]]
    cuts: Sequence[int] = ()
    """Rows at which one chunk, row group or file ends and another begins."""
    way: str = "arrow"
    """arrow, stream, parquet or files (Parquet)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    other: tuple[str, str | None] | None = None
    """A column that has another type in the last file, or (None) is missing there."""

    def truth(self) -> Truth | None:
        made: dict[str, list[Any]] = {}
        certain = self.other is None and "n_actions" not in self.options
        for name, cells, kind in self.columns:
            if name in made:
                return None
            made[name] = _as_type(cells, kind)
            kind = kind if kind is not None and _array(cells, kind).type == TYPES[kind] else None
            if name == "action" and kind is not None and kind not in PLAIN:
                certain = False
            elif (name in NUMERIC or name == "x") and kind is not None and kind not in NUMBERS:
                if kind not in TEXTS:
                    return None
                certain = False
        needed = {"action", "reward", "p", "q", "x"}
        if not needed <= set(made) or any(cell is None for name in needed for cell in made[name]):
            return None
        if any(isinstance(cell, float) and not math.isfinite(cell) for cell in (*made["x"], *made["action"])):
            return None
        if any(isinstance(cell, float) and abs(cell) > 1e30 for cell in made["x"]):
            certain = False
        codes = [c for c in made["action"] if type(c) is int]
        if len(codes) == len(made["action"]) and codes and not (min(codes) >= 0 and max(codes) < 10_000):
            return None
        if len(set(map(str, made["action"]))) < 2 and made["action"] != [1] * len(made["action"]):
            certain = False
        if "row_id" in self.options and len(set(map(str, made.get(self.options["row_id"], ())))) < 2:
            certain = False  # a constant one identifies nothing
        return truth_of(made, certain)

    def judge(self) -> Verdict:
        truth = self.truth()
        arrays = [pa.array(cells) if kind is None else _array(cells, kind) for _, cells, kind in self.columns]
        table = pa.Table.from_arrays(arrays, names=[name for name, _, _ in self.columns])
        with tempfile.TemporaryDirectory() as folder:
            return judged(lambda: _evaluated(self._source(table, Path(folder)), self.columns, self.options), truth)

    def _source(self, table: pa.Table, folder: Path) -> Any:
        edges = [0, *sorted(self.cuts), len(table)]
        pieces = [table.slice(a, b - a) for a, b in pairwise(edges)]
        if self.other is not None:
            name, kind = self.other
            at = table.schema.names.index(name)
            last = pieces[-1].remove_column(at)
            pieces[-1] = last if kind is None else last.append_column(name, pieces[-1].column(at).cast(TYPES[kind]))
        elif self.way in ("arrow", "stream"):
            whole = pa.concat_tables(pieces)
            return whole if self.way == "arrow" else Stream(whole)
        for k, piece in enumerate(pieces):
            pq.write_table(piece, folder / f"log{k}.parquet", row_group_size=2)
        return folder


@dataclass(frozen=True)
class Stream:
    """A source that can only be streamed."""

    table: pa.Table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def _evaluated(source: Any, given: Sequence[tuple[str, Any, Any]], options: Mapping[str, Any]) -> op.Evaluation:
    weight = "weight" if any(name == "weight" for name, _, _ in given) else None
    log = op.read_log(source, context=["x"], action="action", reward="reward", propensity="p", weight=weight, **options)
    return op.evaluate(log, "q", [op.IPS(), op.SNIPS()])


def _castable(cells: Sequence[Any], kind: str) -> bool:
    try:
        pa.array(cells).cast(TYPES[kind])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _typed(cells: Sequence[Any], kind: str) -> pa.Array:
    """The values as that type, or unchanged if they cannot be converted."""
    made = {
        "list": [[c] for c in cells], "struct": [{"a": c} for c in cells], "binary": [str(c).encode() for c in cells],
        "date": [datetime.date(2024, 1, 1)] * len(cells), "null": [None] * len(cells),
    }.get(kind, list(cells))  # fmt: skip
    try:
        return pa.array(made, TYPES[kind])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array(list(cells))


def _array(cells: Sequence[Any], kind: str) -> pa.Array:
    return pa.array(cells).cast(TYPES[kind]) if _castable(cells, kind) else _typed(cells, kind)


def _as_type(cells: Sequence[Any], kind: str | None) -> list[Any]:
    """The cells as they are read back: a cast may round, and what cannot be cast is unchanged."""
    if kind is None:
        return list(cells)
    return [float(c) if isinstance(c, Decimal) else c for c in _array(cells, kind).to_pylist()]


CELLS: tuple[Any, ...] = (
    None,
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    -0.5,
    1.5,
    2.0,
    1e308,
    -1e308,
    1e200,
    1e-310,
    5e-324,
    1e8,
)
OPTIONS: tuple[dict[str, Any], ...] = (
    {"cluster": "x"}, {"cluster": "action"}, {"row_id": "reward"}, {"by": "action"}, {"by": "x"}, {"by": "reward"}, {"action_features": "x"},
    {"action_features": ["action"]}, {"actions": "labels"}, {"n_actions": 20_000}, {"reward_range": (-1e31, 1e31)},
)  # fmt: skip
LABELS = st.one_of(
    st.just([0, 1, 2]), st.just(["a", "b", "c"]), st.just([0.5, 1.5]), st.just([False, True]), st.just([0, 9_999]),
    st.lists(st.sampled_from(ODD_TEXTS), min_size=2, max_size=3, unique=True),
)  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """A valid table, sometimes corrupted."""
    made = draw(columns(LABELS))
    n = len(made["reward"])
    kinds: dict[str, str | None] = dict.fromkeys(made)
    order = draw(st.permutations(list(made)))
    twice: list[str] = []
    way = draw(st.sampled_from(["arrow", "stream", "parquet", "files"]))
    cuts = draw(st.lists(st.integers(0, n), max_size=2)) if way != "parquet" else []
    other: tuple[str, str | None] | None = None
    for _ in range(hurts(draw)):
        how = draw(st.sampled_from(["cell", "type", "type", "missing", "twice", "rows", "other"]))
        name = draw(st.sampled_from(order)) if order else "x"
        if how == "cell" and name != "action" and n:
            made[name][draw(st.integers(0, n - 1))] = draw(st.sampled_from(CELLS))
        elif how == "type":
            kinds[name] = draw(st.sampled_from(list(TYPES)))
        elif how == "missing":
            order = [each for each in order if each != name]
        elif how == "twice":
            twice.append(name)
        elif how == "rows":
            n = draw(st.integers(0, 1))
            made, cuts = {name: cells[:n] for name, cells in made.items()}, []
        elif how == "other" and way == "files" and cuts and name in order and not twice:
            kind = draw(st.sampled_from([None, "text", "double", "float", "int64"]))
            if kind is None or _castable(made[name], kind):
                other = (name, kind)
    options = draw(st.sampled_from([{}, {}, {}, *OPTIONS]))
    if other is not None and (other[0] not in order or kinds[other[0]] is not None or len(made["reward"]) < 2):
        other = None
    listed = [(name, made[name], kinds[name]) for name in (*order, *twice)]
    return Table(listed, cuts, way, options, other)


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number as CSV readers know it: Python also reads the digits of other scripts."""
LABEL = re.compile(r"[a-z]+|\d{1,3}", re.ASCII)
NULLS = ("", "NaN", "nan", "NULL", "null")
CSV_CELLS = (
    *NULLS, "inf", "-inf", "Infinity", "1e400", "1e-400", "0", "-0", "-1", "1.5", "2", "x", "0,5", '"0.5"', '"', '""', "'0.5'", "1e5", "1E2",
    "0x10", "1_000", "1 000", "5%", "$5", "true", "TRUE", "no", "NA", "N/A", "-", "?", "١", "½", "1.", ".5", "+0.5", " 0.5", "0.5 ",
    "9223372036854775808", "123456789012345678901234567890", "2024-01-01", "[0.5]", "0.5|0.5", "\x00", "é", "#", "=1+1", "0.1.2",
)  # fmt: skip
DRESSES = ("plain", "plain", "plain", "bom", "crlf", "cr", "no last newline", "blank lines", "gz", "utf-16", "latin1", "semicolons", "tabs",
           "quoted", "truncated", "no header", "only header", "nothing", "extra cell", "missing cell", "comment", "upper")  # fmt: skip
GOOD_DRESSES = ("plain", "bom", "crlf", "no last newline", "gz", "quoted", "upper")


@dataclass(frozen=True)
class Csv:
    """Cells as text, and how the file is formatted."""

    columns: Sequence[tuple[str, Sequence[str]]]
    dress: str = "plain"
    cuts: Sequence[int] = ()

    def truth(self) -> Truth | None:
        made = dict(self.columns)
        certain = self.dress in GOOD_DRESSES and not self.cuts
        if len(made) < len(self.columns) or self.dress in ("utf-16", "semicolons", "tabs", "nothing", "only header"):
            return None
        if not {"action", "reward", "p", "q", "x"} <= set(made):
            return None
        if self.dress in ("extra cell", "missing cell", "truncated"):
            return None
        read: dict[str, list[Any]] = {}
        for name in NUMERIC:
            if name not in made:
                continue
            if any(cell in NULLS for cell in made[name]):
                return None
            read[name] = [_number(cell) for cell in made[name]]
            if not all(NUMBER.fullmatch(cell) for cell in made[name]):
                certain = False
        certain = certain and all(NUMBER.fullmatch(cell) and abs(float(cell)) <= 1e30 for cell in made["x"])
        if any(cell in NULLS for name in ("action", "x") for cell in made[name]):
            return None
        certain = certain and all(LABEL.fullmatch(cell) for cell in made["action"]) and len(set(made["action"])) > 1
        certain = certain and len({cell.isdigit() for cell in made["action"]}) == 1
        return truth_of(read, certain)

    def judge(self) -> Verdict:
        with tempfile.TemporaryDirectory() as folder:
            self.write(Path(folder))
            given = [(name, None, None) for name, _ in self.columns]
            return judged(
                lambda: _evaluated(folder, given, {}), self.truth(), answered=self.dress in ("truncated", "no header")
            )

    def write(self, folder: Path) -> None:
        n = len(self.columns[0][1]) if self.columns else 0
        edges = [0, *sorted(self.cuts), n]
        for k, (a, b) in enumerate(pairwise(edges)):
            path = folder / f"log{k}.{'csv.gz' if self.dress == 'gz' else 'CSV' if self.dress == 'upper' else 'csv'}"
            path.write_bytes(self.bytes(a, b))

    def bytes(self, start: int, stop: int) -> bytes:
        """The file with these rows."""
        between = {"semicolons": ";", "tabs": "\t"}.get(self.dress, ",")
        rows = [[_quoted(name) for name, _ in self.columns]]
        rows += [[_quoted(cells[i], self.dress == "quoted") for _, cells in self.columns] for i in range(start, stop)]
        if self.dress == "no header":
            rows = rows[1:]
        if self.dress == "only header":
            rows = rows[:1]
        if self.dress == "extra cell":
            rows[-1] = [*rows[-1], "1"]
        if self.dress == "missing cell":
            rows[-1] = rows[-1][:-1]
        ends = {"crlf": "\r\n", "cr": "\r", "blank lines": "\n\n"}.get(self.dress, "\n")
        text = "".join(between.join(row) + ends for row in rows)
        if self.dress == "comment":
            text = f"# a comment\n{text}"
        if self.dress == "no last newline":
            text = text[: -len(ends)]
        raw = text.encode({"utf-16": "utf-16", "latin1": "latin1"}.get(self.dress, "utf-8"), "replace")
        if self.dress == "bom":
            raw = b"\xef\xbb\xbf" + raw
        if self.dress == "truncated":
            raw = raw[: len(raw) * 2 // 3]
        if self.dress == "nothing":
            raw = b""
        return gzip.compress(raw, 1) if self.dress == "gz" else raw


def _number(cell: str) -> float | None:
    if cell.strip().lower() in ("true", "false"):
        return float(cell.strip().lower() == "true")
    try:
        return float(cell.replace("_", "x").strip().strip('"'))
    except ValueError:
        return None


def _quoted(cell: str, always: bool = False) -> str:
    if always or any(sign in cell for sign in ',"\n\r;\t'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


@st.composite
def csvs(draw: st.DrawFn) -> Csv:
    """A valid CSV file, sometimes corrupted."""
    made = draw(columns(LABELS))
    n = len(made["reward"])
    text = {name: [repr(cell) if isinstance(cell, float) else str(cell) for cell in cells] for name, cells in made.items()}
    dress, cuts = "plain", list[int]()
    for _ in range(hurts(draw)):
        how = draw(st.sampled_from(["cell", "cell", "cell", "dress", "dress", "missing", "cut"]))
        name = draw(st.sampled_from(list(text)))
        if how == "cell":
            text[name][draw(st.integers(0, n - 1))] = draw(st.one_of(st.sampled_from(CSV_CELLS), st.text(max_size=3)))
        elif how == "dress":
            dress = draw(st.sampled_from(DRESSES))
        elif how == "missing" and len(text) > 1:
            del text[name]
        elif how == "cut":
            cuts = draw(st.lists(st.integers(0, n), min_size=1, max_size=2))
    if dress == "plain":
        dress = draw(st.sampled_from(["plain", *GOOD_DRESSES]))
    return Csv(list(text.items()), dress, cuts)

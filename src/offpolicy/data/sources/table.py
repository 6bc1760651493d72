"""A log in columns: the role of each column, how values become codes, and the checks on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from offpolicy.core.arrays import FloatArray, IntArray, UInt64Array
from offpolicy.core.errors import InputError, RowsError, unknown_name
from offpolicy.core.hashing import hash_places, hash_rows, hash_values
from offpolicy.core.threads import parallel
from offpolicy.data.batch import Batch, Partition
from offpolicy.data.box import Box, box
from offpolicy.data.checks import Check, decoded
from offpolicy.data.contents import ColumnSums, Contents, Levels
from offpolicy.data.dates import date_type
from offpolicy.data.encoding import (
    MOST_CATEGORIES,
    Catalog,
    Encoding,
    OneHot,
    Quantity,
    as_columns,
    encoded_dimensions,
    encoded_names,
    encoded_notes,
    is_category,
    kind_of,
    plain_text,
    too_many_categories,
)
from offpolicy.data.monte_carlo import MonteCarlo, estimated, impossible, refusal
from offpolicy.data.preprocessing import AS_THEY_ARE, HASHED_LEVELS, MISSING_TEXT, PARTS_OF_DATES, Preprocessing
from offpolicy.data.schema import Preparation, Schema
from offpolicy.data.slate import Gain
from offpolicy.data.slots import Logged
from offpolicy.data.sources.lists import ListRoles
from offpolicy.data.sources.parts import RowRange
from offpolicy.data.spaces import ActionSpace, Discrete, discrete, items_seen

SCAN_ROWS = 65_536
NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"


@dataclass(frozen=True)
class Place:
    """Columns with the file (as a number) and the row of each row, for tables that are not read file by file.

    `names` maps the number of each file to its name.
    """

    file: str
    row: str
    names: Mapping[int, str]

    def units(self, raw: Mapping[str, pa.Array]) -> UInt64Array:
        """The same units as for rows that are read file by file."""
        file, row = (raw[name].to_numpy(zero_copy_only=False).astype(np.int64) for name in (self.file, self.row))
        return hash_places(file, row, self.names)


@dataclass(frozen=True)
class ColumnRoles:
    """The column of each role, and how those of the context are prepared.

    `dimensions` are the columns of the action, if it is a vector with one column per dimension; `action` names all of them.
    `numeric_action`: whether actions are numbers, not labels or codes.
    """

    context: tuple[str, ...]
    action: str
    reward: tuple[str, ...]
    propensity: str | MonteCarlo | None = None
    position_propensity: str | None = None
    gain: Gain = "sum"
    cluster: str | None = None
    row_id: str | None = None
    weight: str | None = None
    by: str | None = None
    logger: str | None = None
    features: tuple[str, ...] = ()
    dimensions: tuple[str, ...] = ()
    numeric_action: bool = False
    place: Place | None = None
    preprocessing: Preprocessing = AS_THEY_ARE

    @property
    def actions(self) -> tuple[str, ...]:
        """The columns of the action: one, or one per dimension of a vector."""
        return self.dimensions or (self.action,)

    @property
    def identifiers(self) -> frozenset[str | None]:
        """The columns whose whole numbers identify something."""
        labels = () if self.numeric_action else self.actions
        return frozenset([*labels, self.cluster, self.row_id, self.by, *self.features])

    @property
    def propensities(self) -> tuple[str, ...]:
        """The columns of the propensity: one, or those of wins and draws."""
        if isinstance(self.propensity, MonteCarlo):
            return self.propensity.columns
        return () if self.propensity is None else (self.propensity,)

    def names(self) -> tuple[str, ...]:
        single = (
            *self.propensities, self.position_propensity, self.cluster, self.row_id, self.weight, self.by, self.logger
        )  # fmt: skip
        named = (
            *self.context,
            *self.actions,
            *self.reward,
            *(n for n in single if n is not None),
            *self.features,
            *(() if self.place is None else (self.place.file, self.place.row)),
        )
        return tuple(dict.fromkeys(named))


def check_names(names: Sequence[str], there: Sequence[str]) -> None:
    """Raise if a column in use does not exist, or exists twice. Other columns may have any name."""
    for name in names:
        if name not in there:
            raise unknown_name("column", name, there)
        if (count := list(there).count(name)) > 1:
            raise InputError(f"{name}: {count} columns have this name; rename all but one.")


IN_CSV = " (In CSV, empty cells, NaN and NULL are missing values.)"


def fill_in(instead: str = "") -> str:
    """The advice for missing values."""
    return f"Fill them in or remove those rows first{f', or {instead}' if instead else ''}."


MOST_NAMED = 5
"""How many files a report names."""


@dataclass(frozen=True)
class TableSource:
    """A log over raw parts. Without `given_space`, the action column is scanned for it.

    `known` is what a pass found in the columns, if there has been one.
    """

    parts: tuple[RowRange, ...]
    arrow_schema: pa.Schema
    columns: ColumnRoles
    given_space: ActionSpace | None = None
    integer_labels: bool = False
    catalog: Catalog | None = None
    known: Contents | None = None
    ordered: bool = True

    def __post_init__(self) -> None:
        check_names(self.columns.names(), self.arrow_schema.names)
        outcomes = {*self.columns.actions, *self.columns.reward} & set(self.columns.context)
        if outcomes:
            raise InputError(
                f"{min(outcomes)} is also named as context. The context is what was known before the action was taken; "
                "leave out the action and its outcome."
            )
        self._check_dimensions()
        if self.listed is not None:
            self.listed.check()
        elif self.columns.position_propensity is not None or self.columns.gain != "sum":
            raise InputError("position_propensity= and gain= are for lists; give actions=op.Slate(…), or leave them out.")
        listed = (frozenset[str]() if self.listed is None else self.listed.lists) | self._vectors
        single = isinstance(self.given_space, Box) and not self.given_space.shape
        numeric = (
            *([self.columns.action] if single else self.columns.dimensions),
            *self.columns.reward,
            *self.columns.propensities,
            *filter(None, [self.columns.weight]),
        )
        for name in self.columns.names():
            if name not in listed and pt.is_nested(self.arrow_schema.field(name).type):
                raise InputError(
                    f"{name} has type {self.arrow_schema.field(name).type}, but each round needs a single value here."
                )
        for name in numeric:
            if name not in listed:
                self._expect(name, "number")
        self._check_context()
        for name in self.columns.features:
            self._expect(name, "number", "text")
        if self.rows == 0:
            raise InputError("the log is empty: it has no rows.")

    def _check_dimensions(self) -> None:
        """Raise if the columns of an action are not those of the dimensions of its space."""
        named, space = self.columns.dimensions, self.given_space
        if not named or (space is not None and space.shape == (len(named),)):
            return
        are = "" if space is None else f", and the actions are {space.nature}"
        raise InputError(
            f"action: {len(named)} columns are named ({self.columns.action}){are}. Several columns make a vector: state the "
            "bounds of each with actions=op.Box([low, …], [high, …]) (--actions box:LOW,…:HIGH,…)."
        )

    @cached_property
    def listed(self) -> ListRoles | None:
        """The columns that hold lists, if actions are lists."""
        c, slots = self.columns, None if self.given_space is None else self.given_space.slots
        if slots is None:
            return None
        if isinstance(c.propensity, MonteCarlo):
            raise InputError("MonteCarlo is for single actions, and the actions are lists; give their propensities.")
        names = filter(None, (c.action, *c.reward, c.propensity, c.position_propensity))
        per_list = frozenset(name for name in names if kind_of(self.arrow_schema.field(name).type) == "number")
        return ListRoles(slots, c.action, c.reward, c.propensity, c.position_propensity, c.gain, per_list)

    @property
    def _vectors(self) -> set[str]:
        """The action column, if actions are vectors, whose cells are lists."""
        vectors = self.given_space is not None and self.given_space.shape and not self.columns.dimensions
        return {self.columns.action} if vectors else set()

    def _check_context(self) -> None:
        """Raise if a column of the context is neither number nor text nor a date, or if no column is a date."""
        fields = {name: self.arrow_schema.field(name) for name in self.columns.context}
        for name in fields:
            if self._kind(name) != "date":
                self._expect(name, "number", "text")
        self.columns.preprocessing.check_dates(fields)

    def _kind(self, name: str) -> str:
        return self.columns.preprocessing.kind(self.arrow_schema.field(name))

    def _expect(self, name: str, *kinds: str) -> None:
        type_ = self.arrow_schema.field(name).type
        if kind_of(type_) in kinds:
            return
        if kind_of(type_) == "text":
            raise self._not_numbers(name)
        remedy = ""
        if pt.is_binary(type_) or pt.is_large_binary(type_):
            remedy = (
                " It contains bytes that are not UTF-8 text; give the encoding, such as encoding='latin-1' (--encoding)."
            )
        elif date_type(self.arrow_schema.field(name)) is not None and name in self.columns.context:
            remedy = f" {PARTS_OF_DATES}, or convert dates to numbers (such as days since the first) or to text."
        elif pt.is_temporal(type_):
            remedy = " Convert dates and times to numbers (such as days since the first) or to text."
        raise InputError(f"{name} has type {type_}, but a column of {' or '.join(kinds)} is needed here.{remedy}")

    def _not_numbers(self, name: str) -> InputError:
        """The error for text in a numeric column: reads the whole column for the count, the first rows and an example."""
        examples: list[str] = []

        def odd(column: pa.Array) -> Any:
            text = plain_text(decoded(column))
            bad = ~np.asarray(
                pc.match_substring_regex(text, NUMBER).fill_null(True)
            )  # missing values are reported separately
            examples.extend(text.filter(pa.array(bad)).slice(0, 1).to_pylist() if not examples else [])
            return bad

        if not any(odd(raw.column(0)).any() for part in self.parts for raw in part.read([name], SCAN_ROWS)):
            return InputError(f"{name}: contains numbers as text; convert the column to numbers first.")
        return self.count_failures(
            name, odd, f"do not contain a number (the first: {examples[0]!r})",
            "Write numbers as 12.5, without units, percent signs or decimal commas; write yes and no as 1 and 0.",
        )  # fmt: skip

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def category_names(self) -> tuple[str, ...]:
        """The columns of categories in context and features, and the column of slices."""
        types = self.arrow_schema.field
        context = [name for name in self.columns.context if self._kind(name) == "text"]
        features = [name for name in self.columns.features if is_category(types(name).type)]
        return tuple(dict.fromkeys((*context, *features, *filter(None, [self.columns.by, self.columns.logger]))))

    def most_levels(self, name: str) -> int | None:
        """How many values of a column of categories are needed; None for all of them, which a message counts."""
        in_context_only = name in self.columns.context and name not in (
            *self.columns.features,
            self.columns.by,
            self.columns.logger,
        )
        return self.columns.preprocessing.levels if in_context_only else None

    def averaged(self) -> tuple[Encoding, ...]:
        """The encodings of the columns whose missing values become the mean."""
        kinds = {name: self._kind(name) for name in self.columns.context}
        names = [name for name, kind in kinds.items() if kind != "text" and self.columns.preprocessing.fills(kind)]
        return tuple(self.columns.preprocessing.plain(self.arrow_schema.field(name)) for name in names)

    @cached_property
    def encodings(self) -> Mapping[str, tuple[Encoding, ...]]:
        """The encoding of each column of the context and of the features."""
        types, columns, contents = self.arrow_schema.field, self.columns, self.contents

        def of_feature(name: str) -> Encoding:
            category = is_category(types(name).type)
            return OneHot(name, contents.levels[name].values) if category else Quantity(name)

        return {
            "context": columns.preprocessing.encodings([types(name) for name in columns.context], contents),
            "features": tuple(map(of_feature, columns.features)),
        }

    @cached_property
    def contents(self) -> Contents:
        """What a pass over the log finds in the columns that need one."""
        if self.known is not None:
            return self.known
        contents = Contents(self._levels(self.category_names()), self._sums())
        self.check_contents(contents, self.missing)
        return contents

    def _named_levels(self, name: str | None) -> tuple[str, ...] | None:
        """The sorted values of the column of slices or of loggers, as text."""
        return None if name is None else tuple(self.contents.levels[name].values.to_pylist())

    def check_contents(self, contents: Contents, missing: Callable[[str, str], InputError]) -> None:
        """Raise if a column of categories has too many values, or missing ones; `missing` makes the error, given advice."""
        columns, options = self.columns, self.columns.preprocessing
        for name, levels in contents.levels.items():
            in_context = name in columns.context
            elsewhere = name in (*columns.features, columns.by, columns.logger)
            if levels.missing and (elsewhere or not options.fills("text")):
                raise missing(name, MISSING_TEXT if in_context and not elsewhere else "")
            count = len(levels.values)
            if name in columns.features:
                too_many_categories(name, count)
            if count > MOST_CATEGORIES and (name in (columns.by, columns.logger) or options.levels is None):
                raise self.too_many_levels(name, count)

    def too_many_levels(self, name: str, count: int) -> InputError:
        """The error for a column of the context or of slices with too many values."""
        use, hashing = (
            ("a slice or a logger", "")
            if name in (self.columns.by, self.columns.logger)
            else ("one-hot encoding", f" {HASHED_LEVELS},")
        )
        advice = f"Group rare values, use numbers,{hashing} or name an id column as `cluster`."
        if not hashing or date_type(self.arrow_schema.field(name)) is None:
            return InputError(
                f"{name}: {count:,} different values are too many for {use} (at most {MOST_CATEGORIES:,}). {advice}"
            )
        return InputError(
            f"{name}: {count:,} different dates are too many for {use} (at most {MOST_CATEGORIES:,}). {PARTS_OF_DATES}."
        )

    def where(self, row: int) -> str:
        part = next(part for part in self.parts if part.start <= row < part.start + part.rows)
        return f"{part.name} row {row - part.start + part.first}".strip()

    @property
    def roles(self) -> Mapping[str, str]:
        names = ("action", "cluster", "row_id", "weight", "by", "logger")
        single = {name: column for name in names if (column := getattr(self.columns, name)) is not None}
        return single | ({"propensity": " of ".join(self.columns.propensities)} if self.columns.propensity else {})

    @property
    def described(self) -> str:
        files = list(dict.fromkeys(part.name for part in self.parts if part.name))
        if not files:
            return "a table in memory"
        shown = ", ".join(files[:MOST_NAMED]) + (", …" if len(files) > MOST_NAMED else "")
        return shown if len(files) == 1 else f"{len(files):,} files: {shown}"

    @cached_property
    def space(self) -> ActionSpace:
        """The given space, or the one that is found: sorted labels, or codes up to the largest."""
        name, given = self.columns.action, self.given_space
        if given is not None and given.found:
            return given
        if given is not None:
            return given.over(self._items(given))
        type_ = self.arrow_schema.field(name).type
        if not pt.is_integer(type_.value_type if pt.is_dictionary(type_) else type_) or self.integer_labels:
            labels = self._levels((name,), self._plain_type(name))[name]
            if labels.missing:
                raise self.missing(name)
            return Discrete(labels.values)
        batches = (batch for part in self.parts for batch in part.read([name], SCAN_ROWS))
        largest = [pc.max(decoded(batch.column(0))).as_py() for batch in batches]
        return Discrete.codes(max((code for code in largest if code is not None), default=-1), self.rows, name)

    def _items(self, space: ActionSpace) -> Discrete:
        """The items that occur in the lists of a column: sorted labels, or codes up to the largest."""
        name = self.columns.action

        def of_part(part: RowRange) -> pa.Array:
            return pc.unique(
                pa.chunked_array([pc.unique(space.values(batch.column(0))) for batch in part.read([name], SCAN_ROWS)])
            )

        return items_seen(pc.unique(pa.chunked_array(parallel(of_part, self.parts))), self.rows, name)

    def _levels(self, names: Sequence[str], type_: pa.DataType | None = None) -> dict[str, Levels]:
        """The levels of some columns, as text or as another type, in one pass."""
        most = {name: self.most_levels(name) for name in names}

        def of_column(name: str, column: pa.Array) -> Levels:
            column = decoded(column)
            as_text = type_ is None or pt.is_string_view(column.type)
            return Levels.of(column.cast(pa.string() if as_text else type_), most[name])

        def of_part(part: RowRange) -> list[Levels]:
            found = [[of_column(name, batch.column(name)) for name in names] for batch in part.read(names, SCAN_ROWS)]
            return [Levels.merged(pieces, most[name]) for name, pieces in zip(names, zip(*found, strict=True), strict=False)]

        columns = zip(*filter(None, parallel(of_part, self.parts if names else ())), strict=True)
        return {name: Levels.merged(pieces, most[name]) for name, pieces in zip(names, columns, strict=True)}

    def _sums(self) -> dict[str, ColumnSums]:
        """The sums of the columns whose missing values become the mean, in one pass."""
        encodings = self.averaged()
        names = [encoding.name for encoding in encodings]

        def of_part(part: RowRange) -> list[ColumnSums]:
            batches = part.read(names, SCAN_ROWS)
            found = [[ColumnSums.of(encoding, batch.column(encoding.name)) for encoding in encodings] for batch in batches]
            return [reduce(add, pieces) for pieces in zip(*found, strict=True)]

        columns = zip(*filter(None, parallel(of_part, self.parts if names else ())), strict=True)
        return {name: reduce(add, pieces) for name, pieces in zip(names, columns, strict=True)}

    def _plain_type(self, name: str) -> pa.DataType:
        """The type of the first file, which the values of all files are read as."""
        type_ = self.arrow_schema.field(name).type
        type_ = type_.value_type if pt.is_dictionary(type_) else type_
        return pa.float32() if pt.is_float16(type_) else type_  # as in `decoded`

    @cached_property
    def schema(self) -> Schema:
        columns, listed = self.columns, self.listed
        matrix, encodings = self.catalog or (None, ())
        return Schema(
            space=self.space,
            context=encoded_names(self.encodings["context"]),
            rewards=columns.reward,
            slices=self._named_levels(columns.by),
            slice_name=columns.by,
            loggers=self._named_levels(columns.logger),
            draws=columns.propensity if isinstance(columns.propensity, MonteCarlo) else None,
            propensity=columns.propensity is not None,
            slot_propensity=listed is not None and columns.propensity in listed.lists,
            position_propensity=columns.position_propensity is not None,
            gain=None if listed is None else listed.counted,
            weighted=columns.weight is not None,
            clustered=columns.cluster is not None,
            identified=columns.row_id is not None,
            features=encoded_names(self.encodings["features"]),
            feature_dimensions=encoded_dimensions(self.encodings["features"]),
            catalog=matrix,
            catalog_names=encoded_names(encodings),
            catalog_dimensions=encoded_dimensions(encodings),
            preparation=Preparation(self.columns.preprocessing.settings, encoded_notes(self.encodings["context"])),
        )

    def checked(self, role: str, encoding: Encoding, raw: Mapping[str, pa.Array]) -> FloatArray:
        """The numbers of a column, checked for their role."""
        values = encoding.encode(raw[encoding.name])
        check = encoding.failed_check(role, values)
        if check is not None:
            raise self.failure(encoding, check)
        return values

    def head(self, rows: int, columns: tuple[str, ...] = ()) -> Batch:
        return next(iter(self.partitions(columns)[0].batches(rows)))

    def check_columns(self, columns: Sequence[str]) -> None:
        check_names(self.unencoded(columns), self.arrow_schema.names)

    def unencoded(self, columns: Sequence[str]) -> list[str]:
        """The columns without those that exist only in the encoded context, such as `country=DE`."""
        there = self.arrow_schema.names
        return [name for name in columns if name in there or name not in self.schema.context]

    def partitions(self, columns: tuple[str, ...]) -> Sequence[Partition]:
        self.check_columns(columns)
        return [_Decoded(self, part, columns) for part in self.parts if part.rows]

    def failure(self, encoding: Encoding, check: Check) -> InputError:
        """The error for values that fail a check: reads the whole column for the count and the first rows."""

        def bad(column: pa.Array) -> Any:
            return check.bad(as_columns(encoding.encode(column))).any(axis=1)

        return self.count_failures(encoding.name, bad, check.what, check.advice)

    def missing(self, name: str, instead: str = "") -> InputError:
        """The error for missing values; `instead` is what can be done besides changing the table."""
        return self.count_failures(name, lambda c: np.asarray(c.is_null()), "are missing (null)", fill_in(instead) + IN_CSV)

    def recounted(self, listed: ListRoles, error: RowsError) -> InputError:
        """The error for lists that do not fit each other, with the count and the first rows of the whole log."""
        rows: list[int] = []
        where: list[str] = []
        for part in self.parts:
            row = 0
            for batch in part.read(listed.names, SCAN_ROWS):
                raw = {name: batch.column(name) for name in listed.names}
                try:
                    listed.logged(raw, self.space.encode(raw[listed.action])[0], self.checked_in(raw))
                except RowsError as again:
                    if (again.column, again.advice) == (error.column, error.advice):
                        where += [f"{part.name} row {part.first + row + i}".strip() for i in again.rows[: 3 - len(where)]]
                        rows += (part.start + row + again.rows).tolist()
                row += len(batch)
        return RowsError(error.column, error.what, rows or error.rows, error.advice, where=where or None)

    def checked_in(self, raw: Mapping[str, pa.Array]) -> Callable[[str, str], FloatArray]:
        """What reads a column of numbers for a role, and checks it."""
        return lambda role, name: self.checked(role, Quantity(name), raw)

    def count_failures(
        self, name: str, bad: Any, what: str, advice: str, columns: Sequence[str] | None = None
    ) -> InputError:
        """The error for rows in which `bad` is true of a column, or of several, after a pass over all rows."""
        rows: list[int] = []
        where: list[str] = []
        for part in self.parts:
            row = part.first
            for batch in part.read(columns or [name], SCAN_ROWS):
                failed = np.flatnonzero(bad(*batch.columns))
                where += [f"{part.name} row {row + i}".strip() for i in failed[: 3 - len(where)]]
                rows += (part.start - part.first + row + failed).tolist()
                row += len(batch)
        return RowsError(name, what, rows, advice, where=where)


@dataclass(frozen=True)
class _Decoded:
    """One part of a table source, as batches of the log."""

    source: TableSource
    part: RowRange
    extra: tuple[str, ...]

    def batches(self, rows: int) -> Iterator[Batch]:
        extra = self.source.unencoded(self.extra)
        names = tuple(dict.fromkeys((*self.source.columns.names(), *extra)))
        seen = 0
        for raw in self.part.read(names, rows):
            if not len(raw):
                continue
            if absent := [name for name in extra if name not in raw.schema.names]:
                raise InputError(f"{self.part.name}: {unknown_name('column', absent[0], raw.schema.names)}")
            yield self._decode({name: raw.column(name) for name in names}, len(raw), seen)
            seen += len(raw)
        if seen != self.part.rows:
            raise InputError(
                f"{self.part.name or 'the table'}: {seen:,} rows now, {self.part.rows:,} when it was opened. "
                "The file changed during the evaluation; run the evaluation again."
            )

    def _decode(self, raw: Mapping[str, pa.Array], rows: int, seen: int) -> Batch:
        c, first = self.source.columns, self.part.first + seen
        ids, cluster = (self._hashed(name, raw) for name in (c.row_id, c.cluster))
        unit = ids if cluster is None else cluster
        action = self._actions(raw)
        logged = self._logged(raw, action)
        batch = Batch(
            row=np.arange(self.part.start + seen, self.part.start + seen + rows),
            unit=self._rows(raw, first, rows) if unit is None else unit,
            action=action,
            reward=logged.reward,
            context_parts=self._encoded("context", raw),
            space=self.source.space,
            propensity=logged.propensity,
            slots=logged.slots,
            wins=logged.wins,
            weight=self.source.checked("weight", Quantity(c.weight), raw) if c.weight else None,
            slice_code=self._level(c.by, raw),
            logger_code=self._level(c.logger, raw),
            feature_parts=self._encoded("features", raw),
            extra={name: raw[name] for name in self.extra if name in raw},
            row_id=ids,
        )
        encoded = [name for name in self.extra if name not in raw]
        return batch.with_columns(encoded, self.source.schema.context) if encoded else batch

    def _propensities(self, raw: Mapping[str, pa.Array]) -> tuple[FloatArray | None, FloatArray | None]:
        """The propensity of each row and, if it comes from draws, how often its action won."""
        given, source = self.source.columns.propensity, self.source
        if given is None:
            return None, None
        if not isinstance(given, MonteCarlo):
            return source.checked(source.space.likelihood, Quantity(given), raw), None
        discrete(source.space, "MonteCarlo")
        wins, draws = (source.checked("reward", Quantity(name), raw) for name in given.columns)
        if (bad := impossible(given, wins, draws)).any():

            def fails(*columns: pa.Array) -> Any:
                wins, draws = (Quantity(name).encode(column) for name, column in zip(given.columns, columns, strict=True))
                return impossible(given, wins, draws)

            what, advice = refusal(given, wins[bad], draws[bad])
            raise source.count_failures(given.columns[0], fails, what, advice, given.columns)
        return estimated(given, wins, draws), wins

    def _level(self, name: str | None, raw: Mapping[str, pa.Array]) -> IntArray | None:
        """The position of each row's value among those of the column."""
        if name is None:
            return None
        places = pc.index_in(decoded(raw[name]).cast(pa.string()), value_set=self.source.contents.levels[name].values)
        codes: IntArray = places.to_numpy(zero_copy_only=False).astype(np.int64)
        return codes

    def _hashed(self, name: str | None, raw: Mapping[str, pa.Array]) -> UInt64Array | None:
        """The hash of each row's cluster or id."""
        if name is None:
            return None
        if pc.any(raw[name].is_null(nan_is_null=True)).as_py():
            raise self.source.missing(name)
        return hash_values(raw[name])

    def _rows(self, raw: Mapping[str, pa.Array], first: int, rows: int) -> UInt64Array:
        """The hash of each row's place, where there is neither a cluster nor an id."""
        place = self.source.columns.place
        return hash_rows(self.part.name, first, rows) if place is None else place.units(raw)

    def _encoded(self, role: str, raw: Mapping[str, pa.Array]) -> tuple[FloatArray, ...]:
        return tuple(self.source.checked(role, encoding, raw) for encoding in self.source.encodings[role])

    def _logged(self, raw: Mapping[str, pa.Array], action: npt.NDArray[Any]) -> Logged:
        """Rewards and propensities, of single actions or of lists."""
        source, c = self.source, self.source.columns
        checked, listed = source.checked_in(raw), source.listed
        if listed is None:
            rewards = [checked("reward", name) for name in c.reward]
            p, wins = self._propensities(raw)
            return Logged(rewards[0][:, None] if len(rewards) == 1 else np.column_stack(rewards), p, wins=wins)
        for name in listed.names:
            if raw[name].null_count:
                raise source.missing(name)
        try:
            return listed.logged(raw, action, checked)
        except RowsError as error:
            raise source.recounted(listed, error) from None

    def _actions(self, raw: Mapping[str, pa.Array]) -> npt.NDArray[Any]:
        """The encoded actions, from one column or from one per dimension."""
        space, columns = self.source.space, self.source.columns
        if not columns.dimensions:
            return self._encoded_actions(columns.action, space, raw)
        axes = zip(columns.dimensions, box(space, "action").axes, strict=True)
        return np.column_stack([self._encoded_actions(name, axis, raw) for name, axis in axes])

    def _encoded_actions(self, name: str, space: ActionSpace, raw: Mapping[str, pa.Array]) -> npt.NDArray[Any]:
        column = raw[name]
        if column.null_count:
            raise self.source.missing(name)
        encoded, bad = space.encode(column)
        if bad.any():
            examples = column.filter(pa.array(bad)).slice(0, 3).to_pylist()
            raise self.source.count_failures(name, lambda c: space.encode(c)[1], *space.unknown(examples))
        return encoded

"""Conversion and validation of the numbers, arrays and labels that users pass."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from offpolicy.core.arrays import LARGEST_NUMBER, FloatArray, IntArray, on_host
from offpolicy.core.errors import InputError, RowsError
from offpolicy.core.threads import parallel

NUMBERS = "biuf"
Likelihood = Literal["propensity", "density"]
"""What is logged with an action: its probability under the logging policy, or its density if actions are continuous."""
MOST = 2**63 - 1
"""The largest integer that an array can hold."""
EXACT = 2**53
"""Up to here, a float holds every integer exactly."""


def whole(name: str, value: Any, least: int, most: int = MOST, besides: str = "") -> int:
    """Validate an integer of Python or NumPy.

    >>> whole("seed", np.int64(3), 0)
    3
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral) or not least <= int(value) <= most:
        bound = f"from {least} to {most:,}" if most < MOST else f"from {least}" if least > -MOST else "of at most 64 bits"
        raise InputError(f"{name} is {reprlib.repr(value)}; give a whole number {bound}{besides}.")
    return int(value)


def is_number(value: Any) -> bool:
    """Whether a value is a number of Python or NumPy; booleans are not."""
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def array(values: Any, name: str) -> npt.NDArray[Any]:
    """Values of one kind as an array. (NumPy would turn 1 and NaN among strings into strings.)"""
    try:
        read = np.asarray(on_host(values))
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: cannot be read as an array; all values must have one type and one shape.") from None
    if read.dtype.kind in "US" and isinstance(values, (list, tuple)) and len({isinstance(v, str) for v in values}) > 1:
        raise InputError(f"{name}: text is mixed with other types; use one type throughout.")
    return read


def labels(values: Any, name: str) -> npt.NDArray[Any]:
    """Values that identify something, as an array.

    NumPy turns a list with integers that do not fit in one integer type into floats, in which several have the same value.
    """
    read = array(values, name)
    if read.dtype.kind == "f" and isinstance(values, (list, tuple)):
        rounded = [k for k, v in enumerate(values) if isinstance(v, Integral) and abs(int(v)) > EXACT]
        if rounded:
            raise RowsError(
                name, f"have an integer beyond ±{EXACT:,}, which would be rounded", rounded, "Pass all of them as text."
            )
    return read


def decoded(column: pa.Array) -> pa.Array:
    """Plain values of a dictionary-encoded column, such as a pandas categorical. (Arrow cannot sort half floats.)"""
    if pt.is_dictionary(column.type):
        if pt.is_string_view(column.type.value_type):  # polars; Arrow cannot decode it
            column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.string()))
        column = column.dictionary_decode()
    return column.cast(pa.float32()) if pt.is_float16(column.type) else column


def to_arrow(values: npt.ArrayLike | Sequence[Any], name: str) -> pa.Array:
    """Values of one plain type as an Arrow array; those of a matrix as lists of equal length."""
    try:
        if isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind in NUMBERS:
            return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        return decoded(pa.array(values))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: values have mixed or unsupported types; use one plain type, such as text.") from None


def places(known: npt.NDArray[Any], requested: npt.NDArray[Any], whose: str) -> IntArray:
    """The position of each requested label among the known ones.

    >>> places(np.array(["a", "b"]), np.array(["b", "a"]), "the model").tolist()
    [1, 0]
    """
    at = {label: k for k, label in enumerate(known.tolist())}
    unknown = [label for label in requested.tolist() if label not in at]
    if unknown:
        shown = ", ".join(map(repr, unknown[:3])) + (", …" if len(unknown) > 3 else "")
        example = repr(next(iter(at), None))
        raise InputError(
            f"{whose} does not include {len(unknown):,} of the {len(requested):,} actions of the log: {shown}. (It includes "
            f"{len(at):,}, such as {example}.) Fit it on a log with these actions, or leave them out."
        )
    return np.array([at[label] for label in requested.tolist()], dtype=np.int64)


def floats(values: Any, name: str) -> FloatArray:
    """Numbers of any shape as float64; dates and complex numbers are refused."""
    try:
        values = on_host(values)
        read = np.asarray(values)
        if read.dtype.kind not in NUMBERS + "OU":
            raise TypeError
        with np.errstate(over="ignore"):  # longer floats become infinite, which the checks report
            return (
                read.astype(np.float64, copy=False) if read.dtype.kind in NUMBERS else np.asarray(values, dtype=np.float64)
            )
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} is not numeric. For text and categories, use `read_log` on the table itself.") from None


def matrix(values: Any, name: str, rows: int | None) -> FloatArray:
    """Rounds × columns as float64; a flat list is one column."""
    read = floats(values, name)
    read = read[:, None] if read.ndim == 1 else read
    if read.ndim != 2 or (rows is not None and len(read) != rows):
        raise InputError(f"{name} has shape {np.shape(values)}, which does not fit {rows} rounds.")
    return read


def column(values: Any, name: str, rows: int) -> npt.NDArray[Any] | None:
    """One value per round, of any type and without missing values; None if `values` is None."""
    if values is None:
        return None
    read = labels(values, name)
    _fits(read, name, rows)
    missing = np.asarray(to_arrow(read, name).is_null(nan_is_null=True))
    if missing.any():
        raise RowsError(
            name,
            "are missing",
            np.flatnonzero(missing),
            "Every row needs a value here; fill them in, or leave out this argument.",
        )
    return read


def numbers(values: Any, name: str, rows: int, role: str | None = None) -> FloatArray | None:
    """One number per round, checked for its role; None if `values` is None."""
    if values is None:
        return None
    read = floats(values, name)
    _fits(read, name, rows)
    return checked(role or name, name, read)


def _fits(read: npt.NDArray[Any], name: str, rows: int) -> None:
    if read.shape != (rows,):
        raise InputError(f"{name} has shape {read.shape}, which does not fit {rows} rounds.")


def checked(role: str, name: str, values: FloatArray) -> FloatArray:
    """Return the values if they are valid for a role, and raise otherwise."""
    check = failed_check(role, values)
    if check is not None:
        bad = check.bad(values)
        rows = np.flatnonzero(bad if bad.ndim == 1 else bad.any(axis=1))
        raise RowsError(name, check.what, rows, check.advice)
    return values


def texts(values: npt.NDArray[Any], name: str) -> npt.NDArray[np.str_]:
    """Values of any type as text."""
    try:
        return values.astype(str)
    except UnicodeDecodeError:
        raise InputError(f"{name}: contains bytes that are not text; decode them first.") from None


def reward_range(value: Any) -> tuple[float, float] | None:
    """Two finite numbers, the lower one first."""
    if value is None:
        return None
    pair = floats(value, "reward_range")
    if pair.shape != (2,) or not np.isfinite(pair).all() or not pair[0] < pair[1]:
        raise InputError(f"reward_range is {value!r}; give two finite numbers, the first below the second.")
    return float(pair[0]), float(pair[1])


def factors(gamma: Any) -> list[float]:
    """One or several Γ, the factors by which propensities may be wrong, each at least 1."""
    try:
        several = [gamma] if is_number(gamma) else list(gamma)
    except TypeError:
        several = [gamma]
    bad = [g for g in several if not is_number(g) or not 1 <= float(g) < float("inf")]
    if bad or not several:
        raise InputError(
            f"gamma is {bad[0] if bad else gamma!r}; give a number of at least 1, or several: 1.5 means that the true "
            "propensity may be up to 1.5 times the logged one, or the logged one up to 1.5 times the true one "
            "(--sensitivity 1.5)."
        )
    return [float(g) for g in several]


@dataclass(frozen=True)
class Check:
    """A condition that every value of a column must meet."""

    bad: Callable[[FloatArray], npt.NDArray[np.bool_]]
    what: str
    advice: str
    applies: Callable[[FloatArray], bool] = lambda _: True


FINITE = Check(
    lambda v: ~np.isfinite(v),
    "are missing, NaN or infinite",
    "Repair or remove those rows first: rows are never dropped silently.",
)
PRESENT = replace(
    FINITE,
    advice='Repair or remove those rows first, or pass missing="mean" (--missing mean) to replace missing values by the '
    "mean of the column: rows are never dropped silently.",
)
INFINITE = replace(FINITE, what="are infinite")
NOT_TOO_LARGE = Check(
    lambda v: np.abs(v) > LARGEST_NUMBER,
    f"are beyond ±{LARGEST_NUMBER:g}",
    "Products and squares of them would overflow; check how they were recorded, or change the unit.",
)
POSITIVE = Check(
    lambda v: v <= 0,
    "have a propensity of 0 or less",
    "A logged action has a positive probability under the logging policy; check how the propensity was recorded.",
)
POSITIVE_DENSITY = Check(
    lambda v: v <= 0,
    "have a density of 0 or less",
    "A logged action has a positive density under the logging policy; check how it was recorded.",
)
NOT_TOO_SMALL_DENSITY = Check(
    lambda v: v < 1 / LARGEST_NUMBER,
    f"have a density below {1 / LARGEST_NUMBER:g}",
    "Such actions are practically never logged; check how the density was recorded, and its unit.",
)
NOT_TOO_SMALL = Check(
    lambda v: v < 1 / LARGEST_NUMBER,
    f"have a propensity below {1 / LARGEST_NUMBER:g}",
    "Actions with such a probability are practically never logged; check how the propensity was recorded.",
)
AT_MOST_ONE = Check(
    lambda v: v > 1,
    "have a propensity above 1",
    "A propensity is a probability from 0 to 1; if these are densities or inverse weights, convert them. (For actions that "
    "are numbers and have densities, pass actions=op.Box(low, high).)",
)
PERCENT = Check(
    lambda v: v > 1,
    "have a propensity above 1",
    "A propensity is a probability from 0 to 1. None is above 100, so these look like percent: divide the column by 100. "
    "If they are inverse weights, use 1 / weight.",
    lambda v: bool(v.max(initial=0.0) <= 100),
)
NOT_NEGATIVE = Check(lambda v: v < 0, "have a negative weight", "Row weights must be 0 or more.")
NOT_NEARLY_ZERO = Check(
    lambda v: (v > 0) & (v < 1 / LARGEST_NUMBER),
    f"have a weight between 0 and {1 / LARGEST_NUMBER:g}",
    "Write 0, or change the unit.",
)
CHECKS: Mapping[str, tuple[Check, ...]] = {
    "reward": (FINITE, NOT_TOO_LARGE),
    "context": (PRESENT, NOT_TOO_LARGE),
    "observed": (INFINITE, NOT_TOO_LARGE),
    "features": (FINITE, NOT_TOO_LARGE),
    "propensity": (FINITE, POSITIVE, NOT_TOO_SMALL, PERCENT, AT_MOST_ONE),
    "density": (FINITE, POSITIVE_DENSITY, NOT_TOO_SMALL_DENSITY, NOT_TOO_LARGE),
    "weight": (FINITE, NOT_NEGATIVE, NOT_TOO_LARGE, NOT_NEARLY_ZERO),
}


WITHIN: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("reward", "context", "observed", "features"), (-LARGEST_NUMBER, LARGEST_NUMBER)),
    "propensity": (1 / LARGEST_NUMBER, 1.0),
    "density": (1 / LARGEST_NUMBER, LARGEST_NUMBER),
    "weight": (1 / LARGEST_NUMBER, LARGEST_NUMBER),
}
"""The range of each role within which values meet every check."""


CHECKED_AT_ONCE = 1 << 22
"""Numbers that one thread checks at a time: 32 MB."""


def failed_check(role: str, values: FloatArray) -> Check | None:
    """The first check that some value fails, or None. One or two passes settle the usual case (NaN fails)."""
    low, high = WITHIN[role]
    if low == -high and values.ndim == 1 and float(np.vdot(values, values)) <= high**2:
        return None
    parts = np.array_split(values, 1 + values.size // CHECKED_AT_ONCE)
    each = parallel if len(parts) > 1 else map
    if values.size and all(each(lambda part: part.min() >= low and part.max() <= high, parts)):
        return None
    return next((check for check in CHECKS[role] if check.applies(values) and check.bad(values).any()), None)

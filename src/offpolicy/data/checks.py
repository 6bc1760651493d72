"""Numbers, arrays and labels as users give them: read once, here, and refused in words where they are something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from offpolicy.core.arrays import LARGEST_NUMBER, FloatArray, IntArray
from offpolicy.core.errors import InputError, RowsError

NUMBERS = "biuf"
Likelihood = Literal["propensity", "density"]
"""What is logged beside an action: its probability under the logging policy, or its density where actions are continuous."""
MOST = 2**63 - 1
"""The largest whole number that arrays hold."""


def whole(name: str, value: Any, least: int, most: int = MOST, besides: str = "") -> int:
    """A whole number, Python's or NumPy's.

    >>> whole("seed", np.int64(3), 0)
    3
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral) or not least <= int(value) <= most:
        bound = f"from {least} to {most:,}" if most < MOST else f"from {least}" if least > -MOST else "of at most 64 bits"
        raise InputError(f"{name} is {value!r}; give a whole number {bound}{besides}.")
    return int(value)


def is_number(value: Any) -> bool:
    """Whether it is one number, Python's or NumPy's; a truth value is none."""
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def array(values: Any, name: str) -> npt.NDArray[Any]:
    """Values of any one kind. (NumPy would turn 1 and NaN among texts into texts.)"""
    try:
        read = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: cannot be read as an array; give values of one kind, all of one shape.") from None
    if read.dtype.kind in "US" and isinstance(values, (list, tuple)) and len({isinstance(v, str) for v in values}) > 1:
        raise InputError(f"{name}: values of mixed types, texts and others; use one of them throughout.")
    return read


def decoded(column: pa.Array) -> pa.Array:
    """Plain values of a dictionary-encoded column (a pandas categorical, for one); Arrow cannot sort half floats."""
    column = column.dictionary_decode() if pt.is_dictionary(column.type) else column
    return column.cast(pa.float32()) if pt.is_float16(column.type) else column


def to_arrow(values: npt.ArrayLike | Sequence[Any], name: str) -> pa.Array:
    """Values of one plain type as an Arrow array."""
    try:
        return decoded(pa.array(values))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: values of mixed or unsupported types; use one plain type such as text.") from None


def places(known: npt.NDArray[Any], wanted: npt.NDArray[Any], whose: str) -> IntArray:
    """Where each wanted label stands among the known ones.

    >>> places(np.array(["a", "b"]), np.array(["b", "a"]), "the model").tolist()
    [1, 0]
    """
    at = {label: k for k, label in enumerate(known.tolist())}
    unknown = [label for label in wanted.tolist() if label not in at]
    if unknown:
        shown = ", ".join(map(repr, unknown[:3])) + (", …" if len(unknown) > 3 else "")
        example = repr(next(iter(at), None))
        raise InputError(
            f"{whose} does not know {len(unknown):,} of the {len(wanted):,} actions of the log: {shown}. (It knows "
            f"{len(at):,}, such as {example}.) Learn it from a log with these actions, or leave them out."
        )
    return np.array([at[label] for label in wanted.tolist()], dtype=np.int64)


def floats(values: Any, name: str) -> FloatArray:
    """Numbers of any shape as float64; dates, complex numbers and the like are none."""
    try:
        read = np.asarray(values)
        if read.dtype.kind not in NUMBERS + "OU":
            raise TypeError
        with np.errstate(over="ignore"):  # of longer floats: infinity, which the checks tell of
            return (
                read.astype(np.float64, copy=False) if read.dtype.kind in NUMBERS else np.asarray(values, dtype=np.float64)
            )
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: not numeric. For text and categories use `read_log` on the table itself.") from None


def matrix(values: Any, name: str, rows: int | None) -> FloatArray:
    """Rounds × columns; a flat list is one column."""
    read = floats(values, name)
    read = read[:, None] if read.ndim == 1 else read
    if read.ndim != 2 or (rows is not None and len(read) != rows):
        raise InputError(f"{name}: shape {np.shape(values)} does not fit {rows} rounds.")
    return read


def column(values: Any, name: str, rows: int) -> npt.NDArray[Any] | None:
    """One value a round, of any kind, none of them missing; None where nothing was given."""
    if values is None:
        return None
    read = array(values, name)
    _fits(read, name, rows)
    missing = np.asarray(to_arrow(read, name).is_null(nan_is_null=True))
    if missing.any():
        raise RowsError(name, "are missing", np.flatnonzero(missing), "Name the unit or the slice of every row.")
    return read


def numbers(values: Any, name: str, rows: int, role: str | None = None) -> FloatArray | None:
    """One checked number per round, by its name or by the role it plays; None where nothing was given."""
    if values is None:
        return None
    read = floats(values, name)
    _fits(read, name, rows)
    return checked(role or name, name, read)


def _fits(read: npt.NDArray[Any], name: str, rows: int) -> None:
    if read.shape != (rows,):
        raise InputError(f"{name}: shape {read.shape} does not fit {rows} rounds.")


def checked(role: str, name: str, values: FloatArray) -> FloatArray:
    """The values, unless some of them cannot play that role."""
    check = failed_check(role, values)
    if check is not None:
        bad = check.bad(values)
        rows = np.flatnonzero(bad if bad.ndim == 1 else bad.any(axis=1))
        raise RowsError(name, check.what, rows, check.advice)
    return values


def texts(values: npt.NDArray[Any], name: str) -> npt.NDArray[np.str_]:
    """Values of any kind, as text."""
    try:
        return values.astype(str)
    except UnicodeDecodeError:
        raise InputError(f"{name}: holds bytes that are no text; decode them first.") from None


def reward_range(given: Any) -> tuple[float, float] | None:
    """Two finite numbers, the lower one first."""
    if given is None:
        return None
    pair = floats(given, "reward_range")
    if pair.shape != (2,) or not np.isfinite(pair).all() or not pair[0] < pair[1]:
        raise InputError(f"reward_range is {given!r}: give two finite numbers; the first number must be below the second.")
    return float(pair[0]), float(pair[1])


def factors(gamma: Any) -> list[float]:
    """By how much propensities may be wrong: one Γ or several, each at least 1."""
    try:
        several = [gamma] if is_number(gamma) else list(gamma)
    except TypeError:
        several = [gamma]
    bad = [g for g in several if not is_number(g) or not 1 <= float(g) < float("inf")]
    if bad or not several:
        raise InputError(
            f"gamma is {bad[0] if bad else gamma!r}; give a number of at least 1, or several: 1.5 means that a true "
            "propensity may be up to 1.5 times what was logged, or that much less (--sensitivity 1.5)."
        )
    return [float(g) for g in several]


@dataclass(frozen=True)
class Check:
    """One thing that must hold for every value of a column."""

    bad: Callable[[FloatArray], npt.NDArray[np.bool_]]
    what: str
    advice: str


FINITE = Check(
    lambda v: ~np.isfinite(v),
    "are missing, NaN or infinite",
    "Repair or remove those rows first: nothing is dropped in silence.",
)
NOT_TOO_LARGE = Check(
    lambda v: np.abs(v) > LARGEST_NUMBER,
    f"are beyond ±{LARGEST_NUMBER:g}",
    "Their products and squares would overflow; check how they were recorded, or change the unit.",
)
POSITIVE = Check(
    lambda v: v <= 0,
    "have a propensity of 0 or less",
    "A logged action had a positive chance of being logged; check how the propensity was recorded.",
)
NOT_TOO_SMALL = Check(
    lambda v: v < 1 / LARGEST_NUMBER,
    f"have a propensity below {1 / LARGEST_NUMBER:g}",
    "Nothing was logged with such a chance; check how the propensity was recorded.",
)
AT_MOST_ONE = Check(
    lambda v: v > 1,
    "have a propensity above 1",
    "A propensity is a probability; if these are densities or inverse weights, convert them.",
)
NOT_NEGATIVE = Check(lambda v: v < 0, "have a negative weight", "Row weights must be 0 or more.")
NOT_NEARLY_ZERO = Check(
    lambda v: (v > 0) & (v < 1 / LARGEST_NUMBER),
    f"have a weight between 0 and {1 / LARGEST_NUMBER:g}",
    "Write 0, or change the unit.",
)
CHECKS: Mapping[str, tuple[Check, ...]] = {
    "reward": (FINITE, NOT_TOO_LARGE),
    "context": (FINITE, NOT_TOO_LARGE),
    "features": (FINITE, NOT_TOO_LARGE),
    "propensity": (FINITE, POSITIVE, NOT_TOO_SMALL, AT_MOST_ONE),
    "density": (FINITE, POSITIVE, NOT_TOO_SMALL, NOT_TOO_LARGE),
    "weight": (FINITE, NOT_NEGATIVE, NOT_TOO_LARGE, NOT_NEARLY_ZERO),
}


def failed_check(role: str, values: FloatArray) -> Check | None:
    """The first check that some value fails, or None. Two cheap looks clear the usual case (no NaN is within bounds)."""
    if (
        role in ("reward", "context", "features")
        and values.size
        and values.min() >= -LARGEST_NUMBER
        and values.max() <= LARGEST_NUMBER
    ):
        return None
    return next((check for check in CHECKS[role] if check.bad(values).any()), None)

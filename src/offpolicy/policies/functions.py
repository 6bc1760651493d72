"""User-written functions: their arguments and return values; and `Function`, the policy made from one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, on_host
from offpolicy.core.errors import InputError
from offpolicy.data.batch import Batch
from offpolicy.data.checks import NUMBERS, floats
from offpolicy.policies.base import Policy, check_probabilities

Score = Callable[[Any], npt.ArrayLike]
"""A function of contexts (rounds × context columns), or of named columns (a dict of arrays)."""


class ColumnReader:
    """A function that names the columns it is called with; if it names none, it is called with the contexts."""

    columns: tuple[str, ...]


@final
@dataclass(frozen=True)
class OfColumns(ColumnReader):
    """A function of named columns."""

    function: Score
    columns: tuple[str, ...]

    def __call__(self, columns: dict[str, npt.NDArray[Any]]) -> npt.ArrayLike:
        return self.function(columns)


def with_columns(function: Score, columns: Sequence[str], name: str) -> Score:
    """The function itself, or as a function of the named columns."""
    names = column_names(columns, name)
    if names and isinstance(function, ColumnReader):
        raise InputError(f"{name}: give `columns` to the {type(function).__name__}, which calls the function.")
    return OfColumns(function, names) if names else function


def column_names(columns: Any, name: str) -> tuple[str, ...]:
    """The names as a tuple. A single string is refused, as it would be read letter by letter."""
    names = tuple(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else (None,)
    if not all(isinstance(column, str) for column in names):
        raise InputError(f"{name}: columns is {columns!r}; give a list of column names, such as ['age', 'country'].")
    return names


def columns_of(function: Score | None) -> tuple[str, ...]:
    """The named columns that a function reads."""
    return function.columns if isinstance(function, ColumnReader) else ()


def called(function: Score, batch: Batch, name: str) -> npt.NDArray[Any]:
    """The numbers that a user's function returns for a batch; errors are reported with the rows of the batch."""
    values = returned(function, batch, name)
    try:
        read = np.asarray(on_host(values))
        return read if read.dtype.kind in NUMBERS else floats(values, name)
    except ValueError:  # includes InputError
        kind = type(values).__name__
        raise InputError(
            f"{name}: the function returned a {kind}, which is not an array of numbers ({_call(function, batch)})."
        ) from None


def returned(function: Score, batch: Batch, name: str) -> Any:
    """The return value of a user's function for a batch."""
    columns = columns_of(function)
    try:
        return function({column: batch.column(column) for column in columns} if columns else batch.context)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{name}: the function raised {type(error).__name__}: {error} ({_call(function, batch)})."
        ) from error


def _call(function: Score, batch: Batch) -> str:
    columns = columns_of(function)
    shown = f"columns {', '.join(columns)}" if columns else f"contexts of shape {batch.context.shape}"
    return f"rows {batch.row.min()} to {batch.row.max()}, {shown}"


@final
@dataclass(frozen=True)
class Function(Policy):
    """A policy from a function that returns probabilities.

    The function is called from several threads at once, each time with a block of rounds (262 rounds for 1,000 actions). Use
    `op.WholeBatches` if it is not thread-safe, or if it takes long per call.

    Parameters
    ----------
    function : callable
        Maps contexts (rounds × columns, as in `log.schema.context`) to probabilities (rounds × actions, in the order of
        `log.actions`). With `columns`, it is called with a dict of arrays by name instead.
    columns : sequence of str, default ()
        Columns of the log that the function reads by name, in the context or not.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log([[0.0], [1.0]], action=[0, 1], reward=[1, 0], propensity=[0.5, 0.5])
    >>> policy = op.Function(lambda c: np.column_stack([c["x0"], 1 - c["x0"]]), columns=["x0"])
    >>> op.evaluate(log, policy, [op.IPS()])["IPS"].value
    0.0
    """

    function: Score
    columns: Sequence[str] = ()  # type: ignore[assignment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", column_names(self.columns, "Function"))

    def distribution(self, batch: Batch) -> FloatArray:
        function = OfColumns(self.function, tuple(self.columns)) if self.columns else self.function
        p = called(function, batch, "policy function").astype(np.float64)
        return check_probabilities(p, batch, "policy function")

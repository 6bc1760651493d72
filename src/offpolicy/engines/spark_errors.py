"""Errors on the way to Spark's workers and back, as messages for the user."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.sources.spark import Chunk
from offpolicy.policies.base import Policy
from offpolicy.statistics.base import State, Statistic


def pickled(statistic: Statistic, work: Any) -> bytes:
    """The work as bytes; if that fails, the error names the policy or model that cannot be pickled."""
    from pyspark import cloudpickle

    dumps: Callable[[Any], bytes] = cloudpickle.dumps

    def fails(part: Any) -> bool:
        try:
            dumps(part)
        except Exception:
            return True
        return False

    try:
        return dumps(work)
    except Exception as error:
        chain: list[Any] = [statistic]
        while (inner := next((part for part in _inside(chain[-1]) if fails(part)), None)) is not None and len(chain) < 20:
            chain.append(inner)
        whose = next((part for part in chain if isinstance(part, Policy)), chain[-1])
        inside = f" holds a {type(chain[-1]).__name__}, which" if whose is not chain[-1] else ""
        raise InputError(
            f"{type(whose).__name__}:{inside} cannot be sent to Spark's workers ({type(error).__name__}: {error}). What a "
            "policy or model needs must be plain data: open connections, locks and files where they are used, not earlier."
        ) from error


def _inside(whole: Any) -> list[Any]:
    """What an object contains."""
    if isinstance(whole, Mapping):
        return [*whole.keys(), *whole.values()]
    if isinstance(whole, (list, tuple, set, frozenset)):
        return list(whole)
    cells = getattr(whole, "__closure__", None) or ()
    return [*(cell.cell_contents for cell in cells), *getattr(whole, "__dict__", {}).values()]


def folded(statistic: Statistic, state: State, chunk: Chunk, rows: int) -> State:
    """Add the rows of a chunk to a state; an error of a policy or model is reported with the rows that caused it."""
    for batch in chunk.batches(rows):
        try:
            state = statistic.fold(state, batch)
        except RowsError as error:
            where = [chunk.where(int(row)) for row in error.rows[:3]]
            advice = f"{error.advice} (Only a part of this partition was counted.)"
            raise RowsError(error.column, error.what, error.rows, advice, where=where) from error
        except Exception as error:
            rows_named = " to ".join(dict.fromkeys(chunk.where(row) for row in _failing(statistic, batch)))
            raise InputError(f"{words(error)} ({rows_named})") from error
    return state


def _failing(statistic: Statistic, batch: Batch) -> tuple[int, int]:
    """The first row that fails alone, or the first and last of the fewest rows that fail together."""

    def fails(some: Batch) -> bool:
        try:
            statistic.fold(statistic.zero(), some)
        except Exception:
            return True
        return False

    while (half := len(batch) // 2) > 0:
        halves = (batch.take(slice(0, half)), batch.take(slice(half, len(batch))))
        failing = next((some for some in halves if fails(some)), None)
        if failing is None:
            break
        batch = failing
    return int(batch.row.min()), int(batch.row.max())


def words(error: Exception) -> str:
    """The message of an error, for a user."""
    if isinstance(error, ModuleNotFoundError):
        return (
            f"a policy or model could not be loaded: {error}. Install that module where Spark's workers run, send it with "
            "spark.addArtifacts(…, pyfile=True), or define what you need in the notebook or script itself."
        )
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"


def traced(error: Exception) -> bytes:
    """A worker's traceback, which the driver shows as the cause."""
    return "".join(traceback.format_exception(error)).encode()

"""`Deterministic`: the policy that takes one action per round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, final

import numpy.typing as npt
import pyarrow as pa

from offpolicy.core.arrays import IntArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box
from offpolicy.policies.base import Policy
from offpolicy.policies.functions import Score, called, column_names, with_columns


@final
@dataclass(frozen=True)
class Deterministic(Policy):
    """A policy that takes one action τ(x) per round, for logs whose actions are an `op.Box`.

    Parameters
    ----------
    function : callable
        Maps contexts (rounds × columns, as in `log.schema.context`) to one number per round. With `columns`, it is called
        with a dict of arrays by name instead.
    columns : sequence of str, default ()
        Columns of the log that the function reads by name, in the context or not.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log([[0.2], [0.8]], action=[0.25, 0.5], reward=[1, 1], propensity=[1, 1], actions=op.Box(0, 1))
    >>> result = op.evaluate(log, op.Deterministic(lambda x: x[:, 0]), [op.KernelIPS(0.1)])
    >>> round(result["KernelIPS"].value, 4)
    2.8125
    """

    function: Score
    columns: Sequence[str] = ()  # type: ignore[assignment]
    spaces = (Box,)
    deterministic = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", column_names(self.columns, "Deterministic"))

    def actions(self, batch: Batch) -> npt.NDArray[Any]:
        values = called(with_columns(self.function, self.columns, "Deterministic"), batch, "Deterministic")
        if values.shape != (len(batch),):
            raise InputError(
                f"Deterministic: the function returned shape {values.shape} for {len(batch)} rounds; return one action per "
                "round."
            )
        taken, bad = batch.space.encode(pa.array(values))
        if bad.any():
            what, _ = batch.space.unknown(values[bad][:3].tolist())
            raise RowsError("Deterministic", what, batch.row[bad], "Correct the function: np.clip keeps it within bounds.")
        return taken

    def distribution(self, batch: Batch) -> NoReturn:  # noqa: ARG002
        raise InputError(
            "Deterministic takes one action per round and has no density, which logging policies and the parts of a mixture "
            "need."
        )

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> NoReturn:  # noqa: ARG002
        self.distribution(batch)

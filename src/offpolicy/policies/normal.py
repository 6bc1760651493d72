"""`Normal`: a policy over numbers that varies normally around a mean, truncated to the bounds of the actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box, box
from offpolicy.data.checks import is_number
from offpolicy.policies.density import GRID_NODES, DensityPolicy
from offpolicy.policies.functions import Score, called, column_names, with_columns
from offpolicy.policies.nodes import Nodes, between

NODES = 24
REACH = 7.0
"""Nodes lie within this number of standard deviations of the mean, or of the bound next to it."""
LEAST_MASS = 1e-12


@final
@dataclass(frozen=True)
class Normal(DensityPolicy):
    """A policy over numbers: normal around a mean per round, truncated to the `op.Box` of the log.

    Where actions are vectors, their dimensions are independent.

    Parameters
    ----------
    mean : str, number or callable
        The column of the log with the mean of each round; or one number for all; or a function from contexts (rounds ×
        columns) to one mean per round (rounds × dimensions if actions are vectors). It is the mean before truncation.
    sd : str, number, sequence of numbers, or callable
        The standard deviation before truncation, in the same ways; or one number per dimension.
    columns : sequence of str, default ()
        Columns of the log that the functions read by name, in the context or not.

    Examples
    --------
    >>> import offpolicy as op
    >>> dose = np.linspace(0.05, 0.95, 10)
    >>> log = op.Log(np.zeros((10, 1)), dose, dose, propensity=np.ones(10), actions=op.Box(0, 1))
    >>> round(op.evaluate(log, op.Normal(0.7, 0.1), op.SNIPS())["SNIPS"].value, 3)
    0.7
    """

    mean: Score | str | float
    sd: Score | str | float | Sequence[float]
    columns: Sequence[str] = ()  # type: ignore[assignment]

    def __post_init__(self) -> None:
        given = [each for each in (self.mean, self.sd) if isinstance(each, str)]
        names = (*column_names(self.columns, "Normal"), *given)
        object.__setattr__(self, "columns", tuple(dict.fromkeys(names)))
        for name in ("mean", "sd"):
            value = getattr(self, name)
            if not (isinstance(value, str) or callable(value) or np.asarray(value).dtype.kind in "iuf"):
                raise InputError(f"Normal: {name} is {value!r}; give a number, a column, or a function of the context.")
        if not (isinstance(self.sd, str) or callable(self.sd) or (np.asarray(self.sd, dtype=float) > 0).all()):
            raise InputError(f"Normal: sd is {self.sd!r}; give a positive number.")

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        space = box(batch.space, "Normal")
        mean, sd = self._moments(batch, space)
        action = space.vectors(np.asarray(code, dtype=np.float64))
        z = (action - mean[row]) / sd[row]
        density = np.exp(-z * z / 2) / (np.sqrt(2 * np.pi) * (sd * self._mass(batch, space, mean, sd))[row])
        density[space.outside(code)] = 0.0  # type: ignore[arg-type]
        product: FloatArray = density.prod(axis=1)
        if space.points:
            product[space.at_point(code)] = 0.0  # type: ignore[arg-type]
        return product

    def nodes(self, batch: Batch) -> Nodes:
        space = box(batch.space, "Normal")
        mean, sd = self._moments(batch, space)
        self._mass(batch, space, mean, sd)
        centre = np.clip(mean, space.lows, space.highs)  # of a mean outside, what remains is next to the bound
        low, high = (np.clip(centre + side * REACH * sd, space.lows, space.highs) for side in (-1, 1))
        actions, volumes = between(low, high, NODES if space.dimensions == 1 else GRID_NODES)
        z = (actions - mean[:, None]) / sd[:, None]
        log = -(z * z).sum(axis=2) / 2
        weights = volumes * np.exp(log - log.max(axis=1, keepdims=True))
        return Nodes(actions if space.shape else actions[..., 0], weights / weights.sum(axis=1, keepdims=True))

    def _moments(self, batch: Batch, space: Box) -> tuple[FloatArray, FloatArray]:
        """The mean and the standard deviation, rounds × dimensions."""
        mean, sd = (self._read(name, batch, space) for name in ("mean", "sd"))
        for name, bad in (("mean", ~np.isfinite(mean)), ("sd", ~(np.isfinite(sd) & (sd > 0)))):
            if bad.any():
                what = "are missing or infinite" if name == "mean" else "are not a positive number"
                raise RowsError(f"Normal: {name}", what, batch.row[bad.any(axis=1)], "Correct the column or the function.")
        return mean, sd

    def _read(self, name: str, batch: Batch, space: Box) -> FloatArray:
        value: Any = getattr(self, name)
        if isinstance(value, str):
            read = np.asarray(batch.column(value))
        elif callable(value):
            own = tuple(c for c in self.columns if c not in (self.mean, self.sd))
            read = called(with_columns(value, own, "Normal"), batch, f"Normal: {name}")
        else:
            read = np.asarray(value, dtype=np.float64)
            read = read if is_number(value) else read[None]
        shapes = [(), (1, space.dimensions), (len(batch), *space.shape), (len(batch), space.dimensions)]
        if name == "sd":
            shapes.append((len(batch),))
        if read.shape not in shapes:
            expected = "one per round" if not space.shape else f"rounds × {space.dimensions}"
            raise InputError(f"Normal: {name} has shape {read.shape} for {len(batch)} rounds; {expected} is expected.")
        try:
            read = read.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError(f"Normal: {name} is not numeric.") from None
        return np.broadcast_to(read[:, None] if read.ndim == 1 else read, (len(batch), space.dimensions))

    def _mass(self, batch: Batch, space: Box, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """The probability of the box in each dimension before truncation, computed in the tail where it is exact."""
        from scipy.special import ndtr  # here, so that importing stays light

        low, high = (space.lows - mean) / sd, (space.highs - mean) / sd
        swap = low > 0
        mass: FloatArray = ndtr(np.where(swap, -low, high)) - ndtr(np.where(swap, -high, low))
        lost = ~(mass >= LEAST_MASS)
        if lost.any():
            raise RowsError(
                "Normal", f"have a mean so far outside the {space.nature} that truncation leaves nothing",
                batch.row[lost.any(axis=1)], "Correct the mean, or clip it: np.clip keeps it within bounds.",
            )  # fmt: skip
        return mass

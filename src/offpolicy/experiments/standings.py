"""How close estimators come to the best one of each world: ratios of mean squared errors, with their standard errors.

The best is chosen among estimators that are not blends, on one half of a world's runs and scored on the other half, and vice
versa; otherwise the luck of the winner would count against all others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.estimators.text import estimator
from offpolicy.experiments.entries import MIPS_TRUE, Entry
from offpolicy.experiments.runs import Results, finite_mean
from offpolicy.experiments.tables import notes

DRAWS = 200
FEWEST = 4
"""The number of units (worlds, or logs of one world) from which they are split in halves."""


def is_blend(entry: Entry) -> bool:
    return not entry.foreign and entry.text != MIPS_TRUE and estimator(entry.text).mixes


@dataclass(frozen=True)
class Standings:
    """Estimators × points, NaN if an estimator has no value in some run; standard errors by a bootstrap."""

    ratios: FloatArray
    ratio_errors: FloatArray
    geometric: FloatArray
    geometric_errors: FloatArray
    worst: FloatArray
    worst_errors: FloatArray

    @classmethod
    def of(cls, results: Results) -> Standings:
        units = results.units("mse")
        complete: npt.NDArray[np.bool_] = np.asarray(np.isfinite(results.values).all(axis=(2, 3)))
        if not complete.any():
            raise InputError("no estimator produced a value in any world; the failures were: " + "; ".join(notes(results)))
        single = np.array([not is_blend(entry) for entry in results.experiment.entries])
        judges = complete & (single[:, None] | ~complete[single].any(axis=0))
        halves = _halves(units.shape[2])
        ratios = _ratios(units, complete, judges, halves)
        rng = np.random.default_rng(0)
        drawn = [_ratios(units, complete, judges, [rng.choice(h, len(h)) for h in halves]) for _ in range(DRAWS)]
        return cls(
            ratios,
            np.std(drawn, axis=0),
            _geometric(ratios),
            np.std([_geometric(each) for each in drawn], axis=0),
            _worst(ratios),
            np.std([_worst(each) for each in drawn], axis=0),
        )


def _halves(units: int) -> list[IntArray]:
    every = np.arange(units)
    return [every[::2], every[1::2]] if units >= FEWEST else [every, every]


def _ratios(
    units: FloatArray, complete: npt.NDArray[np.bool_], judges: npt.NDArray[np.bool_], halves: list[IntArray]
) -> FloatArray:
    """Each mean squared error divided by that of the best estimator of the other half."""
    means = [np.where(complete, units[:, :, half].mean(axis=2), np.nan) for half in halves]
    best = [np.argmin(np.where(judges, mean, np.inf), axis=0) for mean in means]
    points = np.arange(units.shape[1])
    reference = means[0][best[1], points] + means[1][best[0], points]
    with np.errstate(all="ignore"):
        ratios: FloatArray = (means[0] + means[1]) / reference
    return ratios


def _geometric(ratios: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        mean: FloatArray = np.exp(finite_mean(np.log(ratios)))
    return mean


def _worst(ratios: FloatArray) -> FloatArray:
    largest: FloatArray = np.where(np.isfinite(ratios), ratios, -np.inf).max(axis=1)
    return np.where(np.isfinite(largest), largest, np.nan)

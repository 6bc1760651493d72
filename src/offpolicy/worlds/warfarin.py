"""`Warfarin`: patients with known right doses, as a log of doses."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.data.box import Box
from offpolicy.data.log import Log
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.deterministic import Deterministic
from offpolicy.worlds.base import Seed, check_count, check_number, generator
from offpolicy.worlds.continuous import Continuous, expected, truncated_normal

DOSE = "Therapeutic Dose of Warfarin"
HEIGHT, WEIGHT, AGE = "Height (cm)", "Weight (kg)", "Age"
LEVELS = (
    "Gender", "Race (OMB)", "Amiodarone (Cordarone)", "Aspirin", "Carbamazepine (Tegretol)", "Phenytoin (Dilantin)",
    "Rifampin or Rifampicin", "CYP2C9 consensus", "VKORC1 -1639 consensus",
)  # fmt: skip
"""Columns whose levels become indicators."""
RAREST = 20
"""Levels of fewer patients than this have no indicator of their own."""
MISSING = ("", "NA", "Unknown")
LOW, HIGH = 0.0, 100.0


@dataclass(frozen=True, eq=False)
class Warfarin(Continuous):
    """Patients whose right weekly dose of warfarin is known: the reward is minus the distance of a dose from it, in mg.

    The logging policy prescribes by body mass index: doses are normal with mean μ + σ·√θ·z and variance σ²·(1 − θ), within
    0 to 100 mg, where μ and σ are the mean and the standard deviation of the right doses and z is the standardised body mass
    index. The target is a linear regression of the right dose on what is known of a patient, learned from one half of the
    patients. Rounds are drawn with replacement from the other half, so that a policy's value is an exact mean over it.

    Patients without a right dose are left out. Missing heights, weights and ages are replaced by their means, and each has
    an indicator; a missing level of any other column is a level of its own.

    Parameters
    ----------
    data : str or Path
        The published data of the International Warfarin Pharmacogenetics Consortium, as a CSV file.
    theta : float, default=0.5
        The share of the variance of logged doses that the body mass index explains.
    seed : int, default=0
        The seed of the split.

    References
    ----------
    N. Kallus, A. Zhou. Policy Evaluation and Optimization with Continuous Treatments. AISTATS 2018.
    """

    data: Any
    _: KW_ONLY
    theta: float = 0.5
    seed: int = 0
    space = Box(LOW, HIGH)

    def __post_init__(self) -> None:
        if not isinstance(self.data, (str, Path)) or not Path(self.data).is_file():
            raise InputError(f"Warfarin: {self.data}: no such file; give the CSV file of the warfarin data.")
        check_number("Warfarin", "theta", self.theta, 0, 0.99)
        check_count("Warfarin", "seed", self.seed, 0, 2**63)

    @cached_property
    def _patients(self) -> tuple[FloatArray, FloatArray]:
        """The context of each patient, whose first column is the standardised body mass index; and the right dose."""
        table = _read(Path(self.data))
        table = table.filter(pc.is_valid(_numbers(table, DOSE)))
        height, weight = _numbers(table, HEIGHT), _numbers(table, WEIGHT)
        index = pc.divide(weight, pc.power(pc.divide(height, 100.0), 2.0))
        decade = pc.cast(pc.utf8_slice_codeunits(_text(table, AGE), 0, 2), pa.float64())
        columns = [part for numbers in (index, height, weight, decade) for part in _standardised(numbers)]
        columns += [column for name in LEVELS for column in _indicators(_text(table, name))]
        return np.column_stack(columns), _numbers(table, DOSE).to_numpy(zero_copy_only=False)

    @cached_property
    def _halves(self) -> tuple[IntArray, IntArray]:
        """The patients that the target is learned from, and those of the rounds."""
        patients = len(self._patients[1])
        order = np.random.default_rng([self.seed, 22]).permutation(patients)
        return order[: patients // 2], order[patients // 2 :]

    @cached_property
    def _coefficients(self) -> FloatArray:
        """Of the regression of the right dose, with the intercept last; ridge, since indicators may be collinear."""
        x, dose = self._patients
        rows = self._halves[0]
        design = np.column_stack([x[rows], np.ones(len(rows))])
        gram = design.T @ design + np.diag([1.0] * x.shape[1] + [0.0])
        return np.linalg.solve(gram, design.T @ dose[rows])

    @property
    def target(self) -> Policy:
        return Deterministic(lambda x: np.clip(x @ self._coefficients[:-1] + self._coefficients[-1], LOW, HIGH))

    @cached_property
    def _logged_doses(self) -> tuple[float, float, float]:
        """The mean of logged doses, what a unit of the standardised body mass index adds, and their standard deviation."""
        mean, sd = self._patients[1].mean(), self._patients[1].std()
        return float(mean), float(sd * np.sqrt(self.theta)), float(sd * np.sqrt(1 - self.theta))

    def sample(self, n: int, seed: Seed) -> Log:
        check_count("Warfarin", "n", n, 2, 10**9)
        rng, (x, right) = generator(seed), self._patients
        rows = rng.choice(self._halves[1], n)
        mean, slope, sd = self._logged_doses
        dose, density = truncated_normal(mean + slope * x[rows, 0], sd, (LOW, HIGH), rng)
        reward = -np.abs(right[rows] - dose)
        return Log(x[rows], dose, reward, propensity=density, actions=self.space)

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """Minus the mean distance from the right dose over the patients of the rounds, which is exact; and 0.

        Parameters
        ----------
        policy : Policy
            A policy, or anything that can be converted to one.

        Returns
        -------
        tuple of float
            The value and its standard error.
        """
        (x, right), rows = self._patients, self._halves[1]
        converted = as_policy(policy).on(self.sample(2, seed=0))
        rewards = expected(converted, x[rows], self.space, lambda dose: -np.abs(right[rows] - dose))
        return float(rewards.mean()), 0.0


def _read(path: Path) -> pa.Table:
    """The columns of the file that are used, as text."""
    named = [DOSE, HEIGHT, WEIGHT, AGE, *LEVELS]
    convert = csv.ConvertOptions(include_columns=named, column_types=dict.fromkeys(named, pa.string()))
    try:
        return csv.read_csv(path, convert_options=convert)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise InputError(f"{path}: cannot be read as the warfarin data: {error}") from None


def _text(table: pa.Table, name: str) -> pa.Array:
    """A column, without the words for a missing value."""
    column = pc.utf8_trim_whitespace(table[name].combine_chunks())
    return pc.if_else(pc.is_in(column, pa.array(MISSING)), None, column)


def _numbers(table: pa.Table, name: str) -> pa.Array:
    return _text(table, name).cast(pa.float64())


def _standardised(numbers: pa.Array) -> tuple[FloatArray, FloatArray]:
    """Numbers with mean 0 and variance 1, with 0 where they are missing, and an indicator of that."""
    values: FloatArray = numbers.to_numpy(zero_copy_only=False)
    missing = np.isnan(values)
    return np.where(missing, 0.0, (values - np.nanmean(values)) / np.nanstd(values)), missing.astype(np.float64)


def _indicators(levels: pa.Array) -> list[FloatArray]:
    """One column per frequent level, of which a missing value is one, except the most frequent."""
    filled = pc.fill_null(levels, "missing").to_numpy(zero_copy_only=False)
    seen, counts = np.unique(filled, return_counts=True)
    frequent = sorted(zip(counts.tolist(), seen.tolist(), strict=True), reverse=True)[1:]
    return [(filled == level).astype(np.float64) for count, level in frequent if count >= RAREST]

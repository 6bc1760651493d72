"""`LabelledData`: a labelled data set in three parts, from which worlds are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError, unknown_name

DATA_SETS = ("breast_cancer", "digits", "iris", "wine")
"""The data sets included in scikit-learn."""


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Standardised features and the class of each row, in three parts, each with a third of every class.

    `world` is the name of the world in messages. `data` is the name of a data set, the path of a CSV file with the class in
    its last column, or a pair of features and labels.
    """

    world: str
    data: Any
    seed: int

    def __post_init__(self) -> None:
        data = self.data
        if isinstance(data, str) and not _is_file(data) and data not in DATA_SETS:
            raise unknown_name("data set", data, DATA_SETS)
        if isinstance(data, (str, Path)) and _is_file(str(data)) and not Path(data).is_file():
            raise InputError(f"{data}: no such file.")
        if not isinstance(data, (str, Path)) and not (isinstance(data, (tuple, list)) and len(data) == 2):
            raise InputError(
                f"{self.world}: data must be the name of a data set, a CSV file with the class in its last column, or a "
                "pair of features and labels."
            )

    @cached_property
    def rows(self) -> tuple[FloatArray, IntArray]:
        """Standardised features, and classes as codes."""
        features, labels = _load(self.data) if isinstance(self.data, (str, Path)) else self.data
        try:
            x, y = np.asarray(features, dtype=np.float64), np.asarray(labels)
        except (TypeError, ValueError):
            raise InputError(f"{self.world}: features must be numbers, rows × columns.") from None
        if x.ndim != 2 or not len(x) or (y != y).any() or y.shape != (len(x),) or not np.isfinite(x).all():
            raise InputError(
                f"{self.world}: features of shape {x.shape} and labels of shape {y.shape}; give finite numbers, "
                "rows × columns, and one label per row, none of them missing."
            )
        codes: IntArray = np.unique(y, return_inverse=True)[1].astype(np.int64)
        frequent = int((np.bincount(codes) >= 6).sum())
        if frequent < 2:
            raise InputError(
                f"{self.world}: {codes.max() + 1} classes, of which {frequent} have at least 6 rows; give at least 2 such "
                "classes, so that every third has both."
            )
        return (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0), codes

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.rows[1].max()) + 1

    @cached_property
    def thirds(self) -> list[IntArray]:
        """Rows of three parts, each with a third of every class."""
        classes = self.rows[1]
        order = np.random.default_rng([self.seed, 7]).permutation(len(classes))
        by_class = order[np.argsort(classes[order], kind="stable")]
        return [by_class[k::3] for k in range(3)]

    def classifier(self, part: int) -> Callable[[FloatArray], FloatArray]:
        """A logistic regression on one third: from contexts to the probability of each class, 0 for a class it lacks."""
        from sklearn.linear_model import LogisticRegression

        x, y = self.rows
        rows = self.thirds[part]
        model = LogisticRegression(max_iter=1000).fit(x[rows], y[rows])

        def probabilities(contexts: FloatArray) -> FloatArray:
            out = np.zeros((len(contexts), self.classes))
            out[:, model.classes_] = model.predict_proba(contexts)
            return out

        return probabilities


def _is_file(name: str) -> bool:
    return name.endswith(".csv")


def _load(name: str | Path) -> tuple[Any, Any]:
    if not _is_file(str(name)):
        from sklearn import datasets

        loaded: tuple[Any, Any] = getattr(datasets, f"load_{name}")(return_X_y=True)
        return loaded
    import pyarrow as pa
    from pyarrow import csv

    try:
        table = csv.read_csv(name)
        columns = [column.to_numpy() for column in table.columns]
        return np.column_stack(columns[:-1]).astype(np.float64), columns[-1].astype(str)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise InputError(f"{name}: cannot be read as numbers with a class in the last column: {error}") from None

"""What a reward model must do: name the statistics it is fitted from, and turn them into predictors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.hashing import buckets, group_of_bucket
from offpolicy.core.imports import Named
from offpolicy.core.memory import Need
from offpolicy.data.batch import Batch
from offpolicy.data.features import Features, Inputs
from offpolicy.data.schema import Schema
from offpolicy.data.spaces import Serves
from offpolicy.models.embedding_table import Embedding, FeatureMap
from offpolicy.statistics.base import State, Statistic

RowWeight = Callable[[Batch], FloatArray]
NO_FEATURES = Features()


@dataclass(frozen=True)
class FitShape:
    """The sizes a fit needs to know, and the groups of units that folds are made of."""

    n_actions: int
    context: int
    rewards: int
    groups: int
    seed: int
    columns: tuple[str, ...] = ()
    rows: int = 0
    """Rows of the log; 0 where weights need not be scaled."""
    row_weight: RowWeight | None = None
    inputs: Inputs = "identity"
    features: Features = NO_FEATURES
    folds: int = 1
    """The fit must be able to do without each of so many folds."""
    jackknife: bool = True
    """Whether the groups are fine enough to refit without each; else they are the folds, and sums by action stay packed."""
    shared: bool = False
    """Whether actions share one covariance of the context, because there is no room for one each."""
    most_rows: int | None = field(default=None, compare=False)
    """Rows that a batch may have."""
    ordered: bool = field(default=True, compare=False)
    """Whether the rows of the log stand in one order, as those of an array do."""
    progress: bool | None = field(default=None, compare=False)
    """Whether models that train for long show a bar; None: on a terminal."""
    origin: FloatArray = field(default_factory=lambda: np.empty(0), compare=False)
    """A typical (context, features) of the log, from which products are taken, so that large offsets lose no digits."""

    def without_inputs(self) -> FitShape:
        """The same for a statistic that the inputs do not matter to, so that fits with other inputs share it."""
        return replace(self, inputs="identity", features=NO_FEATURES, folds=1)

    def group(self, batch: Batch) -> IntArray:
        """The group of each row's unit. A fold of K is a run of groups / K neighbouring groups."""
        groups: IntArray = group_of_bucket(self.groups)[buckets(batch.unit, self.seed)]
        return groups

    def weight_scale(self, total: float) -> float:
        """What brings row weights with this sum to a mean of 1. Penalties count rounds, whatever the unit of the weights."""
        return self.rows / total if self.rows and total > 0 else 1.0

    def weights(self, batch: Batch) -> FloatArray | None:
        """What each row counts in a fit: its weight in the log, times the fit's own."""
        own = None if self.row_weight is None else self.row_weight(batch)
        if own is None or batch.weight is None:
            return batch.weight if own is None else own
        return own * batch.weight


@dataclass(frozen=True)
class FitStatistic:
    """What is summed over the log for a fit. A subclass gives `zero` and `fold`; sums by name are merged by adding them."""

    shape: FitShape

    @property
    def columns(self) -> tuple[str, ...]:
        return self.shape.columns

    @property
    def batch_rows(self) -> int | None:
        return None

    def merge(self, a: State, b: State) -> State:
        """Sums add up."""
        for name in a:
            a[name] += b[name]
        return a

    def finish(self, state: State) -> Any:
        return state


class Predictor(Protocol):
    """A fitted q(x, a)."""

    def all(self, batch: Batch) -> FloatArray:
        """Rounds × actions."""
        ...

    def taken(self, batch: Batch) -> FloatArray:
        """Of the logged action of each round."""
        ...


class Savable(Named, Predictor, ABC):
    """A fitted q(x, a) that is nothing but arrays, so that it can be saved, loaded, and used on logs with other actions.

    Files know it by its `kind`, and are read by `from_arrays` of the class that states it.
    """

    @abstractmethod
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that it is made of."""

    @property
    def settings(self) -> dict[str, int]:
        """The few numbers besides that say how the arrays are used."""
        return {}

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], settings: Mapping[str, int], shape: FitShape) -> Self:
        """The same again; raises ValueError or KeyError where the arrays do not belong together."""

    @abstractmethod
    def for_actions(self, at: IntArray, features: Features) -> Self:
        """The same for a log whose actions stand at these places, and which has these features."""


def mean_features(features: Features, counts: FloatArray, sums: FloatArray, origin: FloatArray) -> FloatArray:
    """φ̄ of each action, from sums around an origin; of actions never logged, that of the catalog or else of the log."""
    n = counts[:, None]
    overall = sums.sum(axis=0) / max(float(n.sum()), 1e-300)
    means: FloatArray = origin + np.where(n > 0, sums / np.where(n > 0, n, 1.0), overall)
    if features.catalog is not None and features.size:
        means[:, features.per_round :] = features.catalog
    return means


def design(batch: Batch, centre: FloatArray) -> FloatArray:
    """x̃ = (x − centre, 1), as (features + 1) × rounds."""
    out = np.empty((len(centre) + 1, len(batch)))
    np.subtract(batch.context.T, centre[:, None], out=out[:-1])
    out[-1] = 1.0
    return out


@dataclass(frozen=True)
class LinearPredictor(Savable):
    """q(x, a) = (x − centre)·slope_a + intercept_a. `coef` is actions × (features + 1), the intercept last.

    With features φ that vary within an action, the control of a round is x̃·(own_a + φ·shared), and `coef` is that at each
    action's mean features: all that a baseline needs, since q is linear in φ.
    """

    coef: FloatArray
    centre: FloatArray
    scale: FloatArray | None = None
    """The spread of the context, in which slopes are comparable with each other and with the intercept."""
    counts: FloatArray | None = None
    """The rounds of each action behind the fit."""
    varying: FeatureMap | None = None
    down: FloatArray | None = None
    """(features + 1) × rank: takes scaled coefficients of low rank to an embedding of that size."""
    mean: FloatArray | None = None
    """The mean context of the rows behind the fit."""
    covariance: FloatArray | None = None
    """With which the scaled coefficients are estimated, averaged over the rounds."""
    kind = "linear"

    def all(self, batch: Batch) -> FloatArray:
        product: FloatArray = design(batch, self.centre).T @ self.coef.T
        return product

    def taken(self, batch: Batch) -> FloatArray:
        return self.taken_of(design(batch, self.centre), batch)

    def taken_of(self, x: FloatArray, batch: Batch) -> FloatArray:
        """The same for a design that was made before."""
        coef = self.coef[batch.action] if self.varying is None else self.varying.rows(batch)
        values: FloatArray = np.einsum("ji,ij->i", x, coef)
        return values

    def moved(self, centre: FloatArray) -> LinearPredictor:
        """The same function written around another centre."""
        step = np.eye(len(centre) + 1)
        step[:-1, -1] = centre - self.centre
        varying = None if self.varying is None else self.varying.mapped(step)
        return replace(self, coef=self.coef @ step, centre=centre, varying=varying)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        varying = parts.pop("varying")
        parts |= {} if varying is None else {"own": varying.own, "shared": varying.shared}
        return {name: np.asarray(part, dtype=np.float64) for name, part in parts.items() if part is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], settings: Any, shape: FitShape) -> Self:  # noqa: ARG003
        n, d = shape.n_actions, shape.context
        sizes: dict[str, tuple[int | None, ...]] = {
            "coef": (n, d + 1), "centre": (d,), "scale": (d,), "counts": (n,), "down": (d + 1, None), "mean": (d,),
            "covariance": (d + 1, d + 1), "own": (n, d + 1), "shared": (shape.features.size, d + 1),
        }  # fmt: skip
        check_shapes(arrays, sizes, ("coef", "centre"))
        parts: dict[str, Any] = dict(arrays)
        if "shared" in parts:
            parts["varying"] = FeatureMap(parts.pop("own"), parts.pop("shared"), shape.features)
        return cls(**parts)

    def for_actions(self, at: IntArray, features: Features) -> Self:
        varying = None if self.varying is None else FeatureMap(self.varying.own[at], self.varying.shared, features)
        counts = None if self.counts is None else self.counts[at]
        return replace(self, coef=self.coef[at], counts=counts, varying=varying)

    @property
    def embedding(self) -> Embedding:
        """e = (slopes on the scale of the context, intercept at its centre): all in the unit of the reward."""
        scale = np.append(np.ones(len(self.centre)) if self.scale is None else self.scale, 1.0)
        own = np.diag(1 / scale)  # back to slopes in the context's units, and the intercept at the origin
        own[:-1, -1] = -self.centre / scale[:-1]
        to_e = np.diag(scale) if self.down is None else np.diag(scale) @ self.down
        return Embedding(
            table=self.coef @ to_e,
            counts=np.ones(len(self.coef)) if self.counts is None else self.counts,
            common=True,
            own_units=own if self.down is None else None,
            varying=None if self.varying is None else self.varying.mapped(to_e),
            covariance=_between(self.covariance, self.down),
            reward=self.coef[:, -1] + (0.0 if self.mean is None else self.coef[:, :-1] @ (self.mean - self.centre)),
            turned=self.down is not None,
        )


def check_shapes(
    arrays: Mapping[str, npt.NDArray[Any]], sizes: Mapping[str, tuple[int | None, ...]], needed: Sequence[str],
    dtype: str = "f",
) -> None:  # fmt: skip
    """Raise ValueError where an array is missing, unknown, or not of its size (None: any)."""
    for name in (*needed, *arrays):
        if name not in arrays or name not in sizes:
            raise ValueError(f"the array {name!r} is {'missing' if name not in arrays else 'unknown'}")
        shape, wanted = arrays[name].shape, sizes[name]
        if len(shape) != len(wanted) or any(b not in (None, a) for a, b in zip(shape, wanted, strict=True)):
            raise ValueError(f"the array {name!r} has shape {shape}, but {wanted} is needed")
        if arrays[name].dtype.kind != dtype:
            raise ValueError(f"the array {name!r} holds no fractions")


def _between(covariance: FloatArray | None, matrix: FloatArray | None) -> FloatArray | None:
    return covariance if covariance is None or matrix is None else matrix.T @ covariance @ matrix


def embedding_of(predictor: Predictor, name: str) -> Embedding:
    """The embedding that a fitted reward model gives."""
    embedding: Embedding | None = getattr(predictor, "embedding", None)
    if embedding is None:
        raise no_embedding(name)
    return embedding


def no_embedding(name: str) -> InputError:
    return InputError(
        f"{name}: this reward model gives no embedding. Use op.Ridge(), op.AdamW(), op.Torch(…), or op.Regressor(…, "
        "embedding=…) with a function that gives one."
    )


class Fits(ABC):
    """What the fit pass gives: predictors for each reward, on all rows or without some."""

    @abstractmethod
    def on_all(self, reward: int) -> Predictor: ...

    @abstractmethod
    def without_fold(self, reward: int, fold: int, folds: int) -> Predictor: ...

    @property
    def can_refit(self) -> bool:
        """Whether refits without one group, for the jackknife, are to be had from the statistics."""
        return False

    def without_group(self, reward: int, group: int) -> LinearPredictor | None:  # noqa: ARG002
        """For the jackknife; None where it cannot be had."""
        return None

    def diagnostics(self, reward: int) -> dict[str, Any]:  # noqa: ARG002
        """`r2`: out of fold, where known; and what was chosen in the fit."""
        return {}


class RewardModel(Named, Serves, ABC):
    """Settings of a reward model, and all that the package needs to know about it.

    `statistics` are folded over the log, and `fits` turns their results into predictors. The other methods have defaults
    for a model that is fitted to the log, gives no embedding and holds little memory. A class that states its `kind` can be
    chosen by that name on the command line.
    """

    @abstractmethod
    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        """What is summed over the log; empty where nothing needs to be fitted. Equal statistics are folded once."""

    @abstractmethod
    def fits(self, shape: FitShape, results: Sequence[Any]) -> Fits:
        """From the results of the statistics, in their order."""

    def on(self, schema: Schema) -> RewardModel:  # noqa: ARG002
        """The same as it suits the actions and columns of a log; raises where it does not."""
        return self

    @property
    def fitted(self) -> bool:
        """Whether anything of it is fitted to the log at hand."""
        return True

    @property
    def fitted_before(self) -> bool:
        """Whether it was fitted to another log, so that it has an estimation error that this log knows nothing of."""
        return False

    @property
    def embeds(self) -> bool:
        """Whether its predictors have an `embedding`."""
        return False

    @property
    def knows_error(self) -> bool:
        """Whether its embedding comes with the covariance with which it is estimated."""
        return False

    @property
    def linear(self) -> bool:
        """Whether q at an action is its mean over features that vary within the action, as for a q linear in them."""
        return False

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages besides the required ones whose versions its numbers depend on."""
        return ()

    def needs(self, shape: FitShape, threads: int) -> tuple[Need, ...]:  # noqa: ARG002
        """The memory that grows with actions, context or rewards, while `threads` parts of the log are at work.

        Fits with the same row weights share needs that are equal.
        """
        return ()

    def refit_numbers(self, shape: FitShape) -> int:  # noqa: ARG002
        """Numbers per action that refits without each group hold, where there are refits."""
        return 0

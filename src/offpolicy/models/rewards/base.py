"""The base classes of reward models: the statistics they are fitted from, the fits, and the predictors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import Array, FloatArray, IntArray, library, like, sent, to_numpy
from offpolicy.core.device import Device
from offpolicy.core.errors import InputError
from offpolicy.core.hashing import buckets, group_of_bucket
from offpolicy.core.imports import Named
from offpolicy.core.memory import Need
from offpolicy.data.batch import Batch
from offpolicy.data.features import Features, Inputs
from offpolicy.data.schema import Schema
from offpolicy.data.spaces import Serves
from offpolicy.models.embedding_table import Embedding, FeatureMap
from offpolicy.policies.nodes import Nodes
from offpolicy.statistics.base import State, Statistic

RowWeight = Callable[[Batch], FloatArray]
NO_FEATURES = Features()
TURNED_ROWS = 2_048
"""Rows of a context that are turned into columns at a time: with 64 columns, 1 MB."""


@dataclass(frozen=True)
class FitShape:
    """The sizes of the log that a fit depends on, and the groups of units that folds consist of.

    Parameters
    ----------
    n_actions, context, rewards : int
        The number of actions, of context columns and of rewards.
    groups : int
        The number of groups of units.
    seed : int
        Determines the group of each unit.
    columns : tuple of str
        The columns of the log that the fit reads.
    rows : int
        The rows of the log; 0 if weights need not be scaled.
    row_weight : callable, optional
        The fit's own weight of each row of a batch.
    inputs : {"identity", "features", "both"}
        How an action enters the model.
    features : Features
        The action features of the log.
    folds : int
        The number of folds for cross-fitting; there must be a fit without each of them.
    jackknife : bool
        Whether there is a refit without each group; if not, the groups are the folds, and sums by action stay packed.
    shared : bool
        Whether all actions share one covariance of the context, because one per action exceeds the memory.
    most_rows : int, optional
        The largest number of rows of a batch.
    ordered : bool
        Whether the rows of the log have an order, like those of an array.
    action_shape : tuple of int
        The shape of one action: () if it is one number.
    device : Device, optional
        The device that sums by action and solves, of an engine that has one.
    progress : bool, optional
        Whether long training shows a progress bar; by default only on a terminal.
    origin : array
        A typical (context, features, rewards) of the log. Products are taken around it to avoid cancellation.
    """

    n_actions: int
    context: int
    rewards: int
    groups: int
    seed: int
    columns: tuple[str, ...] = ()
    rows: int = 0
    row_weight: RowWeight | None = None
    inputs: Inputs = "identity"
    features: Features = NO_FEATURES
    folds: int = 1
    jackknife: bool = True
    shared: bool = False
    most_rows: int | None = field(default=None, compare=False)
    ordered: bool = field(default=True, compare=False)
    device: Device | None = field(default=None, compare=False)
    progress: bool | None = field(default=None, compare=False)
    action_shape: tuple[int, ...] = ()
    origin: FloatArray = field(default_factory=lambda: np.empty(0), compare=False)

    def without_inputs(self) -> FitShape:
        """The shape for a statistic that does not depend on the inputs, so that fits with different inputs share it."""
        return replace(self, inputs="identity", features=NO_FEATURES, folds=1)

    def with_position(self) -> FitShape:
        """The shape of a fit over all slots of lists, whose position is one more column of the context."""
        (slots,) = self.action_shape
        if slots == 1:
            return self
        origin = np.insert(self.origin, self.context, 0.0) if len(self.origin) else self.origin
        return replace(self, context=self.context + 1, origin=origin)

    def group(self, batch: Batch) -> IntArray:
        """The group of each row's unit. Each of K folds consists of groups / K consecutive groups."""
        groups: IntArray = group_of_bucket(self.groups)[buckets(batch.unit, self.seed)]
        return groups

    def weight_scale(self, total: float) -> float:
        """The factor that gives row weights with this sum a mean of 1, since penalties count rounds."""
        return self.rows / total if self.rows and total > 0 else 1.0

    def weights(self, batch: Batch) -> FloatArray | None:
        """The weight of each row in a fit: its weight in the log, times the fit's own."""
        own = None if self.row_weight is None else self.row_weight(batch)
        if own is None or batch.weight is None:
            return batch.weight if own is None else own
        return own * batch.weight


@dataclass(frozen=True)
class FitStatistic:
    """The base of statistics that are summed over the log for a fit. A subclass defines `zero` and `fold`.

    Parameters
    ----------
    shape : FitShape
        The sizes of the log, and its groups of units.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np, offpolicy as op
    >>> @dataclass(frozen=True)
    ... class Rewards(op.FitStatistic):
    ...     def zero(self):
    ...         return {"sum": np.zeros(self.shape.rewards)}
    ...     def fold(self, state, batch):
    ...         return {"sum": state["sum"] + batch.reward.sum(axis=0)}
    """

    shape: FitShape

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log that it reads."""
        return self.shape.columns

    @property
    def batch_rows(self) -> int | None:
        """The number of rows of a batch that suits it; None for the default."""
        return None

    def merge(self, a: State, b: State) -> State:
        """Merge the states of two parts of the log by adding the arrays of the same name.

        Parameters
        ----------
        a, b : dict of array
            The states; `a` is changed in place.
        """
        for name in a:
            a[name] += b[name]
        return a

    def finish(self, state: State) -> Any:
        """Return the result, from the state of the whole log.

        Parameters
        ----------
        state : dict of array
            The merged state.
        """
        return state


class Predictor(Protocol):
    """A fitted q(x, a)."""

    def all(self, batch: Batch) -> FloatArray:
        """Return q of every action in each round, rounds × actions.

        Parameters
        ----------
        batch : Batch
            Rounds of a log.
        """
        ...

    def taken(self, batch: Batch) -> FloatArray:
        """Return q of the logged action of each round.

        Parameters
        ----------
        batch : Batch
            Rounds of a log.
        """
        ...


@runtime_checkable
class ContinuousPredictor(Predictor, Protocol):
    """A fitted q(x, a) of continuous actions."""

    def at(self, batch: Batch, nodes: Nodes) -> FloatArray:
        """Return q of some actions in each round, rounds × nodes.

        Parameters
        ----------
        batch : Batch
            Rounds of a log.
        nodes : Nodes
            The actions.
        """
        ...


class Savable(Named, Predictor, ABC):
    """The base of fitted models q(x, a) that consist of arrays: they can be saved, loaded, and used on other logs.

    A file states the `kind` of the model, and is read by `from_arrays` of the class with that kind.
    """

    @abstractmethod
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays that the model consists of, by name."""

    @property
    def settings(self) -> dict[str, int]:
        """The numbers needed in addition to the arrays."""
        return {}

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], settings: Mapping[str, int], shape: FitShape) -> Self:
        """Return a model from its arrays.

        Parameters
        ----------
        arrays : mapping of str to array
            What `arrays` returned.
        settings : mapping of str to int
            What `settings` returned.
        shape : FitShape
            The sizes of the log that the model was fitted on.

        Raises
        ------
        ValueError, KeyError
            If the arrays do not fit together.
        """

    @abstractmethod
    def for_actions(self, at: IntArray, features: Features) -> Self:
        """Return the model for another log, whose actions are some of those of the fit.

        Parameters
        ----------
        at : array of int
            The code in the fit of each action of the log.
        features : Features
            The action features of the log.
        """


def mean_features(features: Features, counts: FloatArray, sums: FloatArray, origin: FloatArray) -> FloatArray:
    """φ̄ of each action, from sums around an origin; for actions never logged, from the catalog, or else that of the log."""
    n = counts[:, None]
    overall = sums.sum(axis=0) / max(float(n.sum()), 1e-300)
    means: FloatArray = origin + np.where(n > 0, sums / np.where(n > 0, n, 1.0), overall)
    if features.catalog is not None and features.size:
        means[:, features.per_round :] = features.catalog
    return means


def design(batch: Batch, centre: FloatArray) -> FloatArray:
    """x̃ = (x − centre, 1), as (features + 1) × rounds."""
    out, context = np.empty((len(centre) + 1, len(batch))), batch.context
    step = TURNED_ROWS if context.flags.c_contiguous else max(len(batch), 1)  # turned in the cache
    for some in (slice(start, start + step) for start in range(0, len(batch), step)):
        np.subtract(context[some].T, centre[:, None], out=out[:-1, some])
    out[-1] = 1.0
    return out


@dataclass(frozen=True)
class LinearPredictor(Savable):
    """q(x, a) = (x − centre)·slope_a + intercept_a.

    With features φ that vary within an action, the control of a round is x̃·(own_a + φ·shared), and `coef` holds the
    coefficients at each action's mean features. That is all a baseline needs, since q is linear in φ.

    Parameters
    ----------
    coef : array of shape (n_actions, context + 1)
        The slopes of each action, then the intercept; a tensor if it was fitted on a device, until `on_host`.
    centre : array of shape (context,)
        The context at which q is the intercept.
    scale : array of shape (context,), optional
        The standard deviations of the context, which make slopes comparable with each other and with the intercept.
    counts : array of shape (n_actions,), optional
        The rounds of each action in the fit.
    varying : FeatureMap, optional
        The coefficients as a function of the features of the round.
    down : array of shape (context + 1, rank), optional
        Maps scaled coefficients of low rank to an embedding of that size.
    mean : array of shape (context,), optional
        The mean context of the fit.
    covariance : array of shape (context + 1, context + 1), optional
        The covariance of the estimated scaled coefficients, averaged over the rounds.
    """

    coef: Array
    centre: FloatArray
    scale: FloatArray | None = None
    counts: FloatArray | None = None
    varying: FeatureMap | None = None
    down: FloatArray | None = None
    mean: FloatArray | None = None
    covariance: FloatArray | None = None
    kind = "linear"

    def all(self, batch: Batch) -> FloatArray:
        product: FloatArray = design(batch, self.centre).T @ self.coef.T
        return product

    def taken(self, batch: Batch) -> FloatArray:
        return to_numpy(self.taken_of(like(design(batch, self.centre), self.coef), batch))

    def taken_of(self, x: Array, batch: Batch) -> Array:
        """The same from a design computed before, where the coefficients are."""
        action = sent(batch.action, self.coef)
        coef = batch.space.expand(self.coef, action) if self.varying is None else self.varying.rows(batch)
        return library(coef).einsum("ji,ij->i", x, coef)

    def on_host(self) -> LinearPredictor:
        """With arrays in memory."""
        return replace(self, coef=to_numpy(self.coef))

    def moved(self, centre: FloatArray) -> LinearPredictor:
        """The same function around another centre."""
        step = np.eye(len(centre) + 1)
        step[:-1, -1] = centre - self.centre
        slopes, xp = self.coef[:, :-1], library(self.coef)
        coef = xp.concatenate([slopes, (self.coef[:, -1] + slopes @ like(step[:-1, -1], slopes))[:, None]], axis=1)
        varying = None if self.varying is None else self.varying.mapped(step)
        return replace(self, coef=coef, centre=centre, varying=varying)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        varying = parts.pop("varying")
        parts |= {} if varying is None else {"own": varying.own, "shared": varying.shared}
        return {name: to_numpy(part) for name, part in parts.items() if part is not None}

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
    def _at_mean(self) -> FloatArray:
        """q of each action at the mean context."""
        slopes, level = self.coef[:, :-1], self.coef[:, -1]
        return to_numpy(level if self.mean is None else level + slopes @ like(self.mean - self.centre, slopes))

    @property
    def embedding(self) -> Embedding:
        """e = (slopes on the scale of the context, intercept at its centre), all in the unit of the reward."""
        scale = np.append(np.ones(len(self.centre)) if self.scale is None else self.scale, 1.0)
        own = np.diag(1 / scale)  # to slopes in the units of the context, and the intercept at the origin
        own[:-1, -1] = -self.centre / scale[:-1]
        to_e = np.diag(scale) if self.down is None else np.diag(scale) @ self.down
        return Embedding(
            table=self.coef * like(scale, self.coef) if self.down is None else self.coef @ to_e,
            counts=np.ones(len(self.coef)) if self.counts is None else self.counts,
            common=True,
            own_units=own if self.down is None else None,
            varying=None if self.varying is None else self.varying.mapped(to_e),
            covariance=_between(self.covariance, self.down),
            reward=self._at_mean,
            turned=self.down is not None,
        )


def on_host(predictor: Predictor) -> Predictor:
    """The same with arrays in memory, of a model that was fitted on a device."""
    return predictor.on_host() if isinstance(predictor, LinearPredictor) else predictor


def check_shapes(
    arrays: Mapping[str, npt.NDArray[Any]], sizes: Mapping[str, tuple[int | None, ...]], needed: Sequence[str],
    dtype: str = "f",
) -> None:  # fmt: skip
    """Raise ValueError if an array is missing, unknown, or does not have its size (None: any)."""
    for name in (*needed, *arrays):
        if name not in arrays or name not in sizes:
            raise ValueError(f"the array {name!r} is {'missing' if name not in arrays else 'unknown'}")
        shape, expected = arrays[name].shape, sizes[name]
        if len(shape) != len(expected) or any(b not in (None, a) for a, b in zip(shape, expected, strict=True)):
            raise ValueError(f"the array {name!r} has shape {shape} instead of {expected}")
        if arrays[name].dtype.kind != dtype:
            raise ValueError(f"the array {name!r} does not hold floating-point numbers")


def _between(covariance: FloatArray | None, matrix: FloatArray | None) -> FloatArray | None:
    return covariance if covariance is None or matrix is None else matrix.T @ covariance @ matrix


def embedding_of(predictor: Predictor, name: str) -> Embedding:
    """The embedding of a fitted reward model."""
    embedding: Embedding | None = getattr(predictor, "embedding", None)
    if embedding is None:
        raise no_embedding(name)
    return embedding


def no_embedding(name: str) -> InputError:
    return InputError(
        f"{name}: this reward model has no embedding. Use op.Ridge(), op.AdamW(), op.Torch(…), or op.Regressor(…, "
        "embedding=…) with a function that returns one."
    )


class Fits(ABC):
    """The base of fitted reward models: a predictor for each reward, on all rows and without each fold."""

    @abstractmethod
    def on_all(self, reward: int) -> Predictor:
        """Return the predictor fitted on all rows.

        Parameters
        ----------
        reward : int
            The position of the reward in the log.
        """

    @abstractmethod
    def without_fold(self, reward: int, fold: int, folds: int) -> Predictor:
        """Return the predictor fitted without one fold.

        Parameters
        ----------
        reward : int
            The position of the reward in the log.
        fold : int
            The fold that is left out.
        folds : int
            The number of folds.
        """

    @property
    def can_refit(self) -> bool:
        """Whether the statistics allow refits without each group, for the jackknife."""
        return False

    def without_group(self, reward: int, group: int) -> LinearPredictor | None:  # noqa: ARG002
        """Return the predictor fitted without one group of units, for the jackknife; None if that is impossible.

        Parameters
        ----------
        reward : int
            The position of the reward in the log.
        group : int
            The group that is left out.
        """
        return None

    def on_groups(self, reward: int, groups: IntArray) -> LinearPredictor | None:  # noqa: ARG002
        """Return the predictor fitted on some groups of units only, for the learning curve; None if that is impossible.

        Penalties and other settings must be those of the fit on all rows, so that it shows what fewer rounds would have
        given.

        Parameters
        ----------
        reward : int
            The position of the reward in the log.
        groups : array of int
            The groups that are used.
        """
        return None

    def diagnostics(self, reward: int) -> dict[str, Any]:  # noqa: ARG002
        """Return what the result reports about the fit, such as `r2`, the R² out of fold.

        Parameters
        ----------
        reward : int
            The position of the reward in the log.
        """
        return {}


class RewardModel(Named, Serves, ABC):
    """The base class of reward models: settings, the statistics that a fit needs, and properties of the model.

    `statistics` are folded over the log, and `fits` turns their results into predictors. The other methods have defaults
    for a model that is fitted to the log, has no embedding and needs little memory. A class attribute `kind` is the name on
    the command line.

    Examples
    --------
    >>> import offpolicy as op
    >>> isinstance(op.Ridge(), op.RewardModel), op.Ridge.kind
    (True, 'ridge')
    """

    @abstractmethod
    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        """Return what is summed over the log; empty if nothing is fitted. Equal statistics are folded once.

        Parameters
        ----------
        shape : FitShape
            The sizes of the log, and its groups of units.
        """

    @abstractmethod
    def fits(self, shape: FitShape, results: Sequence[Any]) -> Fits:
        """Return the fitted model.

        Parameters
        ----------
        shape : FitShape
            The sizes of the log, and its groups of units.
        results : sequence
            The results of the statistics, in their order.
        """

    def on(self, schema: Schema) -> RewardModel:  # noqa: ARG002
        """Return the model adapted to the actions and columns of a log.

        Parameters
        ----------
        schema : Schema
            The columns, actions and rewards of the log.

        Raises
        ------
        InputError
            If the model does not fit the log.
        """
        return self

    def uncorrected(self) -> RewardModel:
        """Return the settings for an estimator in which no exact weight corrects the model's errors, as in DM."""
        return self

    @property
    def fitted(self) -> bool:
        """Whether any of it is fitted to the log that is evaluated."""
        return True

    @property
    def fitted_before(self) -> bool:
        """Whether it was fitted to another log, so that it has an estimation error that this log cannot show."""
        return False

    @property
    def embeds(self) -> bool:
        """Whether its predictors have an `embedding`."""
        return False

    @property
    def linear_embedding(self) -> bool:
        """Whether the predicted reward is linear in the context, with the embedding of the action as its coefficients."""
        return False

    @property
    def knows_error(self) -> bool:
        """Whether its embedding comes with the covariance of its estimation error."""
        return False

    @property
    def linear(self) -> bool:
        """Whether q of an action is its mean over features that vary within the action, as for a q linear in them."""
        return False

    @property
    def packages(self) -> tuple[str, ...]:
        """The optional packages whose versions its numbers depend on."""
        return ()

    def needs(self, shape: FitShape, threads: int) -> tuple[Need, ...]:  # noqa: ARG002
        """Return the memory that grows with actions, context or rewards. Fits with the same row weights share equal needs.

        Parameters
        ----------
        shape : FitShape
            The sizes of the log, and its groups of units.
        threads : int
            The number of parts of the log that are processed at the same time.
        """
        return ()

    def refit_numbers(self, shape: FitShape) -> int:  # noqa: ARG002
        """Return how many numbers per action the refits without each group hold, if there are refits.

        Parameters
        ----------
        shape : FitShape
            The sizes of the log, and its groups of units.
        """
        return 0

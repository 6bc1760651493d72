"""Reward models trained with PyTorch, an optional dependency that is only imported when a model is trained or used."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.data.batch import Batch
from offpolicy.data.features import Features
from offpolicy.models.embedding_table import Embedding, FeatureMap
from offpolicy.models.rewards.base import Fits, FitShape, LinearPredictor, Predictor, RewardModel, Savable, check_shapes
from offpolicy.models.rewards.ridge.solve import Standard
from offpolicy.models.rewards.sample import FitRows, SampleFits, SampleRows, features_of, pairs
from offpolicy.models.rewards.training import (
    Tensors,
    Training,
    blocks,
    codes,
    embed,
    floats,
    forward,
    indices,
    require_torch,
)
from offpolicy.statistics.base import Statistic

ModuleFactory = Callable[[int, int, int], Any]
"""(actions, columns of the context, columns of features) → torch.nn.Module."""
SCALES = ("context", "features", "reward")
STANDARD = ("centre", "scale")


@dataclass(frozen=True, eq=False)
class Torch(RewardModel):
    """A PyTorch network as a reward model, and as a source of embeddings.

    The network is trained by AdamW on the squared error, with contexts, features and rewards scaled to mean 0 and variance
    1. Where features vary per round, an action that was not taken is predicted at its mean features in the sample.

    Parameters
    ----------
    module : callable, default=two_layer()
        `module(n_actions, context, features)` returns a `torch.nn.Module` for these numbers of columns with two methods.
        `embed(action, features)` returns the embedding, rows × k; `action` holds codes (int64; all 0 for
        inputs="features"), `features` is rows × F floats (F = 0 for inputs="identity"). `forward(context, embedding)`
        returns one expected reward per row, with shape (rows,).
    learning_rate : float, default=1e-3
        The learning rate of AdamW.
    epochs : int, default=100
        The largest number of epochs.
    batch : int, default=256
        The rows of a step.
    patience : int or None, default=5
        Stop when the error on the held-out rows has not fallen for this number of epochs, and restore the weights of the
        best epoch. None trains on all rows for all epochs.
    holdout : float, default=0.1
        The share of the rows that is held out.
    weight_decay : float, default=0.01
        The weight decay of AdamW.
    device : str, optional
        Such as "cpu" or "cuda"; by default a GPU if there is one.
    seed : int, default=0
        The seed of starting weights and row order. On a CPU, the same seed gives the same fit.
    rows : int, default=1_000_000
        Train on at most this number of rows, chosen by hash.

    Examples
    --------
    >>> import offpolicy as op
    >>> op.DR(op.Torch(op.two_layer(size=4), epochs=20)).rewards.epochs
    20
    """

    module: ModuleFactory = field(default_factory=lambda: two_layer())
    _: KW_ONLY
    learning_rate: float = 1e-3
    epochs: int = 100
    batch: int = 256
    patience: int | None = 5
    holdout: float = 0.1
    weight_decay: float = 0.01
    device: str | None = None
    seed: int = 0
    rows: int = 1_000_000
    kind = "network"
    embeds = True
    packages = ("torch",)

    def __post_init__(self) -> None:
        if not callable(self.module):
            raise InputError(
                f"Torch: module is a {type(self.module).__name__}; give a function of (n_actions, context, features) that "
                "returns a torch.nn.Module, such as op.two_layer()."
            )
        Training.of(self)

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        require_torch()
        return (SampleRows.of(shape, self.rows),)

    def fits(self, shape: FitShape, results: Sequence[Any]) -> Fits:
        return SampleFits(shape, results[0], lambda rows: _train_network(self.module, rows, Training.of(self)))


@dataclass(frozen=True)
class AdamW(RewardModel):
    """Learned embeddings as published: one linear layer, trained by stochastic gradients.

    The layer maps the action (one-hot, and/or its features) to one number per column of the context, with a bias that all
    actions share. The reward is the dot product with the context, plus a constant that keeps its random initial value. Data
    are not scaled and no rows are held out, so the learning rate must suit the units of the log. `op.Ridge()` solves a
    similar problem exactly; this model is for comparison with the publication.

    Parameters
    ----------
    learning_rate : float, default=1e-4
        The learning rate of AdamW.
    epochs : int, default=100
        The number of epochs.
    batch : int, default=64
        The rows of a step.
    weight_decay : float, default=0.01
        The weight decay of AdamW.
    device : str, optional
        Such as "cpu" or "cuda"; by default a GPU if there is one.
    seed : int, default=0
        The seed of starting weights and row order. On a CPU, the same seed gives the same fit.
    rows : int, default=1_000_000
        Train on at most this number of rows, chosen by hash.

    References
    ----------
    Cief, Golebiowski, Schmidt, Abedjan and Bekasov (2023). Learning action embeddings for off-policy evaluation.

    Examples
    --------
    >>> import offpolicy as op
    >>> op.LearnedMIPS(rewards=op.AdamW(1e-3, epochs=20)).rewards.learning_rate
    0.001
    """

    learning_rate: float = 1e-4
    _: KW_ONLY
    epochs: int = 100
    batch: int = 64
    weight_decay: float = 0.01
    device: str | None = None
    seed: int = 0
    rows: int = 1_000_000
    kind = "adamw"
    embeds = linear = True
    packages = ("torch",)

    def __post_init__(self) -> None:
        self._training()

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        require_torch()
        if not shape.context:
            raise InputError(
                "AdamW: the log has no context, and this embedding has one number per column of the context. Use op.Ridge() "
                "or op.Torch(op.two_layer())."
            )
        return (SampleRows.of(shape, self.rows),)

    def fits(self, shape: FitShape, results: Sequence[Any]) -> Fits:
        return SampleFits(shape, results[0], lambda rows: _train_dotted(rows, self._training()))

    def _training(self) -> Training:
        return Training.of(self, patience=None, holdout=0.1)


@dataclass(frozen=True)
class TwoLayers:
    """Builds the networks of `two_layer`. It consists of settings only, so that the weights can be saved without code."""

    size: int
    hidden: int

    def __call__(self, n_actions: int, context: int, features: int) -> Any:
        torch = require_torch()
        nn, size, hidden = torch.nn, self.size, self.hidden

        class TwoLayer(nn.Module):  # type: ignore[name-defined,misc]
            def __init__(self) -> None:
                super().__init__()
                self.identity = nn.Embedding(n_actions, hidden)  # the same as a linear layer on one-hot actions
                nn.init.normal_(self.identity.weight, std=0.1)  # actions start out nearly equal
                self.features = nn.Linear(features, hidden) if features else None
                self.down = nn.Linear(hidden, size)
                self.reward = nn.Sequential(nn.Linear(context + size, hidden), nn.ReLU(), nn.Linear(hidden, 1))

            def embed(self, action: Any, features: Any) -> Any:
                first = self.identity(action)
                if self.features is not None:
                    first = first + self.features(features)
                return self.down(torch.relu(first))

            def forward(self, context: Any, embedding: Any) -> Any:
                return self.reward(torch.cat([context, embedding], dim=1)).squeeze(1)

        return TwoLayer()


def two_layer(size: int = 8, hidden: int = 32) -> ModuleFactory:
    """Return a builder of small networks for `Torch`: two layers from the action to its embedding, two more to the reward.

    Parameters
    ----------
    size : int, default=8
        The dimension of the embedding.
    hidden : int, default=32
        The units of the hidden layers.

    Returns
    -------
    callable
        For `op.Torch`; models of these networks can be saved.

    Examples
    --------
    >>> import offpolicy as op
    >>> op.two_layer(size=4)
    TwoLayers(size=4, hidden=32)
    """
    return TwoLayers(size, hidden)


@dataclass(frozen=True)
class _Scales:
    """The scales that give contexts, features and rewards mean 0 and variance 1."""

    context: Standard
    features: Standard
    reward: Standard

    @classmethod
    def of(cls, rows: FitRows) -> _Scales:
        def standard(values: FloatArray) -> Standard:
            mean = rows.counted @ values / len(rows)
            return Standard.of(mean, rows.counted @ (values - mean) ** 2 / len(rows))

        return cls(standard(rows.context), standard(rows.features), standard(rows.reward))


@dataclass(frozen=True)
class Network(Savable):
    """A trained network on the CPU. It is immutable, so any number of threads can use it.

    `table` holds the embedding of each action, at its mean features where these vary; `module` is what built the network.
    """

    net: Any
    shape: FitShape
    scales: _Scales
    table: Any
    counts: FloatArray
    module: ModuleFactory
    kind = "network"

    @property
    def settings(self) -> dict[str, int]:
        if not isinstance(self.module, TwoLayers):
            raise InputError(
                "Torch: its module is your own code, and files hold only numbers, so the model could not be rebuilt. "
                "Save its state_dict() yourself and use its predictions with op.Given(q), or use op.two_layer()."
            )
        return {"size": self.module.size, "hidden": self.module.hidden}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        scales = {f"{name}.{part}": getattr(getattr(self.scales, name), part) for name in SCALES for part in STANDARD}
        weights = {f"net.{name}": weight.numpy() for name, weight in self.net.state_dict().items()}
        plain = {name: np.asarray(value, dtype=np.float64) for name, value in scales.items()}
        return {**plain, **weights, "table": self.table.numpy(), "counts": self.counts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], settings: Mapping[str, int], shape: FitShape) -> Self:
        size, hidden = int(settings["size"]), int(settings["hidden"])
        n, d, width = shape.n_actions, shape.context, 0 if shape.inputs == "identity" else shape.features.size
        identity: int | None = None if shape.inputs == "features" else n
        weights: dict[str, tuple[int | None, ...]] = {
            "net.identity.weight": (identity, hidden), "net.down.weight": (size, hidden), "net.down.bias": (size,),
            "net.reward.0.weight": (hidden, d + size), "net.reward.0.bias": (hidden,), "net.reward.2.weight": (1, hidden),
            "net.reward.2.bias": (1,),
        }  # fmt: skip
        if width:
            weights |= {"net.features.weight": (hidden, width), "net.features.bias": (hidden,)}
        sizes = {"context": (d,), "features": (width,), "reward": ()}
        scales = {f"{name}.{part}": sizes[name] for name in SCALES for part in STANDARD}
        check_shapes(
            arrays, {**weights, **scales, "table": (n, size), "counts": (n,)}, (*weights, *scales, "table", "counts")
        )
        torch = require_torch()
        module = TwoLayers(size, hidden)
        net = module(len(arrays["net.identity.weight"]), d, width)
        net.load_state_dict({name[4:]: torch.from_numpy(np.array(arrays[name])) for name in weights})
        standards = (Standard(*(arrays[f"{name}.{part}"] for part in STANDARD)) for name in SCALES)
        table = torch.from_numpy(np.array(arrays["table"]))
        return cls(net.eval().requires_grad_(False), shape, _Scales(*standards), table, arrays["counts"], module)

    def for_actions(self, at: IntArray, features: Features) -> Self:
        shape = replace(self.shape, n_actions=len(at), features=features)
        if np.array_equal(at, np.arange(len(self.table))):
            return replace(self, shape=shape)
        settings, arrays = self.settings, self.arrays()
        moved = {"table": arrays["table"][at], "counts": arrays["counts"][at]}
        if shape.inputs != "features":  # else all actions have the code 0
            moved["net.identity.weight"] = arrays["net.identity.weight"][at]
        return self.from_arrays({**arrays, **moved}, settings, shape)

    def all(self, batch: Batch) -> FloatArray:
        return self._all(batch.context)

    def taken(self, batch: Batch) -> FloatArray:
        x = self._scaled(batch.context)
        parts = [self._predict(x[block], self._embedded(batch.take(block))) for block in blocks(len(batch))]
        return np.concatenate([np.empty(0), *parts])

    def rows(self, batch: Batch) -> FloatArray:
        """The embedding of each round."""
        parts = [_numbers(self._embedded(batch.take(block))) for block in blocks(len(batch))]
        return np.vstack([np.empty((0, self.table.shape[1])), *parts])

    @cached_property
    def embedding(self) -> Embedding:
        return Embedding(
            table=_numbers(self.table),
            counts=self.counts,
            common=False,
            varying=None if features_of(self.shape) is None else self,
            reward=self._all(self.scales.context.centre[None])[0],
        )

    def _all(self, context: FloatArray) -> FloatArray:
        x, n, m = self._scaled(context), len(context), len(self.table)
        out = np.empty(n * m)
        for block, rounds, actions in pairs(n, m):
            out[block] = self._predict(x[indices(rounds)], self.table[indices(actions)])
        return out.reshape(n, m)

    def _scaled(self, context: FloatArray) -> Any:
        return floats(self.scales.context(context))

    def _predict(self, x: Any, e: Any) -> FloatArray:
        with require_torch().no_grad():
            q = _numbers(forward(self.net, x, e))
        return q * self.scales.reward.scale + self.scales.reward.centre

    def _embedded(self, batch: Batch) -> Any:
        features = features_of(self.shape)
        if features is None:
            return self.table[indices(batch.action)]
        with require_torch().no_grad():
            scaled = floats(self.scales.features(features.rows(batch)))
            return embed(self.net, codes(self.shape, batch.action), scaled)


def _numbers(values: Any) -> FloatArray:
    return np.asarray(values.numpy(), dtype=np.float64)


def _train_network(module: ModuleFactory, rows: FitRows, training: Training) -> tuple[Predictor, dict[str, int]]:
    shape, scales = rows.shape, _Scales.of(rows)
    data = Tensors.of(rows, scales.context(rows.context), scales.features(rows.features), scales.reward(rows.reward))
    width = rows.features.shape[1]
    net, epochs = training.run(lambda: module(shape.n_actions, shape.context, width), data, shape.progress)
    torch = require_torch()
    every, features = codes(shape, np.arange(shape.n_actions)), floats(scales.features(rows.action_features))
    with torch.no_grad():
        table = torch.cat([embed(net, every[block], features[block]) for block in blocks(shape.n_actions)])
    return Network(net, shape, scales, table, rows.counts, module), {"epochs": epochs}


@dataclass(frozen=True)
class Dotted(LinearPredictor):
    """q(x, a) = x·e_a + constant, expressed around the mean context."""

    kind = "dotted"

    @property
    def embedding(self) -> Embedding:
        """e_a: the slopes, in units of the reward per unit of each context column."""
        slopes = np.eye(self.coef.shape[1])[:, :-1]
        return Embedding(
            table=self.coef[:, :-1],
            counts=np.ones(len(self.coef)) if self.counts is None else self.counts,
            common=False,
            varying=None if self.varying is None else self.varying.mapped(slopes),
            reward=self.coef[:, -1],
        )


def _published(shape: FitShape, features: int) -> Any:
    """As published: a linear layer with one output per column of the context, and their dot product with the context.

    The weights of the layer are one dense matrix whose rows are looked up, and weight decay acts on all of them in each
    step, as in a linear layer on one-hot actions.
    """
    torch = require_torch()
    nn = torch.nn
    identity = shape.n_actions if shape.inputs != "features" else 0

    def start(*size: int, inputs: int) -> Any:
        bound = 1 / math.sqrt(inputs)  # as nn.Linear starts
        return nn.Parameter(torch.empty(*size).uniform_(-bound, bound))

    class Published(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            inputs = identity + features
            self.identity = start(identity, shape.context, inputs=inputs) if identity else None
            self.features = start(features, shape.context, inputs=inputs) if features else None
            self.bias = start(shape.context, inputs=inputs)
            self.constant = start(1, inputs=shape.context).requires_grad_(False)

        def embed(self, action: Any, features: Any) -> Any:
            e = self.bias.expand(len(action), -1)
            if self.identity is not None:
                e = e + nn.functional.embedding(action, self.identity)
            return e if self.features is None else e + features @ self.features

        def forward(self, context: Any, embedding: Any) -> Any:
            return (context * embedding).sum(dim=1) + self.constant

    return Published()


def _train_dotted(rows: FitRows, training: Training) -> tuple[Predictor, dict[str, int]]:
    shape, width = rows.shape, rows.features.shape[1]
    data = Tensors.of(rows, rows.context, rows.features, rows.reward)
    net, epochs = training.run(lambda: _published(shape, width), data, shape.progress)
    own = np.zeros((shape.n_actions, shape.context)) if net.identity is None else _numbers(net.identity)
    own = own + _numbers(net.bias)
    shared = np.zeros((0, shape.context)) if net.features is None else _numbers(net.features)

    def with_level(slopes: FloatArray, constant: float) -> FloatArray:
        return np.column_stack([slopes, slopes @ rows.mean_context + constant])

    constant = float(net.constant[0])
    features = features_of(shape)
    return Dotted(
        coef=with_level(own + rows.action_features @ shared, constant),
        centre=rows.mean_context,
        counts=rows.counts,
        varying=None if features is None else FeatureMap(with_level(own, constant), with_level(shared, 0.0), features),
    ), {"epochs": epochs}

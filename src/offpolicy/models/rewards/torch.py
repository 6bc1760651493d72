"""Reward models trained with PyTorch, which is an optional extra: it is imported only where a model is trained or used."""

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
    """A PyTorch network as a reward model, and as a source of embeddings: `two_layer()`, unless you give your own.

    `module(n_actions, context, features)` makes a `torch.nn.Module` for these numbers of columns, with two methods:

    - `embed(action, features)` gives rows × k: the embedding. `action` holds codes (int64; all 0 for inputs="features",
      where the identity must not matter), `features` is rows × F floats (F = 0 for inputs="identity").
    - `forward(context, embedding)` gives one expected reward a row, of shape (rows,).

    It sees contexts, features and rewards with mean 0 and variance 1; predictions are mapped back. AdamW minimises the
    squared error on all rows but a `holdout` share, and training stops when the error on those has not fallen for `patience`
    epochs; the weights of the best epoch are kept. `patience=None` trains on all rows for all epochs. Beyond `rows` rows it
    is trained on that many, chosen by hash. `device=None` is a GPU where there is one. On a CPU a seed gives one fit.

    Where features vary per round, an action that was not taken is predicted at its mean features in the sample.
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
                f"Torch: module is a {type(self.module).__name__}; give a function (n_actions, context, features) that "
                "makes a torch.nn.Module, such as op.two_layer()."
            )
        Training.of(self)

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        require_torch()
        return (SampleRows.of(shape, self.rows),)

    def fits(self, shape: FitShape, results: Sequence[Any]) -> Fits:
        return SampleFits(shape, results[0], lambda rows: _train_network(self.module, rows, Training.of(self)))


@dataclass(frozen=True)
class AdamW(RewardModel):
    """The training of learned embeddings as published (Cief et al. 2023): one linear layer by stochastic gradients.

    The layer takes the action (one-hot, and/or its features) to one number for each column of the context, with a bias that
    all actions share; the dot product with the context, plus a constant that stays at its random start, is the reward. No
    data are scaled and no rows held out, so the learning rate must suit the units of the log. `op.Ridge()` solves a problem
    of this kind exactly; this one is for comparison with the publication.
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
                "AdamW: the log has no context, and this embedding has one number for each column of the context. "
                "Use op.Ridge() or op.Torch(op.two_layer())."
            )
        return (SampleRows.of(shape, self.rows),)

    def fits(self, shape: FitShape, results: Sequence[Any]) -> Fits:
        return SampleFits(shape, results[0], lambda rows: _train_dotted(rows, self._training()))

    def _training(self) -> Training:
        return Training.of(self, patience=None, holdout=0.1)


@dataclass(frozen=True)
class TwoLayers:
    """Makes the networks of `two_layer`: settings and no code of a user's, so that their weights can be saved."""

    size: int
    hidden: int

    def __call__(self, n_actions: int, context: int, features: int) -> Any:
        torch = require_torch()
        nn, size, hidden = torch.nn, self.size, self.hidden

        class TwoLayer(nn.Module):  # type: ignore[name-defined,misc]
            def __init__(self) -> None:
                super().__init__()
                self.identity = nn.Embedding(n_actions, hidden)  # the same as a linear layer on one-hot actions
                nn.init.normal_(self.identity.weight, std=0.1)  # actions start nearly alike; data set them apart
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
    """Small networks for `Torch`: two layers from the action to an embedding of `size` numbers, two more to the reward."""
    return TwoLayers(size, hidden)


@dataclass(frozen=True)
class _Scales:
    """Brings contexts, features and rewards to mean 0 and variance 1."""

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
    """A trained network on the CPU. Nothing in it changes, so any number of threads may use it."""

    net: Any
    shape: FitShape
    scales: _Scales
    table: Any
    """Actions × k: the embedding of each action, at its mean features where they vary."""
    counts: FloatArray
    module: ModuleFactory
    """What made the network."""
    kind = "network"

    @property
    def settings(self) -> dict[str, int]:
        if not isinstance(self.module, TwoLayers):
            raise InputError(
                "Torch: its module is code of your own, and files hold numbers only: a saved model could not be made again "
                "from them. Save its state_dict() yourself and give predictions with op.Given(q), or use op.two_layer()."
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
        x = self._seen(batch.context)
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
        x, n, m = self._seen(context), len(context), len(self.table)
        out = np.empty(n * m)
        for block, rounds, actions in pairs(n, m):
            out[block] = self._predict(x[indices(rounds)], self.table[indices(actions)])
        return out.reshape(n, m)

    def _seen(self, context: FloatArray) -> Any:
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
            seen = floats(self.scales.features(features.rows(batch)))
            return embed(self.net, codes(self.shape, batch.action), seen)


def _numbers(values: Any) -> FloatArray:
    return np.asarray(values.numpy(), dtype=np.float64)


def _train_network(module: ModuleFactory, rows: FitRows, how: Training) -> tuple[Predictor, dict[str, int]]:
    shape, scales = rows.shape, _Scales.of(rows)
    data = Tensors.of(rows, scales.context(rows.context), scales.features(rows.features), scales.reward(rows.reward))
    width = rows.features.shape[1]
    net, epochs = how.run(lambda: module(shape.n_actions, shape.context, width), data, shape.progress)
    torch = require_torch()
    every, features = codes(shape, np.arange(shape.n_actions)), floats(scales.features(rows.action_features))
    with torch.no_grad():
        table = torch.cat([embed(net, every[block], features[block]) for block in blocks(shape.n_actions)])
    return Network(net, shape, scales, table, rows.counts, module), {"epochs": epochs}


@dataclass(frozen=True)
class Dotted(LinearPredictor):
    """q(x, a) = x·e_a + constant, written around the mean context."""

    kind = "dotted"

    @property
    def embedding(self) -> Embedding:
        """e_a: the slopes, each in the reward's unit per unit of its column of the context."""
        slopes = np.eye(self.coef.shape[1])[:, :-1]
        return Embedding(
            table=self.coef[:, :-1],
            counts=np.ones(len(self.coef)) if self.counts is None else self.counts,
            common=False,
            varying=None if self.varying is None else self.varying.mapped(slopes),
            reward=self.coef[:, -1],
        )


def _published(shape: FitShape, features: int) -> Any:
    """As published: a linear layer to as many numbers as the context has, summed up with the context as weights.

    The layer's weights are kept as one dense matrix whose rows are looked up: weight decay acts on all of them in each step,
    as it does in a linear layer on one-hot actions.
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


def _train_dotted(rows: FitRows, how: Training) -> tuple[Predictor, dict[str, int]]:
    shape, width = rows.shape, rows.features.shape[1]
    data = Tensors.of(rows, rows.context, rows.features, rows.reward)
    net, epochs = how.run(lambda: _published(shape, width), data, shape.progress)
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

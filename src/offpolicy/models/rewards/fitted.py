"""`FittedRewards`: reward models fitted on one log, to be used on others, and their files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from offpolicy.core import storage
from offpolicy.core.arrays import IntArray
from offpolicy.core.errors import InputError
from offpolicy.data.checks import places
from offpolicy.data.features import Features, Inputs
from offpolicy.data.schema import Dimension, Schema
from offpolicy.data.spaces import discrete
from offpolicy.models.rewards.base import Fits, FitShape, LinearPredictor, Predictor, RewardModel, Savable
from offpolicy.statistics.base import Statistic

SUFFIX = ".safetensors"
ACTIONS = "actions"


@dataclass(frozen=True, eq=False)
class FittedRewards(RewardModel):
    """Reward models from `op.fit_rewards(log, …)` or `op.load_rewards(path)`: give it to estimators as `rewards=`.

    Nothing is fitted then. What the model's own error does to an estimate is not in its interval, so fit it on other rounds
    than those that it is used on: rounds that it has seen, it predicts too well.
    """

    model: str
    """What was fitted, in words."""
    by_reward: Mapping[str, Predictor] = field(repr=False)
    actions: npt.NDArray[Any] = field(repr=False)
    context: tuple[str, ...] = field(repr=False)
    inputs: Inputs = field(repr=False)
    features: Features = field(repr=False)
    rounds: int = field(repr=False)
    chosen: tuple[str, ...] = field(default=(), repr=False)
    """The rewards of the log at hand, once it is known."""
    fitted = False
    fitted_before = True

    @property
    def embeds(self) -> bool:
        return all(getattr(model, "embedding", None) is not None for model in self.by_reward.values())

    @property
    def linear(self) -> bool:
        return all(isinstance(model, LinearPredictor) for model in self.by_reward.values())

    def on(self, schema: Schema) -> FittedRewards:
        """The same with the actions of a log, which must be known, and its columns, which must be those of the fit."""
        if schema.context != self.context:
            raise InputError(
                f"rewards: the model was fitted on the context {_listed(self.context)}, and the log has "
                f"{_listed(schema.context)}. Both must have the same columns in the same order."
            )
        unknown = [name for name in schema.rewards if name not in self.by_reward]
        if unknown:
            raise InputError(
                f"rewards: the model predicts {_listed(tuple(self.by_reward))}, and the log's reward is {unknown[0]!r}."
            )
        features = Features.of(schema) if self.inputs != "identity" else Features()
        if self.inputs != "identity" and features.dimensions != self.features.dimensions:
            raise InputError(
                f"rewards: the model was fitted on the features {_listed(_names(self.features))}, and the log has "
                f"{_listed(_names(features))}. Both must have the same, with the same categories."
            )
        at = places(self.actions, discrete(schema.space, "the reward model").to_numpy(), "the reward model")
        moved = {name: _moved(model, at, len(self.actions), features) for name, model in self.by_reward.items()}
        return replace(self, by_reward=moved, actions=self.actions[at], features=features, chosen=schema.rewards)

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:  # noqa: ARG002
        return ()

    def fits(self, shape: FitShape, results: Sequence[Any]) -> Fits:  # noqa: ARG002
        return _FittedFits([self.by_reward[name] for name in self.chosen], self.rounds)

    def save(self, path: str | Path) -> None:
        """As safetensors: the arrays, and what they mean as JSON in the header."""
        path = Path(path)
        if path.suffix != SUFFIX:
            raise InputError(f"{path}: reward models are saved as safetensors; the name must end in {SUFFIX}.")
        arrays: dict[str, npt.NDArray[Any]] = {}
        kinds = []
        for k, model in enumerate(self.by_reward.values()):
            if not isinstance(model, Savable) or "kind" not in vars(type(model)):
                raise InputError(
                    f"{path}: {self.model} cannot be saved. It is a Python object that only pickle could write, and reading "
                    "a pickle runs whatever code is in it. Keep it in a format of its own and give its predictions with "
                    "op.Given(q), or fit op.Ridge(), op.AdamW() or op.Torch(op.two_layer())."
                )
            kinds.append({"kind": model.kind, "settings": model.settings})
            arrays |= {f"{k}.{name}": array for name, array in model.arrays().items()}
        bad = next((name for name, array in arrays.items() if not np.isfinite(array).all()), None)
        if bad is not None:
            raise InputError(f"the reward model holds NaN or infinite numbers (in {bad}), so it is not saved.")
        try:
            labels = storage.exact(self.actions.tolist())
        except (TypeError, ValueError):
            raise InputError(f"{path}: actions are saved where their labels are text or numbers; these are not.") from None
        about = {
            "model": self.model,
            "rewards": list(self.by_reward),
            "kinds": kinds,
            "context": list(self.context),
            "inputs": self.inputs,
            "per_round": self.features.per_round,
            "features": [[d.name, d.start, d.stop, d.categorical] for d in self.features.dimensions],
            "rounds": self.rounds,
        }
        stamped = {name: str(value) for name, value in storage.stamp("rewards").items()}
        storage.write_arrays(
            path, {**arrays, ACTIONS: np.frombuffer(labels, np.uint8)}, {**stamped, "about": json.dumps(about)}
        )


def load_rewards(path: str | Path) -> FittedRewards:
    """What `FittedRewards.save` wrote, checked: its format and version, its shapes, its numbers and its checksum."""
    path = Path(path)
    arrays, metadata = storage.read_arrays(path)
    version: Any = metadata.get("version", "")
    version = int(version) if version.isdecimal() and len(version) < 10 else version
    storage.check_stamp(path, "rewards", {**metadata, "version": version})
    about = storage.as_json(path, metadata.get("about", "").encode())
    bad = next((name for name, array in arrays.items() if not np.isfinite(array).all()), None)
    if bad is not None:
        raise storage.damaged(path, f"the array {bad!r} holds NaN or infinite numbers")
    try:
        labels = np.array(storage.as_json(path, arrays.pop(ACTIONS).astype(np.uint8).tobytes()))
        if about["inputs"] not in get_args(Inputs):
            raise ValueError(f"inputs is {about['inputs']!r}")
        features = Features(
            tuple(Dimension(str(name), int(a), int(b), bool(c)) for name, a, b, c in about["features"]),
            int(about["per_round"]),
        )
        shape = FitShape(
            n_actions=len(labels), context=len(about["context"]), rewards=1, groups=1, seed=0,
            inputs=about["inputs"], features=features,
        )  # fmt: skip
        models = {}
        for k, (name, kind) in enumerate(zip(about["rewards"], about["kinds"], strict=True)):
            own = {key.partition(".")[2]: array for key, array in arrays.items() if key.startswith(f"{k}.")}
            models[str(name)] = _class_of(path, kind["kind"]).from_arrays(own, kind["settings"], shape)
        context = tuple(map(str, about["context"]))
        return FittedRewards(str(about["model"]), models, labels, context, shape.inputs, features, int(about["rounds"]))
    except InputError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, RuntimeError, AttributeError) as error:
        raise storage.damaged(path, f"its parts do not fit together ({type(error).__name__}: {error})") from None


def _class_of(path: Path, kind: str) -> type[Savable]:
    """A file names no code: whoever reads it imports the module of a class that is not ours."""
    known = Savable.kinds()
    if kind not in known:
        raise InputError(
            f"{path}: its parts do not fit together: no class states the kind {kind!r:.40} of its predictors. Known: "
            f"{', '.join(known)}. If it is one of your own, import its module first."
        )
    return known[kind]


def _moved(model: Predictor, at: IntArray, known: int, features: Features) -> Predictor:
    if isinstance(model, Savable):
        return model.for_actions(at, features)
    if np.array_equal(at, np.arange(known)):
        return model
    raise InputError(
        "rewards: this model knows actions by their codes in the log it was fitted on, so it fits only logs with the same "
        "actions in the same order (name them with `actions=`). Those of op.Ridge(), op.AdamW() and op.Torch() fit any."
    )


def _names(features: Features) -> tuple[str, ...]:
    return tuple(d.name for d in features.dimensions)


def _listed(names: Sequence[str]) -> str:
    return (", ".join(names[:8]) + (", …" if len(names) > 8 else "")) or "(none)"


@dataclass(frozen=True)
class _FittedFits(Fits):
    models: Sequence[Predictor]
    rounds: int

    def on_all(self, reward: int) -> Predictor:
        return self.models[reward]

    def without_fold(self, reward: int, fold: int, folds: int) -> Predictor:  # noqa: ARG002
        return self.models[reward]

    def diagnostics(self, reward: int) -> dict[str, Any]:  # noqa: ARG002
        return {"fitted_before": self.rounds}

"""`FittedRewards`: reward models fitted on one log for use on others, and their files."""

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
    """Reward models from `op.fit_rewards` or `op.load_rewards`, for estimators as `rewards=`.

    Nothing is fitted during the evaluation, and intervals do not include the error of the model. Fit it on other rounds than
    those it is used on: it predicts the rounds of its own fit too well.

    Parameters
    ----------
    model : str
        What was fitted, in words.
    by_reward : mapping of str to predictor
        The fitted model of each reward.
    actions : array
        The labels of the actions.
    context : tuple of str
        The context columns of the fit.
    inputs : {"identity", "features", "both"}
        How an action enters the model.
    features : Features
        The action features of the fit.
    rounds : int
        The number of rounds of the fit.
    chosen : tuple of str, default=()
        The rewards of the log that is evaluated.

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Toy(10)
    >>> model = op.fit_rewards(world.sample(1_000, seed=1))
    >>> log = world.sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.DR(model))["DR"].value, 3)
    0.469
    """

    model: str
    by_reward: Mapping[str, Predictor] = field(repr=False)
    actions: npt.NDArray[Any] = field(repr=False)
    context: tuple[str, ...] = field(repr=False)
    inputs: Inputs = field(repr=False)
    features: Features = field(repr=False)
    rounds: int = field(repr=False)
    chosen: tuple[str, ...] = field(default=(), repr=False)
    fitted = False
    fitted_before = True

    @property
    def embeds(self) -> bool:
        return all(getattr(model, "embedding", None) is not None for model in self.by_reward.values())

    @property
    def linear(self) -> bool:
        return all(isinstance(model, LinearPredictor) for model in self.by_reward.values())

    def on(self, schema: Schema) -> FittedRewards:
        """Return the model for another log with the same columns and known actions.

        Parameters
        ----------
        schema : Schema
            The columns, actions and rewards of the log.

        Raises
        ------
        InputError
            If the columns differ, or the model lacks a reward or an action of the log.
        """
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
        moved = {name: _for_actions(model, at, len(self.actions), features) for name, model in self.by_reward.items()}
        return replace(self, by_reward=moved, actions=self.actions[at], features=features, chosen=schema.rewards)

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:  # noqa: ARG002
        return ()

    def fits(self, shape: FitShape, results: Sequence[Any]) -> Fits:  # noqa: ARG002
        return _FittedFits([self.by_reward[name] for name in self.chosen], self.rounds)

    def save(self, path: str | Path) -> None:
        """Save as safetensors: the arrays, with their description as JSON in the header.

        Parameters
        ----------
        path : str or Path
            Must end in .safetensors.

        Raises
        ------
        InputError
            If the model does not consist of arrays, such as one of scikit-learn.
        """
        path = Path(path)
        if path.suffix != SUFFIX:
            raise InputError(f"{path}: reward models are saved as safetensors; the name must end in {SUFFIX}.")
        arrays: dict[str, npt.NDArray[Any]] = {}
        kinds = []
        for k, model in enumerate(self.by_reward.values()):
            if not isinstance(model, Savable) or "kind" not in vars(type(model)):
                raise InputError(
                    f"{path}: {self.model} cannot be saved. It is a Python object that only pickle could write, and reading "
                    "a pickle runs whatever code it contains. Save it in a format of its own and use its predictions with "
                    "op.Given(q), or fit op.Ridge(), op.AdamW() or op.Torch(op.two_layer())."
                )
            kinds.append({"kind": model.kind, "settings": model.settings})
            arrays |= {f"{k}.{name}": array for name, array in model.arrays().items()}
        bad = next((name for name, array in arrays.items() if not np.isfinite(array).all()), None)
        if bad is not None:
            raise InputError(f"the reward model contains NaN or infinite numbers (in {bad}), so it was not saved.")
        try:
            labels = storage.exact(self.actions.tolist())
        except (TypeError, ValueError):
            raise InputError(f"{path}: actions can only be saved if their labels are text or numbers.") from None
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
    """Load a reward model that `FittedRewards.save` wrote, and check its version, shapes, numbers and checksum.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    FittedRewards
        For estimators as `rewards=`.

    Raises
    ------
    InputError
        If the file is missing, damaged, of a newer version, or of an unknown kind.

    Examples
    --------
    >>> import tempfile, offpolicy as op
    >>> model = op.fit_rewards(op.worlds.Toy(10).sample(1_000, seed=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/q.safetensors")
    ...     op.load_rewards(f"{folder}/q.safetensors").rounds
    1000
    """
    path = Path(path)
    arrays, metadata = storage.read_arrays(path)
    version: Any = metadata.get("version", "")
    version = int(version) if version.isdecimal() and len(version) < 10 else version
    storage.check_stamp(path, "rewards", {**metadata, "version": version})
    about = storage.as_json(path, metadata.get("about", "").encode())
    bad = next((name for name, array in arrays.items() if not np.isfinite(array).all()), None)
    if bad is not None:
        raise storage.damaged(path, f"the array {bad!r} contains NaN or infinite numbers")
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
    """The class of a kind. Files name no code, so the module of a user's class must be imported before."""
    kinds = Savable.kinds()
    if kind not in kinds:
        raise InputError(
            f"{path}: its parts do not fit together: no class has the kind {kind!r:.40} of its predictors. Known: "
            f"{', '.join(kinds)}. If it is one of your own, import its module first."
        )
    return kinds[kind]


def _for_actions(model: Predictor, at: IntArray, n_actions: int, features: Features) -> Predictor:
    if isinstance(model, Savable):
        return model.for_actions(at, features)
    if np.array_equal(at, np.arange(n_actions)):
        return model
    raise InputError(
        "rewards: this model identifies actions by their codes in the log it was fitted on, so it can only be used on logs "
        "with the same actions in the same order (name them with `actions=`). Models of op.Ridge(), op.AdamW() and "
        "op.Torch() have no such limit."
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

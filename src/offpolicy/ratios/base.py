"""What a ratio must state, and what it gives once it is fitted. Nobody outside this package asks which ratio it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.batch import Batch
from offpolicy.data.features import Features, Inputs
from offpolicy.data.schema import Schema
from offpolicy.data.spaces import Serves
from offpolicy.models.embedding_table import Embedding
from offpolicy.models.rewards.base import Fits, FitShape, RewardModel
from offpolicy.policies.base import Policy
from offpolicy.ratios.pools import Pool, Rounds
from offpolicy.statistics.base import State, Statistic, added
from offpolicy.statistics.histogram import LARGEST_OF

KEPT_LARGEST = ("largest", "contextual", *LARGEST_OF)
"""What a ratio keeps under these names is not summed, but the largest of all rows."""
Moves = tuple[FloatArray, float]
"""Groups × 2: how Σω·weight and Σω·weight·residual move when each group is left out of the fit; and the Σω they are over."""


@dataclass(frozen=True)
class Available:
    """The columns of the log, the target policies, and the logging policy where it is known."""

    schema: Schema
    policies: Mapping[str, Policy]
    logging: Policy | None

    @property
    def has_propensities(self) -> bool:
        return self.schema.propensity or self.logging is not None

    @property
    def has_whole_logging(self) -> bool:
        """Whether the logging policy is known for every action."""
        return self.logging is not None and self.logging.whole

    @property
    def lacks_propensities(self) -> str | None:
        if self.has_propensities:
            return None
        return "it weighs by π/π0, and the log has neither propensities nor a logging policy"

    @property
    def lacks_whole_policies(self) -> str | None:
        part = next((name for name, policy in self.policies.items() if not policy.whole), None)
        if part is None:
            return None
        whose = f" of {part!r}" if len(self.policies) > 1 else ""
        alone = ", or evaluate the other policies without it" if whose else ""
        return (
            f"it needs the new policy's chance of every action, and{whose} only that of the logged action is known; "
            f"give list columns of candidates, a matrix or a function{alone}"
        )


@dataclass(frozen=True)
class Fitting:
    """What a ratio is fitted with, besides the results of its statistics."""

    name: str
    """The estimator that first uses it, for messages."""
    shape: FitShape
    """Sizes and groups of units; its columns are those that the ratio and the policies read."""
    by_action: FitShape
    """The same for what is kept per action: groups only as fine as there is room for."""
    features: Features
    action_ratio: Callable[[Batch], FloatArray] | None = None
    """π/π0 of each round, for ratios that are fitted for each policy."""
    fits: Fits | None = None
    """Of its reward model, once that is fitted."""
    families: int = 1
    """How many ratios that sum over all actions share the room for tables."""


@dataclass(frozen=True)
class RatioNumbers:
    """How many numbers per action a ratio keeps: what a memory budget counts."""

    fitted: int = 0
    folds: int = 0
    near: int = 0
    """Neighbours that are looked up in each fold."""
    sums: int = 0
    """Per group of units, in the fit pass."""
    slopes: int = 0
    """Per sum that an estimate is made of, for the fit's share of the error."""


@dataclass(frozen=True)
class PoolingDiagnostics:
    """What a ratio reports of its weights over the whole log."""

    pooling: float | None = None
    """The mean part of a round's weight that comes from other actions than its own."""
    new_actions: int = 0
    """Rounds whose action is new to the fit, and which keep their action weight."""
    misread: bool = False
    """Whether weights in the posterior form meet a logging policy that depends on the context."""
    details: Mapping[str, Any] = field(default_factory=dict)
    left_out: float | None = None
    """By what part the weights could change, at most, if sums were taken over all actions and not the nearest ones."""


class FittedRatio(ABC):
    """The weights that a ratio gives once it is fitted, and what it keeps of them in the scoring pass.

    `weights` is all that a ratio of your own must give. What is kept are plain arrays by name, in place: `zero`, `fold` and
    `merge` work as those of a statistic do.
    """

    @abstractmethod
    def weights(self, rounds: Rounds) -> FloatArray:
        """The ratio of each round: one number, 0 or more, for each row of `rounds.batch`."""

    def zero(self, corrections: int) -> State:  # noqa: ARG002
        """Empty sums, for a weight that so many corrections use."""
        return {"largest": np.zeros(())}

    def fold(self, state: State, rounds: Rounds, ratio: FloatArray) -> None:  # noqa: ARG002
        """Add the rounds of a batch, whose ratio is given."""
        np.maximum(state["largest"], ratio.max(initial=0.0), out=state["largest"])

    def merge(self, a: State, b: State) -> State:
        """The sums of two sets of rows."""
        return added(a, b, KEPT_LARGEST)

    def largest(self, state: State) -> float:
        """The largest ratio of any round."""
        return float(state["largest"])

    def histogram(self, state: State) -> State | None:  # noqa: ARG002
        """How its ratios are spread (a coarse `LogHistogram`), where it keeps that."""
        return None

    def diagnostics(self, state: State, mean_weight: float) -> PoolingDiagnostics:  # noqa: ARG002
        """What there is to report of the weights over the whole log."""
        return PoolingDiagnostics()

    def moves(self, state: State, correction: int) -> Moves | None:  # noqa: ARG002
        """How sums of one of the corrections move when a group of units is left out of the fit; None: not known."""
        return None

    @property
    def embedding(self) -> Embedding | None:
        """The embedding of actions that its weights come from."""
        return None

    def light(self) -> FittedRatio:
        """The same without what only its error and its embedding need: what travels to the workers."""
        return self

    # The following is asked of ratios that sum over all actions (`Ratio.whole`).

    def pool(self, rounds: Rounds, state: State) -> Pool:
        """The work on one batch. It may add to the state as well."""
        raise NotImplementedError

    @property
    def needs_grid(self) -> bool:
        """Whether it must see all actions even where policies list the few that they may take."""
        return True

    @property
    def nearest_suffice(self) -> bool:
        """Whether the actions near the logged one are enough."""
        return False

    def with_near(self) -> FittedRatio:
        """The same with the near actions looked up, where it makes do with these."""
        return self


class Ratio(Serves, ABC):
    """How much more often the target policy would have done what a round shows. Settings only: frozen, and hashable.

    A ratio of your own gives `fit`, and what of the rest differs from the defaults. Use it as
    `op.Member(op.Weight(MyRatio()))` among the members of an `op.Estimator`. Properties may be overridden by class
    attributes, as in `fitted = False`.
    """

    columns: tuple[str, ...] = ()
    """Columns of the log that it reads by name, with `batch.column(name)`."""
    cross_fit: int = 0
    """In how many folds it is fitted, each without the rounds that it weighs; 0: once, on all rounds."""
    rewards: RewardModel | None = None
    """The reward model that it is fitted from."""
    inputs: Inputs | None = "identity"
    """What that model knows of an action."""
    dimensions: tuple[str, ...] | None = None
    """Of the pre-defined features, where only some are used."""
    weighs: bool = True
    """Whether it compares the two policies at all."""
    exact: bool = False
    """Whether it is right on average whatever the rewards are, as π/π0 is."""
    whole: bool = False
    """Whether it sums over all actions of both policies; if not, it sees the logged actions alone."""
    per_policy: bool = True
    """Whether it is fitted separately for each target policy."""
    of_actions: bool = False
    """Whether it is π/π0, whose overlap is reported for each policy anyway."""
    shown: bool = False
    """Whether the report shows how its weights are spread."""

    def lacks(self, available: Available) -> str | None:
        """What it needs and this evaluation does not have, in words that follow "cannot be computed:"."""
        return available.lacks_propensities if self.weighs else None

    def statistics(self, fitting: Fitting) -> tuple[Statistic, ...]:  # noqa: ARG002
        """What it needs of the fit pass: statistics with `columns`, `batch_rows`, `zero`, `fold`, `merge` and `finish`."""
        return ()

    @abstractmethod
    def fit(self, fitting: Fitting, results: Sequence[Any]) -> FittedRatio:
        """Its fitted form, from the result of each of its statistics."""

    def for_reward(self, reward: int) -> Self:  # noqa: ARG002
        """The same for one of several rewards: a learned ratio belongs to the reward that it is learned from."""
        return self

    @property
    def corrects(self) -> bool:
        """Whether rounds are weighed; if not, an estimate is its baseline alone."""
        return True

    @property
    def mean_one(self) -> bool:
        """Whether its mean under the logging policy is 1."""
        return self.exact

    @property
    def model_error_cancels(self) -> bool:
        """Whether the error of a reward model cancels to first order: baseline and control move alike on average."""
        return self.exact

    @property
    def fitted(self) -> bool:
        """Whether its weights move with what was fitted, so that the fit has a share in their error."""
        return True

    def numbers(self, n_actions: int, context: int, features: int) -> RatioNumbers:  # noqa: ARG002
        """What it keeps per action, for so many actions, columns of context and columns of features."""
        return RatioNumbers()


class UnfittedRatio(Ratio, FittedRatio):
    """A ratio that needs no fit, and so is its own fitted form."""

    fitted = False

    def fit(self, fitting: Fitting, results: Sequence[Any]) -> FittedRatio:  # noqa: ARG002
        return self

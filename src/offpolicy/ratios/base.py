"""What a ratio must state, and what it provides once fitted. No code outside this package asks for its class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.batch import Batch
from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.features import Features, Inputs
from offpolicy.data.schema import Schema
from offpolicy.data.spaces import ActionSpace, Serves
from offpolicy.models.embedding_table import Embedding
from offpolicy.models.rewards.base import Fits, FitShape, RewardModel
from offpolicy.policies.base import Policy
from offpolicy.ratios.interactions import Missed
from offpolicy.ratios.pools import Pool, Rounds
from offpolicy.statistics.base import State, Statistic, added
from offpolicy.statistics.histogram import LARGEST_OF

# Entries of a ratio's state that are merged by their maximum instead of their sum.
MAXIMA = ("largest", "contextual", *LARGEST_OF)
# Groups × 2: how Σω·weight and Σω·weight·residual change when each group is left out of the fit; and the Σω they cover.
Moves = tuple[FloatArray, float]


@dataclass(frozen=True)
class Available:
    """The columns of the log, the target policy by its name, and the logging policy where it is known."""

    schema: Schema
    policies: Mapping[str, Policy]
    logging: Policy | None

    @property
    def has_propensities(self) -> bool:
        return self.schema.propensity or self.logging is not None

    @property
    def has_whole_logging(self) -> bool:
        """Whether the logging policy's probability of every action is known."""
        return self.logging is not None and self.logging.whole

    @property
    def lacks_propensities(self) -> str | None:
        if self.has_propensities:
            return None
        remedy = "log them as `propensity=` (--propensity)"
        if EstimatedLogging().mismatch(self.schema.space) is None:
            remedy += ", or estimate them with `logging=op.EstimatedLogging()` (--logging estimate)"
        return f"it weights rounds by π/π0, and the log has neither propensities nor a logging policy; {remedy}"

    @property
    def lacks_slot_rewards(self) -> str | None:
        """Why slots have no rewards of their own."""
        if self.schema.gain is not None:
            return None
        return "it weights the reward of each slot, and this log has one reward per list; log lists of rewards"

    @property
    def lacks_slots(self) -> str | None:
        """Why the probabilities of slots, given the items above them, are unknown."""
        if self.schema.slot_propensity or self.logging is not None:
            return None
        return (
            "it weights slots by their own propensities, which the log does not have; log the probability of each item "
            "given those above it as `propensity=` (--propensity), or pass the logging policy as `logging=` (--logging)"
        )

    @property
    def lacks_positions(self) -> str | None:
        """Why the probabilities of items in their positions, whatever stands above them, are unknown."""
        unknown = [name for name, policy in self.policies.items() if not policy.gives_marginals]
        if unknown:
            return (
                "it needs the probability of each item in its position, whatever stands above it, and the new policy gives "
                "only probabilities given the items above; give an op.PlackettLuce, op.Factored or op.Deterministic"
            )
        if self.schema.position_propensity or (self.logging is not None and self.logging.gives_marginals):
            return None
        return (
            "it weights items by the propensities of their positions, whatever stands above them, which the log does not "
            "have; log them as `position_propensity=`, or pass the logging policy as `logging=` "
            "(--logging)"
        )

    @property
    def lacks_placements(self) -> str | None:
        """Why the probability of the logged items in other positions than their own is unknown."""
        if self.logging is None or not self.logging.gives_marginals:
            return (
                "it compares the positions of an item, and the log has only the probability of the position where the item "
                "was shown; pass the logging policy as `logging=` (--logging)"
            )
        return self.lacks_positions

    @property
    def lacks_whole_policies(self) -> str | None:
        if self.schema.space.slots is not None and self.schema.gain is None:
            return "its reward model predicts the reward of each slot, and this log has one reward per list"
        return self.lacks_items

    @property
    def lacks_items(self) -> str | None:
        """Why the new policy's probabilities of actions, or of the items of lists, that were not logged are unknown."""
        if all(policy.gives_items for policy in self.policies.values()):
            return None
        return (
            "it needs the new policy's probability of every action, and only that of the logged action is known; "
            "give list columns of candidates, a matrix or a function"
        )


@dataclass(frozen=True)
class Fitting:
    """What a ratio is fitted with, besides the results of its statistics.

    Attributes
    ----------
    name : str
        The estimator that first uses it, for messages.
    shape : FitShape
        Sizes and groups of units; its columns are those that the ratio and the policies read.
    by_action : FitShape
        The same for sums by action: groups only as fine as the memory budget allows.
    action_ratio : Callable[[Batch], FloatArray] | None
        π/π0 of each round, for ratios that are fitted for each policy.
    fits : Fits | None
        The fits of its reward model.
    families : int
        How many ratios that sum over all actions share the memory for tables.
    logging : Policy | None
        The logging policy, where it is known.
    target : Policy | None
        The target policy, for ratios that are fitted for each policy.
    first : Callable[[], Batch] | None
        The first rounds of the log.
    gain : tuple[float, ...]
        How much the reward of each slot of a list counts, if rewards belong to slots.
    """

    name: str
    shape: FitShape
    by_action: FitShape
    features: Features
    action_ratio: Callable[[Batch], FloatArray] | None = None
    fits: Fits | None = None
    families: int = 1
    logging: Policy | None = None
    target: Policy | None = None
    first: Callable[[], Batch] | None = None
    gain: tuple[float, ...] = ()


@dataclass(frozen=True)
class RatioNumbers:
    """How many numbers per action a ratio stores, for the memory budget.

    Attributes
    ----------
    near : int
        Neighbours that are looked up in each fold.
    sums : int
        Per group of units, in the fit pass.
    slopes : int
        Per sum that an estimate is made of, for the fit's share of the error.
    """

    fitted: int = 0
    folds: int = 0
    near: int = 0
    sums: int = 0
    slopes: int = 0


@dataclass(frozen=True)
class PoolingDiagnostics:
    """What a ratio reports about its weights over the whole log.

    Attributes
    ----------
    pooling : float | None
        The average share of a round's weight that comes from actions other than its own.
    new_actions : int
        Rounds whose action does not occur in the fit, and which get their action weight.
    misread : bool
        Whether weights in the posterior form are used with a logging policy that depends on the context.
    left_out : float | None
        By what share the weights could change, at most, if sums ran over all actions instead of the nearest ones.
    """

    pooling: float | None = None
    new_actions: int = 0
    misread: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)
    left_out: float | None = None


class FittedRatio(ABC):
    """The weights of a fitted ratio, and the sums that it collects in the scoring pass.

    A ratio of your own only needs `weights`. Its state is a dict of plain arrays, updated in place; `zero`, `fold` and
    `merge` work as those of a statistic do.
    """

    @abstractmethod
    def weights(self, rounds: Rounds) -> FloatArray:
        """The ratio of each round.

        Parameters
        ----------
        rounds : Rounds
            The rounds of a batch: `rounds.batch`, `rounds.fold` (the fold of each round), and `rounds.action` (π/π0 of the
            logged actions).

        Returns
        -------
        ndarray of shape (rounds,)
            One number, 0 or more, for each row of `rounds.batch`.
        """

    def earned(self, rounds: Rounds) -> FloatArray | None:  # noqa: ARG002
        """What the weights apply to, if that is not the reward of the round or of the slot.

        Parameters
        ----------
        rounds : Rounds
            The rounds of a batch.

        Returns
        -------
        ndarray of shape (rounds, rewards), or None
            A reward per round in place of the logged one; None for the logged one.
        """
        return None

    def zero(self, corrections: int) -> State:  # noqa: ARG002
        """Empty sums.

        Parameters
        ----------
        corrections : int
            How many corrections use the weight.

        Returns
        -------
        dict of str to ndarray
            The state that `fold` adds to.
        """
        return {"largest": np.zeros(())}

    def fold(self, state: State, rounds: Rounds, ratio: FloatArray) -> None:  # noqa: ARG002
        """Add the rounds of a batch to the sums, in place.

        Parameters
        ----------
        state : dict of str to ndarray
            The sums so far.
        rounds : Rounds
            The rounds of the batch.
        ratio : ndarray of shape (rounds,)
            The ratio of each round, from `weights`.
        """
        np.maximum(state["largest"], ratio.max(initial=0.0), out=state["largest"])

    def merge(self, a: State, b: State) -> State:
        """The sums of two sets of rows.

        Parameters
        ----------
        a, b : dict of str to ndarray
            The sums of each set.

        Returns
        -------
        dict of str to ndarray
            The sums of both.
        """
        return added(a, b, MAXIMA)

    def largest(self, state: State) -> float:
        """The largest ratio of any round.

        Parameters
        ----------
        state : dict of str to ndarray
            The sums over the log.

        Returns
        -------
        float
            The maximum, before it is clipped or shrunk.
        """
        return float(state["largest"])

    def histogram(self, state: State) -> State | None:  # noqa: ARG002
        """The distribution of the ratios, if the ratio records it.

        Parameters
        ----------
        state : dict of str to ndarray
            The sums over the log.

        Returns
        -------
        dict of str to ndarray, or None
            The state of a coarse `LogHistogram`.
        """
        return None

    def diagnostics(self, state: State, mean_weight: float) -> PoolingDiagnostics:  # noqa: ARG002
        """What there is to report about the weights over the whole log.

        Parameters
        ----------
        state : dict of str to ndarray
            The sums over the log.
        mean_weight : float
            The mean of the weights.

        Returns
        -------
        PoolingDiagnostics
            Empty unless the ratio pools actions.
        """
        return PoolingDiagnostics()

    def kept(self, state: State) -> tuple[float, float]:  # noqa: ARG002
        """How much of the differences between items the weights of lists keep, from 0 to 1.

        Parameters
        ----------
        state : dict of str to ndarray
            The sums over the log.

        Returns
        -------
        tuple of float
            For the slot whose reward is weighted, where items are alike if they earn alike; and for the others, whose items
            may matter in any way.
        """
        return 1.0, 1.0

    def moves(self, state: State, correction: int) -> Moves | None:  # noqa: ARG002
        """How the sums of one correction change when a group of units is left out of the fit.

        Parameters
        ----------
        state : dict of str to ndarray
            The sums over the log.
        correction : int
            Which of the corrections that use the weight.

        Returns
        -------
        tuple of (ndarray of shape (groups, 2), float), or None
            The changes of Σω·weight and Σω·weight·residual, and the Σω that they cover; None if they are unknown.
        """
        return None

    @property
    def embedding(self) -> Embedding | None:
        """The embedding of the actions that its weights are computed from."""
        return None

    def of_slot(self, ratio: Ratio) -> FittedRatio:  # noqa: ARG002
        """The same for the slot of a ratio that shares this fit, if actions are lists.

        Parameters
        ----------
        ratio : Ratio
            The ratio of one slot.

        Returns
        -------
        FittedRatio
            Itself, unless slots differ in their weights.
        """
        return self

    def light(self) -> FittedRatio:
        """The same without what only its error and its embedding need: what is sent to the workers."""
        return self

    def on_host(self) -> FittedRatio:
        """The same with arrays in memory, of a ratio that was fitted on a device."""
        return self

    # The following applies to ratios that sum over all actions (`Ratio.whole`).

    def pool(self, rounds: Rounds, state: State) -> Pool:
        """Start the work on one batch.

        Parameters
        ----------
        rounds : Rounds
            The rounds of the batch.
        state : dict of str to ndarray
            The sums so far, which the pool may add to.

        Returns
        -------
        Pool
            What collects the sums over the actions of each block.
        """
        raise NotImplementedError

    @property
    def needs_grid(self) -> bool:
        """Whether it needs all actions even where policies list the few that they may take."""
        return True

    @property
    def nearest_suffice(self) -> bool:
        """Whether the actions near the logged one are enough."""
        return False

    @property
    def normal(self) -> bool:
        """Whether the share of an action in a round is a normal density around its embedding."""
        return False

    def with_near(self) -> FittedRatio:
        """The same with the near actions looked up, if these are enough."""
        return self


class Ratio(Serves, ABC):
    """How much more often the target policy would have done what a round shows.

    A ratio is a setting: a frozen, hashable dataclass. A ratio of your own defines `fit`, and those of the other methods and
    properties whose defaults do not apply; a property may be overridden by a class attribute, as in `fitted = False`. Use it
    as `op.Member(op.Weight(MyRatio()))` among the members of an `op.Estimator`.

    Attributes
    ----------
    columns : tuple[str, ...]
        Columns of the log that it reads by name, with `batch.column(name)`.
    cross_fit : int
        In how many folds it is fitted, each without the rounds that it weights; 0: once, on all rounds.
    rewards : RewardModel | None
        The reward model that it is fitted from.
    inputs : Inputs | None
        What that model uses of an action.
    dimensions : tuple[str, ...] | None
        The pre-defined features to use; None: all.
    weighs : bool
        Whether it compares the two policies at all.
    exact : bool
        Whether it is unbiased whatever the rewards are, as π/π0 is.
    whole : bool
        Whether it sums over all actions of both policies, instead of using the logged actions alone.
    items : bool
        The same for lists: whether it sums over all items in every slot.
    marginal : bool
        Whether it compares the probabilities of items in their slots whatever stands above them, if actions are lists.
    per_policy : bool
        Whether it is fitted separately for each target policy.
    of_actions : bool
        Whether it is π/π0, whose overlap is reported for each policy anyway.
    shown : bool
        Whether the report shows the distribution of its weights.
    smooths : bool
        Whether it has a kernel over actions, so that its bias follows from the width.
    assumes : str | None
        For lists, what it assumes about how people read them, as in "slots do not matter to each other".
    """

    columns: tuple[str, ...] = ()
    cross_fit: int = 0
    rewards: RewardModel | None = None
    inputs: Inputs | None = "identity"
    dimensions: tuple[str, ...] | None = None
    weighs: bool = True
    exact: bool = False
    whole: bool = False
    items: bool = False
    marginal: bool = False
    per_policy: bool = True
    of_actions: bool = False
    shown: bool = False
    smooths: bool = False
    assumes: str | None = None

    def lacks(self, available: Available) -> str | None:
        """What it needs and this evaluation does not have.

        Parameters
        ----------
        available : Available
            The `schema` of the log, the target policy in `policies` by its name, and the `logging` policy (or None).

        Returns
        -------
        str or None
            A reason that completes "cannot be computed: …"; None if nothing is missing.
        """
        return available.lacks_propensities if self.weighs else None

    def statistics(self, fitting: Fitting) -> tuple[Statistic, ...]:  # noqa: ARG002
        """What it needs from the fit pass.

        Parameters
        ----------
        fitting : Fitting
            The sizes of the fit: `fitting.shape` has the groups of units that folds consist of.

        Returns
        -------
        tuple of Statistic
            Statistics with `columns`, `batch_rows`, `zero`, `fold`, `merge` and `finish`, such as `op.FitStatistic`.
        """
        return ()

    @abstractmethod
    def fit(self, fitting: Fitting, results: Sequence[Any]) -> FittedRatio:
        """Its fitted form.

        Parameters
        ----------
        fitting : Fitting
            What `statistics` was called with.
        results : sequence
            The result of each of its statistics.

        Returns
        -------
        FittedRatio
            What weights the rounds.
        """

    def for_reward(self, reward: int) -> Self:  # noqa: ARG002
        """The same for one of several rewards: a learned ratio belongs to the reward it is learned from.

        Parameters
        ----------
        reward : int
            The position of the reward among those of the log.

        Returns
        -------
        Ratio
            Itself, unless the rewards matter to it.
        """
        return self

    def widths(self, space: ActionSpace) -> tuple[float, ...] | None:  # noqa: ARG002
        """The width of a kernel over actions in each of their dimensions, in their unit; None for other ratios.

        Parameters
        ----------
        space : ActionSpace
            The actions of the log.

        Returns
        -------
        tuple of float or None
            One width per dimension.
        """
        return None

    def missed(self, slots: int) -> Missed:
        """Which interactions between slots it leaves out, if actions are lists.

        Parameters
        ----------
        slots : int
            The number of slots.

        Returns
        -------
        Missed
            The share of each kind; all of them unless the ratio states otherwise, and none if it is exact.
        """
        kept = float(self.exact)
        return Missed.of(np.full((slots, slots), kept), kept)

    def for_slot(self, slot: int) -> Self:  # noqa: ARG002
        """The same for the reward of one slot, if actions are lists.

        Parameters
        ----------
        slot : int
            The slot, from 0.

        Returns
        -------
        Ratio
            Itself, unless slots differ in their weights.
        """
        return self

    @property
    def corrects(self) -> bool:
        """Whether rounds are weighted; if not, an estimate is its baseline alone."""
        return True

    @property
    def mean_one(self) -> bool:
        """Whether its mean under the logging policy is 1."""
        return self.exact

    @property
    def model_error_cancels(self) -> bool:
        """Whether the error of a reward model cancels to first order: baseline and control change alike on average."""
        return self.exact

    @property
    def fitted(self) -> bool:
        """Whether its weights depend on what was fitted, so that the fit contributes to their error."""
        return True

    def numbers(self, n_actions: int, context: int, features: int) -> RatioNumbers:  # noqa: ARG002
        """How many numbers it stores per action.

        Parameters
        ----------
        n_actions : int
            The number of actions.
        context : int
            The number of context columns.
        features : int
            The number of columns of pre-defined features.

        Returns
        -------
        RatioNumbers
            What the memory budget counts.
        """
        return RatioNumbers()


class UnfittedRatio(Ratio, FittedRatio):
    """A ratio that needs no fit, and so is its own fitted form."""

    fitted = False

    def fit(self, fitting: Fitting, results: Sequence[Any]) -> FittedRatio:  # noqa: ARG002
        return self

    def of_slot(self, ratio: Ratio) -> FittedRatio:
        assert isinstance(ratio, UnfittedRatio)
        return ratio

    def lacks_slots_alone(self, available: Available) -> str | None:  # noqa: ARG002
        """Why more than the ratios of slots is needed, which is why those of embeddings cannot take their place."""
        return None

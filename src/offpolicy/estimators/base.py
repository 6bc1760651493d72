"""The base class of estimators: settings that determine the members, the parts of one formula.

V(π) = mean[baseline] + mean[weight · (r − control)] / (mean[weight] or 1)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args

from offpolicy.core.errors import InputError
from offpolicy.data.features import Features, Inputs
from offpolicy.data.spaces import ActionSpace
from offpolicy.models.rewards.base import RewardModel
from offpolicy.models.rewards.scikit import as_reward_model
from offpolicy.ratios.weights import Weight

Number = float | Literal["auto"]

DEFAULT_FOLDS = 5


@dataclass(frozen=True)
class Member:
    """One estimator with every number fixed: the parts of the formula.

    Parameters
    ----------
    weight : Weight
        A ratio, and how it is bent.
    rewards : RewardModel, optional
        The model q of the baseline and the control; both are 0 if None.
    cross_fit : int, default=0
        The number of folds that q is cross-fitted on; 0 fits it once, on all rounds.
    normalised : bool, default=False
        Divide the correction by the mean weight.
    inputs : {"identity", "features", "both"} or None, default="identity"
        How an action enters q. None means "both" where the log has action features.
    remainder : bool, default=False
        The baseline covers only the mass that clipping removed, Σ_a [π − min(π, Mπ0)]·q, and the control is 0 (CAB).
    fit_by_weight : bool, default=False
        Fit q with row weights w², once per target policy (MRDR).
    setting : float, optional
        The value of the tuned setting, for an estimator with several members.
    scaled : bool, default=False
        Multiply the correction by a bent weight h with mean[h·w] / (mean[h²]·mean[w]), which is right for residuals that are
        proportional to h (ScaledDR).
    smoothing : float or "auto", optional
        λ, if w·r is replaced by log(1 + λ·w·r)/λ (LogSmoothing); "auto" is 1/√n.
    variate : Weight, optional
        For lists, a weight with mean 1 in every slot. Each slot's is a control variate: β·(its mean − 1) is subtracted, with
        the β that leave the least variance.

    Examples
    --------
    >>> import offpolicy as op
    >>> op.SNIPS().members() == (op.Member(op.Weight(), normalised=True),)
    True
    """

    weight: Weight
    rewards: RewardModel | None = None
    cross_fit: int = 0
    normalised: bool = False
    inputs: Inputs | None = "identity"
    remainder: bool = False
    fit_by_weight: bool = False
    setting: float | None = None
    scaled: bool = False
    smoothing: Number | None = None
    variate: Weight | None = None


@dataclass(frozen=True)
class Estimator(ABC):
    """The base class of estimators: a frozen dataclass of settings that states its `members`.

    Where there are several members, they are ordered from the least biased to the most, and SLOPE picks one of them. A
    class attribute `tuned` names the setting that may be "auto".

    Parameters
    ----------
    name : str, optional
        The name in results; the name of the class by default.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import offpolicy as op
    >>> @dataclass(frozen=True)
    ... class HalfClipped(op.Estimator):
    ...     def members(self, cross_fit=None):
    ...         return op.ClippedIPS(clip=0.5).members()
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), HalfClipped())["HalfClipped"].value, 3)
    0.221
    """

    _: KW_ONLY
    name: str = ""
    tuned: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", type(self).__name__)
        self._check()

    def _check(self) -> None:  # noqa: B027
        """Raise if a setting is out of range."""

    @property
    def lattice(self) -> bool:
        """Whether members are subsets of dimensions, each of which must agree with its supersets."""
        return False

    @property
    def mixes(self) -> bool:
        """Whether it mixes several candidates, or settings, instead of being a single estimator."""
        return False

    @property
    def parts(self) -> tuple[Estimator, ...]:
        """The estimators that it combines; an estimator that combines none is its own only part."""
        return (self,)

    @abstractmethod
    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        """Return the parts of the formula, one `Member` per candidate.

        Parameters
        ----------
        cross_fit : int, optional
            The evaluation's number of folds, for an estimator that cross-fits and does not set its own.

        Returns
        -------
        tuple of Member
            From the least biased to the most.
        """

    def grid(self, values: Sequence[float]) -> Sequence[float]:
        """Return the values of the setting named by `tuned`: its own if it is a number, or `values` if it is "auto".

        Parameters
        ----------
        values : sequence of float
            The grid, from the least biased value to the most.

        Returns
        -------
        sequence of float
            One value, or the whole grid.
        """
        setting = getattr(self, str(self.tuned))
        return values if setting == "auto" else [float(setting)]

    def over(self, space: ActionSpace) -> Estimator:  # noqa: ARG002
        """Return the estimator for a kind of actions.

        Parameters
        ----------
        space : ActionSpace
            The actions of the log.

        Returns
        -------
        Estimator
            A copy; itself where the kind makes no difference.
        """
        return self

    def settled(self, features: Features, run: Run) -> Estimator:  # noqa: ARG002
        """Return the estimator with every choice made that depends on the log.

        Parameters
        ----------
        features : Features
            The action features of the log.
        run : callable
            Evaluates a list of estimators on the same log and policies.

        Returns
        -------
        Estimator
            A copy; itself where there is nothing to choose.
        """
        return self


Run = Callable[[Sequence[Estimator]], Any]
"""Evaluates some estimators on the same log and policies."""

REGISTRY: dict[str, type[Estimator]] = {}
E = TypeVar("E", bound=type[Estimator])


def register(estimator: E) -> E:
    """Register an estimator by its class name, for the command line and the contract tests."""
    REGISTRY[estimator.__name__] = estimator
    return estimator


class CrossFitted(Estimator):
    """The base of estimators that fit something: perhaps a reward model, and the number of folds for cross-fitting."""

    default_folds: ClassVar[int] = DEFAULT_FOLDS
    optional_rewards: ClassVar[bool] = False
    cross_fit: int | None

    def __post_init__(self) -> None:
        unmodelled = self.optional_rewards and getattr(self, "rewards", None) is None
        if hasattr(self, "rewards") and not unmodelled and not isinstance(self.rewards, RewardModel):
            object.__setattr__(self, "rewards", as_reward_model(self.rewards))
        super().__post_init__()
        inputs = getattr(self, "inputs", None)
        if inputs is not None and inputs not in get_args(Inputs):
            raise InputError(f'{self.name}: inputs is {inputs!r}; give "identity", "features", "both", or None.')
        if self.cross_fit is not None and (not isinstance(self.cross_fit, int) or self.cross_fit < 0 or self.cross_fit == 1):
            raise InputError(f"{self.name}: cross_fit is {self.cross_fit}; give 0 for none, or 2 or more folds.")

    def folds(self, cross_fit: int | None) -> int:
        """Return the number of folds: the estimator's own, the evaluation's, or the default of the class.

        Parameters
        ----------
        cross_fit : int or None
            The evaluation's number of folds.
        """
        if self.cross_fit is not None:
            return self.cross_fit
        return self.default_folds if cross_fit is None or not self.default_folds else cross_fit

"""What an estimator is: settings that say its members, the parts of the one formula.

V(π) = mean[baseline] + mean[weight · (r − control)] / (mean[weight] or 1)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args

from offpolicy.core.errors import InputError
from offpolicy.data.features import Features, Inputs
from offpolicy.models.rewards.base import RewardModel
from offpolicy.models.rewards.scikit import as_reward_model
from offpolicy.ratios.weights import Weight

Number = float | Literal["auto"]

DEFAULT_FOLDS = 5


@dataclass(frozen=True)
class Member:
    """One estimator with every number settled: the parts of the one formula."""

    weight: Weight
    rewards: RewardModel | None = None
    cross_fit: int = 0
    normalised: bool = False
    inputs: Inputs | None = "identity"
    """What the reward model knows of an action; None: features too, where there are any."""
    remainder: bool = False
    """The baseline covers only the mass that clipping removed, Σ_a [π − min(π, Mπ0)]·q, and the control is 0 (CAB)."""
    fit_by_weight: bool = False
    """The reward model is fitted with row weights w² (MRDR): one fit a target."""
    setting: float | None = None
    scaled: bool = False
    """The correction by a bent weight h is multiplied with mean[h·w] / mean[h²], so that it is right for residuals that are
    proportional to h."""


@dataclass(frozen=True)
class Estimator(ABC):
    """Settings of an estimator. `members` are its candidates, the least biased first; SLOPE picks among several."""

    _: KW_ONLY
    name: str = ""
    tuned: ClassVar[str | None] = None
    """The name of the one number that may be "auto"."""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", type(self).__name__)
        self._check()

    def _check(self) -> None:  # noqa: B027
        """Raise if a setting is out of range."""

    @property
    def lattice(self) -> bool:
        """Whether members are subsets of dimensions, of which each need only agree with those that contain it."""
        return False

    @property
    def parts(self) -> tuple[Estimator, ...]:
        """The estimators that it is made of: itself, but where it chooses among others."""
        return (self,)

    @abstractmethod
    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        """The members; `cross_fit` is the evaluation's default for estimators that cross-fit and left it open."""

    def settled(self, features: Features, run: Run) -> Estimator:  # noqa: ARG002
        """The same with every choice made that needs to know the log's features, or (by `run`) other estimates."""
        return self


Run = Callable[[Sequence[Estimator]], Any]
"""Evaluates some estimators on the same log and policies."""

REGISTRY: dict[str, type[Estimator]] = {}
E = TypeVar("E", bound=type[Estimator])


def register(estimator: E) -> E:
    """Make an estimator known by its class name, to the command line and to the contract suite."""
    REGISTRY[estimator.__name__] = estimator
    return estimator


class CrossFitted(Estimator):
    """What estimators with something to fit share: a reward model, perhaps, and the number of folds it is left out of."""

    default_folds: ClassVar[int] = DEFAULT_FOLDS
    cross_fit: int | None

    def __post_init__(self) -> None:
        if hasattr(self, "rewards") and not isinstance(self.rewards, RewardModel):
            object.__setattr__(self, "rewards", as_reward_model(self.rewards))
        super().__post_init__()
        inputs = getattr(self, "inputs", None)
        if inputs is not None and inputs not in get_args(Inputs):
            raise InputError(f'{self.name}: inputs is {inputs!r}; give "identity", "features", "both", or None to choose.')
        if self.cross_fit is not None and (not isinstance(self.cross_fit, int) or self.cross_fit < 0 or self.cross_fit == 1):
            raise InputError(f"{self.name}: cross_fit is {self.cross_fit}; give 0 for none, or a number of folds from 2.")

    def folds(self, cross_fit: int | None) -> int:
        if self.cross_fit is not None:
            return self.cross_fit
        return self.default_folds if cross_fit is None or not self.default_folds else cross_fit

"""Reward models q(x, a): fitted in the one fit pass, for the whole log and without each fold."""

from offpolicy.models.rewards.base import Fits, FitShape, LinearPredictor, Predictor, RewardModel, design
from offpolicy.models.rewards.fitted import FittedRewards, load_rewards
from offpolicy.models.rewards.given import Given
from offpolicy.models.rewards.ridge.model import Ridge
from offpolicy.models.rewards.scikit import Regressor, as_reward_model
from offpolicy.models.rewards.torch import AdamW, Torch, two_layer
from offpolicy.models.rewards.two_step import TwoStep

__all__ = [
    "AdamW",
    "FitShape",
    "Fits",
    "FittedRewards",
    "Given",
    "LinearPredictor",
    "Predictor",
    "Regressor",
    "RewardModel",
    "Ridge",
    "Torch",
    "TwoStep",
    "as_reward_model",
    "design",
    "load_rewards",
    "two_layer",
]

"""Reward models q(x, a): fitted in the one fit pass, for the whole log and without each fold."""

from offpolicy.rewards.base import Fits, FitShape, Linear, Predictor, RewardModel, design
from offpolicy.rewards.fitted import FittedRewards, load_rewards
from offpolicy.rewards.given import Given
from offpolicy.rewards.network import AdamW, Torch, two_layer
from offpolicy.rewards.regressor import Regressor, as_reward_model
from offpolicy.rewards.ridge import Ridge
from offpolicy.rewards.two_step import TwoStep

__all__ = [
    "AdamW",
    "FitShape",
    "Fits",
    "FittedRewards",
    "Given",
    "Linear",
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

"""What a new policy would have earned, from the logs of the old one, when there are very many actions."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "errors": ("InputError", "InputWarning"),
    "estimated": ("EstimatedLogging",),
    "log": ("Log",),
    "sources": ("from_obp", "read_log"),
    "policies": (
        "Candidates", "Column", "Columns", "EpsilonGreedy", "Fixed", "Function", "Mixture", "Softmax", "Table",
        "TwoTower", "Uniform",
    ),
    "policy": ("Policy",),
    "engines": ("Local", "Spark"),
    "rewards": (
        "AdamW", "FittedRewards", "Given", "Regressor", "RewardModel", "Ridge", "Torch", "load_rewards", "two_layer",
    ),
    "posteriors": ("Categorical", "Exact", "Gaussian", "Logistic", "Posterior"),
    "embedding": ("EmbeddingTable", "load_embedding"),
    "estimators": (
        "CAB", "DM", "DR", "IPS", "MDR", "MIPS", "MR", "MRDR", "OCV", "SLOPE", "SNDR", "SNIPS", "Auto", "Blend",
        "ClippedIPS", "DRos", "Estimator", "GroupIPS", "LearnedMDR", "LearnedMIPS", "LoggedMean", "Member", "OffCEM",
        "ScaledDR", "SubGaussianIPS", "SwitchDR",
    ),
    "weights": ("Bend", "Weight"),
    "findings": ("Finding", "Verdict"),
    "sensitivity": ("Sensitivity",),
    "estimate": ("Difference", "Estimate"),
    "evaluation": ("Evaluation",),
    "fitting": ("embed", "fit_rewards"),
    "job": ("evaluate",),
    "recalled": ("SavedEstimate", "SavedResult", "load_result"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]

if TYPE_CHECKING:  # the same names for type checkers and editors
    from offpolicy import worlds as worlds
    from offpolicy.embedding import EmbeddingTable as EmbeddingTable
    from offpolicy.embedding import load_embedding as load_embedding
    from offpolicy.engines import Local as Local
    from offpolicy.engines import Spark as Spark
    from offpolicy.errors import InputError as InputError
    from offpolicy.errors import InputWarning as InputWarning
    from offpolicy.estimate import Difference as Difference
    from offpolicy.estimate import Estimate as Estimate
    from offpolicy.estimated import EstimatedLogging as EstimatedLogging
    from offpolicy.estimators import CAB as CAB
    from offpolicy.estimators import DM as DM
    from offpolicy.estimators import DR as DR
    from offpolicy.estimators import IPS as IPS
    from offpolicy.estimators import MDR as MDR
    from offpolicy.estimators import MIPS as MIPS
    from offpolicy.estimators import MR as MR
    from offpolicy.estimators import MRDR as MRDR
    from offpolicy.estimators import OCV as OCV
    from offpolicy.estimators import SLOPE as SLOPE
    from offpolicy.estimators import SNDR as SNDR
    from offpolicy.estimators import SNIPS as SNIPS
    from offpolicy.estimators import Auto as Auto
    from offpolicy.estimators import Blend as Blend
    from offpolicy.estimators import ClippedIPS as ClippedIPS
    from offpolicy.estimators import DRos as DRos
    from offpolicy.estimators import Estimator as Estimator
    from offpolicy.estimators import GroupIPS as GroupIPS
    from offpolicy.estimators import LearnedMDR as LearnedMDR
    from offpolicy.estimators import LearnedMIPS as LearnedMIPS
    from offpolicy.estimators import LoggedMean as LoggedMean
    from offpolicy.estimators import Member as Member
    from offpolicy.estimators import OffCEM as OffCEM
    from offpolicy.estimators import ScaledDR as ScaledDR
    from offpolicy.estimators import SubGaussianIPS as SubGaussianIPS
    from offpolicy.estimators import SwitchDR as SwitchDR
    from offpolicy.evaluation import Evaluation as Evaluation
    from offpolicy.findings import Finding as Finding
    from offpolicy.findings import Verdict as Verdict
    from offpolicy.fitting import embed as embed
    from offpolicy.fitting import fit_rewards as fit_rewards
    from offpolicy.job import evaluate as evaluate
    from offpolicy.log import Log as Log
    from offpolicy.policies import Candidates as Candidates
    from offpolicy.policies import Column as Column
    from offpolicy.policies import Columns as Columns
    from offpolicy.policies import EpsilonGreedy as EpsilonGreedy
    from offpolicy.policies import Fixed as Fixed
    from offpolicy.policies import Function as Function
    from offpolicy.policies import Mixture as Mixture
    from offpolicy.policies import Softmax as Softmax
    from offpolicy.policies import Table as Table
    from offpolicy.policies import TwoTower as TwoTower
    from offpolicy.policies import Uniform as Uniform
    from offpolicy.policy import Policy as Policy
    from offpolicy.posteriors import Categorical as Categorical
    from offpolicy.posteriors import Exact as Exact
    from offpolicy.posteriors import Gaussian as Gaussian
    from offpolicy.posteriors import Logistic as Logistic
    from offpolicy.posteriors import Posterior as Posterior
    from offpolicy.recalled import SavedEstimate as SavedEstimate
    from offpolicy.recalled import SavedResult as SavedResult
    from offpolicy.recalled import load_result as load_result
    from offpolicy.rewards import AdamW as AdamW
    from offpolicy.rewards import FittedRewards as FittedRewards
    from offpolicy.rewards import Given as Given
    from offpolicy.rewards import Regressor as Regressor
    from offpolicy.rewards import RewardModel as RewardModel
    from offpolicy.rewards import Ridge as Ridge
    from offpolicy.rewards import Torch as Torch
    from offpolicy.rewards import load_rewards as load_rewards
    from offpolicy.rewards import two_layer as two_layer
    from offpolicy.sensitivity import Sensitivity as Sensitivity
    from offpolicy.sources import from_obp as from_obp
    from offpolicy.sources import read_log as read_log
    from offpolicy.weights import Bend as Bend
    from offpolicy.weights import Weight as Weight


def __getattr__(name: str) -> Any:
    """Load a name's module when it is first asked for, so that `import offpolicy` stays fast."""
    if name == "worlds":
        return importlib.import_module("offpolicy.worlds")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'offpolicy' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"offpolicy.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

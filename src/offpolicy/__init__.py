"""What a new policy would have earned, from the logs of the old one, when there are very many actions."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "core.errors": ("InputError", "InputWarning"),
    "data.estimated_logging": ("EstimatedLogging",),
    "data.log": ("Log",),
    "data.sources": ("from_obp", "read_log"),
    "policies.tables": (
        "Candidates", "Column", "Columns", "EpsilonGreedy", "Fixed", "Function", "Mixture", "Softmax", "Table",
        "TwoTower", "Uniform",
    ),
    "policies.base": ("Policy",),
    "engines": ("Local", "Spark"),
    "models.rewards": (
        "AdamW", "FittedRewards", "Given", "Regressor", "RewardModel", "Ridge", "Torch", "load_rewards", "two_layer",
    ),
    "models.posteriors": ("Categorical", "Exact", "Gaussian", "Logistic", "Posterior"),
    "models.embedding_table": ("EmbeddingTable", "load_embedding"),
    "estimators": (
        "CAB", "DM", "DR", "IPS", "MDR", "MIPS", "MR", "MRDR", "OCV", "SLOPE", "SNDR", "SNIPS", "Auto", "Blend",
        "ClippedIPS", "DRos", "Estimator", "GroupIPS", "LearnedMDR", "LearnedMIPS", "LoggedMean", "Member", "OffCEM",
        "ScaledDR", "SubGaussianIPS", "SwitchDR",
    ),
    "ratios.weights": ("Bend", "Weight"),
    "diagnostics.verdict": ("Finding", "Verdict"),
    "inference.sensitivity": ("Sensitivity",),
    "results.estimate": ("Difference", "Estimate"),
    "results.evaluation": ("Evaluation",),
    "results.fitting": ("embed", "fit_rewards"),
    "results.job": ("evaluate",),
    "results.saved_result": ("SavedEstimate", "SavedResult", "load_result"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]

if TYPE_CHECKING:  # the same names for type checkers and editors
    from offpolicy import worlds as worlds
    from offpolicy.core.errors import InputError as InputError
    from offpolicy.core.errors import InputWarning as InputWarning
    from offpolicy.data.estimated_logging import EstimatedLogging as EstimatedLogging
    from offpolicy.data.log import Log as Log
    from offpolicy.data.sources import from_obp as from_obp
    from offpolicy.data.sources import read_log as read_log
    from offpolicy.diagnostics.verdict import Finding as Finding
    from offpolicy.diagnostics.verdict import Verdict as Verdict
    from offpolicy.engines import Local as Local
    from offpolicy.engines import Spark as Spark
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
    from offpolicy.inference.sensitivity import Sensitivity as Sensitivity
    from offpolicy.models.embedding_table import EmbeddingTable as EmbeddingTable
    from offpolicy.models.embedding_table import load_embedding as load_embedding
    from offpolicy.models.posteriors import Categorical as Categorical
    from offpolicy.models.posteriors import Exact as Exact
    from offpolicy.models.posteriors import Gaussian as Gaussian
    from offpolicy.models.posteriors import Logistic as Logistic
    from offpolicy.models.posteriors import Posterior as Posterior
    from offpolicy.models.rewards import AdamW as AdamW
    from offpolicy.models.rewards import FittedRewards as FittedRewards
    from offpolicy.models.rewards import Given as Given
    from offpolicy.models.rewards import Regressor as Regressor
    from offpolicy.models.rewards import RewardModel as RewardModel
    from offpolicy.models.rewards import Ridge as Ridge
    from offpolicy.models.rewards import Torch as Torch
    from offpolicy.models.rewards import load_rewards as load_rewards
    from offpolicy.models.rewards import two_layer as two_layer
    from offpolicy.policies.base import Policy as Policy
    from offpolicy.policies.tables import Candidates as Candidates
    from offpolicy.policies.tables import Column as Column
    from offpolicy.policies.tables import Columns as Columns
    from offpolicy.policies.tables import EpsilonGreedy as EpsilonGreedy
    from offpolicy.policies.tables import Fixed as Fixed
    from offpolicy.policies.tables import Function as Function
    from offpolicy.policies.tables import Mixture as Mixture
    from offpolicy.policies.tables import Softmax as Softmax
    from offpolicy.policies.tables import Table as Table
    from offpolicy.policies.tables import TwoTower as TwoTower
    from offpolicy.policies.tables import Uniform as Uniform
    from offpolicy.ratios.weights import Bend as Bend
    from offpolicy.ratios.weights import Weight as Weight
    from offpolicy.results.estimate import Difference as Difference
    from offpolicy.results.estimate import Estimate as Estimate
    from offpolicy.results.evaluation import Evaluation as Evaluation
    from offpolicy.results.fitting import embed as embed
    from offpolicy.results.fitting import fit_rewards as fit_rewards
    from offpolicy.results.job import evaluate as evaluate
    from offpolicy.results.saved_result import SavedEstimate as SavedEstimate
    from offpolicy.results.saved_result import SavedResult as SavedResult
    from offpolicy.results.saved_result import load_result as load_result


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

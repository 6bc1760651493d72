"""The public names, each with the module it comes from."""

from . import worlds as worlds
from .core.errors import InputError as InputError, InputWarning as InputWarning
from .core.memory import Need as Need
from .data.batch import Batch as Batch
from .data.box import Box as Box
from .data.estimated_logging import EstimatedLogging as EstimatedLogging
from .data.log import Log as Log
from .data.monte_carlo import MonteCarlo as MonteCarlo
from .data.slate import Slate as Slate
from .data.sources import from_obp as from_obp, read_log as read_log, read_vw as read_vw
from .data.spaces import Discrete as Discrete
from .diagnostics.base import Diagnostic as Diagnostic, Subject as Subject
from .diagnostics.verdict import Finding as Finding, Verdict as Verdict
from .engines.gpu import GPU as GPU
from .engines.local import Local as Local
from .engines.spark import Spark as Spark
from .engines.split import split as split
from .estimators import (
    AIPS as AIPS,
    CAB as CAB,
    DM as DM,
    DR as DR,
    IIPS as IIPS,
    IPS as IPS,
    MDR as MDR,
    MIPS as MIPS,
    MR as MR,
    MRDR as MRDR,
    OCV as OCV,
    PBM as PBM,
    PI as PI,
    RIPS as RIPS,
    SIPS as SIPS,
    SLOPE as SLOPE,
    SNDR as SNDR,
    SNIPS as SNIPS,
    Auto as Auto,
    BiasPrior as BiasPrior,
    Blend as Blend,
    CascadeDR as CascadeDR,
    ClippedIPS as ClippedIPS,
    DRos as DRos,
    Estimator as Estimator,
    GroupIPS as GroupIPS,
    KernelDR as KernelDR,
    KernelIPS as KernelIPS,
    KernelMIPS as KernelMIPS,
    KernelSNIPS as KernelSNIPS,
    LearnedMDR as LearnedMDR,
    LearnedMIPS as LearnedMIPS,
    LoggedMean as LoggedMean,
    LogSmoothing as LogSmoothing,
    Member as Member,
    OffCEM as OffCEM,
    PairIPS as PairIPS,
    PartialIPS as PartialIPS,
    PrefixDM as PrefixDM,
    ReadingPrior as ReadingPrior,
    ScaledDR as ScaledDR,
    StackedDR as StackedDR,
    SubGaussianIPS as SubGaussianIPS,
    SwitchDR as SwitchDR,
)  # fmt: skip
from .models.embedding_table import EmbeddingTable as EmbeddingTable, load_embedding as load_embedding
from .models.posteriors.base import Pooling as Pooling, Posterior as Posterior
from .models.posteriors.categorical import Categorical as Categorical, Exact as Exact
from .models.posteriors.gaussian import Gaussian as Gaussian
from .models.posteriors.logistic import Logistic as Logistic
from .models.posteriors.predicted import Predicted as Predicted
from .models.rewards.base import (
    Fits as Fits,
    FitStatistic as FitStatistic,
    RewardModel as RewardModel,
    Savable as Savable,
)  # fmt: skip
from .models.rewards.fitted import FittedRewards as FittedRewards, load_rewards as load_rewards
from .models.rewards.given import Given as Given
from .models.rewards.ridge.model import Ridge as Ridge
from .models.rewards.scikit import Regressor as Regressor
from .models.rewards.torch import AdamW as AdamW, Torch as Torch, two_layer as two_layer
from .policies.base import Policy as Policy
from .policies.candidates import Candidates as Candidates
from .policies.classifier import Classifier as Classifier
from .policies.density import Density as Density
from .policies.deterministic import Deterministic as Deterministic
from .policies.factored import Factored as Factored
from .policies.functions import Function as Function
from .policies.mixture import Mixture as Mixture
from .policies.normal import Normal as Normal
from .policies.plackett_luce import PlackettLuce as PlackettLuce
from .policies.scores import EpsilonGreedy as EpsilonGreedy, Softmax as Softmax
from .policies.shift import Shift as Shift
from .policies.tables import (
    Column as Column,
    Columns as Columns,
    Fixed as Fixed,
    Table as Table,
    Uniform as Uniform,
)  # fmt: skip
from .policies.two_tower import TwoTower as TwoTower
from .policies.whole_batches import WholeBatches as WholeBatches
from .ratios.base import FittedRatio as FittedRatio, Ratio as Ratio
from .ratios.weights import Bend as Bend, Weight as Weight
from .results.backtest import (
    Backtest as Backtest,
    BacktestedEstimator as BacktestedEstimator,
    Outcome as Outcome,
    Pair as Pair,
    backtest as backtest,
)  # fmt: skip
from .results.comparison import ComparedPolicy as ComparedPolicy, Comparison as Comparison
from .results.estimate import Difference as Difference, Estimate as Estimate
from .results.evaluate import evaluate as evaluate
from .results.evaluation import Evaluation as Evaluation
from .results.fitting import embed as embed, fit_rewards as fit_rewards
from .results.loading import SavedEstimate as SavedEstimate, SavedResult as SavedResult, load_result as load_result
from .results.monitor import Decision as Decision, Look as Look, Monitor as Monitor, Watched as Watched
from .results.plan import Plan as Plan, PlannedPolicy as PlannedPolicy
from .results.sensitivity import Sensitivity as Sensitivity
from .scoring.scored_block import ScoredBlock as ScoredBlock

__version__: str
__all__: list[str]

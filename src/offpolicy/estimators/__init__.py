"""Every estimator as a composition of weight, reward model and normalisation.

To add one, write a frozen dataclass that states its `members` in the file of its kind, and decorate it with `@register`. The
contract tests in tests/estimators/test_registry.py then cover it; CONTRIBUTING.md names the other files.
"""

from offpolicy.estimators.base import REGISTRY, Estimator, Member, Number, Run, register
from offpolicy.estimators.bias_prior import BiasPrior
from offpolicy.estimators.blends import OCV, SLOPE, Auto, Blend, StackedDR
from offpolicy.estimators.combined import Combined
from offpolicy.estimators.dr import CAB, DM, DR, MRDR, SNDR, DRos, ScaledDR, SwitchDR
from offpolicy.estimators.embedded import MDR, MIPS, GroupIPS, LearnedMDR, LearnedMIPS, OffCEM
from offpolicy.estimators.ips import IPS, MR, SNIPS, ClippedIPS, LoggedMean, LogSmoothing, SubGaussianIPS
from offpolicy.estimators.kernels import KernelDR, KernelIPS, KernelMIPS, KernelSNIPS
from offpolicy.estimators.lists import IIPS, PI, RIPS, SIPS, CascadeDR
from offpolicy.estimators.position_based import PBM
from offpolicy.estimators.prefix import PrefixDM
from offpolicy.estimators.reading_prior import ReadingPrior
from offpolicy.estimators.windows import AIPS, PairIPS, PartialIPS

__all__ = [
    "AIPS",
    "CAB",
    "DM",
    "DR",
    "IIPS",
    "IPS",
    "MDR",
    "MIPS",
    "MR",
    "MRDR",
    "OCV",
    "PBM",
    "PI",
    "REGISTRY",
    "RIPS",
    "SIPS",
    "SLOPE",
    "SNDR",
    "SNIPS",
    "Auto",
    "BiasPrior",
    "Blend",
    "CascadeDR",
    "ClippedIPS",
    "Combined",
    "DRos",
    "Estimator",
    "GroupIPS",
    "KernelDR",
    "KernelIPS",
    "KernelMIPS",
    "KernelSNIPS",
    "LearnedMDR",
    "LearnedMIPS",
    "LogSmoothing",
    "LoggedMean",
    "Member",
    "Number",
    "OffCEM",
    "PairIPS",
    "PartialIPS",
    "PrefixDM",
    "ReadingPrior",
    "Run",
    "ScaledDR",
    "StackedDR",
    "SubGaussianIPS",
    "SwitchDR",
    "register",
]

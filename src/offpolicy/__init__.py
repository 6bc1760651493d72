"""What a new policy would have earned, from the logs of the old one, when there are very many actions."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "errors": ("InputError", "InputWarning"),
    "log": ("Log",),
    "sources": ("from_obp", "read_log"),
    "policies": (
        "Candidates", "Column", "EpsilonGreedy", "Fixed", "Function", "Mixture", "Policy", "Softmax", "Table", "Uniform",
    ),
    "engines": ("Local",),
    "rewards": ("Given", "Regressor", "RewardModel", "Ridge"),
    "estimators": (
        "CAB", "DM", "DR", "IPS", "MRDR", "SNDR", "SNIPS", "ClippedIPS", "DRos", "Estimator", "LoggedMean",
        "SubGaussianIPS", "SwitchDR",
    ),
    "diagnostics": ("Finding", "Verdict"),
    "evaluation": ("Difference", "Estimate", "Evaluation"),
    "evaluate": ("evaluate",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604

if TYPE_CHECKING:
    from offpolicy.diagnostics import Finding, Verdict
    from offpolicy.engines import Local
    from offpolicy.errors import InputError, InputWarning
    from offpolicy.estimators import (
        CAB,
        DM,
        DR,
        IPS,
        MRDR,
        SNDR,
        SNIPS,
        ClippedIPS,
        DRos,
        Estimator,
        LoggedMean,
        SubGaussianIPS,
        SwitchDR,
    )
    from offpolicy.evaluate import evaluate
    from offpolicy.evaluation import Difference, Estimate, Evaluation
    from offpolicy.log import Log
    from offpolicy.policies import (
        Candidates,
        Column,
        EpsilonGreedy,
        Fixed,
        Function,
        Mixture,
        Policy,
        Softmax,
        Table,
        Uniform,
    )
    from offpolicy.rewards import Given, Regressor, RewardModel, Ridge
    from offpolicy.sources import from_obp, read_log


def __getattr__(name: str) -> Any:
    """Load a name's module when it is first asked for, so that `import offpolicy` stays fast."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'offpolicy' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"offpolicy.{_HOME_OF[name]}"), name)
    globals()[name] = value  # `offpolicy.evaluate` is then the function, not the module of that name
    return value


def __dir__() -> list[str]:
    return __all__

"""Where a result comes from: what was read, and the versions that computed it."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from offpolicy.core.describe import described
from offpolicy.data.log import Log
from offpolicy.engines.base import Engine
from offpolicy.engines.spark import Spark
from offpolicy.models.propensities import FittedLogging
from offpolicy.results.job import Job
from offpolicy.scoring.fit_pass import FitResults
from offpolicy.statistics.base import State
from offpolicy.statistics.fingerprint import Fingerprint

ALWAYS = ("offpolicy", "numpy", "scipy", "scikit-learn", "pyarrow")


def versions(engine: Engine, fitted: FitResults) -> dict[str, str]:
    """Of Python, this package and those that the numbers come from."""
    of_models = dict.fromkeys(package for fit in fitted.models for package in fit.rewards.packages)
    besides = [*(["pyspark"] if isinstance(engine, Spark) else []), *of_models]
    return {"python": platform.python_version(), **{name: _version(name) for name in (*ALWAYS, *besides)}}


@cache  # its file is parsed anew each time, which takes longer than the sums of a small log
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "not installed"


def settings_of(job: Job) -> dict[str, Any]:
    """As they were asked for, in words."""
    request, log, logging = job.request, job.log, job.fits.logging
    asked = logging.setting if isinstance(logging, FittedLogging) else logging
    return {
        "estimators": [described(estimator) for estimator in job.asked],
        "policies": {name: described(policy) for name, policy in request.policies.items()},
        "logging": None if asked is None else described(asked),
        "level": request.level,
        "interval": "normal",
        "cross_fit": request.cross_fit,
        "reward_range": None if log.reward_range is None else list(log.reward_range),
        "seed": request.seed,
        "clustered": log.schema.clustered,
        "engine": type(request.engine).__name__,
    }


def read(log: Log, fingerprint: State) -> dict[str, Any]:
    """What was read, and how to know it again."""
    schema, roles = log.schema, log.source.roles
    told = {
        "context": list(schema.context),
        "features": [*schema.features, *schema.catalog_names],
        "reward": list(schema.rewards),
        "propensity": schema.propensity,
        "cluster": schema.clustered,
        "weight": schema.weighted,
        "by": list(schema.slices or []),
    }
    return {
        "fingerprint": Fingerprint.digest(fingerprint, len(log), told, schema.space, schema.catalog),
        "source": log.source.described,
        "rounds": len(log),
        **schema.space.summary(),
        "columns": {**told, "by": schema.slice_name, **roles},
    }

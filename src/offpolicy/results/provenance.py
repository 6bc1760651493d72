"""Where a result comes from: what was read, and the versions that computed it."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from offpolicy.data.log import Log
from offpolicy.statistics.base import State
from offpolicy.statistics.fingerprint import Fingerprint

ALWAYS = ("offpolicy", "numpy", "scipy", "scikit-learn", "pyarrow")


def versions(*besides: str) -> dict[str, str]:
    """Of Python, this package and those that the numbers come from."""
    return {"python": platform.python_version(), **{name: _version(name) for name in (*ALWAYS, *besides)}}


@cache  # its file is parsed anew each time, which takes longer than the sums of a small log
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "not installed"


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

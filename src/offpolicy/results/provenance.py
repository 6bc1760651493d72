"""Where a result comes from: what was asked for, in words that can be typed again, and the versions that computed it."""

from __future__ import annotations

import dataclasses
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from offpolicy.data.log import Log
from offpolicy.policies.base import Policy
from offpolicy.statistics import Fingerprint, State

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
        "fingerprint": Fingerprint.digest(fingerprint, len(log), told, schema.actions, schema.catalog),
        "source": log.source.described,
        "rounds": len(log),
        "actions": schema.actions.count,
        "columns": {**told, "by": schema.slice_name, **roles},
    }


def written(value: Any) -> str:
    """Settings as one would type them: only what differs from the defaults.

    >>> from offpolicy import DR, Ridge
    >>> written(DR()), written(DR(rewards=Ridge(penalty=1.0), name="light"))
    ('DR()', "DR(name='light', rewards=Ridge(penalty=1.0))")
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = (f for f in dataclasses.fields(value) if f.init and f.repr and not f.name.startswith("_"))
        parts = [f"{f.name}={written(v)}" for f in shown if _told(f, v := getattr(value, f.name), value)]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, np.ndarray):
        return f"array of {' × '.join(f'{n:,}' for n in value.shape)}"
    if isinstance(value, (list, tuple)) and any(map(dataclasses.is_dataclass, value)):
        return f"[{', '.join(map(written, value))}]"
    if callable(value) and not isinstance(value, Policy):
        return str(getattr(value, "__qualname__", type(value).__name__))
    shown_plainly = isinstance(value, (str, int, float, bool, type(None), list, tuple, dict, Policy))
    return repr(value) if shown_plainly else type(value).__name__


def _told(field: dataclasses.Field[Any], value: Any, owner: Any) -> bool:
    """Whether a setting differs from its default (the default name is that of the class)."""
    if field.name == "name" and value == type(owner).__name__:
        return False
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    try:
        return bool(default is dataclasses.MISSING or value != default)
    except (TypeError, ValueError):  # arrays and frames have no one truth
        return True

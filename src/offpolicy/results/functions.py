"""Estimators that are plain functions of a log and a policy: they give a value, without a standard error."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.log import Log
from offpolicy.diagnostics.verdict import Finding, Verdict
from offpolicy.inference.functionals import Functional, Unresampled
from offpolicy.inference.intervals import normal_interval
from offpolicy.policies.base import Policy
from offpolicy.results.estimate import Estimate
from offpolicy.results.evaluation import Evaluation

Function = Callable[[Log, Policy], Any]

WITHOUT_ERROR = Finding(
    Verdict.CAUTION,
    "function",
    "It is a function, which returns a value without a standard error.",
    "Whether it differs from other estimates by more than sampling error is unknown, and no check applies to it.",
    "Write it as an op.Estimator to get intervals and checks.",
)


def with_functions(
    result: Evaluation, log: Log, policies: Mapping[str, Policy], functions: Mapping[str, Function]
) -> Evaluation:
    """The result with the values of the functions, which lead if there is nothing else but the logged mean."""
    if result.rewards:
        raise InputError(f"{', '.join(functions)}: a function returns one value, and there are several rewards; name one.")
    repeated = next((name for name in functions if name in result.estimators), None)
    if repeated is not None:
        raise InputError(f"two estimators are called {repeated!r}; name one of them as NAME=module:function.")
    estimates = dict(result.estimates)
    for policy, evaluated in policies.items():
        logged = result[policy, result.logged_estimator]
        for name, function in functions.items():
            value = _value(name, function, log, evaluated.on(log))
            estimates[policy, name] = _estimate(name, value, logged)
    alone = result.headline_estimator == result.logged_estimator
    return replace(
        result,
        estimates=estimates,
        estimators=(*result.estimators, *functions),
        headline_estimator=next(iter(functions)) if alone else result.headline_estimator,
        settings={**result.settings, "estimators": [*result.settings["estimators"], *functions]},
    )


def _value(name: str, function: Function, log: Log, policy: Policy) -> float:
    try:
        with redirect_stdout(sys.stderr):  # its output must not mix with the answer
            value = function(log, policy)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{name}: the function raised {type(error).__name__}: {error}") from error
    if isinstance(value, (bool, str, bytes, type(None))) or np.ndim(value) or not math.isfinite(value):
        raise InputError(f"{name}: the function returned {str(value)[:40]!r}; it must return a finite number.")
    return float(value)


def _estimate(name: str, value: float, logged: Estimate) -> Estimate:
    """An estimate like the logged mean, with another value and no known error."""
    assert logged.evidence is not None  # the result was just evaluated
    slice_, reward, policy, _ = logged.evidence.key
    unknown = Functional(value, np.full_like(logged.evidence.functional.gradient, np.nan), Unresampled(value))
    return replace(
        logged,
        value=value,
        std_error=math.nan,
        interval=normal_interval(value, math.nan, logged.interval.level),
        evidence=replace(logged.evidence, functional=unknown, key=(slice_, reward, policy, name), bounds=None, fitted=False),
        estimator=name,
        diagnostics={},
        checks=(WITHOUT_ERROR,),
    )

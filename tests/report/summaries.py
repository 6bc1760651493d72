"""Summaries for the tests of the HTML report: a usual one, one with several of everything, and awkward ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

NAN, INF = math.nan, math.inf
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "it's \"quoted\" & 'so'",
    "\u202eright to left\u202c שלום עולם",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3f4",
    "x" * 10_000,
    "",
    "nan",
    "null",
    "</script><style>*{display:none}</style>",
    "{{7*7}}{% raw %}",
    "two\nlines\x00\x1b[31m\ud800",
)

NAIVE = {
    "verdict": "CAUTION",
    "code": "naive",
    "seen": "This is what the logging policy earned.",
    "why": "It contains no information about the new policy, however narrow its interval.",
    "do": "Compare the other estimates with it.",
}
CONCENTRATED = {
    "verdict": "CAUTION",
    "code": "concentration",
    "seen": "One bucket in 4,096 of the log carries 49% of the estimate's variance.",
    "why": "One or a few rounds with a huge weight or reward determine the answer, and another log may not have them.",
    "do": "Look at the largest rewards and weights; compare with ClippedIPS, or evaluate a bounded reward.",
}
TOO_FEW = {
    "verdict": "DO_NOT_TRUST",
    "code": "effective sample size",
    "seen": "The 50,000 rounds are worth 12 rounds of the new policy.",
    "why": "A few rounds determine the answer, and its standard error is itself unreliable.",
    "do": "Log more rounds, or evaluate a policy closer to the logging one.",
}


def interval(low: float, high: float, method: str = "normal") -> dict[str, Any]:
    return {"low": low, "high": high, "level": 0.95, "method": method}


def around(value: float, error: float) -> dict[str, Any]:
    return interval(value - 1.96 * error, value + 1.96 * error)


def estimate(
    estimator: str, value: float, error: float, reasons: Sequence[dict[str, Any]] = (), policy: str = "new", **seen: Any
) -> dict[str, Any]:
    verdicts = ["OK", "CAUTION", "DO_NOT_TRUST"]
    worst = max((r["verdict"] for r in reasons), key=verdicts.index, default="OK")
    return {
        "policy": policy, "estimator": estimator, "reward": "click", "value": value, "std_error": error,
        "error_covers": "sampling", "interval": around(value, error), "n": 50_000, "diagnostics": seen, "verdict": worst,
        "reasons": list(reasons),
    }  # fmt: skip


def candidate(name: str, value: float, weight: float, bias: float = 0.0, known: bool = True) -> dict[str, Any]:
    return {
        "name": name, "value": value, "std_error": 0.011, "weight": weight, "nearly_unbiased": bias == 0,
        "estimated_bias": bias, "difference": value - 0.37, "difference_error": 0.006, "error_known": known,
    }  # fmt: skip


BLEND = {
    "candidates": [
        candidate("SNDR", 0.37, 0.79), candidate("ScaledDR (clip 30)", 0.357, 0.2, -0.005),
        candidate("LearnedMDR", 0.296, 0.01, -0.06), candidate("DM (penalty 1)", 0.27, 0.0, -0.085, known=False),
    ],
    "anchor": "SNDR",
    "left_out": {"MIPS": "the log has no features of actions."},
    "rule": "The blend moves towards each candidate in turn, as far as that lowers its estimated mean squared error.",
    "errors_of_nearly_unbiased_multiplied_by": 1.0,
}  # fmt: skip


def estimates(policy: str = "new", value: float = 0.367) -> list[dict[str, Any]]:
    return [
        estimate("Auto", value, 0.011, policy=policy, effective_sample_size=1235.3, **BLEND),
        estimate("LoggedMean", 0.0905, 0.0013, [NAIVE], policy),
        estimate("SNIPS", value + 0.008, 0.017, [CONCENTRATED], policy, effective_sample_size=1235.3),
        estimate("DR", value + 0.003, 0.0125, policy=policy, effective_sample_size=1235.3),
        estimate("IPS", value + 0.4, 0.9, [TOO_FEW, CONCENTRATED], policy, effective_sample_size=12.0),
        estimate(
            "LearnedMIPS", value + 0.01, 0.027, [CONCENTRATED], policy, effective_sample_size=1259.0, fit_not_covered=True
        ),
    ]


def lift(policy: str, value: float, error: float, relative: float | None = 3.06) -> dict[str, Any]:
    ends = None if relative is None else around(relative, abs(relative) * error / max(abs(value), 1e-9))
    told = {"policy": policy, "value": value, "std_error": error, "interval": around(value, error)}
    return {**told, "relative": relative, "relative_interval": ends}


def overlap(policy: str = "new", kind: str = "action") -> dict[str, Any]:
    edges = [2 ** (k / 2) for k in range(-26, 21)]
    middle = np.log([math.sqrt(a * b) for a, b in pairwise(edges)])
    counts = 47_000 * np.exp(-((middle + 1.8) ** 2) / 8)
    return {
        "policy": policy, "kind": kind, "estimators": ["Auto", "SNIPS", "DR"] if kind == "action" else ["LearnedMIPS"],
        "rounds": 50_000, "edges": edges, "counts": [float(round(c / counts.sum() * 47_000)) for c in counts], "zero": 3_000.0,
        "mean": 1.004, "effective_sample_size": 1235.3, "largest": 973.1, "largest_share": 0.019, "top_1_percent_share": 0.311,
        "pareto_k": 0.58 if kind == "action" else None, "pareto_k_undefined": None if kind == "action" else "By embedding.",
        "target_mass_never_logged": 0.0004, "target_mass_without_support": 0.0 if kind == "action" else None,
    }  # fmt: skip


def calibration(model: str = "Ridge(penalty='auto')", r2: float | None = 0.041) -> dict[str, Any]:
    predicted = np.linspace(0.01, 0.31, 12)
    bins = [
        {"predicted": float(p), "observed": float(p + 0.012 * math.sin(9 * p)), "std_error": 0.004 + p / 40, "rounds": 4_167}
        for p in predicted
    ]
    return {"model": model, "estimators": ["DR", "Auto"], "r2": r2, "bins": bins}


def embedding(actions: int = 50, name: Callable[[int], str] = lambda k: f"item {k}") -> dict[str, Any]:
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(2, actions)) * [[2.0], [1.0]]
    counts = np.round(8_000 * rng.random(actions) ** 4)
    rewards = 0.3 / (1 + np.exp(-x)) + 0.02 * rng.normal(size=actions)
    points = [
        {"action": name(k), "count": float(counts[k]), "reward": float(rewards[k]) if k % 17 else None, "x": float(x[k]),
         "y": float(y[k]), "nearest": [name((k + j) % actions) for j in range(1, min(6, actions))]}
        for k in range(actions)
    ]  # fmt: skip
    return {
        "estimator": "LearnedMIPS", "actions": actions, "logged": int((counts > 0).sum()), "dimensions": 6,
        "explained": 0.83, "chosen": f"all {actions:,}", "points": points,
    }  # fmt: skip


def usual(actions: int = 50, name: Callable[[int], str] = lambda k: f"item {k}") -> dict[str, Any]:
    """One policy, one reward, every section filled."""
    return {
        "schema": 1, "reward": "click", "rounds": 50_000, "actions": actions, "level": 0.95, "policies": ["new"],
        "headline": {"policy": "new", "estimator": "Auto"}, "verdict": "OK", "estimates": estimates(),
        "skipped": {"MIPS": "the log has no features of actions.", "MDR": "the log has no features of actions."},
        "logged": {"value": 0.0905, "std_error": 0.0013, "interval": around(0.0905, 0.0013)},
        "lifts": [lift("new", 0.2765, 0.0108)], "differences": [], "overlap": [overlap(), overlap(kind="embedding")],
        "calibration": [calibration(), calibration("Ridge(penalty=1.0)", None)], "embedding": embedding(actions, name),
        "truth": {"new": 0.371},
        "input": {"fingerprint": "0f1e2d3c4b5a6978", "rounds": 50_000, "actions": actions, "source": "logs/*.parquet",
                  "columns": {"context": ["x0", "x1"], "features": [], "reward": ["click"], "propensity": True, "cluster": False, "by": None}},
        "settings": {"level": 0.95, "cross_fit": 5, "engine": "local", "estimators": ["Auto()", "SNIPS()"], "seed": 0,
                     "clustered": False, "slice": None},
        "versions": {"offpolicy": "0.1.0", "python": "3.11.7", "numpy": "2.4.6"},
    }  # fmt: skip


def part(rounds: int, value: float, reward: str = "click") -> dict[str, Any]:
    """A slice, or another reward: no evidence of its own."""
    whole = usual()
    some = {
        key: whole[key] for key in ("schema", "level", "policies", "headline", "verdict", "skipped", "settings", "logged")
    }
    return {**some, "reward": reward, "rounds": rounds, "actions": 50, "estimates": estimates(value=value),
            "lifts": [lift("new", value - 0.0905, 0.02)], "differences": [], "overlap": [], "calibration": [], "embedding": None,
            "input": whole["input"], "versions": whole["versions"]}  # fmt: skip


def several() -> dict[str, Any]:
    """Three policies, other rewards and slices; one policy like the old one, one not to be trusted."""
    whole = usual()
    bad = estimates("bold", 0.62)
    bad[0] = estimate("Auto", 0.62, 0.21, [CONCENTRATED, TOO_FEW], "bold", effective_sample_size=12.0)
    pairs = [("new", "old", 0.2765, 0.01), ("new", "bold", -0.25, 0.21), ("old", "bold", -0.53, 0.21)]
    return {
        **whole, "policies": ["new", "old", "bold"], "verdict": "DO_NOT_TRUST", "truth": None,
        "estimates": [*estimates(), *estimates("old", 0.0911), *bad],
        "lifts": [lift("new", 0.2765, 0.0108), lift("old", 0.0006, 0.0011, 0.0066), lift("bold", 0.53, 0.21, 5.86)],
        "differences": [{"a": a, "b": b, "estimator": "Auto", "value": v, "std_error": s, "interval": around(v, s)}
                        for a, b, v, s in pairs],
        "overlap": [overlap("new"), overlap("old"), overlap("bold")],
        "other_rewards": {"purchase": part(50_000, 0.02, "purchase"), "minutes": part(50_000, 12.0, "minutes")},
        "slices": {name: part(9_000 - 700 * k, 0.3 + 0.03 * k) for k, name in enumerate(["de", "fr", "gb", "us", "jp"])},
    }  # fmt: skip


def hostile() -> dict[str, Any]:
    """Every name that comes from data is one of the hostile ones."""
    names = HOSTILE
    whole = several()
    renamed = {"new": names[0], "old": names[3], "bold": names[5]}
    for e in whole["estimates"]:
        e["policy"] = renamed[e["policy"]]
    for k, e in enumerate(whole["estimates"]):
        e["estimator"] = {"Auto": names[1]}.get(e["estimator"], names[k % len(names)])
    for each in whole["lifts"] + whole["overlap"]:
        each["policy"] = renamed[each["policy"]]
    for each in whole["differences"]:
        each["a"], each["b"] = renamed[each["a"]], renamed[each["b"]]
    blend = whole["estimates"][0]["diagnostics"]
    blend["candidates"] = [candidate(name, 0.3, 0.1) for name in names]
    blend["anchor"], blend["left_out"] = names[5], dict.fromkeys(names, names[0])
    overlaps = [{**o, "estimators": list(names)} for o in whole["overlap"]]
    models = [{**calibration(name), "estimators": list(names)} for name in names[:6]]
    return {
        **whole, "reward": names[9], "policies": list(renamed.values()), "overlap": overlaps, "calibration": models,
        "headline": {"policy": names[0], "estimator": names[1]}, "truth": dict.fromkeys(renamed.values(), 0.37),
        "skipped": dict.fromkeys(names, "it lacks " + names[0]),
        "embedding": embedding(60, lambda k: names[k % len(names)]),
        "other_rewards": {name: part(10, 0.1, name) for name in names}, "slices": {name: part(10, 0.1, name) for name in names},
        "settings": {name: name for name in names}, "input": {"source": names[1], "columns": {"context": list(names)}},
        "versions": {names[0]: names[1]},
    }  # fmt: skip


def undefined(value: float) -> dict[str, Any]:
    """Every number that may be undefined is."""
    whole = several()

    def all_gone(tree: Any, key: str = "") -> Any:
        if isinstance(tree, dict):
            return {k: all_gone(v, k) for k, v in tree.items()}
        if isinstance(tree, list):
            return [all_gone(v, key) for v in tree]
        return value if isinstance(tree, float) and key not in ("level", "edges") else tree

    return all_gone(whole)

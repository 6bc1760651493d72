"""`offpolicy backtest`: past tests that a TOML file describes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from offpolicy.cli import settings
from offpolicy.core.errors import InputError
from offpolicy.core.files import whole_file
from offpolicy.engines.local import Local
from offpolicy.results.backtest import Backtest, Pair, backtest

OF_THE_RUN = ("estimator", "level", "cross_fit", "seed", "memory", "threads")
"""Settings of all tests together."""
OF_A_PAIR = {"name": str, "earned": float, "earned_logs": list, "std_error": float}
"""Settings of one test, besides those of its log and policy."""
OF_THE_OTHER_LOG = (
    "action", "reward", "cluster", "weight", "row_id", "actions", "n_actions", "delimiter", "quote", "encoding", "decimal"
)  # fmt: skip
"""Settings that the log of policy B shares with that of A; its context and its propensities are not needed."""


def run(file: Path, known: Mapping[str, type], imports: Sequence[str], progress: bool | None) -> Backtest:
    """Read the file and run its tests."""
    read = settings.read_toml(file)
    pairs = read.pop("pair", [])
    if not isinstance(pairs, list) or not pairs or not all(isinstance(pair, dict) for pair in pairs):
        raise InputError(f"{file} has no pairs: describe each past test in a table [[pair]].")
    of_the_run = {key: read.pop(key) for key in list(read) if key.replace("-", "_") in OF_THE_RUN}
    chosen = settings.combined(
        of_the_run,
        {},
        settings.Accepted({name: known[name] for name in OF_THE_RUN}, ()),
        settings.Origin(str(file), imports),
    )
    of_a_pair = {name: kind for name, kind in known.items() if name in ("logs", "target", *settings.OF_FILES)} | OF_A_PAIR
    made = [
        _pair({**read, **pair}, of_a_pair, settings.Origin(f"{file}, pair {k}", imports)) for k, pair in enumerate(pairs, 1)
    ]
    estimators, functions = settings.estimators_of(chosen)
    if functions:
        raise InputError(f"{file}: {next(iter(functions))} is a function, which has no interval to check; leave it out.")
    options = {name: chosen[name] for name in ("level", "cross_fit", "seed", "memory") if chosen.get(name) is not None}
    return backtest(made, estimators or None, engine=Local(threads=chosen.get("threads")), progress=progress, **options)


def _pair(read: Mapping[str, Any], known: Mapping[str, type], origin: settings.Origin) -> Pair:
    """One past test."""
    given = settings.combined(read, {}, settings.Accepted(known), origin)
    policies = settings.named_policies(given)
    if len(policies) > 1:
        raise InputError(f"{origin.name}: target names {len(policies)} policies; give the one that was tested.")
    if ("earned" in given) == ("earned_logs" in given):
        raise InputError(
            f"{origin.name}: give what the policy earned: either earned and std_error, or earned_logs, its log."
        )
    earned = given["earned"] if "earned" in given else _other_log(given)
    return Pair(
        settings.open_log(given, list(given["logs"])), next(iter(policies.values())), earned, given.get("std_error"),
        given.get("name"),
    )  # fmt: skip


def _other_log(given: Mapping[str, Any]) -> Any:
    """The log of policy B."""
    shared = {"context": []} | {name: given[name] for name in OF_THE_OTHER_LOG if name in given}
    return settings.open_log(shared, list(given["earned_logs"]))


def draw(result: Backtest, path: Path) -> None:
    """The backtest as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 1.5 + min(0.3 * len(result.outcomes), 15)), layout="constrained")
    result.plot(figure.subplots())
    with whole_file(path) as draft:
        figure.savefig(draft, format=path.suffix[1:].lower(), bbox_inches="tight")
    print(f"Written: {path}", file=sys.stderr)

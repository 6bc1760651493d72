"""Running an experiment: a task is a world at a point with its logs, and runs in a worker process."""

from __future__ import annotations

import math
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from offpolicy.core.errors import InputError
from offpolicy.core.progress import PassProgress
from offpolicy.core.threads import cores
from offpolicy.data.log import Log
from offpolicy.engines.local import Local
from offpolicy.estimators import Estimator
from offpolicy.experiments.entries import Entry
from offpolicy.experiments.experiment import Experiment
from offpolicy.experiments.runs import Results
from offpolicy.experiments.store import Store
from offpolicy.experiments.workers import finished
from offpolicy.policies.base import Policy
from offpolicy.results.estimate import Estimate
from offpolicy.results.evaluate import evaluate
from offpolicy.worlds import World
from offpolicy.worlds.registry import world

Task = tuple[int, int, int]
"""A point, a world and the first log of the task."""

Run = tuple[int, int, int]
"""A point, a world and a log."""

SEEDS = 1_000_003
"""Separates the worlds of experiments with different seeds."""

LARGEST_SQUARED = 1e150

BLOCK = 10
"""Logs per task if there is one world; otherwise all logs of a world are one task."""


def run(experiment: Experiment, store: Store, processes: int | None = None, progress: bool | None = None) -> Results:
    """Run what is missing, and return all results."""
    with store.alone():
        _finish(experiment, store, processes or cores(), progress)
        return Results.of(experiment, store.read())


def _finish(experiment: Experiment, store: Store, processes: int, progress: bool | None) -> None:
    done, every = _done(store.read()), tasks(experiment)
    todo = [task for task in every if not done.issuperset(_runs(experiment, task))]
    with PassProgress(experiment.name, len(every), progress, done=len(every) - len(todo)) as progressed:
        for task, rows in finished(partial(run_task, experiment), todo, processes, partial(_named, experiment)):
            store.write(task, rows)
            progressed(1)
            store.merge()
    store.merge(1)


def tasks(experiment: Experiment) -> list[Task]:
    """World by world, so that every point has some results early and the remaining time can be estimated."""
    points, starts = range(len(experiment.points)), range(0, experiment.logs, _block(experiment))
    return [(point, w, log) for w in range(experiment.worlds) for point in points for log in starts]


def _named(experiment: Experiment, task: Task) -> str:
    """A task in words."""
    runs = _runs(experiment, task)
    where = f"point {experiment.points[task[0]].label!r}, world {task[1]}"
    return f"{where}, log{'s' if len(runs) > 1 else ''} {'–'.join(str(log) for log in sorted({runs[0][2], runs[-1][2]}))}"


def _block(experiment: Experiment) -> int:
    return BLOCK if experiment.worlds == 1 else experiment.logs


def _runs(experiment: Experiment, task: Task) -> list[Run]:
    """The runs of a task."""
    p, w, first = task
    return [(p, w, log) for log in range(first, min(first + _block(experiment), experiment.logs))]


def _done(table: pa.Table) -> set[Run]:
    return set(zip(*(table[name].to_pylist() for name in ("point", "world", "log")), strict=True))


def run_task(experiment: Experiment, task: Task) -> list[dict[str, Any]]:
    """Some logs of one world at one point: a row for each log and estimator."""
    p, w, _ = task
    point = experiment.points[p]
    entries = [each for each in experiment.entries if each.worlds is None or w < each.worlds]
    with threadpool_limits(1):
        there, truth, error = _with_truth(point.kind, tuple(point.settings.items()), SEEDS * experiment.seed + w)
        rows = []
        for _, _, log in _runs(experiment, task):
            # every run has its own seed, so that no two share a stream
            seed = np.random.SeedSequence(experiment.seed, spawn_key=(p, w, log))
            source = there.of_log(seed)
            np.random.seed(seed.generate_state(1)[0])  # noqa: NPY002  (which a user's own estimator may use)
            values = estimates(entries, source, partial(source.sample, point.rounds, seed), experiment.keep)
            rows += [
                {"point": p, "world": w, "log": log, "estimator": label, "truth": truth, "truth_error": error,
                 "failure": None, **outcome}
                for label, outcome in values.items()
            ]  # fmt: skip
        return rows


@lru_cache(maxsize=1)
def _with_truth(kind: str, settings: tuple[tuple[str, Any], ...], seed: int) -> tuple[World, float, float]:
    """A world and the value of its target with its error; cached, since the next task often uses the same world."""
    there = world(kind, dict(settings), seed)
    return there, *there.value_with_error(there.target)


Estimated = dict[str, Any]
"""A `value`, or the reason of the `failure`; and what else is stored."""

Keep = Callable[[Estimate], dict[str, Any]] | None
"""What a run stores of an estimate besides its value; None: nothing, so that no errors need to be computed."""


def estimates(entries: Sequence[Entry], source: World, sample: Callable[[], Log], keep: Keep) -> dict[str, Estimated]:
    """The value of each estimator, or why there is none. Built-in ones are evaluated together, since they share fits.

    A user's own gets its own copy of the log, so that it cannot change the arrays of the others.
    """
    log, target = sample(), source.target
    outcomes: dict[str, Estimated] = {}
    together: list[Estimator] = []
    for each in entries:
        try:
            built = each.build(source)
        except Exception as error:
            outcomes[each.label] = _failed(_words(error))
            continue
        if isinstance(built, Estimator) and not each.foreign:
            together.append(built)
        else:
            outcomes[each.label] = _alone(built, sample(), target, keep)
    try:
        outcomes |= _values(together, log, target, keep)
    except Exception:
        outcomes |= {built.name: _alone(built, log, target, keep) for built in together}
    return outcomes


def _alone(built: Any, log: Log, target: Policy, keep: Keep) -> Estimated:
    """One estimator on its own, with any exception as a failure."""
    try:
        with redirect_stdout(sys.stderr):  # its output must not mix with the answer
            if isinstance(built, Estimator):
                return _values([built], log, target, keep)[built.name]
            return _checked(built(log, target))
    except (Exception, SystemExit) as error:
        return _failed(_words(error))


def _checked(value: Any) -> Estimated:
    if isinstance(value, (bool, str, bytes, type(None))):
        return _failed(f"returned {str(value)[:40]!r}, of type {type(value).__name__}, instead of a number")
    number = float(value)
    if not math.isfinite(number):
        return _failed("returned NaN" if math.isnan(number) else "returned an infinite number")
    return {"value": number} if abs(number) < LARGEST_SQUARED else _failed(f"{number:.0e} is too large to be squared")


def _failed(why: str) -> Estimated:
    return {"value": None, "failure": why}


def _values(estimators: Sequence[Estimator], log: Log, target: Policy, keep: Keep) -> dict[str, Estimated]:
    if not estimators:
        return {}
    outcomes = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = evaluate(log, target, list(estimators), engine=Local(1), progress=False, errors=keep is not None)
        for each in estimators:
            estimate = result["target", each.name]
            outcomes[each.name] = _checked(estimate.value) | ({} if keep is None else keep(estimate))
    return outcomes


def _words(error: BaseException) -> str:
    """The error, and the last line of code that led to it."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "" if isinstance(error, InputError) or not last else f" ({Path(last[0].filename).name}, line {last[0].lineno})"
    return f"{type(error).__name__}: {error}{where}"

"""Running an experiment: every task is one world at one point with all its logs, in processes of their own."""

from __future__ import annotations

import math
import multiprocessing
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from offpolicy.engines import Local
from offpolicy.errors import InputError
from offpolicy.estimators import Estimator
from offpolicy.experiments.entries import Entry
from offpolicy.experiments.results import Results
from offpolicy.experiments.spec import Experiment
from offpolicy.experiments.store import Store
from offpolicy.job import evaluate
from offpolicy.log import Log
from offpolicy.policy import Policy
from offpolicy.progress import PassProgress
from offpolicy.threads import cores
from offpolicy.worlds import World
from offpolicy.worlds.named import world

Task = tuple[int, int]
"""A point and a world."""


def run(experiment: Experiment, store: Store, processes: int | None = None, progress: bool | None = None) -> Results:
    """Do what is not yet done, and give all results."""
    done = _done(store.read())
    todo = [task for task in tasks(experiment) if task not in done]
    with PassProgress(experiment.name, len(todo) + len(done), progress) as told:
        told(len(done))
        for task, rows in _each(experiment, todo, processes or cores()):
            store.write(task, rows)
            told(1)
            store.merge()
    store.merge(1)
    return Results.of(experiment, store.read())


def tasks(experiment: Experiment) -> list[Task]:
    """World by world, so that every point has some results early and the time that is left can be told."""
    return [(point, w) for w in range(experiment.worlds) for point in range(len(experiment.points))]


def _done(table: pa.Table) -> set[Task]:
    return set(zip(table["point"].to_pylist(), table["world"].to_pylist(), strict=True))


def _each(experiment: Experiment, todo: Sequence[Task], processes: int) -> Iterator[tuple[Task, list[dict[str, Any]]]]:
    """Tasks as they are finished. One process: here, without a pool."""
    if processes == 1 or len(todo) < 2:
        yield from ((task, run_task(experiment, task)) for task in todo)
        return
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    with ProcessPoolExecutor(min(processes, len(todo)), mp_context=spawn) as pool:
        waiting = iter(todo)
        running: dict[Future[list[dict[str, Any]]], Task] = {}
        try:
            while True:
                while len(running) < 2 * processes and (task := next(waiting, None)) is not None:
                    running[pool.submit(run_task, experiment, task)] = task
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool:
            raise InputError(
                "a worker process died (killed, or out of memory). What was finished is kept: run the same command again to go "
                "on, perhaps with fewer --processes."
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def run_task(experiment: Experiment, task: Task) -> list[dict[str, Any]]:
    """All logs of one world at one point: a row for each log and estimator."""
    p, w = task
    point = experiment.points[p]
    entries = [each for each in experiment.entries if each.worlds is None or w < each.worlds]
    with threadpool_limits(1):
        there = world(point.kind, point.settings, seed=experiment.seed + w)
        truth, error = there.value_with_error(there.target)
        rows = []
        for log in range(experiment.logs):
            # a seed of its own for every run: no two share a stream
            seed = np.random.SeedSequence(experiment.seed, spawn_key=(p, w, log))
            source = there.of_log(seed)
            values = estimates(entries, source, source.sample(point.rounds, seed))
            rows += [
                {"point": p, "world": w, "log": log, "estimator": label, "value": value, "truth": truth,
                 "truth_error": error, "failure": failure}
                for label, (value, failure) in values.items()
            ]  # fmt: skip
        return rows


def estimates(entries: Sequence[Entry], source: World, log: Log) -> dict[str, tuple[float | None, str | None]]:
    """The value of each estimator, or why there is none. Ours are evaluated together, for they share fits."""
    target = source.target
    found: dict[str, tuple[float | None, str | None]] = {}
    together: list[Estimator] = []
    for each in entries:
        try:
            built = each.build(source)
        except Exception as error:
            found[each.label] = None, _words(error)
            continue
        if isinstance(built, Estimator) and not each.foreign:
            together.append(built)
        else:
            found[each.label] = _alone(built, log, target)
    try:
        ours = _values(together, log, target)
        found |= {name: (value, None) if math.isfinite(value) else (None, "not a number") for name, value in ours.items()}
    except Exception:
        found |= {built.name: _alone(built, log, target) for built in together}
    return found


def _alone(built: Any, log: Log, target: Policy) -> tuple[float | None, str | None]:
    """One estimator, whatever it does."""
    try:
        if isinstance(built, Estimator):
            value = _values([built], log, target)[built.name]
        else:
            value = float(built(log, target))
    except Exception as error:
        return None, _words(error)
    return (value, None) if math.isfinite(value) else (None, "not a number")


def _values(estimators: Sequence[Estimator], log: Log, target: Policy) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = evaluate(log, target, list(estimators), engine=Local(1), progress=False) if estimators else None
    return {each.name: result["target", each.name].value for each in estimators} if result else {}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"

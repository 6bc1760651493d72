"""`WatchSums`: the sums of logs that arrive one after the other, and the evaluation that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offpolicy.core import storage
from offpolicy.core.arrays import UInt64Array
from offpolicy.core.errors import InputError
from offpolicy.core.memory import Budget
from offpolicy.core.threads import one_blas_thread
from offpolicy.data.batch import Batch
from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.log import Log
from offpolicy.data.relabelling import Accumulated, label_hashes, relabelled
from offpolicy.data.schema import Schema
from offpolicy.data.spaces import ActionSpace, Discrete
from offpolicy.engines.base import Engine
from offpolicy.engines.choice import engine_for
from offpolicy.estimators import Estimator
from offpolicy.policies.base import Policy
from offpolicy.results.assembly import Assembly
from offpolicy.results.evaluation import Evaluation, packed_evidence
from offpolicy.results.evidence import Redraws
from offpolicy.results.job import Job, Request, SequenceRequest
from offpolicy.results.loading import evaluation_of
from offpolicy.results.storage import plain
from offpolicy.scoring.fit_pass import FitResults
from offpolicy.scoring.requirements import EstimatorList
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.scoring.scorer import Scorer
from offpolicy.statistics.base import State
from offpolicy.statistics.fingerprint import Fingerprint

PRINT = "request 0"
STATE = "state/"
SAVED_SCHEMA = ("context", "rewards", "propensity", "clustered", "features")


@dataclass(frozen=True)
class LabelledFingerprint:
    """A fingerprint of the rounds that does not depend on the codes of their actions, but on the labels."""

    labels: UInt64Array | None
    clustered: bool
    columns: ClassVar[tuple[str, ...]] = ()

    def zero(self) -> State:
        return Fingerprint(self.clustered).zero()

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:  # noqa: ARG002
        named = batch if self.labels is None else replace(batch, action=self.labels[batch.action])
        return Fingerprint(self.clustered).fold(state, named)

    def merge(self, a: State, b: State) -> State:
        return {"sum": a["sum"] + b["sum"]}


@dataclass(frozen=True)
class WatchSettings:
    """What stays the same from log to log."""

    estimators: Sequence[Estimator]
    level: float
    sequences: SequenceRequest
    seed: int

    @property
    def origin(self) -> float:
        """What is subtracted from rewards before summing: 0, or the end of their range that is nearest to it.

        It does not depend on a log, so that the sums of any two monitors can be added.
        """
        scale = self.sequences.scale
        return min(max(0.0, scale.low), scale.high)


@dataclass(frozen=True)
class Prepared:
    """An evaluation of one log, ready to be summed."""

    job: Job
    fitted: FitResults
    scorer: Scorer

    @classmethod
    def of(cls, log: Log, policies: Mapping[str, Policy], settings: WatchSettings, engine: Engine | None) -> Prepared:
        """With every choice made that does not depend on the rounds."""
        called = (*policies.values(), log.logging)
        engine = engine_for(log, engine, one_thread=any(isinstance(p, Policy) and p.whole_batches for p in called))
        prints = LabelledFingerprint(label_hashes(log.space), log.schema.clustered)
        request = Request(
            log, policies, engine, Budget.of(None), settings.level, None, settings.seed, False, True,
            sequences=settings.sequences, statistics=(prints,),
        )  # fmt: skip
        job = Job.within_budget(request, EstimatorList.of(list(settings.estimators)), _no_trial)
        _check_nothing_is_fitted(job)
        fitted, scorer = job.fitted()
        return cls(job, fitted, replace(scorer, origin=np.full_like(scorer.origin, settings.origin)))

    def zero(self) -> State:
        return self.job.score_pass(self.scorer).zero()

    def merged(self, a: State, b: State) -> State:
        return self.job.score_pass(self.scorer).merge(a, b)

    def summed(self) -> State:
        """One pass over the log."""
        return self.job.score(self.fitted, self.scorer).state

    def evaluation(self, state: State, rounds: int, logs: int) -> Evaluation:
        """The result of these sums."""
        log = self.job.log
        described = log.source.described if logs == 1 else f"{logs:,} logs"
        known = Accumulated(log.schema, log.source.roles, described, rounds)
        total = Log.from_source(known, logging=log.logging, reward_range=log.reward_range)
        job = replace(self.job, request=replace(self.job.request, log=total))
        scores = job.scores(self.fitted, self.scorer, state)
        with one_blas_thread():
            return Assembly(job, scores, Redraws(_no_redraw)).evaluation().detach()

    def fingerprint(self, state: State) -> str:
        """Of the rounds of the log."""
        total = int(state["diagnostics"][PRINT]["sum"][0])
        return storage.digest(repr((len(self.job.log), total, self.job.log.schema.rewards)).encode())[:32]


@dataclass(frozen=True)
class WatchSums:
    """The sums of all logs so far, and their result. `prepared` is unknown after loading."""

    state: State
    schema: Schema
    roles: Mapping[str, str]
    result: Evaluation
    prepared: Prepared | None = None

    @classmethod
    def of(cls, ready: Prepared, state: State, rounds: int, logs: int) -> WatchSums:
        log = ready.job.log
        result = ready.evaluation(state, rounds, logs)
        return cls(state, log.schema, log.source.roles, result, ready)

    def check(self, log: Log) -> None:
        """Raise if a log does not go with those before it."""
        for name, now, before in (
            ("context", log.schema.context, self.schema.context),
            ("rewards", log.schema.rewards, self.schema.rewards),
            ("clusters", log.schema.clustered, self.schema.clustered),
            ("propensities", log.schema.propensity, self.schema.propensity),
        ):
            if now != before:
                raise InputError(f"{name}: this log has {now!r}, and the logs before it had {before!r}.")

    def saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arrays and the plain values of a file."""
        space = self.schema.space
        if not isinstance(space, Discrete):
            raise InputError("a monitor is saved for discrete actions only; keep it in memory.")
        schema = {name: getattr(self.schema, name) for name in SAVED_SCHEMA} | {
            "n_actions": space.n_actions,
            "labels": None if space.labels is None else space.labels.to_pylist(),
            "label_type": None if space.labels is None else str(space.labels.type),
        }
        arrays = {f"{STATE}{name}": array for name, array in flat(self.state).items()}
        evidence = packed_evidence(self.result)
        return arrays, {
            "schema": schema, "roles": dict(self.roles), "result": plain(self.result.to_dict()), "evidence": evidence
        }  # fmt: skip

    @classmethod
    def read(cls, arrays: Mapping[str, Any], content: Any) -> WatchSums:
        """The inverse of `saved`; its state still lacks its form."""
        saved = content["schema"]
        known = saved["labels"] is None
        space = Discrete(saved["n_actions"] if known else pa.array(saved["labels"], pa.type_for_alias(saved["label_type"])))
        schema = Schema(
            space, tuple(saved["context"]), tuple(saved["rewards"]), propensity=bool(saved["propensity"]),
            clustered=bool(saved["clustered"]), features=tuple(saved["features"]),
        )  # fmt: skip
        own = {name.removeprefix(STATE): array for name, array in arrays.items() if name.startswith(STATE)}
        return cls(own, schema, content["roles"], evaluation_of(content["result"], content["evidence"]))

    def like(self, zero: State) -> WatchSums:
        """With its state in the form of another."""
        return replace(self, state=nested(self.state, zero))


def remembered(
    schema: Schema,
    roles: Mapping[str, str],
    policies: Mapping[str, Policy],
    settings: WatchSettings,
) -> Prepared:
    """What logs of this schema are summed with, without a log."""
    scale = settings.sequences.scale
    log = Log.from_source(Accumulated(schema, roles, "logs", 2), reward_range=(scale.low, scale.high))
    return Prepared.of(log, policies, settings, None)


def duplicate(state: State) -> State:
    """A copy, since merging changes a state."""
    return nested({name: array.copy() for name, array in flat(state).items()}, state)


def prepared(
    log: Log, space: ActionSpace, policies: Mapping[str, Policy], settings: WatchSettings, engine: Engine | None
) -> Prepared:
    """A log whose actions are encoded by this space."""
    _check_log(log)
    same = relabelled(log, space)
    return Prepared.of(same, {name: policy.on(same) for name, policy in policies.items()}, settings, engine)


def grown(state: State, zero: State, larger: State) -> State:
    """A state for more actions: every array that is longer then has zeros for the new ones at its end."""
    out: State = {}
    for name, part in state.items():
        if isinstance(part, dict):
            out[name] = grown(part, zero[name], larger[name])
        elif np.shape(zero[name]) == np.shape(larger[name]):
            out[name] = part
        else:
            room: npt.NDArray[Any] = np.array(larger[name])
            room[tuple(map(slice, np.shape(part)))] = part
            out[name] = room
    return out


def flat(state: State, prefix: str = "") -> dict[str, Any]:
    """The arrays of a state by their paths."""
    arrays: dict[str, Any] = {}
    for name, part in state.items():
        path = f"{prefix}{name}"
        arrays |= flat(part, f"{path}/") if isinstance(part, dict) else {path: np.asarray(part)}
    return arrays


def nested(arrays: Mapping[str, Any], zero: State, prefix: str = "") -> State:
    """The inverse of `flat`. Raises KeyError if an array is missing, and ValueError if one has another shape."""
    out = {}
    for name, part in zero.items():
        if isinstance(part, dict):
            out[name] = nested(arrays, part, f"{prefix}{name}/")
            continue
        array = arrays[f"{prefix}{name}"]
        if array.shape != np.shape(part):
            raise ValueError(f"{prefix}{name} has shape {array.shape} and should have {np.shape(part)}")
        out[name] = array
    return out


def _check_log(log: Log) -> None:
    for wrong, what, remedy in (
        (isinstance(log.logging, EstimatedLogging), "estimated propensities", "log the propensities, or give the policy"),
        (log.schema.weighted, "row weights", "leave out `weight`"),
        (log.schema.loggers is not None, "several loggers", "watch the rounds of each with a monitor of its own"),
        (log.schema.slices is not None, "slices", "leave out `by`, or monitor each slice with a monitor of its own"),
        (log.schema.catalog is not None, "a catalog", "leave out `catalog`; list the labels with `actions=` instead"),
    ):
        if wrong:
            raise InputError(f"a monitor does not support {what}; {remedy}.")


def _check_nothing_is_fitted(job: Job) -> None:
    """Raise if an estimator is fitted to a log: what was fitted to the first could not be used for the next."""
    for (p, e, _), families in job.members.items():
        for member in (member for family in families for member, _ in family):
            fits = member.rewards is not None and member.rewards.fitted
            if fits or member.weight.ratio.fitted or member.weight.ratio.rewards is not None or member.smoothing == "auto":
                name = job.estimators[e][p].name
                raise InputError(
                    f"{name}: a monitor sums logs as they come, so that nothing can be fitted to them, nor depend on their "
                    "number of rounds. Use IPS or SNIPS, or DR with a reward model that was fitted before "
                    '(op.DR(op.load_rewards(…))), or a fixed setting in place of "auto".'
                )


def _no_trial(_: Request, estimators: Sequence[Estimator]) -> Any:
    names = ", ".join(each.name for each in estimators)
    raise InputError(f"a monitor cannot try estimators on a log ({names}); give each setting as a number.")


def _no_redraw(draw: int) -> Any:
    raise InputError(f"a monitor does not keep its rounds, so that draw {draw} of a bootstrap cannot read them again.")

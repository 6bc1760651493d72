"""`evaluate`: estimate what a policy would have earned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.core.memory import Budget
from offpolicy.core.threads import one_blas_thread
from offpolicy.data.checks import is_number, whole
from offpolicy.data.log import Log
from offpolicy.data.loggers import Loggers
from offpolicy.diagnostics.base import Diagnostic
from offpolicy.engines.base import Engine
from offpolicy.engines.choice import engine_for
from offpolicy.engines.resampling import Resampled
from offpolicy.estimators import Estimator, LoggedMean
from offpolicy.models.loggers import combine_loggers
from offpolicy.models.propensities import estimate_logging
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.results.assembly import Assembly
from offpolicy.results.evaluation import Evaluation
from offpolicy.results.evidence import Key, Redraws
from offpolicy.results.job import THE_LOG, Job, Request, SequenceRequest
from offpolicy.scoring.requirements import Column, EstimatorList
from offpolicy.scoring.score_histograms import RewardRange

# The values of the given estimators on a resampled log, by the number of the draw.
Redrawn = Callable[[int, Sequence[Column]], Mapping[Key, float]]


def evaluate(  # noqa: PLR0913
    log: Log,
    target: Any,
    estimators: Estimator | Sequence[Estimator] | None = None,
    *,
    level: float = 0.95,
    cross_fit: int | None = None,
    engine: Engine | None = None,
    memory: str | int | None = None,
    seed: int = 0,
    progress: bool | None = None,
    errors: bool = True,
    diagnostics: Diagnostic | Sequence[Diagnostic] = (),
    sequence: bool | str = False,
) -> Evaluation:
    """Estimate what a policy would have earned on the logged rounds.

    The log is read twice: once to fit the models, once to score every estimator for every policy.

    Parameters
    ----------
    log : Log
        The logged rounds, from `op.Log` or `op.read_log`.
    target : Policy, array-like, function, or dict of these by name
        The policy to evaluate, or several. A matrix holds probabilities (rounds × actions); a function takes the context.
    estimators : Estimator or sequence of Estimator, optional
        By default a set chosen for the log. A default estimator that lacks something on this log is skipped, with the reason
        in `result.skipped`; an estimator that you name raises an error instead.
    level : float, default 0.95
        The level of the confidence intervals.
    cross_fit : int, optional
        The number of folds for cross-fitting, for estimators that do not state their own.
    engine : Engine, optional
        `op.Local()`, `op.GPU()` or `op.Spark()`; by default the local one, or Spark for its DataFrames.
    memory : str or int, optional
        A memory budget such as "2GB"; by default a quarter of the machine's memory. A job that would exceed it raises an
        error before it reads a row.
    seed : int, default 0
        The seed of folds and resampling. Results depend on the seed, not on the number of threads or partitions.
    progress : bool, optional
        Whether to show progress; by default only in a terminal.
    errors : bool, default True
        With False, only values are computed, which is faster: no standard errors, intervals or checks.
    diagnostics : Diagnostic or sequence of Diagnostic, optional
        Your own checks, in addition to the built-in ones.
    sequence : bool or str, default False
        Whether to collect the sums for `confidence_sequence`, for which the log must state its `reward_range`. The name of a
        policy, or "log", also collects those for differences from it, whose bounds are then narrower.

    Returns
    -------
    Evaluation
        Print it, index it by estimator, or write a report with `write_html`.

    Raises
    ------
    InputError
        If something is missing or wrong; the message names the column, the rows and the remedy.

    Examples
    --------
    >>> import numpy as np
    >>> import offpolicy as op
    >>> rng = np.random.default_rng(0)
    >>> x, action = rng.normal(size=(2_000, 2)), rng.integers(3, size=2_000)
    >>> reward = (rng.random(2_000) < 0.1 + 0.2 * (action == 2)).astype(float)
    >>> log = op.Log(x, action, reward, propensity=np.full(2_000, 1 / 3))
    >>> result = op.evaluate(log, op.Fixed([0.1, 0.1, 0.8]), op.SNIPS())
    >>> result["SNIPS"]
    Estimate(SNIPS of target, reward: 0.244076 ± 0.014, OK)
    """
    if not isinstance(log, Log):
        raise InputError(f"log is a {type(log).__name__}; create a log first, with op.read_log(…) or op.Log(…).")
    if not is_number(level) or not 0 < level < 1:
        raise InputError(f"level is {level!r}; it must lie between 0 and 1.")
    if cross_fit is not None:
        cross_fit = whole("cross_fit", cross_fit, 2, besides=" (an estimator's own cross_fit=0 turns it off)")
    seed = whole("seed", seed, -(2**63))
    policies = {name: policy.on(log) for name, policy in policies_by_name(target).items()}
    loggers = log.logging.policies if isinstance(log.logging, Loggers) else (log.logging,)
    called = (*policies.values(), *loggers)
    engine = engine_for(log, engine, one_thread=any(isinstance(p, Policy) and p.whole_batches for p in called))
    log.check_row_ids()
    budget = Budget.of(memory)
    original, log = log, combine_loggers(estimate_logging(log, engine, seed, progress), policies, engine, progress)
    if log is not original:  # some depend on the logging policy
        policies = {name: policy.on(log) for name, policy in policies.items()}

    request = Request(
        log, policies, engine, budget, level, cross_fit, seed, progress, errors, _diagnostics(diagnostics),
        _sequences(sequence, log, policies),
    )  # fmt: skip

    def redrawn(draw: int, requested: Sequence[Column]) -> Mapping[Key, float]:
        """The same evaluation on a resampled log; estimated propensities are estimated again."""
        drawn, values = Resampled(engine, seed, draw), dict[Key, float]()
        for names, own in _alike(tuple(policies), requested):
            values |= evaluate(
                original, {name: policies[name] for name in names}, own, level=level, cross_fit=cross_fit, engine=drawn,
                memory=memory, seed=seed, progress=False, errors=False,
            ).values()  # fmt: skip
        return values

    with one_blas_thread():  # threads over partitions and refits already use all cores
        return _answer(request, EstimatorList.of(estimators, log.space), redrawn)


def _answer(request: Request, wanted: EstimatorList, redrawn: Redrawn) -> Evaluation:
    """One pass to fit and one to score, for the estimators that can be computed here."""

    def run(part: Request, some: Sequence[Estimator]) -> Evaluation:
        return _answer(part, EstimatorList.of(some), redrawn)

    def fit(some: Sequence[Estimator]) -> None:  # for the policies that it can be computed for
        Job.within_budget(request, replace(EstimatorList.of(some), named=False), run).fitted()

    job = Job.within_budget(request, wanted, run)
    request.log.check_actions()
    try:
        fitted, scorer = job.fitted()
    except Exception:
        if not wanted.can_spare:
            raise
        run(request, [LoggedMean()])  # a fault of the log itself is raised here
        job = Job.within_budget(request, wanted.without_failing(fit, job.fits.features), run)
        fitted, scorer = job.fitted()
    scores = job.score(fitted, scorer)
    redraws = Redraws(lambda draw: redrawn(draw, job.requested), request.progress)
    return Assembly(job, scores, redraws).evaluation()


def _alike(policies: Sequence[str], columns: Sequence[Column]) -> Iterator[tuple[list[str], list[Estimator]]]:
    """The policies that have the same estimators, and these."""
    rows = [[column[p] for column in columns if p in column] for p in range(len(policies))]
    groups: dict[tuple[int, ...], list[int]] = {}
    for p, row in enumerate(rows):
        groups.setdefault(tuple(map(id, row)), []).append(p)
    return (([policies[p] for p in group], rows[group[0]]) for group in groups.values())


def _sequences(sequence: bool | str, log: Log, policies: Mapping[str, Policy]) -> SequenceRequest | None:
    """What is requested for confidence sequences, checked."""
    if sequence is False or sequence is None:
        return None
    if sequence is not True and sequence not in (*policies, THE_LOG):
        raise unknown_name("policy for sequence=", str(sequence), (*policies, THE_LOG))
    if log.reward_range is None:
        raise InputError(
            "sequence: bounds that hold at every look need the range that rewards can have, not the range seen so far; "
            "state it as reward_range=(low, high) of the log (--reward-range)."
        )
    if log.schema.loggers is not None:
        raise InputError(
            "sequence: bounds that hold at every look are for one logging policy; read the rounds of each logger as a log "
            "of its own."
        )
    if log.schema.weighted:
        raise InputError("sequence: bounds that hold at every look do not support row weights; leave out `weight`.")
    return SequenceRequest(RewardRange(*log.reward_range), None if sequence is True else sequence)


def _diagnostics(diagnostics: Diagnostic | Sequence[Any]) -> tuple[Diagnostic, ...]:
    diagnostics = (diagnostics,) if isinstance(diagnostics, (Diagnostic, type)) else diagnostics
    for each in diagnostics:
        if not isinstance(each, Diagnostic):
            hint = f"; write {each.__name__}()" if isinstance(each, type) else ""
            raise InputError(f"diagnostics: {each!r} is not an op.Diagnostic{hint}.")
    return tuple(diagnostics)


def policies_by_name(target: Any) -> dict[str, Policy]:
    """The policies that a user passed, one or several."""
    if not isinstance(target, Mapping):
        return {"target": as_policy(target)}
    if not target or not all(isinstance(name, str) for name in target):
        raise InputError("target: pass a policy, or a dict of at least one policy by name.")
    return {name: as_policy(policy) for name, policy in target.items()}

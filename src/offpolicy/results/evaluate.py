"""`evaluate`: what a policy would have earned, by each estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.core.memory import Budget
from offpolicy.core.threads import one_blas_thread
from offpolicy.data.checks import is_number, whole
from offpolicy.data.log import Log
from offpolicy.diagnostics.base import Diagnostic
from offpolicy.engines.base import Engine
from offpolicy.engines.choice import engine_for
from offpolicy.engines.resampling import Resampled
from offpolicy.estimators import Estimator, LoggedMean
from offpolicy.models.propensities import estimate_logging
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.results.assembly import Assembly
from offpolicy.results.evaluation import Evaluation
from offpolicy.results.evidence import Key, Redraws
from offpolicy.results.job import Job, Request
from offpolicy.scoring.requirements import EstimatorList

Redrawn = Callable[[int, Sequence[Estimator]], Mapping[Key, float]]
"""The values of some estimators on a resampled log, by the number of the draw."""


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
) -> Evaluation:
    """What `target` would have earned, by each estimator.

    `target` is a policy, anything `as_policy` takes, or a dict of them by name. Estimators that lack what they need are an
    error when named and are skipped, with the reason in the result, when they came from the defaults. The log is read once
    to fit what must be fitted and once to score everything. `memory` ("2GB"; by default a quarter of the machine) bounds
    what is held: a job that cannot keep to it says so, with the sum, before it reads a row. `errors=False` gives the values
    alone, without errors, intervals and checks, and takes less time. `diagnostics` are checks of your own (op.Diagnostic),
    beside those that every evaluation makes.
    """
    if not isinstance(log, Log):
        raise InputError(f"log is a {type(log).__name__}; make a log of it first, with op.read_log(…) or op.Log(…).")
    if not is_number(level) or not 0 < level < 1:
        raise InputError(f"level is {level!r}; it must lie between 0 and 1.")
    if cross_fit is not None:
        cross_fit = whole("cross_fit", cross_fit, 2, besides=" (an estimator's own cross_fit=0 turns it off)")
    seed = whole("seed", seed, -(2**63))
    policies = {name: policy.on(log) for name, policy in _policies(target).items()}
    engine = engine_for(log, engine)
    budget = Budget.of(memory)
    as_given, log = log, estimate_logging(log, engine, seed, progress)

    request = Request(
        log, policies, engine, budget, level, cross_fit, seed, progress, errors, _diagnostics(diagnostics)
    )  # fmt: skip

    def redrawn(draw: int, asked: Sequence[Estimator]) -> Mapping[Key, float]:
        """The same evaluation of a resampled log; propensities that were estimated are estimated again."""
        drawn = Resampled(engine, seed, draw)
        return evaluate(
            as_given, policies, asked, level=level, cross_fit=cross_fit, engine=drawn, memory=memory, seed=seed,
            progress=False, errors=False,
        ).values()  # fmt: skip

    with one_blas_thread():  # many small products: threads over partitions and refits keep the cores busy
        return _answer(request, EstimatorList.of(estimators), redrawn)


def _answer(request: Request, wanted: EstimatorList, redrawn: Redrawn) -> Evaluation:
    """One pass to fit and one to score, for the estimators that can be computed here."""

    def run(some: Sequence[Estimator]) -> Evaluation:
        return _answer(request, EstimatorList.of(some), redrawn)

    def fit(some: Sequence[Estimator]) -> None:
        Job.within_budget(request, EstimatorList.of(some), run).fitted()

    job = Job.within_budget(request, wanted, run)
    try:
        fitted, scorer = job.fitted()
    except Exception:
        if not wanted.can_spare:
            raise
        run([LoggedMean()])  # what is wrong with the log itself is raised here
        job = Job.within_budget(request, wanted.without_failing(fit, job.fits.features), run)
        fitted, scorer = job.fitted()
    scores = job.score(fitted, scorer)
    redraws = Redraws(lambda draw: redrawn(draw, job.asked), request.progress)
    return Assembly(job, scores, redraws).evaluation()


def _diagnostics(given: Diagnostic | Sequence[Any]) -> tuple[Diagnostic, ...]:
    given = (given,) if isinstance(given, (Diagnostic, type)) else given
    for each in given:
        if not isinstance(each, Diagnostic):
            hint = f"; write {each.__name__}()" if isinstance(each, type) else ""
            raise InputError(f"diagnostics: {each!r} is not an op.Diagnostic{hint}.")
    return tuple(given)


def _policies(target: Any) -> dict[str, Policy]:
    if not isinstance(target, Mapping):
        return {"target": as_policy(target)}
    if not target or not all(isinstance(name, str) for name in target):
        raise InputError("target: give a policy, or a dict of policies with text as names (and at least one).")
    return {name: as_policy(policy) for name, policy in target.items()}

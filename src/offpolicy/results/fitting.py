"""`embed` and `fit_rewards`: what can be learned from a log alone, without a policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from offpolicy.core.describe import described
from offpolicy.core.errors import InputError
from offpolicy.core.memory import Budget
from offpolicy.core.threads import one_blas_thread
from offpolicy.data.features import Features, Inputs
from offpolicy.data.log import Log
from offpolicy.data.spaces import discrete
from offpolicy.engines.base import Engine
from offpolicy.engines.choice import engine_for
from offpolicy.estimators import Member
from offpolicy.models.embedding_table import EmbeddingTable, LabelledEmbedding
from offpolicy.models.posteriors.gaussian import Gaussian
from offpolicy.models.rewards.base import RewardModel, on_host
from offpolicy.models.rewards.fitted import FittedRewards
from offpolicy.models.rewards.ridge.model import Ridge
from offpolicy.models.rewards.scikit import as_reward_model
from offpolicy.ratios.embeddings import EmbeddingRatio
from offpolicy.ratios.weights import Weight
from offpolicy.scoring.fit_pass import FitPlan, fit_pass
from offpolicy.scoring.plan import FitKey, Plan, RatioKey
from offpolicy.statistics.base import Statistic


def embed(  # noqa: PLR0913
    log: Log,
    *,
    inputs: Inputs | None = None,
    rewards: Any = None,
    reward: int = 0,
    engine: Engine | None = None,
    memory: str | int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> EmbeddingTable:
    """Learn an embedding of every action from the rewards. Needs no policy and no propensities.

    Parameters
    ----------
    log : Log
        The logged rounds.
    inputs : str, optional
        What actions are described by: "identity", "features" or "both", as in `op.LearnedMIPS`.
    rewards : RewardModel, optional
        The reward model whose coefficients are the embedding; `op.Ridge()` by default.
    reward : int, default 0
        Which reward, if the log has several.
    engine : Engine, optional
        As for `op.evaluate`.
    memory : str or int, optional
        As for `op.evaluate`.
    seed : int, default 0
        As for `op.evaluate`.
    progress : bool, optional
        As for `op.evaluate`.

    Returns
    -------
    EmbeddingTable
        One row per action.

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Linear(n_actions=5, seed=0)
    >>> table = op.embed(world.sample(1_000, seed=0))
    >>> len(table)
    5
    """
    if reward not in range(len(log.schema.rewards)):
        raise InputError(f"reward is {reward!r}, but the log has {len(log.schema.rewards)}; they are counted from 0.")
    model = _model(rewards, log, "embed")
    ratio = EmbeddingRatio(Gaussian(1.0), model, Features.of(log.schema).resolve(inputs, "embed"), reward=reward)
    engine = engine_for(log, engine)
    plan = _fit_plan(log, ratio, "embed", seed).within(Budget.of(memory), engine)
    key, fitted = FitKey(model, None, ratio.inputs), model.on(log.schema)
    shape, fitting = plan.shape(key, progress), plan.fitting(RatioKey(ratio, None))
    needed: dict[Any, tuple[Statistic, ...]] = {key: fitted.statistics(shape), ratio: ratio.statistics(fitting)}
    with one_blas_thread():
        sums = fit_pass(log, engine, needed, progress)
        fits = ratio.fits(replace(fitting, fits=fitted.fits(shape, sums[key])), sums[ratio])
        return LabelledEmbedding(log.actions, fits.embedding.on_host(), True, described(model)).table()


def fit_rewards(  # noqa: PLR0913
    log: Log,
    rewards: Any = None,
    *,
    inputs: Inputs | None = None,
    engine: Engine | None = None,
    memory: str | int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> FittedRewards:
    """Fit a reward model on all rounds of a log, for every reward, to save it or to use it on other rounds.

    Parameters
    ----------
    log : Log
        The logged rounds.
    rewards : RewardModel, optional
        The reward model; `op.Ridge()` by default.
    inputs : str, optional
        What actions are described by: "identity", "features" or "both", as in `op.LearnedMIPS`.
    engine : Engine, optional
        As for `op.evaluate`.
    memory : str or int, optional
        As for `op.evaluate`.
    seed : int, default 0
        As for `op.evaluate`.
    progress : bool, optional
        As for `op.evaluate`.

    Returns
    -------
    FittedRewards
        Pass it to estimators as `rewards=` for a log of other rounds.

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Linear(n_actions=5, seed=0)
    >>> model = op.fit_rewards(world.sample(1_000, seed=0))
    >>> result = op.evaluate(world.sample(500, seed=1), world.target, op.DR(rewards=model))
    """
    model = _model(rewards, log, "fit_rewards")
    features = Features.of(log.schema)
    ratio = EmbeddingRatio(Gaussian(1.0), model, features.resolve(inputs, "fit_rewards"))
    engine = engine_for(log, engine)
    key, fitted = FitKey(model, None, ratio.inputs), model.on(log.schema)
    plan = _fit_plan(log, ratio, "fit_rewards", seed).within(Budget.of(memory), engine)
    shape = plan.shape(key, progress)
    with one_blas_thread():
        fits = fitted.fits(shape, fit_pass(log, engine, {key: fitted.statistics(shape)}, progress)[key])
        models = {name: on_host(fits.on_all(k)) for k, name in enumerate(log.schema.rewards)}
    return FittedRewards(described(model), models, log.actions, log.schema.context, shape.inputs, shape.features, len(log))


def _model(rewards: Any, log: Log, name: str) -> RewardModel:
    """The reward model, if it supports the actions of the log."""
    model = as_reward_model(Ridge() if rewards is None else rewards)
    if mismatch := model.mismatch(log.space):
        raise InputError(f"{name}: {type(model).__name__} predicts the rewards of {mismatch}.")
    discrete(log.space, name)
    return model


def _fit_plan(log: Log, ratio: EmbeddingRatio, name: str, seed: int) -> FitPlan:
    """The plan to fit one embedding, without a policy."""
    plan = Plan(1, len(log.schema.rewards))
    plan.add(Member(Weight(ratio)), 0, ratio.reward)
    return FitPlan(log, plan, Features.of(log.schema), seed, names={ratio: name})

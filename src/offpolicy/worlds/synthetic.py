"""`Synthetic` and `NonLinear`: actions whose reward depends on categories that are redrawn in each round.

The generator is that of Saito & Joachims (2022), which Cief et al. (2023) use as well; here every parameter is drawn once.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.models.posteriors.base import Posterior
from offpolicy.models.posteriors.categorical import Exact
from offpolicy.policies.base import Policy
from offpolicy.policies.blocks import blocks
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.scores import EpsilonGreedy, Softmax
from offpolicy.worlds.base import (
    Seed,
    Simulated,
    average,
    check_count,
    check_flag,
    check_number,
    choose,
    clicks,
    draw,
    generator,
    sigmoid,
)

MOST_ENUMERATED = 3


@dataclass(frozen=True)
class _Embedded(Simulated):
    """x ~ N(0, I); a ~ π0 = softmax(β q(x, a)); e_k ~ p(e_k|a) for each dimension k; r = q(x, e) + noise.

    The target takes the action with the highest q(x, a) = Σ_e p(e|a) q(x, e), but any action with probability ε. With
    `clicks`, the probability of a reward of 1 is sigmoid(q(x, e) + odds); policies still depend on q.
    """

    n_actions: int = 1000
    _: KW_ONLY
    context: int = 10
    dimensions: int = 3
    categories: int = 10
    latent: int = 5
    hidden: int = 0
    beta: float = -1.0
    epsilon: float = 0.05
    noise: float = 2.5
    deficient: int = 0
    clicks: bool = False
    odds: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        name = type(self).__name__
        for setting, low in (("n_actions", 2), ("context", 1), ("dimensions", 1), ("categories", 2), ("latent", 1)):
            check_count(name, setting, getattr(self, setting), low)
        check_count(name, "hidden", self.hidden, 0, self.dimensions - 1)
        check_count(name, "deficient", self.deficient, 0, self.n_actions - 1)
        check_count(name, "seed", self.seed, 0, 2**63)
        check_number(name, "beta", self.beta)
        check_number(name, "epsilon", self.epsilon, 0, 1)
        check_number(name, "noise", self.noise, 0)
        check_number(name, "odds", self.odds)
        check_flag(name, "clicks", self.clicks)

    @abstractmethod
    def _score(self, contexts: FloatArray) -> FloatArray:
        """q(x, a) = Σ_e p(e|a) q(x, e): rounds × actions."""

    @abstractmethod
    def _score_of(self, contexts: FloatArray, e: IntArray) -> FloatArray:
        """q(x, e) of each round; e is rounds × dimensions."""

    @cached_property
    def embedding_probabilities(self) -> FloatArray:
        """p(e_k|a), a softmax of normal draws: dimensions × actions × categories."""
        rng = np.random.default_rng([self.seed, 4])
        p: FloatArray = np.exp(rng.normal(size=(self.dimensions, self.n_actions, self.categories)))
        p /= p.sum(axis=2, keepdims=True)
        return p

    @property
    def logging(self) -> Policy:
        return Softmax(self._logged_score)

    def _logged_score(self, contexts: FloatArray) -> FloatArray:
        score = self.beta * self._score(contexts)
        score[:, self.n_actions - self.deficient :] = -np.inf
        return score

    @property
    def target(self) -> Policy:
        return EpsilonGreedy(self._score, self.epsilon)

    @property
    def exact(self) -> Posterior:
        return Exact(list(self.embedding_probabilities[: self.dimensions - self.hidden]))

    def mean_reward(self, contexts: FloatArray) -> FloatArray:
        if self.clicks:
            raise InputError(
                f"{type(self).__name__}: the mean of sigmoid(q(x, e) + odds) over e has no closed form; use `value`."
            )
        return self._score(contexts)

    def _embeddings(self, action: IntArray, rng: np.random.Generator) -> IntArray:
        return np.column_stack([draw(p[action], rng.random(len(action))) for p in self.embedding_probabilities])

    def outcome(self, contexts: FloatArray, action: IntArray, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
        e = self._embeddings(action, rng)
        score, logged = self._score_of(contexts, e), e[:, : self.dimensions - self.hidden]
        if self.clicks:
            return clicks(sigmoid(score + self.odds), rng), logged
        return score + rng.normal(size=len(score)) * self.noise, logged

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """By Monte Carlo over contexts; for clicks, also over actions and embeddings."""
        if not self.clicks:
            return super().value_with_error(policy)
        rng = np.random.default_rng(0xC0FFEE)
        x = self.contexts(self.value_rounds, rng)
        action, _ = choose(as_policy(policy).over(self.space), x, self.n_actions, rng)
        return average(sigmoid(self._score_of(x, self._embeddings(action, rng)) + self.odds))


@dataclass(frozen=True)
class Synthetic(_Embedded):
    """Rewards through categorical embeddings: q(x, e) = Σ_k η_k f_k(x, e_k) with η ~ Dirichlet.

    x ~ N(0, I); a ~ π0 = softmax(β q(x, a)); e_k ~ p(e_k|a) for each dimension k; r = q(x, e) + noise. Each f_k is a
    standardised xᵀM z_e + θ_xᵀx + θ_eᵀz_e.

    Parameters
    ----------
    n_actions : int, default=1000
        The number of actions.
    context : int, default=10
        The dimensions of the context.
    dimensions : int, default=3
        The dimensions of the embedding.
    categories : int, default=10
        The categories of each dimension.
    latent : int, default=5
        The size of the latent vector of a category.
    hidden : int, default=0
        Dimensions, the last ones, that affect the reward but are not in the log.
    beta : float, default=-1.0
        The inverse temperature of the logging policy; negative values avoid good actions.
    epsilon : float, default=0.05
        The probability with which the target takes any action instead of the best one.
    noise : float, default=2.5
        The standard deviation of the noise.
    deficient : int, default=0
        Actions, the last ones, that the logging policy never takes.
    clicks : bool, default=False
        Whether rewards are 0 or 1, with log-odds q(x, e) + `odds`.
    odds : float, default=0.0
        The log-odds of a click where q is 0.
    seed : int, default=0
        The seed of the parameters.
    redraw_importance : bool, default=False
        Reproduce the flaw of the published simulator: every log draws its own η, and with it its own policies, while `value`
        is that of this world's η.
    importance_seed : tuple of int, optional
        Where η comes from, if not from `seed`; set by `of_log`.

    References
    ----------
    Y. Saito, T. Joachims. Off-Policy Evaluation for Large Action Spaces via Embeddings. ICML 2022.
    """

    redraw_importance: bool = False
    importance_seed: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag("Synthetic", "redraw_importance", self.redraw_importance)

    @cached_property
    def _parameters(self) -> tuple[FloatArray, FloatArray]:
        """η_k times the slope (dimensions × categories × context) and the intercept (dimensions × categories) of f_k."""
        rng = np.random.default_rng([self.seed, 5])
        k, c, d = self.dimensions, self.categories, self.context
        z = rng.normal(size=(k, c, self.latent))
        M, theta_x = rng.uniform(-1, 1, (k, d, self.latent)), rng.uniform(-1, 1, (k, 1, d))
        slope = np.einsum("kdl,kcl->kcd", M, z) + theta_x
        level = np.einsum("kl,kcl->kc", rng.uniform(-1, 1, (k, self.latent)), z)
        level -= level.mean(axis=1, keepdims=True)
        # the variance over x ~ N(0, I) and categories alike
        deviation = np.sqrt((slope**2).sum(axis=2).mean(axis=1) + (level**2).mean(axis=1))
        eta = self._importance(rng)
        return slope * (eta / deviation)[:, None, None], level * (eta / deviation)[:, None]

    def _importance(self, rng: np.random.Generator) -> FloatArray:
        own = rng if self.importance_seed is None else np.random.default_rng(self.importance_seed)
        return own.dirichlet(own.uniform(size=self.dimensions))

    @cached_property
    def _by_action(self) -> tuple[FloatArray, FloatArray]:
        """q(x, a) is linear in x: its slopes (context × actions) and levels."""
        slope, level = self._parameters
        return np.einsum("kac,kcd->da", self.embedding_probabilities, slope), np.einsum(
            "kac,kc->a", self.embedding_probabilities, level
        )

    def _score(self, contexts: FloatArray) -> FloatArray:
        slope, level = self._by_action
        return contexts @ slope + level

    def _score_of(self, contexts: FloatArray, e: IntArray) -> FloatArray:
        slope, level = self._parameters
        score = np.zeros(len(e))
        for k in range(self.dimensions):
            score += np.einsum("ij,ij->i", contexts, slope[k, e[:, k]]) + level[k, e[:, k]]
        return score

    def of_log(self, seed: Seed) -> Synthetic:
        if not self.redraw_importance:
            return self
        entropy = tuple(generator(seed).integers(2**32, size=4).tolist())
        return replace(self, redraw_importance=False, importance_seed=entropy)

    def sample(self, n: int, seed: Seed) -> Any:
        return self.of_log(seed).sample(n, seed) if self.redraw_importance else super().sample(n, seed)


@dataclass(frozen=True)
class NonLinear(_Embedded):
    """Like `Synthetic`, but q(x, e) is a random two-layer network of the context and the embedding.

    No linear model is correct. There are at most 3 dimensions, since q(x, a) is an exact sum over all combinations of
    categories.

    Parameters
    ----------
    n_actions : int, default=1000
        The number of actions.
    context : int, default=10
        The dimensions of the context.
    dimensions : int, default=3
        The dimensions of the embedding.
    categories : int, default=10
        The categories of each dimension.
    latent : int, default=5
        The size of the latent vector of a category.
    hidden : int, default=0
        Dimensions, the last ones, that affect the reward but are not in the log.
    beta : float, default=-1.0
        The inverse temperature of the logging policy; negative values avoid good actions.
    epsilon : float, default=0.05
        The probability with which the target takes any action instead of the best one.
    noise : float, default=2.5
        The standard deviation of the noise.
    deficient : int, default=0
        Actions, the last ones, that the logging policy never takes.
    clicks : bool, default=False
        Whether rewards are 0 or 1, with log-odds q(x, e) + `odds`.
    odds : float, default=0.0
        The log-odds of a click where q is 0.
    seed : int, default=0
        The seed of the parameters.
    units : int, default=16
        The width of the network.
    """

    units: int = 16
    value_rounds: ClassVar[int] = 100_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("NonLinear", "dimensions", self.dimensions, 1, MOST_ENUMERATED)
        check_count("NonLinear", "units", self.units, 1)

    @cached_property
    def _network(self) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """The first layer for the context and for each combination of categories, the second layer, and the offset."""
        rng = np.random.default_rng([self.seed, 6])
        k, c, h = self.dimensions, self.categories, self.units
        of_x = rng.normal(size=(self.context, h)) / np.sqrt(self.context)
        of_e = np.einsum("kcl,klh->kch", rng.normal(size=(k, c, self.latent)), rng.normal(size=(k, self.latent, h)))
        of_e *= 1 / np.sqrt(k * self.latent)
        whole = rng.normal(size=h)
        for part in of_e:  # all combinations, the first dimension outermost
            whole = (whole[..., None, :] + part) if whole.ndim > 1 else whole + part
        second = rng.choice([-1.0, 1.0], size=h)
        x, e = rng.normal(size=(20_000, self.context)), rng.integers(c**k, size=20_000)
        drawn = np.maximum(x @ of_x + whole.reshape(-1, h)[e], 0) @ second
        return of_x, whole.reshape(-1, h), second / drawn.std(), float(drawn.mean() / drawn.std())

    @cached_property
    def _combined_probabilities(self) -> FloatArray:
        """p(e|a) of each combination of categories: combinations × actions."""
        p = np.ones((1, self.n_actions))
        for each in self.embedding_probabilities:
            p = (p[:, None, :] * each.T[None]).reshape(-1, self.n_actions)
        return p

    def _score(self, contexts: FloatArray) -> FloatArray:
        of_x, of_e, second, shift = self._network
        score = np.empty((len(contexts), self.n_actions))
        for rows in blocks(len(contexts), len(of_e)):
            x = contexts[rows] @ of_x
            q = np.full((len(x), len(of_e)), -shift)
            for h, weight in enumerate(second):
                q += weight * np.maximum(np.add.outer(x[:, h], of_e[:, h]), 0)
            score[rows] = q @ self._combined_probabilities
        return score

    def _score_of(self, contexts: FloatArray, e: IntArray) -> FloatArray:
        of_x, of_e, second, shift = self._network
        combination = np.ravel_multi_index(tuple(e.T), (self.categories,) * self.dimensions)
        score: FloatArray = np.maximum(contexts @ of_x + of_e[combination], 0) @ second - shift
        return score

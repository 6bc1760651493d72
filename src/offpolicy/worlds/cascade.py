"""`Cascade`: a published world of clicks on lists that users read from the top."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.policies.base import Policy
from offpolicy.policies.factored import Factored
from offpolicy.policies.tables import Fixed
from offpolicy.worlds.base import check_count, check_number, clicks, sigmoid
from offpolicy.worlds.lists import ListWorld

CONTEXT = 5
SIMILARITIES = (-0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8)
SCALE = 0.5
"""The standard deviation of W."""


@dataclass(frozen=True)
class Cascade(ListWorld):
    """Clicks that depend on the items above a slot, and not on those below: the world in which Cascade-DR was published.

    The log-odds of a click are z(x, a_k) + Σ_{j < k} W(a_k, a_j), with a random symmetric matrix W, or, with
    `interaction="decay"`, z(x, a_k) − Σ_{j < k} z(x, a_j)/(1 + k − j). Neither policy depends on the context: for every
    slot, the logging policy is a softmax of random numbers c_a, and the target a softmax of λ·c_a.

    Parameters
    ----------
    similarity : float, optional
        λ: 1 is the logging policy, 0 the uniform policy, and negative numbers prefer what is logged rarely. By default, the
        seed selects one of −0.8, −0.6, …, 0.8, as published.
    slots : int, default=5
        The length of the lists.
    n_actions : int, default=5
        The number of items.
    interaction : {"additive", "decay"}, optional
        How items above matter. By default, the seed selects one of the two.
    seed : int, default=0
        The seed of the parameters.

    References
    ----------
    Kiyohara, Saito, Matsuhiro, Narita, Shimizu and Yamamoto (2022). Doubly robust off-policy evaluation for ranking policies
    under the cascade behavior model. WSDM.

    Examples
    --------
    >>> from offpolicy.worlds import Cascade
    >>> Cascade(0.4).sample(100, seed=0)
    Log(100 rounds, actions: lists of up to 5 of 5 items, context 5, rewards ['reward'])
    """

    value_rounds: ClassVar[int] = 250_000
    similarity: float | None = None
    slots: int = 5
    n_actions: int = 5
    _: KW_ONLY
    interaction: Literal["additive", "decay"] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.similarity is not None:
            check_number("Cascade", "similarity", self.similarity)
        check_count("Cascade", "slots", self.slots, 1, 1_000)
        check_count("Cascade", "n_actions", self.n_actions, 2)
        if self.interaction not in (None, "additive", "decay"):
            raise InputError(f'Cascade: interaction is {self.interaction!r}; give "additive" or "decay".')
        check_count("Cascade", "seed", self.seed, 0, 2**63)

    @cached_property
    def _parameters(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """The coefficients and the intercepts of z, the numbers c of the policies, and W."""
        rng, items = np.random.default_rng([self.seed, 24]), self.n_actions
        half = np.tril(SCALE * rng.normal(size=(items, items)))
        return (
            rng.uniform(size=(CONTEXT, items)), rng.uniform(size=items), rng.uniform(size=items),
            half + np.tril(half, -1).T,
        )  # fmt: skip

    def _policy(self, similarity: float) -> Policy:
        p = np.exp(similarity * self._parameters[2])
        return Factored(Fixed(p / p.sum()))

    @property
    def logging(self) -> Policy:
        return self._policy(1.0)

    @property
    def target(self) -> Policy:
        return self._policy(SIMILARITIES[self.seed % len(SIMILARITIES)] if self.similarity is None else self.similarity)

    def contexts(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.normal(size=(n, CONTEXT))

    def mean_reward(self, contexts: FloatArray, lists: IntArray) -> FloatArray:
        coefficients, intercepts, _, met = self._parameters
        own = np.take_along_axis(contexts @ coefficients + intercepts, lists, axis=1)
        odds, additive = own.copy(), (self.interaction or ("additive", "decay")[self.seed % 2]) == "additive"
        for k in range(1, self.slots):
            for j in range(k):
                odds[:, k] += met[lists[:, k], lists[:, j]] if additive else -own[:, j] / (1 + k - j)
        return sigmoid(odds)

    def outcome(self, contexts: FloatArray, lists: IntArray, rng: np.random.Generator) -> FloatArray:
        return clicks(self.mean_reward(contexts, lists), rng)

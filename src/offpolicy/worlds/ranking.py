"""`Ranking`: rankings whose users read them in different ways."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.policies.base import Policy
from offpolicy.policies.factored import Factored
from offpolicy.policies.plackett_luce import PlackettLuce
from offpolicy.policies.scores import Softmax
from offpolicy.worlds.base import check_count, check_flag, check_number, clicks, draw, sigmoid
from offpolicy.worlds.lists import ListWorld

Behaviour = Literal["independent", "position", "cascade", "neighbours", "standard", "mixed"]
Policies = Literal["factored", "plackett-luce"]
CONTEXT = 5
MIXTURE = 1.5
"""How strongly the context determines who reads how, if behaviour is mixed."""
CLICK_OFFSET = -1.0
"""Added to the log-odds of a click."""


@dataclass(frozen=True)
class Ranking(ListWorld):
    """Rankings whose users read them in one of several ways, or each in their own.

    With contexts x ~ N(0, I) in five dimensions, an item a has the appeal q(x, a) = x·η_a + μ_a, and the reward of slot k is

        r_k = q(x, a_k) + Σ_{j ≠ k} S_kj·W(a_k, a_j)/abs(k − j) + noise,

    where W is a random symmetric matrix and S states which slots matter to slot k: none ("independent"), those above it
    ("cascade"), its two neighbours ("neighbours") or all ("standard"). If behaviour is "mixed", the context determines how
    likely each of the four is. If it is "position", no other slot matters, and the reward of slot k is divided by k, which
    for clicks is the probability that a user looks there (the position-based model).

    The logging policy is a softmax of random scores. The target prefers appealing items. Either both draw every slot from
    the same probabilities ("factored"), or both draw without replacement ("plackett-luce").

    Parameters
    ----------
    behaviour : {"independent", "position", "cascade", "neighbours", "standard", "mixed"}, default="cascade"
        How users read.
    slots : int, default=5
        The length of the lists.
    n_actions : int, default=10
        The number of items.
    policies : {"factored", "plackett-luce"}, default="factored"
        Whether items may repeat, or not.
    clicks : bool, default=False
        Rewards of 0 and 1, with the mean above as log-odds, less 1.
    interaction : float, default=1.0
        The standard deviation of W, times the root of the number of slots.
    sharpness : float, default=0.5
        How far the logging policy is from uniform.
    shift : float, default=0.7
        How far the target is from the logging policy.
    noise : float, default=1.0
        The standard deviation of the noise in rewards.
    seed : int, default=0
        The seed of the parameters.

    Examples
    --------
    >>> from offpolicy.worlds import Ranking
    >>> world = Ranking("cascade", slots=3, n_actions=4)
    >>> world.sample(100, seed=0)
    Log(100 rounds, actions: lists of up to 3 of 4 items, context 5, rewards ['reward'])
    """

    behaviour: Behaviour = "cascade"
    slots: int = 5
    n_actions: int = 10
    _: KW_ONLY
    policies: Policies = "factored"
    clicks: bool = False
    interaction: float = 1.0
    sharpness: float = 0.5
    shift: float = 0.7
    noise: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("behaviour", get_args(Behaviour)), ("policies", get_args(Policies))):
            if getattr(self, name) not in allowed:
                raise InputError(f"Ranking: {name} is {getattr(self, name)!r}; give one of {', '.join(allowed)}.")
        check_count("Ranking", "slots", self.slots, 1, 1_000)
        check_count("Ranking", "n_actions", self.n_actions, 2)
        check_flag("Ranking", "clicks", self.clicks)
        for name in ("interaction", "sharpness", "shift", "noise"):
            check_number("Ranking", name, getattr(self, name), 0)
        check_count("Ranking", "seed", self.seed, 0, 2**63)
        if self.policies == "plackett-luce" and self.slots > self.n_actions:
            raise InputError(f"Ranking: {self.slots} slots need as many items, and there are {self.n_actions}.")

    @cached_property
    def _parameters(self) -> dict[str, FloatArray]:
        rng, items = np.random.default_rng([self.seed, 23]), self.n_actions
        appeal = np.vstack([rng.normal(size=(CONTEXT, items)) / np.sqrt(CONTEXT), 0.7 * rng.normal(size=(1, items))])
        logged = np.vstack([rng.normal(size=(CONTEXT, items)) / np.sqrt(CONTEXT), 0.5 * rng.normal(size=(1, items))])
        logged *= self.sharpness
        half = np.tril(rng.normal(size=(items, items)))
        return {
            "appeal": appeal,
            "logged": logged,
            "target": (1 - self.shift / 2) * logged + self.shift * appeal,
            "interaction": self.interaction / np.sqrt(self.slots) * (half + np.tril(half, -1).T),
            "readers": MIXTURE * rng.normal(size=(CONTEXT, 4)),
        }

    @cached_property
    def _matters(self) -> FloatArray:
        """Kinds of readers × slots × slots: how much the item of each other slot matters to a slot."""
        slot = np.arange(self.slots)
        distance = np.abs(slot[:, None] - slot)
        decay = 1 / np.maximum(distance, 1)
        other, above = distance > 0, slot[:, None] > slot
        kinds = {
            "independent": 0 * decay,
            "cascade": decay * above,
            "neighbours": decay * (distance == 1),
            "standard": decay * other,
        }
        if self.behaviour == "mixed":
            return np.stack(list(kinds.values()))
        kind: FloatArray = kinds["independent" if self.behaviour == "position" else self.behaviour]
        return kind[None]

    def _scores(self, which: str, contexts: FloatArray) -> FloatArray:
        coefficients = self._parameters[which]
        scores: FloatArray = contexts @ coefficients[:-1] + coefficients[-1]
        return scores

    def _policy(self, which: str) -> Policy:
        if self.policies == "plackett-luce":
            return PlackettLuce(lambda x: self._scores(which, x))
        return Factored(Softmax(lambda x: self._scores(which, x)))

    @property
    def logging(self) -> Policy:
        return self._policy("logged")

    @property
    def target(self) -> Policy:
        return self._policy("target")

    def contexts(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.normal(size=(n, CONTEXT))

    def mean_reward(self, contexts: FloatArray, lists: IntArray) -> FloatArray:
        readers = self._readers(contexts)
        each = (self._read(contexts, lists, np.full(len(contexts), kind)) * p[:, None] for kind, p in enumerate(readers.T))
        return np.asarray(sum(each))

    def outcome(self, contexts: FloatArray, lists: IntArray, rng: np.random.Generator) -> FloatArray:
        mean = self._read(contexts, lists, draw(self._readers(contexts), rng.random(len(contexts))))
        return clicks(mean, rng) if self.clicks else mean + self.noise * rng.normal(size=mean.shape)

    def _readers(self, contexts: FloatArray) -> FloatArray:
        """Rounds × kinds of readers: how likely each is."""
        scores = contexts @ self._parameters["readers"][:, : len(self._matters)]
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def _read(self, contexts: FloatArray, lists: IntArray, reader: IntArray) -> FloatArray:
        """The mean reward of each slot for a reader of this kind."""
        appeal = np.take_along_axis(self._scores("appeal", contexts), lists, axis=1)
        for j in range(self.slots if self._matters.any() else 0):
            met = self._parameters["interaction"][lists, lists[:, j : j + 1]]
            appeal = appeal + self._matters[reader, :, j] * met
        mean = sigmoid(appeal + CLICK_OFFSET) if self.clicks else appeal
        return mean / np.arange(1, self.slots + 1) if self.behaviour == "position" else mean

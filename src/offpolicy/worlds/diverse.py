"""`Diverse`: a published world of lists whose readers differ in which slots matter to them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.policies.base import Policy
from offpolicy.policies.factored import Factored
from offpolicy.policies.tables import Fixed
from offpolicy.worlds.base import check_count, check_number, draw, sigmoid
from offpolicy.worlds.lists import ListWorld

CONTEXT, ITEMS, READERS = 5, 3, 6
STRENGTH = 8.0
"""Of interactions: the standard deviation of W is this number, divided by the number of slots."""
GREEDY = 0.7
"""The probability with which the target takes the item that is logged least; otherwise it takes any."""


@dataclass(frozen=True)
class Diverse(ListWorld):
    """Readers who differ in which slots matter to them: the world in which AIPS was published.

    Three items; r_k = 1 + sigmoid(z(x, a_k)) + Σ_{j ≠ k} S_kj·W(a_k, a_j) + N(0, noise²). The matrix S of a round is one of
    six: all slots; six or three random other slots; those above with up to three or two slots below; or the two neighbours.
    Their probabilities are proportional to exp(ω_c·abs(x·θ_c)). Neither policy depends on the context: the logging policy is
    a softmax of random numbers for every slot, and the target takes the item that is logged least with probability 0.8.

    Parameters
    ----------
    slots : int, default=8
        The length of the lists.
    mixing : float, default=0.6
        δ, from 0 to 1: with larger ones, readers to whom more slots matter are more frequent.
    noise : float, default=0.5
        The standard deviation of the noise in rewards, which is drawn for every slot (in the published code, one draw serves
        all slots and all logs).
    parameters : int, default=12345
        The seed of all parameters; the default is that of the publication.

    References
    ----------
    Kiyohara, Uehara, Narita, Shimizu, Yamamoto and Saito (2023). Off-policy evaluation of ranking policies under diverse
    user behavior. KDD.

    Examples
    --------
    >>> from offpolicy.worlds import Diverse
    >>> Diverse().sample(100, seed=0)
    Log(100 rounds, actions: lists of up to 8 of 3 items, context 5, rewards ['reward'])
    """

    value_rounds: ClassVar[int] = 250_000
    slots: int = 8
    _: KW_ONLY
    mixing: float = 0.6
    noise: float = 0.5
    parameters: int = 12345
    n_actions = ITEMS

    def __post_init__(self) -> None:
        check_count("Diverse", "slots", self.slots, 2, 1_000)
        check_number("Diverse", "mixing", self.mixing, 0, 1)
        check_number("Diverse", "noise", self.noise, 0)
        check_count("Diverse", "parameters", self.parameters, 0, 2**32 - 1)

    def _stream(self) -> np.random.RandomState:
        """The published code starts every group of parameters from the same state."""
        return np.random.RandomState(self.parameters)

    @cached_property
    def _logging(self) -> FloatArray:
        stream = self._stream()
        stream.uniform(size=CONTEXT)  # coefficients of the context, which cancel
        p = np.exp(stream.uniform(size=ITEMS))
        distribution: FloatArray = p / p.sum()
        return distribution

    @cached_property
    def _target(self) -> FloatArray:
        p = np.full(ITEMS, (1 - GREEDY) / ITEMS)
        p[np.argmin(self._logging)] += GREEDY
        return p

    @cached_property
    def _base(self) -> tuple[FloatArray, FloatArray]:
        """The coefficients of z for each item, of which those of the context have a part that all items share."""
        stream = self._stream()
        shared, intercepts, own = (
            stream.uniform(size=CONTEXT),
            stream.uniform(size=ITEMS),
            stream.uniform(size=(CONTEXT, ITEMS)),
        )
        return shared + own.T, intercepts

    @cached_property
    def _interaction(self) -> FloatArray:
        half = np.tril(self._stream().normal(size=(ITEMS, ITEMS)))
        return np.asarray(STRENGTH / self.slots * (half + np.tril(half, -1).T))

    @cached_property
    def _matters(self) -> FloatArray:
        """Readers × slots × slots: which other slots matter to a slot."""
        slot = np.arange(self.slots)
        below = slot[None] - slot[:, None]
        six, three = np.zeros((2, self.slots, self.slots), dtype=bool)
        stream = self._stream()
        for k in slot:
            others = np.delete(slot, k)
            six[k, stream.choice(others, size=6)] = True
            three[k, stream.choice(others, size=3)] = True
        matter = np.stack([below == below, six, three, below <= 3, below <= 2, np.abs(below) <= 1])
        matters: FloatArray = (matter & (below != 0)).astype(np.float64)
        return matters

    @cached_property
    def _readers(self) -> FloatArray:
        """ω_c·θ_c, context × readers. Similar θ are assigned to similar matrices, one after another."""
        theta = self._stream().uniform(size=(READERS, CONTEXT))
        distance = ((theta[:, None] - theta) ** 2).mean(axis=2)
        order = [int(np.argmax(distance.sum(axis=1)))]
        while len(order) < READERS:
            left = np.setdiff1d(np.arange(READERS), order)
            order.append(int(left[np.argmin(distance[order][:, left].sum(axis=0))]))
        steps = 1.5 - 3 * np.arange(READERS) / (READERS - 1)
        omega = np.exp((2 * self.mixing - 1) * steps)
        return np.asarray((omega[:, None] * theta[order]).T)

    @property
    def logging(self) -> Policy:
        return Factored(Fixed(self._logging))

    @property
    def target(self) -> Policy:
        return Factored(Fixed(self._target))

    def contexts(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.normal(size=(n, CONTEXT))

    def mean_reward(self, contexts: FloatArray, lists: IntArray) -> FloatArray:
        matters = self._read_by(contexts) @ self._matters.reshape(READERS, -1)
        return self._mean(contexts, lists, matters.reshape(-1, self.slots, self.slots))

    def outcome(self, contexts: FloatArray, lists: IntArray, rng: np.random.Generator) -> FloatArray:
        reader = draw(self._read_by(contexts), rng.random(len(contexts)))
        return self._mean(contexts, lists, self._matters[reader]) + self.noise * rng.normal(size=lists.shape)

    def _read_by(self, contexts: FloatArray) -> FloatArray:
        """Rounds × readers: the probability of each."""
        scores = np.abs(contexts @ self._readers)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def _mean(self, contexts: FloatArray, lists: IntArray, matters: FloatArray) -> FloatArray:
        coefficients, intercepts = self._base
        z = np.take_along_axis(contexts @ coefficients.T + intercepts, lists, axis=1)
        met = self._interaction[lists[:, :, None], lists[:, None, :]]
        return np.asarray(1 + sigmoid(z) + (matters * met).sum(axis=2))

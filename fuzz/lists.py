"""Logs of lists: values per slot against sums over all lists, and lists that are not what they should be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

import offpolicy as op
from fuzz.judging import ROUNDING, TOLERANCE, Truth, Verdict, judged
from fuzz.values import ODD_CELLS

SHARES = ([0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.125, 0.125], [0.7, 0.1, 0.1, 0.1], [0.0625, 0.0625, 0.375, 0.5])
ODD_GAINS: tuple[Any, ...] = (
    "dcg",
    "sum",
    [1.0, 0.5, 0.0],
    [1, -1, 2],
    [1.0],
    [],
    "x",
    None,
    [math.nan, 1, 1],
    [1e300] * 3,
    3,
)
GAINS: Mapping[Any, list[float]] = {"sum": [1.0, 1.0, 1.0], "dcg": [1 / math.log2(2 + k) for k in range(3)]}
SLOTS, ITEMS = 3, 4
INTEGRATED = 1e3
"""How many times less exact the integrals are than sums."""


@dataclass(frozen=True)
class Lists:
    """A log of lists and a new policy. An `edit` replaces a cell of the items or rewards; `wrong` must be refused."""

    items: Sequence[Any]
    rewards: Sequence[Any]
    shares: tuple[Sequence[float], Sequence[float]]
    replace: bool
    gain: Any
    intact: bool = True
    wrong: bool = False

    def truth(self) -> Truth | None:
        """From the probability of every list under both policies; None if something was corrupted."""
        if not self.intact or not isinstance(self.gain, str) or self.gain not in GAINS:
            return None
        old, new = (probabilities(shares, self.replace) for shares in self.shares)
        placed = [{at: _placed(lists, at) for at in itertools.product(range(SLOTS), range(ITEMS))} for lists in (old, new)]
        weights: dict[str, list[list[float]]] = {"LoggedMean": [], "SIPS": [], "RIPS": [], "IIPS": []}
        for row in self.items:
            above = [_above(new, row[: k + 1]) / _above(old, row[: k + 1]) for k in range(len(row))]
            prefix = above + above[-1:] * (SLOTS - len(row))
            own = [placed[1][k, a] / placed[0][k, a] for k, a in enumerate(row)] + [1.0] * (SLOTS - len(row))
            for name, each in (
                ("LoggedMean", [1.0] * SLOTS),
                ("SIPS", prefix[-1:] * SLOTS),
                ("RIPS", prefix),
                ("IIPS", own),
            ):
                weights[name].append(each)
        reward = [[*row, *[0.0] * (SLOTS - len(row))] for row in self.rewards]
        values = {}
        for name, of_rows in weights.items():
            values[name] = self._value(of_rows, reward, normalised=False)
            if name != "LoggedMean":
                values[f"{name}, normalised"] = self._value(of_rows, reward, normalised=True)
        if not self.replace:  # there, probabilities of positions are integrals
            values |= {name: (value, INTEGRATED * scale) for name, (value, scale) in values.items() if name[0] == "I"}
        return Truth(len(reward), values)

    def _value(self, weights: list[list[float]], reward: list[list[float]], *, normalised: bool) -> tuple[float, float]:
        """The sum over slots, and the scale of its rounding errors."""
        value = scale = 0.0
        for k, gain in enumerate(GAINS[self.gain]):
            w, r = [row[k] for row in weights], [row[k] for row in reward]
            under = math.fsum(w) if normalised else float(len(w))
            largest = max(map(abs, r)) * ROUNDING / TOLERANCE
            value += gain * math.fsum(a * b for a, b in zip(w, r, strict=True)) / under if under else math.nan
            scale += (
                gain * (math.fsum(abs(a * b) for a, b in zip(w, r, strict=True)) + largest * math.fsum(w)) / (under or 1.0)
            )
        return value, scale

    def judge(self) -> Verdict:
        def run() -> op.Evaluation:
            make = (lambda p: op.Factored(op.Fixed(p))) if self.replace else _drawn
            old, new = (make(list(shares)) for shares in self.shares)
            log = op.Log(
                None, list(self.items), list(self.rewards), logging=old, actions=op.Slate(SLOTS, ITEMS), gain=self.gain
            )
            kinds = (op.SIPS, op.RIPS, op.IIPS)
            every = [kind(normalised=n, name=kind.__name__ + ", normalised" * n) for kind in kinds for n in (False, True)]
            result = op.evaluate(log, new, every, progress=False)
            str(result)
            return result

        truth = self.truth()
        return judged(run, truth, answered=truth is None and not self.wrong)


def _drawn(shares: list[float]) -> op.PlackettLuce:
    """Without replacement, in proportion to the shares."""
    return op.PlackettLuce(lambda x: np.tile(np.log(shares), (len(x), 1)))


def probabilities(shares: Sequence[float], replace: bool) -> dict[tuple[int, ...], float]:
    """Of every list."""
    every = itertools.product(range(ITEMS), repeat=SLOTS) if replace else itertools.permutations(range(ITEMS), SLOTS)
    found = {}
    for items in every:
        p = 1.0
        for k, item in enumerate(items):
            p *= shares[item] / (1.0 if replace else math.fsum(shares[b] for b in range(ITEMS) if b not in items[:k]))
        found[items] = p
    return found


def _above(lists: Mapping[tuple[int, ...], float], items: Sequence[int]) -> float:
    """The probability that a list begins with some items."""
    return math.fsum(p for each, p in lists.items() if each[: len(items)] == tuple(items))


def _placed(lists: Mapping[tuple[int, ...], float], at: tuple[int, int]) -> float:
    """The probability of an item in a slot."""
    return math.fsum(p for each, p in lists.items() if each[at[0]] == at[1])


@st.composite
def cases(draw: st.DrawFn) -> Lists:
    """A valid log of two to five lists of one to three items, which may then be corrupted."""
    random = Random(draw(st.integers(0, 2**32)))
    replace = random.random() < 0.5
    pick = (lambda m: random.choices(range(ITEMS), k=m)) if replace else (lambda m: random.sample(range(ITEMS), m))
    items: list[Any] = [pick(random.randint(1, SLOTS)) for _ in range(random.randint(2, 5))]
    rewards: list[Any] = [[random.choice((0.0, 1.0, random.randint(-80, 80) / 8)) for _ in row] for row in items]
    shares = (random.choice(SHARES), random.choice(SHARES))
    made: dict[str, Any] = {"items": items, "rewards": rewards}
    gain = random.choice(("sum", "dcg"))
    kind = draw(st.sampled_from(["none", "none", "gain", "cell", "cell", "row", "longer", "missing", "repeated", "unknown"]))
    row = random.randrange(len(items))
    slot = random.randrange(len(items[row]))
    if kind == "gain":
        gain = random.choice(ODD_GAINS)
    elif kind == "cell":
        made[random.choice(["items", "rewards"])][row][slot] = random.choice(ODD_CELLS)
    elif kind == "row":
        made[random.choice(["items", "rewards"])][row] = random.choice(ODD_CELLS)
    elif kind == "longer":
        rewards[row] = [*rewards[row], 1.0]
    elif kind == "missing":
        rewards[row][slot] = random.choice((math.nan, math.inf, None))
    elif kind == "unknown":
        items[row][slot] = random.choice((ITEMS, 99, -2))
    elif kind == "repeated":
        items[row], rewards[row] = [1, 1], [0.0, 1.0]
    wrong = kind in ("longer", "missing", "unknown") or (kind == "repeated" and not replace)
    intact = kind == "none" or (kind == "repeated" and replace) or (kind == "gain" and gain in ("sum", "dcg"))
    return Lists(items, rewards, shares, replace, gain, intact, wrong)

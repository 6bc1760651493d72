"""Bounds that hold at every look: how often they ever miss, and how wide they are.

python -m benchmarks.streams [STREAMS] [WORLD…]     100,000 rounds, a look after every 100; 2,000 streams take 8 minutes
python -m benchmarks.streams monitor [STREAMS]      the same bounds from `op.Monitor`, at 20 looks
python -m benchmarks.streams widths [STREAMS]       the width of a sequence over that of the normal interval

Each writes its part of docs/measured/streams.json. The first goes on from what is there. It makes the histograms of a stream
for all looks at once and leaves the bounds to the functions of the library; `monitor` compares both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

import offpolicy as op
from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.hashing import BUCKETS, buckets, hash_values
from offpolicy.inference.betting import EXPONENTS, PRIOR, SAFE, BinnedCapital, log_products, lower_bound
from offpolicy.inference.sequences import Earnings, Gains, IndependentScores, SequenceScores, UnitScores, spent
from offpolicy.statistics.signed_histogram import Bins, SignedHistogram

MEASURED = Path("docs/measured/streams.json")
ROUNDS, EVERY, ALPHA = 100_000, 100, 0.05
LOOKS = ROUNDS // EVERY
LOOK = np.repeat(np.arange(LOOKS), EVERY)  # of each round
N = EVERY * np.arange(1.0, LOOKS + 1)  # rounds at each look
USERS, PER_USER = ROUNDS // 10, 10
STEP = 100  # streams after which the counts are saved
Z = NormalDist().inv_cdf(1 - ALPHA / 2)
Rng = np.random.Generator


def save(name: str, found: dict[str, Any]) -> None:
    """Replace one part of the file."""
    MEASURED.write_text(json.dumps({"schema": "offpolicy.streams/1", **saved(), name: found}, indent=1) + "\n")


def saved() -> dict[str, Any]:
    """What was measured before."""
    before: dict[str, Any] = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    return before


@dataclass(frozen=True)
class Stream:
    """The weights and rewards of one stream, its users if it has any, and the value of the policy and of the log.

    `pair` numbers the pairs of a weight and a reward, if there are few.
    """

    weight: FloatArray
    reward: FloatArray
    value: float
    logged: float
    user: IntArray | None = None
    pair: IntArray | None = None

    @property
    def lift(self) -> float:
        return self.value - self.logged

    @cached_property
    def scores(self) -> dict[str, FloatArray]:
        """What is summed for the value, and for the difference from the log."""
        w, r = self.weight, self.reward
        return {
            "hits": w * r,
            "misses": w * (1 - r),
            "gains": (w - 1) * r,
            "ahead": w * r + 1 - r,
            "behind": r + w * (1 - r),
        }

    @cached_property
    def _pairs(self) -> tuple[IntArray, FloatArray]:
        """A round of each pair, or of none; and how many there are up to each look."""
        assert self.pair is not None
        pairs = int(self.pair.max()) + 1
        some = np.zeros(pairs, np.int64)
        some[self.pair] = np.arange(ROUNDS)
        return some, _up_to_each_look(np.bincount(LOOK * pairs + self.pair, minlength=LOOKS * pairs))

    def at_looks(self, name: str) -> Bins:
        """The histogram of some scores up to each look: counts and sums are looks × bins."""
        scores = self.scores[name] if self.pair is None else self.scores[name][self._pairs[0]]
        rounded, place = SignedHistogram.placed(scores)
        whole = SignedHistogram.of(scores)
        used, ends = np.flatnonzero(whole["count"]), Bins.of(whole)
        column = np.searchsorted(used, np.arange(used[-1] + 1))[place]
        if self.pair is None:
            cell = LOOK * len(used) + column
            parts = (np.bincount(cell, each, LOOKS * len(used)) for each in (None, rounded))
            count, total = (_up_to_each_look(part) for part in parts)
        else:
            member = (column[:, None] == np.arange(len(used))) * 1.0
            count, total = (self._pairs[1] @ (each[:, None] * member) for each in (np.ones(len(place)), rounded))
        return Bins(ends.low, ends.high, count, total)


def _up_to_each_look(sums: FloatArray | IntArray) -> FloatArray:
    added: FloatArray = sums.reshape(LOOKS, -1).cumsum(axis=0, dtype=np.float64)
    return added


def _discrete(rng: Rng, p0: Sequence[float], target: Sequence[float], rates: Sequence[float]) -> Stream:
    logging, policy, rate = np.array(p0), np.array(target), np.array(rates)
    action = rng.choice(len(p0), ROUNDS, p=logging)
    reward = (rng.random(ROUNDS) < rate[action]).astype(float)
    pair = 2 * action + reward.astype(np.int64)
    return Stream((policy / logging)[action], reward, float(policy @ rate), float(logging @ rate), pair=pair)


def good(rng: Rng) -> Stream:
    return _discrete(rng, [0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.5])


def rare(rng: Rng) -> Stream:
    return _discrete(rng, [0.25] * 4, [0.1, 0.1, 0.2, 0.6], [0.001, 0.002, 0.003, 0.004])


def heavy(rng: Rng) -> Stream:
    """One action in two is the target's, with a propensity that is often tiny: E[w²] is about 100."""
    p = np.maximum(rng.random(ROUNDS) ** 2, 1e-4)
    taken = rng.random(ROUNDS) < p
    reward = (rng.random(ROUNDS) < np.where(taken, 0.5, 0.3)).astype(float)
    logged = 0.3 + 0.2 * float(_mean_propensity)
    return Stream(np.where(taken, 1 / p, 0.0), reward, 0.5, logged)


_mean_propensity = 1 / 3 + (2 / 3) * 1e-2**3  # of max(u², 1e−4) for u uniform


def users(rng: Rng) -> Stream:
    """Ten rounds of each user, scattered over the stream; what a user earns hardly changes from round to round."""
    user = rng.permutation(np.repeat(np.arange(USERS), PER_USER))
    fond = (rng.random(USERS) < 0.3)[user]
    action = rng.choice(2, ROUNDS, p=[0.6, 0.4])
    rate = np.where(fond, 0.8, 0.1) + 0.1 * action
    reward = (rng.random(ROUNDS) < rate).astype(float)
    weight = np.array([0.3 / 0.6, 0.7 / 0.4])[action]
    base = 0.3 * 0.8 + 0.7 * 0.1
    return Stream(weight, reward, base + 0.07, base + 0.04, user)


WORLDS: dict[str, Callable[[Rng], Stream]] = {
    "good overlap": good,
    "heavy weights": heavy,
    "rare rewards": rare,
    "users": users,
}


def mixed(growth: FloatArray) -> FloatArray:
    capital: FloatArray = np.logaddexp.reduce(np.log(PRIOR) + growth, axis=-1)
    return capital


def reached(bins: Bins, mean: float, floor: float = 0.0) -> FloatArray:
    """The logarithm of the capital at each look against a mean; that of `BinnedCapital` at one."""
    grid = 2.0**EXPONENTS if floor == 0 else np.minimum(2.0**EXPONENTS, SAFE / floor)
    return mixed(log_products(bins, grid, floor) - np.multiply.outer(N, np.log1p(grid * mean)))


def missed(stream: Stream) -> dict[str, bool]:
    """Whether each interval ever misses the truth."""
    if stream.user is not None:
        return Units.of(stream).missed()
    limit = np.log(2 / ALPHA)
    hits, misses, gains, ahead, behind = (stream.at_looks(name) for name in stream.scores)
    below, above = reached(hits, stream.value), reached(misses, 1 - stream.value)
    first, second = reached(ahead, 1 + stream.lift), reached(gains, stream.lift, 1.0)
    last = reached(behind, 1 - stream.lift)
    shared = np.logaddexp(first, second) - np.log(2)
    return {
        "value": bool(max(below.max(), above.max()) >= limit),
        "lift": bool(max(shared.max(), last.max()) >= limit),
        "normal, peeked": _peeked(stream.scores["hits"], stream.value),
    }


def _peeked(scores: FloatArray, mean: float) -> bool:
    """Whether the normal interval of IPS ever misses, looked at as often."""
    means, squares = (np.cumsum(part.reshape(-1, EVERY).sum(axis=1)) / N for part in (scores, scores**2))
    error = np.sqrt(np.maximum(squares - means**2, 0) / N)
    return bool((np.abs(means - mean) > Z * error).any())


@dataclass(frozen=True)
class Units:
    """The bets of buckets of users, with the error probability spent over the looks.

    `order` sorts the rounds by bucket; `first` is where the bucket of each sorted round begins; `largest` is the number of
    rounds in the largest bucket at each look.
    """

    stream: Stream
    bucket: IntArray
    order: IntArray
    first: IntArray
    largest: FloatArray

    @classmethod
    def of(cls, stream: Stream) -> Units:
        assert stream.user is not None
        bucket = buckets(hash_values(pa.array(stream.user)), 0)
        order = np.argsort(bucket.astype(np.uint16), kind="stable")
        first = np.searchsorted(bucket[order], bucket[order])
        rank = np.empty(ROUNDS)
        rank[order] = np.arange(ROUNDS) - first + 1.0
        return cls(stream, bucket, order, first, np.maximum.accumulate(rank.reshape(-1, EVERY).max(axis=1)))

    def missed(self) -> dict[str, bool]:
        s, value, lift = self.stream.scores, self.stream.value, self.stream.lift
        ahead, gains = self._at_most(s["ahead"], 1 + lift, 1.0), self._at_most(s["gains"], lift, 0.0, 1.0)
        most_by_end = {
            "value": [self._at_most(s["hits"], value), self._at_most(s["misses"], 1 - value)],
            "lift": [np.logaddexp(ahead, gains) - np.log(2), self._at_most(s["behind"], 1 - lift, 1.0)],
        }
        limit = np.log(2 / np.array([spent(ALPHA, look) for look in range(1, LOOKS + 1)]))
        found = {}
        for kind, ends in most_by_end.items():
            unclear = np.flatnonzero(np.maximum(*ends) >= limit)
            truth = value if kind == "value" else lift
            seen = (self.interval(kind, int(look)) for look in unclear)
            found[kind] = any(not low <= truth <= high for low, high in seen)
        first, second, _ = self.moments(s["hits"] - value)
        return {**found, "normal, peeked": bool((np.abs(first) > Z * np.sqrt(second)).any())}

    def moments(self, gains: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Σ g, Σ g² and Σ g³ over the buckets at each look, where g is the sum of a bucket."""
        total = np.concatenate([[0.0], np.cumsum(gains[self.order])])
        after, before = total[1:] - total[self.first], total[:-1] - total[self.first]
        look = LOOK[self.order]
        powers = [after - before, after * after - before * before, after * after * after - before * before * before]
        first, second, third = (np.cumsum(np.bincount(look, each, LOOKS)) for each in powers)
        return first, second, third

    def _at_most(self, scores: FloatArray, mean: float, shift: float = 0.0, floor: float = 0.0) -> FloatArray:
        """An upper bound on the logarithm of the capital at each look: log(1 + x) ≤ x − x²/2 + x³/3."""
        grid = np.minimum(2.0**EXPONENTS, SAFE / (self.largest * (floor + 1 + shift))[:, None])
        first, second, third = (each[:, None] for each in self.moments(scores - mean))
        return mixed(grid * first - grid**2 * second / 2 + grid**3 * third / 3)

    def interval(self, kind: str, look: int) -> tuple[float, float]:
        """The interval of the library at a look, counted from 0."""
        so_far = slice(0, (look + 1) * EVERY)
        rounds = np.bincount(self.bucket[so_far], minlength=BUCKETS)
        used = rounds > 0
        units = {
            name: UnitScores(np.bincount(self.bucket[so_far], each[so_far], BUCKETS)[used], rounds[used].astype(float))
            for name, each in self.stream.scores.items()
        }
        return intervals(units, spent(ALPHA, look + 1))[kind]


def intervals(s: dict[str, Any], alpha: float) -> dict[str, tuple[float, float]]:
    """Those of the value and of the lift."""
    lift = Gains(s["gains"], s["ahead"], s["behind"], reference=True)
    return {"value": Earnings(s["hits"], s["misses"]).ends(alpha, None), "lift": lift.ends(alpha, None)}


def streams(count: int, names: Sequence[str]) -> None:
    for name in names or WORLDS:
        before = saved().get(name, {"streams": 0, "missed": {}})
        done, counts = before["streams"], dict(before["missed"])
        while done < count:
            for seed in range(done, min(done + STEP, count)):
                for kind, miss in missed(WORLDS[name](np.random.default_rng([seed, 24]))).items():
                    counts[kind] = counts.get(kind, 0) + miss
            done = min(done + STEP, count)
            save(name, {"streams": done, "rounds": ROUNDS, "looks": LOOKS, "missed": counts})


def monitored(count: int) -> None:
    """Streams of every world through a monitor, as 20 logs each: its bounds are those of the sums."""
    logs, farthest, misses = 20, 0.0, 0
    for world in WORLDS.values():
        for seed in range(count):
            stream = world(np.random.default_rng([seed, 24]))
            for k, own in enumerate(watched(stream, logs), start=1):
                n = k * ROUNDS // logs
                part = {kind: scores[:n] for kind, scores in stream.scores.items()}
                alpha = ALPHA if stream.user is None else spent(ALPHA, k)
                expected = intervals(_scored(part, None if stream.user is None else stream.user[:n]), alpha)
                ours = {"value": (own.low, own.high), "lift": (own.difference_low, own.difference_high)}
                for kind, truth in (("value", stream.value), ("lift", stream.lift)):
                    farthest = max(farthest, float(np.abs(np.subtract(ours[kind], expected[kind])).max()))
                    misses += not ours[kind][0] <= truth <= ours[kind][1]
        save("monitor", {"streams": count * len(WORLDS), "logs": logs, "largest difference": farthest, "misses": misses})


def _scored(scores: dict[str, FloatArray], user: IntArray | None) -> dict[str, SequenceScores]:
    if user is None:
        return {name: IndependentScores(_bins(each)) for name, each in scores.items()}
    bucket = buckets(hash_values(pa.array(user)), 0)
    rounds = np.bincount(bucket, minlength=BUCKETS)
    used = rounds > 0
    return {
        name: UnitScores(np.bincount(bucket, each, BUCKETS)[used], rounds[used].astype(float))
        for name, each in scores.items()
    }


def watched(stream: Stream, logs: int) -> list[Any]:
    """What a monitor sees at each look."""
    propensity = np.where(stream.weight > 1, 0.5 / np.maximum(stream.weight, 1), 0.5)
    columns = {"x": np.zeros(ROUNDS), "item": (stream.weight > 1) * 1, "r": stream.reward, "p": propensity}
    columns |= {"new": stream.weight * propensity, "round": np.arange(ROUNDS)}
    columns |= {} if stream.user is None else {"user": stream.user}
    frame, seen = pa.table(columns), op.Monitor({"new": op.Column("new")}, estimators=op.IPS(), reward_range=(0, 1))
    cluster, row_id = (None, "round") if stream.user is None else ("user", None)
    for part in np.split(np.arange(ROUNDS), logs):
        log = op.read_log(
            frame.take(part), context="x", action="item", reward="r", propensity="p", cluster=cluster, row_id=row_id,
            actions=op.Discrete(2),
        )  # fmt: skip
        seen.update(log)
    return [look.policies["new"] for look in seen.looks]


def widths(count: int) -> None:
    """At the end of streams with good overlap: the width of the sequence over that of the normal interval of IPS."""
    ratios = []
    for seed in range(count):
        scores = good(np.random.default_rng([seed, 7])).scores
        low, below = (lower_bound(BinnedCapital(_bins(scores[kind])), ALPHA / 2, 0, 1) for kind in ("hits", "misses"))
        ratios.append((1 - below - low) / (2 * Z * scores["hits"].std() / np.sqrt(ROUNDS)))
    save("width over normal", {"streams": count, "mean": float(np.mean(ratios)), "largest": float(np.max(ratios))})
    of_users = []
    for seed in range(count):
        units = Units.of(users(np.random.default_rng([seed, 7])))
        low, high = units.interval("value", LOOKS - 1)
        error = np.sqrt(units.moments(units.stream.scores["hits"] - units.stream.value)[1][-1]) / ROUNDS
        of_users.append((high - low) / (2 * Z * error))
    save(
        "width over normal, users", {"streams": count, "mean": float(np.mean(of_users)), "largest": float(np.max(of_users))}
    )


def _bins(scores: FloatArray) -> Bins:
    return Bins.of(SignedHistogram.fold(SignedHistogram.zero(), scores))


if __name__ == "__main__":
    what, *more = sys.argv[1:] or ["2000"]
    if what == "monitor":
        monitored(int(more[0]) if more else 5)
    elif what == "widths":
        widths(int(more[0]) if more else 20)
    else:
        streams(int(what), more)

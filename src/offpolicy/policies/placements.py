"""Where an item stands in a Plackett–Luce ranking: the probability of each slot, whatever the other slots hold.

Let every item arrive after an exponential time with rate v_a: the order of arrival is a Plackett–Luce ranking. So

    P(a in slot k) = ∫ v_a e^{−v_a t} · P(exactly k − 1 of the other items arrived before t) dt,

where the number of arrivals is a sum of independent indicators, whose distribution takes one pass over the items. In
y = log t the integrand is smooth and falls off at both ends, so that the trapezoidal rule converges exponentially: at the
step used here its error is below 1e-6 of a probability, without random draws.
"""

from __future__ import annotations

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.policies.blocks import even_slices

STEP = 0.4  # of y = log t
EARLY, LATE = 1e-9, 50.0  # how many arrivals to start from; by when an item that matters has arrived, in its own time
ELEMENTS = 1 << 20  # of the arrays of one block
CACHED, TOGETHER = 1 << 18, 100  # elements, and rounds, of blocks that stay in the cache
NEGLIGIBLE = 1e-10  # the probability that slots are still free, below which nothing is placed
COARSE = 4  # nodes between two looks at whether slots are full
PLENTY = 4  # how many times as many items as slots must have come


def marginals_without_replacement(values: FloatArray, codes: IntArray) -> FloatArray:
    """Rounds × slots: the probability that the logged item stands in its slot; 1 where a list has no item.

    Parameters
    ----------
    values : array of float
        Rounds × items: rates v_a, which need not sum to 1.
    codes : array of int
        Rounds × slots: the items of each list, −1 where there is none.
    """
    out = _of_logged(values, codes, every=False)
    out[codes < 0] = 1.0
    return out


def placements_without_replacement(values: FloatArray, codes: IntArray) -> FloatArray:
    """Rounds × slots × slots: the probability that the item logged in slot k stands in slot j; 0 where there is none.

    Parameters
    ----------
    values : array of float
        Rounds × items: rates v_a, which need not sum to 1.
    codes : array of int
        Rounds × slots: the items of each list, −1 where there is none.
    """
    return _of_logged(values, codes, every=True)


def _of_logged(values: FloatArray, codes: IntArray, every: bool) -> FloatArray:
    """For each logged item, the probability of its slot, or of `every` slot."""
    out = np.empty((*codes.shape, codes.shape[1]) if every else codes.shape)
    rates = values / values.sum(axis=1, keepdims=True)
    times = _times(rates, codes)
    size = max(1, CACHED // (times.shape[1] * (codes.shape[1] + 2)))
    for start in range(0, len(codes), size):
        rows = slice(start, start + size)
        out[rows] = _integrated(rates[rows], codes[rows], times[rows], every)
    return out


def all_marginals(values: FloatArray, slots: int) -> FloatArray:
    """Slots × rounds × items: the probability of every item in every slot.

    The others of an item are all items less that one. Where it has almost surely arrived, taking it out again would lose all
    digits; but while slots are free this holds of few items, and for the largest ones the others are summed directly.
    """
    rates = values / values.sum(axis=1, keepdims=True)
    out = np.empty((slots, *rates.shape))
    nodes = 100  # about as many as there are at most
    for rows in even_slices(len(rates), max(-(-rates.size * nodes // ELEMENTS), -(-len(rates) // TOGETHER))):
        order = np.argsort(-rates[rows], axis=1)
        placed = _placed(np.take_along_axis(rates[rows], order, axis=1), slots)
        np.put_along_axis(out[:, rows], order[None], placed, axis=2)
    return out


def _placed(rates: FloatArray, slots: int) -> FloatArray:
    """Slots × rounds × items, where the items of each round are sorted, the largest rate first."""
    few = min(rates.shape[1], 2 * slots + 8)
    t = _until_full(rates, slots)
    stay = np.exp(-rates.T[:, :, None] * t)  # items × rounds × nodes
    density = STEP * t * rates.T[:, :, None] * stay
    nothing = np.zeros((slots, *t.shape))
    nothing[0] = 1.0
    before, after = [nothing], [nothing.copy()]  # the counts of the first few items, from either end; then of the small ones
    for k in range(few):
        before.append(_with(before[-1], stay[k]))
    for each in stay[few:]:
        after[0] = _with(after[0], each, after[0])
    for k in range(few - 1, -1, -1):
        after.append(_with(after[-1], stay[k]))
    after.reverse()  # after[k]: of item k and those behind it
    placed = np.empty((slots, *rates.shape))
    for a in range(few):
        for k in range(slots):
            others = sum(before[a][j] * after[a + 1][k - j] for j in range(k + 1))
            placed[k, :, a] = (others * density[a]).sum(axis=1)
    both = before[-1] if few == rates.shape[1] else after[0]
    relevant = both.sum(axis=0) > NEGLIGIBLE
    for a in range(few, rates.shape[1]):
        keep, q = np.maximum(stay[a], 1e-300), np.zeros(t.shape)
        for k in range(slots):
            q = (both[k] - (1 - keep) * q) / keep
            placed[k, :, a] = (np.where(relevant, np.clip(q, 0.0, 1.0), 0.0) * density[a]).sum(axis=1)
    return placed


def _until_full(rates: FloatArray, slots: int) -> FloatArray:
    """Rounds × nodes: from before any arrival to when more items have come than there are slots, or all of them."""
    least = np.where(rates > 0, rates, 1.0).min(initial=1.0)
    y = np.log(EARLY) + STEP * np.arange(int(np.ceil((np.log(LATE / least) - np.log(EARLY)) / STEP)) + 1)
    for k in range(0, len(y), COARSE):
        if (1 - np.exp(-rates * np.exp(y[k]))).sum(axis=1).min() > PLENTY * slots + 2 * PLENTY * PLENTY:
            return np.tile(np.exp(y[: k + 1]), (len(rates), 1))
    return np.tile(np.exp(y), (len(rates), 1))


def _with(counts: FloatArray, stay: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """One more item, which has not arrived with probability `stay`."""
    if out is None:
        return np.concatenate([counts[:1] * stay, counts[1:] * stay + (1 - stay) * counts[:-1]])
    for j in range(len(counts) - 1, 0, -1):
        counts[j] *= stay
        counts[j] += (1 - stay) * counts[j - 1]
    counts[0] *= stay
    return counts


def _times(rates: FloatArray, codes: IntArray) -> FloatArray:
    """Rounds × nodes: log-times from before any arrival to when all logged items have come."""
    logged = np.where(codes >= 0, np.take_along_axis(rates, np.maximum(codes, 0), axis=1), 1.0)
    slowest = np.where(logged > 0, logged, 1.0).min(axis=1)
    first, last = np.log(EARLY), np.log(LATE / slowest)
    nodes: FloatArray = first + STEP * np.arange(int(np.ceil((last.max(initial=1.0) - first) / STEP)) + 1)
    return np.tile(nodes, (len(rates), 1))


def _integrated(rates: FloatArray, codes: IntArray, y: FloatArray, every: bool) -> FloatArray:
    """The trapezoidal rule over y."""
    t, slots = np.exp(y), codes.shape[1]
    own = np.where(codes >= 0, np.take_along_axis(rates, np.maximum(codes, 0), axis=1), 0.0)
    others = rates.copy()
    for code in codes.T:
        some = np.flatnonzero(code >= 0)
        others[some, code[some]] = 0.0
    not_logged = np.zeros((slots, *t.shape))  # the probability that exactly j of them have arrived by t
    not_logged[0] = 1.0
    for rate in others.T:
        _add(not_logged, rate, t)
    out = np.empty((*codes.shape, slots) if every else codes.shape)
    for k in range(slots):
        arrived = not_logged[: slots if every else k + 1].copy()
        for j in range(slots):
            if j != k:
                _add(arrived, own[:, j], t)
        rate = own[:, k : k + 1]
        density = STEP * t * rate * np.exp(-rate * t)
        out[:, k] = np.einsum("jnt,nt->nj", arrived, density) if every else (density * arrived[k]).sum(axis=1)
    return out


def _add(counts: FloatArray, rate: FloatArray, t: FloatArray) -> None:
    """One more item that may have arrived, in place."""
    if not rate.any():
        return
    stay = np.exp(-rate[:, None] * t)
    come = 1 - stay
    for j in range(len(counts) - 1, 0, -1):
        counts[j] *= stay
        counts[j] += come * counts[j - 1]
    counts[0] *= stay

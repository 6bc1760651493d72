"""Where an item stands in a Plackett–Luce ranking: the probability of each slot, whatever the other slots hold.

Let every item arrive after an exponential time with rate v_a: the order of arrival is a Plackett–Luce ranking. So

    P(a in slot k) = ∫ v_a e^{−v_a t} · P(exactly k − 1 of the other items arrived before t) dt,

where the number of arrivals is a sum of independent indicators, whose distribution takes one pass over the items. In
y = log t the integrand is smooth and falls off at both ends, so that the trapezoidal rule converges exponentially: at the
step used here its error is below 1e-7 of a probability, without random draws.
"""

from __future__ import annotations

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray

STEP = 0.4  # of y = log t
EARLY, LATE = 1e-9, 50.0  # how many arrivals to start from; by when an item that matters has arrived, in its own time
ELEMENTS = 1 << 20  # of the arrays of one block


def marginals_without_replacement(values: FloatArray, codes: IntArray) -> FloatArray:
    """Rounds × slots: the probability that the logged item stands in its slot; 1 where a list has no item.

    Parameters
    ----------
    values : array of float
        Rounds × items: rates v_a, which need not sum to 1.
    codes : array of int
        Rounds × slots: the items of each list, −1 where there is none.
    """
    out = np.ones(codes.shape)
    rates = values / values.sum(axis=1, keepdims=True)
    times = _times(rates, codes)
    size = max(1, ELEMENTS // (times.shape[1] * (codes.shape[1] + 2)))
    for start in range(0, len(codes), size):
        rows = slice(start, start + size)
        out[rows] = _integrated(rates[rows], codes[rows], times[rows])
    out[codes < 0] = 1.0
    return out


def _times(rates: FloatArray, codes: IntArray) -> FloatArray:
    """Rounds × nodes: log-times from before any arrival to when all logged items have come."""
    logged = np.where(codes >= 0, np.take_along_axis(rates, np.maximum(codes, 0), axis=1), 1.0)
    slowest = np.where(logged > 0, logged, 1.0).min(axis=1)
    first, last = np.log(EARLY), np.log(LATE / slowest)
    nodes: FloatArray = first + STEP * np.arange(int(np.ceil((last.max(initial=1.0) - first) / STEP)) + 1)
    return np.tile(nodes, (len(rates), 1))


def _integrated(rates: FloatArray, codes: IntArray, y: FloatArray) -> FloatArray:
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
    out = np.empty(codes.shape)
    for k in range(slots):
        arrived = not_logged[: k + 1].copy()
        for j in range(slots):
            if j != k:
                _add(arrived, own[:, j], t)
        rate = own[:, k : k + 1]
        out[:, k] = STEP * (t * rate * np.exp(-rate * t) * arrived[k]).sum(axis=1)
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

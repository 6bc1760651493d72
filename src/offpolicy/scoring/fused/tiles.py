"""The fused kernel, in Triton: one sweep over the actions for each tile of rounds, with running sums in registers.

A tile of scores is the product of two small tables. Three exponentials per round and action give both policies and the share
of an action, and everything that is summed is a product of these and of predictions, so that no score leaves the chip.
Exponentials are powers of 2: scores and shifts come multiplied by log2(e).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _table(right, right_extra, bias, extra, left, cols, inside, LAST: tl.constexpr, K: tl.constexpr, EXTRA: tl.constexpr,
           BIAS: tl.constexpr, DIGITS: tl.constexpr, KIND: tl.constexpr):  # fmt: skip
    """left · right + extra · right_extra + bias, for a tile of actions."""
    at = right + cols[None, :] * K + tl.arange(0, K)[:, None]
    table = tl.load(at, mask=inside[None, :], other=0.0) if LAST else tl.load(at)
    out = tl.dot(left, table, input_precision=DIGITS, out_dtype=KIND)
    if EXTRA:
        out += extra[:, None] * tl.load(right_extra + cols, mask=inside, other=0.0)[None, :]
    if BIAS:
        out += tl.load(bias + cols, mask=inside, other=0.0)[None, :]
    return out


@triton.jit
def _exponential(scores, top, inside, LAST: tl.constexpr):
    """2^(scores − top), the top so far, and the factor by which earlier sums shrink."""
    if LAST:
        scores = tl.where(inside[None, :], scores, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, axis=1))
    return tl.exp2(scores - higher[:, None]), higher, tl.exp2(top - higher)


@triton.jit
def _rows(left, extra, rows, K: tl.constexpr, EXTRA: tl.constexpr, zero):
    """The left factors of a tile of rounds."""
    factors = tl.load(left + rows[:, None] * K + tl.arange(0, K)[None, :])
    last = zero
    if EXTRA:
        last = tl.load(extra + rows)
    return factors, last


@triton.jit
def _step(
    first, actions,
    left1, extra1, right1, right_extra1,
    left0, extra0, right0, right_extra0,
    left_a, extra_a, shift_a, right_a, right_extra_a, bias_a,
    left_b, extra_b, shift_b, right_b, right_extra_b, bias_b,
    left_p, extra_p, right_p, right_extra_p,
    left_q, extra_q, right_q, right_extra_q,
    top1, top0, sum1, sum0, above_a, below_a, above_b, below_b, base_p, base_q,
    LAST: tl.constexpr, LOGGING: tl.constexpr, POOLS: tl.constexpr, MODELS: tl.constexpr,
    K1: tl.constexpr, K0: tl.constexpr, KZ: tl.constexpr, KX: tl.constexpr,
    E1: tl.constexpr, E0: tl.constexpr, EZ: tl.constexpr, EX: tl.constexpr,
    N: tl.constexpr, DIGITS: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """One tile of actions."""
    cols = first + tl.arange(0, N)
    inside = cols < actions
    scores = _table(right1, right_extra1, right1, extra1, left1, cols, inside, LAST, K1, E1, False, DIGITS, KIND)
    e1, top1, shrunk = _exponential(scores, top1, inside, LAST)
    sum1 = sum1 * shrunk + tl.sum(e1, axis=1)
    above_a *= shrunk
    above_b *= shrunk
    base_p *= shrunk
    base_q *= shrunk
    if MODELS > 0:
        q = _table(right_p, right_extra_p, right_p, extra_p, left_p, cols, inside, LAST, KX, EX, False, DIGITS, KIND)
        base_p += tl.sum(e1 * q, axis=1)
    if MODELS > 1:
        q = _table(right_q, right_extra_q, right_q, extra_q, left_q, cols, inside, LAST, KX, EX, False, DIGITS, KIND)
        base_q += tl.sum(e1 * q, axis=1)
    if LOGGING:
        scores = _table(right0, right_extra0, right0, extra0, left0, cols, inside, LAST, K0, E0, False, DIGITS, KIND)
        e0, top0, shrunk = _exponential(scores, top0, inside, LAST)
        sum0 = sum0 * shrunk + tl.sum(e0, axis=1)
        below_a *= shrunk
        below_b *= shrunk
        if POOLS > 0:
            scores = _table(
                right_a, right_extra_a, bias_a, extra_a, left_a, cols, inside, LAST, KZ, EZ, True, DIGITS, KIND
            )  # fmt: skip
            share = tl.exp2(scores - shift_a[:, None])
            above_a += tl.sum(e1 * share, axis=1)
            below_a += tl.sum(e0 * share, axis=1)
        if POOLS > 1:
            scores = _table(
                right_b, right_extra_b, bias_b, extra_b, left_b, cols, inside, LAST, KZ, EZ, True, DIGITS, KIND
            )  # fmt: skip
            share = tl.exp2(scores - shift_b[:, None])
            above_b += tl.sum(e1 * share, axis=1)
            below_b += tl.sum(e0 * share, axis=1)
    return top1, top0, sum1, sum0, above_a, below_a, above_b, below_b, base_p, base_q


@triton.jit
def sweep(
    starts, stops, slots, out, rounds, actions,
    left_1, extra_1, right_1, right_extra_1,
    left_0, extra_0, right_0, right_extra_0,
    left_a, extra_a, right_a, right_extra_a, bias_a, shift_a,
    left_b, extra_b, right_b, right_extra_b, bias_b, shift_b,
    left_p, extra_p, right_p, right_extra_p,
    left_q, extra_q, right_q, right_extra_q,
    LOGGING: tl.constexpr, POOLS: tl.constexpr, MODELS: tl.constexpr,
    K1: tl.constexpr, K0: tl.constexpr, KZ: tl.constexpr, KX: tl.constexpr,
    E1: tl.constexpr, E0: tl.constexpr, EZ: tl.constexpr, EX: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DIGITS: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """One tile of rounds against all actions; then one row of `out` for each sum."""
    tile = tl.program_id(0)
    rows = tl.load(starts + tile) + tl.arange(0, M)
    there = rows < tl.load(stops + tile)
    rows = tl.where(there, rows, 0).to(tl.int64)
    slots += tile * (POOLS + MODELS)
    zero = tl.zeros([M], KIND)
    u1, ue1 = _rows(left_1, extra_1, rows, K1, E1, zero)
    u0, ue0 = u1, ue1
    za, zea, ta, zb, zeb, tb = u1, ue1, zero, u1, ue1, zero
    xp, xep, xq, xeq = u1, ue1, u1, ue1
    if LOGGING:
        u0, ue0 = _rows(left_0, extra_0, rows, K0, E0, zero)
    if POOLS > 0:
        za, zea = _rows(left_a, extra_a, rows, KZ, EZ, zero)
        ta = tl.load(shift_a + rows)
        slot = tl.load(slots).to(tl.int64) * actions
        right_a, right_extra_a, bias_a = right_a + slot * KZ, right_extra_a + slot * EZ, bias_a + slot
    if POOLS > 1:
        zb, zeb = _rows(left_b, extra_b, rows, KZ, EZ, zero)
        tb = tl.load(shift_b + rows)
        slot = tl.load(slots + 1).to(tl.int64) * actions
        right_b, right_extra_b, bias_b = right_b + slot * KZ, right_extra_b + slot * EZ, bias_b + slot
    if MODELS > 0:
        xp, xep = _rows(left_p, extra_p, rows, KX, EX, zero)
        slot = tl.load(slots + POOLS).to(tl.int64) * actions
        right_p, right_extra_p = right_p + slot * KX, right_extra_p + slot * EX
    if MODELS > 1:
        xq, xeq = _rows(left_q, extra_q, rows, KX, EX, zero)
        slot = tl.load(slots + POOLS + 1).to(tl.int64) * actions
        right_q, right_extra_q = right_q + slot * KX, right_extra_q + slot * EX
    top1, top0 = zero - float("inf"), zero - float("inf")
    sum1, sum0, above_a, below_a, above_b, below_b, base_p, base_q = zero, zero, zero, zero, zero, zero, zero, zero
    whole = actions // N * N
    for first in range(0, whole, N):
        top1, top0, sum1, sum0, above_a, below_a, above_b, below_b, base_p, base_q = _step(
            first, actions, u1, ue1, right_1, right_extra_1, u0, ue0, right_0, right_extra_0,
            za, zea, ta, right_a, right_extra_a, bias_a, zb, zeb, tb, right_b, right_extra_b, bias_b,
            xp, xep, right_p, right_extra_p, xq, xeq, right_q, right_extra_q,
            top1, top0, sum1, sum0, above_a, below_a, above_b, below_b, base_p, base_q,
            False, LOGGING, POOLS, MODELS, K1, K0, KZ, KX, E1, E0, EZ, EX, N, DIGITS, KIND,
        )  # fmt: skip
    if whole < actions:  # the last, partial tile is the only one that is masked
        top1, top0, sum1, sum0, above_a, below_a, above_b, below_b, base_p, base_q = _step(
            whole, actions, u1, ue1, right_1, right_extra_1, u0, ue0, right_0, right_extra_0,
            za, zea, ta, right_a, right_extra_a, bias_a, zb, zeb, tb, right_b, right_extra_b, bias_b,
            xp, xep, right_p, right_extra_p, xq, xeq, right_q, right_extra_q,
            top1, top0, sum1, sum0, above_a, below_a, above_b, below_b, base_p, base_q,
            True, LOGGING, POOLS, MODELS, K1, K0, KZ, KX, E1, E0, EZ, EX, N, DIGITS, KIND,
        )  # fmt: skip
    out += rows
    tl.store(out, top1 + tl.log2(sum1), mask=there)
    if LOGGING:
        tl.store(out + rounds, top0 + tl.log2(sum0), mask=there)
    if POOLS > 0:
        tl.store(out + 2 * rounds, above_a / sum1, mask=there)
        tl.store(out + (2 + POOLS) * rounds, below_a / sum0, mask=there)
    if POOLS > 1:
        tl.store(out + 3 * rounds, above_b / sum1, mask=there)
        tl.store(out + (3 + POOLS) * rounds, below_b / sum0, mask=there)
    if MODELS > 0:
        tl.store(out + (2 + 2 * POOLS) * rounds, base_p / sum1, mask=there)
    if MODELS > 1:
        tl.store(out + (3 + 2 * POOLS) * rounds, base_q / sum1, mask=there)

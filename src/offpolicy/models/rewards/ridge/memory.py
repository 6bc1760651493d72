"""The memory that `Ridge` needs: sums by action, and room to solve in."""

from __future__ import annotations

from offpolicy.core.memory import Need
from offpolicy.data.batch import CHUNK_ROWS
from offpolicy.models.rewards.base import FitShape
from offpolicy.models.rewards.ridge.packed import ACTIONS_FOR_COVARIANCE, BLOCK_NUMBERS
from offpolicy.statistics.gram import DENSE


def ridge_needs(shape: FitShape, threads: int, at_once: bool) -> tuple[Need, ...]:
    """`at_once`: whether all actions are solved together, as features ask for, and not a block at a time."""
    return _sums(shape, threads), _solving(shape, threads, at_once)


def _sums(shape: FitShape, threads: int) -> Need:
    d, r = shape.context, shape.rewards
    numbers = 1 + d + r + r * (d + 1) + (1 if shape.shared else d * (d + 1) // 2)
    keys = shape.groups * shape.n_actions
    part = keys if DENSE * keys <= CHUNK_ROWS else CHUNK_ROWS
    return Need(
        "sums by action for the reward model", 8.0 * numbers * (keys + (threads + 1) * part),
        f"{shape.groups} {'groups' if shape.jackknife else 'folds'} × {shape.n_actions:,} actions × {numbers} numbers × 8 "
        f"bytes and those of {threads + 1} parts of the log",
    )  # fmt: skip


def _solving(shape: FitShape, threads: int, at_once: bool) -> Need:
    """Full matrices: of everything where there are refits, or where features need all actions at once."""
    full = (shape.context + 1) ** 2 + 2 * shape.context + 3
    if shape.jackknife:
        copies = 4 * shape.groups + 10 + 4 * threads  # as benchmarks.growth context measured
    elif at_once:
        copies = 3 * shape.groups + 4 * threads
    else:
        chosen = min(shape.n_actions, 2 * ACTIONS_FOR_COVARIANCE)
        blocks = BLOCK_NUMBERS * 8 * threads + 2 * (shape.groups + 1) * chosen * full
        told = f"blocks of actions, and up to {chosen:,} actions to choose the penalty"
        return Need("solving", 8.0 * blocks, told, in_turn=True)
    return Need(
        "full matrices for solving", 8.0 * full * shape.n_actions * shape.rewards * copies,
        f"{shape.n_actions:,} actions × {full} numbers × {copies} copies × 8 bytes", in_turn=True, covers="solving",
    )  # fmt: skip

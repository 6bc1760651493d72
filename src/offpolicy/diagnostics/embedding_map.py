"""A map of the actions by their embeddings, as plain values."""

from __future__ import annotations

from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.models.embedding_table import EmbeddingTable
from offpolicy.models.posteriors.nearest_actions import nearest_of

NEIGHBOURS = 5


def map_view(estimator: str, table: EmbeddingTable, shown: int, seed: int) -> dict[str, Any]:
    """The actions along the two principal axes of their embeddings, weighted by rounds."""
    codes, chosen = _chosen(table.counts, shown, seed)
    places, explained = _principal(table.scaled, table.counts)
    near = _nearest(table, codes)
    points = [
        {
            "action": str(table.actions[k]),
            "count": float(table.counts[k]),
            "reward": None if table.reward is None else float(table.reward[k]),
            "x": float(places[k, 0]),
            "y": float(places[k, 1]),
            "nearest": [str(table.actions[other]) for other in others],
        }
        for k, others in zip(codes, near, strict=True)
    ]
    return {
        "estimator": estimator,
        "actions": len(table),
        "logged": int((table.counts > 0).sum()),
        "dimensions": int(table.scaled.shape[1]),
        "explained": explained,
        "chosen": chosen,
        "points": points,
    }


def _chosen(counts: FloatArray, shown: int, seed: int) -> tuple[IntArray, str]:
    """All actions; or half of them the most often logged, half a random sample of other logged actions."""
    if len(counts) <= shown:
        return np.arange(len(counts)), f"all {len(counts):,}"
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    if len(order) <= shown:
        return np.sort(order), f"the {len(order):,} of {len(counts):,} that were logged"
    often = shown // 2
    rest = np.random.default_rng(seed % 2**63).choice(order[often:], shown - often, replace=False)
    chosen = f"the {often:,} most often logged of {len(counts):,}, and {shown - often:,} other logged ones at random"
    return np.sort(np.concatenate([order[:often], rest])), chosen


def _principal(points: FloatArray, counts: FloatArray) -> tuple[FloatArray, float]:
    """Actions × 2, and the share of variance explained by the two axes. Each axis points towards its largest loading."""
    points = np.where(np.isfinite(points).all(axis=1, keepdims=True), points, 0.0)
    share = counts / max(float(counts.sum()), 1e-300)
    centred = points - share @ points
    values, vectors = np.linalg.eigh((centred * share[:, None]).T @ centred)
    axes = vectors[:, ::-1][:, :2]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), range(axes.shape[1])])
    places = np.zeros((len(points), 2))
    places[:, : axes.shape[1]] = centred @ axes
    total = float(values.sum())
    return places, float(values[::-1][:2].sum()) / total if total > 0 else 1.0


def _nearest(table: EmbeddingTable, codes: IntArray) -> list[list[int]]:
    """The nearest logged actions of each of the given actions, excluding itself."""
    logged = np.flatnonzero(table.counts > 0)
    nearest = logged[nearest_of(table.scaled[logged], table.scaled[codes], min(NEIGHBOURS + 1, len(logged)))]
    distance = ((table.scaled[nearest] - table.scaled[codes][:, None]) ** 2).sum(axis=2)
    nearest = np.take_along_axis(nearest, np.argsort(distance, axis=1, kind="stable"), axis=1)
    return [[int(k) for k in row if k != own][:NEIGHBOURS] for own, row in zip(codes, nearest, strict=True)]

"""Clusters of actions with like embeddings."""

from __future__ import annotations

import warnings

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError


def clusters_of(name: str, points: FloatArray, counts: FloatArray, wanted: int | tuple[int, ...]) -> IntArray:
    """The cluster of each action. Actions never logged go to the nearest cluster of logged ones."""
    if isinstance(wanted, tuple):
        if len(wanted) != len(points):
            raise InputError(f"{name}: clusters has {len(wanted)} labels for {len(points)} actions; give one an action.")
        return np.unique(wanted, return_inverse=True)[1].astype(np.int64)
    count = wanted
    if count >= len(points):
        return np.arange(len(points))
    from sklearn.cluster import KMeans

    logged = np.flatnonzero(counts > 0)
    if not len(logged):
        return np.zeros(len(points), np.int64)
    distinct = len(np.unique(points[logged], axis=0))
    means = KMeans(min(count, distinct), n_init=4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct points than clusters: then there are fewer clusters
        means.fit(points[logged], sample_weight=counts[logged])
    cluster: IntArray = np.unique(means.predict(points), return_inverse=True)[1].astype(np.int64)
    return cluster

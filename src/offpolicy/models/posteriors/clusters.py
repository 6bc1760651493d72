"""`Clusters`: p(e|a) is 1 for the actions in the same cluster of embeddings, else 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offpolicy.models.embedding_table import Affine, Embedding
from offpolicy.models.posteriors.base import Known, Pooling, Posterior
from offpolicy.models.rewards.two_step import clusters_of


@dataclass(frozen=True)
class Clusters(Posterior):
    """At most `clusters` clusters by k-means on the embeddings, weighted by the rounds of each action; or one label each."""

    clusters: int | tuple[int, ...]
    scale: bool = True
    exact = True
    smooth = False

    @property
    def fitted(self) -> bool:
        return not isinstance(self.clusters, tuple)

    def fit(self, name: str, embedding: Embedding, affine: Affine, known: Known) -> Pooling:  # noqa: ARG002
        cluster = clusters_of(name, affine(embedding.table), embedding.counts, self.clusters)
        count = int(cluster.max()) + 1
        members = np.equal.outer(np.arange(count), cluster).astype(np.float64)
        nothing = np.empty((len(cluster), 0)), np.zeros(len(cluster))
        return Pooling("ratio", embedding, affine, *nothing, groups=(cluster, members), details={"clusters": count})

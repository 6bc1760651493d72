"""Posteriors: from embeddings, how much each action speaks for a round."""

from offpolicy.posteriors.base import Known, Pooling, Posterior
from offpolicy.posteriors.categorical import Categorical, Exact
from offpolicy.posteriors.clusters import Clusters
from offpolicy.posteriors.gaussian import Gaussian
from offpolicy.posteriors.logistic import Logistic

__all__ = ["Categorical", "Clusters", "Exact", "Gaussian", "Known", "Logistic", "Pooling", "Posterior"]

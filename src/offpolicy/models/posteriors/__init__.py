"""Posteriors: from embeddings, how much each action speaks for a round."""

from offpolicy.models.posteriors.base import Known, Pooling, Posterior
from offpolicy.models.posteriors.categorical import Categorical, Exact
from offpolicy.models.posteriors.clusters import Clusters
from offpolicy.models.posteriors.gaussian import Gaussian
from offpolicy.models.posteriors.logistic import Logistic

__all__ = ["Categorical", "Clusters", "Exact", "Gaussian", "Known", "Logistic", "Pooling", "Posterior"]

"""What is fitted to a log: reward models, posteriors p(a|e), embeddings, propensities."""

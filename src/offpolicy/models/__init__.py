"""What is fitted: reward models, posteriors p(a|e), embeddings, propensities."""

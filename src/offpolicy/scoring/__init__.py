"""The one pass that scores every estimator for every policy."""

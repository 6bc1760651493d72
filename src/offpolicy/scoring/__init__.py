"""The pass that fits everything, and the pass that scores every estimator for every policy."""

"""Ridge regression by action, from Gram sums."""

"""Who reads the log: threads on one machine, Spark, or either on a resampled log."""

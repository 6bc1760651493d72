"""Reward models q(x, a), all fitted in one pass over the log, on all rounds and without each fold."""

"""Reward models q(x, a): fitted in the one fit pass, for the whole log and without each fold."""

"""Trials: what no test has the time for. Commands that are killed again and again, and many evaluations at once."""

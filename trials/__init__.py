"""Trials that take too long for a test: commands that are killed again and again, and many evaluations at once."""

"""The answer, and the calls that give it."""

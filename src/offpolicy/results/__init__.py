"""The answer as an object, and the calls that give it."""

"""Errors, arrays, hashing, threads, memory, progress and files: everything that does not depend on bandits."""

"""Errors, arrays, hashing, threads, memory, progress and files. Knows nothing of bandits."""

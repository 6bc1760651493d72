"""Benchmarks: every figure is a ratio to a stated other side, measured in the same run."""

"""Benchmarks: every figure is a ratio to a stated baseline, measured in the same run."""

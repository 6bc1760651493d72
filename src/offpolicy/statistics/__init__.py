"""Mergeable statistics: `zero`, `fold`, `merge`, `finish`, with states of plain arrays."""

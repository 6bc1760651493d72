"""Command lines of `simulate`, `embed`, `bench` and `reproduce`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from fuzz.commands import PATHS, in_process, judge_ended, place
from fuzz.judging import Verdict
from fuzz.values import ODD_NUMBERS, hurts

OTHERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "simulate": (
        ("SCRATCH/s.parquet", "--rounds", "5", "--actions", "3"),
        ("--rounds", "--actions", "--overlap", "--seed", "--clicks"),
    ),
    "embed": (
        ("log.parquet", "--out", "SCRATCH/e.parquet", "--context", "x", "--action", "item", "--reward", "click"),
        (
            "--rank",
            "--penalty",
            "--seed",
            "--threads",
            "--memory",
            "--n-actions",
            "--actions",
            "--weight",
            "--cluster",
            "--features",
            "--catalog",
            "--inputs",
            "--out",
        ),
    ),
    "bench": (
        ("--world", "no-such-world"),
        ("--world", "--estimator", "--add", "--half", "--rounds", "--runs", "--processes", "--data", "--openml", "--out"),
    ),
    "reproduce": (("no-such-experiment",), ("--worlds", "--logs", "--processes", "--data", "--out", "--quick")),
}
"""Commands besides `evaluate`, at sizes that take no time (the last two are refused), and options to corrupt them with."""
FEW = tuple(each for each in ODD_NUMBERS if each not in ("9223372036854775808", "1" * 30))
"""Without the numbers that would rightly use up all memory or time."""


@dataclass(frozen=True)
class Other:
    """A command other than `evaluate`."""

    arguments: Sequence[str]
    certain: bool

    def judge(self) -> Verdict:
        with tempfile.TemporaryDirectory() as scratch:
            ended = in_process([each.replace("SCRATCH", scratch) for each in self.arguments], place())
        return judge_ended(ended, None, self.certain)


@st.composite
def cases(draw: st.DrawFn) -> Other:
    """A valid command line, sometimes corrupted."""
    name = draw(st.sampled_from(["simulate", "simulate", "embed", "embed", "embed", "bench", "reproduce"]))
    good, options = OTHERS[name]
    typed = [name, *good]
    certain = name in ("simulate", "embed")
    for _ in range(hurts(draw)):
        certain = False
        option = draw(st.sampled_from(options))
        typed += [
            option,
            draw(
                st.one_of(
                    st.sampled_from(FEW), st.sampled_from(["x", "item", "z", "w", "q", "labels", "both", "features", *PATHS])
                )
            ),
        ]
    return Other(typed, certain)

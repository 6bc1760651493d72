"""The parts of the suite, and how their cases are generated and judged."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import hypothesis
from hypothesis import strategies as st

from fuzz import arrays, commands, lists, others, places, policies, readers, tables
from fuzz.judging import Outcome, Verdict, blamed


class Case(Protocol):
    """Something to try."""

    def judge(self) -> Verdict: ...


@dataclass(frozen=True)
class Part:
    """A kind of case, and its share of all cases."""

    cases: Callable[[], st.SearchStrategy[Any]]
    share: float


PARTS = {
    "arrays": Part(arrays.cases, 4),
    "tables": Part(tables.tables, 4),
    "csv": Part(tables.csvs, 4),
    "policies": Part(policies.cases, 3),
    "bytes": Part(readers.cases, 3),
    "places": Part(places.cases, 2),
    "lists": Part(lists.cases, 2),
    "toml": Part(commands.tomls, 1),
    "commands": Part(commands.commands, 1),
    "others": Part(others.cases, 0.3),
    "processes": Part(functools.partial(commands.commands, process=True), 0.01),
}


def run(part: str, cases: int, seed: int) -> list[tuple[str, str, str]]:
    """The outcome and message of each case, and the case itself if it failed."""
    ended: list[tuple[str, str, str]] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=cases, database=None, deadline=None, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(PARTS[part].cases())
    def each(case: Case) -> None:
        if len(ended) < cases:
            try:
                verdict = case.judge()
            except Exception as error:  # in the case or in the oracle
                verdict = Verdict(Outcome.FAILED, f"judging: {blamed(error)}")
            failed = verdict.outcome.name == "FAILED"
            ended.append((verdict.outcome.value, verdict.why, repr(case) if failed else ""))

    each()
    return ended

"""Progress: lines of text in a file, nothing where it was not asked for."""

from __future__ import annotations

import pytest

from offpolicy.core import progress
from offpolicy.core.progress import PassProgress


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", -1.0)


def test_progress_into_a_file_is_lines_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    with PassProgress("scoring", 1_000, True) as done:
        for _ in range(200):
            done(5)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"scoring: {percent}%" for percent in range(10, 101, 10)]


def test_few_large_steps_and_an_empty_pass(capsys: pytest.CaptureFixture[str]) -> None:
    with PassProgress("fitting", 3, True, done=1) as done:
        done(1)
        done(1)
    with PassProgress("fitting", 0, True) as nothing:
        nothing(0)
    assert capsys.readouterr().err.splitlines() == ["fitting: 66%", "fitting: 100%"]


@pytest.mark.parametrize("shown", [None, False])
def test_a_file_gets_no_progress_by_default(shown: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    with PassProgress("scoring", 10, shown) as done:
        done(10)
    assert capsys.readouterr().err == ""

"""Every public parameter is documented, and nothing is documented that is no parameter."""

from __future__ import annotations

import pytest

from tests.docs.docstrings import Documented, public

PUBLIC = public()


@pytest.mark.parametrize("documented", PUBLIC, ids=str)
def test_a_docstring_describes_the_signature(documented: Documented) -> None:
    assert not documented.problems(), f"{documented}: {'; '.join(documented.problems())}"


def described(docstring: str, each: object) -> list[str]:
    return Documented("here", "example", each, docstring).problems()


def test_both_directions_are_checked() -> None:
    def example(log: object, *, level: float = 0.95, **more: object) -> None: ...

    whole = "Summary.\n\nParameters\n----------\nlog : Log\n    Of rounds.\n\nlevel : float\n    Of it: 0.95.\n**more : object\n\nReturns\n-------\nfloat"
    assert described(whole, example) == []
    assert described(whole.replace("level :", "share :"), example) == [
        "no description of level",
        "share is described, and is not a parameter",
    ]
    assert described(whole.replace("log : Log", "log"), example) == ["no type of log"]
    assert described("Summary.", example) == [f"no description of {name}" for name in ("level", "log", "more")]


def test_the_summary_is_one_line() -> None:
    def example() -> None: ...

    assert described("", example) == ["no docstring"]
    assert described("It says\nmuch.", example) == ["the summary is longer than a line"]
    assert described("It says", example) == ["the summary does not end with a period"]
    assert described("It says so.\n\nAnd more.", example) == []

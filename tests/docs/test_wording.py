"""Phrases that are not idiomatic English, wherever a user or contributor reads: each with what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT

INSTEAD = {
    r"told of|(?:is|are|was|were|be) told(?! apart| from)|tells? of": "reported",
    r"anew": "again",
    r"in the mean(?! (?:weight|reward|value|error|square|of\b))": "on average",
    r"no chance|chances|the chance (?:of|that)|a chance (?:of|in|under)": "probability",
    r"but for chance": "up to sampling error",
    r"speaks? (?:for|against)|spoke (?:for|against)": "supports; raises a concern",
    r"weighed": "weighted",
    r"held against": "compared with",
    r"one (?:row|column|fit|number|value|file|line|list|entry|model|matrix) an? \w+": "one … per …",
    r"\d an? round": "per round",
    r"keeps? (?:its|their) word": "holds",
    r"knows? how well": "reports its own estimation error",
    r"hangs? by": "rests on",
    r"[Bb]elieve it\b": "no check raised a concern",
    r"Why do not trust": "Reasons not to trust this estimate",
    r"of which each": "each of which",
    r"(?:up to|at most|at least|by) so (?:much|many)": "a number, or a clause that names one",
    r"goes along the others|its precision is worth": "a sentence about weights",
    r"mend(?:s|ed|ing)?": "fix",
    r"of one's own": "your own",
    r"whereof|thereof|wherefore": "of which",
    r"What the intervals keep|The paper's results, again|Every public name": "the page's title",
}
"""Regular expressions; a blank in them is any white space, also across lines of a comment."""

READ = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.py")),
    *sorted((ROOT / "examples").glob("*")),
    *sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".pyi", ".html", ".js", ".toml")),
]


def pattern(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{phrase})(?!\w)".replace(" ", r"\s+(?:#\s*)?"))


def found(text: str, phrase: str) -> Iterator[tuple[int, str]]:
    """The line and the words of each place where a phrase stands."""
    for match in pattern(phrase).finditer(text):
        yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split())


@pytest.mark.parametrize("phrase", INSTEAD)
def test_no_page_message_or_docstring_has(phrase: str) -> None:
    places = [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for path in READ
        if path.is_file()
        for line, words in found(path.read_text(encoding="utf-8"), phrase)
    ]
    assert not places, f"write {INSTEAD[phrase]!r} instead:\n" + "\n".join(places)


def test_phrases_are_found_across_lines() -> None:
    text = "The value\n# is held\n# against the other: weights in the mean\n    reward, one row\na candidate"
    assert [list(found(text, phrase)) for phrase in ("held against", r"in the mean(?! reward)")] == [
        [(2, "held # against")],
        [],
    ]
    assert list(found(text, r"one row an? \w+")) == [(4, "one row a candidate")]
    assert list(found("reweighed, weighed", "weighed")) == [(1, "weighed")]

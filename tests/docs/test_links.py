"""Links between the pages lead to files and headings that exist, in the repository and on a package index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

REPOSITORY = "https://github.com/offpolicy/offpolicy"
TEXTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples" / "README.md"]

CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,3} (.+)$", re.MULTILINE)


def prose(page: Path) -> str:
    return CODE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    return LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST name them."""
    headings = HEADING.findall(re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, link: str) -> bool:
    """Whether a link leads nowhere; addresses outside the repository are not followed."""
    inside = re.sub(rf"^{REPOSITORY}/(?:blob|raw|tree)/main/", "", link)
    if inside.startswith(("http:", "https:", "mailto:")):
        return False
    name, _, anchor = inside.partition("#")
    path = (ROOT if inside != link else page.parent) / name if name else page
    return not path.exists() or (path.suffix == ".md" and bool(anchor) and anchor not in anchors(path))


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [link for link in links(page) if broken(page, link)] == []


def test_the_readme_has_no_relative_links() -> None:
    """A package index shows the README without the repository around it."""
    assert [link for link in links(ROOT / "README.md") if not link.startswith("https://")] == []
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Repository"] == REPOSITORY


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title: first\n\n[here](#a-title-first) [gone](missing.md) [no heading](#nowhere) `[code](missing.md)`\n"
    )
    assert [link for link in links(page) if broken(page, link)] == ["missing.md", "#nowhere"]
    assert broken(page, f"{REPOSITORY}/blob/main/docs/missing.md")
    assert not broken(page, f"{REPOSITORY}/blob/main/docs/index.md")

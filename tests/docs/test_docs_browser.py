"""The built documentation in a browser without a network: formulas, search, pictures. `make docs` builds it into build/docs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.report.browser import launched, missing

BUILT = Path(os.environ.get("OFFPOLICY_DOCS", ROOT / "build" / "docs"))
REQUIRED = os.environ.get("OFFPOLICY_BROWSER") == "required"
LACKS = missing() or (None if (BUILT / "index.html").exists() else f"no documentation in {BUILT}: make docs")
PAGES = sorted(path.relative_to(BUILT).as_posix() for path in BUILT.rglob("*.html") if "_static" not in path.parts)

pytestmark = pytest.mark.skipif(not REQUIRED and LACKS is not None, reason=LACKS or "")


class Tab:
    """A tab that has no network; it remembers what pages asked for, and which errors they raised."""

    def __init__(self, browser: Any) -> None:
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page = browser.new_context(offline=True).new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def open(self, name: str) -> Any:
        self.page.goto(f"{BUILT.as_uri()}/{name}")
        return self.page


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    assert LACKS is None, LACKS
    with launched() as browser:
        yield Tab(browser)


def test_no_page_asks_for_anything_elsewhere(tab: Tab) -> None:
    assert PAGES
    for name in PAGES:
        tab.open(name)
    assert [url for url in tab.requests if not url.startswith((BUILT.as_uri(), "data:"))] == []
    assert tab.errors == []


def test_formulas_are_drawn(tab: Tab) -> None:
    page = tab.open("mathematics.html")
    sizes = page.eval_on_selector_all(
        "math", "all => all.map(m => [m.getBoundingClientRect().width, m.getBoundingClientRect().height])"
    )
    assert len(sizes) > 100
    assert min(width for width, _ in sizes) > 2
    assert min(height for _, height in sizes) > 2
    assert page.evaluate("document.fonts.ready.then(() => document.fonts.check('16px \"STIX Two Math\"'))")
    lowered = page.eval_on_selector_all(
        "msub",
        "all => all.map(m => m.children[1].getBoundingClientRect().bottom - m.children[0].getBoundingClientRect().bottom)",
    )
    assert len(lowered) > 20
    assert sum(below > 0 for below in lowered) > 0.9 * len(lowered)  # beside a tall symbol a subscript may end above it


@pytest.mark.parametrize("name", PAGES)
def test_no_formula_is_left_as_it_was_written(tab: Tab, name: str) -> None:
    prose = tab.open(name).evaluate(
        "() => { document.querySelectorAll('pre, code, math, script').forEach(e => e.remove()); return document.body.innerText; }"
    )
    for mark in ("$", "\\frac", "\\pi", "\\mathrm"):
        assert mark not in prose


def test_search_finds_pages(tab: Tab) -> None:
    page = tab.open("index.html")
    page.fill("input[name=q]", "self-normalised")
    page.press("input[name=q]", "Enter")
    page.click("ul.search li a[href^='mathematics.html']")  # waits for it: results are listed one by one
    page.wait_for_selector("article")
    assert "self-normalised" in page.inner_text("article").lower()


def test_pictures_are_shown(tab: Tab) -> None:
    shown = 0
    for name in PAGES:
        page = tab.open(name)
        widths = page.eval_on_selector_all("article img", "all => all.map(i => [i.getAttribute('src'), i.naturalWidth])")
        assert [source for source, width in widths if width < 100] == []
        shown += len(widths)
    assert shown >= 8

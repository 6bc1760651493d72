"""The HTML report in a browser: Chromium, as the system has it, driven by Playwright."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offpolicy.report.page.html import embedded, page
from tests.report import summaries as reports
from tests.report.browser import launched, missing

REQUIRED = os.environ.get("OFFPOLICY_BROWSER") == "required"
SUMMARIES: dict[str, Callable[[], dict[str, Any]]] = {
    "usual": reports.usual,
    "several": reports.several,
    "hostile": reports.hostile,
    "nan": lambda: reports.undefined(reports.NAN),
    "many": lambda: reports.usual(2000),
    "one action": lambda: reports.usual(1),
}
Open = Callable[..., Any]


pytestmark = pytest.mark.skipif(not REQUIRED and missing() is not None, reason=missing() or "")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    assert missing() is None, missing()
    with launched() as started:
        yield started


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    for name, make in SUMMARIES.items():
        told = {**make(), "command": "offpolicy evaluate log.parquet --report report.html"}
        text = page(told, made="16 November 2026")
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in SUMMARIES}


@pytest.fixture
def opened(browser: Any, files: dict[str, Path]) -> Iterator[Open]:
    """Opens a report from its file; afterwards there was no error, and no request but the file itself."""
    contexts, troubles, requests = [], [], []

    def open_(name: str, width: int = 1440, scheme: str = "light", **more: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: troubles.append(str(error)))
        tab.on("dialog", lambda dialog: (troubles.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(files[name].as_uri())
        return tab

    yield open_
    for context in contexts:
        context.close()
    assert troubles == []
    assert set(requests) <= {file.as_uri() for file in files.values()}


WIDER = "() => document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
OPEN_ALL = "() => document.querySelectorAll('details').forEach(each => { each.open = true; })"


@pytest.mark.parametrize("width", [320, 375, 768, 1440])
@pytest.mark.parametrize("name", SUMMARIES)
def test_nothing_scrolls_sideways(opened: Open, name: str, width: int) -> None:
    tab = opened(name, width)
    assert tab.evaluate(WIDER) <= 0
    tab.evaluate(OPEN_ALL)
    assert tab.evaluate(WIDER) <= 0
    assert float(tab.evaluate("() => parseFloat(getComputedStyle(document.body).fontSize)")) == 16


@pytest.mark.parametrize("width", [375, 1440])
@pytest.mark.parametrize("name", SUMMARIES)
def test_every_picture_has_a_size_and_its_words_are_within_the_page(opened: Open, name: str, width: int) -> None:
    tab = opened(name, width)
    tab.evaluate(OPEN_ALL)
    sizes = tab.eval_on_selector_all(
        "svg:not(.symbols)",
        """all => all.filter(each => getComputedStyle(each.parentElement).display !== "none")
                   .map(each => { const box = each.getBoundingClientRect(); return [box.width, box.height]; })""",
    )
    assert len(sizes) > 10
    assert all(w > 0 and h > 0 for w, h in sizes)
    cut = tab.eval_on_selector_all(
        "svg text",
        """all => all.map(each => [each.getBoundingClientRect(), each.textContent])
                   .filter(([box]) => box.width && (box.left < 0 || box.right > innerWidth)).map(([, text]) => text)""",
    )
    assert cut == []


TICKS_THAT_MEET = """() => {
  const found = [];
  for (const svg of document.querySelectorAll("svg")) {
    const boxes = [...svg.querySelectorAll("text")].map(each => each.getBoundingClientRect()).filter(box => box.width);
    boxes.forEach((a, i) => boxes.slice(i + 1).forEach(b => {
      if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom) found.push(svg.outerHTML.slice(0, 200));
    }));
  }
  return found;
}"""


@pytest.mark.parametrize("width", [375, 768, 1440])
@pytest.mark.parametrize("name", ["usual", "several", "nan"])
def test_words_in_pictures_do_not_meet(opened: Open, name: str, width: int) -> None:
    tab = opened(name, width)
    tab.evaluate(OPEN_ALL)
    assert tab.evaluate(TICKS_THAT_MEET) == []


CONTRAST = """() => {
  const parse = text => { const v = text.match(/[\\d.]+/g).map(Number); return v.length < 4 ? [...v, 1] : v; };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, k) => sum + v * [.2126, .7152, .0722][k], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  return [...document.querySelectorAll("h1, h2, h3, p, td, th, dt, dd, li, a, summary, span, code, caption, figcaption, svg text")]
    .filter(e => e.textContent.trim() && e.getClientRects().length)
    .map(e => {
      const style = getComputedStyle(e), front = parse(e instanceof SVGElement ? style.fill : style.color);
      const [a, b] = [light(front), light(behind(e))].sort((x, y) => y - x);
      return [(a + .05) / (b + .05), e.tagName + "." + e.getAttribute("class") + ": " + e.textContent.slice(0, 40)];
    });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_in_both_schemes(opened: Open, scheme: str) -> None:
    tab = opened("several", scheme=scheme)
    tab.evaluate(OPEN_ALL)
    dark = tab.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(255, 255, 255)") == (scheme == "light")
    seen = tab.evaluate(CONTRAST)
    assert len(seen) > 300
    assert [each for each in seen if each[0] < 4.5] == []


def point(tab: Any, index: int) -> tuple[float, float]:
    """Where a point of the map is on the screen."""
    circle = tab.locator("[data-map] circle").nth(index)
    circle.scroll_into_view_if_needed()
    box = circle.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_hovering_shows_the_nearest_action(opened: Open) -> None:
    tab = opened("usual")
    tip = tab.locator(".tip")
    assert not tip.is_visible()
    most = sorted(reports.usual()["embedding"]["points"], key=lambda p: -p["count"])
    for index in (0, 7, 30):
        tab.mouse.move(*point(tab, index))
        assert tip.is_visible()
        lines = tip.inner_text().split("\n")
        assert lines[0] == most[index]["action"]
        assert lines[1] == f"{most[index]['count']:,.0f} rounds"
        assert lines[3] == "near " + ", ".join(most[index]["nearest"])
    tab.mouse.move(5, 5)
    assert not tip.is_visible()
    assert tab.locator("[data-map] title").count() == 0


def test_the_map_answers_to_keys_and_taps(opened: Open) -> None:
    tab = opened("usual", 375, has_touch=True)
    tip, area = tab.locator(".tip"), tab.locator("[data-map]")
    area.focus()
    tab.keyboard.press("ArrowRight")
    first = tip.inner_text()
    tab.keyboard.press("ArrowRight")
    assert tip.inner_text() != first
    tab.keyboard.press("Escape")
    assert not tip.is_visible()
    tab.touchscreen.tap(*point(tab, 3))
    assert tip.is_visible()
    assert tab.evaluate(WIDER) <= 0


def test_hostile_labels_in_the_tooltip_are_text(opened: Open) -> None:
    tab = opened("hostile", 375)
    area = tab.locator("[data-map]")
    area.focus()
    seen = set()
    for key in ["ArrowRight"] * 15 + ["ArrowLeft"] * 25 + ["ArrowDown"] * 5 + ["ArrowUp"] * 10:
        tab.keyboard.press(key)
        seen.add(tab.locator(".tip strong").inner_text().strip("\u2068\u2069"))
        assert tab.evaluate(WIDER) <= 0
    assert len(seen) > 6
    assert any("<" in each for each in seen)
    assert tab.locator(".tip img, .tip script").count() == 0
    assert tab.locator("script").count() == 1


def test_without_javascript_the_page_says_the_same(opened: Open) -> None:
    tab = opened("usual", java_script_enabled=False)
    assert tab.locator("[data-map] circle").count() == 50
    title = tab.locator("[data-map] circle title").first.text_content()
    most = max(reports.usual()["embedding"]["points"], key=lambda p: p["count"])
    assert title.startswith(f"{most['action']}\n{most['count']:,.0f} rounds\nreward ")
    tab.get_by_text("The 20 most frequently logged actions").click()
    assert tab.locator("table.actions tbody tr").count() == 20
    assert tab.locator("table.actions tbody tr").first.is_visible()
    assert tab.locator("table.estimates").first.is_visible()


def test_paper_is_light_and_unfolded(opened: Open) -> None:
    tab = opened("several", scheme="dark")
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("() => getComputedStyle(document.body).color") == "rgb(28, 33, 38)"
    assert not tab.locator("nav").is_visible()
    tab.emulate_media(media="screen")
    tab.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("details:not([open])").count() == 0
    tab.evaluate("() => dispatchEvent(new Event('afterprint'))")
    assert tab.locator("details[open]").count() == 0
    assert tab.pdf(format="A4").startswith(b"%PDF")


def test_paper_is_unfolded_without_javascript(opened: Open) -> None:
    tab = opened("usual", java_script_enabled=False)
    tab.emulate_media(media="print")
    assert tab.locator("table.actions tbody tr").first.bounding_box()["height"] > 5


def test_the_frame_keeps_its_own_styles(browser: Any, tmp_path: Path) -> None:
    troubles: list[str] = []
    notebook = tmp_path / "notebook.html"
    hostile = "* { color: red !important; font-size: 40px !important } table { display: none } body { background: blue }"
    notebook.write_text(f"<!doctype html><meta charset=utf-8><style>{hostile}</style><p>cell</p>{embedded(reports.usual())}")
    tab = browser.new_page(viewport={"width": 900, "height": 900})
    tab.on("console", lambda message: troubles.append(message.text))
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.goto(notebook.as_uri())
    assert tab.locator("iframe").bounding_box()["height"] >= 500
    frame = tab.frames[1]
    style = "each => { const s = getComputedStyle(each); return [s.color, s.fontSize]; }"
    assert frame.eval_on_selector("p.detail", style)[0] == "rgb(28, 33, 38)"
    assert frame.eval_on_selector("body", style)[1] == "16px"
    assert frame.locator("table.estimates").first.is_visible()
    assert frame.locator(".icon use").first.bounding_box()["width"] > 5, "marks refer to shapes of the frame's own page"
    x, y = point(frame, 0)
    tab.mouse.move(x, y)
    assert frame.locator(".tip").is_visible()
    assert tab.evaluate("() => getComputedStyle(document.querySelector('p')).color") == "rgb(255, 0, 0)"
    tab.close()
    assert troubles == []

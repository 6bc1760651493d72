"""Every page runs as written and shows what it prints, and no public name or page is missing.

`tests/docs/pages.py` has the rules. If printed output changes, `python -m tests.docs.refresh` rewrites it in the pages.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import offpolicy as op
from offpolicy.cli.app import app
from offpolicy.estimators import REGISTRY
from offpolicy.estimators.defaults import default_estimators
from tests.docs import pages, refresh as refresh_docs
from tests.engines.sessions import OWN_WARNINGS

DOCS = pages.ROOT / "docs"
RULES = """
```python
x = 2
print(x)
```

```
2
```

```python
# mine.py
y = 3
```

<!-- not run: there is no such thing -->
```sh
rm missing
```

```
gone
```

<!-- runs: echo instead -->
```sh
false
```

```
instead
```

<!-- needs: no_such_module -->
```python
1 / 0
```

```python
from mine import y

print(x + y)
```

```
wrong
```
"""


@OWN_WARNINGS
@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_a_page_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    for shown in pages.run(page.read_text(), page.name, tmp_path):
        assert pages.settled(shown.printed) == pages.settled(shown.block.body), f"{page.name}:{shown.block.line}"
    if page.name == "README.md":
        kept = {"log.parquet", "log.truth.json", "report.html", "report.md", "estimates.png"}
        assert kept <= {path.name for path in (tmp_path / "build" / "demo").iterdir()}


def test_what_does_not_run_says_why() -> None:
    """Every mark is a known one with an argument, and optional modules use `needs`. `-s` lists the blocks that do not run."""
    not_run = []
    for page in pages.PAGES:
        assert not re.search(r"^ +```", page.read_text(), flags=re.MULTILINE), f"{page.name}: an indented block is not run"
        for block in pages.blocks(page.read_text()):
            where = f"{page.name}:{block.line}"
            assert block.mark in ("", *pages.MARKS), f"{where}: unknown mark {block.mark!r}"
            assert not block.mark or block.argument, f"{where}: {block.mark!r} needs an argument"
            if block.mark == "not run":
                not_run.append(f"{where}: {block.argument}")
                assert len(block.argument.split()) >= 3, f"{where}: explain why it is not run"
                words = set(re.findall(r"\w+", block.body))
                assert not (block.language == "python" and words & {"pyspark", "torch"}), f"{where}: use <!-- needs: … -->"
    print(f"\n{len(not_run)} blocks are not run:", *not_run, sep="\n")


def test_a_page_is_run_by_the_rules(tmp_path: Path) -> None:
    """The rules of tests/docs/pages.py, on a small page."""
    shown = pages.run(RULES, "page.md", tmp_path)
    assert [(each.block.body, each.printed) for each in shown] == [
        ("2\n", "2\n"),
        ("instead\n", "instead\n"),
        ("wrong\n", "5\n"),
    ]


def test_what_a_page_shows_is_refreshed() -> None:
    assert refresh_docs.refreshed(RULES, "page.md") == RULES.replace("wrong", "5")


@pytest.mark.parametrize("page", ["```\nno code\n```", "```toml\na = 1\n```", "```python\n1 / 0\n```", "```sh\nfalse\n```"])
def test_a_page_that_does_not_hold_fails(page: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ZeroDivisionError)):
        pages.run(page, "page.md", tmp_path)


def test_the_reference_has_every_public_name() -> None:
    named = re.findall(r"^\.\. auto\w+:: offpolicy\.([\w.]+)$", (DOCS / "api.md").read_text(), flags=re.MULTILINE)
    assert len(named) == len(set(named))
    assert set(op.__all__) - {"__version__"} == {name for name in named if "." not in name}
    assert {f"worlds.{name}" for name in op.worlds.__all__} <= set(named)


def test_the_command_line_reference_has_every_command() -> None:
    """Each command's options are written when the page is built."""
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    text = (DOCS / "cli.md").read_text()
    assert re.findall(r"^```{command} (\w+)$", text, flags=re.MULTILINE) == re.findall(
        r"^## offpolicy (\w+)$", text, flags=re.MULTILINE
    )
    assert set(re.findall(r"^```{command} (\w+)$", text, flags=re.MULTILINE)) == commands


def test_the_mathematics_has_every_estimator() -> None:
    text = (DOCS / "mathematics.md").read_text()
    assert [name for name in REGISTRY if f"`{name}`" not in text] == []


def test_which_estimator_names_the_default_that_runs() -> None:
    page = (DOCS / "which.md").read_text()
    first, *others = (estimator.name for estimator in default_estimators())
    assert f"`{first}`, the default" in page
    assert [name for name in others if re.search(rf"`{name}`,? (is |\()?the default", page)] == []


def test_every_page_is_on_the_front_page() -> None:
    listed = re.findall(r"^(\w[\w-]*)$", (DOCS / "index.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(page.stem for page in DOCS.glob("*.md") if page.stem != "index")

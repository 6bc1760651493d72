"""The page on the architecture shows the tree as it is, and the tree is what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

grimp = pytest.importorskip("grimp")

from docs.pictures import architecture  # noqa: E402

ROOT = architecture.DOCS.parent


def test_the_page_lists_the_packages_and_their_modules() -> None:
    page = architecture.PAGE.read_text()
    assert architecture.filled(page) == page, "run python -m docs.pictures.architecture"


def test_every_package_is_in_the_contract() -> None:
    on_disk = {path.parent.name for path in architecture.SOURCE.glob("*/__init__.py")}
    assert set(architecture.packages()) == on_disk


def test_no_module_is_loose() -> None:
    assert {path.name for path in architecture.SOURCE.glob("*.py*")} == {"__init__.py", "__init__.pyi", "__main__.py"}


def test_imports_point_upwards() -> None:
    order = architecture.packages()
    assert all(order.index(imported) < order.index(importer) for importer, imported in architecture.imports())


@pytest.mark.parametrize(
    "page", [*sorted(architecture.DOCS.glob("*.md")), ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name
)
def test_files_that_a_page_names_exist(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    names = [name for line in prose.splitlines() for name in line.split("`")[1::2]]
    for path in (name for name in names if re.fullmatch(r"[\w./]*\w\.pyi?|(\w+/)+", name) and not name.startswith("build")):
        places = (ROOT, architecture.SOURCE, *architecture.SOURCE.glob("*/"))
        found = any((place / path).exists() for place in places)
        assert found or ("/" not in path and list((ROOT / "fuzz").glob(path))), f"{page.name}: {path} is not there"

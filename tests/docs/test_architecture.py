"""The page on the architecture shows the tree as it is, and the tree is what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

grimp = pytest.importorskip("grimp")

from docs.pictures import architecture  # noqa: E402


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


def test_files_that_the_page_names_exist() -> None:
    names = [name for line in architecture.PAGE.read_text().splitlines() for name in line.split("`")[1::2]]
    paths = [Path(name) for name in names if name.endswith((".py", "/")) and "*" not in name]
    assert len(paths) > 40
    places = (architecture.SOURCE, architecture.DOCS.parent)
    for path in paths:
        found = any((place / path).exists() for place in places)
        assert found or list(architecture.SOURCE.rglob(path.name)), f"{path} is not there"

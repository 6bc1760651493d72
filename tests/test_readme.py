"""The README and the page on embeddings show what their code prints."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language: str, text: str = README) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [body for kind, body in fenced if kind == language]


def test_the_demo_and_the_python_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "offpolicy.cli", "demo", "--out", "build/demo"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    table, lift = blocks("")
    assert printed.strip() == table.strip()
    assert {p.name for p in Path("build/demo").iterdir()} == {"log.parquet", "log.truth.json", "report.md", "estimates.png"}
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile("\n".join(blocks("python")), "README.md", "exec"), {})
    assert shown.getvalue().splitlines()[0] == lift.strip()
    assert "LearnedMDR" in shown.getvalue()


@pytest.mark.parametrize("name", ["embeddings.md", "auto.md"])
def test_the_pages_on_embeddings_and_auto(name: str) -> None:
    page = (Path(__file__).parent.parent / "docs" / name).read_text()
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(blocks("python", page)[0], name, "exec"), {})
    assert shown.getvalue().strip() == blocks("", page)[0].strip()


def test_the_page_on_worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its example prints what is shown; its estimator and its experiment run as written."""
    page = (Path(__file__).parent.parent / "docs" / "bench.md").read_text()
    example, own = blocks("python", page)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(example, "bench.md", "exec"), {})
    assert shown.getvalue() == blocks("", page)[0]
    (tmp_path / "my_estimators.py").write_text(own)
    small = blocks("toml", page)[0].replace("worlds = 20", "worlds = 2").replace("16_000", "500")
    (tmp_path / "mine.toml").write_text(small)
    command = [sys.executable, "-m", "offpolicy.cli", "reproduce", "mine.toml", "--processes", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "Clipping at 20 lowers the error." in printed
    assert "failed" not in printed

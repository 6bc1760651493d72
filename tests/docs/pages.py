"""Run the pages of the documentation as programs: their fenced blocks, in order, in a temporary folder.

- ```python blocks share one namespace per page; ```sh blocks run in the shell, with this package's `offpolicy`.
- A block whose first line is a comment with nothing but a file name (`# job.toml`) is written to that file instead.
- A block without a language shows the output of the block before it.
- `{directive}` blocks belong to Sphinx and are skipped.

A comment on the line above a block changes how it runs:

    <!-- not run: why -->      neither the block nor its output is checked
    <!-- needs: module -->     the block runs only if the module is installed
    <!-- runs: command -->     this command runs instead of the block
    <!-- file: name -->        the block is written to this file
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.engines import sessions as sparks

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKS = ("not run", "needs", "runs", "file")
SHELL = ("sh", "bash")

FENCED = re.compile(r"^(?:<!--([^\n]*)-->\n)?```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIRST_LINE = re.compile(r"# ([\w./-]+\.\w+)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text and position in the page, and the mark above it with its argument."""

    language: str
    body: str
    start: int
    line: int
    mark: str
    argument: str

    @property
    def file(self) -> str | None:
        """The file that the block is written to, or None."""
        first = FIRST_LINE.match(self.body)
        return self.argument if self.mark == "file" else first[1] if first and self.language else None

    @property
    def skipped(self) -> str | None:
        """Why the block does not run here, or None."""
        if self.mark == "not run":
            return self.argument
        return missing(self.argument) if self.mark == "needs" else None


@dataclass(frozen=True)
class Shown:
    """A block of output, and what was actually printed."""

    block: Block
    printed: str


def blocks(text: str) -> list[Block]:
    parsed = []
    for match in FENCED.finditer(text):
        comment, info, body = match.groups()
        mark, _, argument = (comment or "").partition(":")
        if not info.startswith("{"):
            start = match.start(3)
            parsed.append(Block(info.strip(), body, start, text.count("\n", 0, start), mark.strip(), argument.strip()))
    return parsed


def missing(module: str) -> str | None:
    """Why a required module cannot be used, or None."""
    if module == "pyspark":
        return sparks.missing()
    return None if importlib.util.find_spec(module) else f"{module} is not installed"


def run(text: str, name: str, folder: Path) -> list[Shown]:
    """Run a page in a folder, and return its blocks of output with what was actually printed."""
    if any(block.mark == "needs" and block.argument == "pyspark" and not block.skipped for block in blocks(text)):
        sparks.classic()  # the session that all tests share
    shown: list[Shown] = []
    printed: str | None = None
    skipped = False
    with _environment(folder) as namespace:
        for block in blocks(text):
            where = f"{name}:{block.line}"
            if block.language == "" and not block.skipped:
                assert skipped or printed is not None, f"{where}: a block of output without a block that prints before it"
                shown += [] if printed is None else [Shown(block, printed)]
                printed, skipped = None, False
                continue
            printed, skipped = None, bool(block.skipped)
            if block.file and not skipped:
                (folder / block.file).write_text(block.body)
            elif not skipped:
                printed = _execute(block, where, namespace)
    return shown


def _execute(block: Block, where: str, namespace: dict[str, object]) -> str:
    """Run a block and return what it prints."""
    if block.mark == "runs" or block.language in SHELL:
        return _shell(block.argument if block.mark == "runs" else block.body, where)
    assert block.language == "python", (
        f"{where}: {block.language} blocks are neither run nor written to a file: name a file, or mark the block"
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * block.line + block.body, where, "exec"), namespace)
    return printed.getvalue()


def _shell(commands: str, where: str) -> str:
    done = subprocess.run(["bash", "-e", "-c", commands], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{where}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def settled(printed: str) -> str:
    """Round numbers with very many digits, because the last ones depend on the processor."""
    return re.sub(r"\d+\.\d{14,}", lambda number: f"{float(number[0]):.13f}", printed).strip()


@contextlib.contextmanager
def _environment(folder: Path) -> Iterator[dict[str, object]]:
    """The namespace of a page, whose folder is the working directory and is searched for modules and commands."""
    binaries = folder / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for command, module in (("offpolicy", "-m offpolicy"), ("python", "")):
        (binaries / command).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (binaries / command).chmod(0o755)
    page = types.ModuleType("page")  # dataclasses in a page look up their module
    before, path, environment, modules = Path.cwd(), list(sys.path), dict(os.environ), set(sys.modules)
    os.environ["PATH"] = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(folder), os.environ.get("PYTHONPATH", "")])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.pop("COLUMNS", None)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.modules["page"] = page
    try:
        yield page.__dict__
    finally:
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")
        os.chdir(before)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)
        for name in set(sys.modules) - modules:  # two pages may contain files of the same name
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)) or name == "page":
                del sys.modules[name]

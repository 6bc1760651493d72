"""The pages of the documentation as programs: their fenced blocks, run in order in a folder of their own.

- A ```python block runs in the page's one namespace; an ```sh block runs in the shell, with this package's `offpolicy`.
- A block whose first line is a comment with a file's name and no more (`# job.toml`) is written to that file instead.
- A block without a language shows what the block before it printed.
- `{directive}` blocks are Sphinx's own.

What is not to run as it stands says so in a comment on the line above:

    <!-- not run: why -->      neither the block nor what it shows is checked
    <!-- needs: module -->     it runs where that module is installed
    <!-- runs: command -->     this command runs in its place
    <!-- file: name -->        it is written to that file, as where the first line has the name
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
    """A fenced block: its language, its text, where the text stands in the page, and the mark above it."""

    language: str
    body: str
    start: int
    line: int
    mark: str
    said: str

    @property
    def file(self) -> str | None:
        """The file that it is to be written to."""
        first = FIRST_LINE.match(self.body)
        return self.said if self.mark == "file" else first[1] if first and self.language else None

    @property
    def skipped(self) -> str | None:
        """Why it does not run here, or None."""
        if self.mark == "not run":
            return self.said
        return missing(self.said) if self.mark == "needs" else None


@dataclass(frozen=True)
class Shown:
    """A block of output, and what was really printed."""

    block: Block
    printed: str


def blocks(text: str) -> list[Block]:
    found = []
    for match in FENCED.finditer(text):
        comment, info, body = match.groups()
        mark, _, said = (comment or "").partition(":")
        if not info.startswith("{"):
            start = match.start(3)
            found.append(Block(info.strip(), body, start, text.count("\n", 0, start), mark.strip(), said.strip()))
    return found


def missing(module: str) -> str | None:
    """Why what a block needs is not here, or None."""
    if module == "pyspark":
        return sparks.missing()
    return None if importlib.util.find_spec(module) else f"{module} is not installed"


def run(text: str, name: str, folder: Path) -> list[Shown]:
    """Run a page in a folder; what its blocks of output show, beside what was printed."""
    if any(block.mark == "needs" and block.said == "pyspark" and not block.skipped for block in blocks(text)):
        sparks.classic()  # the session of all tests, which the page gets as well
    shown: list[Shown] = []
    printed: str | None = None
    skipped = False
    with _at_home(folder) as namespace:
        for block in blocks(text):
            where = f"{name}:{block.line}"
            if block.language == "" and not block.skipped:
                assert skipped or printed is not None, f"{where}: a block of output, and nothing before it prints"
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
    """What a block prints."""
    if block.mark == "runs" or block.language in SHELL:
        return _shell(block.said if block.mark == "runs" else block.body, where)
    assert block.language == "python", (
        f"{where}: {block.language} is neither run nor written to a file: name one, or mark it"
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
    """Without the last of very many digits, which depend on the processor."""
    return re.sub(r"\d+\.\d{14,}", lambda found: f"{float(found[0]):.13f}", printed).strip()


@contextlib.contextmanager
def _at_home(folder: Path) -> Iterator[dict[str, object]]:
    """The page's namespace, with its folder as the place where files are written, modules imported and commands found."""
    binaries = folder / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for command, module in (("offpolicy", "-m offpolicy"), ("python", "")):
        (binaries / command).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (binaries / command).chmod(0o755)
    page = types.ModuleType("page")  # so that dataclasses of a page find their module
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
        for name in set(sys.modules) - modules:  # two pages may have a file of the same name
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)) or name == "page":
                del sys.modules[name]

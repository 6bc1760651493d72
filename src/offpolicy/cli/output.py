"""The output of commands: the answer on stdout, reports as whole files, and what a stopped command leaves behind."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from offpolicy.cli import signals
from offpolicy.core.errors import InputError

NARROWEST = 40


@contextmanager
def resumable_from(folder: Path | None) -> Iterator[None]:
    """If the run is stopped, report where its results are."""
    try:
        yield
    except signals.Stopped as stopped:
        stored = f"Finished runs are in {folder}: run the same command again to continue."
        stopped.remains = "Nothing was stored (--out would store it)." if folder is None else stored
        raise


@contextmanager
def and_then(second: Callable[[], None]) -> Iterator[None]:
    """Run `second` after the body, also when the body fails; not when the command is stopped."""
    try:
        yield
    except Exception:
        second()
        raise
    second()


@contextmanager
def written_if_stopped(*files: Path | None) -> Iterator[None]:
    """If the command is stopped, report which of its files were already written; each of them is complete."""
    before = {path: _version(path) for path in files if path is not None}
    try:
        yield
    except signals.Stopped as stopped:
        written = [str(path) for path, version in before.items() if _version(path) != version]
        if written:
            stopped.remains = f"Already written: {', '.join(written)}. Run the same command again for the rest."
        raise


def _version(path: Path) -> tuple[int, int] | None:
    """What distinguishes the file under this name from a later one."""
    with suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_mtime_ns
    return None


def say(answer: dict[str, Any] | str) -> None:
    import json as json_module

    from offpolicy.report import text

    text.say(answer if isinstance(answer, str) else json_module.dumps(finite(answer), indent=2, default=str))


def check_names(report: Path | None, markdown: Path | None, plot: Path | None, save: Path | None = None) -> None:
    """Check the output files before anything is computed, so that no work is lost."""
    for path, endings, what in (
        (report, (".html", ".htm"), "the report is written as HTML, so its"),
        (markdown, (".md", ".markdown"), "the report is written as Markdown, so its"),
        (plot, (".png", ".svg", ".pdf"), "the plot's"),
        (save, (".json",), "results are saved as JSON, so the"),
    ):
        if path is None:
            continue
        if path.suffix.lower() not in endings:
            known = " or ".join(filter(None, (", ".join(endings[:-1]), endings[-1])))
            raise InputError(f"{path}: {what} name must end in {known}.")
        if not path.parent.is_dir():
            raise InputError(f"{path.parent}: no such folder.")
        if path.is_dir():
            raise InputError(f"{path} is a folder; give a file name.")
        if not os.access(path.parent, os.W_OK):
            raise InputError(f"{path.parent}: this folder is not writable.")


def write(summary: dict[str, Any], report: Path | None, markdown: Path | None, plot: Path | None) -> None:
    """Write the reports and the plot, each atomically."""
    from offpolicy.core.files import whole_file
    from offpolicy.report import markdown as as_markdown

    summary = {**summary, "command": typed()}
    if report is not None:
        from offpolicy.report.page import html

        html.write(summary, report)
    if markdown is not None:
        with whole_file(markdown) as draft:
            draft.write_text(as_markdown.markdown(summary), encoding="utf-8")
    if plot is not None:
        from offpolicy.report import plots

        with whole_file(plot) as draft:
            plots.write(summary, draft, plot.suffix[1:].lower())


def typed() -> str:
    """The command line without secrets in the address of a Spark server, since reports are passed on."""
    words = [re.sub(r"\b(token|password)=[^;\s]*", r"\1=…", part) for part in sys.argv[1:]]
    return shlex.join(["offpolicy", *words])


def width() -> int:
    """The width of the terminal; 80 in a pipe or a file, unless COLUMNS is set."""
    return max(shutil.get_terminal_size().columns, NARROWEST)


def show(summary: dict[str, Any], as_json: bool) -> None:
    from offpolicy.report import text

    say(summary if as_json else text.shown(summary))


def finite(value: Any) -> Any:
    """Replace what is not finite by None, since JSON has no NaN."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    if isinstance(value, float) and not (abs(value) < float("inf")):
        return None
    return value


def discard() -> None:
    """Discard buffered output, which Python would otherwise try to write again at exit."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

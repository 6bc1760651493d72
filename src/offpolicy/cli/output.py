"""What commands say and write: the answer on stdout, reports as whole files, and what a stopped command leaves behind."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from offpolicy.cli import signals
from offpolicy.core.errors import InputError


@contextmanager
def kept_in(folder: Path | None) -> Iterator[None]:
    """Someone who stops a run is told where the rest of it is."""
    try:
        yield
    except signals.Stopped as stopped:
        there = f"What was finished is kept in {folder}: run it again to go on."
        stopped.kept = "Nothing is kept (--out would)." if folder is None else there
        raise


@contextmanager
def and_then(second: Callable[[], None]) -> Iterator[None]:
    """What comes second is not lost when the first fails; who stops the command wants neither."""
    try:
        yield
    except Exception:
        second()
        raise
    second()


@contextmanager
def kept(*files: Path | None) -> Iterator[None]:
    """Someone who stops a command is told which of its files are there already; each of them is whole."""
    before = {path: _version(path) for path in files if path is not None}
    try:
        yield
    except signals.Stopped as stopped:
        written = [str(path) for path, version in before.items() if _version(path) != version]
        if written:
            stopped.kept = f"Written, and whole: {', '.join(written)}. Run the same command again for the rest."
        raise


def _version(path: Path) -> tuple[int, int] | None:
    """Which file stands there under this name."""
    with suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns
    return None


def say(answer: dict[str, Any] | str) -> None:
    import json as json_module

    from offpolicy.report import terminal

    terminal.say(answer if isinstance(answer, str) else json_module.dumps(finite(answer), indent=2, default=str))


def check_names(report: Path | None, markdown: Path | None, plot: Path | None, save: Path | None = None) -> None:
    """Before anything is computed: what cannot be written would be lost work."""
    for path, endings, what in (
        (report, (".html", ".htm"), "the report is a page, and its"),
        (markdown, (".md", ".markdown"), "it is written as Markdown, and its"),
        (plot, (".png", ".svg", ".pdf"), "a picture's"),
        (save, (".json",), "results are saved as JSON, and its"),
    ):
        if path is not None and path.suffix.lower() not in endings:
            raise InputError(
                f"{path}: {what} name ends in {' or '.join(filter(None, (', '.join(endings[:-1]), endings[-1])))}."
            )
        if path is not None and not path.parent.is_dir():
            raise InputError(f"{path.parent}: no such folder.")
        if path is not None and path.is_dir():
            raise InputError(f"{path}: is a folder; give the name of a file.")
        if path is not None and not os.access(path.parent, os.W_OK):
            raise InputError(f"{path.parent}: no file can be written into this folder.")


def write(summary: dict[str, Any], report: Path | None, markdown: Path | None, plot: Path | None) -> None:
    """The reports and the picture, each whole or not at all."""
    from offpolicy.core.files import whole_file
    from offpolicy.report import text

    summary = {**summary, "command": typed()}
    if report is not None:
        from offpolicy.report.page import html

        html.write(summary, report)
    if markdown is not None:
        with whole_file(markdown) as draft:
            draft.write_text(text.markdown(summary), encoding="utf-8")
    if plot is not None:
        from offpolicy.report import plots

        with whole_file(plot) as draft:
            plots.write(summary, draft, plot.suffix[1:].lower())


def typed() -> str:
    """What was typed, but for secrets in the address of a Spark server: reports are passed on."""
    words = [re.sub(r"\b(token|password)=[^;\s]*", r"\1=…", part) for part in sys.argv[1:]]
    return shlex.join(["offpolicy", *words])


def show(summary: dict[str, Any], as_json: bool) -> None:
    from offpolicy.report import terminal

    say(summary if as_json else terminal.shown(summary))


def finite(value: Any) -> Any:
    """JSON knows no NaN: what is not finite becomes null."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    if isinstance(value, float) and not (abs(value) < float("inf")):
        return None
    return value


def forget() -> None:
    """Or Python would try to write it once more at its end, and fail again."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""Chromium, as the system has it, driven by Playwright."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]  # fmt: skip


@cache
def chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@cache
def missing() -> str | None:
    """What a browser lacks here, or None."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed: make browser, or pip install 'offpolicy[browser]'"
    if chromium() is None:
        return "there is no chromium, chromium-browser or google-chrome here"
    return None


@contextmanager
def launched() -> Iterator[Any]:
    """A browser that is closed at the end."""
    if missing() is not None:
        raise SystemExit(f"no browser: {missing()}.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield started
        started.close()

"""Where the results of trials are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.common import machine, write_section

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "faults.md"
RESULTS = ROOT / "build" / "trials"


def publish(name: str, text: str, result: dict[str, Any], *, full: bool) -> None:
    """Print the tables, store the numbers as JSON, and write the result of a full trial into the documentation."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n")
    print(f"{machine()}\n\n{text.strip()}\n\nWritten to {path}", flush=True)
    if full:
        write_section(f"trial {name}", text, PAGE)

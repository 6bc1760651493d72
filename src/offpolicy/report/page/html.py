"""The report as one HTML file: a plain dict of results goes in, a page that needs nothing else comes out."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from offpolicy.core.files import whole_file
from offpolicy.report import sensitivity as bounds
from offpolicy.report.formatting import label, shortened, visible
from offpolicy.report.page import answer, evidence
from offpolicy.report.page.answer import IntervalTable, Summary
from offpolicy.report.page.charts import COLOURS
from offpolicy.report.sentences import actions, compared, said_of_part, title

MOST_SLICES, MOST_IN_FULL = 100, 20
"""Slices, the largest first, whose headline the page shows, and of which it shows every estimate: so that it stays small."""
FRAME_HEIGHT = 760
LONG_ITEM = 30
LONGEST_ITEM = 300


def page(summary: Summary, *, made: str | None = None) -> str:
    """The whole document. `made` says when it was made; the command that did it may be in the summary."""
    return _document(summary, made=made, framed=False)


def write(summary: Summary, path: Path) -> None:
    """The document as a file, whole or not at all."""
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    with whole_file(path) as draft:
        draft.write_text(page(summary, made=made), encoding="utf-8")


def embedded(summary: Summary) -> str:
    """The same for a notebook: in a frame, whose styles and script are apart from those of the notebook."""
    document = _document(summary, made=None, framed=True)
    return (
        f'<iframe srcdoc="{escape(document)}" sandbox="allow-scripts" title="{escape(title(summary))}" width="100%" '
        f'height="{FRAME_HEIGHT}" style="width:100%;height:{FRAME_HEIGHT}px;border:0;resize:vertical"></iframe>'
    )


def _document(summary: Summary, *, made: str | None, framed: bool) -> str:
    environment, style, script = _templates()
    return environment.get_template("page.html").render(
        style=style, script=script, script_hash=_hash(script), made=made, framed=framed, **_view(summary)
    )


@cache
def _templates() -> tuple[Environment, Markup, Markup]:
    """The templates, and the style and the script, which are our own and hold no data."""
    loader = PackageLoader("offpolicy.report.page")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = visible
    style, script = (Markup(loader.get_source(environment, name)[0]) for name in ("style.css", "report.js"))
    return environment, style, script


def _hash(script: str) -> str:
    """By which a browser knows the one script that it may run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _view(summary: Summary) -> dict[str, Any]:
    """All that the page shows, in words and coordinates."""
    several = len(summary["policies"]) > 1
    lead = label(summary["headline"]["estimator"])
    return {
        "title": title(summary),
        "command": summary.get("command"),
        "reward": label(summary["reward"]),
        "policy": label(summary["policies"][0]),
        "several": several,
        "estimator": lead,
        "rounds": f"{summary['rounds']:,}",
        "actions": actions(summary),
        "logged": _logged(summary),
        "cards": answer.cards(summary),
        "compared": compared(summary),
        "table": answer.estimates_table(summary),
        "doubts": answer.doubts(summary),
        "other_doubts": answer.other_doubts(summary),
        "blends": answer.blends(summary),
        "skipped": answer.reasons(summary["skipped"]),
        "overlaps": evidence.overlaps(summary),
        "propensities": evidence.propensities(summary),
        "models": evidence.models(summary),
        "map": evidence.action_map(summary),
        "colours": COLOURS,
        "bounds": [
            (bounds.heading(found, several), *bounds.table(found), bounds.claims(found))
            for found in summary.get("sensitivity", ())
        ],
        "differences": answer.differences_table(summary),
        "rewards": _rewards(summary),
        "slices": _slices(summary),
        "facts": _facts(summary),
        "words": answer.WORDS,
    }


def _logged(summary: Summary) -> tuple[str, str] | None:
    logged = summary.get("logged")
    if not logged:
        return None
    return answer.shown(logged["value"], logged["std_error"]), answer.span(logged["interval"], logged["std_error"])


def _part(heading: str, part: Summary) -> tuple[str, IntervalTable, list[str]]:
    """A heading, its estimates, and what its headline says, with what was seen of it."""
    return heading, answer.estimates_table(part), said_of_part(part)


def _rewards(summary: Summary) -> list[tuple[str, IntervalTable, list[str]]]:
    return [_part(label(name), other) for name, other in summary.get("other_rewards", {}).items()]


def _slices(summary: Summary) -> dict[str, Any] | None:
    """The headline of each slice in one table, and all estimates of the largest."""
    slices: Mapping[str, Summary] = summary.get("slices", {})
    if not slices:
        return None
    largest = sorted(slices.items(), key=lambda item: -item[1]["rounds"])
    headlines, in_full = (max(1, most // len(summary["policies"])) for most in (MOST_SLICES, MOST_IN_FULL))
    parts = [
        _part(f"{label(name)} · {title(part)}", part)
        for name, whole in largest[:in_full]
        for part in (whole, *whole.get("other_rewards", {}).values())
    ]
    limits = [("Headlines", headlines), ("All estimates", in_full)]
    over = [
        f"{what} are those of the {most} largest slices of {len(slices):,}" for what, most in limits if most < len(slices)
    ]
    return {"table": answer.parts_table(summary, dict(largest[:headlines])), "parts": parts, "note": "; ".join(over)}


def _facts(summary: Summary) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """What was read, with which versions, and how it was evaluated: by group, each name with its lines."""
    read = dict(summary.get("input") or {})
    columns = read.pop("columns", None) or {}
    groups = (
        ("Input", read),
        ("Columns", columns),
        ("Versions", summary.get("versions") or {}),
        ("Settings", summary["settings"]),
    )
    return [
        (name, [(label(key).replace("_", " "), _lines(value)) for key, value in group.items()])
        for name, group in groups
        if group
    ]


def _lines(value: Any) -> list[str]:
    """A setting in words; long items, such as estimators with all of their settings, each on a line of its own."""
    items = [_said(item) for item in value] if isinstance(value, list | tuple) else [_said(value)]
    return items if any(len(item) > LONG_ITEM for item in items) else [", ".join(items) or "–"]


def _said(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{visible(key)}: {_said(item)}" for key, item in value.items()) or "–"
    return f"{value:,}" if isinstance(value, int) else shortened(visible(value), LONGEST_ITEM)

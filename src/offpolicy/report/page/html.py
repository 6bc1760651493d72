"""The report as one self-contained HTML file, made from a plain dict of results."""

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
from offpolicy.report import sentences
from offpolicy.report.formatting import Summary, label, shortened, visible
from offpolicy.report.page import views
from offpolicy.report.page.charts import COLOURS
from offpolicy.report.page.views import View

MOST_SLICES, MOST_IN_FULL = 100, 20
"""The number of slices, largest first, shown with their headline and with every estimate: so that the page stays small."""
FRAME_HEIGHT = 760
LONG_ITEM = 30
LONGEST_ITEM = 300


def page(summary: Summary, *, made: str | None = None) -> str:
    """The whole document. `made` is the time it was made; the summary may hold the command."""
    return _document(summary, made=made, framed=False)


def write(summary: Summary, path: Path) -> None:
    """Write the document atomically."""
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    with whole_file(path) as draft:
        draft.write_text(page(summary, made=made), encoding="utf-8")


def embedded(summary: Summary) -> str:
    """The document for a notebook, in a frame that separates its styles and script from those of the notebook."""
    document, title = _document(summary, made=None, framed=True), sentences.title(summary)
    return (
        f'<iframe srcdoc="{escape(document)}" sandbox="allow-scripts" title="{escape(title)}" width="100%" '
        f'height="{FRAME_HEIGHT}" style="width:100%;height:{FRAME_HEIGHT}px;border:0;resize:vertical"></iframe>'
    )


def _document(summary: Summary, *, made: str | None, framed: bool) -> str:
    environment, style, script = _templates()
    return environment.get_template("page.html").render(
        style=style, script=script, script_hash=_hash(script), made=made, framed=framed, **_view(summary)
    )


@cache
def _templates() -> tuple[Environment, Markup, Markup]:
    """The templates, and the style and the script, which contain no data."""
    loader = PackageLoader("offpolicy.report.page")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = visible
    style, script = (Markup(loader.get_source(environment, name)[0]) for name in ("style.css", "report.js"))
    return environment, style, script


def _hash(script: str) -> str:
    """The hash of the only script that the browser may run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _view(summary: Summary) -> View:
    """Everything that the page shows, as text and coordinates."""
    several = len(summary["policies"]) > 1
    return {
        "title": sentences.title(summary),
        "command": summary.get("command"),
        "reward": label(summary["reward"]),
        "policy": label(summary["policies"][0]),
        "several": several,
        "estimator": label(summary["headline"]["estimator"]),
        "rounds": f"{summary['rounds']:,}",
        "actions": sentences.actions(summary),
        "logged": _logged(summary),
        "cards": views.cards(summary),
        "comparisons": sentences.comparisons(summary),
        "table": views.estimates_table(summary),
        "concerns": views.concerns(summary),
        "other_concerns": [
            (label(name), views.listed(policies), verdict, observed)
            for name, policies, verdict, observed in sentences.other_concerns(summary)
        ],
        "blends": views.blends(summary),
        "not_shown": [(views.listed(names), reason) for reason, names in sentences.by_reason(summary["skipped"])],
        "overlaps": views.overlaps(summary),
        "no_overlap": sentences.no_overlap(summary),
        "propensities": views.propensities(summary),
        "models": views.models(summary),
        "map": views.action_map(summary),
        "discrete": summary["actions"] is not None,
        "action_axes": views.action_axes(summary),
        "axis_facts": views.axis_facts(summary),
        "dose_response": views.dose_response(summary),
        "bandwidths": views.bandwidths(summary),
        "colours": COLOURS,
        "bounds": [
            (sentences.bounds_heading(bounds, several), *sentences.bounds_table(bounds), sentences.bounds_claims(bounds))
            for bounds in summary.get("sensitivity", ())
        ],
        "best": views.best_table(summary),
        "differences": views.differences_table(summary),
        "rewards": [_part(label(name), other) for name, other in summary.get("other_rewards", {}).items()],
        "slot_tables": views.slot_tables(summary),
        "slices": _slices(summary),
        "facts": _facts(summary),
        "words": views.WORDS,
    }


def _logged(summary: Summary) -> tuple[str, str] | None:
    logged = summary.get("logged")
    if not logged:
        return None
    return views.shown(logged["value"], logged["std_error"]), views.span(logged["interval"], logged["std_error"])


def _part(heading: str, part: Summary) -> tuple[str, View, list[str]]:
    """A heading, the estimates, and the headline with its findings."""
    return heading, views.estimates_table(part), sentences.part_answers(part)


def _slices(summary: Summary) -> View | None:
    """The headline of each slice in one table, and all estimates of the largest."""
    slices: Mapping[str, Summary] = summary.get("slices", {})
    if not slices:
        return None
    largest = sorted(slices.items(), key=lambda item: -item[1]["rounds"])
    headlines, in_full = (max(1, most // len(summary["policies"])) for most in (MOST_SLICES, MOST_IN_FULL))
    parts = [
        _part(f"{label(name)} · {sentences.title(part)}", part)
        for name, whole in largest[:in_full]
        for part in (whole, *whole.get("other_rewards", {}).values())
    ]
    limits = [("headlines", headlines), ("all estimates", in_full)]
    over = [f"{what} of the {most} largest of {len(slices):,} slices" for what, most in limits if most < len(slices)]
    note = f"Shown: {'; '.join(over)}" if over else ""
    return {"table": views.parts_table(summary, dict(largest[:headlines])), "parts": parts, "note": note}


def _facts(summary: Summary) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """The input, its columns, versions and settings: by group, each name with its lines."""
    read = dict(summary.get("input") or {})
    groups = {"Columns": read.pop("columns", None), "Versions": summary.get("versions"), "Settings": summary["settings"]}
    return [
        (name, [(label(key).replace("_", " "), _lines(value)) for key, value in group.items()])
        for name, group in {"Input": read, **groups}.items()
        if group
    ]


def _lines(value: Any) -> list[str]:
    """A setting as text; long items, such as estimators with all of their settings, each on its own line."""
    items = [_in_words(item) for item in value] if isinstance(value, list | tuple) else [_in_words(value)]
    return items if any(len(item) > LONG_ITEM for item in items) else [", ".join(items) or "–"]


def _in_words(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{visible(key)}: {_in_words(item)}" for key, item in value.items()) or "–"
    return f"{value:,}" if isinstance(value, int) else shortened(visible(value), LONGEST_ITEM)

"""The result as Markdown, with what it was made from. All words from the data are escaped: they come out as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from offpolicy.report import sensitivity as bounds, sentences
from offpolicy.report.formatting import VERDICTS, visible
from offpolicy.report.tables import RIGHT, markdown_table, rows_of

SPECIAL = re.compile(r"([\\`*_\[\]<>|~$&#])")


def escaped(text: object) -> str:
    r"""Text that Markdown and the HTML within it leave alone.

    >>> escaped("a|b <b> *c* [d](e)")
    'a\\|b \\<b\\> \\*c\\* \\[d\\](e)'
    """
    return SPECIAL.sub(r"\\\1", visible(text))


def markdown(result: Mapping[str, Any]) -> str:
    """The answer, the table, the findings as a list, the other rewards and slices, and how it was made."""
    lines = [f"# {escaped(sentences.title(result))}", ""]
    for e in sentences.leading(result):
        do = sentences.first_thing_to_do(e)
        lines += [f"{escaped(sentences.says(result, e))} Verdict: **{VERDICTS[e['verdict']]}**.", ""]
        lines += [f"First: {escaped(do)}", ""] if do else []
    lines += [*_paragraphs(sentences.compared(result)), *_table(result), ""]
    for heading, reasons in sentences.why(result):
        lines += [escaped(heading), "", *(f"- {escaped(reason)}" for reason in reasons), ""]
    lines += [*_paragraphs(sentences.notes(result)), *_bounds(result)]
    for heading, part in sentences.sections(result):
        lines += [
            f"## {escaped(heading)}",
            "",
            *_table(part),
            "",
            *_paragraphs(sentences.said_of_part(part)),
            *_bounds(part),
        ]
    lines += [*_paragraphs(sentences.footnotes(result)), *_provenance(result)]
    return "\n".join(lines).rstrip() + "\n"


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from (escaped(text), "")


def _table(result: Mapping[str, Any]) -> Sequence[str]:
    header, rows = rows_of(result)
    return markdown_table(header, [[escaped(cell) for cell in row] for row in rows], RIGHT)


def _bounds(result: Mapping[str, Any]) -> Iterator[str]:
    """What wrong propensities would do, where that was asked for."""
    for found in result.get("sensitivity", ()):
        yield from (escaped(bounds.heading(found, len(result["policies"]) > 1)), "")
        yield from (*markdown_table(*bounds.table(found), bounds.RIGHT), "", *_paragraphs(bounds.claims(found)))


def _provenance(result: Mapping[str, Any]) -> Iterator[str]:
    """What it takes to make the same report again, as far as the result knows it."""
    data = result.get("input") or {}
    columns = {role: names for role, names in (data.get("columns") or {}).items() if names}
    known = {"log": data.get("source"), "fingerprint": data.get("fingerprint"), "columns": columns}
    known |= {key: value for key, value in result["settings"].items() if value is not None}
    known["versions"] = result.get("versions")
    lines = [f"- {escaped(key)}: {escaped(_told(value))}" for key, value in known.items() if value not in (None, "", {}, [])]
    command = result.get("command")
    if lines or command:
        yield from ("## How this was made", "", *lines, "")
    if command:
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", command) or [""]))
        yield from (fence, visible(command), fence)


def _told(value: object) -> str:
    """A setting in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_told(each)}" for key, each in value.items())
    return ", ".join(map(_told, value)) if isinstance(value, (list, tuple)) else str(value)

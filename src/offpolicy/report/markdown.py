"""The result as Markdown, with its provenance. All words from the data are escaped, so they are shown as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from offpolicy.report import action_axis, comparison, sentences, slices, slots
from offpolicy.report.formatting import RIGHT, VERDICTS, Summary, markdown_table, visible

WIDEST = 1_000
"""The width of a table whose cells need not be shortened."""
SPECIAL = re.compile(r"([\\`*_\[\]<>|~$&#])")


def escaped(text: object) -> str:
    r"""Text that Markdown, and HTML inside it, shows as it is.

    >>> escaped("a|b <b> *c* [d](e)")
    'a\\|b \\<b\\> \\*c\\* \\[d\\](e)'
    """
    return SPECIAL.sub(r"\\\1", visible(text))


def markdown(result: Summary) -> str:
    """The answer, the table, the findings, the other rewards and slices, and the provenance."""
    lines = [f"# {escaped(sentences.title(result))}", ""]
    for e in sentences.leading(result):
        do = sentences.next_step(e)
        lines += [f"{escaped(sentences.answer(result, e))} Verdict: **{VERDICTS[e['verdict']]}**.", ""]
        lines += [f"Next step: {escaped(do)}", ""] if do else []
    lines += [*_paragraphs(sentences.comparisons(result)), *_best(result), *_table(result), ""]
    for heading, reasons in sentences.why(result):
        lines += [escaped(heading), "", *(f"- {escaped(reason)}" for reason in reasons), ""]
    lines += [*_paragraphs(sentences.notes(result)), *_bounds(result), *_actions(result)]
    for heading, part in sentences.sections(result):
        lines += [f"## {escaped(heading)}", "", *_best(part), *_table(part), ""]
        lines += [*_paragraphs(sentences.part_answers(part)), *_bounds(part)]
    for own in slots.tables(result):
        lines += [f"## {escaped(own.heading)}", "", *markdown_table(own.header, own.rows, slots.RIGHT), ""]
        lines += _paragraphs(own.notes)
    for table in slices.tables(result):
        rows = [[escaped(cell) for cell in row] for row in table.rows]
        lines += [f"## {escaped(table.heading)}", "", *markdown_table(table.header, rows, slices.RIGHT), ""]
        lines += _paragraphs(table.notes)
    lines += [*_paragraphs(sentences.footnotes(result)), *_provenance(result)]
    return "\n".join(lines).rstrip() + "\n"


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from (escaped(text), "")


def _table(result: Summary) -> Sequence[str]:
    header, rows = sentences.rows_of(result)
    return markdown_table(header, [[escaped(cell) for cell in row] for row in rows], RIGHT)


def _best(result: Summary) -> Iterator[str]:
    """All policies compared at once, where that was requested."""
    best = result.get("best")
    if best is not None:
        yield from _paragraphs([comparison.choice(best), comparison.heading(best)])
        header, rows = comparison.table(best, WIDEST)
        escaped_rows = [[escaped(cell) for cell in row] for row in rows]
        yield from (*markdown_table([escaped(name) for name in header], escaped_rows, comparison.RIGHT), "")
        yield from _paragraphs(comparison.notes(best))


def _actions(result: Summary) -> Iterator[str]:
    """Where actions are numbers: the estimate over bandwidths, and the value of each action."""
    for e in sentences.leading(result):
        if rows := e["diagnostics"].get("bandwidths"):
            name, (header, cells) = e["estimator"], action_axis.bandwidth_table(rows)
            of = f" for {escaped(e['policy'])}" if len(result["policies"]) > 1 else ""
            yield from (f"## {escaped(name)} over bandwidths{of}", "")
            yield from (
                *markdown_table(header, cells, frozenset(header) - {"estimator"}),
                "",
                action_axis.BANDWIDTH_MEANING,
                "",
            )
    if curve := result.get("dose_response"):
        header, cells = action_axis.curve_table(curve)
        meaning = action_axis.curve_meaning(curve)
        yield from ("## The value of each action", "", escaped(meaning), "")
        yield from (*markdown_table(header, cells, frozenset(header)), "")


def _bounds(result: Summary) -> Iterator[str]:
    """The effect of wrong propensities, where sensitivity bounds were requested."""
    for bounds in result.get("sensitivity", ()):
        yield from (escaped(sentences.bounds_heading(bounds, len(result["policies"]) > 1)), "")
        yield from (
            *markdown_table(*sentences.bounds_table(bounds), sentences.BOUNDS_RIGHT),
            "",
            *_paragraphs(sentences.bounds_claims(bounds)),
        )


def _provenance(result: Summary) -> Iterator[str]:
    """What it takes to make the same report again, as far as it is known."""
    data = result.get("input") or {}
    columns = {role: names for role, names in (data.get("columns") or {}).items() if names}
    known = {"log": data.get("source"), "fingerprint": data.get("fingerprint"), "columns": columns}
    known["preparation"] = data.get("preparation")
    known |= {key: value for key, value in result["settings"].items() if value is not None}
    known["versions"] = result.get("versions")
    lines = [
        f"- {escaped(key)}: {escaped(_in_words(value))}" for key, value in known.items() if value not in (None, "", {}, [])
    ]
    command = result.get("command")
    if lines or command:
        yield from ("## How this report was made", "", *lines, "")
    if command:
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", command) or [""]))
        yield from (fence, visible(command), fence)


def _in_words(value: object) -> str:
    """A setting in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_in_words(each)}" for key, each in value.items())
    return ", ".join(map(_in_words, value)) if isinstance(value, (list, tuple)) else str(value)

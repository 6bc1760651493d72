"""The result as text: what `print(result)` shows, in colour on a terminal; and one estimate explained."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from rich.text import Text

from offpolicy.report import action_axis, comparison, planning, sentences, slices, slots
from offpolicy.report.formatting import (
    VERDICTS,
    WIDTH,
    Cell,
    Summary,
    aligned,
    columns,
    label,
    number,
    percent,
    room_for_names,
    shortened,
    span,
    wrapped,
)

COLOURS = {"OK": "green", "CAUTION": "yellow", "DO_NOT_TRUST": "red"}
LEAST_NEEDED = ("eff. rounds", "error", "verdict", "interval")
VERDICT = 4
"""The position of the verdict in a row: it is coloured."""
SHORTEST_NAME = 14
NARROWEST = 40
SIMPLER = str.maketrans({"─": "-", "–": "-", "…": "~", "·": "-", "±": "+-"})
"""Replacements for an output encoding without these characters, such as a file on Windows."""


def plain(result: Summary) -> str:
    """The answer, the table and its notes as plain text, in 80 columns."""
    return page(result).plain


def page(result: Summary, width: int = WIDTH) -> Text:
    """The same with styles for a terminal. Plain text is this without styles, so the two cannot differ."""
    lines = [*_prose([sentences.title(result)], width), Text(), *_answers(result, width), Text()]
    lines += [*_best(result, width), *main_table(result, width)]
    for heading, reasons in sentences.why(result):
        lines += [Text(), *_prose([heading], width), *_prose((f"- {reason}" for reason in reasons), width)]
    notes = _prose(sentences.notes(result), width)
    lines += [Text(), *notes, *_bounds(result, width)[0 if notes else 1 :]]
    for heading, part in sentences.sections(result):
        lines += [Text(), *_prose([heading], width), Text(), *_prose(sentences.part_answers(part), width)]
        lines += [Text(), *_best(part, width), *main_table(part, width), *_bounds(part, width)]
    for own in slots.tables(result):
        rows = map(Text, aligned(own.header, own.rows, right=slots.RIGHT))
        lines += [Text(), *_prose([own.heading], width), Text(), *rows, Text(), *_prose(own.notes, width)]
    for table in slices.tables(result, width):
        rows = map(Text, aligned(table.header, table.rows, right=slices.RIGHT))
        lines += [Text(), *_prose([table.heading], width), Text(), *rows, Text(), *_prose(table.notes, width)]
    marks = sentences.footnotes(result)
    lines += [Text(), *_prose(marks, width)] if marks else []
    whole = Text("\n").join(lines)
    whole.rstrip()
    return whole


def _prose(paragraphs: Iterable[str], width: int) -> list[Text]:
    """Paragraphs as lines, indented after the first so that each beginning is visible."""
    return [Text(line) for paragraph in paragraphs for line in wrapped(paragraph, width, indent="  ")]


def _answers(result: Summary, width: int) -> list[Text]:
    """For each policy: the estimate, the verdict and the next step."""
    lines: list[Text] = []
    for e in sentences.leading(result):
        lines += [Text()] if lines else []
        verdict = Text("Verdict: ").append(VERDICTS[e["verdict"]], f"bold {COLOURS[e['verdict']]}").append(".")
        do = sentences.next_step(e)
        lines += [*_prose([sentences.answer(result, e)], width), verdict, *_prose([f"Next step: {do}"] if do else [], width)]
    comparisons = sentences.comparisons(result)
    return [*lines, Text(), *_prose(comparisons, width)] if comparisons else lines


def _best(result: Summary, width: int) -> list[Text]:
    """All policies compared at once, where that was requested."""
    best = result.get("best")
    return [] if best is None else [*map(Text, _compared(best, width)), Text()]


def _compared(compared: Summary, width: int) -> list[str]:
    above = (comparison.choice(compared), comparison.heading(compared))
    rows = aligned(*comparison.table(compared, width), right=comparison.RIGHT)
    below = [line for note in comparison.notes(compared) for line in wrapped(note, width, indent="  ")]
    first, second = (wrapped(each, width, indent="  ") for each in above)
    return [*first, "", *second, "", *rows, *([""] if below else []), *below]


def best(compared: Summary) -> str:
    """Policies compared at once, as plain text."""
    return "\n".join(_compared(compared, WIDTH))


def plan(planned: Summary) -> str:
    """How many rounds are needed, as plain text."""
    header, rows = planning.table(planned)
    heading, note = (wrapped(line, WIDTH, indent="  ") for line in (planning.heading(planned), planning.note(planned)))
    return "\n".join([*heading, "", *aligned(header, rows, right=planning.RIGHT), "", *note])


def _bounds(result: Summary, width: int) -> list[Text]:
    """The effect of wrong propensities, where sensitivity bounds were requested."""
    lines: list[Text] = []
    for bounds in result.get("sensitivity", ()):
        lines += [Text(), *map(Text, _bounded(bounds, width, len(result["policies"]) > 1))]
    return lines


def _bounded(bounds: Summary, width: int, several: bool) -> list[str]:
    header, rows = sentences.bounds_table(bounds)
    claims = [line for each in sentences.bounds_claims(bounds) for line in wrapped(each, width, indent="  ")]
    heading = wrapped(sentences.bounds_heading(bounds, several), width, indent="  ")
    return [*heading, "", *aligned(header, rows, right=sentences.BOUNDS_RIGHT), "", *claims]


def sensitivity(bounds: Summary) -> str:
    """Sensitivity bounds as plain text."""
    return "\n".join(_bounded(bounds, WIDTH, several=True))


class Explanation(str):
    """Text that keeps its lines where an interactive session shows it: in a notebook, and at a Python prompt."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"


def explained(estimate: Summary) -> Explanation:
    """An estimate in words; for a blend, every candidate with its weight and the reason for it."""
    error, diagnostics, ci = estimate["std_error"], estimate["diagnostics"], estimate["interval"]
    name, level = f"{label(estimate['estimator'])} for {label(estimate['policy'])}", percent(ci["level"])
    value, verdict = number(estimate["value"], error), VERDICTS[estimate["verdict"]]
    lines = wrapped(f"{name}: {value}, {level} interval {span(ci, error)}; verdict: {verdict}.", indent="  ")
    if (adjusted := sentences.adjusted(estimate)) is not None:
        belongs = f"The interval belongs to {number(adjusted, error)}, the estimate that is adjusted to a mean weight of 1."
        lines += wrapped(belongs, indent="  ")
    if "candidates" in diagnostics:
        lines += ["", *(_bandwidths(diagnostics) if diagnostics.get("bandwidths") else _candidates(diagnostics)), ""]
        notes = [*sentences.composition(estimate, whole=True), diagnostics["rule"], *sentences.basis_of_bias(diagnostics)]
        notes += sentences.still_learning(diagnostics)
        if not all(c["error_known"] for c in diagnostics["candidates"]):
            notes.append("A candidate whose standard error is unknown gets no weight.")
        factor = diagnostics["errors_of_nearly_unbiased_multiplied_by"]
        if factor > 1:
            notes.append(
                f"The mean weight is {diagnostics['mean_weight']:.3f}, {factor:.1f} standard errors below 1: the log lacks "
                "rounds with the largest weights, so the standard errors of nearly unbiased candidates are multiplied by "
                f"{factor:.1f}."
            )
        lines += [line for each in notes for line in wrapped(each, indent="  ")]
    for reason in sentences.worst_first(estimate):
        lines += wrapped(f"- {reason['seen']} {reason['why']} {reason['do']}", indent="  ")
    return Explanation("\n".join(lines))


def _bandwidths(diagnostics: Summary) -> list[str]:
    """The table of the widths that a kernel estimator mixes."""
    header, rows = action_axis.bandwidth_table(diagnostics["bandwidths"])
    return [
        *aligned(header, rows, right=set(header) - {"estimator"}),
        "",
        *wrapped(action_axis.BANDWIDTH_MEANING, indent="  "),
    ]


def _candidates(diagnostics: Summary) -> list[str]:
    """The table of a blend's candidates."""
    candidates = diagnostics["candidates"]
    header = ["candidate", "weight", "value", "std. error", "est. bias"]
    header += [f"minus {label(diagnostics['anchor'])}"] if sentences.compared(diagnostics) else []
    error = sentences.resolution(candidates, candidates[:1])
    rows = [
        [
            label(c["name"]),
            f"{c['weight']:.1%}",
            number(c["value"], error),
            number(c["std_error"], error) if c["error_known"] else "unknown",
            sentences.bias(c, error),
            f"{number(c['difference'], error)} ± {number(c['difference_error'], error)}"
            if c["name"] != diagnostics["anchor"] else "(nearly unbiased)",
        ][: len(header)]
        for c in candidates
    ]  # fmt: skip
    room = max(room_for_names(header, rows), SHORTEST_NAME)
    return aligned(header, [[shortened(name, room), *rest] for name, *rest in rows], right=set(header[1:]))


def main_table(result: Summary, width: int = WIDTH) -> list[Text]:
    """The main table within this width, with policies as headings; a note lists the columns that do not fit."""
    header, rows = sentences.header_of(result), list(sentences.estimate_rows(result))
    dropped: list[str] = []
    for least in (None, *LEAST_NEEDED):
        name = next((h for h in header if least is not None and h.endswith(least)), None)
        dropped += [name] if name else []
        retained = [k for k, h in enumerate(header) if h not in dropped]
        cells = [["", *(row.cells[k - 1] for k in retained[1:])] for row in rows]
        room = room_for_names([header[k] for k in retained], cells, width)
        if room >= SHORTEST_NAME:
            break
    lines = columns([header[k] for k in retained], [*_styled(result, rows, retained, room)])
    note = [Text(shortened(f"(Columns that do not fit: {', '.join(dropped)}.)", width))] if dropped else []
    return [*lines, *note]


def _styled(
    result: Summary, rows: Sequence[sentences.EstimateRow], retained: Sequence[int], room: int
) -> Iterator[list[Cell]]:
    """Where there are several policies: the logged mean first, then each policy's name and its estimates."""
    several = len(result["policies"]) > 1
    groups = [None, *result["policies"]] if several else [None]
    for group in groups:
        if group is not None:
            yield [label(group)]
        for row in (row for row in rows if not several or row.policy == group):
            indent = "  " if group is not None else ""
            name = indent + shortened(row.name, max(room - len(row.marks) - len(indent), 2)) + row.marks
            weight, colour = "bold" if row.leads else "", COLOURS[row.verdict] if row.policy is not None else ""
            cells = [name, *row.cells]
            yield [Text(cells[k], f"{weight} {colour if k == VERDICT else ''}".strip()) for k in retained]


def shown(summary: Summary) -> str:
    """What to print: plain text in 80 columns or, on a terminal, the same in colour and in its width if narrower."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        return plain(summary)
    styled = page(summary, max(NARROWEST, min(console.width, WIDTH)))
    if console.no_color:  # Rich would keep bold and dim
        return styled.plain
    with console.capture() as captured:
        console.print(styled, soft_wrap=True, end="")
    return captured.get()


def say(text: str) -> None:
    """Print; characters that the output cannot encode are replaced and never raise an error."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(SIMPLER).encode(encoding, "replace").decode(encoding)
    print(text)

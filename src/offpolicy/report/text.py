"""The result as text: the whole page of `print(result)`, and one estimate explained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.text import Text

from offpolicy.report import sensitivity as bounds, sentences
from offpolicy.report.formatting import VERDICTS, WIDTH, label, number, percent, shortened, span, wrapped
from offpolicy.report.markdown import markdown
from offpolicy.report.tables import COLOURS, SHORTEST_NAME, aligned, main_table, room_for_names

__all__ = ["explained", "label", "markdown", "number", "page", "plain", "sensitivity"]


def plain(result: Mapping[str, Any]) -> str:
    """The answer, the table and its notes as plain text, in 80 columns."""
    return page(result).plain


def page(result: Mapping[str, Any], width: int = WIDTH) -> Text:
    """The same with styles for a terminal: without them it is the plain text, so the two cannot differ."""
    lines = [*_prose([sentences.title(result)], width), Text(), *_answers(result, width), Text(), *main_table(result, width)]
    for heading, reasons in sentences.why(result):
        lines += [Text(), *_prose([heading], width), *_prose((f"- {reason}" for reason in reasons), width)]
    notes = _prose(sentences.notes(result), width)
    lines += [Text(), *notes, *_bounds(result, width)[0 if notes else 1 :]]
    for heading, part in sentences.sections(result):
        lines += [Text(), *_prose([heading], width), Text(), *_prose(sentences.said_of_part(part), width)]
        lines += [Text(), *main_table(part, width), *_bounds(part, width)]
    marks = sentences.footnotes(result)
    lines += [Text(), *_prose(marks, width)] if marks else []
    whole = Text("\n").join(lines)
    whole.rstrip()
    return whole


def _prose(paragraphs: Iterable[str], width: int) -> list[Text]:
    """Paragraphs in lines; from the second line on they are set in, so that each is seen to begin."""
    return [Text(line) for paragraph in paragraphs for line in wrapped(paragraph, width, indent="  ")]


def _answers(result: Mapping[str, Any], width: int) -> list[Text]:
    """For each policy: what is said, the verdict, and what to do first."""
    lines: list[Text] = []
    for e in sentences.leading(result):
        lines += [Text()] if lines else []
        verdict = Text("Verdict: ").append(VERDICTS[e["verdict"]], f"bold {COLOURS[e['verdict']]}").append(".")
        do = sentences.first_thing_to_do(e)
        lines += [*_prose([sentences.says(result, e)], width), verdict, *_prose([f"First: {do}"] if do else [], width)]
    compared = sentences.compared(result)
    return [*lines, Text(), *_prose(compared, width)] if compared else lines


def _bounds(result: Mapping[str, Any], width: int) -> list[Text]:
    """What wrong propensities would do, where that was asked for."""
    lines: list[Text] = []
    for found in result.get("sensitivity", ()):
        lines += [Text(), *map(Text, _bounded(found, width, len(result["policies"]) > 1))]
    return lines


def _bounded(found: Mapping[str, Any], width: int, several: bool) -> list[str]:
    header, rows = bounds.table(found)
    said = [line for each in bounds.claims(found) for line in wrapped(each, width, indent="  ")]
    heading = wrapped(bounds.heading(found, several), width, indent="  ")
    return [*heading, "", *aligned(header, rows, right=bounds.RIGHT), "", *said]


def sensitivity(found: Mapping[str, Any]) -> str:
    """Bounds where propensities may be wrong, as plain text."""
    return "\n".join(_bounded(found, WIDTH, several=True))


def explained(estimate: Mapping[str, Any]) -> str:
    """An estimate in words; of a blend, every candidate with its weight and why it has that."""
    error, seen, ci = estimate["std_error"], estimate["diagnostics"], estimate["interval"]
    name, level = f"{label(estimate['estimator'])} of {label(estimate['policy'])}", percent(ci["level"])
    value, verdict = number(estimate["value"], error), VERDICTS[estimate["verdict"]]
    lines = wrapped(f"{name}: {value}, {level} interval {span(ci, error)}; verdict: {verdict}.", indent="  ")
    if "candidates" in seen:
        lines += ["", *_candidates(seen), ""]
        told = [*sentences.blended(estimate, whole=True), seen["rule"]]
        if not all(c["error_known"] for c in seen["candidates"]):
            told.append("A candidate whose error is not known gets no weight.")
        factor = seen["errors_of_nearly_unbiased_multiplied_by"]
        if factor > 1:
            told.append(
                f"The mean weight is {seen['mean_weight']:.3f}, {factor:.1f} of its standard errors below 1: the log missed "
                "what weights are largest for, and the errors of nearly unbiased candidates are multiplied by that number."
            )
        lines += [line for each in told for line in wrapped(each, indent="  ")]
    for reason in sentences.worst_first(estimate):
        lines += wrapped(f"- {reason['seen']} {reason['why']} {reason['do']}", indent="  ")
    return "\n".join(lines)


def _candidates(seen: Mapping[str, Any]) -> list[str]:
    """The table of a blend's candidates."""
    header = ["candidate", "weight", "value", "std. error", "bias seen", f"less {label(seen['anchor'])}"]
    rows = [
        [
            label(c["name"]),
            f"{c['weight']:.1%}",
            number(c["value"], c["std_error"]),
            f"{c['std_error']:.2g}" if c["error_known"] else "not known",
            sentences.bias(c),
            f"{number(c['difference'], c['difference_error'])} ± {c['difference_error']:.2g}"
            if c["name"] != seen["anchor"] else "(nearly unbiased)",
        ]
        for c in seen["candidates"]
    ]  # fmt: skip
    room = max(room_for_names(header, rows), SHORTEST_NAME)
    return aligned(header, [[shortened(name, room), *rest] for name, *rest in rows], right=set(header[1:]))

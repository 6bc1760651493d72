"""An experiment's results as tables in text and Markdown, and as a plain dict for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from offpolicy.experiments.claims import Judged
from offpolicy.experiments.runs import MEASURES, Results
from offpolicy.report.formatting import WIDTH, blocks, label as one_line, markdown_table, number, wrapped
from offpolicy.worlds.registry import world

NAMES = {"mse": "mean squared error", "bias2": "bias²", "variance": "variance"}
LONGEST_WORDS = 300


def name_of(measure: str) -> str:
    if measure == "ratio":
        return "mean squared error, divided by that of the reference"
    if measure.startswith("median"):
        return f"n × median squared error over {measure[6:]} logs"
    return f"n × {NAMES[measure[7:]]}" if measure.startswith("scaled ") else NAMES[measure]


def measures(results: Results) -> list[str]:
    """The measures to show: the medians of the paper's table and the means, or those with values."""
    medians = [f"median{k}" for k in results.experiment.medians]
    possible = [*medians, *(f"scaled {m}" for m in MEASURES)] if medians else [*MEASURES]
    possible += ["ratio"] if results.experiment.reference else []
    return [m for m in possible if np.isfinite(results.summary(m)[0]).any()]


def judged(results: Results) -> list[Judged]:
    return [claim.judge(results) for claim in results.experiment.claims]


def table_of(results: Results, measure: str) -> tuple[list[str], list[list[str]]]:
    """Estimators × points: mean ± standard error."""
    mean, error = results.summary(measure)
    header = [f"{results.experiment.axis} →", *(point.name for point in results.experiment.points)]
    rows = [
        [_row_label(results, k), *(_cell(mean[k, p], error[k, p]) for p in range(mean.shape[1]))]
        for k in range(len(results.experiment.entries))
    ]
    return header, rows


def _row_label(results: Results, k: int) -> str:
    """The label, with the number of worlds if it is smaller than that of the others."""
    each, worlds = results.experiment.entries[k], results.experiment.worlds
    name = one_line(each.label)
    failed = sum(results.failures.get(each.label, {}).values())
    name = f"{name} (failed in {failed:,} runs)" if failed else name
    return name if each.worlds is None or each.worlds >= worlds else f"{name} ({each.worlds} worlds)"


def _cell(mean: float, error: float) -> str:
    if not np.isfinite(mean):
        return "–"
    if not np.isfinite(error):
        return number(mean)
    short = float(f"{error:.1g}")
    if not 1e-4 < short < 1e6:
        return f"{mean:.3g} ± {error:.1g}"
    return f"{np.format_float_positional(float(f'{mean:.3g}'), trim='-')} ± {np.format_float_positional(short, trim='-')}"


def published_table(results: Results, measure: str) -> tuple[list[str], list[list[str]]]:
    """Our value, the published one, and their difference in standard errors."""
    mean, error = results.summary(measure)
    rows = []
    for name, figures in results.experiment.published.items():
        k = results.experiment.labels.index(name)
        for p, point in enumerate(results.experiment.points):
            if str(point.label) in figures:
                there, there_error = figures[str(point.label)]
                z = (mean[k, p] - there) / np.hypot(error[k, p], there_error)
                ours = _cell(mean[k, p], error[k, p])
                rows.append([name, point.name, ours, f"{there:g} ± {there_error:g}", f"{z:+.1f}"])
    return ["estimator", results.experiment.axis, "ours", "published", "difference in errors"], rows


def share_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """How often each estimator is nearer to the true value than those that errors are relative to."""
    header = ["estimator", *(f"nearer than {other}" for other in results.experiment.relative_to)]
    rows = []
    for label in results.experiment.labels:
        cells = []
        for other in results.experiment.relative_to:
            share, low, high, n = results.shares(label, other)
            cells.append("–" if label == other or not n else f"{share:.0%} ({low:.0%} to {high:.0%})")
        rows.append([one_line(label), *cells])
    return header, rows


def tables(results: Results) -> list[tuple[str, list[str], list[list[str]]]]:
    """All tables with their titles."""
    share = " as a share of the true value" if results.experiment.normalised else ""
    shown = [(f"{name_of(m)}{share} (mean ± standard error)", *table_of(results, m)) for m in measures(results)]
    if results.experiment.published:
        compared = [f"median{k}" for k in results.experiment.medians] or ["ratio" if results.experiment.reference else "mse"]
        shown += [(f"beside the published figures: {name_of(m)}", *published_table(results, m)) for m in compared]
    if results.experiment.relative_to:
        title = "share of samples nearer to the truth (95% interval: the data and the truth are themselves samples)"
        shown.append((title, *share_table(results)))
    return shown


def heading(results: Results) -> list[str]:
    """What was run."""
    e = results.experiment
    logs, sizes = f"{e.logs:,} log{'s' * (e.logs > 1)}", {point.rounds for point in e.points}
    size = f" of {sizes.pop():,} rounds" if len(sizes) == 1 else ""
    of = f"{e.worlds:,} worlds × {logs}{size}" if e.worlds > 1 else f"{logs}{size}"
    where = f" at each of {len(e.points)} points" if len(e.points) > 1 else ""
    return [e.title, f"{of}{where}. {e.note}".strip()]


def command(results: Results) -> str:
    """The command that produces these values."""
    e = results.experiment
    data = " --data FOLDER" if any(point.kind == "open-bandit" for point in e.points) else ""
    return f"offpolicy reproduce {e.source} --worlds {e.worlds} --logs {e.logs}{data}"


def notes(results: Results) -> list[str]:
    """How well the true values are known, and what failed."""
    worlds = (world(point.kind, point.settings) for point in results.experiment.points)
    lines = list(dict.fromkeys(note for note in (each.value_note for each in worlds) if note))
    if np.nanmax(results.truth_error) > 0:
        p, w = np.unravel_index(np.nanargmax(results.truth_error), results.truth.shape)
        lines.append(
            f"The true values are averages: the largest standard error is {results.truth_error[p, w]:.2g}, of a value of "
            f"{results.truth[p, w]:.4g}. Its square, {results.truth_error[p, w] ** 2:.2g}, is part of every mean squared "
            "error and bias²."
        )
    if any((results.summary(m)[0] < 0).any() for m in measures(results) if m.endswith("bias2")):
        lines.append(
            "The square of a mean error is too large by the variance of that mean, which is taken off: so the bias² of an "
            "unbiased estimator falls on either side of 0. What is below 0 has no place in the picture."
        )
    for label, why in results.failures.items():
        text = why.most_common(1)[0][0][:LONGEST_WORDS]
        of = int(np.isfinite(results.values[results.experiment.labels.index(label)]).sum()) + sum(why.values())
        lines.append(f"{label} failed in {sum(why.values()):,} of {of:,} runs, which are left out of its numbers: {text}")
    return lines


def plain(results: Results, width: int = WIDTH) -> str:
    """The tables, notes and claims as text of this width."""
    lines = _wrapped(heading(results), width)
    for title, header, rows in tables(results):
        lines += ["", *wrapped(title, width), "", *blocks(header, rows, width)]
    unjudged = [f"Not judged at this size: {says}" for says in results.experiment.unjudged]
    lines += ["", *_wrapped([*notes(results), *unjudged], width)]
    return "\n".join([*lines, *_claims_text(judged(results))]).rstrip()


def _wrapped(paragraphs: Sequence[str], width: int) -> list[str]:
    return [line for each in paragraphs for line in wrapped(each, width, indent="  ")]


def _claims_text(claims: Sequence[Judged]) -> list[str]:
    lines: list[str] = []
    for each in claims:
        lines += ["", f"{each.verdict.upper()}: {each.says}", *(f"    {line}" for line in each.evidence)]
    return lines


def markdown(results: Results) -> str:
    """The same as Markdown, with the figure."""
    title, about = heading(results)
    lines = [f"# {title}", "", about, "", f"Made by `{command(results)}`.", "", "![](figure.png)", ""]
    for name, header, rows in tables(results):
        lines += [f"**{name[0].upper()}{name[1:]}**", "", *markdown_table(header, rows, right=set(header[1:])), ""]
    lines += [f"{line}\n" for line in notes(results)]
    lines += [f"Not judged at this size: {says}\n" for says in results.experiment.unjudged]
    for each in judged(results):
        lines += [f"- **{each.verdict}**: {each.says}", *(f"  - {line}" for line in each.evidence)]
    return "\n".join(lines).rstrip() + "\n"


def as_dict(results: Results) -> dict[str, Any]:
    """For JSON; the schema has a version."""
    summaries = {m: results.summary(m) for m in measures(results)}
    rows = [
        {
            "point": point.label,
            "estimator": label,
            **{m: float(mean[k, p]) for m, (mean, _) in summaries.items()},
            **{f"{m}_error": float(error[k, p]) for m, (_, error) in summaries.items()},
        }
        for p, point in enumerate(results.experiment.points)
        for k, label in enumerate(results.experiment.labels)
    ]
    return {
        "schema": "offpolicy.experiment/1",
        "experiment": results.experiment.name,
        "key": results.experiment.key,
        "runs": results.runs,
        "command": command(results),
        "notes": notes(results),
        "table": rows,
        "claims": [{"says": j.says, "verdict": j.verdict, "evidence": list(j.evidence)} for j in judged(results)],
        "failures": {label: dict(why) for label, why in results.failures.items()},
    }

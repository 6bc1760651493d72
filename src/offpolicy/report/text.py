"""The result as a table in the terminal, as Markdown, and as a small HTML table for notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from html import escape
from typing import Any

LONGEST_LABEL = 40
SHOWN = 3
VERDICTS = {"OK": "ok", "CAUTION": "caution", "DO_NOT_TRUST": "do not trust"}


def number(value: float | None, error: float | None = None) -> str:
    """A number with the digits that its error allows.

    >>> number(0.123456, 0.00234), number(123456.0, 3200.0), number(2.5e10, 3e9), number(float("nan"))
    ('0.1235', '123,500', '2.50e+10', 'undefined')
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "undefined"
    if not error or not math.isfinite(error) or error <= 1e-14 * abs(value):
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.4e}"
    if max(abs(value), error) >= 1e7 or error < 1e-9:
        return f"{value:.{max(2, min(12, 1 + _magnitude(value) - _magnitude(error)))}e}"
    digits = 1 - _magnitude(error)
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def label(text: str) -> str:
    """A name from the data, on one line and of a bearable length."""
    line = " ".join(str(text).split())
    return line if len(line) <= LONGEST_LABEL else line[: LONGEST_LABEL - 1] + "…"


def rows_of(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The header and the cells of the main table. The logged mean, the same for all policies, stands once."""
    several, truth = len(result["policies"]) > 1, result.get("truth")
    header = ["estimator", "value", f"{result['level']:.0%} interval", "eff. rounds", "verdict"]
    header = [*(["policy"] if several else []), *header, *(["off by"] if truth is not None else [])]
    rows = []
    for e in result["estimates"]:
        if _is_naive(e) and e["policy"] != result["policies"][0]:
            continue
        ci, error = e["interval"], e["std_error"]
        ess = e["diagnostics"].get("effective_sample_size")
        cells = [
            e["estimator"]
            + (" *" if e["diagnostics"].get("fit_not_covered") else "")
            + (" †" if _otherwise(result, e) else ""),
            number(e["value"], error),
            f"{number(ci['low'], error)} to {number(ci['high'], error)}" if math.isfinite(ci["low"]) else "undefined",
            "–" if ess is None else f"{ess:,.0f}",
            VERDICTS[e["verdict"]],
        ]
        policy = ["(the log)" if _is_naive(e) else label(e["policy"])] if several else []
        rows.append([*policy, *cells, *([number(e["value"] - truth[e["policy"]], error)] if truth is not None else [])])
    return header, rows


def _marks(result: Mapping[str, Any], estimate: Mapping[str, Any]) -> str:
    fit = " *" if estimate["diagnostics"].get("fit_not_covered") else ""
    return fit + (" †" if _otherwise(result, estimate) else "")


def _otherwise(result: Mapping[str, Any], estimate: Mapping[str, Any]) -> bool:
    """Whether its interval is a normal one among others: there are none for finite samples of a blend."""
    methods = {e["interval"]["method"] for e in result["estimates"]}
    return len(methods) > 1 and estimate["interval"]["method"] == "normal"


def _is_naive(estimate: Mapping[str, Any]) -> bool:
    return any(reason["code"] == "naive" for reason in estimate["reasons"])


RIGHT = frozenset({"value", "eff. rounds", "off by"})


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], right: Set[str] = RIGHT) -> list[str]:
    """A table in columns; those with a name among `right` are set to the right."""
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        parts = [c.rjust(w) if h in right else c.ljust(w) for c, w, h in zip(cells, widths, header, strict=True)]
        return "  ".join(parts).rstrip()

    return [line(header), "  ".join("─" * w for w in widths), *(line(row) for row in rows)]


def notes(result: Mapping[str, Any]) -> list[str]:
    """What stands below the table: the headline in words, every reason for a doubt, what was left out."""
    lead, several = result["headline"]["estimator"], len(result["policies"]) > 1
    lines = []
    for e in (e for e in result["estimates"] if e["estimator"] == lead):
        of = f" of {label(e['policy'])}" if several else ""
        lines.append(f"{lead} says {number(e['value'], e['std_error'])}{of}; verdict: {VERDICTS[e['verdict']]}.")
        if "candidates" in e["diagnostics"]:
            lines += _blended(e, of)
        worst_first = sorted(e["reasons"], key=lambda r: list(VERDICTS).index(r["verdict"]), reverse=True)
        lines += [f"- {reason['seen']} {reason['why']} {reason['do']}" for reason in worst_first]
    lines += _other_doubts(result, lead, several)
    for policy, truth in (result.get("truth") or {}).items():
        error = next(e["std_error"] for e in result["estimates"] if e["estimator"] == lead and e["policy"] == policy)
        lines.append(f"The true value of {policy} is {number(truth, error)}: known, since this log was simulated.")
    skipped: dict[str, list[str]] = {}
    for name, why in result["skipped"].items():
        skipped.setdefault(why, []).append(name)
    lines += [f"Not shown: {', '.join(names)} ({why})" for why, names in skipped.items()]
    # What is left out is the same for every policy, and is said once; reasons stand below the policy that they are about.
    return [line for k, line in enumerate(lines) if line.startswith("- ") or line not in lines[:k]]


def _blended(estimate: Mapping[str, Any], of: str = "", whole: bool = False) -> list[str]:
    """Which candidates carry a blend, what the runner-up says, and what was left out (with `whole`, in all words)."""
    name, candidates, error = estimate["estimator"], estimate["diagnostics"]["candidates"], estimate["std_error"]
    heavy = [c for c in candidates if c["weight"] >= 0.005][:SHOWN]
    shares = ", ".join(f"{c['weight']:.0%} {label(c['name'])} [± {c['std_error']:.2g}, bias {_bias(c)}]" for c in heavy)
    lines = [f"{name}{of} is {shares}{', …' if sum(c['weight'] for c in heavy) < 0.995 else ''}."]
    runner_up = next((c for c in candidates[1:] if c["error_known"]), None)
    if runner_up is not None:
        lines[0] += f" The runner-up, {label(runner_up['name'])}, says {number(runner_up['value'], error)}."
    left_out: dict[str, list[str]] = {}
    for candidate, why in estimate["diagnostics"]["left_out"].items():
        left_out.setdefault(why, []).append(label(candidate))
    for why, names in left_out.items():
        said = why if whole else why.partition(". ")[0]
        lines.append(f"{name} leaves out {', '.join(names)}: {said.rstrip('.')}.")
    return lines


def explained(estimate: Mapping[str, Any]) -> str:
    """An estimate in words; of a blend, every candidate with its weight and why it has that."""
    error, seen = estimate["std_error"], estimate["diagnostics"]
    ci, value = estimate["interval"], number(estimate["value"], error)
    lines = [
        f"{estimate['estimator']} of {label(estimate['policy'])}: {value}, {ci['level']:.0%} interval "
        f"{number(ci['low'], error)} to {number(ci['high'], error)}; verdict: {VERDICTS[estimate['verdict']]}."
    ]
    if "candidates" in seen:
        header = ["candidate", "weight", "value", "std. error", "bias seen", f"less {seen['anchor']}"]
        rows = [
            [
                label(c["name"]),
                f"{c['weight']:.1%}",
                number(c["value"], c["std_error"]),
                f"{c['std_error']:.2g}" if c["error_known"] else "not known",
                _bias(c),
                f"{number(c['difference'], c['difference_error'])} ± {c['difference_error']:.2g}"
                if c["name"] != seen["anchor"] else "(nearly unbiased)",
            ]
            for c in seen["candidates"]
        ]  # fmt: skip
        lines += ["", *aligned(header, rows, right=set(header[1:])), "", *_blended(estimate, whole=True), seen["rule"]]
        if not all(c["error_known"] for c in seen["candidates"]):
            lines.append("A candidate whose error is not known gets no weight.")
        factor = seen["errors_of_nearly_unbiased_multiplied_by"]
        if factor > 1:
            lines.append(
                f"The mean weight is {seen['mean_weight']:.3f}, {factor:.1f} of its standard errors below 1: the log missed "
                "what weights are largest for, and the errors of nearly unbiased candidates are multiplied by that number."
            )
    lines += [f"- {reason['seen']} {reason['why']} {reason['do']}" for reason in estimate["reasons"]]
    return "\n".join(lines)


def _bias(candidate: Mapping[str, Any]) -> str:
    if not candidate["error_known"]:
        return "not judged"
    return number(candidate["estimated_bias"], candidate["std_error"]) if candidate["estimated_bias"] else "none"


def _other_doubts(result: Mapping[str, Any], lead: str, several: bool) -> list[str]:
    """One line for each other estimate that is not ok: what was seen, without what was said of the lead already."""
    said = {(e["policy"], r["seen"]) for e in result["estimates"] if e["estimator"] == lead for r in e["reasons"]}
    lines = []
    for e in result["estimates"]:
        if e["estimator"] != lead and not _is_naive(e):
            seen = [r["seen"] for r in e["reasons"] if (e["policy"], r["seen"]) not in said]
            of = f" of {label(e['policy'])}" if several else ""
            lines += [f"{e['estimator']}{of}: {' '.join(seen)}"] if seen else []
    return lines


def title(result: Mapping[str, Any]) -> str:
    rounds = "1 round" if result["rounds"] == 1 else f"{result['rounds']:,} rounds"
    return f"{label(result['reward'])}: {rounds}, {result['actions']:,} actions"


def sections(result: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """What stands below the main table: the other rewards, then every slice with all of its rewards."""
    found = [(title(other), other) for other in result.get("other_rewards", {}).values()]
    for name, part in result.get("slices", {}).items():
        found += [(f"{label(name)} · {title(p)}", p) for p in (part, *part.get("other_rewards", {}).values())]
    return found


def plain(result: Mapping[str, Any]) -> str:
    """The table and its notes as plain text."""
    lines = [title(result), "", *aligned(*rows_of(result)), "", *notes(result)]
    for heading, part in sections(result):
        lines += ["", heading, "", *aligned(*rows_of(part)), *_why(part)]
    return "\n".join([*lines, *_footnote(result)])


def _why(part: Mapping[str, Any]) -> list[str]:
    """What was seen of the leading estimate of a slice, or of another reward, that is not ok."""
    lead = part["headline"]["estimator"]
    found = [e for e in part["estimates"] if e["estimator"] == lead and e["reasons"]]
    return ["", *(f"{lead}: {' '.join(r['seen'] for r in e['reasons'])}" for e in found)] if found else []


def _footnote(result: Mapping[str, Any]) -> list[str]:
    parts = [result, *(part for _, part in sections(result))]
    starred = any(e["diagnostics"].get("fit_not_covered") for part in parts for e in part["estimates"])
    notes = ["", "* the error of what it fitted is not in this interval."] if starred else []
    if any(_otherwise(part, e) for part in parts for e in part["estimates"]):
        notes += ["", "† a normal interval: there is none of the kind asked for."]
    return notes


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Set[str] = frozenset()) -> list[str]:
    """The lines of a Markdown table; columns with a name among `right` are set to the right."""
    rule = ["---:" if name in right else "---" for name in header]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [header, rule, *rows]]


def markdown(result: Mapping[str, Any]) -> str:
    """The same as Markdown."""

    lines = [f"# {title(result)}", "", *markdown_table(*rows_of(result)), "", *(f"{line}\n" for line in notes(result))]
    for heading, part in sections(result):
        lines += [f"## {heading}", "", *markdown_table(*rows_of(part)), *_why(part), ""]
    return "\n".join([*lines, *_footnote(result)]) + "\n"


def html_table(result: Mapping[str, Any]) -> str:
    """A plain HTML table for notebooks."""
    header, rows = rows_of(result)
    head = "".join(f"<th>{escape(h)}</th>" for h in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    below = "".join(f"<p>{escape(line)}</p>" for line in notes(result))
    return f"<table><caption>{escape(title(result))}</caption><tr>{head}</tr>{body}</table>{below}"

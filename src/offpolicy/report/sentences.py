"""The answer in words: what the leading estimator says, whether to believe it, what to do first, and every doubt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from offpolicy.report.formatting import VERDICTS, label, number, percent, span, visible
from offpolicy.report.tables import estimate_rows, is_naive, meanings

SHOWN = 3
MOST_SLICES = 20


def title(result: Mapping[str, Any]) -> str:
    rounds = "1 round" if result["rounds"] == 1 else f"{result['rounds']:,} rounds"
    logged = result.get("actions_logged")
    seen = f", {logged:,} of them logged" if logged is not None and logged < result["actions"] else ""
    return f"{label(result['reward'])}: {rounds}, {actions(result)}{seen}"


def actions(result: Mapping[str, Any]) -> str:
    """How many actions there are, or what they are where they cannot be counted."""
    return f"actions: {visible(result['action_space'])}" if "action_space" in result else f"{result['actions']:,} actions"


def sections(result: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """What stands below the main table: the other rewards, then the largest slices with all of their rewards."""
    found = [(title(other), other) for other in result.get("other_rewards", {}).values()]
    slices = sorted(result.get("slices", {}).items(), key=lambda item: -item[1]["rounds"])
    for name, part in slices[:MOST_SLICES]:
        found += [(f"{label(name)} · {title(p)}", p) for p in (part, *part.get("other_rewards", {}).values())]
    return found


def leading(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The estimates to lead with, one a policy."""
    return [e for e in result["estimates"] if e["estimator"] == result["headline"]["estimator"]]


def says(result: Mapping[str, Any], estimate: Mapping[str, Any]) -> str:
    """What the leading estimate says, beside what the log earned."""
    of = f"{label(estimate['policy'])}: " if len(result["policies"]) > 1 else ""
    who, value = label(estimate["estimator"]), number(estimate["value"], estimate["std_error"])
    level = percent(estimate["interval"]["level"])
    if not math.isfinite(estimate["value"]):
        return f"{of}{who} gives no number."
    if is_naive(estimate):
        return f"The log earned {value} a round ({level} interval {span(estimate['interval'], estimate['std_error'])})."
    lift = next((lift for lift in result.get("lifts", ()) if lift["policy"] == estimate["policy"]), None)
    if lift is None:
        return f"{of}{who} says {value} a round."
    logged, ci = result["logged"], lift["interval"]
    earned, more = number(logged["value"], logged["std_error"]), _more(lift)
    if not (math.isfinite(ci["low"]) and math.isfinite(ci["high"])):
        return f"{of}{who} says {value} a round, {more} than the log's {earned}; how sure that is, is not known."
    kind = "" if ci["method"] == estimate["interval"]["method"] else f" {ci['method']}"  # differences have no other
    sure = f"{level}{kind} interval {span(ci, lift['std_error'])}"
    if ci["low"] <= 0 <= ci["high"]:
        return f"{of}{who} says {value} a round, the log {earned}: no difference is shown ({more}, {sure})."
    return f"{of}{who} says {value} a round, {more} than the log's {earned} ({sure}{_relative(lift, logged)})."


def _more(difference: Mapping[str, Any]) -> str:
    value, error = difference["value"], difference["std_error"]
    return f"{number(abs(value), error)} {'less' if value < 0 else 'more'}"


def _relative(lift: Mapping[str, Any], logged: Mapping[str, Any]) -> str:
    """The lift as a share of what the log earned, where that is surely not 0."""
    share, ci = lift.get("relative"), logged["interval"]
    if share is None and lift.get("relative_reason"):
        return f"; not in percent, because {lift['relative_reason']}"
    if share is None or not math.isfinite(share) or not (ci["low"] > 0 or ci["high"] < 0):
        return ""
    return f"; {'+' if share > 0 else ''}{percent(share, lift['std_error'] / abs(logged['value']))}"


def compared(result: Mapping[str, Any]) -> list[str]:
    """The paired differences between policies, of the first pairs."""
    lines = []
    differences = result.get("differences", ())
    for d in differences[:SHOWN]:
        a, b, ci = label(d["a"]), label(d["b"]), d["interval"]
        sure = f"{percent(ci['level'])} interval {span(ci, d['std_error'])}, paired"
        if not math.isfinite(d["value"]):
            lines.append(f"{a} and {b} cannot be compared: there is no number for both.")
        elif ci["low"] > 0 or ci["high"] < 0:
            lines.append(f"{a} earns {_more(d)} than {b} ({sure}).")
        else:
            lines.append(f"Between {a} and {b} no difference is shown ({_more(d)}, {sure}).")
    rest = len(differences) - SHOWN
    return [*lines, f"{rest:,} more pairs are in the report, and in to_dict()."] if rest > 0 else lines


def worst_first(estimate: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Its reasons, the most severe ones first."""
    return sorted(estimate["reasons"], key=lambda r: list(VERDICTS).index(r["verdict"]), reverse=True)


def first_thing_to_do(estimate: Mapping[str, Any]) -> str | None:
    """The remedy of the worst reason."""
    reasons = worst_first(estimate)
    return visible(reasons[0]["do"]) if reasons else None


def doubts(estimate: Mapping[str, Any]) -> list[str]:
    """Every reason in words; the first without what to do about it, which stands above the table."""
    reasons = worst_first(estimate)
    first = [f"{reason['seen']} {reason['why']}" for reason in reasons[:1]]
    return [*first, *(f"{reason['seen']} {reason['why']} {reason['do']}" for reason in reasons[1:])]


def why(result: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """For each policy whose leading estimate is not ok: a heading, and the reasons."""
    for e in leading(result):
        if e["reasons"]:
            of = f" for {label(e['policy'])}" if len(result["policies"]) > 1 else ""
            yield f"Why {VERDICTS[e['verdict']]}{of}:", doubts(e)


def notes(result: Mapping[str, Any]) -> list[str]:
    """Below the table and the doubts: what a blend is made of, what was seen of the others, what was left out."""
    several, lines = len(result["policies"]) > 1, []
    for e in leading(result):
        if "candidates" in e["diagnostics"]:
            lines += blended(e, f" for {label(e['policy'])}" if several else "")
    lines += _other_doubts(result)
    lead = result["headline"]["estimator"]
    for policy, truth in (result.get("truth") or {}).items():
        error = next(e["std_error"] for e in result["estimates"] if e["estimator"] == lead and e["policy"] == policy)
        lines.append(f"The true value of {label(policy)} is {number(truth, error)}: known, since this log was simulated.")
    for reason, names in by_reason(result["skipped"]).items():
        lines.append(f"Not shown: {', '.join(map(label, names))}, because {reason.rstrip('.')}.")
    return list(dict.fromkeys(lines))  # what is left out is the same for every policy, and is said once


def blended(estimate: Mapping[str, Any], of: str = "", whole: bool = False) -> list[str]:
    """Which candidates carry a blend, what the runner-up says, and what was left out (with `whole`, in all words)."""
    name, candidates, error = label(estimate["estimator"]), estimate["diagnostics"]["candidates"], estimate["std_error"]
    heavy = [c for c in candidates if c["weight"] >= 0.005][:SHOWN]
    shares = ", ".join(f"{c['weight']:.0%} {label(c['name'])} [± {c['std_error']:.2g}, bias {bias(c)}]" for c in heavy)
    lines = [f"{name}{of} is {shares}{', and others' if sum(c['weight'] for c in heavy) < 0.995 else ''}."]
    runner_up = next((c for c in candidates[1:] if c["error_known"]), None)
    if runner_up is not None:
        lines[0] += f" The runner-up, {label(runner_up['name'])}, says {number(runner_up['value'], error)}."
    for reason, names in by_reason(estimate["diagnostics"]["left_out"]).items():
        said = reason if whole else reason.partition(". ")[0]
        lines.append(f"{name} leaves out {', '.join(map(label, names))}: {said.rstrip('.')}.")
    return lines


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Names with the same reason together."""
    names: dict[str, list[str]] = {}
    for name, why in reasons.items():
        names.setdefault(why, []).append(name)
    return names


def bias(candidate: Mapping[str, Any]) -> str:
    if not candidate["error_known"]:
        return "not judged"
    return number(candidate["estimated_bias"], candidate["std_error"]) if candidate["estimated_bias"] else "none"


def _other_doubts(result: Mapping[str, Any]) -> list[str]:
    """One line for each other estimate that is not ok: what was seen, without what was said of the lead already."""
    lead, several = result["headline"]["estimator"], len(result["policies"]) > 1
    said = {(e["policy"], r["seen"]) for e in leading(result) for r in e["reasons"]}
    lines = []
    for e in result["estimates"]:
        if e["estimator"] != lead and not is_naive(e):
            seen = [r["seen"] for r in e["reasons"] if (e["policy"], r["seen"]) not in said]
            of = f" of {label(e['policy'])}" if several else ""
            lines += [f"{label(e['estimator'])}{of}: {' '.join(seen)}"] if seen else []
    return lines


def said_of_part(part: Mapping[str, Any]) -> list[str]:
    """What the leading estimates of a slice, or of another reward, say, and what was seen of them."""
    return [" ".join([says(part, e), *(r["seen"] for r in worst_first(e))]) for e in leading(part)]


def footnotes(result: Mapping[str, Any]) -> list[str]:
    """What the marks in the tables mean."""
    told = meanings(row.marks for part in (result, *(part for _, part in sections(result))) for row in estimate_rows(part))
    slices = len(result.get("slices", {}))
    more = f"The {MOST_SLICES} largest of {slices:,} slices are shown; all are in to_dict() and --json."
    return [*told, more] if slices > MOST_SLICES else told

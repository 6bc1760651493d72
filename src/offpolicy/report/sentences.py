"""The answer in words, and the rows of its tables: what text, Markdown and the HTML report have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from offpolicy.diagnostics.verdict import LIMITS
from offpolicy.inference.intervals import REFITTED
from offpolicy.report import action_axis
from offpolicy.report.formatting import THE_LOG, VERDICTS, Summary, count, label, number, percent, span, visible

SHOWN = 3
MOST_SLICES = 20
FEW = LIMITS["effective rounds of an anchor"].caution
"""The number of effective rounds below which the first sentence says on how few an answer rests."""
FOOTNOTES = {
    "*": "the interval does not include the error of the fitted models.",
    "†": "a Student interval: the requested method is not available for this estimator.",
    "‡": "outside its interval, which belongs to the estimate that is adjusted to a mean weight of 1; see explain().",
}
BOUNDS_RIGHT = frozenset({"Γ", "lower bound", "upper bound"})


def title(result: Summary) -> str:
    """The reward and the size of the log."""
    rounds = "1 round" if result["rounds"] == 1 else f"{result['rounds']:,} rounds"
    logged = result.get("actions_logged")
    occurring = f", {logged:,} of them logged" if logged is not None and logged < result["actions"] else ""
    return f"{label(result['reward'])}: {rounds}, {actions(result)}{occurring}"


def actions(result: Summary) -> str:
    """The number of actions, or a description of the space where they cannot be counted."""
    return f"actions: {visible(result['action_space'])}" if "action_space" in result else f"{result['actions']:,} actions"


def no_overlap(result: Summary) -> str:
    """Why there is no distribution of weights."""
    columns, settings = result["input"].get("columns", {}), result["settings"]
    if columns.get("propensity") or settings.get("logging") is not None:
        return (
            "No estimator weights rounds by the probability of their logged action alone. The effective rounds in the table "
            "of estimates show how much of the log supports each answer."
        )
    return (
        "This log has no propensities, so its overlap with the new policy is unknown. Log the probability of each action "
        "that was taken."
    )


def sections(result: Summary) -> list[tuple[str, Summary]]:
    """What follows the main table: the other rewards, then the largest slices with all of their rewards."""
    parts = [(title(other), other) for other in result.get("other_rewards", {}).values()]
    slices = sorted(_unlisted(result).items(), key=lambda item: -item[1]["rounds"])
    for name, part in slices[:MOST_SLICES]:
        parts += [(f"{label(name)} · {title(p)}", p) for p in (part, *part.get("other_rewards", {}).values())]
    return parts


def _unlisted(result: Summary) -> Mapping[str, Summary]:
    """The slices, unless they are in one table (`report/slices.py`), which results saved by older versions lack."""
    slices: Mapping[str, Summary] = {} if result.get("by_slice") else result.get("slices", {})
    return slices


def is_naive(estimate: Summary) -> bool:
    """Whether it is the logged mean."""
    return any(reason["code"] == "naive" for reason in estimate["reasons"])


def leading(result: Summary) -> list[Summary]:
    """The headline estimates, one per policy."""
    return [e for e in result["estimates"] if e["estimator"] == result["headline"]["estimator"]]


def answer(result: Summary, estimate: Summary) -> str:
    """The headline estimate next to what the log earned; with its policy where there are several."""
    return (f"{label(estimate['policy'])}: " if len(result["policies"]) > 1 else "") + statement(result, estimate)


def _basis(estimate: Summary) -> str:
    """How few rounds an estimate rests on, if they are few."""
    ess = _ess(estimate)
    if ess is None or not ess < FEW:
        return ""
    return f" It rests on few rounds: the log is worth {count(ess)} rounds of the new policy."


def statement(result: Summary, estimate: Summary) -> str:
    """The same without the name of the policy."""
    if not math.isfinite(estimate["value"]):
        return f"{label(estimate['estimator'])} produced no estimate."
    return _comparison(result, estimate) + ("" if is_naive(estimate) else _basis(estimate))


def _comparison(result: Summary, estimate: Summary) -> str:
    """The estimate, next to what the log earned."""
    who, value = label(estimate["estimator"]), number(estimate["value"], estimate["std_error"])
    level = percent(estimate["interval"]["level"])
    if is_naive(estimate):
        interval = span(estimate["interval"], estimate["std_error"])
        return f"The logging policy earned {value} per round ({level} interval {interval})."
    lift = next((lift for lift in result.get("lifts", ()) if lift["policy"] == estimate["policy"]), None)
    if lift is None:
        return f"{who} estimates {value} per round."
    logged, ci = result["logged"], lift["interval"]
    earned, more = number(logged["value"], logged["std_error"]), _more(lift)
    if not (math.isfinite(ci["low"]) and math.isfinite(ci["high"])):
        return (
            f"{who} estimates {value} per round, {more} than the {earned} in the log; the uncertainty of this difference "
            "is unknown."
        )
    named = result["settings"].get("interval", "auto") != "auto" and ci["method"] != estimate["interval"]["method"]
    kind = f" {ci['method'].replace('student', 'Student')}" if named else ""  # differences do not have every method
    interval = f"{level}{kind} interval {span(ci, lift['std_error'])}"
    if not excludes_zero(lift):
        return f"{who} estimates {value} per round, the log has {earned}: no significant difference ({more}, {interval})."
    return f"{who} estimates {value} per round, {more} than the {earned} in the log ({interval}{_relative(lift, logged)})."


def excludes_zero(estimate: Summary) -> bool:
    """Whether its interval lies on one side of 0; an undefined interval does not."""
    return bool(estimate["interval"]["low"] > 0 or estimate["interval"]["high"] < 0)


def _more(difference: Summary) -> str:
    value, error = difference["value"], difference["std_error"]
    return f"{number(abs(value), error)} {'less' if value < 0 else 'more'}"


def _relative(lift: Summary, logged: Summary) -> str:
    """The lift as a share of what the log earned, where that is significantly different from 0."""
    share = lift.get("relative")
    if share is None and lift.get("relative_reason"):
        return f"; not in percent, because {lift['relative_reason']}"
    if share is None or not math.isfinite(share) or not excludes_zero(logged):
        return ""
    return f"; {'+' if share > 0 else ''}{percent(share, lift['std_error'] / abs(logged['value']))}"


def comparisons(result: Summary) -> list[str]:
    """The paired differences between policies, for the first pairs."""
    lines = []
    differences = result.get("differences", ())
    for d in differences[:SHOWN]:
        a, b, ci = label(d["a"]), label(d["b"]), d["interval"]
        interval = f"{percent(ci['level'])} interval {span(ci, d['std_error'])}, paired"
        if not math.isfinite(d["value"]):
            lines.append(f"{a} and {b} cannot be compared: at least one of them has no estimate.")
        elif excludes_zero(d):
            lines.append(f"{a} earns {_more(d)} than {b} ({interval}).")
        else:
            lines.append(f"No significant difference between {a} and {b} ({_more(d)}, {interval}).")
    rest = len(differences) - SHOWN
    return [*lines, f"{rest:,} more pairs are in the report and in to_dict()."] if rest > 0 else lines


def worst_first(estimate: Summary) -> list[Summary]:
    """Its reasons, the most severe ones first."""
    return sorted(estimate["reasons"], key=lambda r: list(VERDICTS).index(r["verdict"]), reverse=True)


def next_step(estimate: Summary) -> str | None:
    """The remedy for the most severe reason."""
    reasons = worst_first(estimate)
    return visible(reasons[0]["do"]) if reasons else None


def concerns(estimate: Summary) -> list[str]:
    """Every reason in words; the first without its remedy, which is printed above the table."""
    reasons = worst_first(estimate)
    first = [f"{reason['seen']} {reason['why']}" for reason in reasons[:1]]
    return [*first, *(f"{reason['seen']} {reason['why']} {reason['do']}" for reason in reasons[1:])]


def why(result: Summary) -> Iterator[tuple[str, list[str]]]:
    """For each policy whose headline estimate is not ok: a heading and the reasons."""
    for e in leading(result):
        if e["reasons"]:
            of = f" for {label(e['policy'])}" if len(result["policies"]) > 1 else ""
            yield f'Why the verdict{of} is "{VERDICTS[e["verdict"]]}":', concerns(e)


def notes(result: Summary) -> list[str]:
    """What follows the table and the reasons: blends, concerns about the other estimators, and what is not shown."""
    several, lines = len(result["policies"]) > 1, []
    blends = [e for e in leading(result) if "candidates" in e["diagnostics"]]
    alike = all(e["diagnostics"]["left_out"] == blends[0]["diagnostics"]["left_out"] for e in blends)
    for e in blends:
        of = f" for {label(e['policy'])}" if several else ""
        lines += composition(e, of, "" if alike else of)
    for name, policies, _, observed in other_concerns(result):
        of = f" for {', '.join(map(label, policies))}" if several else ""
        lines.append(f"{label(name)}{of}: {observed}")
    lead = result["headline"]["estimator"]
    for policy, truth in (result.get("truth") or {}).items():
        error = next(e["std_error"] for e in result["estimates"] if e["estimator"] == lead and e["policy"] == policy)
        lines.append(f"The true value of {label(policy)} is {number(truth, error)}, known because this log was simulated.")
    lines += action_axis.notes(result)
    prepared = (result.get("input") or {}).get("preparation")
    if prepared:
        lines.append(f"How the context was prepared: {'; '.join(map(visible, prepared))}.")
    lines += accelerated(result)
    lines += [f"Not shown: {', '.join(map(label, names))}. {reason}" for reason, names in by_reason(result["skipped"])]
    return list(dict.fromkeys(lines))  # what is not shown is the same for every policy, and is listed once


def accelerated(result: Summary) -> list[str]:
    """Which device computed the sums over the actions, and how exactly."""
    told = result["settings"].get("accelerator")
    if told is None or len(told.get("not_used_for", ())) == len(result["policies"]):
        return []
    line = f"Computed on {told['device']} in {told['precision']} precision."
    if "largest_relative_error_of_a_weight" in told:
        error, rounds = told["largest_relative_error_of_a_weight"], told["rounds_checked_in_float64"]
        line += f" The largest relative error of a weight, in the first {rounds:,} rounds, is {error:.1g}."
    return [line]


def composition(estimate: Summary, of: str = "", excluding_of: str = "", whole: bool = False) -> list[str]:
    """The main candidates of a blend, the runner-up, and what it excludes (with `whole`, for the full reasons)."""
    name, candidates, error = label(estimate["estimator"]), estimate["diagnostics"]["candidates"], estimate["std_error"]
    if estimate["diagnostics"].get("bandwidths"):
        return [action_axis.widths_in_words(estimate, of)]
    by_size = sorted(candidates, key=lambda c: -abs(c["weight"]))  # kernels may have negative weights
    heavy = [c for c in by_size if abs(c["weight"]) >= 0.005][:SHOWN]
    shares = ", ".join(f"{c['weight']:.0%} {label(c['name'])} [± {c['std_error']:.2g}, bias {bias(c)}]" for c in heavy)
    lines = [f"{name}{of} is {shares}{', and others' if abs(sum(c['weight'] for c in heavy) - 1) > 0.005 else ''}."]
    runner_up = next((c for c in candidates[1:] if c["error_known"]), None)
    if runner_up is not None:
        lines[0] += f" The runner-up, {label(runner_up['name'])}, estimates {number(runner_up['value'], error)}."
    for reason, names in by_reason(estimate["diagnostics"]["left_out"], whole):
        lines.append(f"{name}{excluding_of} excludes {', '.join(map(label, names))}. {reason}")
    return lines


def compared(diagnostics: Summary) -> bool:
    """Whether the candidates of a blend are compared with one that is nearly unbiased."""
    return any(c["nearly_unbiased"] for c in diagnostics["candidates"])


def still_learning(diagnostics: Summary) -> list[str]:
    """The candidates whose reward model alone would change with more rounds by more than its error."""
    parts = []
    for c in diagnostics["candidates"]:
        curve = c.get("learning")  # results saved by earlier versions have none
        if curve is not None and abs(curve["whole"] - curve["half"]) > 2 * curve["std_error"]:
            error = curve["std_error"]
            half, whole, twice = (number(curve[name], error) for name in ("half", "whole", "twice"))
            parts.append(f"{label(c['name'])} (from {half} to {whole}, to about {twice} with twice the rounds)")
    if not parts:
        return []
    return [
        f"Still learning, since fits on half of the rounds differ from those on all: {', '.join(parts)}. The blend expects "
        "at least the bias that shows in such a change."
    ]


def basis_of_bias(diagnostics: Summary) -> list[str]:
    """What the share of smoother candidates in a blend rests on, if it follows from a prior of their bias."""
    if "expected_bias_share" not in diagnostics:
        return []
    return [
        f"The differences rest on {count(diagnostics['effective_rewards'])} effective rounds with a reward other than 0. "
        f"After them, the bias of a model is expected to be {diagnostics['expected_bias_share']:.0%} of the gap between "
        "the nearly unbiased mix and the mean of the log."
    ]


def by_reason(reasons: Mapping[str, str], whole: bool = True) -> list[tuple[str, list[str]]]:
    """Each reason once, as a sentence (the first one, unless `whole`), with the names of what it applies to."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason if whole else reason.partition(". ")[0], []).append(name)
    return [(_sentence(reason, "Each" if len(same) > 1 else "It"), same) for reason, same in names.items()]


def _sentence(reason: str, subject: str) -> str:
    """A reason such as "it needs …" as a sentence about one estimator, or about each of several.

    >>> _sentence("it needs a context", "Each"), _sentence("there is no catalog.", "It")
    ('Each needs a context.', 'There is no catalog.')
    """
    words = f"{subject} {reason[3:]}" if reason.startswith("it ") else reason[:1].upper() + reason[1:]
    return f"{words.rstrip('.')}."


def bias(candidate: Summary, error: float | None = None) -> str:
    """The estimated bias of a candidate, with the digits of its own standard error unless another is given."""
    if not candidate["error_known"]:
        return "unknown"
    return number(candidate["estimated_bias"], error or candidate["std_error"]) if candidate["estimated_bias"] else "none"


def other_concerns(result: Summary) -> list[tuple[str, list[str], str, str]]:
    """Estimator, policies, verdict and findings of the other estimates, except what the headline already reports."""
    reported = {(e["policy"], reason["seen"]) for e in leading(result) for reason in e["reasons"]}
    groups: dict[tuple[str, str, str], list[str]] = {}
    for e in result["estimates"]:
        observed = [r["seen"] for r in worst_first(e) if (e["policy"], r["seen"]) not in reported]
        if observed and e["estimator"] != result["headline"]["estimator"] and not is_naive(e):
            groups.setdefault((e["estimator"], e["verdict"], " ".join(observed)), []).append(e["policy"])
    return [(name, policies, verdict, observed) for (name, verdict, observed), policies in groups.items()]


def part_answers(part: Summary) -> list[str]:
    """The headline estimates of a slice, or of another reward, each with its findings."""
    return [" ".join([answer(part, e), *(r["seen"] for r in worst_first(e))]) for e in leading(part)]


def footnotes(result: Summary) -> list[str]:
    """What the marks in the tables mean, and how many slices are not shown."""
    parts = (result, *(part for _, part in sections(result)))
    lines = meanings(row.marks for part in parts for row in estimate_rows(part))
    slices = len(_unlisted(result))
    more = f"The {MOST_SLICES} largest of {slices:,} slices are shown; all are in to_dict() and --json."
    return [*lines, more] if slices > MOST_SLICES else lines


@dataclass(frozen=True)
class EstimateRow:
    """One row of the main table."""

    policy: str | None
    """None: the logged mean, which is the same for all policies."""
    name: str
    marks: str
    cells: tuple[str, ...]
    verdict: str
    leads: bool


def header_of(result: Summary) -> list[str]:
    """The columns of the main table, without the policy."""
    truth = ["error"] if result.get("truth") is not None else []
    return ["estimator", "value", f"{percent(result['level'])} interval", "eff. rounds", "verdict", *truth]


def resolution(estimates: Iterable[Summary], headline: Iterable[Summary]) -> float | None:
    """The error that sets the digits of a whole table: the headline's, or where it has none, the smallest."""
    errors = ([e["std_error"] for e in part if e["std_error"] > 0 and math.isfinite(e["std_error"])]
              for part in (headline, estimates))  # fmt: skip
    return next((min(known) for known in errors if known), None)


def estimate_rows(result: Summary) -> Iterator[EstimateRow]:
    """The rows of the main table. The logged mean, which is the same for all policies, appears once."""
    truth, error = result.get("truth"), resolution(result["estimates"], leading(result))
    for e in result["estimates"]:
        naive = is_naive(e)
        if naive and e["policy"] != result["policies"][0]:
            continue
        cells = [
            number(e["value"], error),
            span(e["interval"], error),
            count(_ess(e)),
            THE_LOG if naive else VERDICTS[e["verdict"]],
            *([] if truth is None else [number(e["value"] - truth[e["policy"]], error)]),
        ]
        marks = "".join(f" {mark}" for mark in marks_of(result, e))
        leads = e["estimator"] == result["headline"]["estimator"]
        policy = None if naive else e["policy"]
        yield EstimateRow(policy, label(e["estimator"]), marks, tuple(cells), e["verdict"], leads)


def _ess(estimate: Summary) -> float | None:
    ess = estimate["diagnostics"].get("effective_sample_size")
    return None if ess is None or math.isnan(ess) else float(ess)


def marks_of(result: Summary, estimate: Summary) -> str:
    """The keys of `FOOTNOTES` that apply to an estimate. Blends have no finite-sample intervals."""
    ci, diagnostics = estimate["interval"], estimate["diagnostics"]
    refitted = ci["method"] == REFITTED and "fitted_before" not in (diagnostics.get("reward_model") or {})
    applies = {
        "*": diagnostics.get("fit_not_covered") and not refitted,
        "†": ci["method"] == "student" and result["settings"].get("interval", "auto") not in ("auto", "student"),
        "‡": adjusted(estimate) is not None and not ci["low"] <= estimate["value"] <= ci["high"],
    }
    return "".join(mark for mark, applying in applies.items() if applying)


def adjusted(estimate: Summary) -> float | None:
    """The point estimate that the interval belongs to, if that is another than the estimate."""
    value = estimate["interval"].get("value")
    return None if value is None or not math.isfinite(value) or value == estimate["value"] else float(value)


def meanings(marks: Iterable[str]) -> list[str]:
    """The footnotes of the marks that occur."""
    occurring = "".join(marks)
    return [f"{mark} {meaning}" for mark, meaning in FOOTNOTES.items() if mark in occurring]


def rows_of(result: Summary) -> tuple[list[str], list[list[str]]]:
    """The header and the cells of the main table as text, with a column for the policy where there are several."""
    several = len(result["policies"]) > 1
    rows = [
        [
            *(["(the log)" if row.policy is None else label(row.policy)] if several else []),
            row.name + row.marks,
            *row.cells,
        ]
        for row in estimate_rows(result)
    ]
    return [*(["policy"] if several else []), *header_of(result)], rows


def bounds_heading(bounds: Summary, several: bool = True) -> str:
    """What the table of sensitivity bounds shows."""
    of = f" of {label(bounds['policy'])}" if several else ""
    return f"If the true propensities are up to Γ times larger or smaller, the value{of} is within:"


def bounds_table(bounds: Summary) -> tuple[list[str], list[list[str]]]:
    """The header and the cells, one row per Γ."""
    errors = [row[end] for row in bounds["rows"] for end in ("low_error", "high_error")]
    error = min(filter(math.isfinite, errors), default=None)
    rows = [
        [
            f"{row['gamma']:g}",
            number(row["low"], error),
            number(row["high"], error),
            f"{number(row['interval_low'], error)} to {number(row['interval_high'], error)}",
        ]
        for row in bounds["rows"]
    ]
    return ["Γ", "lower bound", "upper bound", f"{percent(bounds['level'])} interval"], rows


def bounds_claims(bounds: Summary) -> list[str]:
    """Up to which Γ the comparison with the log holds, and how tight the bounds are."""
    always, level = bounds["always"], percent(bounds["level"])
    error = bounds["rows"][0]["low_error"]
    than = f"{bounds['claim']} than the {number(bounds['logged'], error)} in the log"
    holds = "at any Γ" if "holds_to" in always else f"up to Γ = {_gamma(bounds['holds_to'])}"
    if "surely_to" in always:
        significant = f"also with the {level} interval"
    elif bounds["surely_to"] is None:
        significant = f"but the {level} interval does not show it even at Γ = 1, where the propensities are right"
    else:
        significant = f"with the {level} interval up to Γ = {_gamma(bounds['surely_to'])}"
    lines = [f"{than.capitalize()} {holds}; {significant}."]
    if bounds["holds_to"] is not None and _gamma(bounds["holds_to"]) == "1.00":
        lines = [f"Even if the propensities are right, the value is not clearly {than}."]
    if bounds["resolution"] > 0:
        lines.append(f"The bounds are at most {number(bounds['resolution'], bounds['resolution'])} wider than necessary.")
    return lines


def _gamma(value: float) -> str:
    """Rounded down, so that the claim still holds there.

    >>> _gamma(1.3799), _gamma(1.15), _gamma(1234.5)
    ('1.37', '1.15', '1234')
    """
    digits = 2 if value < 100 else 0
    return f"{int(value * 10**digits + 1e-9) / 10**digits:.{digits}f}"

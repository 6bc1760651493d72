"""What the page shows, section by section: the answer, the estimates, the concerns, and the evidence behind them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from offpolicy.diagnostics.pareto import LIMIT
from offpolicy.diagnostics.verdict import LIMITS
from offpolicy.report import action_axis, comparison, slices, slots
from offpolicy.report.formatting import THE_LOG, VERDICTS, Summary, count, label, number, percent as hundredths, shortened
from offpolicy.report.page import charts
from offpolicy.report.page.charts import Axis, Strip, finite, percent
from offpolicy.report.sentences import (
    bias,
    by_reason,
    compared,
    excludes_zero,
    is_naive,
    leading,
    marks_of,
    meanings,
    resolution,
    statement,
    worst_first,
)

WORDS = {"OK": "OK", "CAUTION": "Caution", "DO_NOT_TRUST": "Do not trust"}
MOST_BYTES = 240_000
"""The limit for the descriptions of all points together, so that the page stays small."""
SHORTER = ((None, 5), (20, 3), (12, 2), (8, 1))
"""Characters per label, and nearest actions: the first pair within the limit is used, or the last."""
MOST_LOGGED = 20
View = dict[str, Any]
"""What a template shows, as text and coordinates; a missing key is an error when the page is rendered."""


def shown(value: float | None, error: float | None = None) -> str:
    """A number with a typographic minus sign."""
    return _minus(number(value, error))


def _minus(text: str) -> str:
    return "−" + text[1:] if text.startswith("-") else text


def signed(value: float | None, error: float | None = None) -> str:
    """A difference, always with its sign."""
    text = shown(value, error)
    return "+" + text if value is not None and finite(value) and value > 0 else text


def share(value: float | None, sign: bool = False) -> str:
    """In percent, with two significant digits."""
    if value is None or not math.isfinite(value):
        return number(value)
    size = abs(100 * value)
    text = f"{size:,.{0 if size >= 10 or size == 0 else 1 if size >= 1 else 2}f}%" if size < 1e7 else f"{size:.1e}%"
    mark = "−" if value < 0 else "+" if sign and value > 0 else ""
    return mark + text


def span(interval: Summary, error: float | None, say: Any = shown) -> str:
    """An interval as text."""
    low, high = interval["low"], interval["high"]
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "undefined"
    return f"{say(low, error)} to {say(high, error)}"


def rough(error: float | None) -> str:
    """A standard error, with two digits."""
    return f"{error:.2g}" if error is not None and finite(error) else number(error)


def isolated(text: str) -> str:
    """A label between Unicode isolates if it could change the direction of the text around it."""
    return text if text.replace("…", "").isascii() else f"\u2068{text}\u2069"


def listed(names: Iterable[str]) -> str:
    return ", ".join(isolated(label(name)) for name in names)


def judged(estimate: Summary) -> str:
    """Its verdict; without a number there is nothing to trust, whatever the checks found."""
    return str(estimate["verdict"]) if finite(estimate["value"]) else "DO_NOT_TRUST"


def cards(summary: Summary) -> list[View]:
    """The answer for each policy."""
    lifts = {} if all(map(is_naive, leading(summary))) else {lift["policy"]: lift for lift in summary.get("lifts") or []}
    return [_card(summary, e, lifts.get(e["policy"])) for e in leading(summary)]


def _card(summary: Summary, e: Summary, lift: Summary | None) -> View:
    verdict = judged(e)
    reason = worst_first(e)[0]["seen"] if e["reasons"] else "No check raised a concern."
    relative, relative_interval = ("", "") if lift is None else _relative(lift, summary.get("logged"))
    return {
        "policy": label(e["policy"]),
        "answer": _short_answer(e, lift),
        "detail": statement(summary, e),
        "verdict": verdict,
        "word": WORDS[verdict],
        "reason": reason if e["reasons"] or verdict == "OK" else "There is no estimate to trust.",
        "value": shown(e["value"], e["std_error"]),
        "interval": span(e["interval"], e["std_error"]),
        "relative": relative,
        "relative_interval": relative_interval,
    }


def _relative(lift: Summary, logged: Summary | None) -> tuple[str, str]:
    """The lift as a share of what the log earned, and its interval, where that is significantly different from 0."""
    if logged is None or not finite(lift["relative"]) or not excludes_zero(logged):
        return "", ""
    return share(lift["relative"], sign=True), span(lift["relative_interval"], None, lambda end, _: share(end, sign=True))


def _short_answer(e: Summary, lift: Summary | None) -> str:
    """In a few words: does the policy earn more, and by how much?"""
    if not finite(e["value"]):
        return "No estimate"
    if lift is None or not finite(lift["value"]):
        return f"{shown(e['value'], e['std_error'])} per round"
    if e["verdict"] == "DO_NOT_TRUST":
        return "The log cannot tell"
    if not excludes_zero(lift):
        return "No significant difference"
    return f"{'More' if lift['value'] > 0 else 'Less'}: {signed(lift['value'], lift['std_error'])} per round"


def _ends(estimates: Sequence[Summary]) -> list[float | None]:
    return [v for e in estimates for v in (e["value"], e["interval"]["low"], e["interval"]["high"])]


def _lines(summary: Summary) -> tuple[dict[str, float | None], list[tuple[str, str]]]:
    """The logged mean and the known true values, as lines and as a legend."""
    logged = summary.get("logged") or next((e for e in summary["estimates"] if is_naive(e)), None)
    lines: dict[str, float | None] = {}
    legend = []
    if logged is not None and finite(logged["value"]):
        lines["logged"] = logged["value"]
        legend.append(("logged", f"logged mean {shown(logged['value'], logged['std_error'])}"))
    truths = summary.get("truth") or {}
    errors = {e["policy"]: e["std_error"] for e in leading(summary)}
    for k, (policy, truth) in enumerate(truths.items()):
        of = f" of {isolated(label(policy))}" if len(truths) > 1 else ""
        lines[f"truth t{k}"] = truth
        legend.append(("truth", f"true value{of} {shown(truth, errors.get(policy))}, known because the log was simulated"))
    return lines, legend


def _cells(axis: Axis, e: Summary, error: float | None, say: Any = shown) -> View:
    """What the rows of every table share: a value and its interval, as text and as a strip."""
    return {
        "value": say(e["value"], error),
        "interval": span(e["interval"], error, say),
        "strip": Strip.of(axis.scale, e["value"], e["interval"]),
        "marks": "",
        "lead": False,
    }


def _table(summary: Summary, axis: Axis, rows: Sequence[View], **words: Any) -> View:
    """Rows whose intervals share one axis."""
    level, cut = hundredths(summary["level"]), any(row["strip"].cut_low or row["strip"].cut_high for row in rows)
    several = len(summary["policies"]) > 1
    return {"rows": rows, "axis": axis, "several": several, "level": level, "cut": cut, "legend": (), "notes": (),
            "changes": False} | words  # fmt: skip


def estimates_table(summary: Summary) -> View:
    """Every estimate; the logged mean, which is the same for all policies, once."""
    first, lead = summary["policies"][0], summary["headline"]["estimator"]
    estimates = [e for e in summary["estimates"] if not is_naive(e) or e["policy"] == first]
    lines, legend = _lines(summary)
    axis, error = Axis.of(_ends(leading(summary)), _ends(estimates), lines), resolution(estimates, leading(summary))
    rows = [
        _cells(axis, e, error)
        | {
            "name": label(e["estimator"]),
            "policy": THE_LOG if is_naive(e) else label(e["policy"]),
            "rounds": count(e["diagnostics"].get("effective_sample_size")),
            "verdict": "NAIVE" if is_naive(e) else judged(e),
            "word": THE_LOG if is_naive(e) else VERDICTS[judged(e)],
            "marks": marks_of(summary, e),
            "lead": e["estimator"] == lead,
        }
        for e in estimates
    ]
    caption, notes = f"{label(summary['reward'])} per round, by estimator", meanings(row["marks"] for row in rows)
    return _table(summary, axis, rows, caption=caption, first="Estimator", legend=legend, notes=notes)


def parts_table(summary: Summary, parts: Mapping[str, Summary]) -> View:
    """The headline estimator on all rounds and in each slice, with simultaneous intervals and the difference from all."""
    listed = {(r["slice"], r["policy"]): r for r in summary.get("by_slice") or () if r["reward"] == summary["reward"]}
    pairs = [(None, summary), *parts.items()]
    estimates = [
        (name, part, _simultaneous(e, listed.get((name, e["policy"])))) for name, part in pairs for e in leading(part)
    ]
    drawn = [e for _, _, e in estimates]
    lines = {} if len(summary["policies"]) > 1 else {"logged": leading(summary)[0]["value"]}
    # The intervals of small slices may extend beyond the axis; parts are sorted by size.
    axis, error = Axis.of(_ends(drawn[: len(drawn) // 2 + 1]), _ends(drawn), lines), resolution(drawn, leading(summary))
    rows = [
        _cells(axis, e, error)
        | {
            "name": "All rounds" if name is None else label(name),
            "policy": label(e["policy"]),
            "rounds": f"{part['rounds']:,}",
            "verdict": judged(e),
            "word": VERDICTS[judged(e)],
            "lead": part is summary,
            "change": _minus(slices.change(e["listed"], error)) if e["listed"] else "",
        }
        for name, part, e in estimates
    ]
    legend = [("logged", "the value on all rounds")] if lines else []
    notes = dict.fromkeys(note for table in slices.tables(summary) for note in table.notes) if listed else ()
    caption = f"{label(summary['reward'])} per round by {label(summary['headline']['estimator'])}, by slice"
    words = {"caption": caption, "first": "Slice", "legend": legend, "notes": tuple(notes), "changes": bool(listed)}
    return _table(summary, axis, rows, **words)


def slot_tables(summary: Summary) -> list[View]:
    """The tables of slots, each with its intervals drawn."""
    views: list[View] = []
    for policy, own in zip(
        dict.fromkeys(row["policy"] for row in summary.get("by_slot") or ()), slots.tables(summary), strict=True
    ):
        rows = [row for row in summary["by_slot"] if row["policy"] == policy]
        axis = Axis.of(_ends(rows), _ends(rows), {})
        strips = [{"strip": Strip.of(axis.scale, row["value"], row["interval"]), "verdict": "OK"} for row in rows]
        lines = list(zip(own.rows, strips, strict=True))
        views.append({"heading": own.heading, "header": own.header, "lines": lines, "notes": own.notes, "axis": axis})
    return views


def _simultaneous(e: Summary, listed: Summary | None) -> Summary:
    """A headline estimate with its row in the table of slices, and with the simultaneous interval of that."""
    return {**e, "listed": listed, "interval": e["interval"] if listed is None else listed["simultaneous_interval"]}


def differences_table(summary: Summary) -> View | None:
    """The differences between policies on the same rounds."""
    differences = summary.get("differences") or []
    if not differences:
        return None
    axis = Axis.of(_ends(differences), [], {"zero": 0.0})
    error = resolution(differences, differences)
    untrusted = {e["policy"] for e in leading(summary) if judged(e) == "DO_NOT_TRUST"}

    def conclusion(d: Summary) -> str:
        if untrusted & {d["a"], d["b"]}:
            return "do not trust"
        if not excludes_zero(d):
            return "no significant difference"
        return "the first earns more" if d["value"] > 0 else "the second earns more"

    rows = [
        _cells(axis, d, error, signed)
        | {"name": label(d["a"]), "policy": label(d["b"]), "verdict": "DIFFERENCE", "word": conclusion(d)}
        for d in differences
    ]
    legend = [("zero", "no difference")]
    return _table(summary, axis, rows, caption="Paired differences", first="Policies", legend=legend)


def best_table(summary: Summary) -> View | None:
    """All policies compared at once, where that was requested."""
    best = summary.get("best")
    if best is None:
        return None
    rows, baseline = best["rows"][: comparison.MOST_ROWS], comparison.baseline(best)
    value = next((row["value"] for row in rows if row["conclusion"] == "baseline"), best["logged"])
    known = [row for row in rows if row["conclusion"] != "not compared"]
    axis, error = Axis.of(_ends(known), [], {"logged": value}), resolution(rows, rows[:1])

    def versus(row: Summary) -> str:
        interval = row["difference_interval"]
        return "" if interval is None else span(interval, row["difference_error"], signed)

    cells = [
        _cells(axis, row, error)
        | {
            "name": label(row["policy"]),
            "versus": versus(row),
            "verdict": "DIFFERENCE" if row["conclusion"] != "not compared" else row["verdict"],
            "word": comparison.conclusion(row),
            "lead": row["policy"] == best["choice"],
        }
        for row in rows
    ]
    words = {"caption": comparison.heading(best), "first": "Policy", "legend": [("logged", baseline)],
             "notes": tuple(comparison.notes(best)), "level": hundredths(best["level"])}  # fmt: skip
    return _table(summary, axis, cells, **words) | {"choice": comparison.choice(best), "baseline": baseline}


def blends(summary: Summary) -> list[View]:
    """The composition of each headline estimate that is a blend."""
    return [_blend(e) for e in leading(summary) if e["diagnostics"].get("candidates")]


def _blend(e: Summary) -> View:
    diagnostics = e["diagnostics"]
    error = resolution(diagnostics["candidates"], diagnostics["candidates"][:1])
    by_size = sorted((c for c in diagnostics["candidates"] if finite(c["weight"])), key=lambda c: -abs(c["weight"]))
    heavy = [c for c in by_size if abs(c["weight"]) >= 0.005]
    candidates = [
        {
            "name": label(c["name"]),
            "weight": share(c["weight"]) if c["weight"] else "–",
            "bar": percent(min(max(c["weight"], 0.0), 1.0)) if finite(c["weight"]) else 0.0,
            "value": shown(c["value"], error),
            "error": shown(c["std_error"], error) if c["error_known"] else "unknown",
            "bias": _minus(bias(c, error)),
            "difference": "" if c["name"] == diagnostics["anchor"]
            else f"{signed(c['difference'], error)} ± {shown(c['difference_error'], error)}",
        }
        for c in diagnostics["candidates"]
    ]  # fmt: skip
    parts = ", ".join(f"{share(c['weight'])} {isolated(label(c['name']))}" for c in heavy[:4])
    parts += " and others" if len(heavy) > 4 else ""
    return {
        "policy": label(e["policy"]),
        "estimator": label(e["estimator"]),
        "parts": action_axis.widths_in_words(e).rstrip(".") if diagnostics.get("bandwidths") else parts,
        "anchor": label(diagnostics["anchor"]) if compared(diagnostics) else None,
        "rule": diagnostics["rule"],
        "candidates": candidates,
        "excluded": [(listed(names), reason) for reason, names in by_reason(diagnostics["left_out"])],
    }


def concerns(summary: Summary) -> list[View]:
    """The findings about the headline estimate of each policy."""
    return [
        {
            "policy": label(e["policy"]),
            "estimator": label(e["estimator"]),
            "findings": worst_first(e),
            "clear": judged(e) == "OK",
        }
        for e in leading(summary)
    ]


Fact = tuple[str, str, str]
"""A number: its name, its value, and what it means and which values are good."""


def overlaps(summary: Summary) -> list[View]:
    """The distribution of the weights, by policy and kind of weight."""
    return [
        {
            "policy": label(o["policy"]),
            "kind": o["kind"],
            "estimators": listed(o["estimators"]),
            "picture": charts.histogram(o["edges"], o["counts"], o["zero"]),
            "alternative": f"Distribution of {o['rounds']:,} weights on a log scale. Effective sample size "
            f"{count(o['effective_sample_size'])}; largest weight {_few_digits(o['largest'])}.",
            "facts": [_effective(o), *_concentrated(o), _mean(o), *_support(o)],
        }
        for o in summary.get("overlap") or []
    ]


def _effective(o: Summary) -> Fact:
    ess, rounds = o["effective_sample_size"], o["rounds"]
    good, some = LIMITS["effective rounds"], LIMITS["effective rounds of an anchor"]
    part = f", {share(ess / rounds)} of the {rounds:,} logged" if rounds and finite(ess) else ""
    meaning = (
        f"The weighted log is worth about this many rounds of the new policy{part}. {good.caution:,.0f} or more is good; "
        f"below {good.caution:,.0f}, intervals are somewhat too narrow; below {some.caution:,.0f}, no answer is without a "
        f"caution; fewer than {good.stop:,.0f} is too few."
    )
    return "Effective rounds", count(ess), meaning


def _few_digits(value: float | None) -> str:
    return number(value, None if value is None else abs(value) / 100)


def _concentrated(o: Summary) -> list[Fact]:
    part = f" It is {share(o['largest_share'])} of the sum." if finite(o["largest_share"]) else ""
    top = (
        f"The largest 1% of the weights account for this share of their sum. Below {LIMITS['top weights'].caution:.0%} is "
        "good; near 100%, a few rounds determine the estimate."
    )
    largest = f"The weight of a single round.{part} Below {LIMITS['largest weight'].caution:.0%} is good."
    return [
        ("Share of the top 1%", share(o["top_1_percent_share"]), top),
        ("Largest weight", _few_digits(o["largest"]), largest),
        *_tail(o),
    ]


def _tail(o: Summary) -> list[Fact]:
    if not finite(o.get("pareto_k")):
        return []
    meaning = (
        f"How heavy the tail of the weights is. Below {LIMIT} is good; above it, Student intervals, such as those of "
        "differences, are too narrow."
    )
    return [("Pareto k", f"{o['pareto_k']:.2f}", meaning)]


def _mean(o: Summary) -> Fact:
    meaning = "Usually close to 1, but weights that are self-normalised may differ from it."
    if o["kind"] == "action":
        meaning = "It is 1, up to sampling error, if the propensities are right and the log covers what the new policy does."
    return "Mean weight", _few_digits(o["mean"]), meaning


SUPPORT = {
    "target_mass_without_support": (
        "Zero logging probability", "How often the new policy takes actions that the logging policy never takes."
    ),
    "target_mass_never_logged": ("Never logged", "How often the new policy takes actions that are not in this log."),
}  # fmt: skip


def _support(o: Summary) -> list[Fact]:
    """How often the new policy leaves the support of the log; only what is known."""
    return [
        (name, share(o[key]), f"{meaning} Below 1% is good; the log has no information about them.")
        for key, (name, meaning) in SUPPORT.items()
        if o[key] is not None
    ]


def _calibrated(bins: Sequence[Summary], alternative: str) -> tuple[str, View]:
    """How many groups are off the diagonal, in words; and the picture of all groups, with its numbers."""
    known = [b for b in bins if finite(b["predicted"]) and finite(b["observed"])]
    off = [b for b in known if finite(b["std_error"]) and abs(b["observed"] - b["predicted"]) > 2 * b["std_error"]]
    verb = "is" if len(off) == 1 else "are"
    deviation = f"{len(off)} of {len(known)} groups {verb} more than two standard errors from the diagonal"
    return deviation, {
        "picture": charts.calibration(bins),
        "alternative": f"{alternative.format(len(known))}; {deviation}.",
        "bins": [(shown(b["predicted"], b["std_error"]), _observed(b), count(b["rounds"])) for b in known],
    }


def _observed(b: Summary) -> str:
    error = b["std_error"]
    return f"{shown(b['observed'], error)} ± {rough(error)}" if finite(error) else shown(b["observed"])


def models(summary: Summary) -> list[View]:
    """Predicted and observed rewards of the cross-fitted reward models."""
    return [_model(m) for m in summary.get("calibration") or []]


def _model(m: Summary) -> View:
    deviation, view = _calibrated(m["bins"], "Observed against predicted reward in {} groups of rounds, with error bars")
    return view | {
        "name": label(m["model"]),
        "estimators": listed(m["estimators"]),
        "r2": shown(m["r2"], 0.01),
        "meaning": _explains(m["r2"]) + (f" {deviation}." if view["bins"] else ""),
    }


def _explains(r2: float | None) -> str:
    if r2 is None or not finite(r2):
        return "Its share of explained variance on rounds that it was not fitted on is unknown."
    if r2 <= 0:
        return "It explains none of the variance of rewards on rounds that it was not fitted on."
    return f"It explains {share(r2)} of the variance of rewards on rounds that it was not fitted on."


def propensities(summary: Summary) -> View | None:
    """Logging probabilities against observed frequencies, where the whole logging policy is known."""
    p = summary.get("propensities")
    if not p or not p["bins"]:
        return None
    deviation, view = _calibrated(p["bins"], "Observed frequencies of actions against their probability, in {} groups")
    source = {"estimated": f"Estimated ({p.get('model')}) on rounds that the model was not fitted on"}
    return view | {"meaning": f"{source.get(p['source'], 'As provided')}: {deviation}."}


def action_map(summary: Summary) -> View | None:
    """The map of actions; large points first, so that small ones stay visible."""
    e = summary.get("embedding")
    if not e or not e["points"]:
        return None
    points = sorted(e["points"], key=lambda p: p["count"] if finite(p["count"]) else 0.0, reverse=True)
    shades = charts.Shades.of([p["reward"] for p in points])
    dots = charts.dots(points, shades)
    step = None if shades is None else (shades.high - shades.low) / 10  # the digits that distinguish rewards
    drawn = [(dot, title) for title, dot in zip(_titles(points, step), dots, strict=True) if dot is not None]
    view = {
        "estimator": label(e["estimator"]),
        "chosen": e["chosen"],
        "dimensions": e["dimensions"],
        "explained": share(e["explained"]),
        "logged": f"{e['logged']:,} of {e['actions']:,}",
        "points": drawn,
        "alternative": f"Map of {len(drawn):,} actions by their learned embedding, in two dimensions. Larger points were "
        "logged more often, and colour is the estimated reward. The table below lists the most frequently logged actions.",
        "shaded": shades is not None,
        "unknown": any(not finite(p["reward"]) for p in points),
        "unlogged": any(not (finite(p["count"]) and p["count"] > 0) for p in points),
        "sizes": _sizes(points),
        "table": [_action(p, step) for p in points[:MOST_LOGGED]],
        "without_place": len(points) - len(drawn),
    }
    if shades is not None:
        least, most = ("≤\u00a0", "≥\u00a0") if shades.beyond else ("", "")
        view |= {"low": least + shown(shades.low, step), "high": most + shown(shades.high, step)}
    return view


def _sizes(points: Sequence[Summary]) -> tuple[tuple[float, str], ...]:
    """Examples for the legend: the largest count and about a tenth of it."""
    largest = max((p["count"] for p in points if finite(p["count"])), default=0.0)
    shown_counts = [c for c in (largest / 10, largest) if c >= 1]
    return tuple((charts.radius(c, largest, len(points)), count(c)) for c in shown_counts)


def _titles(points: Sequence[Summary], step: float | None) -> list[str]:
    """The description of each point, as long as the limit for all of them allows."""
    for letters, nearest in SHORTER:
        titles = [_title(p, letters, nearest, step) for p in points]
        if sum(len(title.encode("utf-8", "replace")) for title in titles) <= MOST_BYTES:
            break
    return titles


def _title(p: Summary, cut: int | None, most: int, step: float | None) -> str:
    """One fact per line: the script shows these as a tooltip."""
    nearest = [_named(name, cut) for name in p["nearest"][:most]]
    lines = [_named(p["action"], cut), f"{count(p['count'])} rounds", f"reward {shown(p['reward'], step)}"]
    return "\n".join([*lines, *(["near " + ", ".join(nearest)] if nearest else [])])


def _named(name: str, cut: int | None) -> str:
    return isolated(label(name) if cut is None else shortened(label(name), cut))


def _action(p: Summary, step: float | None) -> View:
    nearest = [label(name) for name in p["nearest"]]
    return {
        "action": label(p["action"]), "count": count(p["count"]), "reward": shown(p["reward"], step), "nearest": nearest
    }  # fmt: skip


MOST_OUTLINES = 4
"""The policies in one picture of the action axis."""


def action_axes(summary: Summary) -> list[View]:
    """Where the log has actions and where the policies go, by dimension."""
    return [_action_axis(each) for each in summary.get("action_axis") or []]


def _action_axis(dimension: Summary) -> View:
    drawn = {**dimension, "policies": dimension["policies"][:MOST_OUTLINES]}
    names = [label(policy["policy"]) for policy in drawn["policies"]]
    hidden = len(dimension["policies"]) - len(names)
    where = "" if dimension["dimension"] is None else f" in dimension {dimension['dimension']}"
    alternative = (
        f"Histogram of the logged actions{where}, with an outline of the actions of {listed(names) or 'no policy'}."
    )
    return {
        "dimension": dimension["dimension"],
        "picture": charts.action_axis(drawn),
        "names": ["new policy" if name == "target" and not hidden and len(names) == 1 else name for name in names],
        "alternative": alternative,
        "hidden": hidden,
        "points": _at_points(dimension),
    }


def _at_points(dimension: Summary) -> list[tuple[str, list[str]]]:
    """For each action with a probability of its own: the share of the log and of each policy."""
    columns = [dimension["logged"], *dimension["policies"]]
    return [
        (action_axis.few(point), [share(column["at_points"][k]) for column in columns])
        for k, point in enumerate(dimension["points"])
    ]


FAR = "actions_far_from_the_log"
AXIS_FACTS = {
    FAR: (
        "Far from the log",
        "How many of the new policy's actions are farther than 1/60 of the range from any logged one. Below 1% is good.",
    ),
    "actions_at_a_bound": ("At a bound", "How many of the new policy's actions are exactly a bound of the box."),
    "logged_actions_at_a_bound": (
        "Logged at a bound",
        "How many logged actions are exactly a bound of the box, where they have a probability and no density. Below 1% is "
        "good.",
    ),
}


def axis_facts(summary: Summary) -> list[Fact]:
    """What the headline estimate of each policy reports of its actions."""
    several, facts = len(summary["policies"]) > 1, list[Fact]()
    for e in leading(summary):
        for key, (name, meaning) in AXIS_FACTS.items():
            at = e["diagnostics"].get(key)
            if finite(at) and (at or key == FAR):
                common = key.startswith("logged")
                fact = (name if common or not several else f"{name}: {label(e['policy'])}", share(at), meaning)
                facts += [] if fact in facts else [fact]
    return facts


def bandwidths(summary: Summary) -> list[View]:
    """The estimate over bandwidths, for each estimate that mixes several; those of the headline first."""
    mixes = [e for e in summary["estimates"] if e["diagnostics"].get("bandwidths")]
    lead = summary["headline"]["estimator"]
    return [_bandwidths(summary, e) for e in sorted(mixes, key=lambda e: e["estimator"] != lead)]


def _bandwidths(summary: Summary, e: Summary) -> View:
    rows = e["diagnostics"]["bandwidths"]
    header, cells = action_axis.bandwidth_table(rows)
    titles = [
        f"{r['estimator']}, width {width} ({of_range} of the range): {value} ± {error}, {rounds} effective rounds"
        for r, (width, of_range, value, error, rounds) in zip(rows, (each[-8:-3] for each in cells), strict=True)
    ]
    return {
        "policy": label(e["policy"]),
        "estimator": label(e["estimator"]),
        "level": hundredths(summary["level"]),
        "picture": charts.bandwidths(e, titles),
        "alternative": f"Estimates by {label(e['estimator'])} with {len(rows)} kernel widths, each with an error bar, and "
        f"their mix, {shown(e['value'], e['std_error'])}.",
        "kinds": [label(kind) for kind in action_axis.kinds(rows)],
        "across": "width of the kernel" + (", as a share of the range" if isinstance(rows[0]["bandwidth"], list) else ""),
        "header": header,
        "rows": cells,
        "note": action_axis.BANDWIDTH_MEANING,
    }


def dose_response(summary: Summary) -> View | None:
    """The value of each action taken in every round, with pointwise intervals."""
    curve = summary.get("dose_response")
    if not curve or not curve["points"]:
        return None
    points, level = curve["points"], hundredths(curve["level"])
    header, cells = action_axis.curve_table(curve)
    titles = [
        f"action {action}: {value}, {level} interval {interval}, {rounds} effective rounds"
        for action, value, interval, rounds in cells
    ]
    logged = summary.get("logged")
    return {
        "meaning": action_axis.curve_meaning(curve),
        "level": level,
        "picture": charts.dose_response(points, None if logged is None else logged["value"], titles),
        "alternative": f"The value of each of {len(points)} actions, taken in every round, with {level} intervals.",
        "logged": "" if logged is None else shown(logged["value"], logged["std_error"]),
        "header": header,
        "rows": cells,
        "reward": label(summary["reward"]),
    }

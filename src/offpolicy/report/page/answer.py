"""What the report says first: the headline of each policy, the table of estimates, and the reasons to believe it or not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offpolicy.report.formatting import THE_LOG, VERDICTS, count, label, number, percent as hundredths
from offpolicy.report.page.charts import Axis, Strip, finite, percent
from offpolicy.report.sentences import bias, by_reason, leading, worst_first
from offpolicy.report.tables import is_naive, marks_of, meanings

WORDS = {"OK": "Believe it", "CAUTION": "Believe it with care", "DO_NOT_TRUST": "Do not trust it"}
Summary = Mapping[str, Any]


def shown(value: float | None, error: float | None = None) -> str:
    """A number with a proper minus sign."""
    return _minus(number(value, error))


def _minus(text: str) -> str:
    return "−" + text[1:] if text.startswith("-") else text


def signed(value: float | None, error: float | None = None) -> str:
    """A difference: with its sign, whichever it is."""
    text = shown(value, error)
    return "+" + text if value is not None and finite(value) and value > 0 else text


def share(value: float | None, sign: bool = False) -> str:
    """In percent, with two digits that count."""
    if value is None or not math.isfinite(value):
        return number(value)
    size = abs(100 * value)
    text = f"{size:,.{0 if size >= 10 or size == 0 else 1 if size >= 1 else 2}f}%" if size < 1e7 else f"{size:.1e}%"
    mark = "−" if value < 0 else "+" if sign and value > 0 else ""
    return mark + text


def span(interval: Summary, error: float | None, say: Any = shown) -> str:
    """An interval in words; one without ends is undefined."""
    low, high = interval["low"], interval["high"]
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "undefined"
    return f"{say(low, error)} to {say(high, error)}"


def rough(error: float | None) -> str:
    """A standard error: two digits are enough."""
    return f"{error:.2g}" if error is not None and finite(error) else number(error)


def isolated(text: str) -> str:
    """A label that cannot turn the text around it: between isolates, where it has letters that could."""
    return text if text.replace("…", "").isascii() else f"\u2068{text}\u2069"


def listed(names: Iterable[str]) -> str:
    return ", ".join(isolated(label(name)) for name in names)


def judged(estimate: Summary) -> str:
    """Its verdict; where there is no number there is nothing to believe, whatever the checks said."""
    return str(estimate["verdict"]) if finite(estimate["value"]) else "DO_NOT_TRUST"


@dataclass(frozen=True)
class Card:
    """The answer for one policy."""

    policy: str
    answer: str
    detail: str
    verdict: str
    word: str
    reason: str
    value: str
    interval: str
    relative: str
    relative_interval: str


def cards(summary: Summary) -> list[Card]:
    lifts = {} if all(map(is_naive, leading(summary))) else {lift["policy"]: lift for lift in summary.get("lifts") or []}
    return [_card(e, lifts.get(e["policy"]), summary.get("logged")) for e in leading(summary)]


def _card(e: Summary, lift: Summary | None, logged: Summary | None) -> Card:
    level = hundredths(e["interval"]["level"])
    verdict = judged(e)
    reason = worst_first(e)[0]["seen"] if e["reasons"] else "No check speaks against it."
    answer, detail = _answer(e, lift, level)
    relative, relative_interval = ("", "") if lift is None else _relative(lift, logged)
    return Card(
        policy=label(e["policy"]),
        answer=answer,
        detail=detail,
        verdict=verdict,
        word=WORDS[verdict],
        reason=reason if e["reasons"] or verdict == "OK" else "There is nothing to believe.",
        value=shown(e["value"], e["std_error"]),
        interval=span(e["interval"], e["std_error"]),
        relative=relative,
        relative_interval=relative_interval,
    )


def _relative(lift: Summary, logged: Summary | None) -> tuple[str, str]:
    """The lift as a part of what the log earned, and its interval, where that is surely not 0."""
    if (
        logged is None
        or not finite(lift["relative"])
        or not (logged["interval"]["low"] > 0 or logged["interval"]["high"] < 0)
    ):
        return "", ""
    return share(lift["relative"], sign=True), span(lift["relative_interval"], None, lambda end, _: share(end, sign=True))


def _answer(e: Summary, lift: Summary | None, level: str) -> tuple[str, str]:
    """In a few words, and in a sentence: is it better, by how much, how sure."""
    if not finite(e["value"]):
        return "No number", "The log gives no number for this policy; below stands why."
    if lift is None or not finite(lift["value"]):
        return (
            f"{shown(e['value'], e['std_error'])} a round",
            f"The {level} interval is {span(e['interval'], e['std_error'])}.",
        )
    value, ci = signed(lift["value"], lift["std_error"]), lift["interval"]
    interval = span(ci, lift["std_error"], signed)
    level += "" if ci["method"] == e["interval"]["method"] else f" {ci['method']}"  # there is no other for differences
    if e["verdict"] == "DO_NOT_TRUST":
        return (
            "The log cannot tell",
            f"The estimate is {value} a round against the logged policy, {level} interval {interval}.",
        )
    if not (ci["low"] > 0 or ci["high"] < 0):  # an undefined end shows no difference either
        return (
            "No difference is shown",
            f"The estimate is {value} a round against the logged policy, but its {level} interval, {interval}, holds 0.",
        )
    more = "more" if lift["value"] > 0 else "less"
    return (
        f"{more.title()}: {value} a round",
        f"{_subject(e)} would earn {more} than the logged policy; the {level} interval of the difference is {interval}.",
    )


def _subject(e: Summary) -> str:
    """Who says so, where it is in doubt."""
    return "It" if e["verdict"] == "OK" else f"By {isolated(label(e['estimator']))}, it"


@dataclass(frozen=True)
class TableRow:
    """One estimate, or one difference, in a table."""

    name: str
    policy: str
    value: str
    interval: str
    strip: Strip
    rounds: str
    verdict: str
    word: str
    marks: str = ""
    lead: bool = False


@dataclass(frozen=True)
class IntervalTable:
    """Rows whose intervals stand on one axis."""

    caption: str
    first: str
    rows: tuple[TableRow, ...]
    axis: Axis
    several: bool
    legend: tuple[tuple[str, str], ...]
    level: str
    notes: tuple[str, ...] = ()
    cut: bool = False


def _ends(estimates: Sequence[Summary]) -> list[float | None]:
    return [v for e in estimates for v in (e["value"], e["interval"]["low"], e["interval"]["high"])]


def _lines(summary: Summary) -> tuple[dict[str, float | None], list[tuple[str, str]]]:
    """The logged mean and the known truths, as lines and as words."""
    logged = summary.get("logged") or next((e for e in summary["estimates"] if is_naive(e)), None)
    lines: dict[str, float | None] = {}
    words = []
    if logged is not None and finite(logged["value"]):
        lines["logged"] = logged["value"]
        words.append(("logged", f"logged mean {shown(logged['value'], logged['std_error'])}"))
    truths = summary.get("truth") or {}
    errors = {e["policy"]: e["std_error"] for e in leading(summary)}
    for k, (policy, truth) in enumerate(truths.items()):
        of = f" of {isolated(label(policy))}" if len(truths) > 1 else ""
        lines[f"truth t{k}"] = truth
        words.append(("truth", f"true value{of} {shown(truth, errors.get(policy))}, known since the log was simulated"))
    return lines, words


def estimates_table(summary: Summary) -> IntervalTable:
    """Every estimate; the logged mean, the same for all policies, once."""
    first, lead = summary["policies"][0], summary["headline"]["estimator"]
    kept = [e for e in summary["estimates"] if not is_naive(e) or e["policy"] == first]
    lines, words = _lines(summary)
    axis = Axis.of(_ends(leading(summary)), _ends(kept), lines)

    def row(e: Summary) -> TableRow:
        naive = is_naive(e)
        return TableRow(
            name=label(e["estimator"]),
            policy="the log" if naive else label(e["policy"]),
            value=shown(e["value"], e["std_error"]),
            interval=span(e["interval"], e["std_error"]),
            strip=Strip.of(axis.scale, e["value"], e["interval"]),
            rounds=count(e["diagnostics"].get("effective_sample_size")),
            verdict="NAIVE" if naive else judged(e),
            word=THE_LOG if naive else VERDICTS[judged(e)],
            marks=marks_of(summary, e),
            lead=e["estimator"] == lead,
        )

    rows = tuple(map(row, kept))
    return IntervalTable(
        caption=f"{label(summary['reward'])} a round, by estimator",
        first="Estimator",
        rows=rows,
        axis=axis,
        several=len(summary["policies"]) > 1,
        legend=tuple(words),
        level=hundredths(summary["level"]),
        notes=tuple(meanings(r.marks for r in rows)),
        cut=any(r.strip.cut_low or r.strip.cut_high for r in rows),
    )


def parts_table(summary: Summary, parts: Mapping[str, Summary]) -> IntervalTable:
    """The headline estimator in all rounds and in each slice."""
    pairs = [("All rounds", summary), *((label(name), part) for name, part in parts.items())]
    found = [(name, part, e) for name, part in pairs for e in leading(part)]
    axis = Axis.of(_ends(leading(summary)), _ends([e for _, _, e in found]), {})
    rows = [
        TableRow(
            name=name,
            policy=label(e["policy"]),
            value=shown(e["value"], e["std_error"]),
            interval=span(e["interval"], e["std_error"]),
            strip=Strip.of(axis.scale, e["value"], e["interval"]),
            rounds=f"{part['rounds']:,}",
            verdict=judged(e),
            word=VERDICTS[judged(e)],
            lead=part is summary,
        )
        for name, part, e in found
    ]
    several, level = len(summary["policies"]) > 1, hundredths(summary["level"])
    cut = any(r.strip.cut_low or r.strip.cut_high for r in rows)
    caption = f"{label(summary['reward'])} a round by {label(summary['headline']['estimator'])}, by slice"
    return IntervalTable(caption, "Slice", tuple(rows), axis, several, (), level, cut=cut)


def differences_table(summary: Summary) -> IntervalTable | None:
    """Policies against each other, on the same rounds."""
    differences = summary.get("differences") or []
    if not differences:
        return None
    axis = Axis.of(_ends(differences), [], {"zero": 0.0})
    doubtful = {e["policy"] for e in leading(summary) if judged(e) == "DO_NOT_TRUST"}

    def row(d: Summary) -> TableRow:
        apart = d["interval"]["low"] > 0 or d["interval"]["high"] < 0
        word = "no difference shown" if not apart else "the first earns more" if d["value"] > 0 else "the second earns more"
        word = "do not trust" if doubtful & {d["a"], d["b"]} else word
        value, interval = signed(d["value"], d["std_error"]), span(d["interval"], d["std_error"], signed)
        strip = Strip.of(axis.scale, d["value"], d["interval"])
        return TableRow(label(d["a"]), label(d["b"]), value, interval, strip, "", "DIFFERENCE", word)

    legend = (("zero", "no difference"),)
    return IntervalTable(
        "Paired differences", "Policies", tuple(map(row, differences)), axis, False, legend, hundredths(summary["level"])
    )


@dataclass(frozen=True)
class BlendPart:
    """One part of a blend."""

    name: str
    weight: str
    bar: float
    value: str
    error: str
    bias: str
    difference: str


@dataclass(frozen=True)
class Composition:
    """What an estimate is made of."""

    policy: str
    estimator: str
    parts: str
    anchor: str
    rule: str
    candidates: tuple[BlendPart, ...]
    left_out: tuple[tuple[str, str], ...]


def blends(summary: Summary) -> list[Composition]:
    return [_blend(e) for e in leading(summary) if e["diagnostics"].get("candidates")]


def _blend(e: Summary) -> Composition:
    seen = e["diagnostics"]
    heavy = [c for c in seen["candidates"] if finite(c["weight"]) and c["weight"] >= 0.005]
    candidates = [
        BlendPart(
            name=label(c["name"]),
            weight=share(c["weight"]) if c["weight"] else "–",
            bar=percent(c["weight"]) if finite(c["weight"]) else 0.0,
            value=shown(c["value"], c["std_error"]),
            error=rough(c["std_error"]) if c["error_known"] else "not known",
            bias=_minus(bias(c)),
            difference="" if c["name"] == seen["anchor"]
            else f"{signed(c['difference'], c['difference_error'])} ± {rough(c['difference_error'])}",
        )
        for c in seen["candidates"]
    ]  # fmt: skip
    return Composition(
        policy=label(e["policy"]),
        estimator=label(e["estimator"]),
        parts=", ".join(f"{share(c['weight'])} {isolated(label(c['name']))}" for c in heavy[:4])
        + (" and others" if len(heavy) > 4 else ""),
        anchor=label(seen["anchor"]),
        rule=seen["rule"],
        candidates=tuple(candidates),
        left_out=tuple(reasons(seen["left_out"])),
    )


def reasons(told: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names with the same reason together, and the reason."""
    return [(listed(names), why) for why, names in by_reason(told).items()]


@dataclass(frozen=True)
class HeadlineFindings:
    """The findings about one policy's headline estimate."""

    policy: str
    estimator: str
    findings: tuple[Summary, ...]
    clear: bool


def doubts(summary: Summary) -> list[HeadlineFindings]:
    return [
        HeadlineFindings(label(e["policy"]), label(e["estimator"]), tuple(worst_first(e)), judged(e) == "OK")
        for e in leading(summary)
    ]


def other_doubts(summary: Summary) -> list[tuple[str, str, str, str]]:
    """Estimator, policies, verdict and what was seen, without what was said of the headline already."""
    said = {(e["policy"], reason["seen"]) for e in leading(summary) for reason in e["reasons"]}
    lead = summary["headline"]["estimator"]
    found: dict[tuple[str, str, str], list[str]] = {}
    for e in summary["estimates"]:
        seen = [reason["seen"] for reason in worst_first(e) if (e["policy"], reason["seen"]) not in said]
        if seen and e["estimator"] != lead and not is_naive(e):
            found.setdefault((e["estimator"], e["verdict"], " ".join(seen)), []).append(e["policy"])
    return [(label(name), listed(policies), verdict, seen) for (name, verdict, seen), policies in found.items()]

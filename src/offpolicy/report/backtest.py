"""A backtest in words and as a table."""

from __future__ import annotations

from offpolicy.report.formatting import WIDTH, Summary, aligned, label, number, percent, wrapped

RIGHT = frozenset({"pairs", "held"})
FEW = 20
"""Fewer pairs than this cannot tell coverage of 95% from 75%: the binomial interval of 19 of 20 starts at 75%."""


def text(backtest: Summary) -> str:
    """Coverage, bias and calibration factor of every estimator, as plain text."""
    pairs, level = len({each["pair"] for each in backtest["outcomes"]}), percent(backtest["level"])
    heading = f"{pairs} past {'test' if pairs == 1 else 'tests'}: how often {level} intervals held."
    lines = [line for each in notes(backtest) for line in wrapped(each, WIDTH, indent="  ")]
    return "\n".join([*wrapped(heading), "", *aligned(*table(backtest), right=RIGHT), "", *lines])


def table(backtest: Summary) -> tuple[list[str], list[list[str]]]:
    """The header and the cells, one row per estimator."""
    header = ["estimator", "held", f"{percent(backtest['level'])} interval", "bias", "widen by"]
    cells = [
        [
            label(row["estimator"]),
            f"{row['held']} of {row['pairs']}",
            f"{percent(row['coverage_low'], 0.1)} to {percent(row['coverage_high'], 0.1)}",
            f"{number(row['bias'], row['bias_error'])} ± {number(row['bias_error'], row['bias_error'])}",
            f"{number(row['factor'], 0.1)} ({number(row['factor_low'], 0.1)} to {number(row['factor_high'], 0.1)})",
        ]
        for row in backtest["rows"]
    ]
    return header, cells


def notes(backtest: Summary) -> list[str]:
    """What the columns mean, and what this many tests cannot show."""
    lines = [
        "The error of what was earned is taken into account. bias: the mean of estimate minus truth ± standard error. widen "
        f"by: the factor that makes intervals hold at their level, with its {percent(backtest['level'])} interval."
    ]
    undefined = [f"{label(row['estimator'])} ({row['undefined']})" for row in backtest["rows"] if row["undefined"]]
    if undefined:
        lines.append(f"Without a finite interval, which counts as not held: {', '.join(undefined)}.")
    if backtest["rows"] and max(row["pairs"] for row in backtest["rows"]) < FEW:
        lines.append(f"Fewer than {FEW} tests: only intervals that are far too narrow would be noticed.")
    return lines

"""`offpolicy watch`: fold files into a saved monitor, and report what they decided."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offpolicy.cli.settings import named_policies, open_log, own_log
from offpolicy.core.errors import InputError
from offpolicy.core.files import whole_file
from offpolicy.data.sources.files import find_files
from offpolicy.engines.local import Local
from offpolicy.report.formatting import label, number, percent
from offpolicy.results.monitor import BETTER, UNDECIDED, WORSE, Monitor, Watched

ALL_BETTER, ALL_WORSE = 4, 5
OF_MONITOR = ("level", "seed", "weight_bound", "baseline")


def run(state: Path, settings: Mapping[str, Any]) -> Monitor:
    """The monitor of a file, or a new one, with the new logs. It is saved after each of them."""
    if own := own_log(settings):
        raise InputError(f"logs: {own} is not a file; in Python, op.Monitor takes any log.")
    if len(settings["reward"]) > 1:
        raise InputError("reward: a monitor decides by one reward; name one column.")
    policies = named_policies(settings)
    monitor = _opened(state, policies, settings)
    engine, before = Local(threads=settings.get("threads")), monitor.decisions
    for file in find_files(list(settings["logs"])):
        if file.resolve() == state.resolve():
            continue
        if monitor.update_from(file, lambda file=file: open_log(settings, [str(file)]), engine=engine):  # type: ignore[misc]
            print(f"New: {file}, {monitor.rounds:,} rounds so far", file=sys.stderr)
        monitor.save(state)
    for name, decision in monitor.decisions.items():
        if decision.conclusion != UNDECIDED and before[name].conclusion == UNDECIDED:
            print(f"Decided: {name} is {decision.conclusion}.", file=sys.stderr)
    return monitor


def _opened(state: Path, policies: Mapping[str, Any], settings: Mapping[str, Any]) -> Monitor:
    chosen = {name: settings[name] for name in OF_MONITOR if settings.get(name) is not None}
    if not state.exists():
        return Monitor(dict(policies), **chosen)
    saved = Monitor.load(state, dict(policies))
    asked = Monitor(dict(policies), **chosen)
    for name in OF_MONITOR:
        if name in chosen and getattr(asked, name) != getattr(saved, name):
            raise InputError(
                f"{name} is {getattr(asked, name)!r}, and {state} was begun with {getattr(saved, name)!r}. What is promised "
                "for all looks cannot change between them; begin another file."
            )
    return saved


def text(monitor: Monitor) -> str:
    """Each policy with its bounds, and what is decided."""
    if not monitor.looks:
        return "There are no rounds yet."
    look = monitor.looks[-1]
    against = "the log" if monitor.baseline is None else label(monitor.baseline)
    lines = [f"{look.rounds:,} rounds of {look.logs:,} logs; {percent(monitor.level)} bounds that hold at every look"]
    for name, decision in monitor.decisions.items():
        own = look.policies[name]
        lines.append(f"{label(name)}: {_span(own.value, own.low, own.high)}; minus {against}: {_difference(own)}")
        since = "" if decision.rounds is None else f" than {against}, since {decision.rounds:,} rounds"
        lines.append(f"  {decision.conclusion}{since}")
    return "\n".join(lines)


def _difference(own: Watched) -> str:
    values = (own.difference, own.difference_low, own.difference_high)
    return _span(*(0.0 if value is None else value for value in values))


def _span(value: float, low: float, high: float) -> str:
    error = (high - low) / 4
    return f"{number(value, error)} ({number(low, error)} to {number(high, error)})"


def exit_code(monitor: Monitor) -> int:
    """4 if a policy is better, 5 if all are worse, and 0 otherwise."""
    conclusions = {decision.conclusion for decision in monitor.decisions.values()}
    return ALL_BETTER if BETTER in conclusions else ALL_WORSE if conclusions == {WORSE} else 0


def draw(monitor: Monitor, path: Path) -> None:
    """The looks as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 4.0), layout="constrained")
    monitor.plot(figure.subplots())
    with whole_file(path) as draft:
        figure.savefig(draft, format=path.suffix[1:].lower(), bbox_inches="tight")
    print(f"Written: {path}", file=sys.stderr)

"""`offpolicy watch`: fold files into a saved monitor, and report what they decided."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
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
    _check_name(state)
    policies = named_policies(settings)
    monitor = _opened(state, policies, settings)
    engine, before, logs = Local(threads=settings.get("threads")), monitor.decisions, monitor.logs
    for file in find_files(list(settings["logs"])):
        if file.resolve() == state.resolve():
            continue
        try:
            new = monitor.update_from(file, partial(open_log, settings, [str(file)]), engine=engine)
        except InputError as error:
            raise error if str(file) in str(error) else InputError(f"{file}: {error}") from error
        monitor.save(state)
        if new:
            print(f"New: {file}, {monitor.rounds:,} rounds so far", file=sys.stderr)
    if monitor.logs == logs:
        print("No new logs.", file=sys.stderr)
    for name, decision in monitor.decisions.items():
        if decision.conclusion != UNDECIDED and before[name].conclusion == UNDECIDED:
            print(f"Decided: {name} is {decision.conclusion}.", file=sys.stderr)
    return monitor


def _check_name(state: Path) -> None:
    """Raise before any log is read if the state cannot be what the user means, or cannot be written."""
    if {".parquet", ".csv", ".tsv", ".txt", ".gz"} & set(state.suffixes):
        raise InputError(
            f"{state} has the name of a log. The first argument is the file with the sums so far, such as state.op; the "
            "logs follow."
        )
    if not state.absolute().parent.is_dir():
        raise InputError(f"{state.parent}: no such folder, so that {state.name} cannot be written there.")


def _opened(state: Path, policies: Mapping[str, Any], settings: Mapping[str, Any]) -> Monitor:
    chosen = {name: settings[name] for name in OF_MONITOR if settings.get(name) is not None}
    if not state.exists():
        return Monitor(dict(policies), **chosen)
    saved = Monitor.load(state, dict(policies))
    asked = Monitor(dict(policies), **chosen)
    for name in OF_MONITOR:
        if name in chosen and getattr(asked, name) != getattr(saved, name):
            raise InputError(
                f"{name} is {getattr(asked, name) or 'not given'}, and {state} was begun with "
                f"{getattr(saved, name) or 'none'}. What is promised for all looks cannot change between them; begin "
                "another file."
            )
    return saved


def text(monitor: Monitor) -> str:
    """Each policy with its bounds, and what is decided."""
    if not monitor.looks:
        return "There are no rounds yet."
    look = monitor.looks[-1]
    against = "the log" if monitor.baseline is None else label(monitor.baseline)
    logs = "1 log" if look.logs == 1 else f"{look.logs:,} logs"
    lines = [f"{look.rounds:,} rounds of {logs}; {percent(monitor.level)} bounds that hold at every look"]
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

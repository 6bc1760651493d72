"""`python -m trials.kills --times 200`: commands killed and stopped at random moments; files and runs must be intact.

Half of the moments are drawn from the whole running time of a command, half from the time during which it writes. Every
command overwrites the files of the one before it, so that each file is the old one or the new one, and both are known.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.common import table
from offpolicy.core.files import DRAFT
from trials.common import publish

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
PATIENCE = 300.0
LOG = "simulate log.parquet --rounds 3000 --actions 6"
COLUMNS = "log.parquet --context x0,x1,x2,x3,x4 --action item --reward click"
EVALUATE = f"evaluate {COLUMNS} --propensity propensity --target p_new --estimator SNIPS"
EXPERIMENT = """
title = "Killed"
axis = "rounds"
worlds = 30
logs = 2
[world]
kind = "toy"
n_actions = 5
[vary]
rounds = [60, 120]
[estimators]
"IPS" = "ips"
"DM" = "dm"
"""
COMMANDS = {
    "evaluate": (f"{EVALUATE} --markdown new.md", ("new.md",)),
    "report": (f"{EVALUATE} --report new.html --plot new.png", ("new.html", "new.png")),
    "embed": (f"embed {COLUMNS} --rank 2 --out new.parquet", ("new.parquet",)),
    "simulate": ("simulate new.parquet --rounds 20000 --actions 20", ("new.parquet", "new.truth.json")),
    "reproduce": ("reproduce killed.toml --processes 2 --out out", ("out",)),
}
FAULTS = ("broken files", "lost runs", "drafts left behind", "wrong exit codes", "workers left running")
Seen = tuple[int, int, int, str, float]


def started(command: str, folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "offpolicy", *command.split()]
    reset = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731  (background processes ignore Ctrl-C)
    return subprocess.Popen(
        words, cwd=folder, text=True, preexec_fn=reset, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def done(command: str, folder: Path) -> None:
    process = started(command, folder)
    said = process.communicate()[1]
    if process.returncode not in (0, 3):
        raise RuntimeError(f"{command}: {said}")


def drafts(folder: Path) -> list[Path]:
    return list(folder.rglob(f"{DRAFT}*"))


def whole(path: Path, known: Path) -> bool:
    """Whether a file is what the command writes when it is not interrupted."""
    try:
        if path.suffix == ".parquet":
            return bool(pq.read_table(path).equals(pq.read_table(known)))
        if path.suffix == ".html":  # it contains the time at which it was written
            return path.read_text().rstrip().endswith("</html>") and abs(path.stat().st_size - known.stat().st_size) < 200
        if path.suffix == ".md":
            return len(path.read_text().splitlines()) == len(known.read_text().splitlines())
        return path.read_bytes() == known.read_bytes()
    except Exception:
        return False


def runs(folder: Path) -> tuple[set[Seen], int]:
    """All finished runs, and the number of files that cannot be read."""
    found, broken = set[Seen](), 0
    for path in folder.glob("out/runs*.parquet"):
        try:
            read = pq.read_table(path).select(["point", "world", "log", "estimator", "value"])
            found |= set(zip(*(column.to_pylist() for column in read.columns), strict=True))
        except Exception:
            broken += 1
    return found, broken


SHORTEST = 0.1
"""If a command ends within this fraction of its writing time, it is killed at a random moment instead."""


@dataclass
class Trial:
    """One command in its own folder, interrupted again and again."""

    name: str
    folder: Path
    seed: int
    length: float = 0.0
    writing: float = 0.0
    counts: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def command(self) -> str:
        return COMMANDS[self.name][0]

    def prepare(self) -> None:
        """Run once without interruption: record the expected files, the running time and the writing time."""
        self.folder.mkdir()
        (self.folder / "killed.toml").write_text(EXPERIMENT)
        if "log.parquet" in self.command:
            done(LOG, self.folder)
        start = time.monotonic()
        process = started(self.command, self.folder)
        first = self._first_write(process)
        said = process.communicate()[1]
        if process.returncode not in (0, 3) or first is None:
            raise RuntimeError(f"{self.name}: {said}")
        self.length, self.writing = time.monotonic() - start, time.monotonic() - first
        shutil.copytree(self.folder, self.folder.with_suffix(".known"))
        if self.name == "reproduce":
            shutil.rmtree(self.folder / "out")

    def _first_write(self, process: subprocess.Popen[str]) -> float | None:
        """When the first draft or new file appears; None if the command ended before."""
        before = self._look()
        while process.poll() is None:
            if self._look() != before:
                return time.monotonic()
            time.sleep(0.001)
        return time.monotonic() if self._look() != before else None

    def _look(self) -> set[tuple[str, int]]:
        """Names and inodes of all files, including drafts."""
        found = set()
        for folder in (self.folder, self.folder / "out"):
            if folder.is_dir():
                found |= {(entry.name, entry.inode()) for entry in os.scandir(folder)}
        return found

    def run(self, times: int) -> None:
        """Kill it `times` times. A signal after the end of the command does not count; it is repeated earlier."""
        rng, k, signum, within = random.Random(self.seed), 0, SIGNALS[0], 1.0
        while k < times:
            signum = SIGNALS[k % 3]
            seen = self.counts.setdefault(signum.name, Counter())
            in_writing = k // 3 % 2 == 1 and within > SHORTEST
            found = Counter(self._disturb(signum, in_writing, rng.uniform(0, within)))
            seen.update(found)
            k, within = k + found["kills"], 1.0 if found["kills"] else within / 2
            print(f"{self.name} {k}/{times} {signum.name} {dict(seen)}", file=sys.stderr, flush=True)
        done(self.command, self.folder)  # now without interruption: nothing is missing, and nothing is left over
        last = self.counts[signum.name]
        last["broken files"] += self._broken() + len(drafts(self.folder))
        if self.name == "reproduce":
            last["lost runs"] += len(runs(self.folder.with_suffix(".known"))[0] - runs(self.folder)[0])

    def _disturb(self, signum: signal.Signals, in_writing: bool, at: float) -> Iterator[str]:
        """Kill once at that fraction of its time, and yield each problem that is found afterwards."""
        if self.name == "reproduce" and (self.folder / "out" / "summary.md").exists():
            shutil.rmtree(self.folder / "out")  # there is nothing left to do
        before, _ = runs(self.folder)
        for path in drafts(self.folder):
            path.unlink()
        process = started(self.command, self.folder)
        if in_writing:
            self._first_write(process)
        time.sleep(at * (self.writing if in_writing else self.length))
        children = _children(process.pid)
        process.send_signal(signum)
        written = bool(drafts(self.folder))
        said = process.communicate(timeout=PATIENCE)[1]
        if process.returncode not in (0, 3):
            yield "kills"
        # Python itself was still starting: the signal kills it, or it reports that it could not import its own modules
        early = signum != signal.SIGKILL and (process.returncode == -signum or "init_import_site" in said)
        names = {0: "finished", 3: "finished", 128 + signum: "stopped", -signum: "killed"}
        yield "too early" if early else names.get(process.returncode, "wrong exit codes")
        if process.returncode == 128 + signum and (said.count("\n") != 1 or "stopped by" not in said):
            yield "wrong exit codes"
        if written:
            yield "while writing"
        after, broken = runs(self.folder)
        yield from ["broken files"] * (broken + self._broken())
        yield from ["lost runs"] * len(before - after)
        if signum != signal.SIGKILL:
            yield from ["drafts left behind"] * len(drafts(self.folder))
        yield from ["workers left running"] * _still_there(children)

    def _broken(self) -> int:
        known = self.folder.with_suffix(".known")
        there = [self.folder / name for name in COMMANDS[self.name][1] if (self.folder / name).is_file()]
        there += [path for path in (self.folder / "out").glob("*.*") if path.name in ("summary.md", "figure.png")]
        return sum(not whole(path, known / path.relative_to(self.folder)) for path in there)


def _children(pid: int) -> list[Path]:
    try:
        return [Path(f"/proc/{child}") for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _still_there(children: list[Path]) -> int:
    ended = time.monotonic() + PATIENCE
    while (left := [child for child in children if _alive(child)]) and time.monotonic() < ended:
        time.sleep(0.02)
    return len(left)


def _alive(process: Path) -> bool:
    """Whether it still runs: a zombie process does not."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def shown(trials: list[Trial]) -> str:
    header = ["command", "signal", "kills", "during a write", "after the end, not counted", *FAULTS]
    rows = []
    for trial in trials:
        for name, seen in trial.counts.items():
            numbers = [seen[key] for key in ("kills", "while writing", "finished", *FAULTS)]
            rows.append([f"`{trial.name}`", name, *map(str, numbers)])
    total = [sum(int(row[k]) for row in rows) for k in range(2, len(header))]
    return table(header, [*rows, ["all", "", *map(str, total)]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=200, help="total number of kills (200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="commands run in parallel (2)")
    parser.add_argument("--publish", action="store_true", help="write the table into docs/faults.md")
    given = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="offpolicy-kills-") as scratch:
        trials = [Trial(name, Path(scratch) / name, given.seed + k) for k, name in enumerate(COMMANDS)]
        shares = [given.times // len(trials) + (k < given.times % len(trials)) for k in range(len(trials))]
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(_tried, trials, shares))
    found: Counter[str] = sum((seen for trial in trials for seen in trial.counts.values()), Counter())
    faults = {name: found[name] for name in FAULTS}
    verdict = "passed" if not any(faults.values()) else "FAILED"
    last = f"{found['kills']} kills: {', '.join(f'{count} {name}' for name, count in faults.items())}: {verdict}."
    result = {
        "seconds": round(time.monotonic() - start, 1),
        "seed": given.seed,
        "faults": faults,
        "commands": {trial.name: {name: dict(seen) for name, seen in trial.counts.items()} for trial in trials},
    }
    text = f"`python -m trials.kills --times {given.times}`\n\n{shown(trials)}\n\n{last}"
    publish("kills", text, json.loads(json.dumps(result)), full=given.publish)
    print(last)
    sys.exit(verdict != "passed")


def _tried(trial: Trial, times: int) -> None:
    trial.prepare()
    trial.run(times)


if __name__ == "__main__":
    main()

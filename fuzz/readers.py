"""Readers of bytes: CSV, Parquet, gzip, TOML settings and experiments, lists in cells; and damaged files for them.

`python -m fuzz` edits valid files; `python -m fuzz.deep csv` lets atheris search for edits that reach new code. A target
raises only if the bytes led to something other than an answer or an `InputError`.
"""

from __future__ import annotations

import functools
import gzip
import math
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from hypothesis import strategies as st

import offpolicy as op
from fuzz.commands import COLUMNS, place
from fuzz.judging import Outcome, Verdict, blamed
from offpolicy.cli import app, settings
from offpolicy.data.list_cells import plain_lists
from offpolicy.estimators.text import estimator
from offpolicy.experiments.config import load

EXPERIMENT = """title = "Mine"
rounds = 100
worlds = 2
logs = 3
seed = 1
axis = "actions"
figure = "curves"
medians = [3]
relative_to = ["IPS"]

[world]
kind = "toy"

[vary]
n_actions = [5, 10]

[estimators]
IPS = "ips"
"the mean" = "logged-mean"
Slow = {estimator = "dm", worlds = 1}

[published]
IPS = {5 = [0.6, 0.1]}

[[claims]]
says = "IPS is below"
lower = "IPS"
than = "the mean"

[quick]
rounds = 50
"""
SETTINGS = 'logs = "log.parquet"\ncontext = ["x"]\naction = "item"\nreward = "click"\ntarget = "q"\npropensity = "p"\nlevel = 0.9\nseed = 3\n'


class WrongError(Exception):
    """An impossible answer."""


def _log(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        log = op.read_log(path, context="x", action="item", reward="click", propensity="p")
        result = op.evaluate(log, "q", [op.IPS(), op.SNIPS()])
    mean = result["LoggedMean"]
    if mean.n != len(log) or not math.isfinite(mean.value):
        raise WrongError(f"n is {mean.n} of {len(log)} rows, the mean {mean.value}")


def _settings(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_bytes(data)
        read = settings.merged(path, {}, settings.Accepted(settings.settings_of(app.evaluate)))
        for text in read.get("estimator", []):
            estimator(text)
        settings.open_log({**read, "logs": [str(place() / "log.parquet")]}, [place() / "log.parquet"])


def _experiment(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.toml"
        path.write_bytes(data)
        experiment = load(str(path))
        if experiment.worlds < 1 or experiment.logs < 1 or not experiment.key:
            raise WrongError("an experiment without runs")


def _lists(data: bytes) -> None:
    cells = data.decode("utf-8", "replace").split("\n")
    if len(plain_lists(pa.array(cells))) != len(cells):
        raise WrongError("the number of lists differs from the number of cells")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "csv": functools.partial(_log, "log.csv"),
    "gzip": functools.partial(_log, "log.csv.gz"),
    "parquet": functools.partial(_log, "log.parquet"),
    "settings": _settings,
    "experiment": _experiment,
    "lists": _lists,
}
BITS = (b"", b"\x00", b"\xff", b"\n", b"\r", b",", b'"', b"'", b"[", b"]", b"{", b"=", b"-", b"nan", b"1e999", b"9" * 25, b"\xef\xbb\xbf", b"\xc3",
        b"\n\n", b"true", b"-1", b"0.5", b"|", b"null", b"[[x]]\n", b'"""', b"\x80\x00\x00\x00")  # fmt: skip


@functools.cache
def good(target: str) -> bytes:
    """A valid file to damage."""
    text = {"settings": SETTINGS, "experiment": EXPERIMENT, "lists": 'a|b|c\n[0.5, 0.25]\n["x", "y"]\n[np.str_(\'a\')]\n1;2'}
    if target in text:
        return text[target].encode()
    columns = {name: COLUMNS[name] for name in ("x", "item", "click", "p", "q")}
    csv = (
        "\n".join([",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]).encode()
        + b"\n"
    )
    return (
        (place() / "log.parquet").read_bytes()
        if target == "parquet"
        else gzip.compress(csv, 1, mtime=0)
        if target == "gzip"
        else csv
    )


def tried(target: str, data: bytes) -> Outcome:
    """Whether it was answered or refused; anything else raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        try:
            TARGETS[target](data)
        except op.InputError as error:
            if not str(error).strip():
                raise WrongError("refused without a message") from error
            return Outcome.REFUSED
    return Outcome.RIGHT


@dataclass(frozen=True)
class Damaged:
    """A valid file with edits, each at a fraction of its length: remove this many bytes and insert these."""

    target: str
    edits: tuple[tuple[float, int, bytes], ...]

    def judge(self) -> Verdict:
        data = good(self.target)
        for part, out, written in self.edits:
            at = int(part * len(data))
            data = data[:at] + written + data[at + out :]
        try:
            return Verdict(tried(self.target, data), "bytes")
        except Exception as error:
            return Verdict(Outcome.FAILED, blamed(error))


@st.composite
def cases(draw: st.DrawFn) -> Damaged:
    """Up to three edits of a good file."""
    target = draw(st.sampled_from(list(TARGETS)))
    written = st.one_of(st.sampled_from(BITS), st.binary(max_size=3))
    edit = st.tuples(st.floats(0, 1), st.integers(0, 8), written)
    return Damaged(target, tuple(draw(st.lists(edit, max_size=3))))

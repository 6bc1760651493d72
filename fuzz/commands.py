"""Command lines and TOML files: the same settings in two forms, run in this process or in their own."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import typer
from hypothesis import strategies as st

from fuzz.judging import NAMES, Outcome, Truth, Verdict, blamed, number, refusal, truth_of
from fuzz.values import ODD_NUMBERS, ODD_TEXTS, hurts
from offpolicy.cli import app as cli

COLUMNS: dict[str, list[Any]] = {
    "x": [0.0, 0.5, 1.0, 1.5, 2.0, 2.5], "z": ["a", "b", "a", "b", "a", "b"], "item": [0, 1, 2, 0, 1, 2],
    "click": [1.0, 0.0, 1.0, 1.0, 0.0, 3.0], "p": [0.5, 0.25, 0.25, 0.5, 0.25, 0.25], "q": [0.25, 0.5, 0.25, 0.25, 0.5, 0.0],
    "w": [1.0, 2.0, 0.0, 1.0, 1.0, 1.0], "bad": [0.5, None, 0.5, 0.5, 0.5, 0.5], "user": ["u", "v", "u", "w", "x", "é"],
    "won": [3, 1, 2, 4, 1, 2], "drawn": [7] * 6, "p_0": [0.25] * 6, "p_1": [0.5] * 6, "p_2": [0.25] * 6, "name": ["a,b", "c", "d e", "a,b", "c", "d e"],
}  # fmt: skip
GOOD: dict[str, Any] = {
    "logs": ["log.parquet"], "context": ["x"], "action": "item", "reward": ["click"], "propensity": "p", "target": ["q"],
    "estimator": ["ips", "snips"],
}  # fmt: skip
FINE: tuple[tuple[str, Any], ...] = (
    ("logs", ["log.csv"]), ("logs", ["log.parquet", "log.parquet"]), ("logs", ["log.p*"]), ("context", ["x", "z"]), ("context", ["z"]),
    ("weight", "w"), ("cluster", "user"), ("by", "z"), ("row_id", "x"), ("level", 0.9), ("seed", 7), ("seed", -7), ("threads", 1),
    ("memory", "1GB"), ("interval", "bootstrap"), ("interval", "normal"), ("reward_range", "0,3"), ("n_actions", 3), ("actions", "labels"),
    ("features", ["z"]), ("catalog", "catalog.csv"), ("cross_fit", 3), ("target", ["p_*"]), ("engine", "local"), ("reward", ["x"]), ("context", ["z", "user"]),
    ("target", ["p"]), ("best", "log"), ("action", "name"), ("logging", "p_*"), ("missing", "mean"), ("missing", "level"), ("levels", 2),
    ("logger", "z"), ("propensity", "monte-carlo:won,drawn"), ("propensity", "monte-carlo:won,drawn,chosen"),
)  # fmt: skip
"""Settings that must be accepted."""
WHOLE = ("seed", "threads", "n_actions", "cross_fit", "levels", "version")
NUMBERS = (*WHOLE, "level", "reward_range", "memory")
NAMED = ("context", "action", "reward", "propensity", "target", "logging", "features", "cluster", "row_id", "weight", "by", "catalog", "logs",
         "estimator", "diagnostic", "interval", "inputs", "actions", "engine", "master", "missing", "dates", "best", "logger", "loggers", "as_of")  # fmt: skip
ESTIMATORS = (
    "ips,snips,dr", "IPS", "snips:", "clipped-ips:clip=nan", "clipped-ips:clip=-1", "clipped-ips:clip=", "ips:clip=1", "dr:cross_fit=1", "dr:cross_fit=0",
    "dr:cross_fit=x", "learned-mips:rank=-1", "learned-mips:rank=0", "learned-mips:bandwidth=nan", "auto", "dm", "mips", "json:loads", "os:system",
    "no_such:thing", ":", "::", "a:", ":a", "ips:name=", "ips:name=LoggedMean", "switch-dr:threshold=inf", "dros:shrinkage=-1", "sub-gaussian-ips:shrinkage=2",
    "dm:penalty=-1", "dm:penalty=nan", "dm:rewards=x", "dm:rewards=json:loads", "dm:rewards=:", "dm:rewards=a:", "dm:rewards=subprocess:Popen",
    "learned-mips:posterior=no_such:thing", "learned-mips:posterior=builtins:int", "learned-mips:rewards=json:nothing,posterior=os:system", "cab:clip=0", "mr", "slope", "blend", "group-ips:clusters=0", "group-ips:clusters=99999", "off-cem", ",",
)  # fmt: skip
TARGETS = (
    "a=",
    "=q",
    "a=q",
    "=",
    "q,p",
    "q,p,x",
    "p_*_*",
    "*",
    "item,p",
    "mine:policy",
    "mine:number",
    "mine:raises",
    "mine",
    "sys:exit",
    "os.path:sep",
    "nosuch.mod:x",
    ".:x",
)
LOGGERS: tuple[dict[str, Any], ...] = (
    {"logger": "z", "logging": ["a=p_*", "b=p_*"], "propensity": ""}, {"logger": "z", "logging": ["a=p_*"]},
    {"logging": ["a=p_*", "b=p_*"]}, {"logger": "z", "logging": ["p_*", "p_*"]}, {"logger": "z", "loggers": "balanced"},
    {"logging": ["=p_*"]}, {"logging": ["a="]}, {"logger": "z", "logging": ["a=", "b="]}, {"loggers": "own"}, {"logger": "bad"},
    {"logger": "z", "logging": ["a=mine:raises", "b=p_*"]}, {"propensity": "monte-carlo:"}, {"propensity": "monte-carlo:won"},
    {"propensity": "monte-carlo:won,drawn,odd"}, {"propensity": "monte-carlo:drawn,won"}, {"propensity": "monte-carlo:bad,drawn"},
    {"propensity": "monte-carlo:,"}, {"propensity": "monte-carlo:won,user"}, {"propensity": ":"}, {"propensity": "mine:policy"},
)  # fmt: skip


@functools.cache
def place() -> Path:
    """A folder with the log in several formats, a catalog, a module of policies, and files that are none of these."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    table = pa.table(COLUMNS)
    pq.write_table(table, folder / "log.parquet")
    pa_csv.write_csv(table, folder / "log.csv")
    (folder / "catalog.csv").write_text("item,name,size\n0,2,0.5\n1,3,1.5\n2,2,2.5\n")
    (folder / "mine.py").write_text(
        "import numpy as np\npolicy = lambda x: np.full((len(x), 3), 1 / 3)\nnumber = 3\n\n\ndef raises(x):\n    raise KeyError\n"
    )
    (folder / "folder").mkdir()
    (folder / "empty.csv").write_text("")
    (folder / "text.parquet").write_text("not Parquet")
    (folder / "binary.csv").write_bytes(bytes(range(256)))
    return folder


def truth_of_settings(settings: Mapping[str, Any], certain: bool) -> Truth | None:
    """Computed from the column in each role if all are known; None if the answer is not to be checked."""
    try:
        one = {
            role: settings[role][0] if isinstance(settings[role], list) else settings[role]
            for role in ("reward", "propensity", "target")
        }
        several = [each for role in ("reward", "target") for each in settings[role][1:]]
    except (KeyError, IndexError, TypeError):
        return None
    if several or any(not isinstance(name, str) for name in one.values()):
        return None
    target = COLUMNS["p_1"] if one["target"] == "p_*" else COLUMNS.get(one["target"])
    if one["target"] == "p_*":
        target = [COLUMNS[f"p_{code}"][0] for code in COLUMNS["item"]]
    columns = {"reward": COLUMNS.get(one["reward"]), "p": COLUMNS.get(one["propensity"]), "q": target}
    weight = settings.get("weight")
    if weight is not None:
        columns["weight"] = COLUMNS.get(weight) if isinstance(weight, str) else None
    if any(cells is None or any(number(cell) is None for cell in cells) for cells in columns.values()):
        return None
    return truth_of({name: cells for name, cells in columns.items() if cells is not None}, certain)


@dataclass(frozen=True)
class Ended:
    """What a command did."""

    code: int
    out: str
    err: str
    crash: str = ""


@functools.cache
def _command() -> Any:
    """The Typer application, built once: building it takes longer than an evaluation."""
    return typer.main.get_command(cli.app)


def in_process(arguments: Sequence[str], folder: Path) -> Ended:
    """Call the command's `main` with its own streams."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape", write_through=True) for _ in range(2))
    before, shown = Path.cwd(), warnings.showwarning
    code, crash = 0, ""
    try:
        os.chdir(folder)
        with (
            mock.patch.object(sys, "argv", ["offpolicy", *arguments]),
            mock.patch.object(cli, "app", _command()),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException as error:
        code, crash = 1, blamed(error)
    finally:
        os.chdir(before)
        warnings.showwarning = shown
    read = [stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err)]  # type: ignore[attr-defined]
    return Ended(code, read[0], read[1], crash)


def in_subprocess(arguments: Sequence[str], folder: Path) -> Ended:
    """Run it as a user would."""
    command = [sys.executable, "-m", "offpolicy", *arguments]
    done = subprocess.run(command, capture_output=True, cwd=folder, timeout=120, check=False)
    return Ended(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def judge_ended(ended: Ended, truth: Truth | None, certain: bool) -> Verdict:
    """The exit code, the output, and the numbers if there are any."""
    if ended.crash:
        return Verdict(Outcome.FAILED, ended.crash)
    if "Traceback" in ended.err or "Traceback" in ended.out:
        return Verdict(Outcome.FAILED, f"a traceback: {ended.err[-300:]}")
    if ended.code == 2:
        owed = Truth(0, {}) if certain else None
        return refusal(ended.err.strip(), owed)
    if ended.code not in (0, 3):
        return Verdict(Outcome.FAILED, f"exit code {ended.code}: {ended.err[-300:]}")
    if re.search(r"warning: (invalid value|overflow|divide by zero|Mean of empty)", ended.err):
        return Verdict(Outcome.FAILED, f"a warning of ours: {ended.err[-300:]}")
    if not ended.out.strip():
        return Verdict(Outcome.FAILED, "no answer, and no word about it")
    if truth is None or not ended.out.lstrip().startswith("{"):
        return Verdict(Outcome.RIGHT)
    said = [e for e in json.loads(ended.out)["estimates"] if e["estimator"] in NAMES]
    if certain or len(said) == len(NAMES):
        differs = truth.differs({e["estimator"]: e["n"] for e in said}, {e["estimator"]: e["value"] for e in said})
        if differs is not None:
            return Verdict(Outcome.FAILED, differs)
    if any(e["n"] != truth.n for e in said):
        return Verdict(Outcome.FAILED, f"n is {said[0]['n']}")
    return Verdict(Outcome.RIGHT)


@dataclass(frozen=True)
class Command:
    """`offpolicy evaluate` with these settings and further arguments."""

    settings: Mapping[str, Any]
    certain: bool
    more: Sequence[str] = ()
    process: bool = False

    def arguments(self) -> list[str]:
        typed = ["evaluate", *self.settings.get("logs", [])]
        for name, value in self.settings.items():
            for each in [] if name == "logs" else value if isinstance(value, list) else [value]:
                typed += [f"--{name.replace('_', '-')}", str(each)]
        return [*typed, "--json", *self.more]

    def judge(self) -> Verdict:
        arguments = self.arguments()
        if any("\x00" in each for each in arguments) and self.process:
            return Verdict(Outcome.REFUSED, "no process takes a NUL")
        with tempfile.TemporaryDirectory() as scratch:
            arguments = [each.replace("SCRATCH", scratch) for each in arguments]
            ended = (in_subprocess if self.process else in_process)(arguments, place())
        return judge_ended(ended, truth_of_settings(self.settings, self.certain), self.certain)


@dataclass(frozen=True)
class Toml:
    """`offpolicy evaluate --config` with this text."""

    text: str
    certain: bool

    def judge(self) -> Verdict:
        try:
            settings = {key.replace("-", "_"): value for key, value in tomllib.loads(self.text).items()}
            settings = {
                key: [value] if key in ("reward", "target") and isinstance(value, str) else value
                for key, value in settings.items()
            }
        except (tomllib.TOMLDecodeError, RecursionError):
            settings = {}
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "job.toml"
            path.write_bytes(self.text.encode("utf-8", "surrogateescape"))
            ended = in_process(["evaluate", "--config", str(path), "--json"], place())
        return judge_ended(ended, truth_of_settings(settings, self.certain), self.certain)


def toml(value: Any) -> str:
    """A value in TOML syntax; JSON strings are TOML strings, except for characters beyond the first plane."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(each)}" for key, each in value.items()) + "}"
    return repr(value)


ODD_TOML: tuple[Any, ...] = (
    0, -1, 1, 2**63, 10**400, 1.5, float("nan"), float("inf"), -0.0, True, False, "", " ", [], [[]], {}, [1], ["x"], ["x", 1], {"a": 1}, [0, 1], [1, 0],
    ["0", "1"], [float("nan"), 1], "0,1", "é", "x", "q", "click", "\x00", "../log.csv", "nan", "2GB",
)  # fmt: skip


def _settings(draw: st.DrawFn) -> tuple[dict[str, Any], bool]:
    """Valid settings, sometimes with another valid one."""
    settings = dict(GOOD)
    for name, value in draw(st.lists(st.sampled_from(FINE), max_size=2, unique_by=lambda each: each[0])):
        settings[name] = value
    certain = not (
        ("n_actions" in settings or "catalog" in settings) and (settings["action"] == "name" or "actions" in settings)
    ) and not (settings["action"] == "name" and settings["target"] == ["p_*"])
    if settings.get("logging") or (settings.get("reward_range") and settings["reward"] == ["x"]) or "catalog" in settings:
        certain = False
    if (settings["reward"] == ["x"] and "x" in settings["context"]) or (
        settings["action"] == "name" and settings.get("logging")
    ):
        certain = False
    if settings["target"] == ["p_*"] and settings["action"] == "name":
        settings["target"] = ["q"]
    return settings, certain


OUTPUTS = ("r.html", "r.txt", "", ".", "/", "folder", "no/such/r.html", "log.parquet", "r.md", "r.png", "r.PDF", "é.html", "a" * 300 + ".html", "/dev/null", "/proc/r.html", "-", "SCRATCH/r.html",
           "SCRATCH/r.md", "SCRATCH/r.svg")  # fmt: skip
PATHS = ("log.parquet", "log.csv", "folder", "empty.csv", "text.parquet", "binary.csv", "mine.py", "no.parquet", "*.none", "", ".", "/dev/null", "log.parquet/x",
         "a" * 300, "\x00", "[", "**", "~", "catalog.csv", "-", "hdfs://host/log.parquet", "é.csv")  # fmt: skip


@st.composite
def commands(draw: st.DrawFn, process: bool = False) -> Command:
    """A valid command line, sometimes corrupted."""
    settings, certain = _settings(draw)
    more: list[str] = []
    for _ in range(hurts(draw)):
        certain = False
        how = draw(
            st.sampled_from(
                ["drop", "name", "name", "number", "number", "path", "estimator", "target", "loggers", "output", "flag"]
            )
        )
        if how == "drop":
            settings.pop(draw(st.sampled_from(list(settings))), None)
        elif how == "name":
            name = draw(st.sampled_from(NAMED))
            value = draw(st.one_of(st.sampled_from([*COLUMNS, *ODD_TEXTS]), st.text(max_size=3).map(_typeable)))
            settings[name] = (
                [value] if name in ("logs", "context", "reward", "target", "estimator", "diagnostic", "features") else value
            )
        elif how == "number":
            settings[draw(st.sampled_from(NUMBERS))] = draw(st.sampled_from(ODD_NUMBERS))
        elif how == "path":
            name = draw(st.sampled_from(["logs", "catalog"]))
            path = draw(st.sampled_from(PATHS))
            settings[name] = [path] if name == "logs" else path
        elif how == "estimator":
            settings["estimator"] = [draw(st.sampled_from(ESTIMATORS))]
        elif how == "target":
            settings[draw(st.sampled_from(["target", "logging"]))] = [draw(st.sampled_from(TARGETS))]
        elif how == "loggers":
            settings |= draw(st.sampled_from(LOGGERS))
        elif how == "output":
            more += [draw(st.sampled_from(["--report", "--markdown", "--plot", "--config"])), draw(st.sampled_from(OUTPUTS))]
        else:
            more += [
                draw(
                    st.sampled_from(
                        ["--no-progress", "--progress", "--json", "--help", "--nonsense", "--", "-x", "extra", "--level"]
                    )
                )
            ]
    return Command(settings, certain, more, process)


def _typeable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@st.composite
def tomls(draw: st.DrawFn) -> Toml:
    """A valid TOML file, sometimes with a corrupted value or text."""
    settings, certain = _settings(draw)
    lines = {name.replace("_", draw(st.sampled_from("-_"))): toml(value) for name, value in settings.items()}
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    for _ in range(hurts(draw)):
        certain = False
        if draw(st.booleans()):
            name = draw(st.sampled_from([*GOOD, *NUMBERS, *NAMED, "nonsense", "remote"]))
            value = toml(draw(st.sampled_from(ODD_TOML)))
            text = re.sub(rf"(?m)^{name} = .*\n", "", text) + f"{name} = {value}\n"
        else:
            at = draw(st.integers(0, len(text)))
            text = (
                text[:at]
                + draw(
                    st.one_of(
                        st.sampled_from(["", "\n", '"', "[", "]", "=", "\x00", "\ufeff", "#", "'''", "[a]\n", "[[" * 50]),
                        st.text(max_size=2).map(_typeable),
                    )
                )
                + text[at + draw(st.integers(0, 3)) :]
            )
    return Toml(text, certain)

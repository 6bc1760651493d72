"""The examples run as their README describes, and the estimates that they print are close to the true values."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.test_open_bandit import FOLDER

ROOT = Path(__file__).parent.parent.parent


def run(name: str, *arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key != "OPEN_BANDIT_DATASET"}
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *arguments]
    path = {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=kept | path | environment, check=False)


def numbers(pattern: str, printed: str) -> list[float]:
    found = re.search(pattern, printed)
    assert found, printed
    return [float(number) for number in found.groups()]


def test_thirty_days_are_watched(tmp_path: Path) -> None:
    done = run("thirty_days.py", "looks.png", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "bold is better" in done.stdout
    for name in ("bold", "uniform"):
        low, high, truth = numbers(
            rf"{name} minus the log after .* at every look (\S+) to (\S+); true: (\S+)\n", done.stdout
        )
        assert low <= truth <= high
    assert (tmp_path / "looks.png").stat().st_size > 10_000


def test_two_policies_are_compared(tmp_path: Path) -> None:
    done = run("compare_policies.py", "report.html", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    low, high = numbers(r"bold minus careful: \S+ 95% interval (\S+) to (\S+),", done.stdout)
    (truth,) = numbers(r"difference (\S+)\.\n", done.stdout)
    assert low <= truth <= high
    paired, unpaired = numbers(r"standard error is (\S+); without pairing it would be (\S+)\.\n", done.stdout)
    assert paired < unpaired / 2
    assert "careful" in (tmp_path / "report.html").read_text()


def test_many_actions(tmp_path: Path) -> None:
    done = run("many_actions.py", "report.html", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    errors = {}
    for name in ("SNIPS", "DR, features", "Learned MIPS, features", "Learned MDR, features"):
        error, off = numbers(rf"\n{name} +\S+ ± (\S+), off by (\S+)\n", done.stdout)
        assert abs(off) < 3 * error
        errors[name] = error
    assert errors["Learned MDR, features"] < errors["SNIPS"] / 3
    assert "20,000 actions" in done.stdout
    assert "Learned MDR, features" in (tmp_path / "report.html").read_text()


@pytest.mark.skipif(
    not (FOLDER / "bts_prior_all.json").exists(),
    reason="the Open Bandit Dataset is not here; give its folder in OPEN_BANDIT_DATASET",
)
def test_open_bandit(tmp_path: Path) -> None:
    done = run("open_bandit.py", str(FOLDER), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert run("open_bandit.py", folder=tmp_path, OPEN_BANDIT_DATASET=str(FOLDER)).stdout == done.stdout
    for name in ("Auto", "SNIPS", "DR"):
        (apart,) = numbers(rf"\n{name} +\S+ ± \S+, (\S+) standard errors away", done.stdout)
        assert abs(apart) < 2


def test_open_bandit_says_what_it_needs(tmp_path: Path) -> None:
    without = run("open_bandit.py", folder=tmp_path)
    assert without.returncode == 1
    assert "OPEN_BANDIT_DATASET" in without.stderr
    elsewhere = run("open_bandit.py", str(tmp_path), folder=tmp_path)
    assert elsewhere.returncode == 1
    assert "not a folder of the Open Bandit Dataset" in elsewhere.stderr
    assert "Traceback" not in without.stderr + elsewhere.stderr


def test_a_router_between_language_models(tmp_path: Path) -> None:
    done = run("llm_router.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for reward in ("quality", "cost"):
        low, high, truth = numbers(
            rf"{reward} +of the new router: \S+ 95% interval (\S+) to (\S+); true (\S+)\n", done.stdout
        )
        assert low <= truth <= high
    assert "new router: ok; the draws make" in done.stdout

"""What goes wrong around a command: signals, full disks, files that change under it, neighbours, dead workers, clocks."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import offpolicy as op
from offpolicy.cli.app import main
from offpolicy.core.files import DRAFT, whole_file
from offpolicy.core.threads import one_blas_thread
from offpolicy.data.batch import Batch
from offpolicy.engines.base import BATCH_ROWS
from offpolicy.experiments.config import load
from offpolicy.experiments.reproduce import reproduce
from offpolicy.experiments.store import Store
from offpolicy.experiments.workers import DEATHS, finished
from offpolicy.worlds import Linear
from offpolicy.worlds.simulate import simulate
from tests.experiments.deaths import always_die, die_once
from tests.experiments.test_experiments import TINY

OLD = b"the old one"
PATIENCE = 60.0
"""Seconds that are waited for what takes one or two: the machine may be busy."""

PAUSE = """
import os, stat, sys, time
from pathlib import Path
real, left, marker = os.fsync, int(sys.argv.pop(1)), Path(sys.argv.pop(1))
def pause(file):  # called when the draft is written, and has not its name yet
    global left
    left -= stat.S_ISREG(os.fstat(file).st_mode)
    if left == 0:
        marker.touch()
        time.sleep(600)
    real(file)
os.fsync = pause
from offpolicy.__main__ import main
main()
"""
USUAL = "--context x0,x1,x2,x3,x4 --action item --reward click"
EVALUATE = f"evaluate log.parquet {USUAL} --propensity propensity --target p_new --estimator SNIPS"
WRITES = {
    "evaluate": (f"{EVALUATE} --report", "new.html"),
    "embed": (f"embed log.parquet {USUAL} --rank 2 --out", "new.parquet"),
    "simulate": ("simulate --rounds 500 --actions 4", "new.parquet"),
}


def heard() -> None:
    """What is started in the background of a shell does not hear Ctrl-C; these are to."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python, and leaves nothing behind."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
        command = [sys.executable, *map(str, arguments)]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, cwd=cwd, preexec_fn=heard, **pipes))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()


def wait_for(there: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    ended = time.monotonic() + PATIENCE
    while not there():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < ended
        time.sleep(0.02)


def alive(process: Path) -> bool:
    """Not ended, nor only waiting for someone to take note of its end."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def drafts(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(DRAFT)]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faults") / "log.parquet"
    simulate(Linear(4, clicks=True), path, 2000, 0, "click")
    return path


# --- signals


@pytest.mark.parametrize("command", WRITES)
def test_a_signal_while_a_file_is_written(command: str, log: Path, tmp_path: Path, start: Start) -> None:
    """The old file stays whole; a stopped command tidies up and says so, and the next one tidies up after a killed one."""
    words, name = WRITES[command]
    started = {}
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        folder = tmp_path / signum.name
        folder.mkdir()
        shutil.copy(log, folder)
        (folder / name).write_bytes(OLD)
        started[signum] = start("-c", PAUSE, 1, folder / "at work", *words.split(), name, cwd=folder)
    for signum, process in started.items():
        folder = tmp_path / signum.name
        wait_for((folder / "at work").exists, process)
        assert drafts(folder)
        process.send_signal(signum)
        said = process.communicate(timeout=PATIENCE)[1]
        assert (folder / name).read_bytes() == OLD
        if signum == signal.SIGKILL:
            assert drafts(folder)
            with whole_file(folder / "another.txt") as draft:
                draft.write_text("")
        else:
            assert process.returncode == 128 + signum
            line = f"offpolicy: stopped by {signum.name}. Nothing was written; run the same command again.\n"
            assert said == line
        assert drafts(folder) == []


def test_a_stop_between_two_files_names_the_one_that_is_there(log: Path, tmp_path: Path, start: Start) -> None:
    shutil.copy(log, tmp_path)
    process = start("-c", PAUSE, 2, "at work", *f"{EVALUATE} --report r.html --markdown r.md".split(), cwd=tmp_path)
    wait_for((tmp_path / "at work").exists, process)
    process.send_signal(signal.SIGTERM)
    assert "Already written: r.html. Run the same command again for the rest." in process.communicate(timeout=PATIENCE)[1]
    assert (tmp_path / "r.html").read_text().rstrip().endswith("</html>")
    assert not (tmp_path / "r.md").exists()


def test_a_truth_never_stands_beside_another_log(tmp_path: Path, start: Start) -> None:
    """Killed between the log and its truth: there is none, rather than that of the log before."""
    (tmp_path / "log.truth.json").write_bytes(OLD)
    process = start(
        "-c", PAUSE, 2, "at work", *["simulate", "log.parquet", "--rounds", "500", "--actions", "4"], cwd=tmp_path
    )
    wait_for((tmp_path / "at work").exists, process)
    process.kill()
    process.communicate()
    assert pq.read_table(tmp_path / "log.parquet").num_rows == 500
    assert not (tmp_path / "log.truth.json").exists()


def _ends(body: str, tmp_path: Path, start: Start) -> tuple[int, str]:
    text = "import os, signal, sys, time\nfrom offpolicy.cli import signals\n"
    text += "def stop(number=signal.SIGTERM):\n    os.kill(os.getpid(), number)\n    time.sleep(0.01)\n"
    text += f"def command():\n{body}\nsignals.run(command)\nprint('went on', file=sys.stderr)"
    process = start("-c", text, cwd=tmp_path)
    said = process.communicate(timeout=PATIENCE)[1]
    return process.returncode, said


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("    try: stop()\n    except BaseException: pass\n    time.sleep(600)", 143, "stopped by SIGTERM"),
        (
            "    try: stop()\n    except BaseException: raise RuntimeError from None",
            143,
            "stopped by SIGTERM. Written files are complete",
        ),
        ("    try: stop()\n    finally: stop(signal.SIGINT)", 130, ""),
        ("    signal.signal(signal.SIGTERM, signal.SIG_IGN); signals.run(stop)", 0, "went on"),
        ("    pass", 0, "went on"),
        ("    try: stop()\n    except BaseException: sys.exit(3)", 3, ""),
    ],
    ids=["taken", "turned", "twice", "ignored", "quiet", "finished"],
)
def test_how_a_command_is_stopped(body: str, code: int, said: str, tmp_path: Path, start: Start) -> None:
    """Taken by other code, turned into another error, twice, ignored from the start, not at all, and too late."""
    found = _ends(body, tmp_path, start)
    assert found[0] == code, found
    assert said in found[1] if said else found[1] == ""
    assert "Traceback" not in found[1]


@pytest.mark.parametrize("body", [
    "    a = np.ones((5_000, 5_000)); mark(); a @ a @ a @ a",
    "    with ThreadPoolExecutor() as pool:\n        pool.submit(time.sleep, 600); mark()\n        raise SystemExit",
], ids=["compiled code", "a thread that goes on"])  # fmt: skip
def test_a_signal_ends_a_busy_command_within_a_second(body: str, tmp_path: Path, start: Start) -> None:
    """Even if the main thread does not come back to Python, or waits for another thread."""
    text = "import time\nfrom concurrent.futures import ThreadPoolExecutor\nfrom pathlib import Path\nimport numpy as np\n"
    text += "from offpolicy.cli import signals\ndef mark():\n    Path('busy').touch()\n"
    process = start("-c", f"{text}def command():\n{body}\nsignals.run(command)", cwd=tmp_path)
    wait_for((tmp_path / "busy").exists, process)
    time.sleep(0.1)
    pressed = time.monotonic()
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=PATIENCE)[1]
    assert time.monotonic() - pressed < 1.0
    assert (process.returncode, said.count("stopped by SIGINT"), "Traceback" in said) == (130, 1, False)


def test_workers_end_with_their_parent(tmp_path: Path, start: Start) -> None:
    """SIGTERM while two workers are busy: it ends at once, keeps what is finished, and nobody stays behind."""
    (tmp_path / "long.toml").write_text(TINY.replace("worlds = 4", "worlds = 400").replace("[60, 120]", "[60, 100000]"))
    process = start("-m", "offpolicy", *["reproduce", "long.toml", "--processes", "2", "--out", "cut"], cwd=tmp_path)
    wait_for(lambda: any((tmp_path / "cut").glob("runs*")), process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    workers = [Path(f"/proc/{pid}") for pid in children.read_text().split()] if children.exists() else []
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=PATIENCE)[1]
    assert (process.returncode, "Traceback" in said) == (143, False), said
    assert "Finished runs are in cut: run the same command again to continue." in said
    assert pq.read_table(next((tmp_path / "cut").glob("runs*.parquet"))).num_rows
    ended = time.monotonic() + PATIENCE
    while any(map(alive, workers)):  # the helper of multiprocessing among them, which ends on its own
        assert time.monotonic() < ended, "a worker was left behind"
        time.sleep(0.05)


def test_drafts_of_the_living_stay(tmp_path: Path) -> None:
    with whole_file(tmp_path / "one.txt") as one:
        one.write_text("one")
        with whole_file(tmp_path / "two.txt") as two:
            two.write_text("two")
        assert one.exists()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"one.txt": "one", "two.txt": "two"}


# --- full disks


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 KB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may make a small disk")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk(log: Path, tiny_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was there stays, what was being written goes, and the error names the file."""
    result = op.evaluate(op.read_log(log, context="x0", action="item", reward="click", propensity="propensity"), "p_new")
    toml = tmp_path / "long.toml"
    toml.write_text(TINY.replace("worlds = 4", "worlds = 40"))
    writes: dict[str, Callable[[Path], object]] = {
        "r.html": result.write_html,
        "s.parquet": lambda path: result["SNIPS"].scores(path),
        "log.parquet": lambda path: command(capsys, "simulate", path, "--rounds", 2000),
        "results": lambda path: reproduce(load(str(toml)), path, processes=1),
    }
    for name, write in writes.items():
        path = tiny_disk / name
        if name != "results":
            path.write_bytes(OLD)
        with pytest.raises(
            op.InputError, match=rf"{re.escape(str(path))}.*: cannot be .*written: .*[Nn]o space left"
        ) as caught:
            write(path)
        assert "Existing results are kept" in str(caught.value) or path.read_bytes() == OLD
        assert not [path for path in tiny_disk.rglob("*") if path.name.startswith(DRAFT)]
        if path.is_dir():  # and when there is room again, it goes on
            assert list(path.glob("runs-*.parquet"))
            shutil.copytree(path, tmp_path / "results")
    assert np.isfinite(reproduce(load(str(toml)), tmp_path / "results", processes=1).values).all()


def command(capsys: pytest.CaptureFixture[str], *words: object) -> None:
    """The command in this process; what it says before exit code 2 is raised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["offpolicy", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
    if ended.value.code:
        assert ended.value.code == 2
        raise op.InputError(capsys.readouterr().err)


def test_a_file_that_may_not_grow(log: Path, tmp_path: Path) -> None:
    """As with a quota: the limit is the system's own."""
    (tmp_path / "new.parquet").write_bytes(OLD)
    limited = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (4096, 4096))
    words = [sys.executable, "-m", "offpolicy", *WRITES["simulate"][0].split(), "new.parquet"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, preexec_fn=limited)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "new.parquet: cannot be written: " in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["new.parquet"]
    assert (tmp_path / "new.parquet").read_bytes() == OLD


# --- logs that do not hold still


def table(rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = {"x": rng.normal(size=rows), "item": rng.integers(0, 3, rows), "click": rng.normal(size=rows)}
    return pa.table({**columns, "p": np.full(rows, 1 / 3), "p_new": np.full(rows, 1 / 3)})


def write(path: Path, rows: int = 4000, seed: int = 0) -> None:
    if path.suffix == ".csv":
        pa_csv.write_csv(table(rows, seed), path)
    else:
        pq.write_table(table(rows, seed), path, row_group_size=1000, write_page_checksum=True, compression="zstd")


def opened(path: Path) -> op.Log:
    return op.read_log(path, context="x", action="item", reward="click", propensity="p", n_actions=3)


def _replaced(path: Path) -> None:
    write(path.with_name("new" + path.suffix), seed=1)
    at = path.stat()
    path.with_name("new" + path.suffix).replace(path)
    os.utime(path, ns=(at.st_mtime_ns, at.st_mtime_ns))


def _rewritten(path: Path) -> None:
    """Other bytes of the same number at the end, and the clock put back."""
    at, raw = path.stat(), bytearray(path.read_bytes())
    raw[-30] ^= 1
    with path.open("r+b") as file:
        file.write(raw)
    os.utime(path, ns=(at.st_mtime_ns, at.st_mtime_ns))


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "grown": (
        lambda path: write(path, 3 * BATCH_ROWS + 1000),
        "has changed since the log was opened .it had [0-9,]+ bytes, and now has ",
    ),
    "cut short": (
        lambda path: os.truncate(path, 700),
        "has changed since the log was opened .it had [0-9,]+ bytes, and now has 700",
    ),
    "written to": (
        lambda path: os.utime(path, (0, 0)),
        "has changed since the log was opened .it was written to at 1970-01-01",
    ),
    "replaced": (_replaced, "has changed since the log was opened"),
    "rewritten": (_rewritten, "has changed since the log was opened .its last bytes differ"),
    "vanished": (Path.unlink, "was deleted or moved after the log was opened"),
}


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["between", "within"])
def test_a_log_that_changes(change: str, ending: str, when: str, tmp_path: Path) -> None:
    """Between two passes, or in the middle of one: it is named, whatever was made of what was read."""
    path = tmp_path / f"log{ending}"
    write(path, 3 * BATCH_ROWS if when == "within" else 4000)  # blocks are summed when they are read whole
    log, (act, said), calls = opened(path), CHANGES[change], [0]

    def target(batch: Batch) -> np.ndarray:
        calls[0] += 1
        if calls[0] == 2 and when == "within":
            act(path)
        return np.full((len(batch), 3), 1 / 3)

    if when == "between":
        act(path)
    with pytest.raises(op.InputError, match=rf"log{ending} {said}"):
        op.evaluate(log, target, [op.SNIPS()], engine=op.Local(1, 1000))


def test_a_log_that_holds_still_is_read(tmp_path: Path) -> None:
    """Times in the past and in the future are as good as any: they are only compared."""
    for at in (0, 4_000_000_000):
        write(tmp_path / "log.parquet")
        os.utime(tmp_path / "log.parquet", (at, at))
        assert np.isfinite(op.evaluate(opened(tmp_path / "log.parquet"), op.Uniform(), [op.SNIPS()])["SNIPS"].value)


def test_a_row_group_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.parquet"
    write(path)
    column = pq.ParquetFile(path).metadata.row_group(2).column(0)
    raw = bytearray(path.read_bytes())
    middle = column.data_page_offset + column.total_compressed_size // 2
    raw[middle : middle + 64] = bytes(64)
    path.write_bytes(bytes(raw))
    words = "--context x --action item --reward click --propensity p --n-actions 3 --target p_new --estimator SNIPS"
    with pytest.raises(op.InputError, match=r"log\.parquet: row group 2 \(of 4, counted from 0\) cannot be read") as caught:
        command(capsys, "evaluate", path, *words.split())
    assert str(caught.value).count("\n") == 1


# --- neighbours


def test_two_processes_in_one_folder(tmp_path: Path, start: Start) -> None:
    """One does the work, the others are refused; no run is lost and none is there twice."""
    (tmp_path / "tiny.toml").write_text(TINY.replace("worlds = 4", "worlds = 30"))
    words = ["-m", "offpolicy", "reproduce", "tiny.toml", "--processes", "1", "--out", "shared"]
    together = [start(*words, cwd=tmp_path) for _ in range(3)]
    said = [process.communicate(timeout=PATIENCE)[1] for process in together]
    codes = [process.returncode for process in together]
    assert 0 in codes, said
    assert all(code == 0 or "another run is using this folder" in text for code, text in zip(codes, said, strict=True)), said
    rows = pq.read_table(tmp_path / "shared" / "runs.parquet").select(["point", "world", "log", "estimator"]).to_pylist()
    assert len(rows) == len({tuple(row.values()) for row in rows}) == 2 * 30 * 2 * 2


def test_two_experiments_in_one_new_folder(tmp_path: Path) -> None:
    """Both find it empty at the same moment: it becomes the folder of one of them, and stays so."""
    experiments = []
    for seed in (0, 1):
        (tmp_path / "tiny.toml").write_text(TINY.replace('axis = "rounds"', f'axis = "rounds"\nseed = {seed}'))
        experiments.append(load(str(tmp_path / "tiny.toml")))
    for k in range(10):
        together, folder = Barrier(2), tmp_path / str(k)

        def open_store(which: int, together: Barrier = together, folder: Path = folder) -> bool:
            together.wait()
            try:
                Store.open(folder, experiments[which])
            except op.InputError:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            mine = list(pool.map(open_store, (0, 1)))
        assert sum(mine) == 1
        Store.open(folder, experiments[mine.index(True)])


# --- workers


def test_a_worker_that_dies_is_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = dict(finished(partial(die_once, tmp_path), range(8), 2, lambda task: f"task {task}"))
    assert done == {task: task * task for task in range(8)}
    said = capfd.readouterr().err
    assert "a worker process died by SIGKILL (perhaps out of memory); its tasks are repeated: " in said
    assert "task 2" in said
    assert "Traceback" not in said


def test_work_that_always_kills_is_given_up_last() -> None:
    """All else is done first, and the work is named."""
    done: list[tuple[int, int]] = []
    with pytest.raises(op.InputError, match=rf"died {DEATHS} times, the last by SIGSEGV, while working on: .*task 3"):
        done.extend(finished(always_die, range(6), 2, lambda task: f"task {task}"))
    assert {0, 1, 2} <= {task for task, _ in done} <= {0, 1, 2, 4, 5}


def test_evaluations_side_by_side_leave_the_products_threads_as_they_were() -> None:
    """The limit is one of the whole process: it holds until the last is through, and then goes."""

    def limits() -> list[int]:
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    with threadpool_limits(2):
        before, first, second = limits(), one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(limits()) == {1}
        second.__exit__(None, None, None)
        assert limits() == before


# --- clocks


def test_clocks_that_jump(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day back, a year on, every time that someone looks: the numbers and the bar do not care."""
    (tmp_path / "tiny.toml").write_text(TINY)

    def answers(out: str) -> tuple[object, ...]:
        data = op.read_log(log, context="x0", action="item", reward="click", propensity="propensity")
        result = op.evaluate(data, "p_new", [op.SNIPS(), op.IPS()], progress=True)
        result.write_html(tmp_path / f"{out}.html")
        runs = reproduce(load(str(tmp_path / "tiny.toml")), tmp_path / out, processes=1, progress=True)
        return result["IPS"].value, result["SNIPS"].std_error, runs.values.tolist()

    before, looks, real = answers("before"), [0], time.time

    def jumping() -> float:
        looks[0] += 1
        return real() + (-86_400.0 if looks[0] % 2 else 3e7)

    monkeypatch.setattr("offpolicy.core.progress.DELAY", 0.0)
    monkeypatch.setattr(time, "time", jumping)
    assert answers("after") == before


def test_durations_are_not_taken_from_the_clock_on_the_wall() -> None:
    for path in (Path(op.__file__).parent).rglob("*.py"):
        assert not re.search(r"\btime\.time\b|from time import", path.read_text()), path

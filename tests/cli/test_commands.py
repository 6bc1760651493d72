"""The command as a user meets it: a process of its own, its two streams and its exit code."""

from __future__ import annotations

import html
import io
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import offpolicy as op
from offpolicy.cli.app import app, main

CONTEXT = "x0,x1,x2,x3,x4"


def process(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "offpolicy", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, "COLUMNS": "80"})


def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The same command in this process, which saves the time to start one: its exit code and its two streams."""
    known, out, err = set(sys.modules), io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), redirect_stdout(out), redirect_stderr(err):
        warnings.simplefilter("default")  # as in a process of its own; main() shows them in its own way
        patch.setattr(sys, "argv", ["offpolicy", *map(str, arguments)])
        patch.setenv("COLUMNS", "80")
        patch.chdir(cwd or Path.cwd())
        with pytest.raises(SystemExit) as ended:
            main()
    for name in {"mine", "broken"} - known:  # the modules of the user, which the next test may write again
        sys.modules.pop(name, None)
    code = ended.value.code
    return subprocess.CompletedProcess(
        sys.argv, code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue()
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli")
    done = run("simulate", path / "log.parquet", "--rounds", 5000, "--actions", 8, "--overlap", 0.8)
    assert done.returncode == 0, done.stderr
    return path


def usual(folder: Path) -> list[object]:
    return [
        folder / "log.parquet",
        "--context",
        CONTEXT,
        "--action",
        "item",
        "--reward",
        "click",
        "--propensity",
        "propensity",
    ]


def test_simulate_writes_the_log_and_its_truth(folder: Path) -> None:
    truth = json.loads((folder / "log.truth.json").read_text())
    table = pq.read_table(folder / "log.parquet")
    assert truth["rounds"] == len(table) == 5000
    assert sorted(p.name for p in folder.glob("log*")) == ["log.parquet", "log.truth.json"]
    done = run("evaluate", *usual(folder), "--target", "items,p_items_new", "--json")
    lead = json.loads(done.stdout)["estimates"][-1]
    assert lead["estimator"] == "DR"
    assert abs(lead["value"] - truth["target"]["value"]) < 4 * lead["std_error"]


def test_json_is_the_library_result(folder: Path) -> None:
    done = process("evaluate", *usual(folder), "--target", "p_new", "--json", "--level", 0.9, "--seed", 3)
    assert done.returncode == 0
    assert done.stderr == ""
    printed = json.loads(done.stdout)
    log = op.read_log(
        folder / "log.parquet", context=CONTEXT.split(","), action="item", reward="click", propensity="propensity"
    )
    result = op.evaluate(log, "p_new", level=0.9, seed=3)
    assert printed == json.loads(json.dumps(result.to_dict()))
    assert printed["schema"] == 1


def test_table_fits_a_terminal(folder: Path) -> None:
    done = run("evaluate", *usual(folder), "--target", "items,p_items_new", "--logging", "items,p_items_old")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.splitlines()[2].startswith("Auto estimates")
    assert "\x1b" not in done.stdout


def test_estimators_and_policies(folder: Path) -> None:
    targets = ["--target", "new=p_new", "--target", "old=propensity"]
    done = run(
        "evaluate", *usual(folder), *targets, "--estimator", "snips", "--estimator", "clipped-ips:clip=5,name=five", "--json"
    )
    printed = json.loads(done.stdout)
    assert printed["policies"] == ["new", "old"]
    assert [e["estimator"] for e in printed["estimates"]] == ["LoggedMean", "SNIPS", "five"] * 2
    assert printed["estimates"][2]["diagnostics"]["clip"] == 5.0


def test_interval_methods(folder: Path) -> None:
    done = run("evaluate", *usual(folder), "--target", "p_new", "--estimator", "IPS,SNIPS", "--interval", "bernstein",
               "--reward-range", "0,1", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [e["interval"]["method"] for e in json.loads(done.stdout)["estimates"]] == ["bernstein"] * 3


def write_mine(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "import numpy as np\nimport offpolicy as op\n"
        "uniform = op.Uniform()\nfixed = lambda x: np.full((len(x), 8), 1 / 8)\nwrong = 3\n"
    )


def test_a_bootstrap_that_refits(folder: Path) -> None:
    asked = [*usual(folder), "--target", "items,p_items_new", "--estimator", "DM,SNIPS", "--json", "--interval", "bootstrap"]
    plain, refitted = (json.loads(run("evaluate", *asked, *more).stdout) for more in ([], ["--refit"]))
    of = {e["estimator"]: e["interval"] for e in refitted["estimates"]}
    assert of["DM"]["method"] == refitted["settings"]["interval"] == "bootstrap, refitted"
    assert of["SNIPS"] == plain["estimates"][-1]["interval"]  # nothing to fit
    assert of["DM"]["low"] < refitted["estimates"][1]["value"] < of["DM"]["high"]
    done = run("evaluate", *asked[:-1], "normal", "--refit")
    assert done.returncode == 2
    assert "add --interval bootstrap" in done.stderr


def test_sensitivity_is_in_every_output(folder: Path, tmp_path: Path) -> None:
    asked = [*usual(folder), "--target", "items,p_items_new", "--estimator", "SNIPS", "--sensitivity", "1, 1.5"]
    files = ["--report", tmp_path / "r.html", "--markdown", tmp_path / "r.md"]
    done, told = run("evaluate", *asked, *files), json.loads(run("evaluate", *asked, "--json").stdout)
    found = told["sensitivity"][0]
    assert told["schema"] == 1
    assert [row["gamma"] for row in found["rows"]] == [1, 1.5]
    assert found["rows"][0]["low"] == pytest.approx(told["estimates"][-1]["value"])
    for text in (done.stdout, (tmp_path / "r.md").read_text(), (tmp_path / "r.html").read_text()):
        assert "up to Γ = 1." in text
    config = tmp_path / "job.toml"
    config.write_text("sensitivity = [1, 1.5]\n")
    assert (
        json.loads(run("evaluate", *asked[:-2], "--config", config, "--json").stdout)["sensitivity"] == told["sensitivity"]
    )
    for wrong, message in (("0.5", "at least 1"), ("nan", "at least 1"), ("much", "separated by commas")):
        done = run("evaluate", *asked[:-1], wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr


def test_the_best_policy_is_in_every_output(folder: Path, tmp_path: Path) -> None:
    targets = ["--target", "new=items,p_items_new", "--target", "even=uniform", "--estimator", "SNIPS"]
    asked = [*usual(folder), *targets]
    files = ["--report", tmp_path / "r.html", "--markdown", tmp_path / "r.md", "--save", tmp_path / "r.json"]
    done, told = run("evaluate", *asked, *files, "--best", "even"), run("evaluate", *asked, "--best", "even", "--json")
    found = json.loads(told.stdout)["best"]
    assert (found["baseline"], len(found["rows"])) == ("even", 2)
    sentence = "more than even"
    for text in (done.stdout, (tmp_path / "r.md").read_text(), (tmp_path / "r.html").read_text()):
        assert sentence in " ".join(text.split())
    config = tmp_path / "job.toml"
    config.write_text('best = "even"\n')
    assert json.loads(run("evaluate", *asked, "--config", config, "--json").stdout)["best"] == found
    again = json.loads(run("report", tmp_path / "r.json", "--best", "log", "--json").stdout)["best"]
    assert (again["baseline"], again["level"]) == (None, 0.95)
    for command in (["evaluate", *asked], ["report", tmp_path / "r.json"]):
        wrong = run(*command, "--best", "evne")
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert "evne" in wrong.stderr
        assert "even" in wrong.stderr


def test_module_object(folder: Path) -> None:
    write_mine(folder)
    values = []
    for name in ("uniform", "fixed"):
        done = run("evaluate", *usual(folder), "--target", f"mine:{name}", "--json", cwd=folder)
        values.append(json.loads(done.stdout)["estimates"][-1]["value"])
    assert values[0] == pytest.approx(values[1], rel=1e-9)


def test_toml_holds_the_same_settings(folder: Path) -> None:
    (folder / "job.toml").write_text(
        f'logs = "{folder}/log.parquet"\ncontext = ["x0", "x1", "x2", "x3", "x4"]\naction = "item"\nreward = "click"\n'
        'propensity = "propensity"\ntarget = "p_new"\nestimator = ["snips"]\nseed = 7\nreward-range = [0, 1]\n'
    )
    done = run("evaluate", "--config", folder / "job.toml", "--seed", 8, "--json")
    printed = json.loads(done.stdout)
    assert printed["settings"]["seed"] == 8
    assert [e["estimator"] for e in printed["estimates"]] == ["LoggedMean", "SNIPS"]


def test_report_and_picture(folder: Path) -> None:
    done = run("evaluate", *usual(folder), "--target", "p_new", "--markdown", folder / "r.md", "--plot", folder / "r.png")
    assert done.returncode == 0, done.stderr
    assert (folder / "r.md").read_text().startswith("# click: 5,000 rounds, 8 actions")
    assert (folder / "r.png").read_bytes()[:4] == b"\x89PNG"


def test_exit_code_3_when_not_to_be_trusted(folder: Path) -> None:
    (folder / "far.py").write_text("import offpolicy as op\nfar = op.Fixed({'item-0': 1.0})\nimport numpy as np\n")
    table = pq.read_table(folder / "log.parquet").slice(0, 25)
    pq.write_table(table, folder / "short.parquet")
    arguments = ["--context", CONTEXT, "--action", "item", "--reward", "click", "--propensity", "propensity"]
    done = process("evaluate", folder / "short.parquet", *arguments, "--target", "far:far", cwd=folder)
    assert done.returncode == 3, done.stderr
    assert "do not trust" in done.stdout


def bad(folder: Path) -> dict[str, tuple[list[object], str]]:
    target = ["--target", "p_new"]
    (folder / "broken.py").write_text("raise RuntimeError('no')\n")
    (folder / "bad.toml").write_text("logs = [")
    (folder / "type.toml").write_text('logs = "a.parquet"\nlevel = "0.9"\n')
    (folder / "odd.toml").write_text('logz = "a.parquet"\n')
    (folder / "text.parquet").write_text("no parquet")
    return {
        "no such file": ([folder / "none.parquet", *usual(folder)[1:], *target], "no such file"),
        "no match": ([str(folder / "*.csv"), *usual(folder)[1:], *target], "no file matches this pattern"),
        "not parquet": ([folder / "text.parquet", *usual(folder)[1:], *target], "cannot be read as Parquet"),
        "misspelt": ([*usual(folder), "--target", "p_nw"], "there is no column 'p_nw'. Did you mean 'p_new'?"),
        "no import": ([*usual(folder), "--target", "nowhere:policy"], "cannot import 'nowhere'"),
        "no object": ([*usual(folder), "--target", "mine:unifrm"], "Did you mean 'uniform'?"),
        "import fails": ([*usual(folder), "--target", "broken:x"], "importing 'broken' failed: RuntimeError: no"),
        "wrong type": ([*usual(folder), "--target", "mine:wrong"], "mine:wrong: cannot read a policy from int"),
        "estimator": ([*usual(folder), *target, "--estimator", "ipss"], "there is no estimator 'ipss'. Did you mean"),
        "setting": ([*usual(folder), *target, "--estimator", "ips:clip=1"], "there is no setting 'clip'"),
        "lacking": ([*usual(folder), *target, "--estimator", "dr"], "DR cannot be computed"),
        "no target": (usual(folder), "target: missing"),
        "pair": ([*usual(folder), "--target", "a,b,c"], "a pair of list columns is two names"),
        "toml": (["--config", folder / "bad.toml"], "not a readable TOML file"),
        "toml key": (["--config", folder / "odd.toml"], "there is no setting 'logz'. Did you mean 'logs'?"),
        "toml type": (["--config", folder / "type.toml"], "level is '0.9', but must be a number"),
        "interval": ([*usual(folder), *target, "--interval", "norml"], "Did you mean 'normal'?"),
        "seed": ([*usual(folder), *target, "--seed", 10**20], "seed is"),
        "fold": ([*usual(folder), *target, "--estimator", "dr:cross_fit=auto"], "cross_fit must be a whole number"),
        "raises": ([*usual(folder), "--target", "math:sqrt"], "the function raised TypeError"),
        "range": ([*usual(folder), *target, "--reward-range", "1"], "give two numbers"),
        "level": ([*usual(folder), *target, "--level", "2"], "level is 2.0"),
        "picture": ([*usual(folder), *target, "--plot", folder / "x.gif"], "end in .png, .svg or .pdf"),
        "folder": ([*usual(folder), *target, "--markdown", folder / "nowhere" / "r.md"], "no such folder"),
        "report folder": ([*usual(folder), *target, "--report", folder / "nowhere" / "r.html"], "no such folder"),
        "report name": ([*usual(folder), *target, "--report", folder / "r.pdf"], "name must end in .html or .htm"),
        "picture name": ([*usual(folder), *target, "--plot", folder / "r.bmp"], "name must end in .png, .svg or .pdf"),
        "option": ([*usual(folder), *target, "--levle", "2"], "No such option"),
    }


def run_here(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """The exit code and the two streams, also of what writes to the file descriptors."""
    capsys.readouterr()
    done = run(*arguments)
    return done.returncode, done.stdout, done.stderr


def test_bad_input_is_exit_code_2_and_one_message(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mine(folder)
    monkeypatch.chdir(folder)
    cases = bad(folder)
    before = {p.name for p in folder.iterdir()} | {"__pycache__"}
    for name, (arguments, words) in cases.items():
        code, printed, said = run_here(capsys, "evaluate", *arguments)
        assert code == 2, (name, said)
        assert words in said, name
        assert "Traceback" not in said, name
        assert printed == "", name
    assert {p.name for p in folder.iterdir()} <= before


def test_bad_input_ends_the_process_alike(folder: Path) -> None:
    """One of our own errors, and one of the parser's, by the exit code that a shell sees."""
    write_mine(folder)
    for name in ("wrong type", "option"):
        arguments, words = bad(folder)[name]
        done = process("evaluate", *arguments, cwd=folder)
        assert done.returncode == 2, (name, done.stderr)
        assert words in done.stderr, name
        assert "Traceback" not in done.stderr, name
        assert done.stdout == "", name


def test_demo() -> None:
    done = process("demo", "--rounds", 3000, "--actions", 10)
    assert done.returncode == 0, done.stderr
    assert "error" in done.stdout
    assert "The true value of target is" in done.stdout


def test_importing_is_light() -> None:
    """No heavy library is loaded before it is needed, and none of the optional ones at all."""
    code = "import sys, offpolicy; print([m for m in ('numpy', 'pyarrow', 'sklearn', 'scipy', 'matplotlib', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
    code = "import sys, offpolicy as op; op.evaluate; print([m for m in ('sklearn', 'scipy', 'matplotlib', 'torch', 'pyspark') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_every_public_name_can_be_imported() -> None:
    for name in op.__all__:
        assert getattr(op, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        op.nothing  # noqa: B018


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with features of the action, and the whole of both policies as lists."""
    path = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(0)
    n, labels = 1_500, np.array([f"item-{k}" for k in range(9)])
    action = rng.integers(0, 9, n)
    table = pa.table(
        {
            "x0": rng.normal(size=n), "item": labels[action], "click": (rng.random(n) < 0.2 + 0.1 * (action % 3)) * 1.0,
            "brand": np.array(["acme", "bolt", "cog"])[action % 3], "size": action // 3, "items": [labels.tolist()] * n,
            "old": [[1 / 9] * 9] * n, "new": list(rng.dirichlet(np.ones(9), size=n)),
        }
    )  # fmt: skip
    pq.write_table(table, path / "log.parquet")
    return path


def of_shop(shop: Path, *more: object) -> list[object]:
    return [shop / "log.parquet", "--context", "x0", "--action", "item", "--reward", "click", *more]


def test_embeddings_on_the_command_line(shop: Path) -> None:
    policies = ("--logging", "items,old", "--target", "items,new", "--json")
    done = run(
        "evaluate", *of_shop(shop, *policies), "--features", "brand,size", "--inputs", "both", "--estimator", "learned-mips",
        "--estimator", "learned-mips:posterior=gaussian,bandwidth=slope,inputs=identity,rank=2,name=kernel",
        "--estimator", "mips:select=greedy", "--estimator", "MR,group-ips",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {e["estimator"]: e for e in json.loads(done.stdout)["estimates"]}
    assert set(found) == {"LoggedMean", "LearnedMIPS", "kernel", "MIPS", "MR", "GroupIPS"}
    log = op.read_log(
        shop / "log.parquet", context="x0", action="item", reward="click", action_features=["brand", "size"],
        logging=op.Candidates("items", "old"),
    )  # fmt: skip
    here = op.evaluate(log, op.Candidates("items", "new"), [op.LearnedMIPS("both")])["LearnedMIPS"]
    assert found["LearnedMIPS"]["value"] == pytest.approx(here.value, rel=1e-9)
    assert {"SNIPS", "SNDR"} < {c["name"] for c in found["LearnedMIPS"]["diagnostics"]["candidates"]}
    assert 0 < found["kernel"]["diagnostics"]["pooling"] < 1


def test_embed_writes_a_table(shop: Path, tmp_path: Path) -> None:
    done = run("embed", *of_shop(shop, "--features", "brand", "--out", tmp_path / "e.parquet"))
    assert done.returncode == 0, done.stderr
    assert "9 actions × 2 dimensions" in done.stdout
    table = pq.read_table(tmp_path / "e.parquet")
    assert table.column_names == ["action", "count", "reward", "e0", "e1", "published", "scaled"]
    assert sum(table["count"].to_pylist()) == 1_500
    assert [p.name for p in tmp_path.iterdir()] == ["e.parquet"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rank", 5), "rank is 5, but"),
        (("--inputs", "features"), "needs features of the actions"),
        (("--out", "table.csv"), "must end in .parquet"),
        (("--reward", "x0"), "learned from a single reward"),
    ],
)
def test_embed_with_bad_input(shop: Path, tmp_path: Path, arguments: tuple[object, ...], message: str) -> None:
    done = run("embed", *of_shop(shop), *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learned-mips:posterior=gauss", "Did you mean 'gaussian'?"),
        ("learned-mips:rank=two", "rank must be a whole number"),
        ("learned-mips:width=2", "there is no setting 'width'"),
        ("learned-mips:rank", "write NAME=VALUE"),
        ("mips:subsets=3", "there is no setting 'subsets'"),
    ],
)
def test_settings_of_an_estimator(text: str, message: str) -> None:
    from offpolicy.estimators.text import estimator

    with pytest.raises(op.InputError, match=message.replace("?", "[?]")):
        estimator(text)


def test_an_estimator_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from offpolicy.estimators.text import estimator

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_here.py").write_text(
        "import offpolicy as op\nprint('loading')\nhalf = op.ClippedIPS(0.5, name='half')\nplain = lambda log, target: 0.0\n"
    )
    assert estimator("mine_here:half") == op.ClippedIPS(0.5, name="half")
    assert capsys.readouterr().out == ""
    with pytest.raises(op.InputError, match="is a function; give an op.Estimator here"):
        estimator("mine_here:plain")


def test_the_report_is_written_with_the_command_that_made_it(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "our report.html"
    arguments = [*usual(folder), "--target", "p_new", "--report", page]
    code, printed, _ = run_here(capsys, "evaluate", *arguments)
    assert code in (0, 3, None)
    told = html.unescape(re.sub("<[^>]+>", "", page.read_text()))
    assert "offpolicy evaluate" in told
    assert f"--report '{page}'" in told
    assert "SNIPS" in printed
    run_here(capsys, "evaluate", *arguments, "--json")
    assert [p.name for p in tmp_path.iterdir()] == ["our report.html"]


def test_secrets_in_an_address_stay_out_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    from offpolicy.cli.output import typed

    words = ["offpolicy", "evaluate", "a b.csv", "--remote", "sc://host:15002/;token=SECRET;user_id=me"]
    monkeypatch.setattr(sys, "argv", words)
    assert typed() == "offpolicy evaluate 'a b.csv' --remote 'sc://host:15002/;token=…;user_id=me'"


def test_the_answer_is_printed_though_a_file_cannot_be_written(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from offpolicy.report.page import html

    def full(*_: object) -> None:
        raise op.InputError("r.html: cannot be written: No space left on device.")

    monkeypatch.setattr(html, "write", full)
    code, printed, said = run_here(capsys, "evaluate", *usual(folder), "--target", "p_new", "--report", tmp_path / "r.html")
    assert code == 2
    assert "Auto estimates" in printed
    assert "No space left" in said


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(capsys, "--version")[:2] == (0, f"offpolicy {op.__version__}\n")


def test_the_report_is_written_though_the_output_is_gone(folder: Path, tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "offpolicy", "evaluate", *map(str, usual(folder)), "--target", "p_new",
                          "--report", str(tmp_path / "r.html")])  # fmt: skip
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    cases = [
        (where, env)
        for where in ("| true", "> /dev/full", ">&-")
        for env in (buffered, {**buffered, "PYTHONUNBUFFERED": "1"})
    ]
    for where, env in cases:
        done = subprocess.run(f"{command} {where}", shell=True, capture_output=True, text=True, env=env)
        assert "Traceback" not in done.stderr, where
        assert (tmp_path / "r.html").exists(), where
        (tmp_path / "r.html").unlink()
        assert done.returncode == (1 if where.endswith("full") else 0), where


def test_embed_does_not_write_over_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    pq.write_table(pa.table({"x": [0.0, 1.0, 2.0], "item": [0, 1, 1], "click": [1.0, 0.0, 1.0]}), log)
    before = log.read_bytes()
    done = run("embed", log, "--out", log, "--context", "x", "--action", "item", "--reward", "click")
    assert done.returncode == 2
    assert "log.parquet is an input of this command and would be overwritten; give another name with --out." in done.stderr
    assert log.read_bytes() == before


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("demo", "--rounds", 100, "--out", tmp_path / "file")
    assert (done.returncode, done.stdout) == (2, "")
    assert "File exists" in done.stderr
    done = run("evaluate", "a" * 300, "--action", "a", "--reward", "r", "--target", "q")
    assert done.returncode == 2
    assert "File name too long" in done.stderr


def test_options_prepare_the_context(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 1_200
    table = {
        "age": pa.array(rng.normal(40, 10, n), mask=rng.random(n) < 0.2),
        "time": pa.array(rng.integers(0, 10**6, n), pa.timestamp("s")), "shop": [f"shop {k}" for k in range(n)],
        "item": rng.choice(["a", "b"], n), "click": rng.integers(0, 2, n), "p": np.full(n, 0.5),
    }  # fmt: skip
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    (tmp_path / "job.toml").write_text('missing = "mean"\ndates = ["hour", "weekend"]\nlevels = 4\n')
    roles = ["--context", "age,time,shop", "--action", "item", "--reward", "click"]
    command = ["evaluate", tmp_path / "log.parquet", *roles, "--propensity", "p", "--target", "p", "--json"]
    options = ["--missing", "mean", "--dates", "hour,weekend", "--levels", 4]
    done = [run(*command, *more) for more in (options, ["--config", tmp_path / "job.toml"], [])]
    results = [json.loads(each.stdout) for each in done[:2]]
    assert results[0] == results[1]
    assert {name: results[0]["settings"][name] for name in ("missing", "dates", "levels")} == {
        "missing": "mean", "dates": ["hour", "weekend"], "levels": 4,
    }  # fmt: skip
    assert [note.partition(":")[0] for note in results[0]["input"]["preparation"]] == ["age", "time", "shop"]
    assert done[2].returncode == 2
    assert "--dates hour,weekday" in done[2].stderr
    out = tmp_path / "embedding.parquet"
    embedded = run("embed", tmp_path / "log.parquet", *roles, "--out", out, *options)
    assert embedded.returncode == 0, embedded.stderr
    assert pq.read_table(out).num_rows == 2


def test_no_summary_of_the_help_is_cut_off() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    for command in ("evaluate", "report", "embed", "simulate", "demo", "reproduce", "study", "bench"):
        (line,) = (line for line in shown.splitlines() if line.startswith(f"  {command} "))
        assert line.endswith("."), line
        assert not line.endswith(("..", "…"))


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("offpolicy eval", ["evaluate"]),
        ("offpolicy evaluate --interval b", ["bootstrap", "bernstein"]),
        ("offpolicy bench --estimator Learned", ["LearnedMIPS", "LearnedMDR"]),
        ("offpolicy evaluate --engine s", ["spark"]),
    ],
)
def test_the_shell_completes_commands_and_values(typed: str, completed: list[str]) -> None:
    words = {"_OFFPOLICY_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = CliRunner().invoke(app, [], prog_name="offpolicy", env=words)
    assert sorted(done.stdout.split()) == sorted(completed)

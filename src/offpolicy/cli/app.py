"""The command. The answer goes to stdout, all else to stderr.

Exit codes: 0 done; 1 a fault of ours; 2 bad input or usage; 3 done, but the headline estimate is not to be trusted; 130 and
143: stopped by SIGINT (Ctrl-C) or SIGTERM.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from offpolicy.cli import output, signals
from offpolicy.core.errors import InputError

app = typer.Typer(
    add_completion=False, no_args_is_help=True, invoke_without_command=True, pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="What a new policy would have earned, from the logs of the old one.",
)  # fmt: skip

NOT_TRUSTED = 3
NO_PATH = (
    errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EACCES, errno.EPERM, errno.ELOOP,
    errno.EINVAL,
)  # fmt: skip
"""What a system says of a path that is wrong, and not of one that it cannot serve."""

Logs = Annotated[
    list[str] | None, typer.Argument(help="Parquet or CSV: files, folders or globs; or module:object, an op.Log.")
]
Names = Annotated[list[str] | None, typer.Option(help="Context columns, separated by commas, or given several times.")]
Many = list[str] | None
Delimiter = Annotated[str | None, typer.Option(help="What separates the cells of CSV files (,).")]
Quote = Annotated[str | None, typer.Option(help='The quotation mark of CSV files (").')]
Encoding = Annotated[str | None, typer.Option(help="The encoding of CSV files, such as latin-1 (utf-8).")]
Decimal = Annotated[str | None, typer.Option(help="The decimal point of CSV files (.).")]
Picture = Annotated[Path | None, typer.Option(help="Write a picture of the first reward (.png, .svg or .pdf), too.")]
Imports = Annotated[
    list[str] | None,
    typer.Option("--import", help="A module whose objects the TOML file may name; without this it may name none."),
]


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", help="Say which version this is.")] = False,
) -> None:
    if version:
        from offpolicy import __version__

        print(f"offpolicy {__version__}")
        raise typer.Exit


@app.command()
def evaluate(
    logs: Logs = None,
    context: Names = None,
    action: Annotated[str | None, typer.Option(help="The column of the action that was taken.")] = None,
    reward: Annotated[Many, typer.Option(help="The reward column; may be given several times.")] = None,
    propensity: Annotated[str | None, typer.Option(help="The chance that the old policy gave the logged action.")] = None,
    target: Annotated[
        Many,
        typer.Option(
            help="The new policy: a column with its chance of the logged action; two list columns ACTIONS,PROBABILITIES (in "
            "CSV: text such as a|b|c); one column an action, as 'p_*'; or module:object. Several, each as NAME=…, are "
            "compared."
        ),
    ] = None,
    logging: Annotated[
        str | None,
        typer.Option(
            help="The whole old policy, in the same forms; propensities follow. 'estimate' fits it to the log "
            "(estimate:logistic, estimate:boosting, estimate:counts)."
        ),
    ] = None,
    estimator: Annotated[Many, typer.Option(help="Such as DR, clipped-ips:clip=10 or module:object; several times.")] = None,
    diagnostic: Annotated[Many, typer.Option(help="A check of your own, module:object; several times.")] = None,
    inputs: Annotated[str | None, typer.Option(help="What embeddings are learned from: identity, features or both.")] = None,
    features: Annotated[
        Many, typer.Option(help="Columns that describe the action in each round; text and whole numbers are categories.")
    ] = None,
    actions: Annotated[
        str | None, typer.Option(help="'labels' to read integer actions as labels, not as codes 0..n-1.")
    ] = None,
    n_actions: Annotated[int | None, typer.Option(help="How many actions there are, where actions are codes.")] = None,
    catalog: Annotated[str | None, typer.Option(help="A file with one row an action, keyed by the action column.")] = None,
    delimiter: Delimiter = None,
    quote: Quote = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    cluster: Annotated[str | None, typer.Option(help="Rows with the same value, such as a user id, are one unit.")] = None,
    row_id: Annotated[str | None, typer.Option(help="A column that names each row, for stable randomness.")] = None,
    weight: Annotated[str | None, typer.Option(help="A column that weighs rows.")] = None,
    by: Annotated[str | None, typer.Option(help="The same numbers for each value of this column.")] = None,
    reward_range: Annotated[
        str | None, typer.Option(help="LOW,HIGH of the reward, for the finite-sample intervals.")
    ] = None,
    level: Annotated[float | None, typer.Option(help="The level of the intervals (0.95).")] = None,
    interval: Annotated[str | None, typer.Option(help="normal, bootstrap, bernstein or cressie-read (normal).")] = None,
    refit: Annotated[
        bool | None, typer.Option("--refit", help="Fit all models again in each of the bootstrap's draws; takes long.")
    ] = None,
    sensitivity: Annotated[
        str | None, typer.Option(help="Factors such as 1.2,1.5: bounds if true propensities are off by up to so much.")
    ] = None,
    cross_fit: Annotated[int | None, typer.Option(help="Folds of the fitted reward models (5).")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of folds and resampling (0).")] = None,
    threads: Annotated[int | None, typer.Option(help="How many threads to use (all cores).")] = None,
    memory: Annotated[str | None, typer.Option(help="At most so much memory, such as 2GB (a quarter of all).")] = None,
    engine: Annotated[str | None, typer.Option(help="local, or spark (needs Java 17 and the extra 'spark').")] = None,
    master: Annotated[str | None, typer.Option(help="Where Spark runs, such as local[4] or yarn (this machine).")] = None,
    remote: Annotated[str | None, typer.Option(help="A Spark Connect server instead, such as sc://host:15002.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with any of these settings; options here win.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write the report as one HTML file, too.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the report as Markdown, too.")] = None,
    plot: Picture = None,
    save: Annotated[Path | None, typer.Option(help="Save the result as JSON, for `offpolicy report`.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    progress: Annotated[bool | None, typer.Option(help="Progress bars on stderr; by default on a terminal.")] = None,
    imports: Imports = None,
) -> None:
    """Estimate what a new policy would have earned."""
    from offpolicy.cli import settings

    known = settings.settings_of(evaluate)
    given = {name: value for name, value in locals().items() if name in known}
    output.check_names(report, markdown, plot, save)
    with output.kept(report, markdown, plot, save):
        result = settings.run(settings.merged(config, given, settings.Accepted(known), imports or ()), progress)

        def keep() -> None:
            if save is not None:
                result.save(save)
                print(f"Saved: {save}", file=sys.stderr)

        with output.and_then(keep):
            _answer(result, json, report, markdown, plot)


@app.command("report")
def show(
    result: Annotated[Path, typer.Argument(help="What `offpolicy evaluate --save` or `Evaluation.save` wrote.")],
    html: Annotated[Path | None, typer.Option(help="Write the report as one HTML file, too.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the report as Markdown, too.")] = None,
    plot: Picture = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Print a saved result again, and write its reports. Needs no log."""
    from offpolicy.results.loading import load_result

    output.check_names(html, markdown, plot)
    with output.kept(html, markdown, plot):
        _answer(load_result(result), json, html, markdown, plot)


def _answer(result: Any, json: bool, report: Path | None, markdown: Path | None, plot: Path | None) -> None:
    """An evaluation, or a saved one, as it is asked for."""
    from offpolicy.results.evaluation import SHOWN_IN_A_FILE

    with output.and_then(
        lambda: output.write(result.to_dict(shown=SHOWN_IN_A_FILE if report else 0), report, markdown, plot)
    ):
        output.show(result.to_dict(), json)
    for path in filter(None, (report, markdown, plot)):
        print(f"Written: {path}", file=sys.stderr)
    if result.verdict.name == "DO_NOT_TRUST":
        raise typer.Exit(NOT_TRUSTED)


@app.command()
def embed(
    logs: Logs = None,
    out: Annotated[Path, typer.Option(help="The Parquet file to write: action, count, reward, e0, e1, …")] = Path(
        "embedding.parquet"
    ),
    context: Names = None,
    action: Annotated[str | None, typer.Option(help="The column of the action that was taken.")] = None,
    reward: Annotated[Many, typer.Option(help="The reward that the embedding is learned from.")] = None,
    inputs: Annotated[str | None, typer.Option(help="identity, features, or both (where there are features).")] = None,
    features: Annotated[Many, typer.Option(help="Columns that describe the action in each round.")] = None,
    catalog: Annotated[str | None, typer.Option(help="A file with one row an action, keyed by the action column.")] = None,
    delimiter: Delimiter = None,
    quote: Quote = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    rank: Annotated[int | None, typer.Option(help="The size of the embedding (that of the context, and 1).")] = None,
    penalty: Annotated[float | None, typer.Option(help="In rounds; by default the best out of fold.")] = None,
    actions: Annotated[str | None, typer.Option(help="'labels' to read integer actions as labels.")] = None,
    n_actions: Annotated[int | None, typer.Option(help="How many actions there are, where actions are codes.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Rows with the same value are one unit.")] = None,
    weight: Annotated[str | None, typer.Option(help="A column that weighs rows.")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of folds (0).")] = None,
    threads: Annotated[int | None, typer.Option(help="How many threads to use (all cores).")] = None,
    memory: Annotated[str | None, typer.Option(help="At most so much memory, such as 2GB (a quarter of all).")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with any of these settings; options here win.")] = None,
    progress: Annotated[bool | None, typer.Option(help="Progress bars on stderr; by default on a terminal.")] = None,
    imports: Imports = None,
) -> None:
    """Learn an embedding of every action from the rewards, and write it as a table."""
    from offpolicy.cli import settings
    from offpolicy.models.rewards.ridge.model import Ridge

    known = settings.settings_of(evaluate)  # one file serves both commands
    given = {name: value for name, value in locals().items() if name in known}
    if out.suffix not in (".parquet", ".pq"):
        raise InputError(f"{out}: the table is written as Parquet; the name must end in .parquet.")
    model = Ridge("auto" if penalty is None else penalty, rank=rank)
    accepted = settings.Accepted(known, ("logs", "action", "reward"), code=())
    wanted = settings.merged(config, given, accepted, imports or ())
    settings.check_output(out, wanted)
    with output.kept(out):
        table = settings.run_embed(wanted, model, progress)
        table.save(out)
    never = int((table.counts == 0).sum())
    print(f"{out}: {len(table):,} actions × {table.values.shape[1]} dimensions; {never:,} actions were never logged.")


@app.command()
def simulate(
    out: Annotated[Path, typer.Argument(help="The Parquet file to write; its truth is written beside it.")],
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of the log.")] = 100_000,
    actions: Annotated[int, typer.Option(min=2, help="Number of actions.")] = 50,
    overlap: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="1: uniform logging; 0: it avoids what the target likes.")
    ] = 0.5,
    clicks: Annotated[bool, typer.Option(help="Rewards of 0 and 1.")] = True,
    seed: Annotated[int, typer.Option(help="Of the world and of the log.")] = 0,
) -> None:
    """Write a synthetic log as Parquet, with its true value beside it."""
    import json as json_module

    from offpolicy.worlds import Linear
    from offpolicy.worlds.simulate import simulate as write, truth_path

    world = Linear(actions, clicks=clicks, overlap=overlap, seed=seed)
    with output.kept(out, truth_path(out)):
        truth = write(world, out, rounds, seed, "click" if clicks else "reward")
    print(json_module.dumps(truth, indent=2))


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="Keep the log, the report and the picture in this folder.")] = None,
    rounds: Annotated[int, typer.Option(min=100, help="Rounds of the log.")] = 50_000,
    actions: Annotated[int, typer.Option(min=2, help="Number of actions.")] = 50,
    seed: Annotated[int, typer.Option(help="Of the world and of the log.")] = 0,
) -> None:
    """Simulate a log, evaluate a new policy on it, and print the table with the truth next to it."""
    import offpolicy as op
    from offpolicy.results.evaluation import SHOWN_IN_A_FILE
    from offpolicy.worlds import Linear
    from offpolicy.worlds.simulate import simulate as write

    names = ("log.parquet", "log.truth.json", "report.html", "report.md", "estimates.png")
    files = () if out is None else tuple(out / name for name in names)
    with tempfile.TemporaryDirectory(prefix="offpolicy-") as scratch, output.kept(*files):
        folder = Path(scratch) if out is None else out
        folder.mkdir(parents=True, exist_ok=True)
        truth = write(Linear(actions, clicks=True, seed=seed), folder / "log.parquet", rounds, seed, "click")
        listed = actions <= 100
        log = op.read_log(
            folder / "log.parquet", context=[f"x{j}" for j in range(5)], action="item", reward="click",
            propensity="propensity", logging=op.Candidates("items", "p_items_old") if listed else None, reward_range=(0, 1),
        )  # fmt: skip
        target = op.Candidates("items", "p_items_new") if listed else op.Column("p_new")
        result = op.evaluate(log, target)
        summary = {**result.to_dict(shown=SHOWN_IN_A_FILE), "truth": {"target": truth["target"]["value"]}}
        output.show(summary, False)
        if out is not None:
            output.write(summary, out / "report.html", out / "report.md", out / "estimates.png")
            print(f"\nWritten to {out}: {', '.join(names)}", file=sys.stderr)


@app.command()
def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="table1, actions, samples, hidden, real, rank, nonlinear, models; or a TOML file.")
    ],
    quick: Annotated[bool, typer.Option("--quick", help="A small size, for a first look (under 2 minutes).")] = False,
    out: Annotated[Path | None, typer.Option(help="The folder of results (results/NAME); a stopped run goes on.")] = None,
    worlds: Annotated[int | None, typer.Option(min=1, help="How many worlds (or reward functions) instead.")] = None,
    logs: Annotated[int | None, typer.Option(min=1, help="How many logs (or bootstrap samples) of each instead.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the Open Bandit Dataset, for real.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Worker processes (all cores).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the tables.")] = False,
    progress: Annotated[bool | None, typer.Option(help="A progress bar on stderr; by default on a terminal.")] = None,
    imports: Imports = None,
) -> None:
    """Run one of the paper's experiments; print its tables and the verdict on each claim, and draw its figure."""
    from offpolicy.experiments import reproduce as experiments, tables
    from offpolicy.experiments.config import Size, load

    chosen = load(experiment, Size(quick, worlds, logs), data=data, imports=imports or ())
    folder = out or Path("results") / (chosen.name + ("-quick" if quick else ""))
    with output.kept_in(folder):
        results = experiments.reproduce(chosen, folder, processes=processes, progress=progress)
    output.say(tables.as_dict(results) if json else tables.plain(results))
    print(f"\nWritten to {folder}: summary.md, figure.png, runs.parquet", file=sys.stderr)


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="coverage, limits, refit, propensities; or a TOML file with [study].")],
    quick: Annotated[bool, typer.Option("--quick", help="A small size, for a first look.")] = False,
    out: Annotated[Path | None, typer.Option(help="The folder of results (results/NAME); a stopped study goes on.")] = None,
    worlds: Annotated[int | None, typer.Option(min=1, help="How many worlds of each kind instead.")] = None,
    logs: Annotated[int | None, typer.Option(min=1, help="How many logs of each world instead.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Worker processes (all cores).")] = None,
    imports: Imports = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the tables.")] = False,
    progress: Annotated[bool | None, typer.Option(help="A progress bar on stderr; by default on a terminal.")] = None,
) -> None:
    """Measure how often intervals hold the truth, how wide they are, and whether the verdict knows which of them miss."""
    from offpolicy.experiments import reproduce as experiments, study_tables
    from offpolicy.experiments.config import Size, load

    chosen = load(name, Size(quick, worlds, logs), imports=imports or ())
    folder = out or Path("results") / (chosen.name + ("-quick" if quick else ""))
    with output.kept_in(folder):
        told = experiments.study(chosen, folder, processes=processes, progress=progress)
    output.say(told if json else study_tables.plain(told))
    print(f"\nWritten to {folder}: summary.json, summary.md, figure.png, runs.parquet", file=sys.stderr)


@app.command()
def bench(
    estimator: Annotated[
        Many, typer.Option(help="Such as DR, LABEL=learned-mips:rank=4, or module:object; several times.")
    ] = None,
    add: Annotated[Many, typer.Option(help="The same, beside the standard estimators.")] = None,
    world: Annotated[
        Many,
        typer.Option(help="Such as synthetic:n_actions=100,rounds=5000; several times. By default a suite of 21."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=2, help="Rounds of each log.")] = None,
    runs: Annotated[int | None, typer.Option(help="Runs in each kind of world (400).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Five runs.")] = False,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Keep the 95% intervals of all estimators, and say how often they hold.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Keep the runs in this folder; an unfinished bench goes on.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the Open Bandit Dataset, for open-bandit.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Worker processes (all cores).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    progress: Annotated[bool | None, typer.Option(help="A progress bar on stderr; by default on a terminal.")] = None,
) -> None:
    """Try estimators, your own among them, in many worlds, and print who came nearest to the best of each."""
    from offpolicy.experiments import bench as board
    from offpolicy.experiments.runner import run
    from offpolicy.experiments.store import Store

    chosen = board.Bench(
        estimator or (), world or (), add=add or (), runs=runs, rounds=rounds, quick=quick, intervals=intervals, data=data
    ).experiment()
    with tempfile.TemporaryDirectory(prefix="offpolicy-") as scratch, output.kept_in(out):
        results = run(chosen, Store.open(out or Path(scratch), chosen), processes, progress)
    output.say(board.as_dict(results) if json else board.plain(results))


def main() -> None:
    """Run the command; bad input ends with a message and exit code 2, never with a traceback."""
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
    try:
        try:
            app()
        except SystemExit:
            sys.stdout.flush()  # what is still buffered would fail only when Python ends, with an exit code of its own
            raise
    except InputError as error:
        print(f"offpolicy: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # such as a full disk behind our output, or a path that cannot be one
        print(f"offpolicy: {error.filename or 'the output'}: {error.strerror or error}", file=sys.stderr)
        output.forget()
        sys.exit(2 if error.filename is not None and error.errno in NO_PATH else 1)


if __name__ == "__main__":
    signals.run(main)

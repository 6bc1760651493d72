"""The command line interface. The answer goes to stdout, everything else to stderr.

Exit codes: 0 done; 1 an internal error; 2 bad input or usage; 3 done, but the headline estimate should not be trusted; 130
and 143: stopped by SIGINT (Ctrl-C) or SIGTERM.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from offpolicy.cli import output, signals
from offpolicy.core.errors import InputError

app = typer.Typer(
    no_args_is_help=True, invoke_without_command=True, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="Estimate what a new policy would have earned, from the logs of the old one.",
)  # fmt: skip

NOT_TRUSTED = 3
NO_PATH = (
    errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EACCES, errno.EPERM, errno.ELOOP,
    errno.EINVAL,
)  # fmt: skip
"""Error numbers of wrong paths, as opposed to those of a failing system."""

Logs = Annotated[
    list[str] | None, typer.Argument(help="Parquet or CSV files, folders or globs; or an op.Log, as module:object.")
]
Names = Annotated[list[str] | None, typer.Option(help="Context columns, separated by commas or by repeating the option.")]
Many = list[str] | None
Delimiter = Annotated[str | None, typer.Option(help="The delimiter of CSV files. [default: ,]")]
Quote = Annotated[str | None, typer.Option(help='The quotation mark of CSV files. [default: "]')]
Encoding = Annotated[str | None, typer.Option(help="The encoding of CSV files, such as latin-1. [default: utf-8]")]
Decimal = Annotated[str | None, typer.Option(help="The decimal point of CSV files. [default: .]")]
Propensity = Annotated[
    str | None,
    typer.Option(
        help="The column with the logging policy's probability (or density) of the logged action; or monte-carlo:WINS,DRAWS "
        "with the draws that estimate it (monte-carlo:WINS,DRAWS,inverse if drawn until a win)."
    ),
]
Logging = Annotated[
    list[str] | None,
    typer.Option(
        help="The full logging policy, in the same forms as --target, to compute the propensities from. 'estimate' fits it "
        "to the log (estimate:logistic, estimate:boosting, estimate:counts). With --logger, repeat as LOGGER=POLICY."
    ),
]
Best = Annotated[
    str | None,
    typer.Option(
        help="Compare all policies at once with this one, or with 'log', and choose one; the intervals hold together."
    ),
]
Picture = Annotated[Path | None, typer.Option(help="Also write a plot of the estimates (.png, .svg or .pdf).")]
Imports = Annotated[
    list[str] | None,
    typer.Option("--import", help="A module whose objects the TOML file may refer to. [default: none]"),
]


def _estimators() -> list[str]:
    """Completions for --estimator."""
    from offpolicy.estimators import REGISTRY

    return list(REGISTRY)


def _choices(*names: str) -> Callable[[], list[str]]:
    """Completions for an option with few values."""
    return lambda: list(names)


ActionColumn = Annotated[
    str | None,
    typer.Option(help="The column with the logged action; for vectors also one per dimension, separated by commas."),
]
Inputs = Annotated[
    str | None,
    typer.Option(
        help="What embeddings are learned from: identity, features or both.",
        autocompletion=_choices("identity", "features", "both"),
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(
        help="Missing values in the context: 'level' makes missing text a level of its own; 'mean' also replaces missing "
        "numbers and dates with the mean.",
        autocompletion=_choices("level", "mean"),
    ),
]
Dates = Annotated[
    list[str] | None,
    typer.Option(
        help="Parts of dates in the context, separated by commas: hour, weekday, weekend, month, days.",
        autocompletion=_choices("hour", "weekday", "weekend", "month", "days"),
    ),
]
Levels = Annotated[
    int | None, typer.Option(help="Hash context columns of text with more than this many values into this many columns.")
]
ActionCount = Annotated[int | None, typer.Option(help="The number of actions, if actions are codes.")]
Catalog = Annotated[str | None, typer.Option(help="A file with one row per action, keyed by the action column.")]
Cluster = Annotated[str | None, typer.Option(help="Rows with the same value, such as a user id, form one unit.")]
RowWeight = Annotated[str | None, typer.Option(help="A column with row weights.")]
Threads = Annotated[int | None, typer.Option(help="Number of threads. [default: all cores]")]
Memory = Annotated[str | None, typer.Option(help="Memory budget, such as 2GB. [default: a quarter of all memory]")]
Config = Annotated[
    Path | None, typer.Option(help="A TOML file with any options except those for output; the command line overrides it.")
]
Progress = Annotated[bool | None, typer.Option(help="Show progress on stderr. [default: on a terminal]")]
Processes = Annotated[int | None, typer.Option(min=1, help="Worker processes. [default: all cores]")]
Actions = Annotated[
    str | None,
    typer.Option(
        help="'labels' to read integer actions as labels instead of codes 0..n-1; box:LOW:HIGH for actions that are "
        "numbers, such as box:5:60, or box:0,0:100,1 for vectors; box:5:60:19.99 if some values have a probability; slate:8 "
        "for lists of up to 8 items."
    ),
]


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from offpolicy import __version__

        print(f"offpolicy {__version__}")
        raise typer.Exit


@app.command()
def evaluate(
    logs: Logs = None,
    context: Names = None,
    action: ActionColumn = None,
    reward: Annotated[Many, typer.Option(help="The column with the reward; repeat for several rewards.")] = None,
    propensity: Propensity = None,
    target: Annotated[
        Many,
        typer.Option(
            help="The new policy: a column with its probability (or density) of the logged action; two list columns "
            "ACTIONS,PROBABILITIES (in CSV, text such as a|b|c); one column per action, as 'p_*'; deterministic:COLUMN, a "
            "column with its action; uniform, or uniform:COLUMN with a list column of candidates; for numbers also "
            "normal:MEAN,SD (columns or numbers), shift:by=2 and shift:times=1.05; for lists also shuffled, shuffled:ITEMS, "
            "plackett-luce:ITEMS,SCORES (list columns of candidates and scores) and factored:uniform; or module:object. "
            "Repeat as NAME=POLICY to compare several."
        ),
    ] = None,
    logging: Logging = None,
    estimator: Annotated[
        Many,
        typer.Option(
            help="An estimator, such as DR, clipped-ips:clip=10, module:object or NAME=…; repeatable.",
            autocompletion=_estimators,
        ),
    ] = None,
    diagnostic: Annotated[Many, typer.Option(help="A diagnostic of your own, as module:object; repeatable.")] = None,
    inputs: Inputs = None,
    features: Annotated[
        Many, typer.Option(help="Columns that describe the action in each round; text and integers are categories.")
    ] = None,
    actions: Actions = None,
    n_actions: ActionCount = None,
    catalog: Catalog = None,
    delimiter: Delimiter = None,
    quote: Quote = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    cluster: Cluster = None,
    row_id: Annotated[str | None, typer.Option(help="A column that identifies rows, for reproducible randomness.")] = None,
    weight: RowWeight = None,
    by: Annotated[str | None, typer.Option(help="Also report each value of this column as a slice.")] = None,
    gain: Annotated[
        str | None,
        typer.Option(help="For lists: how much each slot counts: sum, dcg, or one number per slot. [default: sum]"),
    ] = None,
    position_propensity: Annotated[
        str | None,
        typer.Option(help="For lists: the column with the probability of each item in its position, whatever is above it."),
    ] = None,
    list_id: Annotated[
        str | None,
        typer.Option(help="The column that identifies lists, if each row is one slot; rows of a list are adjacent."),
    ] = None,
    slot: Annotated[str | None, typer.Option(help="The column with the slot, if each row is one slot.")] = None,
    logger: Annotated[
        str | None, typer.Option(help="The column with the logger of each round, if several policies collected the log.")
    ] = None,
    loggers: Annotated[
        str | None,
        typer.Option(
            help="How the weights of several loggers are combined: balanced, own or weighted. [default: balanced with the "
            "policy of each logger, else own]",
            autocompletion=_choices("balanced", "own", "weighted"),
        ),
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="The version of a Delta table, or the snapshot of an Iceberg table.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(help="The time whose version of a Delta or Iceberg table is read: 2026-03-01T12:00:00.")
    ] = None,
    reward_range: Annotated[
        str | None, typer.Option(help="Range of the reward, as LOW,HIGH; for finite-sample intervals.")
    ] = None,
    missing: Missing = None,
    dates: Dates = None,
    levels: Levels = None,
    level: Annotated[float | None, typer.Option(help="Confidence level of the intervals. [default: 0.95]")] = None,
    interval: Annotated[
        str | None,
        typer.Option(
            help="Method: auto, student, normal, bootstrap, bernstein, cressie-read or smoothing. [default: auto]",
            autocompletion=_choices("auto", "student", "normal", "bootstrap", "bernstein", "cressie-read", "smoothing"),
        ),
    ] = None,
    refit: Annotated[bool | None, typer.Option("--refit", help="Refit all models in each bootstrap resample; slow.")] = None,
    sensitivity: Annotated[
        str | None, typer.Option(help="Bound the value if true propensities differ by up to these factors, such as 1.2,1.5.")
    ] = None,
    best: Best = None,
    cross_fit: Annotated[int | None, typer.Option(help="Folds for cross-fitting reward models. [default: 5]")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of folds and resampling. [default: 0]")] = None,
    threads: Threads = None,
    memory: Memory = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="local, or spark (needs Java 17 or 21 and the extra 'spark').", autocompletion=_choices("local", "spark")
        ),
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark master, such as local[4] or yarn. [default: this machine]")
    ] = None,
    remote: Annotated[
        str | None, typer.Option(help="Spark Connect server, such as sc://host:15002, instead of --master.")
    ] = None,
    config: Config = None,
    report: Annotated[Path | None, typer.Option(help="Also write the report as one HTML file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the report as Markdown.")] = None,
    plot: Picture = None,
    save: Annotated[Path | None, typer.Option(help="Save the result as JSON for `offpolicy report`.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    progress: Progress = None,
    imports: Imports = None,
) -> None:
    """Estimate what a new policy would have earned.

    The settings may also come from a TOML file (--config).
    """
    from offpolicy.cli import settings

    known = settings.settings_of(evaluate)
    options = {name: value for name, value in locals().items() if name in known}
    output.check_names(report, markdown, plot, save)
    with output.written_if_stopped(report, markdown, plot, save):
        result = settings.run(settings.merged(config, options, settings.Accepted(known), imports or ()), progress)

        def save_result() -> None:
            if save is not None:
                result.save(save)
                print(f"Saved: {save}", file=sys.stderr)

        with output.and_then(save_result):
            _answer(result, json, report, markdown, plot)


@app.command("report")
def show(
    result: Annotated[Path, typer.Argument(help="A file written by `offpolicy evaluate --save` or `Evaluation.save`.")],
    html: Annotated[Path | None, typer.Option(help="Also write the report as one HTML file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the report as Markdown.")] = None,
    plot: Picture = None,
    best: Best = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Print a saved result and write its reports.

    The log is not needed.
    """
    from offpolicy.cli.settings import compared
    from offpolicy.results.loading import load_result

    output.check_names(html, markdown, plot)
    with output.written_if_stopped(html, markdown, plot):
        _answer(compared(load_result(result), best), json, html, markdown, plot)


def _answer(result: Any, json: bool, report: Path | None, markdown: Path | None, plot: Path | None) -> None:
    """Print an evaluation and write the requested files."""
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
def watch(
    state: Annotated[Path, typer.Argument(help="The file with the sums so far; created by the first run.")],
    logs: Logs = None,
    context: Names = None,
    action: ActionColumn = None,
    reward: Annotated[Many, typer.Option(help="The column with the reward.")] = None,
    propensity: Propensity = None,
    target: Annotated[Many, typer.Option(help="The policy to watch, as for `evaluate`; repeat as NAME=POLICY.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The policy to compare with, or 'log' for what was logged. [default: log]")
    ] = None,
    logging: Logging = None,
    actions: Actions = None,
    n_actions: ActionCount = None,
    delimiter: Delimiter = None,
    quote: Quote = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    cluster: Cluster = None,
    reward_range: Annotated[str | None, typer.Option(help="Range of the reward, as LOW,HIGH; required.")] = None,
    weight_bound: Annotated[
        float | None, typer.Option(help="The largest possible weight, if it is known without looking at the logs.")
    ] = None,
    missing: Missing = None,
    dates: Dates = None,
    levels: Levels = None,
    level: Annotated[float | None, typer.Option(help="Confidence level of the bounds. [default: 0.95]")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed. [default: 0]")] = None,
    threads: Threads = None,
    config: Config = None,
    plot: Annotated[Path | None, typer.Option(help="Also plot the looks so far (.png, .svg or .pdf).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    imports: Imports = None,
) -> None:
    """Watch policies from day to day, with bounds that hold at every look.

    Each file counts once, however often it is given: run it from cron with all files, or with the new one. Exit codes: 0
    undecided, 4 a policy is better than the baseline, 5 all policies are worse.
    """
    from offpolicy.cli import settings, watching

    known = settings.settings_of(watch)
    options = {name: value for name, value in locals().items() if name in known}
    output.check_names(None, None, plot)
    chosen = settings.merged(config, options, settings.Accepted(known), imports or ())
    with output.written_if_stopped(state, plot):
        monitor = watching.run(state, chosen)
        output.say(monitor.to_dict() if json else watching.text(monitor))
        if plot is not None:
            watching.draw(monitor, plot)
    if code := watching.exit_code(monitor):
        raise typer.Exit(code)


@app.command()
def backtest(
    file: Annotated[Path, typer.Argument(help="A TOML file with the past tests, each in a table [[pair]].")],
    plot: Annotated[Path | None, typer.Option(help="Also plot estimates minus truth (.png, .svg or .pdf).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    progress: Progress = None,
    imports: Imports = None,
) -> None:
    """Compare estimates for past A/B tests with what the new policies really earned.

    Reports, by estimator, how often the intervals held, the bias, and the factor by which intervals must be widened.
    """
    from offpolicy.cli import backtest as backtesting, settings

    output.check_names(None, None, plot)
    with output.written_if_stopped(plot):
        result = backtesting.run(file, settings.settings_of(evaluate), imports or (), progress)
        output.say(result.to_dict() if json else str(result))
        if plot is not None:
            backtesting.draw(result, plot)


@app.command()
def embed(
    logs: Logs = None,
    out: Annotated[
        Path, typer.Option(help="The Parquet file to write, with the columns action, count, reward, e0, e1, …")
    ] = Path("embedding.parquet"),
    context: Names = None,
    action: ActionColumn = None,
    reward: Annotated[Many, typer.Option(help="The column with the reward that the embedding is learned from.")] = None,
    inputs: Inputs = None,
    features: Annotated[Many, typer.Option(help="Columns that describe the action in each round.")] = None,
    catalog: Catalog = None,
    delimiter: Delimiter = None,
    quote: Quote = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    rank: Annotated[
        int | None, typer.Option(help="Number of dimensions of the embedding. [default: that of the context, plus 1]")
    ] = None,
    penalty: Annotated[
        float | None, typer.Option(help="The ridge penalty, in rounds. [default: the lightest that predicts nearly best]")
    ] = None,
    actions: Actions = None,
    n_actions: ActionCount = None,
    cluster: Cluster = None,
    weight: RowWeight = None,
    missing: Missing = None,
    dates: Dates = None,
    levels: Levels = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the folds. [default: 0]")] = None,
    threads: Threads = None,
    memory: Memory = None,
    config: Config = None,
    progress: Progress = None,
    imports: Imports = None,
) -> None:
    """Learn an embedding of every action from rewards.

    The embedding is written as a Parquet table.
    """
    from offpolicy.cli import settings
    from offpolicy.models.rewards.ridge.model import Ridge

    known = settings.settings_of(evaluate)  # one file serves both commands
    options = {name: value for name, value in locals().items() if name in known}
    if out.suffix not in (".parquet", ".pq"):
        raise InputError(f"{out}: the table is written as Parquet, so its name must end in .parquet.")
    model = Ridge("auto" if penalty is None else penalty, rank=rank)
    accepted = settings.Accepted(known, ("logs", "action", "reward"), code=())
    chosen = settings.merged(config, options, accepted, imports or ())
    settings.check_output(out, chosen)
    with output.written_if_stopped(out):
        table = settings.run_embed(chosen, model, progress)
        table.save(out)
    never = int((table.counts == 0).sum())
    print(f"{out}: {len(table):,} actions × {table.values.shape[1]} dimensions; {never:,} actions were never logged.")


@app.command()
def simulate(
    out: Annotated[
        Path, typer.Argument(help="The Parquet file to write; the true values are written to a JSON file next to it.")
    ],
    rounds: Annotated[int, typer.Option(min=2, help="Number of rounds.")] = 100_000,
    actions: Annotated[int, typer.Option(min=2, help="Number of actions.")] = 50,
    overlap: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="1: uniform logging; 0: the logging policy avoids what the target prefers."),
    ] = 0.5,
    clicks: Annotated[bool, typer.Option(help="Whether rewards are 0 or 1.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of the world and of the log.")] = 0,
) -> None:
    """Simulate a log whose true policy values are known.

    The log is a Parquet file; the true values are written next to it as JSON.
    """
    import json as json_module

    from offpolicy.worlds import Linear
    from offpolicy.worlds.simulate import simulate as write, truth_path

    world = Linear(actions, clicks=clicks, overlap=overlap, seed=seed)
    with output.written_if_stopped(out, truth_path(out)):
        truth = write(world, out, rounds, seed, "click" if clicks else "reward")
    print(json_module.dumps(truth, indent=2))


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="Keep the log, the report and the plot in this folder.")] = None,
    rounds: Annotated[int, typer.Option(min=100, help="Number of rounds.")] = 50_000,
    actions: Annotated[int, typer.Option(min=2, help="Number of actions.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the world and of the log.")] = 0,
) -> None:
    """Simulate a log and evaluate a new policy on it.

    The table shows the error of each estimate, because the true value is known.
    """
    import offpolicy as op
    from offpolicy.results.evaluation import SHOWN_IN_A_FILE
    from offpolicy.worlds import Linear
    from offpolicy.worlds.simulate import simulate as write

    names = ("log.parquet", "log.truth.json", "report.html", "report.md", "estimates.png")
    files = () if out is None else tuple(out / name for name in names)
    with tempfile.TemporaryDirectory(prefix="offpolicy-") as scratch, output.written_if_stopped(*files):
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
    quick: Annotated[bool, typer.Option("--quick", help="Run a smaller version (under 2 minutes).")] = False,
    out: Annotated[
        Path | None, typer.Option(help="The folder for results; an interrupted run resumes. [default: results/NAME]")
    ] = None,
    worlds: Annotated[int | None, typer.Option(min=1, help="Override the number of worlds.")] = None,
    logs: Annotated[int | None, typer.Option(min=1, help="Override the number of logs (or samples) per world.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the Open Bandit Dataset, for `real`.")] = None,
    processes: Processes = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the tables.")] = False,
    progress: Progress = None,
    imports: Imports = None,
) -> None:
    """Reproduce an experiment from the paper.

    Prints its tables and whether each claim holds, and draws its figure.
    """
    from offpolicy.experiments import reproduce as experiments, tables
    from offpolicy.experiments.config import Size, load
    from offpolicy.worlds.registry import Folders

    chosen = load(experiment, Size(quick, worlds, logs), folders=Folders(data), imports=imports or ())
    folder = out or Path("results") / (chosen.name + ("-quick" if quick else ""))
    with output.resumable_from(folder):
        results = experiments.reproduce(chosen, folder, processes=processes, progress=progress)
    output.say(tables.as_dict(results) if json else tables.plain(results, output.width()))
    print(f"\nWritten to {folder}: summary.md, figure.png, runs.parquet", file=sys.stderr)


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="coverage, intervals, limits, refit, propensities; or a TOML file.")],
    quick: Annotated[bool, typer.Option("--quick", help="Run a smaller version.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="The folder for results; an interrupted study resumes. [default: results/NAME]")
    ] = None,
    worlds: Annotated[int | None, typer.Option(min=1, help="Override the number of worlds of each kind.")] = None,
    logs: Annotated[int | None, typer.Option(min=1, help="Override the number of logs per world.")] = None,
    processes: Processes = None,
    imports: Imports = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the tables.")] = False,
    progress: Progress = None,
) -> None:
    """Measure the coverage of intervals and verdicts.

    Reports how often intervals contain the true value, how wide they are, and how well the verdict identifies those that
    do not.
    """
    from offpolicy.experiments import reproduce as experiments, study_tables
    from offpolicy.experiments.config import Size, load

    chosen = load(name, Size(quick, worlds, logs), imports=imports or ())
    folder = out or Path("results") / (chosen.name + ("-quick" if quick else ""))
    with output.resumable_from(folder):
        summary = experiments.study(chosen, folder, processes=processes, progress=progress)
    output.say(summary if json else study_tables.plain(summary, output.width()))
    print(f"\nWritten to {folder}: summary.json, summary.md, figure.png, runs.parquet", file=sys.stderr)


@app.command()
def bench(
    estimator: Annotated[
        Many,
        typer.Option(
            help="An estimator, such as DR, NAME=learned-mips:rank=4 or module:object; repeatable.",
            autocompletion=_estimators,
        ),
    ] = None,
    add: Annotated[
        Many, typer.Option(help="An estimator to run in addition to the standard ones.", autocompletion=_estimators)
    ] = None,
    world: Annotated[
        Many,
        typer.Option(help="A world, such as synthetic:n_actions=100,rounds=5000; repeatable. [default: a suite of 50]"),
    ] = None,
    suite: Annotated[
        str,
        typer.Option(
            help="The suite: worlds of single actions, of lists, or of numbers.",
            autocompletion=_choices("actions", "lists", "continuous"),
        ),
    ] = "actions",
    half: Annotated[
        str | None,
        typer.Option(
            help="Run one half of the suite: building (on which estimators are tuned) or judging. [default: all]",
            autocompletion=_choices("building", "judging"),
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=2, help="Number of rounds per log.")] = None,
    runs: Annotated[int | None, typer.Option(help="Runs in each kind of world. [default: 200]")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run five times in each world.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Store the runs in this folder; an interrupted benchmark resumes.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the Open Bandit Dataset, for `open-bandit`.")] = None,
    openml: Annotated[
        Path | None, typer.Option(help="The folder of the OpenML sets as CSV files, for data such as openml:yeast.")
    ] = None,
    processes: Processes = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    progress: Progress = None,
) -> None:
    """Compare estimators in simulated worlds.

    You can add your own estimators. The leaderboard shows how close each one came to the best estimator in each world.
    """
    from offpolicy.experiments import bench as board
    from offpolicy.experiments.runner import run
    from offpolicy.experiments.store import Store
    from offpolicy.worlds.registry import Folders

    chosen = board.Bench(
        estimator or (), world or (), add=add or (), half=half, runs=runs, rounds=rounds, quick=quick, suite=suite,
        folders=Folders(data, openml),
    ).experiment()  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="offpolicy-") as scratch, output.resumable_from(out):
        results = run(chosen, Store.open(out or Path(scratch), chosen), processes, progress)
    output.say(board.as_dict(results) if json else board.plain(results, output.width()))


def main() -> None:
    """Run the command; bad input ends with a message and exit code 2, never with a traceback."""
    if sys.stdout is None:  # closed by the parent process
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
    try:
        try:
            app()
        except SystemExit:
            sys.stdout.flush()  # buffered output would otherwise fail when Python exits, with another exit code
            raise
    except InputError as error:
        print(f"offpolicy: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output is gone, as with `| head`
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # such as a full disk, or an invalid path
        print(f"offpolicy: {error.filename or 'the output'}: {error.strerror or error}", file=sys.stderr)
        output.discard()
        sys.exit(2 if error.filename is not None and error.errno in NO_PATH else 1)


if __name__ == "__main__":
    signals.run(main)

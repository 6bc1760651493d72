"""The settings of an evaluation from the command line or a TOML file, and the objects they become."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.core.imports import check_import, imported, made, names_object
from offpolicy.data.checks import factors
from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.log import Log
from offpolicy.data.propensity_text import propensity
from offpolicy.data.sources import read_log
from offpolicy.data.sources.files import find_files
from offpolicy.data.sources.spark_session import frame_of, session
from offpolicy.data.sources.stores import is_remote
from offpolicy.data.space_text import action_space
from offpolicy.data.spaces import ActionSpace
from offpolicy.diagnostics.base import Diagnostic
from offpolicy.engines.base import Engine
from offpolicy.engines.local import Local
from offpolicy.engines.spark import Spark
from offpolicy.estimators import Estimator, LoggedMean
from offpolicy.estimators.text import estimator, is_own, own_estimator, own_objects, split_name
from offpolicy.inference.intervals import Method
from offpolicy.models.embedding_table import EmbeddingTable
from offpolicy.models.rewards.ridge.model import Ridge
from offpolicy.policies.base import Policy
from offpolicy.policies.text import names_module, policy
from offpolicy.results.evaluate import evaluate
from offpolicy.results.evaluation import Evaluation
from offpolicy.results.fitting import embed
from offpolicy.results.functions import Function, with_functions

CODE = ("target", "logging", "estimator", "diagnostic")
"""Settings besides the log that may name an object as module:object."""
LOG = "log"
"""What `--best` calls the baseline that is no policy."""
ENGINES = ("local", "spark")
OF_THE_CALL = ("progress", "imports")
"""Options about how a command runs, not about what it evaluates."""
WORDS = {list: "text, or a list of text", str: "text", int: "a whole number", float: "a number", bool: "true or false"}
MORE_TYPES = {
    "action": ((str, list), "text, or a list of text"),
    "reward_range": ((str, list), "a list of two numbers"),
    "gain": ((str, list), '"sum", "dcg" or a list of numbers'),
    "memory": ((str, int), 'text such as "2GB", or bytes'),
    "sensitivity": ((str, int, float, list), "a list of numbers"),
    "as_of": ((str, datetime), "a time"),
}
"""What a TOML file may contain where a command line has only text."""
NEEDED = ("logs", "action", "reward", "target")
OF_FILES = (
    "context", "action", "reward", "propensity", "logging", "features", "actions", "n_actions", "catalog", "cluster",
    "row_id", "weight", "by", "logger", "loggers", "version", "as_of", "position_propensity", "gain", "list_id", "slot",
    "reward_range", "delimiter", "quote", "encoding", "decimal", "missing", "dates", "levels",
)  # fmt: skip
"""Settings for reading a log from files; a log given as an object already has them."""

OF_EVALUATE, OF_EMBED = ("level", "cross_fit", "seed", "memory"), ("inputs", "seed", "memory")
"""Settings that are arguments of `evaluate` and of `embed` under the same name."""


def settings_of(command: Callable[..., None]) -> dict[str, type]:
    """The settings that a TOML file may contain, with their types: the options of a command except its output files."""
    hints = {name: (get_args(hint) or (hint,))[0] for name, hint in get_type_hints(command).items() if name != "return"}
    types = {name: get_origin(hint) or hint for name, hint in hints.items() if name not in OF_THE_CALL}
    optional = inspect.signature(command).parameters
    return {name: kind for name, kind in types.items() if kind is not Path and optional[name].default is None}


@dataclasses.dataclass(frozen=True)
class Accepted:
    """What a command accepts: settings with their types (from `settings_of`), and those it requires.

    Of the settings that may name objects, the command uses those in `code` and ignores the others.
    """

    known: Mapping[str, type]
    needed: Sequence[str] = NEEDED
    code: Sequence[str] = CODE


def merged(
    config: Path | None, options: Mapping[str, Any], accepted: Accepted, imports: Sequence[str] = ()
) -> dict[str, Any]:
    """The settings of the file, overridden by the options. The file may only name objects of `imports`."""
    return combined({} if config is None else read_toml(config), options, accepted, Origin(str(config), imports))


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where settings come from, for messages, and the modules whose objects they may name."""

    name: str
    imports: Sequence[str] = ()


def combined(read: Mapping[str, Any], options: Mapping[str, Any], accepted: Accepted, origin: Origin) -> dict[str, Any]:
    """The settings that were read, checked and overridden by the options."""
    read = checked(read, accepted.known, origin.name)
    settings = {name: value for name, value in read.items() if name in accepted.code or name not in CODE}
    for setting in (*CODE, "logs"):
        for text in _texts(settings.get(setting)):
            for named in _objects(setting, text):
                check_import(f"{origin.name}: {setting}", named, origin.imports)
    settings |= {name: value for name, value in options.items() if value not in (None, [])}
    for name in ("context", "reward", "features", "dates"):
        settings[name] = [part.strip() for item in settings.get(name, []) for part in item.split(",") if part.strip()]
    own = own_log(settings)
    for name in accepted.needed:
        if not settings.get(name) and (own is None or name not in OF_FILES):
            raise InputError(f"{name}: missing; give it on the command line or in the TOML file.")
    unused = [name for name in OF_FILES if own is not None and settings.get(name)]
    if unused:
        raise InputError(f"{', '.join(unused)}: only for logs in files; {own} is already a log, so remove these settings.")
    return settings


def _objects(setting: str, text: str) -> list[str]:
    """Each `module:object` in the text of a setting."""
    if setting == "estimator":
        return own_objects(split_name(text)[1])
    if setting == "logs":
        return [text] if _is_object(text) else []
    named = _named(text, 0)[1] if setting in ("target", "logging") else text
    return [named] if names_module(named) and not (setting == "logging" and _estimates(text)) else []


def _is_object(log: str) -> bool:
    return names_object(log) and not Path(log).exists()


def own_log(settings: Mapping[str, Any]) -> str | None:
    """The `module:object` given in place of files, or None."""
    logs = settings.get("logs", [])
    own = next(filter(_is_object, logs), None)
    if own is not None and len(logs) > 1:
        raise InputError(f"logs: {own} is a complete log; give nothing else.")
    return own


def _texts(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def read_toml(path: Path) -> dict[str, Any]:
    """The contents of a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: not a readable TOML file: {error}") from None


def checked(read: Mapping[str, Any], known: Mapping[str, type], origin: str) -> dict[str, Any]:
    """Settings under the names of the options, with values of the right type."""
    settings: dict[str, Any] = {}
    for key, value in read.items():
        name = key.replace("-", "_")
        if name not in known:
            raise InputError(f"{origin}: {unknown_name('setting', key, known)}")
        settings[name] = [value] if known[name] is list and isinstance(value, str) else value
        types, words = MORE_TYPES.get(name, (known[name], WORDS[known[name]]))
        if not _fits(settings[name], types if isinstance(types, tuple) else (types,)) or (
            known[name] is list and not all(isinstance(item, str) for item in settings[name])
        ):
            raise InputError(f"{origin}: {key} is {value!r}, but must be {words}.")
    return settings


def _fits(value: Any, types: tuple[type, ...]) -> bool:
    """Whether a value in a TOML file has one of the types; integers are numbers, booleans are not."""
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, (*types, int) if float in types else types)


def run(settings: Mapping[str, Any], progress: bool | None) -> Evaluation:
    """Open the log and evaluate the policies."""
    policies = named_policies(settings)
    estimators, functions = estimators_of(settings)
    if not estimators and settings.get("inputs"):
        raise InputError("inputs: a setting of estimators that learn embeddings; add one, such as --estimator learned-mips.")
    interval = settings.get("interval", "auto")
    if interval not in get_args(Method):
        raise unknown_name("interval method", interval, get_args(Method))
    refit = bool(settings.get("refit"))
    if refit and interval != "bootstrap":
        raise InputError(f"refit: only for bootstrap intervals, and the interval is {interval}; add --interval bootstrap.")
    gammas = _numbers("sensitivity", settings.get("sensitivity"), "numbers, separated by commas, such as 1.2,1.5")
    factors(gammas or [1.0])  # before the log is read
    diagnostics = [_diagnostic(text) for text in settings.get("diagnostic", [])]
    best = settings.get("best")
    if best is not None and best not in (LOG, *policies):
        if best.startswith("-"):  # the next option, which was taken for its value
            raise InputError("--best needs the policy to compare with: --best NAME, or --best log for what was logged.")
        raise unknown_name("policy for --best", best, (*policies, LOG))
    with opened(settings) as (log, engine):
        named = estimators or ([LoggedMean()] if functions else None)
        result = evaluate(
            log, policies, named, engine=engine, progress=progress, diagnostics=diagnostics,
            **_chosen(settings, OF_EVALUATE),
        )  # fmt: skip
        result = with_functions(result, log, policies, functions) if functions else result
        result = result.with_interval(interval, refit=refit)
        result = compared(result, best)
        if gammas:
            result = result.with_sensitivity(gammas)
        if refit or gammas:
            result.to_dict()  # both read the log again, while our Spark session is open
    return result


def named_policies(settings: Mapping[str, Any]) -> dict[str, Policy]:
    """The target policies by name."""
    targets = dict(_named(text, k) for k, text in enumerate(settings["target"]))
    if len(targets) < len(settings["target"]):
        raise InputError("target: two policies have the same name.")
    return {name: policy(text) for name, text in targets.items()}


def compared(result: Evaluation, best: str | None) -> Evaluation:
    """The result with a comparison of all policies with one of them, or with the log, if that is requested."""
    if best is None:
        return result
    return result.with_best(None if best == LOG and LOG not in result.policies else best)


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[tuple[Log, Engine]]:
    """The log and the engine that reads it. A Spark session started for it is stopped at the end."""
    named = settings.get("engine", "local")
    if named not in ENGINES:
        raise unknown_name("engine", named, ENGINES)
    ignored = [name for name in (("threads",) if named == "spark" else ("master", "remote")) if settings.get(name)]
    if ignored:
        remedy = "use --master 'local[4]' instead" if named == "spark" else "add --engine spark"
        raise InputError(f"{ignored[0]} has no effect on the engine {named!r}; {remedy}.")
    own = own_log(settings)
    if named == "local":
        log = open_log(settings, _source(settings)) if own is None else _imported_log(own)
        yield log, Local(threads=settings.get("threads"))
        return
    with session(settings.get("master"), settings.get("remote")) as spark:
        yield open_log(settings, frame_of(spark, settings["logs"])) if own is None else _imported_log(own), Spark()


def run_embed(settings: Mapping[str, Any], model: Ridge, progress: bool | None) -> EmbeddingTable:
    """Open the log and learn the embedding."""
    if len(settings["reward"]) > 1:
        raise InputError("reward: an embedding is learned from a single reward; name one column.")
    with opened(settings) as (log, engine):
        return embed(log, rewards=model, engine=engine, progress=progress, **_chosen(settings, OF_EMBED))


def _chosen(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The settings of these names that were given."""
    return {name: settings[name] for name in names if settings.get(name) is not None}


def check_output(out: Path, settings: Mapping[str, Any]) -> None:
    """Raise if a file that is read would be overwritten."""
    elsewhere = settings.get("engine") == "spark" or own_log(settings) is not None
    read = [] if elsewhere else [*settings["logs"], *filter(None, [settings.get("catalog")])]
    read = [each for each in read if not is_remote(each)]
    if out.exists() and out.resolve() in [file.resolve() for file in find_files(read)]:
        raise InputError(f"{out} is an input of this command and would be overwritten; give another name with --out.")


def estimators_of(settings: Mapping[str, Any]) -> tuple[list[Estimator], dict[str, Function]]:
    """The named estimators, and the plain functions among them by name."""
    estimators: list[Estimator] = []
    functions: dict[str, Function] = {}
    for text in settings.get("estimator", []):
        for each in [text] if ":" in text else text.split(","):
            name, rest = split_name(each)
            chosen = own_estimator(rest) if is_own(rest) else estimator(rest)
            if isinstance(chosen, Estimator):
                named = chosen if name is None else dataclasses.replace(chosen, name=name)
                estimators.append(_with_inputs(named, settings.get("inputs")))
            elif (label := name or rest) in functions:
                raise InputError(f"two estimators are called {label!r}; name one of them as NAME=module:function.")
            else:
                functions[label] = chosen
    return estimators, functions


def _with_inputs(chosen: Estimator, inputs: str | None) -> Estimator:
    """Apply `--inputs` to an estimator that has this setting, unless it was given its own."""
    fields = {f.name: f for f in dataclasses.fields(chosen)}
    if inputs is None or "inputs" not in fields or vars(chosen)["inputs"] != fields["inputs"].default:
        return chosen
    return dataclasses.replace(chosen, inputs=inputs)  # type: ignore[call-arg]


def _imported_log(text: str) -> Log:
    """The log that `module:object` names, or that it returns if it is a function."""
    log = imported(text)
    if callable(log):
        try:
            with redirect_stdout(sys.stderr):  # its output must not mix with the answer
                log = log()
        except Exception as error:
            raise InputError(f"{text}: the function raised {type(error).__name__}: {error}") from error
    if not isinstance(log, Log):
        raise InputError(
            f"{text} has type {type(log).__name__}; name an op.Log, or a function without arguments that returns one."
        )
    return log


def _diagnostic(text: str) -> Diagnostic:
    """A diagnostic of the user's own; a class is instantiated with its defaults."""
    if ":" not in text:
        raise InputError(f"diagnostic {text!r}: name your own as module:object; the built-in ones always run.")
    diagnostic = imported(text)
    if isinstance(diagnostic, type) and issubclass(diagnostic, Diagnostic):
        diagnostic = made(text, diagnostic, {})
    if not isinstance(diagnostic, Diagnostic):
        raise InputError(f"{text} has type {type(diagnostic).__name__}; give an op.Diagnostic.")
    return diagnostic


def _source(settings: Mapping[str, Any]) -> str | list[str]:
    """One path, which may be the folder of a lake, or several."""
    logs = list(settings["logs"])
    return logs[0] if len(logs) == 1 else logs


def open_log(settings: Mapping[str, Any], source: Any) -> Log:
    """The log that the settings describe."""
    columns = _chosen(settings, OF_FILES)
    if "actions" in columns:
        columns["actions"] = action_space(columns["actions"])
        columns["action"] = _action_columns(columns["action"], columns["actions"])
    columns["action_features"] = columns.pop("features", [])
    if "logging" in columns:
        columns["logging"] = _logging(columns["logging"])
    if "propensity" in columns:
        columns["propensity"] = propensity(columns["propensity"])
    if columns.get("gain", "sum") not in ("sum", "dcg"):
        columns["gain"] = _numbers("gain", columns["gain"], '"sum", "dcg" or numbers, such as 1,0.5,0.3')
    if "reward_range" in columns:
        columns["reward_range"] = tuple(_numbers("reward_range", columns["reward_range"], "two numbers, LOW,HIGH", 2))
    return read_log(source, **columns)


def _action_columns(action: str | list[str], space: ActionSpace | str) -> str | list[str]:
    """The column of the action; for vectors also several, separated by commas on a command line."""
    if isinstance(action, str) and not isinstance(space, str) and space.shape and "," in action:
        return [part.strip() for part in action.split(",")]
    return action


def _numbers(name: str, value: str | float | Sequence[float] | None, what: str, count: int | None = None) -> list[float]:
    """Numbers, separated by commas on a command line; `what` describes them in an error."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, Sequence) else [value]
    try:
        numbers = [float(part) for part in parts if part is not None]
    except (TypeError, ValueError):
        raise InputError(f"{name}: {value!r}; give {what}.") from None
    if count not in (None, len(numbers)):
        raise InputError(f"{name}: {value!r}; give {what}.")
    return numbers


def _named(text: str, position: int) -> tuple[str, str]:
    label, rest = _label(text)
    return ("target" if position == 0 else f"target_{position + 1}") if label is None else label, rest


def _logging(texts: list[str]) -> Policy | EstimatedLogging | dict[str, Policy | EstimatedLogging]:
    """A policy, or `estimate`, `estimate:MODEL`; or one per logger, as LOGGER=POLICY."""
    pairs = [_label(text) for text in texts]
    if len(pairs) == 1 and pairs[0][0] is None:
        return _logging_policy(texts[0])
    named = {label: _logging_policy(text) for label, text in pairs if label is not None}
    if len(named) < len(pairs):
        raise InputError(
            f"logging: {', '.join(texts)}; several policies need the logger of each, once: --logging v1=p_v1 "
            "--logging v2=p_v2."
        )
    return named


def _label(text: str) -> tuple[str | None, str]:
    """The logger in LOGGER=POLICY, or None; and the policy."""
    label, separator, rest = text.partition("=")
    return (label.strip(), rest.strip()) if separator and label and ":" not in label else (None, text)


def _logging_policy(text: str) -> Policy | EstimatedLogging:
    if not _estimates(text):
        return policy(text)
    return EstimatedLogging(text.partition(":")[2] or None)  # type: ignore[arg-type]


def _estimates(logging: str) -> bool:
    return logging.partition(":")[0] == "estimate"

"""Settings of an evaluation as they come from a command line or a TOML file, and how they become objects."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, get_args

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.data.checks import factors
from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.log import Log
from offpolicy.data.sources import read_log
from offpolicy.data.sources.reader import find_files
from offpolicy.data.sources.spark_session import frame_of, session
from offpolicy.engines import Engine, Local, Spark
from offpolicy.estimators import REGISTRY, Estimator
from offpolicy.inference.functionals import Method
from offpolicy.models.embedding_table import EmbeddingTable
from offpolicy.models.posteriors import Categorical, Gaussian, Logistic, Posterior
from offpolicy.models.rewards import AdamW, RewardModel, Ridge, Torch
from offpolicy.policies.base import Policy
from offpolicy.policies.tables import as_policy
from offpolicy.results.evaluation import Evaluation
from offpolicy.results.fitting import embed
from offpolicy.results.job import evaluate

LISTS = ("logs", "context", "reward", "target", "estimator", "features")
SINGLE = (
    "action", "propensity", "logging", "actions", "n_actions", "catalog", "cluster", "row_id", "weight", "by",
    "reward_range", "level", "interval", "cross_fit", "seed", "threads", "memory", "inputs", "engine", "master",
    "remote", "refit", "sensitivity",
)  # fmt: skip


CODE = ("target", "logging", "estimator")
"""Settings that may name an object as module:object."""
ENGINES = ("local", "spark")
WHOLE = ("n_actions", "cross_fit", "seed", "threads")


NEEDED = ("logs", "action", "reward", "target")


def merged(
    config: Path | None, given: Mapping[str, Any], needed: Sequence[str] = NEEDED, imports: Sequence[str] = (),
    code: Sequence[str] = CODE,
) -> dict[str, Any]:  # fmt: skip
    """The file's settings, with those given on the command line in their place. It may name objects of `imports` only.

    Of the settings that may name objects, the command has use for those in `code`; it does not see the others.
    """
    read = {} if config is None else _from_file(config)
    settings = {name: value for name, value in read.items() if name in code or name not in CODE}
    for setting in CODE:
        for text in _texts(settings.get(setting)):
            named = text if setting == "estimator" else _named(text, 0)[1]
            if is_own(named) if setting == "estimator" else ":" in named and not (setting == "logging" and _estimates(text)):
                check_import(f"{config}: {setting}", named, imports)
    settings |= {name: value for name, value in given.items() if value not in (None, [])}
    for name in ("context", "reward", "features"):
        settings[name] = [part.strip() for item in settings.get(name, []) for part in item.split(",") if part.strip()]
    for name in needed:
        if not settings.get(name):
            raise InputError(f"{name}: not given; name it on the command line or in the TOML file.")
    return settings


def check_import(where: str, text: str, allowed: Sequence[str]) -> None:
    """Raise where a file names an object of a module that was not allowed: importing runs code, and users choose that."""
    module = text.partition(":")[0]
    if module not in allowed:
        raise InputError(
            f"{where} names {text!r}, and importing {module!r} runs its code. A file may not choose that: if you trust it, "
            f"add --import {module}, or name the object on the command line."
        )


def _texts(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        read = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: not a readable TOML file: {error}") from None
    settings: dict[str, Any] = {}
    for key, value in read.items():
        name = key.replace("-", "_")
        if name not in (*LISTS, *SINGLE):
            raise InputError(f"{path}: {unknown_name('setting', key, (*LISTS, *SINGLE))}")
        settings[name] = [value] if name in LISTS and isinstance(value, str) else value
        wanted = _wanted(name, settings[name])
        if wanted is not None:
            raise InputError(f"{path}: {key} is {value!r}, but must be {wanted}.")
    return settings


def _wanted(name: str, value: Any) -> str | None:
    """What a setting of a TOML file should have been, where it is not."""
    if name in LISTS:
        good = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return None if good else "text, or a list of text"
    if name == "reward_range":
        return None if isinstance(value, (str, list)) else "a list of two numbers"
    if name == "level":
        return None if isinstance(value, (int, float)) and not isinstance(value, bool) else "a number"
    if name == "memory":
        return None if isinstance(value, (str, int)) and not isinstance(value, bool) else 'text such as "2GB", or bytes'
    if name == "sensitivity":
        return None if isinstance(value, (str, int, float, list)) and not isinstance(value, bool) else "a list of numbers"
    if name == "refit":
        return None if isinstance(value, bool) else "true or false"
    if name in WHOLE:
        return None if isinstance(value, int) and not isinstance(value, bool) else "a whole number"
    return None if isinstance(value, str) else "text"


def run(settings: Mapping[str, Any], progress: bool | None) -> Evaluation:
    """Open the log and evaluate."""
    targets = dict(_named(text, k) for k, text in enumerate(settings["target"]))
    if len(targets) < len(settings["target"]):
        raise InputError("target: two policies have the same name.")
    policies = {name: policy(text) for name, text in targets.items()}
    names = (name for text in settings.get("estimator", []) for name in ([text] if ":" in text else text.split(",")))
    estimators = [_with_inputs(estimator(name.strip()), settings.get("inputs")) for name in names] or None
    if estimators is None and settings.get("inputs"):
        raise InputError("inputs: says what an estimator learns from, so name one with --estimator, such as learned-mips.")
    interval = settings.get("interval", "normal")
    if interval not in get_args(Method):
        raise unknown_name("interval method", interval, get_args(Method))
    refit = bool(settings.get("refit"))
    if refit and interval != "bootstrap":
        raise InputError(
            f"refit: fits again in each draw of a bootstrap, and the interval is {interval}; add --interval bootstrap."
        )
    gammas = _numbers("sensitivity", settings.get("sensitivity"))
    factors(gammas or [1.0])  # before the log is read
    with opened(settings) as (source, engine):
        result = evaluate(
            open_log(settings, source),
            policies,
            estimators,
            level=settings.get("level", 0.95),
            cross_fit=settings.get("cross_fit"),
            seed=settings.get("seed", 0),
            engine=engine,
            memory=settings.get("memory"),
            progress=progress,
        ).with_interval(interval, refit=refit)
        if gammas:
            result = result.with_sensitivity(gammas)
        if refit or gammas:
            result.to_dict()  # both read the log again, while a Spark session of ours is there
    return result


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[tuple[Any, Engine]]:
    """What `read_log` is to read, and the engine that reads it. A Spark session that was started for it is stopped."""
    named = settings.get("engine", "local")
    if named not in ENGINES:
        raise unknown_name("engine", named, ENGINES)
    ignored = [name for name in (("threads",) if named == "spark" else ("master", "remote")) if settings.get(name)]
    if ignored:
        why = "Spark has its own: say --master 'local[4]'" if named == "spark" else "add --engine spark"
        raise InputError(f"{ignored[0]}: has no meaning for the engine {named!r}; {why}.")
    if named == "local":
        yield list(settings["logs"]), Local(threads=settings.get("threads"))
        return
    with session(settings.get("master"), settings.get("remote")) as spark:
        yield frame_of(spark, settings["logs"]), Spark()


def run_embed(settings: Mapping[str, Any], model: Ridge, progress: bool | None) -> EmbeddingTable:
    """Open the log and learn the embedding."""
    if len(settings["reward"]) > 1:
        raise InputError("reward: an embedding is learned from one reward; name one.")
    with opened(settings) as (source, engine):
        log = open_log(settings, source)
        inputs, seed = settings.get("inputs"), settings.get("seed", 0)
        memory = settings.get("memory")
        return embed(log, inputs=inputs, rewards=model, seed=seed, engine=engine, memory=memory, progress=progress)


def check_output(out: Path, settings: Mapping[str, Any]) -> None:
    """Raise where a file that is read would be written over."""
    read = [] if settings.get("engine") == "spark" else [*settings["logs"], *filter(None, [settings.get("catalog")])]
    if out.exists() and out.resolve() in [file.resolve() for file in find_files(read)]:
        raise InputError(f"{out}: is read here, and would be written over; give another name with --out.")


def _with_inputs(chosen: Estimator, inputs: str | None) -> Estimator:
    """`--inputs` holds for every estimator that has such a setting and was not given its own."""
    fields = {f.name: f for f in dataclasses.fields(chosen)}
    if inputs is None or "inputs" not in fields or vars(chosen)["inputs"] != fields["inputs"].default:
        return chosen
    return dataclasses.replace(chosen, inputs=inputs)  # type: ignore[call-arg]


def open_log(settings: Mapping[str, Any], source: Any) -> Log:
    """The log that the settings describe."""
    logging = settings.get("logging")
    return read_log(
        source,
        context=settings["context"],
        action=settings["action"],
        reward=settings["reward"],
        propensity=settings.get("propensity"),
        logging=None if logging is None else _logging(logging),
        actions=settings.get("actions"),
        n_actions=settings.get("n_actions"),
        action_features=settings.get("features", []),
        catalog=settings.get("catalog"),
        cluster=settings.get("cluster"),
        row_id=settings.get("row_id"),
        weight=settings.get("weight"),
        by=settings.get("by"),
        reward_range=_range(settings.get("reward_range")),
    )


def _range(given: str | Sequence[float] | None) -> tuple[float, float] | None:
    if given is None:
        return None
    parts = given.split(",") if isinstance(given, str) else list(given)
    try:
        low, high = map(float, parts)
    except (TypeError, ValueError):
        raise InputError(f"reward_range: {given!r}; give two numbers, LOW,HIGH.") from None
    return low, high


def _numbers(name: str, given: str | float | Sequence[float] | None) -> list[float]:
    """Numbers, separated by commas on a command line."""
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, Sequence) else [given]
    try:
        return [float(part) for part in parts if part is not None]
    except (TypeError, ValueError):
        raise InputError(f"{name}: {given!r}; give numbers, separated by commas, such as 1.2,1.5.") from None


def _named(text: str, position: int) -> tuple[str, str]:
    name, separator, rest = text.partition("=")
    if separator and name:
        return name, rest
    return ("target" if position == 0 else f"target_{position + 1}"), text


def _logging(text: str) -> Policy | EstimatedLogging:
    """A policy, or `estimate`, `estimate:MODEL`."""
    if not _estimates(text):
        return policy(text)
    return EstimatedLogging(text.partition(":")[2] or None)  # type: ignore[arg-type]


def _estimates(logging: str) -> bool:
    return logging.partition(":")[0] == "estimate"


def policy(text: str) -> Policy:
    """A policy from `column`, `pattern_*`, `actions,probabilities` or `module:object`."""
    if ":" in text:
        try:
            return as_policy(imported(text))
        except InputError as error:
            raise InputError(str(error) if text in str(error) else f"{text}: {error}") from None
    if "," in text:
        names = tuple(part.strip() for part in text.split(","))
        if len(names) != 2:
            raise InputError(f"policy {text!r}: a pair of list columns is two names, ACTIONS,PROBABILITIES.")
        return as_policy(names)
    return as_policy(text)


def imported(text: str) -> Any:
    """The object that `module:object` names; modules in the working folder are found, too."""
    module_name, _, attribute = text.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        raise InputError(f"{text}: cannot import {module_name!r} (looked in {Path.cwd()} too): {error}") from None
    except AttributeError:
        names = [name for name in vars(sys.modules[module_name]) if not name.startswith("_")]
        raise InputError(f"{text}: {unknown_name(f'object in {module_name}', attribute, names)}") from None
    except (Exception, SystemExit) as error:
        raise InputError(f"{text}: importing {module_name!r} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    return found


def is_own(text: str) -> bool:
    """Whether an estimator is the user's own, `module:object`, and not one of ours with its settings."""
    module, _, attribute = text.partition(":")
    return plain_name(module) not in _registered() and attribute.replace(".", "_").isidentifier()


def own_estimator(text: str) -> Any:
    """What the user wrote: an estimator, its class, or a function of a log and a policy."""
    with redirect_stdout(sys.stderr):  # what it prints must not mix with the answer
        found = imported(text)
    if isinstance(found, type):
        if not issubclass(found, Estimator):
            raise InputError(f"{text}: is a class; give an object of it, an op.Estimator, or a function of (log, target).")
        try:
            found = found()
        except (TypeError, ValueError) as error:
            raise InputError(f"{text}: cannot be made without settings ({error}); name an object of it.") from None
    if not callable(found) and not isinstance(found, Estimator):
        raise InputError(
            f"{text}: is {type(found).__name__}; give an op.Estimator, or a function of (log, target) that gives a number."
        )
    return found


def plain_name(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _registered() -> dict[str, type[Estimator]]:
    return {plain_name(name): kind for name, kind in REGISTRY.items()}


POSTERIORS: dict[str, type[Posterior]] = {"logistic": Logistic, "gaussian": Gaussian, "categorical": Categorical}
REWARDS: dict[str, type[RewardModel]] = {"ridge": Ridge, "adamw": AdamW, "network": Torch}
WHOLE_NUMBERS = ("cross_fit", "rank", "clusters", "rows", "epochs", "batch", "seed", "neighbours")


def estimator(text: str) -> Estimator:
    """An estimator from its name and settings, those of its posterior and of its reward model among them, or module:object.

    >>> estimator("clipped-ips:clip=10").clip, estimator("dr").name
    (10.0, 'DR')
    >>> estimator("learned-mips:inputs=both,posterior=gaussian,bandwidth=0.3,rank=4").posterior
    Gaussian(bandwidth=0.3, neighbours=None, scale=True)
    """
    if is_own(text):
        found = own_estimator(text)
        if not isinstance(found, Estimator):
            raise InputError(f"{text}: is a function; only `offpolicy bench` takes those. Give an op.Estimator.")
        return found
    name, _, options = text.partition(":")
    kind = _registered().get(plain_name(name))
    if kind is None:
        raise unknown_name("estimator", name, REGISTRY)
    given: dict[str, str] = {}
    for option in filter(None, options.split(",")):
        key, separator, value = option.partition("=")
        if not separator:
            raise InputError(f"estimator {text!r}: {option!r} is no setting; write NAME=VALUE.")
        given[key.strip().replace("-", "_")] = value.strip()
    own = {f.name for f in dataclasses.fields(kind) if f.name not in ("subsets", "candidates", "left_out")}
    parts: dict[str, Any] = {}
    for part, kinds in (("posterior", POSTERIORS), ("rewards", REWARDS)):
        if part in own:
            made = _part(text, part, kinds, given, own)
            parts |= {} if made is None else {part: made}
    unknown = next((key for key in given if key not in own), None)
    every_kind: dict[str, Any] = {**POSTERIORS, **REWARDS}
    other = next((n for n, k in every_kind.items() if unknown in {f.name for f in dataclasses.fields(k)}), None)
    if unknown is not None and other is not None and own & {"posterior", "rewards"}:
        raise InputError(f"estimator {text!r}: {unknown} is a setting of {other}, which is not what is chosen here.")
    if unknown is not None:
        settable: list[Any] = [
            k for part, each in (("posterior", POSTERIORS), ("rewards", REWARDS)) if part in own for k in each.values()
        ]
        every = own | {f.name for k in settable for f in dataclasses.fields(k)}
        raise InputError(f"estimator {text!r}: {unknown_name('setting', unknown, sorted(every))}")
    return kind(**parts, **{key: _value(text, key, value) for key, value in given.items() if key not in parts})


def _part(text: str, part: str, kinds: Mapping[str, type[Any]], given: dict[str, str], own: set[str]) -> Any:
    """A posterior or a reward model, from its name and from settings that belong to one; None where none was given."""
    chosen = given.pop(part, None)
    if part == "posterior" and chosen == "auto":
        return chosen
    if chosen is not None and chosen not in kinds:
        raise InputError(f"estimator {text!r}: {unknown_name(part, chosen, kinds)}")
    candidates = [kinds[chosen]] if chosen is not None else list(kinds.values())
    for kind in candidates:
        settings = {f.name for f in dataclasses.fields(kind)} - own
        used = [key for key in given if key in settings]
        if used or chosen is not None:
            return kind(**{key: _value(text, key, given.pop(key)) for key in used})
    return None


def _value(text: str, key: str, value: str) -> Any:
    """A number, true or false, or a word."""
    if value in ("true", "false"):
        return value == "true"
    try:
        return int(value) if key in WHOLE_NUMBERS else float(value)
    except ValueError:
        if key in WHOLE_NUMBERS or not value[:1].isalpha():
            kind = "a whole number" if key in WHOLE_NUMBERS else "a number"
            raise InputError(f"estimator {text!r}: {key} must be {kind}, not {value!r}.") from None
        return value

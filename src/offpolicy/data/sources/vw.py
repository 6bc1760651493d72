"""`read_vw`: a log of contextual bandits that Vowpal Wabbit reads, in its format dsjson."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from offpolicy.core.errors import InputError, InputWarning, first_line
from offpolicy.data.log import Log
from offpolicy.data.sources.reader import read_log

CHUNK = 16_384


def read_vw(path: str | Path, *, action: str | None = None, **more: Any) -> Log:
    r"""Read a log of Vowpal Wabbit: contextual bandits with action-dependent features, one decision per line (dsjson).

    The reward is −`_label_cost`. The logging policy is in the file: the candidates of each round with their probabilities.
    Rounds that were logged with `pdrop` have weight 1/(1 − pdrop); rounds with `_skipLearn` are not evaluated by Vowpal
    Wabbit, and are left out with a warning that counts them. The table is stored in a temporary file.

    Parameters
    ----------
    path : str or Path
        The file.
    action : str, optional
        The feature that names an action, such as "id" or "Action.id" with its namespace. By default, an action is the text
        of all of its features.
    more : optional
        Further arguments of `read_log`, such as `reward_range`. Columns are the features of the shared context, as
        `namespace.feature`; "event", the id of the event; and "candidates" and "probabilities".

    Returns
    -------
    Log
        With every feature of the shared context as context.

    Raises
    ------
    InputError
        If a line is no decision of a contextual bandit.

    Examples
    --------
    >>> import tempfile
    >>> import offpolicy as op
    >>> lines = [
    ...     '{"_label_cost": -1, "_label_probability": 0.8, "_label_Action": 1, "_labelIndex": 0, "a": [1, 2],'
    ...     ' "p": [0.8, 0.2], "c": {"User": {"age": 30}, "_multi": [{"id": "x"}, {"id": "y"}]}}',
    ...     '{"_label_cost": 0, "_label_probability": 0.5, "_label_Action": 2, "_labelIndex": 1, "a": [2, 1],'
    ...     ' "p": [0.5, 0.5], "c": {"User": {"age": 40}, "_multi": [{"id": "x"}, {"id": "y"}]}}',
    ... ]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.dsjson"
    ...     _ = path.write_text("\n".join(lines))
    ...     log = read_vw(path, action="id")
    >>> log.actions.tolist(), log.schema.context
    (['x', 'y'], ('User.age',))
    """
    file = _File(Path(path), action)
    found = file.scanned()
    if found.skipped:
        warnings.warn(f"{path}: {found.skipped:,} rounds have _skipLearn and are left out.", InputWarning, stacklevel=2)
    reader = pa.RecordBatchReader.from_batches(found.schema, file.batches(found))
    settings = {"context": list(found.types), "logging": ("candidates", "probabilities"), **more}
    if found.dropped:
        settings.setdefault("weight", "weight")
    return read_log(reader, action="action", reward="reward", actions=sorted(found.actions), **settings)


@dataclass
class _Found:
    """What a pass over the file finds: the features of the context with their types, the actions, and counts of rounds."""

    types: dict[str, pa.DataType] = field(default_factory=dict)
    actions: set[str] = field(default_factory=set)
    rounds: int = 0
    skipped: int = 0
    dropped: bool = False

    @property
    def schema(self) -> pa.Schema:
        lists = {"candidates": pa.list_(pa.string()), "probabilities": pa.list_(pa.float64())}
        own = {"action": pa.string(), "reward": pa.float64(), **lists, "weight": pa.float64(), "event": pa.string()}
        return pa.schema({**own, **self.types})


@dataclass(frozen=True)
class _File:
    path: Path
    action: str | None

    def scanned(self) -> _Found:
        found = _Found()
        for number, line in self._lines():
            if line.get("_skipLearn"):
                found.skipped += 1
                continue
            row = self._row(number, line)
            found.rounds += 1
            found.dropped |= row["weight"] != 1
            found.actions.update(row["candidates"])
            for name, value in row["context"].items():
                type_ = pa.string() if isinstance(value, str) else pa.float64()
                if found.types.setdefault(name, type_) != type_:
                    raise InputError(
                        f"{self.path} line {number}: the feature {name} is text in some rounds and a number in others; "
                        "write values of one type."
                    )
        if not found.rounds:
            raise InputError(f"{self.path}: no line is a decision of a contextual bandit.")
        return found

    def batches(self, found: _Found) -> Iterator[pa.RecordBatch]:
        """The rounds as Arrow. Numbers that a round does not have are 0, as in Vowpal Wabbit; text is empty."""
        rows: list[dict[str, Any]] = []
        absent = {name: "" if pa.types.is_string(type_) else 0.0 for name, type_ in found.types.items()}
        for number, line in self._lines():
            if line.get("_skipLearn"):
                continue
            row = self._row(number, line)
            rows.append({**absent, **row.pop("context"), **row})
            if len(rows) == CHUNK:
                yield pa.RecordBatch.from_pylist(rows, found.schema)
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, found.schema)

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        try:
            with self.path.open(encoding="utf-8") as file:
                for number, text in enumerate(file, start=1):
                    if text.strip():
                        yield number, self._parsed(number, text)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise InputError(f"{os.fspath(self.path)}: cannot be read: {reason}.") from None

    def _parsed(self, number: int, text: str) -> dict[str, Any]:
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"{self.path} line {number}: not JSON ({error}).") from None
        if not isinstance(line, dict):
            raise InputError(f"{self.path} line {number}: not a JSON object.")
        return line

    def _row(self, number: int, line: Mapping[str, Any]) -> dict[str, Any]:
        """One round as a row of the table."""
        try:
            shared = dict(line["c"])
            features = shared.pop("_multi")
            order, p = [index(each) - 1 for each in line["a"]], [float(each) for each in line["p"]]
            cost, drop = float(line["_label_cost"]), float(line.get("pdrop", 0.0))
            chosen, propensity = index(line["_label_Action"]) - 1, float(line["_label_probability"])
            names = [self._name(number, features[each]) for each in order]
            context = dict(_flat(shared))
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            if isinstance(error, InputError):
                raise
            reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else first_line(error)
            raise InputError(
                f"{self.path} line {number}: no decision of a contextual bandit with action-dependent features (cb_adf): "
                f"{reason}. It needs _label_cost, _label_probability, _label_Action, a, p, and c with "
                "_multi. (Slates and continuous actions are not read.)"
            ) from None
        if len(order) != len(p) or sorted(order) != list(range(len(features))) or chosen not in order:
            raise InputError(f"{self.path} line {number}: a, p and _multi do not belong together.")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(
                f"{self.path} line {number}: two candidates have the same name, {twice!r}; give the "
                "feature that tells them apart as action=."
            )
        if not np.isclose(p[order.index(chosen)], propensity, rtol=1e-4):
            raise InputError(
                f"{self.path} line {number}: _label_probability is {propensity:g}, and p has {p[order.index(chosen)]:g} for "
                "the action that was taken."
            )
        if not 0 <= drop < 1:
            raise InputError(f"{self.path} line {number}: pdrop is {drop:g}; it is a probability below 1.")
        total = sum(p)
        return {
            "action": names[order.index(chosen)], "reward": -cost, "candidates": names,
            "probabilities": [each / total for each in p] if abs(total - 1) < 1e-3 else p, "weight": 1 / (1 - drop),
            "event": str(line.get("EventId", number)), "context": context,
        }  # fmt: skip

    def _name(self, number: int, features: Any) -> str:
        if not isinstance(features, Mapping):
            raise TypeError(f"an action is an object of JSON, not {json.dumps(features)[:40]}")
        if self.action is None:
            plain = {key: value for key, value in features.items() if not key.startswith("_")}
            return json.dumps(plain, sort_keys=True, ensure_ascii=False)
        named = dict(_flat(features))
        for key, value in named.items():
            if self.action in (key, key.rpartition(".")[2]):
                return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        raise InputError(f"{self.path} line {number}: an action has no feature {self.action!r}; it has {', '.join(named)}.")


def _flat(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Features as Vowpal Wabbit reads them: nested objects are namespaces, flags are 0 or 1, names with _ are settings."""
    if not isinstance(value, Mapping):
        raise TypeError(f"features are an object of JSON, not {json.dumps(value)[:40]}")
    for key, each in value.items():
        if key.startswith("_"):
            continue
        name = f"{before}.{key}" if before else key
        if isinstance(each, Mapping):
            yield from _flat(each, name)
        elif isinstance(each, list):
            for k, item in enumerate(each):
                yield from _flat(item if isinstance(item, Mapping) else {str(k): item}, name)
        elif each is not None:
            yield name, each if isinstance(each, str) else float(each)

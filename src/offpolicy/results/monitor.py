"""`Monitor`: policies watched day by day, with bounds that hold at every look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from offpolicy.core import storage
from offpolicy.core.arrays import LARGEST_NUMBER
from offpolicy.core.describe import described
from offpolicy.core.errors import InputError
from offpolicy.data.checks import is_number, reward_range as checked_range, whole
from offpolicy.data.log import Log
from offpolicy.data.relabelling import extended
from offpolicy.engines.base import Engine
from offpolicy.estimators import IPS, SNIPS, Estimator
from offpolicy.inference.intervals import Interval, checked_level
from offpolicy.policies.base import Policy
from offpolicy.policies.tables import Uniform
from offpolicy.report import plots
from offpolicy.results.evaluate import policies_by_name
from offpolicy.results.evaluation import Evaluation
from offpolicy.results.job import THE_LOG, SequenceRequest
from offpolicy.results.storage import plain
from offpolicy.results.watch_sums import (
    Prepared,
    WatchSettings,
    WatchSums,
    duplicate,
    grown,
    prepared,
    remembered,
)
from offpolicy.scoring.score_histograms import RewardRange

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNDECIDED, BETTER, WORSE = "undecided", "better", "worse"
KIND = "monitor"


@dataclass(frozen=True)
class Watched:
    """One policy at one look.

    Attributes
    ----------
    value, low, high : float
        The estimate, and its bounds at this look. The bounds of all looks hold together.
    difference, difference_low, difference_high : float or None
        The same for the difference from the baseline; None for the baseline itself.
    """

    value: float
    low: float
    high: float
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None


@dataclass(frozen=True)
class Look:
    """One look.

    Attributes
    ----------
    logs, rounds : int
        How many there were.
    policies : mapping of str to Watched
        Each policy by name.
    """

    logs: int
    rounds: int
    policies: Mapping[str, Watched]


@dataclass(frozen=True)
class Decision:
    """Whether a policy is better or worse than the baseline, and since when.

    Attributes
    ----------
    conclusion : str
        "undecided", "better" or "worse". Once it is decided, it stays so.
    rounds, logs : int or None
        How many there were when it was decided.
    """

    conclusion: str = UNDECIDED
    rounds: int | None = None
    logs: int | None = None


class Monitor:
    """Policies watched day by day: fold each new log in, and look whenever you like.

    The bounds hold at every look at once, so that you may stop as soon as a policy is decided. Nothing but sums is kept: the
    result is that of one evaluation of all logs, in whatever order they came. Each log counts once; a log with the same
    rounds as one before is refused.

    Parameters
    ----------
    policies : Policy, function, or dict of these by name
        What is watched, as for `op.evaluate`. It must apply to every log.
    baseline : str, optional
        The policy to compare with; by default what was logged.
    estimators : Estimator or sequence of Estimator, optional
        Estimators that fit nothing: IPS and SNIPS by default, or DR with a reward model that was fitted before. Bounds and
        decisions come from the first that has a confidence sequence.
    level : float, default 0.95
        The probability with which all bounds of a policy hold, at every look; and with which all decisions are right.
    reward_range : tuple of float, optional
        The smallest and the largest possible reward; by default that of the first log, which must then state it.
    weight_bound : float, optional
        The largest possible weight, if it is known without looking at a log; see `Estimate.confidence_sequence`.
    seed : int, default 0
        As for `op.evaluate`.

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Linear(n_actions=5, clicks=True, seed=0)
    >>> watch = op.Monitor({"new": world.target}, reward_range=(0, 1))
    >>> for day in range(3):
    ...     watch.update(world.sample(2_000, seed=day))
    >>> watch.rounds, watch.decisions["new"].conclusion
    (6000, 'better')
    """

    def __init__(  # noqa: PLR0913
        self,
        policies: Any,
        *,
        baseline: str | None = None,
        estimators: Estimator | Sequence[Estimator] | None = None,
        level: float = 0.95,
        reward_range: tuple[float, float] | None = None,
        weight_bound: float | None = None,
        seed: int = 0,
    ) -> None:
        self.policies: dict[str, Policy] = policies_by_name(policies)
        if baseline == THE_LOG and THE_LOG not in self.policies:
            baseline = None
        if baseline is not None and baseline not in self.policies:
            raise InputError(f"baseline is {baseline!r}; name one of the policies: {', '.join(self.policies)}.")
        if weight_bound is not None and not (is_number(weight_bound) and 1 <= weight_bound < LARGEST_NUMBER):
            raise InputError(f"weight_bound is {weight_bound!r}; give the largest possible weight, 1 or more.")
        self.baseline, self.level, self.weight_bound = baseline, checked_level(level), weight_bound
        chosen = [IPS(), SNIPS()] if estimators is None else estimators
        self.estimators: list[Estimator] = [chosen] if isinstance(chosen, Estimator) else list(chosen)
        self.reward_range, self.seed = checked_range(reward_range), whole("seed", seed, -(2**63))
        self.fingerprints: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.looks: tuple[Look, ...] = ()
        self.decisions: dict[str, Decision] = {name: Decision() for name in self.policies if name != baseline}
        self.rounds = 0
        self.sums: WatchSums | None = None

    @property
    def result(self) -> Evaluation:
        """The evaluation of all rounds so far."""
        if self.sums is None:
            raise InputError("the monitor has no rounds yet; give it a log with update().")
        return self.sums.result

    @property
    def logs(self) -> int:
        """How many logs were folded in."""
        return len(self.fingerprints)

    def update_from(self, file: Path, log: Callable[[], Log], *, engine: Engine | None = None) -> bool:
        """Fold in the log of a file, unless it was folded in before; a file that has not changed since is not read again.

        Parameters
        ----------
        file : Path
            The file.
        log : callable
            Opens the log of the file.
        engine : Engine, optional
            As for `op.evaluate`.

        Returns
        -------
        bool
            Whether its rounds are new.
        """
        status = file.stat()
        version = f"{file.resolve()} {status.st_size} {status.st_mtime_ns}"
        if version in self.files:
            return False
        try:
            self.update(log(), engine=engine)
        except KnownLogError as known:
            self.files[version] = known.fingerprint
            return False
        self.files[version] = next(reversed(self.fingerprints))
        return True

    def update(self, log: Log, *, engine: Engine | None = None) -> None:
        """Fold one log in, completely or not at all.

        Parameters
        ----------
        log : Log
            Rounds that were not folded in before.
        engine : Engine, optional
            As for `op.evaluate`.

        Raises
        ------
        InputError
            If the same rounds were folded in before, or the log does not go with those before it.
        """
        if not isinstance(log, Log):
            raise InputError(f"log is a {type(log).__name__}; create a log first, with op.read_log(…) or op.Log(…).")
        if self.sums is not None:
            self.sums.check(log)
        space = log.space if self.sums is None else extended(self.sums.schema.space, log.space)
        scale = self._range(log)
        ready = prepared(log.with_range(scale), space, self.policies, self._settings(scale), engine)
        state = ready.summed()
        mark = ready.fingerprint(state)
        if mark in self.fingerprints:
            raise KnownLogError(log.described, self.fingerprints[mark], mark)
        if self.sums is not None:
            state = ready.merged(grown(duplicate(self.sums.state), self._ready(self.sums).zero(), ready.zero()), state)
        marks, rounds = {**self.fingerprints, mark: log.described}, self.rounds + len(log)
        sums = WatchSums.of(ready, state, rounds, len(marks))
        look, decisions = _looked(self, sums.result, rounds, len(marks))
        # Nothing can fail from here on.
        self.sums, self.reward_range = sums, scale
        self.fingerprints, self.rounds, self.decisions = marks, rounds, decisions
        self.looks = (*self.looks, look)

    def _range(self, log: Log) -> tuple[float, float]:
        """The range of the rewards: that of the monitor, or else of the log."""
        given, stated = self.reward_range, log.reward_range
        if given is not None and stated is not None and given != stated:
            raise InputError(f"reward_range: the log states {stated}, and the monitor has {given}. Give the same for both.")
        if (scale := given or stated) is None:
            raise InputError(
                "bounds that hold at every look need the range that rewards can have; state it as reward_range= of the "
                "monitor or of the log (--reward-range)."
            )
        return scale

    def _settings(self, scale: tuple[float, float]) -> WatchSettings:
        sequences = SequenceRequest(RewardRange(*scale), self.baseline or THE_LOG)
        return WatchSettings(self.estimators, self.level, sequences, self.seed)

    def _ready(self, sums: WatchSums) -> Prepared:
        """What the sums were made with; of a loaded monitor, as far as its file tells."""
        if sums.prepared is not None:
            return sums.prepared
        if not self.policies or self.reward_range is None:
            raise InputError("this needs the policies: load the monitor with Monitor.load(path, policies).")
        return remembered(sums.schema, sums.roles, self.policies, self._settings(self.reward_range))

    def merge(self, other: Monitor) -> Monitor:
        """A monitor of the logs of both, such as of two machines.

        Parameters
        ----------
        other : Monitor
            With the same settings, and without a log in common. Its labels must extend those of this monitor, or the other
            way round: list all labels as `actions=` of the logs.

        Returns
        -------
        Monitor
            A new one, with the looks and decisions of this monitor and a look at all rounds. What the other one decided is
            decided again from all rounds, because the error probability holds for one series of looks.
        """
        if self.settings != other.settings:
            raise InputError(f"the monitors differ in their settings: {self.settings} and {other.settings}.")
        if common := set(self.fingerprints) & set(other.fingerprints):
            raise InputError(f"both monitors contain the same log: {self.fingerprints[min(common)]}.")
        if self.sums is None or other.sums is None:
            return copy(other if self.sums is None else self)
        space = extended(self.sums.schema.space, other.sums.schema.space)
        if space != extended(other.sums.schema.space, self.sums.schema.space):
            raise InputError(
                "the monitors number the actions differently; list all labels as actions= of their logs, in the same order."
            )
        if self.reward_range != other.reward_range:
            raise InputError(
                f"reward_range: one monitor has {self.reward_range}, and the other {other.reward_range}. Give the same for "
                "both."
            )
        larger, smaller = (self.sums, other.sums) if space == self.sums.schema.space else (other.sums, self.sums)
        ready, few = self._ready(larger), self._ready(smaller)
        state = ready.merged(duplicate(larger.state), grown(smaller.state, few.zero(), ready.zero()))
        merged = copy(self)
        merged.rounds, merged.fingerprints = self.rounds + other.rounds, self.fingerprints | other.fingerprints
        merged.files = self.files | other.files
        merged.sums = WatchSums.of(ready, state, merged.rounds, merged.logs)
        look, merged.decisions = _looked(merged, merged.sums.result, merged.rounds, merged.logs)
        merged.looks = (*self.looks, look)
        return merged

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that must agree, as plain values."""
        return {
            "policies": {name: described(policy) for name, policy in self.policies.items()},
            "baseline": self.baseline,
            "estimators": [described(each) for each in self.estimators],
            "level": self.level,
            "weight_bound": self.weight_bound,
            "seed": self.seed,
        }

    def save(self, path: str | Path) -> None:
        """Write the state as one file, completely or not at all; the file names the logs that are in it.

        Parameters
        ----------
        path : str or Path
            The file. It contains sums, labels and numbers, but no rounds and no policies.
        """
        content: dict[str, Any] = {
            "about": self.settings,
            "reward_range": None if self.reward_range is None else list(self.reward_range),
            "fingerprints": self.fingerprints,
            "files": self.files,
            "rounds": self.rounds,
            "looks": [asdict(look) for look in self.looks],
            "decisions": {name: asdict(decision) for name, decision in self.decisions.items()},
        }
        arrays: dict[str, Any] = {}
        if self.sums is not None:
            arrays, more = self.sums.saved()
            content |= more
        stamp = storage.stamp(KIND)
        metadata = {**{name: str(value) for name, value in stamp.items()}, "content": storage.exact(plain(content)).decode()}
        storage.write_arrays(Path(path), arrays, metadata)

    @classmethod
    def load(cls, path: str | Path, policies: Any = None, *, estimators: Any = None) -> Self:
        """Read a monitor from its file.

        Parameters
        ----------
        path : str or Path
            What `save` wrote.
        policies : Policy, function, or dict of these by name, optional
            The policies, which no file contains. Without them there are the result, the looks and the plot, but no update.
        estimators : Estimator or sequence of Estimator, optional
            The estimators, if they are not the default ones.

        Returns
        -------
        Monitor
            As it was when it was saved.

        Raises
        ------
        InputError
            If the file is damaged, or was written with other policies or estimators.
        """
        path = Path(path)
        arrays, metadata = storage.read_arrays(path)
        version = int(metadata["version"]) if str(metadata.get("version", "")).isdigit() else None
        storage.check_stamp(path, KIND, {"format": metadata.get("format"), "version": version})
        content = storage.as_json(path, metadata.get("content", "").encode())
        try:
            return cls._restored(path, content, arrays, policies, estimators)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
            raise storage.damaged(path, f"its content cannot be read ({type(error).__name__}: {error})") from None

    @classmethod
    def _restored(cls, path: Path, content: Any, arrays: Mapping[str, Any], policies: Any, estimators: Any) -> Self:
        about = content["about"]
        again = cls(
            dict.fromkeys(about["policies"], Uniform()) if policies is None else policies,
            baseline=about["baseline"], estimators=estimators, level=about["level"],
            reward_range=None if content["reward_range"] is None else tuple(content["reward_range"]),
            weight_bound=about["weight_bound"], seed=about["seed"],
        )  # fmt: skip
        if policies is None:
            again.policies = {}
        elif plain(again.settings) != about:
            given = plain(again.settings)
            differs = next(name for name, value in given.items() if value != about[name])
            raise InputError(
                f"{path} was saved with other {differs}: {_in_words(about[differs])}, and not {_in_words(given[differs])}. "
                "What is promised for all looks cannot change between them; give the same, or begin another file."
            )
        again.fingerprints, again.rounds = dict(content["fingerprints"]), int(content["rounds"])
        again.files = dict(content["files"])
        again.looks = tuple(
            Look(look["logs"], look["rounds"], {name: Watched(**each) for name, each in look["policies"].items()})
            for look in content["looks"]
        )
        again.decisions = {name: Decision(**each) for name, each in content["decisions"].items()}
        if "schema" in content:
            again.sums = WatchSums.read(arrays, content)
            if again.policies:
                again.sums = again.sums.like(again._ready(again.sums).zero())
        return again

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the difference from the baseline at every look, with its bounds, and when each policy was decided.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return plots.watched(self.to_dict(), ax)

    def to_dict(self) -> dict[str, Any]:
        """The looks and decisions as plain values.

        Returns
        -------
        dict
            Of numbers, text, lists and dicts.
        """
        return {
            "baseline": self.baseline,
            "level": self.level,
            "rounds": self.rounds,
            "logs": self.logs,
            "looks": [asdict(look) for look in self.looks],
            "decisions": {name: asdict(decision) for name, decision in self.decisions.items()},
        }

    def __repr__(self) -> str:
        decided = ", ".join(f"{name}: {decision.conclusion}" for name, decision in self.decisions.items())
        return f"Monitor({self.logs:,} log{'s' * (self.logs != 1)}, {self.rounds:,} rounds; {decided})"


def _in_words(setting: Any) -> str:
    """Policies by name, or estimators."""
    if isinstance(setting, Mapping):
        return ", ".join(f"{name} = {value}" for name, value in setting.items())
    return ", ".join(map(str, setting)) if isinstance(setting, list) else str(setting)


class KnownLogError(InputError):
    """A log that was folded in before."""

    def __init__(self, log: str, before: str, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        super().__init__(f"{log}: the same rounds were folded in before, from {before}; each log counts once.")


def _conclusion(interval: Interval) -> str:
    return BETTER if interval.low > 0 else WORSE if interval.high < 0 else UNDECIDED


def _looked(monitor: Monitor, result: Evaluation, rounds: int, logs: int) -> tuple[Look, dict[str, Decision]]:
    """The bounds of all policies, and what they decide."""
    name = _deciding(monitor, result)
    each = 1 - (1 - monitor.level) / max(len(monitor.decisions), 1)
    watched, decisions = {}, dict(monitor.decisions)
    for policy in result.policies:
        estimate = result[policy, name]
        own = estimate.confidence_sequence(monitor.level, weight_bound=monitor.weight_bound, look=logs)
        if policy == monitor.baseline:
            watched[policy] = Watched(estimate.value, own.low, own.high)
            continue
        logged = (policy, result.logged_estimator)
        difference = result.difference((policy, name), logged if monitor.baseline is None else (monitor.baseline, name))
        apart = difference.confidence_sequence(each, weight_bound=monitor.weight_bound, look=logs)
        watched[policy] = Watched(estimate.value, own.low, own.high, difference.value, apart.low, apart.high)
        if decisions[policy].conclusion == UNDECIDED and (conclusion := _conclusion(apart)) != UNDECIDED:
            decisions[policy] = Decision(conclusion, rounds, logs)
    return Look(logs, rounds, watched), decisions


def _deciding(monitor: Monitor, result: Evaluation) -> str:
    """The first estimator that has a confidence sequence."""
    for estimator in monitor.estimators:
        if estimator.name != result.logged_estimator and all(
            (evidence := result[policy, estimator.name].evidence) is not None and evidence.scores is not None
            for policy in result.policies
        ):
            return estimator.name
    raise InputError(
        "estimators: none of them has a confidence sequence; add op.IPS(), or op.DR with a reward model that was fitted "
        "before."
    )

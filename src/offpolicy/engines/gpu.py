"""The engine for one GPU: the log streams through threads of this machine, and a device sums over the actions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from offpolicy.core.device import Device, Precision
from offpolicy.core.threads import cores
from offpolicy.data.batch import pieces
from offpolicy.data.log import Log
from offpolicy.engines.base import BATCH_ROWS, Engine, Progress
from offpolicy.engines.local import Local
from offpolicy.statistics.base import Statistic

ENOUGH_THREADS = 8
"""More would wait for each other: what they do between two calls of the device takes turns."""


@dataclass(frozen=True)
class GPU(Engine):
    """The engine for one GPU: exact sums over very many actions, without an array of rounds × actions.

    It computes policies that are softmaxes of products (`op.Softmax` of an `op.TwoTower` or of a matrix) for estimators that
    weight by actions or by `op.Gaussian()` embeddings and for linear reward models, such as SNIPS, DM, DR, LearnedMIPS and
    LearnedMDR. Other policies and estimators are evaluated as by `op.Local`; the result says so.

    Parameters
    ----------
    device : str, default "cuda"
        A device of PyTorch: "cuda", "cuda:1" and so on; "cpu" runs the same code without a GPU.
    precision : {"tf32", "high", "float64"}, default "tf32"
        "tf32" rounds the factors of products to 11 significant bits, as TF32 does, and is the fastest by far; "high" keeps
        22 bits; "float64" computes everything in double precision. On CPU tensors the first two are single precision. The
        result reports the largest error of a weight, against float64, in the first 512 rounds.
    threads : int, optional
        How many threads read the log; by default one per core, but at most 8.

    Raises
    ------
    InputError
        If PyTorch or the device is missing, or a setting is out of range.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log([[0.0], [1.0]], [0, 1], [1.0, 0.0], propensity=[0.5, 0.5])
    >>> policy = op.Softmax([[0.0, 1.0]])
    >>> engine = op.GPU("cpu", precision="float64")  # doctest: +SKIP
    >>> op.evaluate(log, policy, [op.SNIPS()], engine=engine)["SNIPS"].value  # doctest: +SKIP
    0.406...
    """

    device: str = "cuda"
    precision: Precision = "tf32"
    threads: int | None = None

    def __post_init__(self) -> None:
        self.accelerator.check()
        Local(self.threads)

    @property
    def accelerator(self) -> Device:
        return Device(self.device, self.precision)

    @property
    def packages(self) -> tuple[str, ...]:
        return ("torch", "triton")

    def on_one_thread(self) -> GPU:
        return replace(self, threads=1)

    def check(self, log: Log) -> None:
        Local(self.threads).check(log)

    def reduce(self, log: Log, statistic: Statistic, progress: Progress | None = None) -> Any:
        # One state per batch rather than per partition, so that all threads prepare batches while the device computes.
        parts = pieces(log.partitions(statistic.columns), statistic.batch_rows or BATCH_ROWS)
        with self.accelerator.one_thread():
            return Local(self.threads or min(cores(), ENOUGH_THREADS)).reduce_partitions(parts, statistic, progress)

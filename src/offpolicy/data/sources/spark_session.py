"""A Spark session for the command line, its logs as a DataFrame, and Spark's errors in our words."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from offpolicy.core.errors import InputError
from offpolicy.core.threads import cores
from offpolicy.data.sources.files import find_files, partition_columns

THEIRS = ("pyspark", "py4j", "grpc")
MASTERS = r"local(\[(\d+|\*)(,\s*\d+)?\]|-cluster\[.*\])?|yarn|(spark|k8s)://.+"
RETRIES = 4
"""How often a task is tried on this machine before the pass fails; the default of Spark on clusters."""


@contextmanager
def session(master: str | None, remote: str | None) -> Iterator[Any]:
    """A session on a master (by default this machine) or on a Connect server; it is stopped at the end."""
    if master is not None and remote is not None:
        raise InputError("master, remote: give one of the two; a Connect server has its own master.")
    if master is not None and not re.fullmatch(MASTERS, master):
        raise InputError(
            f"master: {master!r} is not a Spark master; give local[4], local[4,4] (with retries), yarn, spark://HOST:PORT "
            "or k8s://…"
        )
    if remote is not None:
        _check_listening(remote)
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise InputError(f"Spark needs PySpark 4 ({error.msg}): pip install 'offpolicy[spark]'.") from None
    handler = signal.getsignal(signal.SIGINT)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers on this machine: the Python that has offpolicy
    builder = SparkSession.builder.appName("offpolicy")
    try:
        if remote is not None:
            spark = builder.remote(remote).getOrCreate()
            _ = spark.version  # fails here if there is no server
        else:
            builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
            spark = builder.master(master or f"local[{cores()},{RETRIES}]").getOrCreate()
            spark.sparkContext.setLogLevel("ERROR")
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, handler)  # PySpark installs its own, which ends in a traceback
    except Exception as error:
        raise InputError(_unreachable(master, remote, error)) from error
    try:
        yield spark
    finally:
        spark.stop()


def _unreachable(master: str | None, remote: str | None, error: Exception) -> str:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    if remote is not None:
        return f"remote: no Spark Connect server answers at {remote} ({reason})."
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java" if home is None else os.path.join(home, "bin", "java")) is None:  # noqa: PTH118
        return f"Spark needs Java 17 or newer, which was not found: install it, or set JAVA_HOME ({reason})."
    causes = [line.strip() for line in str(error).splitlines() if "Exception:" in line]
    return (
        f"master: Spark does not start on {master or 'this machine'} ({next(iter(causes), reason)}). Its own messages are "
        "above; it needs Java 17 or newer and a master that answers."
    )


def _check_listening(remote: str) -> None:
    """Raise if no server listens; PySpark would retry for many minutes."""
    address = urlparse(remote)
    if address.scheme != "sc" or not address.hostname:
        raise InputError(f"remote: {remote!r} is not the address of a Spark Connect server; give sc://HOST:15002.")
    try:
        socket.create_connection((address.hostname, address.port or 15002), timeout=10).close()
    except (OSError, ValueError) as error:
        raise InputError(f"remote: no Spark Connect server answers at {remote} ({error}).") from None


def frame_of(spark: Any, logs: Sequence[str]) -> Any:
    """Parquet files, folders and globs as one DataFrame. Spark finds them itself, since it may see other disks."""
    from pyspark.errors import AnalysisException

    if any(log.lower().endswith((".csv", ".csv.gz")) for log in logs):
        raise InputError(
            "logs: with Spark, logs must be Parquet. Convert the CSV files to Parquet first, or leave out --engine spark."
        )
    files = [file for log in logs if Path(log).exists() for file in find_files(log)]
    reader = spark.read.option("pathGlobFilter", "*.{parquet,pq}")
    if not any(partition_columns(files)):  # else Spark finds the partitions, which this option would hide
        reader = reader.option("recursiveFileLookup", "true")
    try:
        frame = reader.parquet(*map(_addressed, logs))
        _ = frame.schema
    except AnalysisException as error:
        raise InputError(f"logs: {next(iter(str(error).splitlines()), 'Spark cannot read them')}") from None
    return frame


def _addressed(log: str) -> str:
    """Relative paths start at the working folder of this process, which a server does not know."""
    return log if "://" in log else os.path.abspath(log)  # noqa: PTH100  (a glob is not a path)


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn Spark's errors into ours: the line that states what happened, with the rest as the cause."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.split(".")[0] not in THEIRS:
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        python = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
        reason = next(iter([*python[:1], *lines]), type(error).__name__)
        if any(f"No module named '{name}'" in reason for name in ("offpolicy", "numpy", "pyarrow")):
            reason = (
                f"the Python of Spark's workers lacks offpolicy ({reason}). Install it there, or start the session (or the "
                "Connect server) with PYSPARK_PYTHON or spark.pyspark.python set to a Python that has it"
            )
        raise InputError(f"Spark could not read the log: {reason.rstrip('.')}.") from error

"""Spark for the tests: where there is Java 17, a classic session in this process and a Connect server in one of its own."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

REQUIRED = os.environ.get("OFFPOLICY_SPARK") == "required"
QUIET = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
OWN_WARNINGS = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


@cache
def missing() -> str | None:
    """What Spark lacks here, or None."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: make spark, or pip install 'offpolicy[spark]'"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return "Spark needs Java 17 or newer, and there is no java here (docs/spark.md)"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        return f"Spark needs Java 17 or newer; here it is {said.splitlines()[:1]}"
    return None


NEEDS_SPARK = pytest.mark.skipif(not REQUIRED and missing() is not None, reason=missing() or "")


def worker_path() -> str:
    """Where workers find the package and the parts of one's own that the tests define."""
    root = Path(__file__).parent.parent.parent
    return os.pathsep.join([str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")])


@cache
def classic() -> Any:
    """A session whose tasks are tried four times."""
    assert missing() is None, missing()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = worker_path()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,4]")
    for name, value in QUIET.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    atexit.register(session.stop)
    return session


@cache
def connect() -> Any:
    """A session on a Connect server that runs as a process of its own."""
    address = f"sc://127.0.0.1:{server()}"
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(address).create()
    atexit.register(session.stop)
    return session


@cache
def server() -> int:
    """The port of the Connect server, which is started here and stopped at the end."""
    assert missing() is None, missing()
    import pyspark

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    settings = {
        **QUIET, "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.log.level": "OFF",
    }  # fmt: skip
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2,4]",
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
    ]  # fmt: skip
    scratch = tempfile.mkdtemp()
    process = subprocess.Popen(
        command, env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": worker_path()}, cwd=scratch,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip

    def stop() -> None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
        shutil.rmtree(scratch)

    atexit.register(stop)
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return port
        assert process.poll() is None, "the Connect server did not start"
        time.sleep(0.1)
    raise AssertionError("the Connect server does not answer")


SESSIONS = {"spark": classic, "connect": connect}

"""An S3 server for the tests: moto's, in a process of its own, on the loopback; and which extras are required here."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs as pa_fs
import pytest

REQUIRED = os.environ.get("OFFPOLICY_PLACES") == "required"


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skip a test without these modules, unless they are required."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    reason = f"{', '.join(missing)}: not installed (make places)"
    return pytest.mark.skipif(bool(missing) and not REQUIRED, reason=reason)


@dataclass
class Server:
    """A running server. `kill` ends it at once."""

    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def filesystem(self) -> Any:
        host = f"127.0.0.1:{self.port}"
        retries = pa_fs.AwsStandardS3RetryStrategy(max_attempts=1)
        return pa_fs.S3FileSystem(
            access_key="test", secret_key="test", endpoint_override=host, scheme="http", region="us-east-1",
            allow_bucket_creation=True, retry_strategy=retries,
        )  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        """What a user sets to reach it."""
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        return {**keys, "AWS_ENDPOINT_URL": self.url, "AWS_REGION": "us-east-1"}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """A server with an empty bucket `logs`, on a free port."""
    log = (folder / "server.log").open("w+")
    code = "from moto.server import main; main(['-H', '127.0.0.1', '-p', '0'])"
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stdout=log, stderr=log, text=True)
    try:
        for _ in range(600):
            found = re.search(r"http://127\.0\.0\.1:(\d+)", (folder / "server.log").read_text())
            if found or process.poll() is not None:
                break
            time.sleep(0.1)
        assert found, (folder / "server.log").read_text()
        server = Server(process, int(found[1]))
        server.filesystem.create_dir("logs")
        yield server
    finally:
        process.kill()
        process.wait()
        log.close()

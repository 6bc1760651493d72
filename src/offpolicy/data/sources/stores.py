"""Object stores and web servers: the files that an address stands for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import translate
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pa_fs

from offpolicy.core.errors import InputError, first_line
from offpolicy.data.sources.files import CSV, PARQUET, URL

OF_ARROW = ("s3", "s3a", "gs", "gcs", "abfs", "abfss")
OF_FSSPEC = ("http", "https")
SCHEMES = (*OF_ARROW, *OF_FSSPEC)
OPENED_WITH_STATE = ("s3", "abfs")
"""Stores whose files come with their time of change. (Arrow would ask others for it, with every thread blocked.)"""
S3_ATTEMPTS, S3_SECONDS, GS_SECONDS = 3, 30, 30


def is_remote(source: Any) -> bool:
    """Whether a log is given as one or several addresses of remote files."""
    several = source if isinstance(source, (list, tuple)) else [source]
    schemes = [URL.match(each) if isinstance(each, str) else None for each in several]
    remote = [found is not None and found[1].lower() in SCHEMES for found in schemes]
    if any(remote) and not all(remote):
        raise InputError(
            f"{several[remote.index(True)]}: addresses and other sources cannot be mixed in one log; copy the files to one "
            "place."
        )
    return any(remote)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a store, with its state when it was found."""

    filesystem: pa_fs.FileSystem = field(compare=False)
    key: str
    url: str
    size: int | None
    changed: int | None

    @property
    def path(self) -> PurePosixPath:
        """Its name and its folders. (The key itself may have empty parts.)"""
        return PurePosixPath("/" + self.key)

    def check(self) -> None:
        """Raise if the file is another one than when it was found."""
        now = self.filesystem.get_file_info(self.key)
        if now.type is pa_fs.FileType.NotFound:
            raise self._gone()
        self._compare(now.size, now.mtime_ns)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The file for reading at any place. Raise if it is another one than when it was found."""
        try:
            file = self.filesystem.open_input_file(self.key)
        except FileNotFoundError:
            raise self._gone() from None
        with file:
            modified = _modified(file.metadata()) if self.filesystem.type_name in OPENED_WITH_STATE else None
            if modified is None:
                self.check()
            else:
                self._compare(file.size(), modified)
            yield file

    def _compare(self, size: int | None, changed: int | None) -> None:
        """Raise if the state differs. (Times are compared in seconds: stores list them with more digits than they send.)"""
        seconds = [None if each is None else each // 1_000_000_000 for each in (changed, self.changed)]
        if size != self.size or seconds[0] != seconds[1]:
            raise InputError(f"{self.url} changed after the log was opened. Open the log again.")

    def _gone(self) -> InputError:
        return InputError(f"{self.url} was deleted or moved after the log was opened. Restore it and open the log again.")


def _modified(metadata: Mapping[bytes | str, bytes] | None) -> int | None:
    """The time of the last change that came with an opened file, in nanoseconds; None if the store does not send it."""
    text = (metadata or {}).get("Last-Modified", b"").decode()
    try:
        return int(datetime.fromisoformat(text).timestamp()) * 1_000_000_000
    except ValueError:
        return None


def find_remote(source: Any) -> list[RemoteFile]:
    """The files of an address, a folder, a glob or a list of them, sorted and without repeats."""
    several = source if isinstance(source, (list, tuple)) else [source]
    found = {file.url: file for each in several for file in _found(str(each))}
    return [found[url] for url in sorted(found)]


def _found(url: str) -> list[RemoteFile]:
    store = _store(url, url.partition(":")[0].lower())
    filesystem, path = store.filesystem, store.path

    def listed(info: pa_fs.FileInfo) -> RemoteFile:
        return RemoteFile(filesystem, info.path, store.address(info.path), info.size, info.mtime_ns)

    try:
        folder = re.split(r"/[^/]*[*?\[]", path)[0]
        if folder == path:
            info = filesystem.get_file_info(path)
            if info.type is pa_fs.FileType.File:
                return [listed(info)]
            pattern = None if info.type is pa_fs.FileType.Directory else ""
        else:
            pattern = path
        if pattern == "":
            raise InputError(
                f"{url}: no such file or folder. Check the address, and that the credentials may list it: some stores do "
                "not tell what is forbidden from what is missing."
            )
        infos = filesystem.get_file_info(pa_fs.FileSelector(folder, recursive=True))
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{url}: cannot be listed: {first_line(error)}. Check the address, the network and the credentials (the "
            "store's usual environment variables or files)."
        ) from error
    files = [info for info in infos if info.type is pa_fs.FileType.File and _wanted(info.path, folder, pattern)]
    if not files:
        what = "the folder contains no Parquet or CSV files" if pattern is None else "no file matches this pattern"
        raise InputError(f"{url}: {what}.")
    lakes = [info.path for info in infos if "/_delta_log/" in info.path or info.path.endswith(".metadata.json")]
    if lakes and pattern is None:
        raise InputError(
            f"{url} is a Delta or Iceberg table ({lakes[0]}), whose Parquet files also contain deleted rows. Pass the table "
            f"itself: op.read_log(deltalake.DeltaTable({url!r}), …), or a table of a pyiceberg catalog."
        )
    return [listed(info) for info in files]


def _wanted(path: str, folder: str, pattern: str | None) -> bool:
    """Whether a file belongs to a folder, or matches a glob, in which `**` stands for any folders."""
    if pattern is None:
        rest = PurePosixPath(path).relative_to(folder).parts
        return path.lower().endswith((*PARQUET, *CSV)) and not any(part.startswith((".", "_")) for part in rest)
    pieces = (".*" if piece == "**" else re.sub(r"\.\*", "[^/]*", translate(piece)[4:-3]) for piece in pattern.split("/"))
    return re.fullmatch("/".join(pieces).replace("/.*/", "/(?:.*/)?"), path, re.DOTALL) is not None


@dataclass(frozen=True)
class ObjectStore:
    """A store, the path of an address in it, and how the addresses of its files begin, instead of `dropped`."""

    filesystem: pa_fs.FileSystem
    path: str
    prefix: str
    dropped: str = ""

    def address(self, key: str) -> str:
        """The address of a file, for messages."""
        return self.prefix + key.removeprefix(self.dropped)


def _store(url: str, scheme: str) -> ObjectStore:
    """The store of an address. Credentials come from the usual environment."""
    try:
        if scheme in ("s3", "s3a"):
            return ObjectStore(_s3(), unquote(url.partition("://")[2]), f"{scheme}://")
        if scheme in ("gs", "gcs"):
            return _gs(url, scheme)
        if scheme in ("abfs", "abfss"):
            return _azure(url, scheme)
        import fsspec  # type: ignore[import-untyped]

        return ObjectStore(pa_fs.PyFileSystem(pa_fs.FSSpecHandler(fsspec.filesystem(scheme))), url, "")
    except ImportError as error:
        raise InputError(f"{url}: needs {error.name or 'fsspec'}; pip install 'offpolicy[remote]'.") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{url}: cannot be opened: {first_line(error)}.") from error


def _gs(url: str, scheme: str) -> ObjectStore:
    """Google Cloud Storage, or the emulator of the environment, as Google's own libraries find it."""
    if emulator := os.environ.get("STORAGE_EMULATOR_HOST"):
        protocol, _, host = emulator.rpartition("://")
        settings = {"anonymous": True, "scheme": protocol or "http", "endpoint_override": host.rstrip("/")}
        filesystem = pa_fs.GcsFileSystem(retry_time_limit=timedelta(seconds=GS_SECONDS), **settings)
        return ObjectStore(filesystem, unquote(url.partition("://")[2]), f"{scheme}://")
    filesystem, path = pa_fs.FileSystem.from_uri(url if "?" in url else f"{url}?retry_limit_seconds={GS_SECONDS}")
    return ObjectStore(filesystem, path, f"{scheme}://")


def _azure(url: str, scheme: str) -> ObjectStore:
    """Azure with the key or token of the environment, as Azure's own tools read them, or its default credentials."""
    container, at, rest = url.partition("://")[2].partition("@")
    host, _, inside = rest.partition("/")
    if not at:
        filesystem, path = pa_fs.FileSystem.from_uri(url)
        return ObjectStore(filesystem, path, f"{scheme}://")
    prefix, dropped = f"{scheme}://{container}@{host}/", f"{container}/"
    settings = _azure_settings()
    if not settings:
        filesystem, path = pa_fs.FileSystem.from_uri(url)
        return ObjectStore(filesystem, path, prefix, dropped)
    filesystem = pa_fs.AzureFileSystem(host.partition(".")[0], **settings)
    return ObjectStore(filesystem, unquote(f"{container}/{inside}").rstrip("/"), prefix, dropped)


def _azure_settings() -> dict[str, str]:
    """The arguments of Arrow's file system for the variables AZURE_STORAGE_….

    >>> os.environ["AZURE_STORAGE_CONNECTION_STRING"] = "AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1"
    >>> _azure_settings()["blob_storage_authority"], _azure_settings()["account_key"]
    ('127.0.0.1:10000', 'a2V5')
    >>> del os.environ["AZURE_STORAGE_CONNECTION_STRING"]
    """
    pairs = (pair.partition("=") for pair in os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";"))
    given = {name.strip(): value.strip() for name, _, value in pairs}
    found = {
        "account_key": os.environ.get("AZURE_STORAGE_KEY") or given.get("AccountKey"),
        "sas_token": os.environ.get("AZURE_STORAGE_SAS_TOKEN") or given.get("SharedAccessSignature"),
    }
    if endpoint := given.get("BlobEndpoint"):
        protocol, _, place = endpoint.rpartition("://")
        for kind in ("blob", "dfs"):
            found |= {f"{kind}_storage_authority": place.partition("/")[0], f"{kind}_storage_scheme": protocol or "https"}
    return {name: value for name, value in found.items() if value}


def _s3() -> pa_fs.S3FileSystem:
    """S3 with the endpoint and the region of the environment, as the tools of AWS read them."""
    settings: dict[str, Any] = {}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        scheme, _, host = endpoint.rpartition("://")
        settings |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        settings["region"] = region
    return pa_fs.S3FileSystem(
        retry_strategy=pa_fs.AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS), connect_timeout=S3_SECONDS,
        request_timeout=S3_SECONDS, **settings,
    )  # fmt: skip

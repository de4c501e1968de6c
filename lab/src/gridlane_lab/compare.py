"""Whether what arrived is what was sent: outside of every time that is measured, and a phase of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gridlane_lab.endpoint_files import run_gridlane
from gridlane_lab.shelf import sha256_of


@dataclass(frozen=True)
class Comparison:
    """The target of one transfer."""

    # None: it is not there.
    size_bytes: int | None
    is_same: bool | None
    seconds: float
    # Blocks of the file system.
    file_system_bytes: int | None
    trouble: str = ""


class Comparer:
    """Compares in threads of its own. Those `is_beside` transfers take what CPU time these leave,
    and remove the target."""

    def __init__(self, is_beside: bool, gridlane: str | None = None) -> None:
        self._is_beside = is_beside
        self._gridlane = gridlane
        workers = 1 if is_beside else min(4, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(workers, initializer=_be_nice if is_beside else None)

    def file(self, path: Path, sha256: str) -> Future[Comparison]:
        """A file of this machine."""
        return self._pool.submit(self._file, path, sha256)

    def url(self, url: str, sha256: str) -> Future[Comparison]:
        """A file at a real endpoint, which is fetched, compared and removed there."""
        return self._pool.submit(self._url, url, sha256)

    def close(self) -> None:
        """Waits for what is being compared, and begins nothing more."""
        self._pool.shutdown(cancel_futures=True)

    def _file(self, path: Path, sha256: str) -> Comparison:
        began = time.monotonic()
        try:
            facts = path.stat()
            is_same = sha256_of(path) == sha256
        except FileNotFoundError:
            return Comparison(None, False, time.monotonic() - began, None)
        except OSError as error:
            return Comparison(None, None, time.monotonic() - began, None, f"{path}: {error.strerror}")
        found = Comparison(facts.st_size, is_same, time.monotonic() - began, facts.st_blocks * 512)
        if self._is_beside:
            path.unlink(missing_ok=True)
        return found

    def _url(self, url: str, sha256: str) -> Comparison:
        began = time.monotonic()
        if self._gridlane is None:
            return Comparison(None, None, 0.0, None, "there is no gridlane to fetch it with")
        directory = Path(tempfile.mkdtemp(prefix="gridlane-lab-"))
        try:
            path = directory / "fetched"
            code, said = run_gridlane(self._gridlane, "cp", url, str(path))
            if code:
                return Comparison(None, None, time.monotonic() - began, None, f"{url} cannot be fetched: {said}")
            size, is_same = path.stat().st_size, sha256_of(path) == sha256
            run_gridlane(self._gridlane, "rm", url)
            return Comparison(size, is_same, time.monotonic() - began, None)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _be_nice() -> None:
    # Linux: of this thread alone.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def bytes_below(directory: Path | None) -> int | None:
    """What has arrived in a directory so far, by blocks of the file system: holes are no bytes."""
    if directory is None or not directory.is_dir():
        return None
    total = 0
    for path in directory.rglob("*"):
        try:
            facts = path.stat()
        except OSError:
            continue
        if path.is_file():
            total += min(facts.st_blocks * 512, facts.st_size)
    return total

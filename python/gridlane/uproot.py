"""A source handler for uproot: `uproot.open(url, handler=gridlane.uproot.Source)`.

uproot's own sources join and cut the ranges that it wants by fixed rules; this one hands all of them to the reader in one call,
and fills each chunk the moment its bytes are there, so that the first baskets are decompressed while the last ones are on their
way.

Options beside uproot's own are those of `gridlane.open`: `policy`, `memory`, `budget`, `lanes`, and `client` or credentials.
uproot's `timeout` is the time without a byte after which a read fails.
"""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from typing import Any, Optional, Union

import uproot
import uproot.source.chunk
import uproot.source.futures

from ._client import split
from ._gridlane import Ranges, shown
from ._views import view
from .file import File

__all__ = ["Source"]


class Source(uproot.source.chunk.Source):  # type: ignore[misc]
    """A remote ROOT file. Several replicas of it are given as a list in `replicas`."""

    def __init__(
        self, file_path: str, *, replicas: Union[tuple[str, ...], list[str]] = (), **options: Any
    ) -> None:
        super().__init__()
        own = {name: value for name, value in options.items() if name not in uproot.reading.open.defaults}
        timeout = options.get("timeout")
        if timeout is not None:
            own.setdefault("patience", float(timeout))
        self._client, self._opening = split(own)
        self._sources = [file_path, *replicas]
        self._file_path = file_path
        self._file: Optional[File] = None
        self._open()

    def _open(self) -> None:
        self._file = self._client.open(self._sources, **self._opening)
        self._num_bytes = self._file.size

    def _opened(self) -> File:
        if self._file is None or self._file.closed:
            raise OSError(f"file {shown(self._file_path)} is closed")
        return self._file

    def __repr__(self) -> str:
        return f"<gridlane.uproot.Source {shown(self._file_path)!r}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None, "_was_open": not self.closed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        was_open = state.pop("_was_open")
        self.__dict__ = state
        if was_open:
            self._open()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def closed(self) -> bool:
        """True after it was closed."""
        return self._file is None or self._file.closed

    @property
    def file(self) -> File:
        """The open file, with its `explain`."""
        return self._opened()

    def chunk(self, start: int, stop: int) -> uproot.source.chunk.Chunk:
        """Reads one range."""
        file = self._opened()
        self._count([(start, stop)])
        (found,) = file.readv([_range(start, stop)], copy=False)
        return uproot.source.chunk.Chunk(self, start, stop, uproot.source.futures.TrivialFuture(found))

    def chunks(
        self, ranges: list[tuple[int, int]], notifications: queue.Queue[uproot.source.chunk.Chunk]
    ) -> list[uproot.source.chunk.Chunk]:
        """Begins to read ranges. Each chunk is put on `notifications` once: when it is filled, or has failed."""
        file = self._opened()
        self._count(ranges)
        if not ranges:
            return []
        futures: list[concurrent.futures.Future[Any]] = []
        chunks = []
        for start, stop in ranges:
            future: concurrent.futures.Future[Any] = concurrent.futures.Future()
            chunk = uproot.source.chunk.Chunk(self, start, stop, future)
            future.add_done_callback(uproot.source.chunk.notifier(chunk, notifications))
            futures.append(future)
            chunks.append(chunk)
        reading = file._open().ranges([_range(start, stop) for start, stop in ranges], file._timeout)
        # Not one of the runtime's threads: what uproot does in a callback is Python.
        threading.Thread(target=_fill, args=(reading, futures), name="gridlane-chunks", daemon=True).start()
        return chunks

    def _count(self, ranges: list[tuple[int, int]]) -> None:
        self._num_requests += 1
        self._num_requested_chunks += len(ranges)
        self._num_requested_bytes += sum(stop - start for start, stop in ranges)


def _range(start: int, stop: int) -> tuple[int, int]:
    return start, max(0, stop - start)


def _fill(reading: Ranges, futures: list[concurrent.futures.Future[Any]]) -> None:
    """Fills the chunks of a call as their bytes come."""
    failure: BaseException = OSError("the read ended before all chunks were there")
    try:
        while True:
            ready = reading.next()
            if not ready:
                break
            for index, buffer in ready:
                if not futures[index].done():
                    futures[index].set_result(view(buffer))
    except BaseException as error:
        failure = error
    # Whoever waits for the others would do so for ever.
    for future in futures:
        if not future.done():
            future.set_exception(failure)

"""Files: a remote one that is read, and one that is written and then sent."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _gridlane
from ._jobs import finish
from ._views import view

if TYPE_CHECKING:
    from ._client import Client

# What a look ahead for the end of a line brings: it is in memory afterwards.
_PEEK_BYTES = 64 * 1024
# A file that is written is in memory up to here, and in a temporary file beyond.
_SPOOLED_BYTES = 32 * 1024 * 1024
# The options of an opening beside `timeout`.
OPENING = ("policy", "memory", "budget", "lanes", "patience")

Range = tuple[int, int]


class File(io.RawIOBase):
    """A remote file that is open for reading: what a file of this machine has, and `pread` and `readv` for many threads.

    Bytes are brought by the reader, which decides by what it measures what to fetch, when, and how much ahead; `explain` tells.
    Threads may share it, a pickle opens it again where it is loaded, and so does the child of a fork.
    """

    mode = "rb"

    def __init__(
        self,
        sources: Sequence[str],
        *,
        client: Client,
        timeout: Optional[float] = None,
        _native: Optional[_gridlane.File] = None,
        **opening: Any,
    ) -> None:
        super().__init__()
        unknown = [name for name in opening if name not in OPENING]
        if unknown:
            raise TypeError(f"open has no option {unknown[0]!r}")
        self._sources = list(sources)
        self._client = client
        self._timeout = timeout
        self._opening = opening
        self._position = _gridlane.Position()
        self._native: Optional[_gridlane.File] = None
        if _native is None:
            _native = client._native.open(self._sources, **opening).wait()
        self._native = _native
        self._size: int = _native.size

    @classmethod
    async def _opened(
        cls, sources: Sequence[str], *, client: Client, timeout: Optional[float] = None, **opening: Any
    ) -> File:
        """Opens a file in an event loop."""
        native = await finish(client._native.open(list(sources), **opening))
        return cls(sources, client=client, timeout=timeout, _native=native, **opening)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._size} bytes"
        return f"<gridlane.File {self._shown!r}, {state}>"

    def __reduce__(self) -> Any:
        if self.closed:
            raise ValueError("a closed file cannot be pickled")
        return _again, (
            type(self),
            self._sources,
            self._client,
            self._timeout,
            self._opening,
            self._position.tell(),
        )

    @property
    def name(self) -> str:
        """Its first URL."""
        return self._sources[0]

    @property
    def _shown(self) -> str:
        """Its first URL without secrets, for messages."""
        return _gridlane.shown(self._sources[0])

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    def __len__(self) -> int:
        return self._size

    def __bool__(self) -> bool:
        return True

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def _open(self) -> _gridlane.File:
        """The open file of this process: the child of a fork opens its own."""
        native = self._native
        if native is None:
            raise ValueError("I/O operation on closed file.")
        if not native.is_here():
            native = self._native = self._client._native.open(self._sources, **self._opening).wait()
        return native

    async def _aopen(self) -> _gridlane.File:
        """The same for event loops."""
        native = self._native
        if native is not None and not native.is_here():
            self._native = await finish(self._client._native.open(self._sources, **self._opening))
        return self._open()

    def tell(self) -> int:
        """The position of the next read."""
        self._open()
        return self._position.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the position, and returns it."""
        self._open()
        return self._position.seek(offset, whence, self._size)

    def _next(self, length: int) -> Range:
        """The next bytes, up to `length` of them (all, if it is negative): moves the position behind them."""
        return self._position.advance(None if length < 0 else length, self._size)

    def read(self, size: Optional[int] = -1) -> bytes:
        """Reads from the position on: `size` bytes, or fewer at the end of the file."""
        native = self._open()
        offset, length = self._next(-1 if size is None else size)
        if length == 0:
            return b""
        try:
            return native.read(offset, length, self._timeout)
        except BaseException:
            self._position.back(offset, length)
            raise

    read1 = read

    def readall(self) -> bytes:
        """Reads from the position to the end."""
        return self.read(-1)

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer as many bytes as it has room for, or fewer at the end of the file; returns how many."""
        native = self._open()
        with memoryview(buffer).cast("B") as room:
            offset, length = self._next(len(room))
            if length == 0:
                return 0
            try:
                (found,) = native.readv([(offset, length)], self._timeout, True)
            except BaseException:
                self._position.back(offset, length)
                raise
            # The one copy: from the reader's memory into the caller's.
            bytes_found = view(found)
            room[: len(bytes_found)] = bytes_found
            return len(bytes_found)

    readinto1 = readinto

    def peek(self, size: int = 0) -> bytes:
        """The next bytes, without moving the position."""
        native = self._open()
        offset = self._position.tell()
        length = min(max(size, _PEEK_BYTES), max(0, self._size - offset))
        return native.read(offset, length, self._timeout) if length else b""

    def readline(self, size: Optional[int] = -1, /) -> bytes:
        """Reads up to the end of a line."""
        limit = -1 if size is None else size
        found = []
        while limit != 0:
            ahead = self.peek()
            end = ahead.find(b"\n") + 1
            taken = ahead[: end or len(ahead)]
            if limit > 0:
                taken = taken[:limit]
                limit -= len(taken)
            self.seek(len(taken), io.SEEK_CUR)
            found.append(taken)
            if not taken or taken.endswith(b"\n"):
                break
        return b"".join(found)

    def pread(self, offset: int, length: int) -> bytes:
        """Reads at a place, whatever the position is; fewer bytes at the end of the file only."""
        return self._open().read(offset, length, self._timeout)

    def readv(self, ranges: Sequence[Range], *, copy: bool = True) -> Union[list[bytes], list[memoryview]]:
        """Reads many ranges, each `(offset, length)`, in one call: as fast as the path allows, in whatever order they are.

        Without `copy` the results are read-only views of the reader's memory.
        """
        native = self._open()
        found = native.readv(list(ranges), self._timeout, not copy)
        return found if copy else [view(buffer) for buffer in found]

    async def aread(self, offset: int, length: int) -> bytes:
        """`pread` for event loops."""
        (found,) = await self.areadv([(offset, length)])
        return bytes(found)

    async def areadv(
        self, ranges: Sequence[Range], *, copy: bool = True
    ) -> Union[list[bytes], list[memoryview]]:
        """`readv` for event loops."""
        found = await finish((await self._aopen()).readv_job(list(ranges), self._timeout, not copy))
        return found if copy else [view(buffer) for buffer in found]

    async def _slices(
        self, starts: list[Optional[int]], ends: list[Optional[int]], *, copy: bool
    ) -> list[Any]:
        """Slices of the file, each from its start to before its end, in one call."""
        found: list[Any] = await finish(
            (await self._aopen()).slices_job(starts, ends, self._timeout, not copy)
        )
        return found if copy else [view(buffer) for buffer in found]

    def hint(self, about: str, ranges: Sequence[Range] = ()) -> None:
        """Tells of reads to come: `soon` with ranges, `keep` with one, `everything`, or `random`."""
        self._open().hint(about, list(ranges))

    def explain(self) -> dict[str, Any]:
        """What was decided for this file, and why: figures, and `text` for people."""
        return self._open().explain()

    def close(self) -> None:
        """Closes it: reads that are under way fail."""
        native, self._native = getattr(self, "_native", None), None
        if native is not None:
            native.close()
        super().close()


def _again(
    kind: type[File],
    sources: list[str],
    client: Client,
    timeout: Optional[float],
    opening: dict[str, Any],
    position: int,
) -> File:
    file = kind(sources, client=client, timeout=timeout, **opening)
    file.seek(position)
    return file


class Upload(io.RawIOBase):
    """A file that is written here, and sent when it is closed: it is visible when it is complete. One that is left by an
    exception is not sent."""

    mode = "wb"

    def __init__(
        self,
        url: str,
        *,
        client: Client,
        overwrite: bool = False,
        parents: bool = False,
        autocommit: bool = True,
    ) -> None:
        super().__init__()
        self.name = url
        self._client = client
        self._overwrite = overwrite
        self._parents = parents
        self._autocommit = autocommit
        self._is_pending = True
        # Bytes in memory; once there are many, a temporary file that has a name.
        self._spool: Any = io.BytesIO()

    def writable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """False: it is written in order."""
        return False

    def write(self, data: Any) -> int:
        """Appends bytes."""
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        with memoryview(data).cast("B") as piece:
            self._spool.write(piece)
            if isinstance(self._spool, io.BytesIO) and self._spool.tell() > _SPOOLED_BYTES:
                file = tempfile.NamedTemporaryFile(prefix="gridlane-")
                file.write(self._spool.getbuffer())
                self._spool = file
            return len(piece)

    def tell(self) -> int:
        """Bytes that were written."""
        return int(self._spool.tell())

    def commit(self) -> None:
        """Sends it."""
        if not self._is_pending:
            return
        self._is_pending = False
        try:
            if isinstance(self._spool, io.BytesIO):
                data = self._spool.getvalue()
                self._client.put(self.name, data, overwrite=self._overwrite, parents=self._parents)
            else:
                self._spool.flush()
                _send(self._client, self._spool.name, self.name, self._overwrite, self._parents)
        finally:
            self._spool.close()

    def discard(self) -> None:
        """Gives it up."""
        self._is_pending = False
        self._spool.close()

    def close(self) -> None:
        """Sends it, unless that is left to `commit`."""
        if not self.closed and getattr(self, "_is_pending", False) and self._autocommit:
            try:
                self.commit()
            finally:
                super().close()
            return
        super().close()

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        # Nobody has closed it: what is there may not be all of it.
        if getattr(self, "_is_pending", False):
            self.discard()
        super().__del__()


def _send(client: Client, path: str, url: str, overwrite: bool, parents: bool) -> None:
    """Copies a file of this machine to a server; makes the directories that it is in where they are missing."""
    try:
        client.copy(path, url, overwrite=overwrite, metalinks=False)
    except OSError as error:
        if not parents or not is_without_parent(error):
            raise
        client.mkdir(parent_of(url), parents=True)
        client.copy(path, url, overwrite=overwrite, metalinks=False)


def is_without_parent(error: OSError) -> bool:
    """True if a file could not be written because the directory that it should be in may be missing."""
    return isinstance(error, FileNotFoundError) or getattr(error, "http_status", None) == 409


def parent_of(url: str) -> str:
    """The URL of the directory that something is in; its query stays."""
    path, mark, query = url.partition("?")
    return path.rstrip("/").rsplit("/", 1)[0] + "/" + mark + query

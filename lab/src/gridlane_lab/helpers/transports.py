"""Reads of ranges over root://, http(s) and from local files; and the policies that readers of the field put on top."""

from __future__ import annotations

import http.client
import os
import re
import ssl
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from email.message import Message
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from ranges import Range, covering

# By the protocol's default limits: elements of a vector, and bytes of one.
ROOT_ELEMENTS_MAX = 1024
ROOT_ELEMENT_BYTES_MAX = 2_097_136
# A field of this length passes every server: nginx and Apache take 8 KiB.
HTTP_RANGES_FIELD_BYTES = 7000
# What nobody has asked for, such as the whole file instead of several ranges, is read to its end if it is no longer
# than this, so that the connection can be kept. A part of an answer has a head of at most so much.
HTTP_SURPLUS_BYTES_MAX = 10_000_000
HTTP_HEAD_BYTES_MAX = 1 << 10
# A server that says nothing for so long is hung.
SILENCE_S = 120


class ReadError(Exception):
    """A read that failed: what, and in which phase."""

    def __init__(self, what: str, phase: str = "transfer", http_status: int | None = None) -> None:
        super().__init__(what)
        self.phase = phase
        self.http_status = http_status


class Transport:
    """Reads ranges. Counts requests, bytes and connections that were lost."""

    def __init__(self) -> None:
        self.requests = 0
        self.bytes_moved = 0
        self.reconnects = 0
        self._counting = threading.Lock()

    def read(self, offset: int, length: int) -> bytes:
        """One range; fewer bytes are an error."""
        raise NotImplementedError

    def read_vector(self, ranges: Sequence[Range]) -> list[bytes]:
        """Many ranges in as few requests as the protocol allows, one after the other."""
        return [self.read(offset, length) for offset, length in ranges]

    def close(self) -> None:
        """Ends connections."""

    def _count(self, moved: int) -> None:
        with self._counting:
            self.requests += 1
            self.bytes_moved += moved


class LocalFile(Transport):
    """A file of this machine, as fast as it is or as a disk of a rate is."""

    def __init__(self, path: str, bytes_per_s: float = 0.0) -> None:
        super().__init__()
        self._descriptor = os.open(path, os.O_RDONLY)
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def read(self, offset: int, length: int) -> bytes:
        """Waits until the disk would have delivered."""
        data = os.pread(self._descriptor, length, offset)
        if len(data) != length:
            raise ReadError(f"{len(data)} of {length} bytes at {offset}")
        if self._bytes_per_s:
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + length / self._bytes_per_s
            # A sleep of less than a millisecond takes longer than it should; the debt is kept instead.
            if self._free_at - now > 1e-3:
                time.sleep(self._free_at - now)
        self._count(length)
        return data

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)


class Root(Transport):
    """pyxrootd: single reads and vector reads, each waited for."""

    def __init__(self, url: str) -> None:
        super().__init__()
        from XRootD import client
        from XRootD.client.flags import OpenFlags

        scheme, _, rest = url.partition("://")
        host, _, path = rest.partition("/")
        self._file = client.File()
        status, _ = self._file.open(f"{scheme}://{host}//{path.lstrip('/')}", OpenFlags.READ, timeout=SILENCE_S)
        self._must(status, "open")

    def read(self, offset: int, length: int) -> bytes:
        """One read."""
        status, data = self._file.read(offset, length, timeout=SILENCE_S)
        self._must(status, "transfer")
        if len(data) != length:
            raise ReadError(f"{len(data)} of {length} bytes at {offset}")
        self._count(length)
        return bytes(data)

    def read_vector(self, ranges: Sequence[Range]) -> list[bytes]:
        """Vector reads. Elements that are too long are cut, and none is asked for twice: XrdCl takes the answer to two
        equal ones for an error."""
        pieces = sorted({piece for one in ranges for piece in _cut(one)})
        parts: dict[Range, bytes] = {}
        for first in range(0, len(pieces), ROOT_ELEMENTS_MAX):
            asked = pieces[first : first + ROOT_ELEMENTS_MAX]
            status, answer = self._file.vector_read(asked, timeout=SILENCE_S)
            self._must(status, "transfer")
            for chunk in answer.chunks:
                parts[chunk.offset, chunk.length] = bytes(chunk.buffer)
            self._count(sum(length for _, length in asked))
        return [b"".join(parts[piece] for piece in _cut(one)) for one in ranges]

    def close(self) -> None:
        """Closes the file at the server."""
        self._file.close(timeout=5)

    @staticmethod
    def _must(status: object, phase: str) -> None:
        if not status.ok:  # type: ignore[attr-defined]
            raise ReadError(" ".join(str(status.message).split()), phase)  # type: ignore[attr-defined]


def _cut(one: Range) -> list[Range]:
    offset, length = one
    return [
        (start, min(ROOT_ELEMENT_BYTES_MAX, offset + length - start))
        for start in range(offset, offset + length, ROOT_ELEMENT_BYTES_MAX)
    ]


class Http(Transport):
    """Ranges of HTTP/1.1 on one connection that is kept."""

    def __init__(self, url: str, authority: str | None = None, token_file: str | None = None) -> None:
        super().__init__()
        self._url = url
        self._tls = ssl.create_default_context(cafile=authority) if url.startswith("https") else None
        self._connection: http.client.HTTPConnection | None = None
        self._ranges_max = ROOT_ELEMENTS_MAX
        self._fields = {}
        if token_file:
            self._fields["Authorization"] = f"Bearer {Path(token_file).read_text().strip()}"

    def read(self, offset: int, length: int) -> bytes:
        """One GET with one range."""
        status, headers, body = self._get([(offset, length)])
        if status == 200 and (offset, length) == (0, len(body)):
            return body
        if status != 206:
            raise ReadError("the server ignores ranges" if status == 200 else f"status {status}", "transfer", status)
        start = _content_range(headers)
        data = covering([(start, body)], (offset, length)) if start is not None else None
        if data is None:
            raise ReadError(f"not the bytes {offset}+{length} in an answer of {len(body)}")
        return data

    def read_vector(self, ranges: Sequence[Range]) -> list[bytes]:
        """GETs with several ranges. A server that answers with the whole file gets half as many from then on."""
        found: dict[Range, bytes] = {}
        pending = sorted(set(ranges))
        while pending:
            if self._ranges_max < 2 or len(pending) == 1:
                found[pending[0]] = self.read(*pending[0])
                pending = pending[1:]
                continue
            asked = _fitting(pending, self._ranges_max)
            status, headers, body = self._get(asked)
            if status in (200, 400, 416):
                self._ranges_max = min(self._ranges_max, len(asked)) // 2
                continue
            if status != 206:
                raise ReadError(f"status {status}", "transfer", status)
            parts = _parts(headers, body)
            for one in asked:
                data = covering(parts, one)
                if data is not None:
                    found[one] = data
            missing = [one for one in asked if one not in found]
            if len(missing) == len(asked):
                raise ReadError("none of the ranges is in the answer")
            # Some servers send the first part only.
            pending = missing + pending[len(asked) :]
        return [found[one] for one in ranges]

    def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()

    def _get(self, ranges: Sequence[Range]) -> tuple[int, Message, bytes]:
        for _ in range(5):
            is_kept = self._connection is not None
            try:
                status, headers, body = self._ask(ranges)
            except (http.client.HTTPException, ConnectionError) as error:
                self.close()
                self._connection = None
                if not is_kept:
                    raise ReadError(f"{type(error).__name__}: {error}", "connect") from None
                # One that was kept may have ended meanwhile; a new one has no excuse.
                self.reconnects += 1
                continue
            except OSError as error:
                raise ReadError(str(error), "connect") from None
            if status in (301, 302, 307, 308) and headers["Location"]:
                self._url = urljoin(self._url, headers["Location"])
                self.close()
                self._connection = None
                continue
            if status >= 400 and status not in (400, 416):
                phase = {401: "authorise", 403: "authorise", 404: "open"}.get(status, "transfer")
                raise ReadError(f"status {status}", phase, status)
            return status, headers, body
        raise ReadError("too many redirects or lost connections", "connect")

    def _ask(self, ranges: Sequence[Range]) -> tuple[int, Message, bytes]:
        parts = urlsplit(self._url)
        if self._connection is None:
            if self._tls is not None:
                self._connection = http.client.HTTPSConnection(parts.netloc, timeout=SILENCE_S, context=self._tls)
            else:
                self._connection = http.client.HTTPConnection(parts.netloc, timeout=SILENCE_S)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        self._connection.request("GET", path, headers={"Range": _field(ranges), **self._fields})
        answer = self._connection.getresponse()
        most = HTTP_SURPLUS_BYTES_MAX
        if answer.status == 206 or len(ranges) == 1:
            most = max(most, sum(length + HTTP_HEAD_BYTES_MAX for _, length in ranges))
        if answer.length is None:
            body = answer.read(most + 1)
        else:
            # An answer that ends before its length is an error only where all of it is asked for.
            body = answer.read() if answer.length <= most else None
        if body is None or len(body) > most:
            # More than anybody has asked for is not read; the connection ends with it.
            self.close()
            self._connection = None
            self._count(len(body or b""))
            if answer.status == 206:
                raise ReadError("the answer is longer than the ranges", "transfer", 206)
            return answer.status, answer.headers, b""
        self._count(len(body))
        return answer.status, answer.headers, body


def _field(ranges: Sequence[Range]) -> str:
    """The value of `Range`."""
    return "bytes=" + ",".join(f"{offset}-{offset + length - 1}" for offset, length in ranges)


def _fitting(pending: Sequence[Range], most: int) -> list[Range]:
    """As many ranges as a field takes."""
    asked: list[Range] = []
    size = len("bytes=")
    for one in pending[:most]:
        size += len(_field([one])) - len("bytes=") + 1
        if size > HTTP_RANGES_FIELD_BYTES:
            break
        asked.append(one)
    return asked


def _content_range(headers: Message) -> int | None:
    found = re.match(r"bytes (\d+)-", headers["Content-Range"] or "")
    return int(found[1]) if found else None


def _parts(headers: Message, body: bytes) -> list[tuple[int, bytes]]:
    """The parts of an answer by offset: of multipart/byteranges, or the only one."""
    found = re.search(r'boundary="?([^";]+)"?', headers["Content-Type"] or "")
    if not found:
        start = _content_range(headers)
        return [(start, body)] if start is not None else []
    boundary, parts, at = b"--" + found[1].encode(), [], 0
    while True:
        at = body.find(boundary, at)
        if at < 0 or body[at + len(boundary) : at + len(boundary) + 2] == b"--":
            break
        end = re.compile(rb"\r?\n\r?\n").search(body, at)
        head = re.search(rb"content-range: *bytes (\d+)-(\d+)", body[at : end.start() if end else at], re.I)
        if not end or not head:
            break
        first, last = int(head[1]), int(head[2])
        parts.append((first, body[end.end() : end.end() + last - first + 1]))
        at = end.end() + last - first + 1
    return sorted(parts)


# --- Policies -------------------------------------------------------------------------------------------------


class Policy:
    """Reads steps of a job. `wait_s` is how long the job stood still for bytes."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.wait_s = 0.0

    def step(self, ranges: Sequence[Range]) -> list[bytes]:
        """The bytes of a step."""
        began = time.monotonic()
        try:
            return self._read(ranges)
        finally:
            self.wait_s += time.monotonic() - began

    def _read(self, ranges: Sequence[Range]) -> list[bytes]:
        return [self.transport.read(offset, length) for offset, length in ranges]

    def close(self) -> None:
        """Ends what goes on in the background."""


class Vector(Policy):
    """All ranges of a step in vectors."""

    def _read(self, ranges: Sequence[Range]) -> list[bytes]:
        return self.transport.read_vector(ranges) if len(ranges) > 1 else super()._read(ranges)


class Ahead(Policy):
    """Blocks, of which the next one is fetched beside when reading goes on where it was, as fsspec and davix do."""

    def __init__(self, transport: Transport, size_bytes: int, block_bytes: int) -> None:
        super().__init__(transport)
        self._size, self._block = size_bytes, block_bytes
        self._window: tuple[int, bytes] = (0, b"")
        self._next: tuple[int, Future[bytes]] | None = None
        self._pool = ThreadPoolExecutor(1)

    def _read(self, ranges: Sequence[Range]) -> list[bytes]:
        return [self._one(offset, length) for offset, length in ranges]

    def _one(self, offset: int, length: int) -> bytes:
        start, data = self._window
        if not (start <= offset and offset + length <= start + len(data)):
            kept = data[offset - start :] if start <= offset < start + len(data) else b""
            at = offset + len(kept)
            while len(kept) < length or not kept:
                more = self._fetch(at, max(self._block, length - len(kept)))
                kept += more
                at += len(more)
            is_sequential = bool(data) and offset <= start + len(data) <= offset + length
            self._window = start, data = offset, kept
            if is_sequential and at < self._size and self._next is None:
                self._next = (at, self._pool.submit(self.transport.read, at, min(self._block, self._size - at)))
        return data[offset - start : offset - start + length]

    def _fetch(self, at: int, length: int) -> bytes:
        if self._next is not None:
            start, future = self._next
            # One connection: what is under way has to end before anything else.
            data = future.result()
            self._next = None
            if start == at:
                return data
        return self.transport.read(at, min(length, self._size - at))

    def close(self) -> None:
        """Waits for the block under way."""
        self._pool.shutdown()


class Lazy(Policy):
    """Whole segments on first touch, kept in a file that has no name any more, as CMSSW's lazy download does."""

    def __init__(self, transport: Transport, size_bytes: int, segment_bytes: int, directory: str | None) -> None:
        super().__init__(transport)
        self._size, self._segment = size_bytes, segment_bytes
        self._there: set[int] = set()
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115

    def _read(self, ranges: Sequence[Range]) -> list[bytes]:
        for offset, length in ranges:
            for number in range(offset // self._segment, (offset + max(length, 1) - 1) // self._segment + 1):
                if number not in self._there:
                    start = number * self._segment
                    data = self.transport.read(start, min(self._segment, self._size - start))
                    os.pwrite(self._file.fileno(), data, start)
                    self._there.add(number)
        return [os.pread(self._file.fileno(), length, offset) for offset, length in ranges]

    def close(self) -> None:
        """Gives the space free."""
        self._file.close()


def transport_of(url: str, authority: str | None = None, token_file: str | None = None) -> Transport:
    """By the scheme of the URL."""
    if url.startswith(("root://", "roots://")):
        return Root(url)
    if url.startswith(("http://", "https://")):
        return Http(url, authority, token_file)
    return LocalFile(url.removeprefix("file://"))


def policy_of(
    mode: str, transport: Transport, size_bytes: int, block_bytes: int, segment_bytes: int, directory: str | None = None
) -> Policy:
    """By the name of the mode in `[work.read]`."""
    if mode == "vector":
        return Vector(transport)
    if mode == "ahead":
        return Ahead(transport, size_bytes, block_bytes)
    if mode == "lazy":
        return Lazy(transport, size_bytes, segment_bytes, directory)
    return Policy(transport)

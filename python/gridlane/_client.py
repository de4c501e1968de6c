"""What may be asked of servers, by threads (`Client`) and by event loops (`AsyncClient`)."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _gridlane
from ._jobs import Progress, finish
from .file import File

Url = Union[str, "os.PathLike[str]"]


class Stat(NamedTuple):
    """A file or a directory."""

    name: str
    """The last part of its path, decoded."""
    type: str
    """`file` or `directory`."""
    size: Optional[int]
    """Bytes of a file; `None` of a directory, or if the server does not tell."""
    mtime: Optional[float]
    """When it was last changed, in seconds since 1970."""
    url: str
    """Where it is."""
    etag: Optional[str] = None
    """The server's name for this version."""

    @property
    def is_directory(self) -> bool:
        """True if it is a directory."""
        return self.type == "directory"


class CopyReport(NamedTuple):
    """A copy that was made."""

    size: int
    """Bytes of the file."""
    seconds: float
    """The time that it took."""
    verified: Optional[str]
    """Whose word the bytes were compared with; `None`: nobody's, they are unverified."""
    checksum: Optional[str]
    """The checksum that they have, `TYPE:HEX`."""
    resumed: int
    """Bytes that were there already, from an earlier copy."""
    files: int
    """Files: several from a metalink."""
    limited_by: Optional[str]
    """What kept it from being faster."""
    sources: list[tuple[str, int]]
    """The replicas, and how many bytes came from each."""


def _text(url: Url) -> str:
    return os.fspath(url)


def _several(urls: Union[Url, Sequence[Url]]) -> list[str]:
    if isinstance(urls, (str, os.PathLike)):
        return [_text(urls)]
    return [_text(url) for url in urls]


def _stat_of(found: tuple[Any, ...], url: str) -> Stat:
    name, kind, size, mtime, etag = found
    return Stat(name, kind, size, mtime, url, etag)


def _listed(found: tuple[bool, list[tuple[Any, ...]]], detail: bool) -> Union[list[str], list[Stat]]:
    _, entries = found
    if detail:
        return [Stat(name, kind, size, mtime, url) for name, kind, size, mtime, url in entries]
    return [entry[0] for entry in entries]


_LOOKS = os.urandom(16)


class Client:
    """Credentials, trust, and the connections that are made with them.

    Without arguments credentials are found where the command line finds them: `BEARER_TOKEN`, `BEARER_TOKEN_FILE`, the usual
    places of tokens, `X509_USER_PROXY`, and so on. They are sent over TLS only, to the servers of the URLs that are given.

    Args:
        token: a token itself.
        token_file: a file with a token, which is read again when it changes.
        cert, key: a certificate or proxy (PEM) and its private key, which may be in the same file.
        ca: files with certificate authorities to trust beside those of the system and of the grid.
        insecure: no certificate is checked: anyone on the path can read and change the bytes.
        no_credentials: none are sent.
        forward_credentials_to: hosts that get them as well where redirects lead there.
    """

    def __init__(
        self,
        *,
        token: Optional[str] = None,
        token_file: Optional[Url] = None,
        cert: Optional[Url] = None,
        key: Optional[Url] = None,
        ca: Union[None, Url, Sequence[Url]] = None,
        insecure: bool = False,
        no_credentials: bool = False,
        forward_credentials_to: Sequence[str] = (),
    ) -> None:
        self._options: dict[str, Any] = {
            "token": token,
            "token_file": None if token_file is None else _text(token_file),
            "cert": None if cert is None else _text(cert),
            "key": None if key is None else _text(key),
            "ca": () if ca is None else tuple(_several(ca)),
            "insecure": insecure,
            "no_credentials": no_credentials,
            "forward_credentials_to": tuple(forward_credentials_to),
        }
        self._native = _gridlane.Client(**self._options)
        self.aio = AsyncClient(self)

    def __reduce__(self) -> Any:
        return _client_of, (self._options,)

    def __repr__(self) -> str:
        # fsspec takes filesystems to be the same whose arguments look the same: other credentials have to look otherwise, and
        # may not be seen.
        mark = hashlib.blake2b(repr(self._options).encode(), key=_LOOKS, digest_size=8).hexdigest()
        given = [name for name, value in self._options.items() if value]
        return f"<gridlane.Client with {', '.join(given) or 'what is found'}, {mark}>"

    def stat(self, url: Url) -> Stat:
        """Looks at a file or a directory."""
        return _stat_of(self._native.stat(_text(url)).wait(), _text(url))

    def ls(self, url: Url, detail: bool = False) -> Any:
        """Lists a directory: names, or with `detail` a `Stat` of each. A file is the only entry of its list."""
        return _listed(self._native.ls(_text(url)).wait(), detail)

    def mkdir(self, url: Url, *, parents: bool = False) -> None:
        """Makes a directory; with `parents` also those that lead to it, and it may be there already."""
        self._native.mkdir(_text(url), parents).wait()

    def rmdir(self, url: Url) -> None:
        """Removes a directory that is empty."""
        self._native.rmdir(_text(url)).wait()

    def rm(self, url: Url, *, recursive: bool = False) -> None:
        """Removes a file; with `recursive` a directory with all that is in it, too."""
        self._native.rm(_text(url), recursive).wait()

    def rename(self, url: Url, to: Url, *, overwrite: bool = False) -> str:
        """Gives a file or directory another name on its server; into a directory that is there, it keeps its name. Returns
        where it is now."""
        return str(self._native.rename(_text(url), _text(to), overwrite).wait())

    def checksum(self, url: Url, kind: str = "adler32") -> str:
        """The checksum of a file, `TYPE:HEX`: the server's word if it gives one, else computed from the bytes."""
        return str(self._native.checksum(_text(url), kind).wait())

    def put(
        self,
        url: Url,
        data: Union[bytes, bytearray, memoryview],
        *,
        overwrite: bool = False,
        parents: bool = False,
    ) -> None:
        """Writes a file from memory, which is visible when it is complete."""
        self._native.put(_text(url), bytes(data), overwrite, parents).wait()

    def copy(
        self,
        source: Union[Url, Sequence[Url]],
        target: Url,
        *,
        progress: Optional[Progress] = None,
        **options: Any,
    ) -> CopyReport:
        """Copies a file, from all of its replicas at once if there are several.

        Args:
            source: a URL or path, or several of the same file.
            target: a URL or path; a directory gets the source's name.
            progress: called with the bytes that are there and those in all (or `None`), by the calling thread.
            overwrite: an existing file is replaced.
            checksum: `TYPE`, or `TYPE:HEX` if it is known.
            require_verified: bytes that could not be compared with any checksum are a failure.
            streams: exactly so many connections to each source.
            limit_rate: the most bytes to receive per second.
            timeout: seconds without a byte after which it is given up.
            third_party: `auto`, `only` or `never`: whether servers copy between themselves.
            metalinks: a metalink stands for what it describes.
        """
        return CopyReport(**self._copying(source, target, **options).wait(progress))

    def _copying(
        self,
        source: Union[Url, Sequence[Url]],
        target: Url,
        *,
        overwrite: bool = False,
        checksum: Optional[str] = None,
        require_verified: bool = False,
        streams: Optional[int] = None,
        limit_rate: Optional[int] = None,
        timeout: Optional[float] = None,
        third_party: str = "auto",
        metalinks: bool = True,
    ) -> _gridlane.Job:
        return self._native.copy(
            _several(source),
            _text(target),
            overwrite=overwrite,
            checksum=checksum,
            require_verified=require_verified,
            streams=streams,
            limit_rate=limit_rate,
            timeout=timeout,
            third_party=third_party,
            metalinks=metalinks,
        )

    def open(self, url: Union[Url, Sequence[Url]], **options: Any) -> File:
        """Opens a file for reading, from all of its replicas if several URLs are given.

        Args:
            url: a URL, or those of several replicas.
            policy: `adaptive` (chosen by what is measured), or one of `direct`, `vector`, `prefetch`, `lazy`, `copy`.
            memory: bytes that are kept of the file.
            budget: bytes moved for each byte wanted, at most; 1: exactly what is wanted.
            lanes: connections for the file.
            patience: seconds without a byte from any source after which reads fail.
            timeout: seconds after which any single read fails.
        """
        return File(_several(url), client=self, **options)


class AsyncClient:
    """The same calls for event loops: `Client.aio`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def _native(self) -> _gridlane.Client:
        return self._client._native

    async def stat(self, url: Url) -> Stat:
        """Looks at a file or a directory."""
        return _stat_of(await finish(self._native.stat(_text(url))), _text(url))

    async def ls(self, url: Url, detail: bool = False) -> Any:
        """Lists a directory: names, or with `detail` a `Stat` of each."""
        return _listed(await finish(self._native.ls(_text(url))), detail)

    async def mkdir(self, url: Url, *, parents: bool = False) -> None:
        """Makes a directory."""
        await finish(self._native.mkdir(_text(url), parents))

    async def rmdir(self, url: Url) -> None:
        """Removes a directory that is empty."""
        await finish(self._native.rmdir(_text(url)))

    async def rm(self, url: Url, *, recursive: bool = False) -> None:
        """Removes a file; with `recursive` anything."""
        await finish(self._native.rm(_text(url), recursive))

    async def rename(self, url: Url, to: Url, *, overwrite: bool = False) -> str:
        """Gives a file or directory another name on its server."""
        return str(await finish(self._native.rename(_text(url), _text(to), overwrite)))

    async def checksum(self, url: Url, kind: str = "adler32") -> str:
        """The checksum of a file, `TYPE:HEX`."""
        return str(await finish(self._native.checksum(_text(url), kind)))

    async def put(
        self,
        url: Url,
        data: Union[bytes, bytearray, memoryview],
        *,
        overwrite: bool = False,
        parents: bool = False,
    ) -> None:
        """Writes a file from memory."""
        await finish(self._native.put(_text(url), bytes(data), overwrite, parents))

    async def copy(
        self,
        source: Union[Url, Sequence[Url]],
        target: Url,
        *,
        progress: Optional[Progress] = None,
        **options: Any,
    ) -> CopyReport:
        """Copies a file; `progress` is called by the event loop. One that is cancelled keeps what it has for the next."""
        return CopyReport(**await finish(self._client._copying(source, target, **options), progress))

    async def open(self, url: Union[Url, Sequence[Url]], **options: Any) -> File:
        """Opens a file for reading; `File.aread` and `File.areadv` are for event loops."""
        return await File._opened(_several(url), client=self._client, **options)


def _client_of(options: dict[str, Any]) -> Client:
    return default(**options)


# The last ones that were used: a token that is renewed makes a new one each time.
_DEFAULTS_MAX = 16
_defaults: OrderedDict[Any, Client] = OrderedDict()
_defaults_lock = threading.Lock()
# Another thread of the parent may have had it.
os.register_at_fork(after_in_child=lambda: globals().update(_defaults_lock=threading.Lock()))


def default(client: Optional[Client] = None, **options: Any) -> Client:
    """The client of a call: the one that was given, or the one of all calls with these options."""
    if client is not None:
        if options:
            raise TypeError(f"a client was given, and {', '.join(sorted(options))} as well")
        return client
    key = tuple(
        sorted((name, tuple(value) if isinstance(value, list) else value) for name, value in options.items())
    )
    with _defaults_lock:
        found = _defaults.get(key)
        if found is None:
            found = _defaults[key] = Client(**options)
        _defaults.move_to_end(key)
        while len(_defaults) > _DEFAULTS_MAX:
            _defaults.popitem(last=False)
    return found


# The arguments of a client.
CREDENTIALS = (
    "token",
    "token_file",
    "cert",
    "key",
    "ca",
    "insecure",
    "no_credentials",
    "forward_credentials_to",
)


def split(options: dict[str, Any]) -> tuple[Client, dict[str, Any]]:
    """The client that the options of a call mean, and the other options."""
    credentials = {name: options.pop(name) for name in ("client", *CREDENTIALS) if name in options}
    return default(**credentials), options


def of_client(name: str) -> Callable[..., Any]:
    """The module's function for a method of `Client`: with credentials as keywords."""
    method = getattr(Client, name)

    def call(*args: Any, **options: Any) -> Any:
        client, options = split(options)
        return method(client, *args, **options)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = method.__doc__
    return call


def of_async_client(name: str) -> Callable[..., Any]:
    """The same for event loops."""
    method = getattr(AsyncClient, name)

    async def call(*args: Any, **options: Any) -> Any:
        client, options = split(options)
        return await method(client.aio, *args, **options)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = method.__doc__
    return call

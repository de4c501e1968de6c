"""Filesystems for fsspec, and so for xarray, zarr, kerchunk, pandas, dask, DuckDB, and uproot without a handler.

They have names that nobody else holds (`glhttps://…`, `glroot://…`, `davs://…`); to be what `root://`, `http://` and
`https://` mean in fsspec is asked for:

    import gridlane.fsspec
    gridlane.fsspec.register(clobber=True)

Paths are as in other filesystems of the same protocol. Of HTTP and WebDAV they are whole URLs (`https://host/path`), so that one
filesystem serves all hosts. Of `root://` they are paths of one server, which is the argument `hostid`.

`cat_ranges` reads all ranges of a file in one call, which the reader orders, joins and divides by what the path needs.
"""

from __future__ import annotations

import asyncio
import datetime
import errno
import os
import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from glob import has_magic
from typing import Any, Optional, Union

import fsspec
from fsspec.asyn import AbstractAsyncStreamedFile, AsyncFileSystem, sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.registry import known_implementations, registry
from fsspec.utils import isfilelike, tokenize

from ._client import CREDENTIALS, Client, Stat
from ._gridlane import shown
from ._jobs import finish
from .file import OPENING, File, Upload, is_without_parent, parent_of

__all__ = ["HttpFileSystem", "RootFileSystem", "register"]

Limits = list[Optional[int]]

_OWN = "gl"
_HTTP = ("http", "https", "dav", "davs")
_ROOT = ("root", "roots", "xroot", "xroots")
_OPENING = (*OPENING, "timeout")
# Files of one `cat_ranges` or `cat` that are open at the same time, unless `batch_size` says otherwise.
_FILES_MAX = 64
# A query, and not a pattern with a question mark: it has a name and a value.
_QUERY = re.compile(r"\?[^*?\[\]/]+=")


def _plain(scheme: str) -> str:
    """The name of a protocol without the part that makes it ours."""
    return scheme[len(_OWN) :] if scheme.startswith(_OWN) else scheme


class _Handles:
    """Files that are open for calls that name a path each time: the last ones used, for a while after their opening. Later
    another file may be there.

    Threads drop what the event loop has, so each step may find it gone.
    """

    def __init__(self, count_max: int, kept_s: float) -> None:
        self._count_max = count_max
        self._kept_s = kept_s
        self._found: OrderedDict[str, tuple[float, File]] = OrderedDict()

    def get(self, path: str) -> Optional[File]:
        now = time.monotonic()
        for other, (opened, _) in list(self._found.items()):
            if now - opened > self._kept_s:
                self._found.pop(other, None)
        found = self._found.pop(path, None)
        if found is None or found[1].closed:
            return None
        self._found[path] = found
        return found[1]

    def keep(self, path: str, file: File) -> None:
        # No file is closed here: another call may be reading from it. It is, when nobody holds it any more.
        self._found.pop(path, None)
        self._found[path] = (time.monotonic(), file)
        while len(self._found) > self._count_max:
            self._found.popitem(last=False)

    def drop(self, path: Optional[str] = None) -> None:
        if path is None:
            self._found.clear()
        else:
            self._found.pop(path, None)


class _FileSystem(AsyncFileSystem):  # type: ignore[misc]
    """What the filesystems of all protocols have in common.

    Args:
        client: whose connections and credentials are used; else it is made of `token`, `token_file`, `cert`, `key`, `ca`,
            `insecure`, `no_credentials` and `forward_credentials_to`.
        policy, memory, budget, lanes, patience, timeout: as for `gridlane.open`.
        zero_copy: `cat_ranges` gives read-only memoryviews of the reader's memory instead of `bytes`.
        handles: number of files that stay open for reads of ranges by path, half a minute from their opening on.
    """

    async_impl = True
    cachable = True
    sep = "/"

    def __init__(
        self,
        *args: Any,
        client: Optional[Client] = None,
        zero_copy: bool = False,
        handles: int = 16,
        asynchronous: bool = False,
        loop: Any = None,
        batch_size: Optional[int] = None,
        **options: Any,
    ) -> None:
        # `get_filesystem_class(...)(**options)` comes with those of the base class, too.
        self._opening = {name: options.pop(name) for name in _OPENING if name in options}
        credentials = {name: options.pop(name) for name in CREDENTIALS if name in options}
        if client is not None and credentials:
            raise TypeError(f"a client was given, and {', '.join(sorted(credentials))} as well")
        super().__init__(*args, asynchronous=asynchronous, loop=loop, batch_size=batch_size, **options)
        self._client = client if client is not None else Client(**credentials)
        self._zero_copy = zero_copy
        self._handles = _Handles(handles, 30.0)

    # --- Names ---------------------------------------------------------------------------------------

    def _url(self, path: str) -> str:
        """The URL that a path means."""
        raise NotImplementedError

    def _path(self, directory: str, entry: Stat) -> str:
        """The path of an entry of a directory."""
        raise NotImplementedError

    def _described(self, path: str, found: Stat) -> dict[str, Any]:
        described: dict[str, Any] = {
            "name": path,
            "size": found.size if found.type == "file" else 0,
            "type": found.type,
            "mtime": found.mtime,
        }
        if found.etag is not None:
            described["ETag"] = found.etag
        return described

    # --- Looking -------------------------------------------------------------------------------------

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return self._described(path, await self._client.aio.stat(self._url(path)))

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        path = self._strip_protocol(path)
        is_file, found = await self._list(path)
        if is_file:
            described = [self._described(path, found[0])]
        else:
            described = [self._described(self._path(path, entry), entry) for entry in found]
        return described if detail else [entry["name"] for entry in described]

    async def _list(self, path: str) -> tuple[bool, list[Stat]]:
        is_file, entries = await finish(self._client._native.ls(self._url(path)))
        return is_file, [Stat(*entry) for entry in entries]

    async def _glob(self, path: str, maxdepth: Optional[int] = None, **options: Any) -> Any:
        path_only = _QUERY.split(path)[0]
        if path_only == path or has_magic(path_only):
            return await super()._glob(path, maxdepth=maxdepth, **options)
        # A question mark in front of a query is no pattern.
        path = self._strip_protocol(path)
        found = {path: await self._info(path)} if await self._exists(path) else {}
        return found if options.get("detail") else list(found)

    async def _modified(self, path: str) -> datetime.datetime:
        mtime = (await self._info(path))["mtime"]
        if mtime is None:
            raise NotImplementedError("the server does not tell when it was changed")
        return datetime.datetime.fromtimestamp(mtime, datetime.timezone.utc)

    modified = sync_wrapper(_modified)

    async def _checksum(self, path: str, kind: str = "adler32") -> str:
        """The checksum of a file, `TYPE:HEX`."""
        return await self._client.aio.checksum(self._url(self._strip_protocol(path)), kind)

    def checksum(self, path: str, kind: Optional[str] = None) -> Any:
        """The checksum of a file: `TYPE:HEX` if a kind is named, else fsspec's number, which changes when the file does."""
        return (
            super().checksum(path)
            if kind is None
            else fsspec.asyn.sync(self.loop, self._checksum, path, kind)
        )

    def ukey(self, path: str) -> str:
        """Changes when the file does."""
        info = self.info(path)
        return str(tokenize(info["name"], info["size"], info["mtime"], info.get("ETag")))

    # --- Reading -------------------------------------------------------------------------------------

    async def _handle(self, path: str, keep: bool) -> File:
        """An open file for a path."""
        file = self._handles.get(path)
        if file is None:
            file = await self._client.aio.open(self._url(path), **self._opening)
            if keep:
                self._handles.keep(path, file)
        return file

    async def _ranges(self, path: str, starts: Limits, ends: Limits, copy: bool) -> list[Any]:
        """Slices of one file, each from its start to before its end, in one call."""
        is_whole = len(starts) == 1 and starts[0] is None and ends[0] is None
        kept = self._handles.get(path) is not None
        file = await self._handle(path, keep=not is_whole)
        try:
            return await file._slices(starts, ends, copy=copy)
        except OSError as error:
            # Another file may be there now than the one that was open.
            if not kept or error.errno != errno.ESTALE:
                raise
        self._handles.drop(path)
        file = await self._handle(path, keep=not is_whole)
        return await file._slices(starts, ends, copy=copy)

    async def _cat_file(
        self, path: str, start: Optional[int] = None, end: Optional[int] = None, **_: Any
    ) -> bytes:
        (found,) = await self._ranges(self._strip_protocol(path), [start], [end], True)
        return bytes(found)

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: Optional[int] = None,
        batch_size: Optional[int] = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        # Gaps are joined by what the path costs: `max_gap` is not needed.
        if not isinstance(paths, list):
            raise TypeError("cat_ranges takes a list of paths")
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError("cat_ranges takes as many starts and ends as paths")
        copy = not self._zero_copy
        if paths and paths.count(paths[0]) == len(paths):
            try:
                return await self._ranges(self._strip_protocol(paths[0]), starts, ends, copy)
            except Exception as error:
                if on_error != "return":
                    raise
                return [error] * len(paths)
        by_path: dict[str, list[int]] = {}
        for index, path in enumerate(paths):
            by_path.setdefault(path, []).append(index)
        out: list[Any] = [None] * len(paths)
        turns = asyncio.Semaphore(batch_size or self.batch_size or _FILES_MAX)

        async def of_file(path: str, indices: list[int]) -> None:
            async with turns:
                of_path = ([starts[index] for index in indices], [ends[index] for index in indices])
                try:
                    found: Sequence[Any] = await self._ranges(self._strip_protocol(path), *of_path, copy)
                except Exception as error:
                    if on_error != "return":
                        raise
                    found = [error] * len(indices)
                for index, result in zip(indices, found):
                    out[index] = result

        reads = [asyncio.ensure_future(of_file(path, indices)) for path, indices in by_path.items()]
        try:
            await asyncio.gather(*reads)
        finally:
            for read in reads:
                read.cancel()
        return out

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Optional[int] = None,
        autocommit: bool = True,
        cache_options: Any = None,
        size: Optional[int] = None,
        **options: Any,
    ) -> Union[_Read, _Written]:
        # The reader sees to what blocks and caches are for. The size comes with the opening.
        path = self._strip_protocol(path)
        if mode == "rb":
            opening = {**self._opening, **{name: options[name] for name in _OPENING if name in options}}
            return _Read(self, path, client=self._client, **opening)
        if mode in ("wb", "xb"):
            if mode == "xb" and self.exists(path):
                raise FileExistsError(errno.EEXIST, "it is there already", shown(self._url(path)))
            return _Written(self, path, overwrite=mode == "wb", autocommit=autocommit)
        raise ValueError(f"files are opened with the mode rb, wb or xb, and not {mode}")

    async def open_async(self, path: str, mode: str = "rb", **_: Any) -> _Streamed:
        """Opens a file for reading in an event loop."""
        if mode != "rb":
            raise NotImplementedError("files are written with pipe, put, or open")
        path = self._strip_protocol(path)
        return _Streamed(self, path, await self._client.aio.open(self._url(path), **self._opening))

    # --- Writing -------------------------------------------------------------------------------------

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        path = self._strip_protocol(path)
        self._handles.drop(path)
        await self._client.aio.put(self._url(path), value, overwrite=mode != "create", parents=True)

    async def _put_file(
        self, lpath: str, rpath: str, mode: str = "overwrite", callback: Any = DEFAULT_CALLBACK, **_: Any
    ) -> None:
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        self._handles.drop(rpath)
        await self._sent(os.path.abspath(lpath), self._url(rpath), mode != "create", callback)

    async def _get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **_: Any) -> None:
        rpath = self._strip_protocol(rpath)
        if isfilelike(lpath):
            found = await self._cat_file(rpath)
            callback.set_size(len(found))
            lpath.write(found)
            callback.absolute_update(len(found))
            return
        if os.path.isdir(lpath) and not await self._isdir(rpath):
            raise IsADirectoryError(errno.EISDIR, "it is a directory", os.fspath(lpath))
        try:
            await self._copied(self._url(rpath), os.path.abspath(lpath), True, callback)
        except IsADirectoryError:
            os.makedirs(lpath, exist_ok=True)

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        self._handles.drop(path2)
        try:
            await self._sent(self._url(path1), self._url(path2), True, DEFAULT_CALLBACK)
        except IsADirectoryError:
            if not await self._isdir(path1):
                raise
            await self._makedirs(path2, exist_ok=True)

    async def _sent(self, source: str, target: str, overwrite: bool, callback: Any) -> None:
        """Copies a file to a server, and makes the directories that it is in where they are missing."""
        try:
            await self._copied(source, target, overwrite, callback)
        except OSError as error:
            if not is_without_parent(error):
                raise
            # It may be the source that is not there.
            if "://" not in source and not os.path.exists(source):
                raise
            if "://" in source:
                await self._client.aio.stat(source)
            await self._client.aio.mkdir(parent_of(target), parents=True)
            await self._copied(source, target, overwrite, callback)

    async def _copied(self, source: str, target: str, overwrite: bool, callback: Any) -> None:
        def progress(done: int, size: Optional[int]) -> None:
            if size is not None:
                callback.set_size(size)
            callback.absolute_update(done)

        told = None if callback is DEFAULT_CALLBACK else progress
        await self._client.aio.copy(source, target, overwrite=overwrite, metalinks=False, progress=told)

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        url = self._url(self._strip_protocol(path))
        try:
            await self._client.aio.mkdir(url)
        except OSError as error:
            if not create_parents or not is_without_parent(error):
                raise
            await self._client.aio.mkdir(parent_of(url), parents=True)
            await self._client.aio.mkdir(url)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if not exist_ok and await self._exists(path):
            raise FileExistsError(errno.EEXIST, "it is there already", shown(self._url(path)))
        await self._client.aio.mkdir(self._url(path), parents=True)

    async def _rm_file(self, path: str, **_: Any) -> None:
        path = self._strip_protocol(path)
        self._handles.drop(path)
        await self._client.aio.rm(self._url(path))

    async def _rmdir(self, path: str) -> None:
        await self._client.aio.rmdir(self._url(self._strip_protocol(path)))

    rmdir = sync_wrapper(_rmdir)

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: Optional[int] = None,
        maxdepth: Optional[int] = None,
        **_: Any,
    ) -> None:
        self._handles.drop()
        if recursive and maxdepth is None:
            paths = [path] if isinstance(path, str) else list(path)
            for top in await self._expand_path(paths):
                await self._client.aio.rm(self._url(top), recursive=True)
            return
        paths = await self._expand_path(path, recursive=recursive, maxdepth=maxdepth)
        kinds = (
            await asyncio.gather(*[self._isdir(found) for found in paths])
            if recursive
            else [False] * len(paths)
        )
        files = [found for found, is_directory in zip(paths, kinds) if not is_directory]
        await fsspec.asyn._run_coros_in_chunks(
            [self._rm_file(found) for found in files], batch_size=batch_size or self.batch_size, nofiles=True
        )
        # The deepest first.
        for found, is_directory in reversed(list(zip(paths, kinds))):
            if is_directory:
                await self._rmdir(found)

    async def _mv_file(self, path1: str, path2: str, **_: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        self._handles.drop(path1)
        self._handles.drop(path2)
        await self._client.aio.rename(self._url(path1), self._url(path2), overwrite=True)

    def invalidate_cache(self, path: Optional[str] = None) -> None:
        """Forgets files that are kept open."""
        self._handles.drop(None if path is None else self._strip_protocol(path))
        super().invalidate_cache(path)


class HttpFileSystem(_FileSystem):
    """Files over HTTP and WebDAV. Paths are URLs."""

    protocol = tuple(_OWN + name for name in _HTTP) + _HTTP
    root_marker = ""

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = os.fspath(path)
        scheme, mark, rest = path.partition("://")
        if mark:
            scheme = _plain(scheme)
            path = {"dav": "http", "davs": "https"}.get(scheme, scheme) + mark + rest
        # The slash at the end of a path, and not that of a server's root or of a query.
        where = _QUERY.search(path)
        query = path[where.start() :] if where else ""
        path = path[: len(path) - len(query)]
        stripped = path.rstrip("/")
        return (path if stripped.endswith(":") else stripped) + query

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {}

    @classmethod
    def _parent(cls, path: str) -> str:
        path = cls._strip_protocol(path)
        above = parent_of(path)
        return cls._strip_protocol(above) if above.count("/") > 2 else path

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path, by which fsspec finds this filesystem again."""
        name = self._strip_protocol(name)
        scheme = name.partition("://")[0]
        try:
            is_ours = issubclass(fsspec.get_filesystem_class(scheme), HttpFileSystem)
        except (ImportError, ValueError):
            is_ours = False
        return name if is_ours else _OWN + name

    def _url(self, path: str) -> str:
        if "://" not in path:
            raise ValueError(f"a path over HTTP is a whole URL, which {_QUERY.split(path)[0]!r} is not")
        return path

    def _path(self, directory: str, entry: Stat) -> str:
        return str(self._strip_protocol(entry.url))


class RootFileSystem(_FileSystem):
    """Files over `root://`, of one server.

    Args:
        hostid: the server, as in URLs: `host`, `host:port`, `user@host:port`.
        scheme: `root`, or `roots` for TLS from the start.
    """

    protocol = tuple(_OWN + name for name in _ROOT) + _ROOT
    root_marker = "/"

    def __init__(self, hostid: Optional[str] = None, scheme: str = "root", **options: Any) -> None:
        if not hostid:
            raise ValueError("hostid names the server: fsspec.filesystem('glroot', hostid='host:1094')")
        if scheme not in ("root", "roots"):
            raise ValueError(f"the scheme is root or roots, and not {scheme}")
        super().__init__(**options)
        self.hostid = hostid
        self.scheme = scheme

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = os.fspath(path)
        found = _root_parts(path)
        if found is not None:
            path = found[2]
        where = _QUERY.search(path)
        query = path[where.start() :] if where else ""
        path = path[: len(path) - len(query)]
        return (path.rstrip("/") or cls.root_marker) + query

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        found = _root_parts(path)
        if found is None:
            return {}
        scheme, hostid, _ = found
        return {"hostid": hostid, "scheme": "roots"} if scheme == "roots" else {"hostid": hostid}

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path, by which fsspec finds this filesystem again."""
        name = self._strip_protocol(name)
        try:
            is_ours = issubclass(fsspec.get_filesystem_class(self.scheme), RootFileSystem)
        except (ImportError, ValueError):
            is_ours = False
        return ("" if is_ours else _OWN) + self._url(name)

    def _url(self, path: str) -> str:
        return f"{self.scheme}://{self.hostid}/{path}"

    def _path(self, directory: str, entry: Stat) -> str:
        directory = _QUERY.split(directory)[0].rstrip("/")
        return f"{directory}/{entry.name}"


def _root_parts(url: str) -> Optional[tuple[str, str, str]]:
    """Scheme, server and path of a URL; `None` of what is none. `root://h//abs` has the path `/abs`, `root://h/rel` has `rel`."""
    scheme, mark, rest = url.partition("://")
    scheme = _plain(scheme)
    if not mark or scheme not in _ROOT:
        return None
    hostid, _, path = rest.partition("/")
    return "roots" if scheme.endswith("s") else "root", hostid, path


class _Read(File):
    """An open file of a filesystem."""

    def __init__(self, fs: _FileSystem, path: str, **opening: Any) -> None:
        super().__init__([fs._url(path)], **opening)
        self.fs = fs
        self.path = path

    def __reduce__(self) -> Any:
        return _open_again, (self.fs, self.path, {**self._opening, "timeout": self._timeout}, self.tell())

    @property
    def full_name(self) -> str:
        """Its URL."""
        return str(self.fs.unstrip_protocol(self.path))

    @property
    def details(self) -> dict[str, Any]:
        """What `info` says of it."""
        return {"name": self.path, "size": self.size, "type": "file"}

    def info(self) -> dict[str, Any]:
        """What `info` says of it."""
        return self.details

    @property
    def loc(self) -> int:
        """The position."""
        return self.tell()


def _open_again(fs: _FileSystem, path: str, opening: dict[str, Any], position: int) -> _Read:
    file = _Read(fs, path, client=fs._client, **opening)
    file.seek(position)
    return file


class _Written(Upload):
    """A file of a filesystem that is being written."""

    def __init__(self, fs: _FileSystem, path: str, *, overwrite: bool, autocommit: bool) -> None:
        super().__init__(
            fs._url(path), client=fs._client, overwrite=overwrite, parents=True, autocommit=autocommit
        )
        self.fs = fs
        self.path = path

    def commit(self) -> None:
        """Sends it."""
        self.fs._handles.drop(self.path)
        super().commit()


class _Streamed(AbstractAsyncStreamedFile):  # type: ignore[misc]
    """A file that is read in an event loop."""

    def __init__(self, fs: _FileSystem, path: str, file: File) -> None:
        super().__init__(fs, path, mode="rb", size=file.size)
        self._file = file
        self.size = file.size
        self.loc = 0

    async def read(self, length: int = -1) -> bytes:
        """Reads from the position on."""
        left = max(0, self.size - self.loc)
        length = left if length < 0 else min(length, left)
        found = await self._file.aread(self.loc, length) if length else b""
        self.loc += len(found)
        return found

    def seek(self, loc: int, whence: int = 0) -> int:
        """Moves the position."""
        base = (0, self.loc, self.size)[whence]
        if base + loc < 0:
            raise ValueError(f"negative seek position {base + loc}")
        self.loc = base + loc
        return self.loc

    def tell(self) -> int:
        """The position."""
        return self.loc

    async def close(self) -> None:
        """Closes it."""
        self._file.close()
        self.closed = True


def register(names: Optional[Iterable[str]] = None, *, clobber: bool = False) -> list[str]:
    """Makes these the filesystems that fsspec has for the names of their protocols; returns those that they have now.

    Without `clobber` names that others hold stay theirs: `http` and `https` are fsspec's own, `root` is fsspec-xrootd's.
    """
    wanted = list(names) if names is not None else [*_HTTP, *_ROOT]
    taken = []
    for name in wanted:
        if name not in _HTTP + _ROOT:
            raise ValueError(f"there is no filesystem for {name!r} here")
        cls = HttpFileSystem if name in _HTTP else RootFileSystem
        is_held = name in registry or name in known_implementations
        if clobber or not is_held or registry.get(name) is cls:
            fsspec.register_implementation(name, cls, clobber=True)
            taken.append(name)
    return taken

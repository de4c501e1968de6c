"""The functions for event loops, with their types."""

from collections.abc import Sequence
from typing import Any, Callable, Literal, Optional, TypedDict, Union, overload

from typing_extensions import Unpack

from ._client import Client, CopyReport, Stat, Url
from .file import File

class _Credentials(TypedDict, total=False):
    client: Optional[Client]
    token: Optional[str]
    token_file: Optional[Url]
    cert: Optional[Url]
    key: Optional[Url]
    ca: Union[None, Url, Sequence[Url]]
    insecure: bool
    no_credentials: bool
    forward_credentials_to: Sequence[str]

class _Copying(_Credentials, total=False):
    progress: Optional[Callable[[int, Optional[int]], Any]]
    overwrite: bool
    checksum: Optional[str]
    require_verified: bool
    streams: Optional[int]
    limit_rate: Optional[int]
    timeout: Optional[float]
    third_party: str
    metalinks: bool

class _Opening(_Credentials, total=False):
    policy: Optional[str]
    memory: Optional[int]
    budget: Optional[float]
    lanes: Optional[int]
    patience: Optional[float]
    timeout: Optional[float]

async def stat(url: Url, **credentials: Unpack[_Credentials]) -> Stat: ...
@overload
async def ls(url: Url, detail: Literal[False] = False, **credentials: Unpack[_Credentials]) -> list[str]: ...
@overload
async def ls(url: Url, detail: Literal[True], **credentials: Unpack[_Credentials]) -> list[Stat]: ...
async def mkdir(url: Url, *, parents: bool = False, **credentials: Unpack[_Credentials]) -> None: ...
async def rmdir(url: Url, **credentials: Unpack[_Credentials]) -> None: ...
async def rm(url: Url, *, recursive: bool = False, **credentials: Unpack[_Credentials]) -> None: ...
async def rename(
    url: Url, to: Url, *, overwrite: bool = False, **credentials: Unpack[_Credentials]
) -> str: ...
async def checksum(url: Url, kind: str = "adler32", **credentials: Unpack[_Credentials]) -> str: ...
async def put(
    url: Url,
    data: Union[bytes, bytearray, memoryview],
    *,
    overwrite: bool = False,
    parents: bool = False,
    **credentials: Unpack[_Credentials],
) -> None: ...
async def copy(source: Union[Url, Sequence[Url]], target: Url, **options: Unpack[_Copying]) -> CopyReport: ...
async def open(url: Union[Url, Sequence[Url]], **options: Unpack[_Opening]) -> File: ...

__all__ = ["stat", "ls", "mkdir", "rmdir", "rm", "rename", "checksum", "put", "copy", "open"]

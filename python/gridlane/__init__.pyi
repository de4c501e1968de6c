"""The functions of the package, with their types."""

from collections.abc import Sequence
from typing import Any, Callable, Literal, Optional, TypedDict, Union, overload

from typing_extensions import Unpack

from . import aio, errors
from ._client import AsyncClient, Client, CopyReport, Stat, Url
from .errors import Error
from .file import File, Upload

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

def stat(url: Url, **credentials: Unpack[_Credentials]) -> Stat: ...
@overload
def ls(url: Url, detail: Literal[False] = False, **credentials: Unpack[_Credentials]) -> list[str]: ...
@overload
def ls(url: Url, detail: Literal[True], **credentials: Unpack[_Credentials]) -> list[Stat]: ...
def mkdir(url: Url, *, parents: bool = False, **credentials: Unpack[_Credentials]) -> None: ...
def rmdir(url: Url, **credentials: Unpack[_Credentials]) -> None: ...
def rm(url: Url, *, recursive: bool = False, **credentials: Unpack[_Credentials]) -> None: ...
def rename(url: Url, to: Url, *, overwrite: bool = False, **credentials: Unpack[_Credentials]) -> str: ...
def checksum(url: Url, kind: str = "adler32", **credentials: Unpack[_Credentials]) -> str: ...
def put(
    url: Url,
    data: Union[bytes, bytearray, memoryview],
    *,
    overwrite: bool = False,
    parents: bool = False,
    **credentials: Unpack[_Credentials],
) -> None: ...
def copy(source: Union[Url, Sequence[Url]], target: Url, **options: Unpack[_Copying]) -> CopyReport: ...
def open(url: Union[Url, Sequence[Url]], **options: Unpack[_Opening]) -> File: ...

__version__: str
__all__ = [
    "AsyncClient",
    "Client",
    "CopyReport",
    "Error",
    "File",
    "Stat",
    "Upload",
    "__version__",
    "aio",
    "checksum",
    "copy",
    "errors",
    "ls",
    "mkdir",
    "open",
    "put",
    "rename",
    "rm",
    "rmdir",
    "stat",
]

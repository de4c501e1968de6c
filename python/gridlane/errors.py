"""Errors: Python's own classes, with what gridlane knows of the failure.

Every error is an `Error`, and one of the classes that Python has for it: `FileNotFoundError`, `PermissionError`,
`TimeoutError`, `ConnectionError` and so on. So programs that know nothing of gridlane handle it rightly.
"""

from __future__ import annotations

import errno
import io
import warnings
from typing import Any, Optional

__all__ = [
    "Error",
    "NotFound",
    "Denied",
    "Exists",
    "IsADirectory",
    "NotADirectory",
    "TimedOut",
    "Disconnected",
    "Busy",
    "Unsupported",
    "Usage",
    "ChecksumMismatch",
    "CredentialWarning",
]


class Error(OSError):
    """A failure: what happened, where, whose fault it is, and what to do about it."""

    kind: str
    """The kind of the failure, as in the command line's JSON: `not_found`, `denied`, `network`…"""
    endpoint: Optional[str]
    """The file or server it happened at, without secrets."""
    hint: Optional[str]
    """What to do about it."""
    retryable: bool
    """True if the same call may succeed later without anything being changed."""
    fault: str
    """The party at fault: `caller`, `local`, `network`, `peer` or `internal`."""
    http_status: Optional[int]
    """The status of HTTP that caused it."""

    _number = errno.EIO

    def __init__(
        self,
        text: str,
        *,
        kind: str = "other",
        endpoint: Optional[str] = None,
        hint: Optional[str] = None,
        retryable: bool = False,
        fault: str = "internal",
        http_status: Optional[int] = None,
        number: Optional[int] = None,
    ) -> None:
        super().__init__(self._number if number is None else number, text)
        self.filename = endpoint
        self.kind = kind
        self.endpoint = endpoint
        self.hint = hint
        self.retryable = retryable
        self.fault = fault
        self.http_status = http_status

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> Any:
        facts = {
            "kind": self.kind,
            "endpoint": self.endpoint,
            "hint": self.hint,
            "retryable": self.retryable,
            "fault": self.fault,
            "http_status": self.http_status,
            "number": self.errno,
        }
        return _again, (type(self), self.strerror, facts)


class NotFound(Error, FileNotFoundError):
    """There is no such file or directory."""

    _number = errno.ENOENT


class Denied(Error, PermissionError):
    """Not allowed."""

    _number = errno.EACCES


class Exists(Error, FileExistsError):
    """It is there already."""

    _number = errno.EEXIST


class IsADirectory(Error, IsADirectoryError):
    """A directory, where a file is wanted."""

    _number = errno.EISDIR


class NotADirectory(Error, NotADirectoryError):
    """A file, where a directory is wanted."""

    _number = errno.ENOTDIR


class TimedOut(Error, TimeoutError):
    """Nothing came for too long."""

    _number = errno.ETIMEDOUT


class Disconnected(Error, ConnectionError):
    """A connection could not be made, or broke."""

    _number = errno.ECONNRESET


class Busy(Error):
    """The server asked to come back later."""

    _number = errno.EBUSY


class Unsupported(Error, io.UnsupportedOperation):
    """The server, or its protocol, cannot do this."""

    _number = errno.EOPNOTSUPP


class Usage(Error, ValueError):
    """The call makes no sense as it is."""

    _number = errno.EINVAL


class ChecksumMismatch(Error):
    """Bytes are not what their checksum says."""


class CredentialWarning(UserWarning):
    """Something about credentials that ends nothing."""


_BY_KIND: dict[str, type[Error]] = {
    "not_found": NotFound,
    "denied": Denied,
    "timeout": TimedOut,
    "network": Disconnected,
    "busy": Busy,
    "unsupported": Unsupported,
    "usage": Usage,
    "checksum_mismatch": ChecksumMismatch,
}
# Hints of those that would be replaced.
_EXISTS = {"replace", "replace_or_rename", "update_or_replace", "move_over"}
_DIRECTORY = {"copy_tree", "list_or_copy_tree", "remove_tree"}


def _class_of(
    kind: str, message: str, hint_name: Optional[str], http_status: Optional[int]
) -> tuple[type[Error], int]:
    """The class for a failure and its number. A conflict with what is there has several names in Python, and one in gridlane."""
    if hint_name in _DIRECTORY or "is a directory" in message or "a directory is there" in message:
        return IsADirectory, errno.EISDIR
    if "is a file and not a directory" in message or "is no directory" in message:
        return NotADirectory, errno.ENOTDIR
    if kind == "precondition":
        if "not empty" in message and "there already" not in message:
            return Error, errno.ENOTEMPTY
        if hint_name == "make_directory" or "there is none that it could be in" in message:
            return NotFound, errno.ENOENT
        is_there = "already" in message or "exists" in message
        if hint_name in _EXISTS or is_there or http_status == 412:
            return Exists, errno.EEXIST
        return Error, errno.ESTALE if "changed" in message else errno.EIO
    found = _BY_KIND.get(kind, Error)
    return found, found._number


def _made(
    *,
    kind: str,
    message: str,
    text: str,
    fault: str,
    endpoint: Optional[str],
    hint: Optional[str],
    hint_name: Optional[str],
    retryable: bool,
    http_status: Optional[int],
    no_space: bool,
) -> Error:
    """The exception for a failure that the extension module tells of."""
    found, number = _class_of(kind, message, hint_name, http_status)
    if no_space:
        number = errno.ENOSPC
    return found(
        text,
        kind=kind,
        endpoint=endpoint,
        hint=hint,
        retryable=retryable,
        fault=fault,
        http_status=http_status,
        number=number,
    )


def _again(found: type[Error], text: str, facts: dict[str, Any]) -> Error:
    return found(text, **facts)


def _warn(message: str, advice: str) -> None:
    warnings.warn(f"{message}; {advice}", CredentialWarning, stacklevel=3)

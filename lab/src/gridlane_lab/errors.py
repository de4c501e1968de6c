"""Errors that end a command: what happened, where, and what to do; with the exit codes of `gridlane`."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes that the lab shares with `gridlane` (docs/reference/exit-codes.md)."""

    OK = 0
    OTHER = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    EXISTS = 5
    NETWORK = 6
    TIMEOUT = 7
    CHECKSUM = 8
    NO_SPACE = 9
    SOME_FAILED = 10
    BUSY = 11
    UNSUPPORTED = 12
    INTERRUPTED = 130


class LabError(Exception):
    """Ends a command with one line: `where: what; hint`."""

    def __init__(self, what: str, *, where: str = "", hint: str = "", code: ExitCode = ExitCode.OTHER) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        return f"{line}; {self.hint}" if self.hint else line

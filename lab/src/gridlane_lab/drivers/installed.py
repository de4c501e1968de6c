"""What drivers of installed programs share: one program of one package, a copy that may be read afterwards, and a tool
that says nothing unless it fails."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from gridlane_lab.driver import Availability, Command, Output, Reading, Task, ToolDriver
from gridlane_lab.drivers.common import copied_then_read, failure, find, program, text_of
from gridlane_lab.drivers.readers import reading_of_events


class InstalledTool(ToolDriver):
    """A program of Debian's. A class says what it is called and makes the command of a transfer."""

    program: ClassVar[str]
    package: ClassVar[str]
    # What makes the program print its version.
    version: ClassVar[tuple[str, ...]] = ("--version",)

    def availability(self) -> Availability:
        """Looks for the program in the path."""
        return find(self.program, self.package, self.version)

    def path(self, name: str | None = None) -> str:
        """Where the program is, or another one of the package. Raises `LabError` if it is nowhere."""
        return program(self.name, name or self.program)

    @abstractmethod
    def transfer(self, task: Task) -> Command:
        """The exact command of one transfer. Raises `LabError` for options that it does not know."""

    def command(self, task: Task) -> Command:
        """The transfer, and the reading afterwards where the work is `copy_then_read`."""
        return copied_then_read(task, self.transfer(task))

    def said(self, task: Task, output: Output) -> Reading:
        """What the tool said of a transfer. Here: nothing unless it failed."""
        if output.exit_code == 0:
            return Reading(bytes_moved=task.size_bytes, sources_used=1 if len(task.sources) == 1 else None)
        return Reading(**failure(output, text_of(output.stderr), text_of(output.stdout)))

    def read(self, task: Task, output: Output) -> Reading:
        """What was said, by the tool or by the reader of its copy."""
        if task.scenario.work.kind == "copy_then_read":
            return reading_of_events(task, output)
        return self.said(task, output)

"""`cp` from memory to memory: the machine allows no copy more."""

from __future__ import annotations

from typing import ClassVar

from gridlane_lab.driver import Availability, Capabilities, Command, Output, Reading, Task, ToolDriver
from gridlane_lab.drivers.common import failure, find, flags_of, need_one_source, options_of, program, text_of
from gridlane_lab.registry import register_tool


@register_tool
class Cp(ToolDriver):
    """The memory baseline."""

    name: ClassVar[str] = "cp"
    capabilities: ClassVar[Capabilities] = Capabilities(protocols=frozenset({"file"}), kinds=frozenset({"memory_copy"}))

    def availability(self) -> Availability:
        """It is everywhere."""
        return find("cp", "coreutils")

    def command(self, task: Task) -> Command:
        """Bytes are really copied: no shared extents, and no holes where zeros are."""
        options_of(self.name, task, {})
        argv = (
            program(self.name, "cp"),
            "--reflink=never",
            "--sparse=never",
            *flags_of(task),
            need_one_source(self.name, task).removeprefix("file://"),
            task.target,
        )
        return Command(argv, dict(task.scenario.tool[0].environment))

    def read(self, task: Task, output: Output) -> Reading:
        """It says nothing unless it fails."""
        if output.exit_code == 0:
            return Reading(bytes_moved=task.size_bytes)
        said = failure(output, text_of(output.stderr))
        return Reading(error=said["error"], error_scope="destination", error_phase="write")

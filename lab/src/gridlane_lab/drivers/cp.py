"""`cp` from memory to memory: the machine allows no copy more."""

from __future__ import annotations

from typing import ClassVar

from gridlane_lab.driver import Capabilities, Command, Output, Reading, Task
from gridlane_lab.drivers.common import failure, flags_of, need_one_source, options_of, text_of
from gridlane_lab.drivers.installed import InstalledTool
from gridlane_lab.registry import register_tool


@register_tool
class Cp(InstalledTool):
    """The memory baseline."""

    name: ClassVar[str] = "cp"
    program: ClassVar[str] = "cp"
    package: ClassVar[str] = "coreutils"
    capabilities: ClassVar[Capabilities] = Capabilities(protocols=frozenset({"file"}), kinds=frozenset({"memory_copy"}))

    def transfer(self, task: Task) -> Command:
        """Bytes are really copied: no shared extents, and no holes where zeros are."""
        options_of(self.name, task, {})
        argv = (
            self.path(),
            "--reflink=never",
            "--sparse=never",
            *flags_of(task),
            need_one_source(self.name, task).removeprefix("file://"),
            task.target,
        )
        return Command(argv, dict(task.scenario.tool[0].environment))

    def said(self, task: Task, output: Output) -> Reading:
        """It says nothing unless it fails."""
        if output.exit_code == 0:
            return Reading(bytes_moved=task.size_bytes)
        said = failure(output, text_of(output.stderr))
        return Reading(error=said["error"], error_scope="destination", error_phase="write")

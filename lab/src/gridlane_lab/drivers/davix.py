"""davix-get, davix-put and davix-cp: the HTTP client of the grid."""

from __future__ import annotations

from typing import ClassVar

from gridlane_lab.driver import Availability, Capabilities, Command, Output, Reading, Task, ToolDriver
from gridlane_lab.drivers.common import (
    authorization_file,
    copied_then_read,
    environment_of,
    failure,
    find,
    flags_of,
    is_url,
    need_one_source,
    options_of,
    program,
    text_of,
)
from gridlane_lab.drivers.readers import reading_of_events
from gridlane_lab.registry import register_tool


@register_tool
class Davix(ToolDriver):
    """It has no number of streams for one file; that of a third-party copy is left to the active server."""

    name: ClassVar[str] = "davix"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"http", "https"}),
        kinds=frozenset({"copy", "upload", "tpc_pull", "tpc_push", "copy_then_read"}),
        auth=frozenset({"none", "token", "proxy"}),
    )

    def availability(self) -> Availability:
        """Debian's davix."""
        return find("davix-get", "davix")

    def command(self, task: Task) -> Command:
        """It trusts directories of hashed names, and no single file."""
        options_of(self.name, task, {})
        source, kind = need_one_source(self.name, task), task.scenario.work.kind
        name = "davix-get" if not is_url(task.target) else "davix-cp" if is_url(source) else "davix-put"
        argv = [program(self.name, name)]
        if name == "davix-cp":
            argv += ["--copy-mode", kind.removeprefix("tpc_")]
        if task.authority_directory is not None:
            argv += ["--capath", str(task.authority_directory)]
        if "proxy" in task.credentials:
            argv += ["--cert", str(task.credentials["proxy"])]
        header = authorization_file(task)
        if header is not None:
            # It reads fields from nowhere else than its command.
            line = header.read_text().strip()
            argv += ["--header", line]
            if name == "davix-cp":
                argv += ["--header", f"TransferHeader{line}"]
        command = Command((*argv, *flags_of(task), source, task.target), environment_of(task))
        return copied_then_read(task, command)

    def read(self, task: Task, output: Output) -> Reading:
        """It says nothing unless it fails."""
        if task.scenario.work.kind == "copy_then_read":
            return reading_of_events(task, output)
        if output.exit_code == 0:
            return Reading(bytes_moved=task.size_bytes, sources_used=1)
        said = failure(output, text_of(output.stderr), text_of(output.stdout))
        return Reading(error=said["error"], error_scope=said["error_scope"], error_phase=said["error_phase"])

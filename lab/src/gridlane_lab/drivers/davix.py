"""davix-get, davix-put and davix-cp: the HTTP client of the grid."""

from __future__ import annotations

from typing import ClassVar

from gridlane_lab.driver import Capabilities, Command, Task
from gridlane_lab.drivers.common import (
    authorization_file,
    environment_of,
    flags_of,
    is_url,
    need_one_source,
    options_of,
)
from gridlane_lab.drivers.installed import InstalledTool
from gridlane_lab.registry import register_tool


@register_tool
class Davix(InstalledTool):
    """It has no number of streams for one file; that of a third-party copy is left to the active server."""

    name: ClassVar[str] = "davix"
    program: ClassVar[str] = "davix-get"
    package: ClassVar[str] = "davix"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"http", "https"}),
        kinds=frozenset({"copy", "upload", "tpc_pull", "tpc_push", "copy_then_read"}),
        auth=frozenset({"none", "token", "proxy"}),
    )

    def transfer(self, task: Task) -> Command:
        """It trusts directories of hashed names, and no single file."""
        options_of(self.name, task, {})
        source, kind = need_one_source(self.name, task), task.scenario.work.kind
        name = "davix-get" if not is_url(task.target) else "davix-cp" if is_url(source) else "davix-put"
        argv = [self.path(name)]
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
        return Command((*argv, *flags_of(task), source, task.target), environment_of(task))

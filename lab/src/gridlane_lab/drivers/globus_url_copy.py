"""globus-url-copy: GridFTP with one or `-p` N data connections, and between two servers."""

from __future__ import annotations

import re
from typing import ClassVar

from gridlane_lab.driver import Capabilities, Command, Output, Reading, Task
from gridlane_lab.drivers.common import (
    environment_of,
    failure,
    flags_of,
    is_url,
    need_one_source,
    options_of,
    text_of,
)
from gridlane_lab.drivers.installed import InstalledTool
from gridlane_lab.registry import register_tool


@register_tool
class GlobusUrlCopy(InstalledTool):
    """Options: `tcp_buffer_bytes` (`-tcp-bs`), `fast` (`-fast`, reuses data channels; default true)."""

    name: ClassVar[str] = "globus-url-copy"
    program: ClassVar[str] = "globus-url-copy"
    package: ClassVar[str] = "globus-gass-copy-progs"
    version: ClassVar[tuple[str, ...]] = ("-version",)
    capabilities: ClassVar[Capabilities] = Capabilities(
        # A server without credentials is spoken to as `ftp`.
        protocols=frozenset({"gsiftp", "ftp"}),
        kinds=frozenset({"copy", "upload", "tpc_pull", "tpc_push", "copy_then_read"}),
        streams_max=64,
        auth=frozenset({"none", "proxy"}),
    )

    def transfer(self, task: Task) -> Command:
        """`-p 1` is extended block mode with one connection; without it, a stream as FTP has it."""
        options = options_of(self.name, task, {"tcp_buffer_bytes": int, "fast": bool})
        work = task.scenario.work
        argv = [self.path(), "-vb"]
        if options.get("fast", True):
            argv.append("-fast")
        if work.streams > 1:
            argv += ["-p", str(work.streams)]
        if "tcp_buffer_bytes" in options:
            argv += ["-tcp-bs", str(options["tcp_buffer_bytes"])]
        places = [_place(need_one_source(self.name, task)), _place(task.target)]
        if any(place.startswith("ftp://") for place in places):
            # Nothing proves who is at the other end of a data connection where nobody has credentials.
            argv.append("-nodcau")
        return Command((*argv, *flags_of(task), *places), environment_of(task))

    def said(self, task: Task, output: Output) -> Reading:
        """The last line of its performance: bytes, the mean rate, and that of the last moment."""
        text = text_of(output.stdout).replace("\r", "\n")
        counts = re.findall(r"^\s*(\d+) bytes\s+[\d.]+ MB/sec avg", text, re.M)
        # Causes go on in lines that are indented.
        said = failure(output, re.sub(r"\n {2,}", " ", text_of(output.stderr)), text)
        moved = int(counts[-1]) if counts else None
        return Reading(
            # Its last line is not always printed at the end.
            bytes_moved=moved if said else task.size_bytes,
            **said,
        )


def _place(place: str) -> str:
    return place if is_url(place) else f"file://{place}"

"""aria2c: several URIs of one file, `-x` connections to each server and `-s` in all."""

from __future__ import annotations

import re
from typing import ClassVar

from gridlane_lab.driver import Capabilities, Command, Output, Reading, Task
from gridlane_lab.drivers.common import environment_of, failure, flags_of, options_of, text_of
from gridlane_lab.drivers.installed import InstalledTool
from gridlane_lab.registry import register_tool

# By the manual of aria2: exit status → whose fault, and in which phase.
_EXITS = {
    2: ("network", "transfer", "timed out"),
    3: ("source", "open", "resource not found"),
    5: ("network", "transfer", "too slow"),
    6: ("network", "transfer", "network problem"),
    9: ("destination", "write", "not enough disk space"),
    13: ("destination", "open", "file already exists"),
    19: ("network", "resolve", "name resolution failed"),
    22: ("source", "open", "bad HTTP response"),
    24: ("source", "authorise", "HTTP authorization failed"),
    29: ("source", "transfer", "server temporarily overloaded"),
    32: ("source", "verify", "checksum mismatch"),
}


@register_tool
class Aria2c(InstalledTool):
    """Options: `split` (`-s`), `min_split` (`-k`). Without streams, its defaults: one connection to each server and
    pieces of at least 20 MiB, so that small files come from one source."""

    name: ClassVar[str] = "aria2c"
    program: ClassVar[str] = "aria2c"
    package: ClassVar[str] = "aria2"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"http", "https"}),
        kinds=frozenset({"copy"}),
        sources_max=16,
        streams_max=16,
        auth=frozenset({"none", "token"}),
    )

    def transfer(self, task: Task) -> Command:
        """Its target is a regular file: it writes pieces in any order."""
        options = options_of(self.name, task, {"split": int, "min_split": str})
        streams = task.scenario.work.streams
        directory, _, file = task.target.rpartition("/")
        argv = [
            self.path(),
            "--no-conf",
            # Its own lines are kept; a bar that is drawn again and again is not.
            "--show-console-readout=false",
            "--summary-interval=0",
            "--console-log-level=warn",
            "--file-allocation=none",
            "--allow-overwrite=true",
            f"--dir={directory or '.'}",
            f"--out={file}",
        ]
        if task.authority_file is not None:
            argv.append(f"--ca-certificate={task.authority_file}")
        if (token := task.token) is not None:
            configuration = task.scratch / f"aria2-{task.number}.conf"
            configuration.touch(mode=0o600)
            configuration.write_text(f"header=Authorization: Bearer {token}\n")
            argv[1] = f"--conf-path={configuration}"
        if streams > 1 or "split" in options:
            split = options.get("split", streams * len(task.sources))
            argv += [f"--max-connection-per-server={min(streams, 16)}", f"--split={split}"]
        if streams > 1 or "min_split" in options:
            argv.append(f"--min-split-size={options.get('min_split', '1M')}")
        return Command((*argv, *flags_of(task), *task.sources), environment_of(task))

    def said(self, task: Task, output: Output) -> Reading:
        """Its table of results has nothing about its sources."""
        text = text_of(output.stdout) + text_of(output.stderr)
        if output.exit_code == 0:
            return Reading(bytes_moved=task.size_bytes if re.search(r"\|OK +\|", text) else None)
        scope, phase, words = _EXITS.get(output.exit_code, (None, None, None))
        errors = [line for line in text.splitlines() if "[ERROR]" in line or "errorCode" in line]
        said = failure(output, "\n".join(errors))
        return Reading(
            error_scope=scope or said["error_scope"],
            error_phase=phase or said["error_phase"],
            error=said["error"] if said["error"] != f"exit {output.exit_code}" else words or said["error"],
        )

"""iperf3: what the path carries, with one or many TCP streams and without files. The raw baseline of all figures."""

from __future__ import annotations

import json
from typing import Any, ClassVar
from urllib.parse import urlsplit

from gridlane_lab.driver import Capabilities, Command, Output, Reading, Task
from gridlane_lab.drivers.common import failure, flags_of, need_one_source, options_of, text_of
from gridlane_lab.drivers.installed import InstalledTool
from gridlane_lab.registry import register_tool

PORT = 5201


@register_tool
class Iperf3(InstalledTool):
    """The server is at the source and sends, as a server of files does. Options: `seconds` (default: the size of the
    file is moved)."""

    name: ClassVar[str] = "iperf3"
    program: ClassVar[str] = "iperf3"
    package: ClassVar[str] = "iperf3"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"tcp"}), kinds=frozenset({"raw_network"}), streams_max=128
    )

    def transfer(self, task: Task) -> Command:
        """The source is `tcp://HOST:PORT` or any other URL of the host."""
        options = options_of(self.name, task, {"seconds": float})
        parts = urlsplit(need_one_source(self.name, task))
        host = parts.hostname or task.sources[0]
        argv = [self.path(), "--client", host]
        argv += ["--port", str(parts.port if parts.scheme == "tcp" and parts.port else PORT)]
        argv += ["--reverse", "--json", "--parallel", str(task.scenario.work.streams)]
        if "seconds" in options:
            argv += ["--time", f"{options['seconds']:g}"]
        else:
            # Of each stream, and what `--bytes` counts is of all.
            argv += ["--bytes", str(task.size_bytes)]
        return Command((*argv, *flags_of(task)), dict(task.scenario.tool[0].environment))

    def said(self, task: Task, output: Output) -> Reading:
        """Its report: bytes that arrived, and its own clock."""
        try:
            report: Any = json.loads(text_of(output.stdout, 20_000_000))
        except ValueError:
            report = {}
        received = report.get("end", {}).get("sum_received", {})
        error = report.get("error")
        if error or output.exit_code or not received:
            said = failure(output, text_of(output.stderr))
            return Reading(
                error=str(error or said.get("error") or "no report"),
                error_scope="network",
                error_phase="connect" if not received.get("bytes") else "transfer",
            )
        # Set-up of the control connection is before its own clock, and its end is the tool's but for a moment.
        seconds = float(received["seconds"])
        return Reading(
            bytes_moved=int(received["bytes"]),
            first_byte_s=max(0.0, output.wall_s - seconds),
            last_byte_s=output.wall_s,
            connections=len(report["end"].get("streams", [])) or None,
            retries=None,
        )

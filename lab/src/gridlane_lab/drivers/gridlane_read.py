"""`gridlane read`: the adaptive reader, on the calls of the job, with one replica or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gridlane_lab import reading
from gridlane_lab.driver import Availability, Capabilities, Command, Output, Reading, Task, ToolDriver
from gridlane_lab.drivers.common import (
    environment_of,
    failure,
    flags_of,
    gridlane_binary,
    options_of,
    program,
    text_of,
)
from gridlane_lab.drivers.gridlane import error_of_event
from gridlane_lab.drivers.readers import verified_bytes
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.helpers.ranges import Wanted
from gridlane_lab.registry import register_tool


@register_tool
class GridlaneRead(ToolDriver):
    """The reader under test. The mode says which calls the job makes: one event at a time, or as many as a vector has.
    How they are brought is its own choice. Options: `policy` (default: adaptive), `lanes`, `budget`, `memory` (in
    bytes)."""

    name: ClassVar[str] = "gridlane-read"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"http", "https", "root", "roots"}),
        kinds=frozenset({"remote_read"}),
        sources_max=32,
        read_modes=frozenset({"single", "vector", "ahead", "lazy"}),
        auth=frozenset({"none", "token", "proxy"}),
    )

    def availability(self) -> Availability:
        """The binary under test."""
        return gridlane_binary()

    def command(self, task: Task) -> Command:
        """The calls of the job as a trace, and the command that replays it."""
        options = options_of(self.name, task, {"policy": str, "lanes": int, "budget": float, "memory": int})
        trace = task.scratch / "calls.csv"
        with open(trace, "w") as file:
            file.write("request,op,offset,length\n")
            for number, (ranges, _) in enumerate(_wanted(task).steps()):
                file.writelines(f"{number},read,{offset},{length}\n" for offset, length in ranges)
        argv = [program(self.name, "gridlane"), "read", str(trace), *task.sources, "--json", "--checksum"]
        if task.authority_file is not None:
            argv += ["--ca", str(task.authority_file)]
        if "token" in task.credentials:
            argv += ["--token-file", str(task.credentials["token"])]
        if "proxy" in task.credentials:
            argv += ["--cert", str(task.credentials["proxy"])]
        for name, value in sorted(options.items()):
            argv += [f"--{name}", str(value)]
        return Command((*argv, *flags_of(task)), environment_of(task), is_json_lines=True)

    def read(self, task: Task, output: Output) -> Reading:
        """Its line about the run (docs/reference/json-events.md), and whether its bytes are right."""
        last: dict[str, Mapping[str, Any]] = {str(event.get("type")): event for _, event in output.events}
        run, error = last.get("run"), last.get("error", {}).get("error")
        wanted = _wanted(task)
        if run is None:
            said = error_of_event(error) if error else failure(output, text_of(output.stderr))
            return Reading(events_requested=wanted.events(), **said)
        return Reading(
            bytes_moved=int(run["moved_bytes"]),
            first_byte_s=float(run["open_s"]),
            last_byte_s=float(run["seconds"]),
            connections=int(run["connections"]),
            requests=int(run["requests"]),
            events_read=wanted.events(),
            events_requested=wanted.events(),
            wait_s=float(run["stall_s"]),
            bytes_verified=verified_bytes(task, wanted, run),
            checksum_compared=run["verification"] == "verified",
        )


def _wanted(task: Task) -> Wanted:
    read = task.scenario.work.read
    job = None if read is None else reading.wanted(task.scenario, read, task.size_bytes, task.number)
    if job is None:
        raise LabError(
            "needs the calls of the job beforehand, and those of a real tree are known to its reader only",
            where=f"scenario {task.scenario.name}",
            hint="give [work.read] a trace",
            code=ExitCode.UNSUPPORTED,
        )
    return job

"""rclone: its back ends `http` and `webdav`."""

from __future__ import annotations

import json
from typing import Any, ClassVar

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
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.registry import register_tool


@register_tool
class Rclone(InstalledTool):
    """Options: `backend`, `http` (downloads; the default) or `webdav`."""

    name: ClassVar[str] = "rclone"
    program: ClassVar[str] = "rclone"
    package: ClassVar[str] = "rclone"
    version: ClassVar[tuple[str, ...]] = ("version",)
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"http", "https"}),
        kinds=frozenset({"copy", "upload"}),
        streams_max=16,
        auth=frozenset({"none", "token"}),
    )

    def transfer(self, task: Task) -> Command:
        """`copyto`, with a remote that is written in the command: no configuration is read."""
        options = options_of(self.name, task, {"backend": str})
        source, streams = need_one_source(self.name, task), task.scenario.work.streams
        backend = str(options.get("backend", "webdav" if is_url(task.target) else "http"))
        if backend not in ("http", "webdav"):
            raise LabError(
                f"the option 'backend' is http or webdav, not {backend!r}",
                where=f"driver {self.name}",
                code=ExitCode.USAGE,
            )
        argv = [self.path(), "--config", "/dev/null"]
        argv += ["--use-json-log", "--stats", "500ms", "--stats-log-level", "NOTICE"]
        argv += ["--multi-thread-streams", str(streams), "--multi-thread-cutoff", "1M" if streams > 1 else "1P"]
        if task.authority_file is not None:
            argv += ["--ca-cert", str(task.authority_file)]
        environment = environment_of(task)
        if (token := task.token) is not None:
            # A field of the back end http; of webdav its own option.
            environment["RCLONE_WEBDAV_BEARER_TOKEN"] = token
            environment["RCLONE_HTTP_HEADERS"] = f"Authorization,Bearer {token}"
        places = [_remote(place, backend) if is_url(place) else place for place in (source, task.target)]
        return Command((*argv, *flags_of(task), "copyto", *places), environment)

    def said(self, task: Task, output: Output) -> Reading:
        """Its statistics, of which the last line has all."""
        errors, moved = [], None
        for line in text_of(output.stderr).splitlines():
            try:
                value: Any = json.loads(line)
            except ValueError:
                continue
            if not isinstance(value, dict):
                continue
            moved = value.get("stats", {}).get("bytes", moved)
            if value.get("level") == "error":
                errors.append(str(value.get("msg")))
        said = failure(output, "\n".join(errors), text_of(output.stderr))
        return Reading(
            bytes_moved=moved if moved or said else task.size_bytes,
            **said,
        )


def _remote(url: str, backend: str) -> str:
    """A remote of its own for the directory, and the file's name in it."""
    above, _, name = url.rpartition("/")
    vendor = ",vendor=other" if backend == "webdav" else ""
    return f":{backend},url='{above}/'{vendor}:{name}"

"""gfal-copy: the client of the grid's middleware over https, root and gsiftp."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from gridlane_lab.driver import Availability, Capabilities, Command, Output, Reading, Task
from gridlane_lab.drivers.common import (
    environment_of,
    failure,
    file_sha256,
    flags_of,
    is_url,
    need_one_source,
    options_of,
    text_of,
    version_of,
)
from gridlane_lab.drivers.installed import InstalledTool
from gridlane_lab.registry import register_tool

# Its Python modules are those of Debian's interpreter, whatever stands first in the path.
_PYTHON = {"GFAL_PYTHONBIN": "/usr/bin/python3"}
_PLUGINS = {"http": "http", "https": "http", "root": "xrootd", "roots": "xrootd", "gsiftp": "gridftp"}


@register_tool
class GfalCopy(InstalledTool):
    """Options: `copy_mode` (`pull`, `push`, `streamed`; default: by the kind of work), `checksum` (`-K`)."""

    name: ClassVar[str] = "gfal-copy"
    program: ClassVar[str] = "gfal-copy"
    package: ClassVar[str] = "gfal2-util-scripts"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"http", "https", "root", "roots", "gsiftp"}),
        kinds=frozenset({"copy", "upload", "tpc_pull", "tpc_push"}),
        streams_max=16,
        auth=frozenset({"none", "token", "proxy"}),
    )

    def availability(self) -> Availability:
        """Debian's gfal2-util, with the plug-ins that there are."""
        found = super().availability()
        if found.path is None:
            return found
        version = version_of([found.path, "--version"], _PYTHON)
        missing = [plugin for plugin in sorted(set(_PLUGINS.values())) if not _has_plugin(plugin)]
        if missing and version:
            version += f", without gfal2-plugin-{', gfal2-plugin-'.join(missing)}"
        return Availability(found.path, version, file_sha256(found.path))

    def transfer(self, task: Task) -> Command:
        """`gfal-copy [-n N] [--copy-mode M] SOURCE TARGET`."""
        options = options_of(self.name, task, {"copy_mode": str, "checksum": str})
        work = task.scenario.work
        source = need_one_source(self.name, task)
        environment = dict(_PYTHON)
        argv = [self.path(), "--force"]
        if is_url(source) and is_url(task.target):
            mode = str(options.get("copy_mode") or work.kind.removeprefix("tpc_"))
            # It knows the mode for HTTP only.
            if source.startswith("http"):
                argv += ["--copy-mode", mode]
                if work.auth == "none":
                    # Without a token it asks for delegation, which servers refuse; those that are open read no token.
                    argv.append("--no-delegation")
                    environment["BEARER_TOKEN"] = "anonymous"
        if work.streams > 1 or "streams" in task.scenario.matrix.factors:
            argv += ["--nbstreams", str(work.streams)]
        if "checksum" in options:
            argv += ["--checksum", str(options["checksum"])]
        if "proxy" in task.credentials:
            argv += ["--cert", str(task.credentials["proxy"])]
        # Its own limit of 1800 s would look like a failure of the tool.
        argv += ["--timeout", "100000", *flags_of(task)]
        if (token := task.token) is not None:
            environment["BEARER_TOKEN"] = token
        return Command((*argv, _place(source), _place(task.target)), environment_of(task, environment))

    def said(self, task: Task, output: Output) -> Reading:
        """`Copying N bytes SOURCE => TARGET`, and the error on standard error."""
        text = text_of(output.stdout)
        if output.exit_code == 0:
            copying = re.search(r"^Copying (\d+) bytes", text, re.M)
            return Reading(bytes_moved=int(copying[1]) if copying else None, sources_used=1)
        said = failure(output, text_of(output.stderr), text)
        status = re.search(r"\bHTTP (\d{3})\b|\b(?:status|code)[ :]+(\d{3})\b", text_of(output.stderr) + text)
        return Reading(
            **said,
            http_status=int(status[1] or status[2]) if status else None,
        )


def _has_plugin(name: str) -> bool:
    return any(Path("/usr/lib").glob(f"*/gfal2-plugins/libgfal_plugin_{name}.so"))


def _place(place: str) -> str:
    return place if is_url(place) else f"file://{place}"

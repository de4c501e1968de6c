"""FDT, from a jar that the user names: Java, NIO, many TCP streams. Its server has to run at the source.

`GRIDLANE_LAB_FDT_JAR` or the option `jar` names the file; the lab brings none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from gridlane_lab.driver import (
    Availability,
    Capabilities,
    Command,
    Export,
    RunningServer,
    ServerDriver,
    Site,
    Task,
)
from gridlane_lab.drivers.common import (
    environment_of,
    file_sha256,
    flags_of,
    need_one_source,
    options_of,
    program,
    version_of,
)
from gridlane_lab.drivers.installed import InstalledTool
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.registry import register_server, register_tool
from gridlane_lab.scenario import Kind, Option
from gridlane_lab.servers.base import ProcessServer, check_options

PORT = 54321
VARIABLE = "GRIDLANE_LAB_FDT_JAR"

# FDT keeps names and takes a directory only: the file gets its name afterwards. $1: the directory, $2: the target.
_MOVE = (
    'directory=$1 target=$2; shift 2; mkdir -p "$directory" && "$@" && mv "$directory"/* "$target"'
    ' && rmdir "$directory"'
)


@register_tool
class Fdt(InstalledTool):
    """Options: `jar`, `window` (`-ss`, for example `8M`). Its log is for people; the bytes at the target count."""

    name: ClassVar[str] = "fdt"
    program: ClassVar[str] = "java"
    package: ClassVar[str] = "default-jre-headless"
    version: ClassVar[tuple[str, ...]] = ("-version",)
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"fdt"}), kinds=frozenset({"copy"}), streams_max=64
    )

    def availability(self) -> Availability:
        """Java, and the jar."""
        java, jar = super().availability(), os.environ.get(VARIABLE)
        if java.path is None:
            return java
        if not jar:
            return Availability(None, None, reason=f"FDT is no package; name its jar with {VARIABLE}")
        if not Path(jar).is_file():
            return Availability(None, None, reason=f"{VARIABLE} names {jar}, which is no file")
        return Availability(java.path, version_of([java.path, "-jar", jar, "-V"]) or java.version, file_sha256(jar))

    def transfer(self, task: Task) -> Command:
        """The client pulls, which FDT calls so as well."""
        options = options_of(self.name, task, {"jar": str, "window": str})
        jar = str(options.get("jar") or os.environ.get(VARIABLE) or "")
        if not jar:
            raise LabError(f"no jar is named; set {VARIABLE}", where="driver fdt", code=ExitCode.UNSUPPORTED)
        parts = urlsplit(need_one_source(self.name, task))
        directory = f"{task.target}.fdt-{task.number}"
        argv = [self.path(), "-jar", jar]
        argv += ["-pull", "-c", parts.hostname or "", "-p", str(parts.port or PORT)]
        argv += ["-P", str(task.scenario.work.streams), "-noupdates"]
        if "window" in options:
            argv += ["-ss", str(options["window"])]
        argv += [*flags_of(task), "-d", directory, "/" + parts.path.lstrip("/")]
        return Command(("sh", "-c", _MOVE, "fdt", directory, task.target, *argv), environment_of(task))


@register_server
class FdtServer(ServerDriver):
    """The same jar without `-c`. It has no directory of its own: paths are those of the machine."""

    name: ClassVar[str] = "fdt"
    protocols: ClassVar[frozenset[str]] = frozenset({"fdt"})
    kinds: ClassVar[frozenset[Kind]] = frozenset({"copy"})

    def availability(self) -> Availability:
        """As the client's."""
        return Fdt().availability()

    def start(self, site: Site, export: Export, flags: Sequence[str], options: Mapping[str, Option]) -> RunningServer:
        """At the port that clients expect, where the site has ports of its own."""
        check_options(options, [], self.name)
        port = site.port(PORT)
        command = [program(self.name, "java"), "-jar", os.environ[VARIABLE], "-p", str(port), "-noupdates", *flags]
        url = f"fdt://{site.host}:{port}{export.directory}/"
        return ProcessServer(site, export, command, {"fdt": url}, [port])

"""xrdcp: XRootD's client, from one source or several, and between two servers."""

from __future__ import annotations

from typing import ClassVar
from xml.sax.saxutils import escape, quoteattr

from gridlane_lab.driver import Capabilities, Command, Output, Reading, Task
from gridlane_lab.drivers.common import environment_of, flags_of, need_one_source, options_of
from gridlane_lab.drivers.installed import InstalledTool
from gridlane_lab.registry import register_tool

# `-S` adds so many to the first connection.
_STREAMS_MAX = 16


@register_tool
class Xrdcp(InstalledTool):
    """Options: `pages` (default true: CRC32C of each page, in software in Debian's build), `cksum` (`--cksum`)."""

    name: ClassVar[str] = "xrdcp"
    program: ClassVar[str] = "xrdcp"
    package: ClassVar[str] = "xrootd-client"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"root", "roots"}),
        kinds=frozenset({"copy", "upload", "tpc_pull", "copy_then_read"}),
        sources_max=16,
        streams_max=_STREAMS_MAX,
        auth=frozenset({"none", "token", "proxy"}),
    )

    def transfer(self, task: Task) -> Command:
        """Several sources are told by a metalink: without a redirector it has no other way."""
        options = options_of(self.name, task, {"pages": bool, "cksum": str})
        work = task.scenario.work
        argv = [self.path(), "--nopbar", "--silent", "--force"]
        if work.kind in ("tpc_pull", "tpc_push"):
            argv += ["--tpc", "only"]
        if work.streams > 1:
            argv += ["--streams", str(work.streams)]
        if "cksum" in options:
            argv += ["--cksum", str(options["cksum"])]
        if len(task.sources) > 1:
            source = task.scratch / f"replicas-{task.number}.meta4"
            source.write_text(metalink(task))
            argv += ["--sources", str(len(task.sources)), *flags_of(task), str(source), task.target]
        else:
            argv += [*flags_of(task), _doubled(need_one_source(self.name, task)), _doubled(task.target)]
        environment = environment_of(task, {"XRD_CPUSEPGWRTRD": "0"} if options.get("pages") is False else {})
        return Command(tuple(argv), environment)

    def said(self, task: Task, output: Output) -> Reading:
        """Silent when it succeeds; else one line of error."""
        if output.exit_code == 0:
            compared = str(task.scenario.tool[0].options.get("cksum", "")).endswith(":source")
            return Reading(bytes_moved=task.size_bytes, checksum_compared=compared or None)
        return super().said(task, output)


def metalink(task: Task) -> str:
    """The replicas of the task's file, in their order."""
    urls = "".join(f'<url priority="{rank}">{escape(_doubled(url))}</url>' for rank, url in enumerate(task.sources, 1))
    name = quoteattr(task.target.rpartition("/")[2] or "file")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<metalink xmlns="urn:ietf:params:xml:ns:metalink">'
        f"<file name={name}><size>{task.size_bytes}</size>{urls}</file></metalink>\n"
    )


def _doubled(place: str) -> str:
    """The path of a root:// URL begins with a slash of its own."""
    scheme, separator, rest = place.partition("://")
    if not separator or not scheme.startswith(("root", "xroot")):
        return place
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}//{path.lstrip('/')}" if slash else place

"""`gridlane cp`: copies from one or several sources, uploads, third-party copies. Its JSON lines tell what it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gridlane_lab.driver import Availability, Capabilities, Command, Output, Reading, Task
from gridlane_lab.drivers.common import (
    environment_of,
    failure,
    flags_of,
    gridlane_binary,
    options_of,
    text_of,
)
from gridlane_lab.drivers.installed import InstalledTool
from gridlane_lab.registry import register_tool

# Whose fault an error is, by the word of `gridlane`, in the words of the rows.
_SCOPES = {"caller": "client", "local": "destination", "network": "network", "peer": "source", "internal": "client"}
# By the class of an error (docs/reference/exit-codes.md): in which phase, and for some whose fault in any case.
_PHASES = {
    "not_found": "open",
    "denied": "authorise",
    "precondition": "open",
    "network": "transfer",
    "timeout": "transfer",
    "checksum_mismatch": "verify",
    "local_io": "write",
    "busy": "open",
    "unsupported": "open",
    "protocol": "transfer",
}
_SCOPES_OF_CLASSES = {
    "not_found": "source",
    "denied": "source",
    "checksum_mismatch": "source",
    "local_io": "destination",
}


@register_tool
class Gridlane(InstalledTool):
    """The client under test. Options: `checksum`, a type that is compared (default: whatever sources state);
    `own_streams`, true where it chooses their number although streams are a factor."""

    name: ClassVar[str] = "gridlane"
    program: ClassVar[str] = "gridlane"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"http", "https", "root", "roots"}),
        kinds=frozenset({"copy", "upload", "tpc_pull", "tpc_push", "copy_then_read"}),
        sources_max=32,
        streams_max=64,
        auth=frozenset({"none", "token", "proxy"}),
    )

    def availability(self) -> Availability:
        """The binary under test."""
        return gridlane_binary()

    def transfer(self, task: Task) -> Command:
        """`gridlane cp SOURCE TARGET --mirror …`."""
        options = options_of(self.name, task, {"checksum": str, "own_streams": bool})
        work = task.scenario.work
        first, *mirrors = task.sources
        argv = [self.path(), "cp", first, task.target, "--json", "--progress", "never"]
        for mirror in mirrors:
            argv += ["--mirror", mirror]
        if task.authority_file is not None:
            argv += ["--ca", str(task.authority_file)]
        # A number of streams is exact here; without one, gridlane finds its own, which is its way of working.
        is_factor = "streams" in task.scenario.matrix.factors and not options.get("own_streams")
        if work.streams > 1 or is_factor:
            argv += ["--streams", str(work.streams)]
        if work.kind in ("tpc_pull", "tpc_push"):
            argv += ["--tpc", "only", "--tpc-mode", work.kind.removeprefix("tpc_")]
        if "checksum" in options:
            argv += ["--checksum", str(options["checksum"])]
        if "token" in task.credentials:
            argv += ["--token-file", str(task.credentials["token"])]
        if "proxy" in task.credentials:
            argv += ["--cert", str(task.credentials["proxy"])]
        return Command((*argv, *flags_of(task)), environment_of(task), is_json_lines=True)

    def said(self, task: Task, output: Output) -> Reading:
        """Its events."""
        return reading_of_cp(output)


def reading_of_cp(output: Output) -> Reading:
    """The events of a copy: docs/reference/json-events.md."""
    last: dict[str, Mapping[str, Any]] = {}
    first_byte = last_byte = verified = None
    retries = 0
    for at, event in output.events:
        kind = str(event.get("type"))
        last[kind] = event
        if kind == "file.start":
            # The size comes with the first answer, so no byte is earlier: a rate from here on is never too high. A
            # copy that begins again begins here as well.
            first_byte, last_byte = at, None
        elif kind == "progress" and last_byte is None and event.get("bytes") and _is_whole(event):
            last_byte = at
        elif kind == "retry":
            retries += 1
        elif kind == "verify" and event.get("matches") and "votes" in event:
            verified = at
        elif kind == "file.done" and last_byte is None:
            last_byte = at
    summary = last.get("summary", {})
    sources: list[Mapping[str, Any]] = list(summary.get("sources") or [])
    error: Mapping[str, Any] = {}
    for kind in ("file.failed", "error"):
        error = error or last.get(kind, {}).get("error") or {}
    used = [source for source in sources if source.get("bytes")]
    done = last.get("file.done")
    if last_byte is not None and verified is not None:
        last_byte = min(last_byte, verified)
    text = {} if error else failure(output, text_of(output.stderr))
    return Reading(
        bytes_moved=_int(summary.get("fetched_bytes")) or _int((done or {}).get("bytes")),
        first_byte_s=first_byte if done else None,
        last_byte_s=last_byte,
        verified_s=verified,
        sources_used=len(used) if sources else None,
        connections=sum(_int(source.get("connections")) or 0 for source in sources) if sources else None,
        source_connections={str(source["url"]): _int(source.get("connections")) or 0 for source in sources},
        retries=retries,
        checksum_compared=summary.get("verification") == "verified" if summary else None,
        **(error_of_event(error) if error else text),
        source_bytes={str(source["url"]): int(source.get("bytes") or 0) for source in sources},
        source_wasted_bytes={
            str(source["url"]): max(0, received - int(source.get("bytes") or 0))
            for source in sources
            if (received := _int(source.get("received_bytes"))) is not None
        },
    )


def error_of_event(error: Mapping[str, Any]) -> dict[str, Any]:
    """An error of its events, in the words of the rows."""
    return {
        "http_status": _int(error.get("http_status")),
        "error_scope": _scope(error),
        "error_phase": _PHASES.get(str(error.get("class"))),
        "error": str(error.get("message")),
    }


def _scope(error: Mapping[str, Any]) -> str | None:
    if error.get("class") == "denied" and error.get("fault") == "caller" and error.get("http_status") is None:
        # Nobody was asked: a credential that has expired is not sent.
        return "client"
    return _SCOPES_OF_CLASSES.get(str(error.get("class"))) or _SCOPES.get(str(error.get("fault")))


def _is_whole(event: Mapping[str, Any]) -> bool:
    return event.get("bytes") == event.get("size_bytes")


def _int(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

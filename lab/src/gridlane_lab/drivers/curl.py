"""curl: downloads and uploads, and COPY as initiator of a third-party copy."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from gridlane_lab.driver import Capabilities, Command, Output, Reading, Task
from gridlane_lab.drivers.common import (
    Failure,
    authorization_file,
    cause,
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

# A line of its own behind everything, whatever the body was.
_REPORT = "\\n%{json}\\n"


@register_tool
class Curl(InstalledTool):
    """One connection. Of a third-party copy it is the initiator, and the streams are those of the active server.
    Options of a third-party copy: `overwrite` (default true), `verify` (`RequireChecksumVerification`), `own_streams`
    (the active server chooses their number, although streams are a factor)."""

    name: ClassVar[str] = "curl"
    program: ClassVar[str] = "curl"
    package: ClassVar[str] = "curl"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"http", "https"}),
        kinds=frozenset({"copy", "upload", "copy_then_read"}),
        auth=frozenset({"none", "token", "proxy"}),
    )

    def transfer(self, task: Task) -> Command:
        """With its own times on standard output."""
        options_of(self.name, task, {})
        source = need_one_source(self.name, task)
        argv = self._base(task)
        if is_url(task.target):
            argv += ["--upload-file", source, *flags_of(task), task.target]
        else:
            argv += ["--output", task.target, *flags_of(task), source]
        return Command(tuple(argv), environment_of(task))

    def _base(self, task: Task) -> list[str]:
        argv = [self.path(), "--disable", "--silent", "--show-error", "--fail"]
        argv += ["--write-out", _REPORT]
        if task.authority_file is not None:
            argv += ["--cacert", str(task.authority_file)]
        if "proxy" in task.credentials:
            argv += ["--cert", str(task.credentials["proxy"])]
        header = authorization_file(task)
        if header is not None:
            argv += ["--header", f"@{header}"]
        return argv

    def said(self, task: Task, output: Output) -> Reading:
        """Its times. An upload's first byte is not told."""
        report = report_of(text_of(output.stdout))
        said = failure(output, text_of(output.stderr))
        is_upload = is_url(task.target)
        return Reading(
            bytes_moved=_int(report.get("size_upload" if is_upload else "size_download")),
            first_byte_s=None if is_upload or said else _float(report.get("time_starttransfer")),
            last_byte_s=None if said else _float(report.get("time_total")),
            sources_used=1 if report and not said else None,
            connections=_int(report.get("num_connects")),
            http_status=_int(report.get("http_code")) or None,
            **said,
        )


@register_tool
class CurlCopy(Curl):
    """`curl -X COPY`, as `curl` in a script is used between two servers."""

    name: ClassVar[str] = "curl-copy"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"http", "https"}),
        kinds=frozenset({"tpc_pull", "tpc_push"}),
        # `gridlane serve` takes several sources; other servers answer 400.
        sources_max=16,
        streams_max=100,
        auth=frozenset({"none", "token", "proxy"}),
    )

    def transfer(self, task: Task) -> Command:
        """A pull goes to the target with `Source`, a push to the source with `Destination`."""
        options = options_of(self.name, task, {"overwrite": bool, "verify": bool, "own_streams": bool})
        work = task.scenario.work
        argv = [*self._base(task), "--no-buffer", "--request", "COPY"]
        # The body of a refusal says why.
        argv[argv.index("--fail")] = "--fail-with-body"
        if work.kind == "tpc_push":
            active, ends = need_one_source(self.name, task), [f"Destination: {task.target}"]
        else:
            active, ends = task.target, [f"Source: {source}" for source in task.sources]
        fields = [*ends, "Credential: none", f"Overwrite: {'F' if options.get('overwrite') is False else 'T'}"]
        if options.get("verify"):
            fields.append("RequireChecksumVerification: true")
        if options.get("own_streams"):
            fields.append("X-Number-Of-Streams: 0")
        elif work.streams > 1 or "streams" in task.scenario.matrix.factors:
            fields.append(f"X-Number-Of-Streams: {work.streams}")
        for field in fields:
            argv += ["--header", field]
        header = authorization_file(task)
        if header is not None:
            passive = task.scratch / f"transfer-authorization-{task.number}"
            passive.touch(mode=0o600)
            passive.write_text("TransferHeader" + header.read_text())
            argv += ["--header", f"@{passive}"]
        return Command((*argv, *flags_of(task), active), environment_of(task))

    def said(self, task: Task, output: Output) -> Reading:
        """The markers. A status of 2xx is no success yet: the last line is."""
        text = text_of(output.stdout)
        report, copy = report_of(text), markers(text)
        body = "\n".join(line for line in text.splitlines() if not line.startswith("{"))
        words = copy.last if copy.is_failure else body if (_int(report.get("http_code")) or 0) >= 400 else ""
        said: Failure = failure(output, words, text_of(output.stderr))
        if not said and not copy.is_success:
            # curl is content with any body; the copy failed all the same.
            words = copy.last or "the answer has no last line"
            scope, phase = cause(words)
            said = {"error": words, "error_scope": scope or "service", "error_phase": phase or "transfer"}
        return Reading(
            bytes_moved=copy.bytes_moved if said else task.size_bytes,
            connections=copy.connections_max or None,
            http_status=_int(report.get("http_code")) or None,
            **said,
        )


@dataclass(frozen=True)
class Markers:
    """What the answer to a COPY said."""

    count: int
    # Of the last marker of each stripe, together.
    bytes_moved: int | None
    # Connections that a marker named, at most.
    connections_max: int
    last: str

    @property
    def is_success(self) -> bool:
        """Whether the last line says so."""
        return self.last.lower().startswith("success")

    @property
    def is_failure(self) -> bool:
        """Whether the last line says so. Neither: there is none."""
        return self.last.lower().startswith("fail")


def markers(text: str) -> Markers:
    """The body of an answer to COPY, without the report that may follow it."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("{")]
    stripes: dict[str, int] = {}
    stripe, connections = "0", 0
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        if name == "stripe index":
            stripe = value
        elif name == "stripe bytes transferred" and value.isdigit():
            stripes[stripe] = int(value)
        elif name == "remoteconnections":
            connections = max(connections, len(re.findall(r"tcp:", value)))
    last = lines[-1] if lines and re.match(r"success|fail", lines[-1], re.I) else ""
    return Markers(
        count=sum(line.lower() == "end" for line in lines),
        bytes_moved=sum(stripes.values()) if stripes else None,
        connections_max=connections,
        last=last,
    )


def report_of(text: str) -> dict[str, Any]:
    """The last line that is a JSON object: curl's own report."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            return value if isinstance(value, dict) else {}
    return {}


def _int(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None

"""Readers of a file where it is: pyxrootd over root://, Python's HTTP client over https, uproot over both.

They are programs of `helpers/`, processes of their own like other tools, that take the job of `[work.read]` and print
JSON lines. What they read is compared with the original by its adler32, in the order of the job.
"""

from __future__ import annotations

import mmap
import sys
import zlib
from collections.abc import Mapping
from typing import Any, ClassVar

from gridlane_lab import reading
from gridlane_lab.driver import Availability, Capabilities, Command, Output, Reading, Task, ToolDriver
from gridlane_lab.drivers.common import (
    HELPERS,
    Failure,
    cause,
    environment_of,
    failure,
    file_sha256,
    flags_of,
    need_one_source,
    options_of,
    python_with,
    read_options,
    text_of,
    version_of,
)
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.helpers.ranges import Wanted
from gridlane_lab.registry import register_tool

_MODES = frozenset({"single", "vector", "ahead", "lazy"})


class _Reader(ToolDriver):
    """Options: `block_bytes`, of the read-ahead (default 5 MiB)."""

    program: ClassVar[str]
    modules: ClassVar[tuple[str, ...]] = ()
    # What prints the version.
    version_code: ClassVar[str]
    hint: ClassVar[str]

    def availability(self) -> Availability:
        """An interpreter that has the modules: `GRIDLANE_LAB_PYTHON`, the lab's own, or Debian's."""
        python = python_with(*self.modules)
        if python is None:
            return Availability(None, None, reason=f"no Python here has {' and '.join(self.modules)}; {self.hint}")
        return Availability(python, version_of([python, "-c", self.version_code]), file_sha256(python))

    def command(self, task: Task) -> Command:
        """The helper with the job."""
        options = options_of(self.name, task, self.known_options())
        argv = [self.python(), str(HELPERS / self.program), *read_options(task), f"--directory={task.scratch}"]
        if task.authority_file is not None:
            argv += ["--ca", str(task.authority_file)]
        if "token" in task.credentials:
            argv += ["--token-file", str(task.credentials["token"])]
        for name, value in sorted(options.items()):
            argv.append(f"--{name.replace('_', '-')}={value}")
        return Command(
            (*argv, *flags_of(task), need_one_source(self.name, task)), environment_of(task), is_json_lines=True
        )

    def python(self) -> str:
        """The interpreter. It is looked for once."""
        found = python_with(*self.modules)
        if found is None:
            raise LabError(self.availability().reason, where=f"driver {self.name}", code=ExitCode.UNSUPPORTED)
        return found

    def known_options(self) -> dict[str, type]:
        """Those of the helper that no key of `[work.read]` has."""
        return {"block_bytes": int}

    def read(self, task: Task, output: Output) -> Reading:
        """Its JSON lines, and whether its bytes are right."""
        return reading_of_events(task, output)


@register_tool
class Pyxrootd(_Reader):
    """XRootD's own client, as Python users have it."""

    name: ClassVar[str] = "pyxrootd"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"root", "roots"}),
        kinds=frozenset({"remote_read"}),
        read_modes=_MODES,
        auth=frozenset({"none", "token", "proxy"}),
    )
    program = "read_remote.py"
    modules = ("XRootD.client",)
    version_code = "import XRootD.client; print('pyxrootd', XRootD.client.__version__)"
    hint = "apt-get install python3-xrootd"


@register_tool
class PythonHttp(_Reader):
    """One connection of Python's http.client, with single ranges or several in a request."""

    name: ClassVar[str] = "python-http"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"http", "https"}),
        kinds=frozenset({"remote_read"}),
        read_modes=_MODES,
        auth=frozenset({"none", "token"}),
    )
    program = "read_remote.py"
    version_code = "import platform; print('Python', platform.python_version())"
    hint = "apt-get install python3"

    def availability(self) -> Availability:
        """The lab's own interpreter."""
        return Availability(sys.executable, version_of([sys.executable, "--version"]), file_sha256(sys.executable))

    def python(self) -> str:
        """The same."""
        return sys.executable


@register_tool
class Uproot(_Reader):
    """uproot on the reads of the two above, for ROOT files that are real: pattern `branches` without a layout. Options:
    `block_bytes`, `tree`."""

    name: ClassVar[str] = "uproot"
    capabilities: ClassVar[Capabilities] = Capabilities(
        protocols=frozenset({"http", "https", "root", "roots"}),
        kinds=frozenset({"remote_read"}),
        read_modes=_MODES,
        auth=frozenset({"none", "token"}),
    )
    program = "read_tree.py"
    modules = ("uproot", "XRootD.client")
    version_code = "import uproot; print('uproot', uproot.__version__)"
    hint = "docs/guides/lab.md says how to make one; GRIDLANE_LAB_PYTHON names it"

    def known_options(self) -> dict[str, type]:
        """The tree is found by its usual names else."""
        return {"block_bytes": int, "tree": str}


def reading_of_events(task: Task, output: Output) -> Reading:
    """The JSON lines of a helper. One that was ended has a last `progress`."""
    last: Mapping[str, Any] = {}
    failed: Mapping[str, Any] = {}
    for _, event in output.events:
        if event.get("type") in ("progress", "summary", "ended"):
            last = {**last, **event}
        elif event.get("type") == "failed":
            failed = event
    wanted = _wanted(task)
    is_whole = last.get("type") == "summary"
    said: Failure = {}
    if failed:
        scope, _ = cause(str(failed.get("error")))
        said = {"error": str(failed["error"]), "error_scope": scope, "error_phase": str(failed.get("phase"))}
    elif not is_whole:
        said = failure(output, text_of(output.stderr))
    return Reading(
        # Of a copy that is read afterwards, what went over the network is the copy.
        bytes_moved=_int(last.get("copied_bytes", last.get("bytes_moved"))),
        first_byte_s=_float(last.get("first_byte_s")) if "copy_s" not in last else None,
        last_byte_s=_float(last.get("last_byte_s")),
        reconnects=_int(last.get("reconnects")),
        requests=_int(last.get("requests")),
        events_read=_int(last.get("events")),
        events_requested=wanted.events() if wanted is not None else _int(last.get("events")) if is_whole else None,
        wait_s=_float(last.get("wait_s")),
        bytes_verified=verified_bytes(task, wanted, last) if is_whole else None,
        http_status=_int(failed.get("http_status")),
        **said,
    )


def _wanted(task: Task) -> Wanted | None:
    read = task.scenario.work.read
    return None if read is None else reading.wanted(task.scenario, read, task.size_bytes, task.number)


def verified_bytes(task: Task, wanted: Wanted | None, last: Mapping[str, Any]) -> int | None:
    """Bytes that the job read, if they are those of the original; 0 if they are not; None if nothing tells."""
    if wanted is None or task.original is None or "adler32" not in last:
        return None
    digest, count = 1, 0
    with open(task.original, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for ranges, _ in wanted.steps():
            for offset, length in ranges:
                digest = zlib.adler32(content[offset : offset + length], digest)
                count += length
    return count if f"{digest:08x}" == last["adler32"] and count == last.get("bytes") else 0


def _int(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

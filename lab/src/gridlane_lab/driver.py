"""How tools, servers, sites and the runner plug into the lab.

A tool driver is stateless: it says what it can (`capabilities`, known without the tool being installed), whether it is
there and in which version (`availability`), and the exact command for one transfer (`command`). After the transfer it
reads what the tool said about itself (`read`). It starts nothing, measures nothing and judges nothing: starting,
timing, CPU, limits, and the comparison of bytes are the runner's, the same for every tool.

A server driver starts a server at a site and says how it is reached. What is started is ended by the runner, whatever
happens.

The runner makes networks, servers and files, runs the turns of a block in the order that it is given, and yields rows
(`record`). It yields a row for each transfer of each turn, in every case: a tool that is missing, fails, is cut off or
delivers wrong bytes is a row with a status.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from gridlane_lab.record import Row
from gridlane_lab.scenario import Kind, Option, Scenario, Work

if TYPE_CHECKING:
    from gridlane_lab.matrix import Turn


@dataclass(frozen=True)
class Capabilities:
    """What a tool can do, as a property of the program: it does not depend on this machine."""

    protocols: frozenset[str]
    kinds: frozenset[Kind] = frozenset({"copy"})
    sources_max: int = 1
    streams_max: int = 1
    # Names of modes of `[work.read]`.
    read_modes: frozenset[str] = frozenset()
    # Credentials, as `[work] auth` has them.
    auth: frozenset[str] = frozenset({"none"})

    def refusal(self, scenario: Scenario) -> str:
        """Why a resolved scenario is beyond the tool; empty when it is not."""
        work = scenario.work
        if work.kind not in self.kinds:
            return f"makes no {work.kind}"
        if work.kind != "memory_copy" and work.protocol not in self.protocols:
            return f"does not speak {work.protocol}"
        if work.source_site is None and work.sources > self.sources_max:
            return f"reads from {_at_most(self.sources_max, 'source')}"
        if work.streams > self.streams_max:
            return f"has {_at_most(self.streams_max, 'stream')}"
        if work.auth not in self.auth:
            return f"takes no {work.auth}"
        if work.kind == "remote_read" and work.read is not None and work.read.mode not in self.read_modes:
            return f"does not read in the mode {work.read.mode}"
        return ""


@dataclass(frozen=True)
class Admission:
    """For what a server wants a credential of its clients."""

    protocols: frozenset[str]
    kinds: frozenset[Kind]


@dataclass(frozen=True)
class Availability:
    """Whether a program is on this machine: its path, version and digest, or why it is not."""

    path: str | None
    version: str | None
    sha256: str | None = None
    # One line, with what to do: `aria2c is not installed; apt-get install aria2`.
    reason: str = ""

    @property
    def is_there(self) -> bool:
        """Whether it can run."""
        return self.path is not None


@dataclass(frozen=True)
class Task:
    """One transfer that a tool is to make. URLs are complete; directories exist; the target does not."""

    # Resolved: one tool, no references. `scenario.tool[0]` has flags, options and environment.
    scenario: Scenario
    # Where the bytes are, the nearest first.
    sources: tuple[str, ...]
    # A path of the host, or a URL: of uploads and third-party copies.
    target: str
    size_bytes: int
    # Of the file, as `ALGORITHM:HEX`.
    checksum: str
    # For files that the driver writes, such as metalinks. The runner removes it.
    scratch: Path
    # Certificates of authorities that the servers have theirs from: one file, and a directory of hashes.
    authority_file: Path | None = None
    authority_directory: Path | None = None
    # Files with credentials, by kind: `token`, `proxy`.
    credentials: Mapping[str, Path] = field(default_factory=dict)
    # Distinguishes transfers of one run that begin together.
    number: int = 0
    # The file as the lab made it: parts of it that a reader has read are compared with it.
    original: Path | None = None

    @functools.cached_property
    def token(self) -> str | None:
        """The token itself, where there is one: for tools that take it from no file. It belongs into no output. It is
        read once, for its file may be replaced."""
        file = self.credentials.get("token")
        return None if file is None else file.read_text().strip()


@dataclass(frozen=True)
class Command:
    """The exact command of a transfer. The environment is added to a clean one."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    # Standard output is kept in any case; of JSON lines also the time when each came.
    is_json_lines: bool = False


@dataclass(frozen=True)
class Output:
    """How a command ended, and what it said."""

    exit_code: int
    wall_s: float
    stdout: Path
    stderr: Path
    # (seconds since the start, object) of JSON lines.
    events: Sequence[tuple[float, Mapping[str, object]]] = ()


@dataclass(frozen=True)
class Reading:
    """What a tool says of its own transfer. Most tools say little; what is not said is None."""

    bytes_moved: int | None = None
    first_byte_s: float | None = None
    last_byte_s: float | None = None
    verified_s: float | None = None
    sources_used: int | None = None
    connections: int | None = None
    # URL of a source → connections to it.
    source_connections: Mapping[str, int] = field(default_factory=dict)
    retries: int | None = None
    reconnects: int | None = None
    requests: int | None = None
    events_read: int | None = None
    events_requested: int | None = None
    wait_s: float | None = None
    # Of reads, which leave no file behind: bytes that are the same as in `Task.original`, or 0 where any are not.
    bytes_verified: int | None = None
    # The tool itself compared a checksum with what a server stated.
    checksum_compared: bool | None = None
    http_status: int | None = None
    # `source`, `destination`, `network`, `client` or `service`, and where in its work: only after a failure.
    error_scope: str | None = None
    error_phase: str | None = None
    error: str | None = None
    # URL of a source → its bytes of the file, and what came from it for nothing: twice, or thrown away.
    source_bytes: Mapping[str, int] = field(default_factory=dict)
    source_wasted_bytes: Mapping[str, int] = field(default_factory=dict)


class ToolDriver(ABC):
    """A tool. Register the class with `registry.register_tool`."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    @abstractmethod
    def availability(self) -> Availability:
        """Looks for the program. Called once for each run of a scenario."""

    @abstractmethod
    def command(self, task: Task) -> Command:
        """The exact command of one transfer. Raises `LabError` for options that it does not know."""

    def read(self, task: Task, output: Output) -> Reading:
        """What the tool said. It has ended, well or not."""
        del task, output
        return Reading()


class Site(Protocol):
    """A place where commands run: a namespace of the emulator, or this host."""

    @property
    def name(self) -> str:
        """Of the site, or of one host of it."""
        ...

    @property
    def host(self) -> str:
        """Its name in URLs."""
        ...

    def port(self, usual: int) -> int:
        """A port for a server that starts there: the usual one, if nothing of the lab has it."""
        ...

    def addresses(self) -> Sequence[str]:
        """IP addresses that other sites reach it at."""
        ...

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command as it runs there."""
        ...


@dataclass(frozen=True)
class Export:
    """What a server offers."""

    directory: Path
    writable: bool
    certificate: Path
    key: Path
    authority_file: Path
    # For configuration, logs and state. The runner removes it.
    scratch: Path
    # The credential that clients need, as `[work] auth` has it, and the subject of the only user who has one.
    auth: str = "none"
    user: str = ""
    # Authorities by the hash of their names.
    authority_directory: Path | None = None


class RunningServer(ABC):
    """A server that has been started."""

    # Protocol → URL that the names of files follow: `https` → `https://near:8443/`.
    urls: Mapping[str, str]

    @abstractmethod
    def trouble(self) -> str | None:
        """Why it does not answer yet or any more; None when it is ready. Called again and again until a deadline."""

    @abstractmethod
    def cpu_s(self) -> float:
        """CPU time that it and its children have used so far, those that have ended included."""

    @abstractmethod
    def peak_memory_bytes(self) -> int:
        """The most that it had resident."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """Its process, below which all others are."""

    @abstractmethod
    def kill(self) -> None:
        """Ends it as a crash would. `restart` is possible afterwards."""

    @abstractmethod
    def restart(self) -> None:
        """Starts it again, at the same address. Returns at once."""

    @abstractmethod
    def stop(self) -> None:
        """Ends it with its children, and waits for that. Safe to call twice."""

    @abstractmethod
    def log_tail(self) -> str:
        """The end of its log, for the case that something is wrong."""


class ServerDriver(ABC):
    """A server. Register the class with `registry.register_server`."""

    name: ClassVar[str]
    protocols: ClassVar[frozenset[str]]
    # Kinds of work in which it takes part beyond serving files: `tpc_pull`, `tpc_push`, `upload`.
    kinds: ClassVar[frozenset[Kind]] = frozenset({"copy", "remote_read", "copy_then_read"})
    # The credentials that it can want of all clients, by `[work] auth`.
    auth: ClassVar[Mapping[str, Admission]] = {}

    @abstractmethod
    def availability(self) -> Availability:
        """Looks for the program."""

    def refusal(self, work: Work) -> str:
        """Why it takes no part in resolved work; empty when it does."""
        if work.protocol not in self.protocols:
            return f"does not speak {work.protocol}"
        if work.kind not in self.kinds:
            return f"takes no part in {work.kind}"
        if work.auth != "none":
            admission = self.auth.get(work.auth)
            if admission is None:
                return f"asks for no {work.auth}"
            if work.protocol not in admission.protocols or work.kind not in admission.kinds:
                return f"asks for no {work.auth} in {work.kind} over {work.protocol}"
        return ""

    @abstractmethod
    def start(self, site: Site, export: Export, flags: Sequence[str], options: Mapping[str, Option]) -> RunningServer:
        """Starts it. Returns at once: the runner waits until `trouble` is None."""


@dataclass(frozen=True)
class RunnerOptions:
    """What the command line says about a run."""

    # The binary under test, which also makes the emulated network.
    gridlane: Path
    # For files, targets and servers. The runner makes a directory of its own in it, and removes that.
    work: Path
    # No run begins later than so long after the runner's beginning: its rows have the status `not run`. None: any time.
    total_s: float | None = None


# Called when a turn begins, with what is being done: `network`, `transfer`, `compare`.
Progress = Callable[["Turn", str], None]


class Runner(ABC):
    """Makes what the cells need, and runs them. Used in a `with`, after which nothing of what it made is left."""

    @abstractmethod
    def __enter__(self) -> Runner:
        """Checks privileges and space, and makes the files."""

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Ends servers, networks and clients, and removes the files."""

    @abstractmethod
    def environment(self) -> Iterator[Row]:
        """The row of the table `environment`, complete with the versions of all that takes part."""

    @abstractmethod
    def run_block(self, turns: Sequence[Turn]) -> Iterator[Row]:
        """Runs the turns of a block in their order. Yields rows as they become known: of each turn the `path_check`
        rows, the `transfer` rows, their `sample` rows, and last its `run` row. An exception ends the run of the
        scenario, and the block counts as not run; failures of tools are no exceptions."""


def _at_most(count: int, what: str) -> str:
    return f"one {what} only" if count == 1 else f"at most {count} {what}s"

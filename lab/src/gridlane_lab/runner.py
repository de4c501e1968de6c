"""The runner: networks, servers and files for the cells of a scenario, transfers, checks of paths and bytes, and rows.

Cells with the same network follow one another in it, with the servers that they need. Whatever happens to a transfer
is a row; what happens to the machine (no space, no rights, a network that dies) ends the run, and the block counts as
not run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridlane_lab import credentials, machine, pathcheck, record, registry, rows, space
from gridlane_lab import sites as places
from gridlane_lab.agents import AgentError
from gridlane_lab.driver import Availability, Export, Progress, Runner, RunnerOptions, RunningServer, ToolDriver
from gridlane_lab.drivers.common import find, gridlane_binary, gridlane_path
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.identity import Identity, IdentityError, User
from gridlane_lab.matrix import Cell, Turn
from gridlane_lab.pathcheck import Asked, Tolerance
from gridlane_lab.record import PathCheck, Row, RunDirectory, Status
from gridlane_lab.scenario import Scenario, Server
from gridlane_lab.shelf import Made, MissingProgramError, Shelf
from gridlane_lab.work import RunPlan, plan_run
from gridlane_lab.workspace import Workspace

# How long a server may take to begin. xrootd sometimes hangs while it does: every server gets a second chance.
SERVER_S = 20.0

# How long what was measured of a path after one run stands for the time before the next one.
CHECK_HOLDS_S = 60.0

# What happens to a run before its transfers: the status that all of them get, and why.
Verdict = tuple[Status, str, str]


@dataclass
class Segment:
    """A network while consecutive turns use it."""

    key: str
    scenario: Scenario
    sites: places.Sites
    identity: Identity
    servers: dict[tuple[str, str], RunningServer]
    exports: dict[str, Path]
    # The last check of each set of paths, and when it was: it stands for the next run's beginning as well.
    checks: dict[Asked, tuple[float, list[PathCheck]]]
    scratches: int = 0
    # The only one whom servers let in that want credentials.
    user: User | None = None


class LabRunner(Runner):
    """See `driver.Runner`."""

    def __init__(
        self,
        scenario: Scenario,
        cells: Sequence[Cell],
        directory: RunDirectory,
        experiment_id: str,
        options: RunnerOptions,
        progress: Progress,
        tolerance: Tolerance | None = None,
    ) -> None:
        self._scenario = scenario
        self._cells = cells
        self._directory = directory
        self._experiment_id = experiment_id
        self._options = options
        self._progress = progress
        self._tolerance = tolerance or Tolerance()
        self._environment_id = record.new_id()
        self._segment: Segment | None = None
        self._networks = 0
        self._availability: dict[str, Availability] = {}
        self._began_s = time.monotonic()

    # --- Around all blocks ------------------------------------------------------------------------------------------

    def __enter__(self) -> LabRunner:
        # What starts `gridlane` by itself starts the binary under test.
        os.environ["GRIDLANE_LAB_BINARY"] = str(self._options.gridlane)
        places.check_rights(self._scenario)
        self._workspace = Workspace(self._options.work)
        self._workspace.__enter__()
        try:
            self._shelf = Shelf(self._workspace.memory, self._workspace.disk, self._directory.path / "data.json")
            space.check(self._cells, self._options.work, self._workspace.disk)
            for cell in self._cells:
                self._files(cell.scenario)
            space.warm(self._cells, self._workspace.memory)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # Impatience does not stop it half-way.
        handlers = {}
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(ValueError):
                handlers[name] = signal.signal(name, signal.SIG_IGN)
        try:
            self._close_segment()
        finally:
            self._workspace.__exit__()
            for name, handler in handlers.items():
                signal.signal(name, handler)

    def environment(self) -> Iterator[Row]:
        """The row, with the settings of the network of the first cell."""
        for tool in self._scenario.tool:
            self._look(f"tool {tool.name}", registry.tool(tool.driver))
        for server in self._scenario.server:
            self._look(f"server {server.name}", registry.server(server.driver))
        found = {
            **self._availability,
            "gridlane": gridlane_binary(),
            "openssl": find("openssl", "openssl", ("version",)),
        }
        sites = None
        if self._cells and self._scenario.topology is not None:
            # In the network of the first cell, which the first runs may use.
            sites = self._enter_segment(self._cells[0].scenario).sites
        yield machine.environment(self._experiment_id, self._environment_id, sites, found)

    def run_block(self, turns: Sequence[Turn]) -> Iterator[Row]:
        """The rows of a block's turns."""
        for index, turn in enumerate(turns):
            scenario = turn.cell.scenario
            if scenario.host.fresh_namespaces:
                self._close_segment()
            following = turns[index + 1].cell.scenario if index + 1 < len(turns) else None
            is_last = following is None or following.host.fresh_namespaces or _key(following) != _key(scenario)
            try:
                yield from self._run(turn, is_last)
            except (AgentError, IdentityError) as error:
                raise LabError(str(error), where=f"run {turn.cell.key}") from None

    # --- One run ----------------------------------------------------------------------------------------------------

    def _run(self, turn: Turn, is_last: bool) -> Iterator[Row]:
        scenario = turn.cell.scenario
        run = rows.RunFacts(
            run_id=record.new_id(),
            experiment_id=self._experiment_id,
            environment_id=self._environment_id,
            turn=turn,
            network_key=_key(scenario),
            started_utc=record.utc_now(),
        )
        late = _too_late(self._options.total_s, time.monotonic() - self._began_s)
        if late:
            yield from rows.without_transfers(run, Status.NOT_RUN, late, "")
            return
        run.raw = self._directory.raw(run.run_id)
        tool = scenario.tool[0]
        driver = registry.tool(tool.driver)
        verdict = self._missing(scenario, driver)
        files: list[Made] = []
        if verdict is None:
            try:
                files = self._files(scenario)
            except MissingProgramError as error:
                verdict = (Status.NOT_AVAILABLE, str(error), "")
        if verdict is not None:
            yield from rows.without_transfers(run, *verdict)
            return
        self._progress(turn, "network")
        segment = self._enter_segment(scenario)
        run.backend = segment.sites.backend
        if scenario.work.auth != "none" and scenario.topology is not None and segment.user is None:
            segment.user = User(segment.identity, segment.identity.key.parent / "user")
        plan = plan_run(scenario, driver, segment.sites)
        try:
            servers = self._serve(segment, scenario, plan, files)
        except _ServerError as error:
            yield from rows.without_transfers(run, Status.FAILED, str(error), "service")
            return
        plan.fill(servers, files, segment.exports, segment.identity, segment.user, self._workspace, run.raw)
        space.check_run(scenario, plan.transfers, self._options.work, self._workspace.disk)
        before = self._check(segment, plan.asked, "before")
        yield from pathcheck.of_run(before, run.run_id, "before")
        if scenario.host.cache == "cold":
            _drop_caches(files)
        self._progress(turn, "transfer")
        measured = plan.measure(segment.sites, servers, run)
        self._progress(turn, "compare")
        found = plan.judge(run, measured)
        self._after(segment, plan, servers, measured)
        after = self._check(segment, plan.asked, "after", is_new=True, with_rate=is_last)
        yield from pathcheck.of_run(after, run.run_id, "after")
        run.void = run.void or pathcheck.void_reason([*before, *after])
        yield from rows.of_run(run, measured, found)

    def _missing(self, scenario: Scenario, driver: ToolDriver) -> Verdict | None:
        """The verdict over a cell whose tool or server is not on this machine."""
        found = self._look(f"tool {scenario.tool[0].name}", driver)
        if not found.is_there:
            return Status.NOT_AVAILABLE, found.reason, "client"
        without = credentials.missing(scenario)
        if without:
            return Status.NOT_AVAILABLE, without, "client"
        server = _server_of(scenario)
        if server is not None:
            serving = registry.server(server.driver)
            found = self._look(f"server {server.name}", serving)
            if not found.is_there:
                return Status.NOT_AVAILABLE, found.reason, "service"
            refusal = serving.refusal(scenario.work)
            if refusal:
                return Status.NOT_AVAILABLE, f"the server {server.name} {refusal}", "service"
        return None

    def _look(self, name: str, driver: Any) -> Availability:
        if name not in self._availability:
            self._availability[name] = driver.availability()
        return self._availability[name]

    def _files(self, scenario: Scenario) -> list[Made]:
        if scenario.work.kind == "raw_network":
            return [_no_file(scenario)]
        return self._shelf.need(scenario, scenario.file_of(), space.storage(scenario))

    # --- Networks and servers ---------------------------------------------------------------------------------------

    def _enter_segment(self, scenario: Scenario) -> Segment:
        key = _key(scenario)
        if self._segment is not None and self._segment.key == key:
            return self._segment
        self._close_segment()
        self._networks += 1
        gridlane = gridlane_path()
        sites = places.make_sites(scenario, self._workspace, gridlane, self._networks)
        try:
            directory = self._workspace.memory / f"network-{self._networks}"
            directory.mkdir(mode=0o711)
            hosts = [*sites.places, "localhost", "127.0.0.1", "::1"]
            for place in sites.places.values():
                hosts += [address for address in place.addresses() if address not in hosts]
            identity = Identity(directory / "identity", hosts)
            identity.authority.parent.chmod(0o711)
        except IdentityError as error:
            sites.close()
            raise LabError(str(error), code=ExitCode.NOT_FOUND) from None
        except BaseException:
            sites.close()
            raise
        self._segment = Segment(key, scenario, sites, identity, {}, {}, {})
        return self._segment

    def _close_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is None:
            return
        try:
            for server in segment.servers.values():
                server.stop()
        finally:
            segment.sites.close()
            for export in segment.exports.values():
                shutil.rmtree(export.parent, ignore_errors=True)

    def _serve(
        self, segment: Segment, scenario: Scenario, plan: RunPlan, files: Sequence[Made]
    ) -> dict[str, RunningServer]:
        """The servers of a run by place, started where they are not running yet."""
        server = _server_of(scenario)
        found: dict[str, RunningServer] = {}
        if server is None:
            return found
        starting = []
        for place in plan.serving_places():
            export = self._export(segment, scenario, place)
            for made in files:
                if made.size_bytes and made.path.exists():
                    self._shelf.place(made, export)
            auth = scenario.work.auth
            key = (json.dumps([server.name, server.flags, server.options, auth], sort_keys=True, default=str), place)
            if key not in segment.servers:
                segment.servers[key] = self._start(segment, server, place, export, auth)
                starting.append(place)
            found[place] = segment.servers[key]
        for place in starting:
            self._wait_for(found[place], f"server {server.name} at {place}")
        return found

    def _start(self, segment: Segment, server: Server, place: str, export: Path, auth: str) -> RunningServer:
        segment.scratches += 1
        scratch = self._workspace.memory / f"network-{self._networks}" / f"server-{segment.scratches}"
        scratch.mkdir(mode=0o755)
        scratch.chmod(0o755)
        identity = segment.identity
        offered = Export(
            export,
            True,
            identity.certificate,
            identity.key,
            identity.authority,
            scratch,
            auth,
            "" if segment.user is None else segment.user.subject,
            identity.authority_directory,
        )
        driver = registry.server(server.driver)
        running = driver.start(segment.sites.places[place], offered, server.flags, server.options)
        self._workspace.add_process(running.pid)
        return running

    def _wait_for(self, server: RunningServer, what: str) -> None:
        trouble = _trouble(server)
        if trouble:
            server.kill()
            server.restart()
            self._workspace.add_process(server.pid)
            trouble = _trouble(server)
        if trouble:
            tail = " ".join(server.log_tail().split())[-400:]
            raise _ServerError(f"{what} does not start: {trouble}" + (f" ({tail})" if tail not in trouble else ""))

    def _export(self, segment: Segment, scenario: Scenario, place: str) -> Path:
        """What a place serves: files at the top, and a directory `put` that clients may write to."""
        if place not in segment.exports:
            base = self._workspace.memory if space.storage_at(scenario, place) == "tmpfs" else self._workspace.disk
            export = base / f"network-{self._networks}-{place}" / "export"
            (export / "put").mkdir(parents=True)
            for directory in (export.parent, export):
                directory.chmod(0o755)
            # Each server works as a user of its own.
            (export / "put").chmod(0o1777)
            segment.exports[place] = export
        return segment.exports[place]

    # --- Checks ----------------------------------------------------------------------------------------------------

    def _check(
        self, segment: Segment, asked: Asked, moment: str, is_new: bool = False, with_rate: bool = False
    ) -> list[PathCheck]:
        if not asked.pairs or segment.sites.state() is None:
            return []
        last_s, last = segment.checks.get(asked, (0.0, []))
        if not is_new and last and time.monotonic() - last_s < CHECK_HOLDS_S:
            return last
        found = pathcheck.check(
            segment.sites,
            asked,
            self._tolerance,
            self._experiment_id,
            segment.key,
            moment,
            # The first time on these paths, and after the last run.
            with_rate or not last,
        )
        segment.checks[asked] = (time.monotonic(), found)
        return found

    def _after(
        self, segment: Segment, plan: RunPlan, servers: dict[str, RunningServer], measured: rows.Measured
    ) -> None:
        """Makes the network and the servers what they were, and removes what was written."""
        segment.sites.restore(plan.changed_links())
        for place, server in servers.items():
            killed = place in plan.killed_places()
            # A server goes on with a copy whose client was ended.
            busy = plan.is_third_party and any(attempt.is_cut_off for attempt in measured.attempts)
            if killed or busy:
                server.kill()
                server.restart()
                self._workspace.add_process(server.pid)
                self._wait_for(server, f"server at {place}")
        plan.clean(segment.exports)


class _ServerError(LabError):
    """A server does not start: the tool is not at fault, and has no figure."""


def _too_late(total_s: float | None, elapsed_s: float) -> str:
    """Why no run begins any more; empty while there is time."""
    if total_s is None or elapsed_s <= total_s:
        return ""
    return f"[limits] total_s = {total_s:g} was over"


def _trouble(server: RunningServer) -> str | None:
    deadline = time.monotonic() + SERVER_S
    while (trouble := server.trouble()) is not None:
        if time.monotonic() > deadline or trouble.startswith("it ended"):
            return trouble
        time.sleep(0.02)
    return None


def _server_of(scenario: Scenario) -> Server | None:
    """The server of a run; of raw network figures iperf3's, unless the scenario names one."""
    if scenario.topology is None or scenario.work.kind == "memory_copy":
        return None
    server = scenario.server_of()
    if server is None and scenario.work.kind == "raw_network":
        server = Server(name="iperf3", driver="iperf3")
    return server


def _key(scenario: Scenario) -> str:
    return scenario.network_key()


def _no_file(scenario: Scenario) -> Made:
    """Of raw network figures: only a size."""
    return Made("", Path("/nonexistent"), scenario.file_of().size_bytes, "", "")


def _drop_caches(files: Sequence[Made]) -> None:
    """Out of the page cache; files in memory stay where they are."""
    for made in files:
        if made.path.exists():
            descriptor = os.open(made.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


registry.register_runner(LabRunner)

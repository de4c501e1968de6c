"""The work of one run: which transfers, from where to where, beside what; and what was measured of them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridlane_lab import credentials, processes, rows, seen, space
from gridlane_lab.agents import RemoteAgent
from gridlane_lab.compare import Comparer, Comparison
from gridlane_lab.driver import RunningServer, Task, ToolDriver
from gridlane_lab.drivers.common import gridlane_path
from gridlane_lab.endpoint_files import url_of
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.identity import Identity, User
from gridlane_lab.pathcheck import Asked
from gridlane_lab.record import Sample
from gridlane_lab.scenario import Event, Scenario
from gridlane_lab.shelf import Made
from gridlane_lab.sites import HOST, Sites
from gridlane_lab.transfers import Attempt, Batch, Due, Job, Lane
from gridlane_lab.workspace import Workspace

THIRD_PARTY = ("tpc_pull", "tpc_push")
SAMPLE_EVERY_S = 1.0
# How often the servers of slow disks are looked after.
_PACE_EVERY_S = 0.005


@dataclass(frozen=True)
class Way:
    """Which way bytes go in one transfer."""

    scenario: Scenario
    sources: tuple[str, ...]
    target: str


def plan_run(scenario: Scenario, driver: ToolDriver, sites: Sites) -> RunPlan:
    """What a resolved scenario does in a network."""
    return RunPlan(scenario, driver, sites)


class RunPlan:
    """One run, from its scenario alone; `fill` adds what has been made for it."""

    def __init__(self, scenario: Scenario, driver: ToolDriver, sites: Sites) -> None:
        self._scenario = scenario
        self._driver = driver
        self._sites = sites
        work = scenario.work
        forward = Way(scenario, tuple(work.chosen_sources()), work.target_site)
        if work.kind == "upload":
            forward = Way(scenario, (work.target_site,), forward.sources[0])
        self._ways = [forward, _reversed(forward)] if work.direction == "both" else [forward]
        self.is_third_party = work.kind in THIRD_PARTY
        self.transfers = space.transfers_of(scenario)
        self.asked = Asked(tuple(dict.fromkeys(self._pairs())))
        self._events = sorted(scenario.topology.event, key=lambda event: event.at_s) if scenario.topology else []
        self._happened: list[dict[str, Any]] = []
        self._samples: list[Sample] = []
        self._directories: list[Path] = []
        self._watch: seen.Watch | None = None

    def serving_places(self) -> list[str]:
        """Where servers are needed."""
        if self._scenario.topology is None or self._scenario.work.kind == "memory_copy":
            return []
        found: list[str] = []
        for way in self._ways:
            kind = way.scenario.work.kind
            if kind == "upload":
                found.append(way.target)
            else:
                found += [*way.sources, *([way.target] if kind in THIRD_PARTY else [])]
        return list(dict.fromkeys(host for place in found for host in self._scenario.hosts(place)))

    def killed_places(self) -> set[str]:
        """Places whose servers an event has ended."""
        return {host for event in self._events if event.site is not None for host in self._scenario.hosts(event.site)}

    def changed_links(self) -> list[str]:
        """Links that an event has changed."""
        return list(dict.fromkeys(event.link for event in self._events if event.link is not None))

    def fill(
        self,
        servers: Mapping[str, RunningServer],
        files: Sequence[Made],
        exports: Mapping[str, Path],
        identity: Identity,
        user: User | None,
        workspace: Workspace,
        raw: Path,
    ) -> None:
        """Takes what the run works with."""
        self._servers, self._files, self._exports = servers, files, exports
        self._identity, self._user, self._workspace, self._raw = identity, user, workspace, raw
        self._memory = workspace.memory / "targets" / raw.name
        self._disk = workspace.disk / "targets" / raw.name
        self._credentials = credentials.find(self._scenario)
        self._wallet: credentials.Wallet | None = None

    # --- Running ----------------------------------------------------------------------------------------------------

    def measure(self, sites: Sites, servers: Mapping[str, RunningServer], run: rows.RunFacts) -> rows.Measured:
        """Makes the transfers, and compares what arrived."""
        work = self._scenario.work
        with contextlib.closing(Comparer(work.duration_s > 0, gridlane_path())) as comparer:
            return self._measured(sites, servers, run, comparer)

    def _measured(
        self, sites: Sites, servers: Mapping[str, RunningServer], run: rows.RunFacts, comparer: Comparer
    ) -> rows.Measured:
        work = self._scenario.work
        comparisons: dict[int, Future[Comparison]] = {}

        def compare(attempt: Attempt) -> None:
            found = self._compare(comparer, attempt)
            if found is not None:
                comparisons[attempt.job.number] = found

        batch = Batch(
            self._lanes(),
            self._dues(run),
            self._scenario.limits.transfer_s,
            work.duration_s,
            compare if work.duration_s else lambda attempt: None,
            work.pause_after_failure_s,
        )
        self._batch = batch
        clock = _clock_of(servers.values())
        with self._pace(servers), self._load():
            senders = self._senders()
            self._begin_to_watch(sites)
            sent = self._sent(senders)
            self._last_sample = (0.0, sent)
            self._make_credentials(batch)
            state, ticks, cpu = sites.state(), processes.ticks_now(), clock()
            batch.run()
            idle, stolen, total = processes.ticks_since(ticks)
            if self._watch is not None:
                self._watch.look()
            served = processes.settled(clock) - cpu if servers else 0.0
            after = self._sent(senders)
            state_after = sites.state()
        if not work.duration_s:
            for attempt in batch.attempts:
                compare(attempt)
        found = {number: future.result() for number, future in comparisons.items()}
        self._write_events()
        return rows.Measured(
            attempts=batch.attempts,
            comparisons=found,
            server_cpu_s=max(served, 0.0) if servers else None,
            server_memory_bytes=max((server.peak_memory_bytes() for server in servers.values()), default=None),
            emulator_cpu_s=state_after["forwarder_cpu_s"] - state["forwarder_cpu_s"] if state and state_after else None,
            busy_ratio=1 - idle / max(total, 1),
            stolen_ratio=stolen / max(total, 1),
            interface_bytes=sum(after.values()) - sum(sent.values()) if after else None,
            congestion_controls=_controls(state),
            samples=self._samples,
            seen=self._watch.seen if self._watch is not None else seen.NOTHING_SEEN,
            wire_bytes=seen.grown(state, state_after, "passed_bytes", senders),
            dropped_packets=seen.grown(state, state_after, "dropped_packets"),
        )

    def judge(self, run: rows.RunFacts, measured: rows.Measured) -> rows.Found:
        """The rows of the transfers, and the status of the run."""
        has_faster_links = any(event.rate_bits_per_s is not None for event in self._events)
        return rows.judge(run, self._scenario, measured, is_capacity_known=not has_faster_links)

    def clean(self, exports: Mapping[str, Path]) -> None:
        """Removes what was written."""
        for directory in (self._memory, self._disk, self._wallet_directory()):
            shutil.rmtree(directory, ignore_errors=True)
        for export in exports.values():
            for path in (export / "put").iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def _wallet_directory(self) -> Path:
        return self._workspace.memory / f"credentials-{self._raw.name}"

    def _make_credentials(self, batch: Batch) -> None:
        """Those of emulated sites, right before the transfers that they are for; each is replaced in its time."""
        work = self._scenario.work
        if self._user is None or work.auth == "none":
            return
        wallet = self._wallet = credentials.Wallet(self._user, work, self._wallet_directory())
        self._credentials = wallet.files()

        def renew(number: int, elapsed_s: float) -> None:
            wallet.use(number)
            self._happened.append({"began_s": elapsed_s, "credential": "renewed"})

        for number, term in enumerate(wallet.terms[1:], 1):
            batch.dues.append(Due(term.begin_s, functools.partial(renew, number)))
        if work.expires():
            ended = {"credential": "expired"}
            end_s = wallet.ends_unix_s - time.time()
            batch.dues.append(Due(end_s, lambda elapsed: self._happened.append({"began_s": elapsed, **ended})))

    # --- Lanes and jobs -----------------------------------------------------------------------------------------

    def _lanes(self) -> list[Lane]:
        work = self._scenario.work
        numbers = itertools.count()
        lanes = []
        each = max(1, self.transfers // (work.clients * len(self._ways)))
        for way in self._ways:
            for _ in range(work.clients):
                jobs = self._jobs(way, numbers, None if work.duration_s else each)
                lanes += [Lane(jobs, lane * work.stagger_s) for lane in range(work.concurrency)]
        return lanes

    def _jobs(self, way: Way, numbers: Iterator[int], count: int | None) -> Iterator[Callable[[], Job]]:
        """Of one client: its lanes take from the same row. Without a count it never ends."""
        for index in itertools.count() if count is None else range(count):
            yield lambda index=index: self._job(way, next(numbers), self._files[index % len(self._files)])  # type: ignore[misc]

    def _job(self, way: Way, number: int, made: Made) -> Job:
        scenario, work = way.scenario, way.scenario.work
        is_on_disk = work.target == "disk" and work.kind not in (*THIRD_PARTY, "upload")
        base = (self._disk if is_on_disk else self._memory) / f"{number}"
        scratch, directory = self._memory / f"{number}-scratch", base / "target"
        raw = self._raw if self.transfers == 1 and not work.duration_s else self._raw / f"{number}"
        for path in (scratch, directory, raw):
            path.mkdir(parents=True, exist_ok=True)
        at = self._between_hosts(way, number)
        sources, target, local = self._ends(at, number, made, directory)
        task = Task(
            scenario=scenario,
            sources=sources,
            target=target,
            size_bytes=made.size_bytes,
            checksum=made.checksum,
            scratch=scratch,
            authority_file=self._identity.authority if scenario.topology is not None else None,
            authority_directory=self._identity.authority_directory if scenario.topology is not None else None,
            credentials=self._credentials,
            number=number,
            original=made.path if made.name else None,
        )
        return Job(
            number=number,
            driver=self._driver,
            scenario=scenario,
            task=task,
            agent=self._sites.agent(HOST if work.kind == "memory_copy" else self._client_place(number)),
            source_sites=way.sources,
            target_site=way.target,
            original=made,
            local_target=local,
            directory=directory if local is not None and local.parent == directory else None,
            raw=raw,
            rate_bytes_per_s=self._target_rate(at),
        )

    def _between_hosts(self, way: Way, number: int) -> Way:
        """The hosts between which a transfer goes, where sites have several: in turn."""
        return Way(way.scenario, tuple(self._host(source, number) for source in way.sources),
                   self._host(way.target, number))  # fmt: skip

    def _host(self, place: str, number: int) -> str:
        hosts = self._scenario.hosts(place)
        return hosts[number % len(hosts)]

    def _ends(self, way: Way, number: int, made: Made, directory: Path) -> tuple[tuple[str, ...], str, Path | None]:
        """Sources, target, and where the target is on this machine."""
        work = way.scenario.work
        own = directory / "target"
        if work.kind == "memory_copy":
            return (f"file://{made.path}",), str(own), own
        if work.kind == "upload":
            target, local = self._put(way.target, work.protocol, number)
            return (str(made.path),), target, local
        if work.kind == "raw_network":
            return tuple(self._base(source, work.protocol) for source in way.sources), "/dev/null", None
        sources = tuple(self._url(source, work.protocol, made) for source in way.sources)
        if work.kind in THIRD_PARTY:
            target, local = self._put(way.target, work.protocol, number)
            return sources, target, local
        if work.kind in ("remote_read", "job") or (work.target == "null" and work.kind == "copy"):
            return sources, "/dev/null", None
        return sources, str(own), own

    def _base(self, place: str, protocol: str) -> str:
        urls = self._servers[place].urls
        if protocol not in urls:
            raise LabError(
                f"the server at {place} does not speak {protocol}",
                hint=f"it speaks: {', '.join(sorted(urls))}",
                code=ExitCode.USAGE,
            )
        return urls[protocol]

    def _url(self, place: str, protocol: str, made: Made) -> str:
        if self._scenario.topology is not None:
            return self._base(place, protocol) + made.name
        endpoint = next(endpoint for endpoint in self._scenario.endpoint if endpoint.name == place)
        number = self._files.index(made)
        return url_of(self._scenario, endpoint, protocol, self._scenario.file_of(), number)

    def _put(self, place: str, protocol: str, number: int) -> tuple[str, Path | None]:
        """Where a client stores a file."""
        name = f"{self._raw.name}-{number}"
        if self._scenario.topology is not None:
            return f"{self._base(place, protocol)}put/{name}", self._exports[place] / "put" / name
        endpoint = next(endpoint for endpoint in self._scenario.endpoint if endpoint.name == place)
        return f"{str(endpoint.url(protocol)).rstrip('/')}/gridlane-lab-{self._scenario.name}/put-{name}", None

    def _client_place(self, number: int) -> str:
        """Where the program runs that is timed: of a third-party copy at a client, beside a server if there is none."""
        work, topology = self._scenario.work, self._scenario.topology
        if topology is not None and self.is_third_party:
            for site in topology.site:
                if site.role == "client":
                    return self._host(site.name, number)
        return self._host(work.target_site, number)

    def _compare(self, comparer: Comparer, attempt: Attempt) -> Future[Comparison] | None:
        job = attempt.job
        if attempt.answer.get("code") != 0 or attempt.is_cut_off:
            return None
        if job.local_target is not None:
            return comparer.file(job.local_target, job.original.sha256)
        if job.scenario.topology is None and job.scenario.work.kind in ("upload", *THIRD_PARTY):
            return comparer.url(job.task.target, job.original.sha256)
        return None

    # --- What happens beside them -----------------------------------------------------------------------------------

    def _pairs(self) -> Iterator[tuple[str, str]]:
        if self._scenario.work.kind == "memory_copy" or self._scenario.topology is None:
            return
        for way in self._ways:
            # As many as there are: each host of either end is in one of them.
            ends = [self._scenario.hosts(place) for place in (*way.sources, way.target)]
            for number in range(max(map(len, ends))):
                between = self._between_hosts(way, number)
                for source in between.sources:
                    if source != between.target:
                        yield source, between.target

    def _senders(self) -> list[str]:
        return list(dict.fromkeys(sender for sender, _ in self.asked.pairs))

    def _sent(self, senders: Sequence[str]) -> dict[str, int]:
        found = {sender: self._sites.interface_bytes(sender) for sender in senders}
        return {sender: count for sender, count in found.items() if count is not None}

    def _dues(self, run: rows.RunFacts) -> list[Due]:
        dues = [Due(event.at_s, lambda elapsed, event=event: self._happen(event, elapsed)) for event in self._events]  # type: ignore[misc]
        if self._senders() and self._scenario.topology is not None and self._scenario.topology.backend != "loopback":
            dues.append(Due(SAMPLE_EVERY_S, lambda elapsed: self._sample(run, elapsed), SAMPLE_EVERY_S))
        return dues

    def _begin_to_watch(self, sites: Sites) -> None:
        """Of copies that come to their end the connections are looked at."""
        work = self._scenario.work
        if self._scenario.topology is None or work.duration_s or work.kind not in ("copy", *THIRD_PARTY):
            return
        hosts = [host for source in self._ways[0].sources for host in self._scenario.hosts(source)]
        places = [host for host in hosts if host in self._servers]
        ports = {place: seen.port_of(self._base(place, work.protocol)) for place in places}
        if not ports:
            return
        self._watch = watch = seen.Watch(sites.connections, ports, self._scenario.file_of().size_bytes)
        at_s = seen.look_s(space.bound_of(self._scenario)[0])
        self._batch.dues.append(Due(at_s, lambda elapsed: watch.look()))

    def _happen(self, event: Event, elapsed_s: float) -> None:
        if event.link is not None:
            self._sites.change(event)
        elif event.site is not None:
            for host in self._scenario.hosts(event.site):
                self._happen_to(self._servers.get(host), event)
        done = event.model_dump(exclude_defaults=True)
        self._happened.append({"began_s": elapsed_s, **done})

    def _happen_to(self, server: RunningServer | None, event: Event) -> None:
        if server is None:
            return
        if event.server == "kill":
            server.kill()
        else:
            server.restart()
            self._workspace.add_process(server.pid)

    def _sample(self, run: rows.RunFacts, elapsed_s: float) -> None:
        now = self._sent(self._senders())
        before_s, before = self._last_sample
        for place, count in now.items():
            self._samples.append(
                Sample(
                    run_id=run.run_id,
                    subject=place,
                    t_s=elapsed_s,
                    interval_s=elapsed_s - before_s,
                    bytes_moved=count - before.get(place, 0),
                    transfers_active=self._batch.active,
                )
            )
        self._last_sample = (elapsed_s, now)

    def _write_events(self) -> None:
        if self._happened:
            lines = "".join(json.dumps(event) + "\n" for event in self._happened)
            (self._raw / "events.jsonl").write_text(lines)

    def _target_rate(self, way: Way) -> float | None:
        """Of the disk that the client writes to, where that is slow."""
        work = way.scenario.work
        if work.kind in (*THIRD_PARTY, "upload", "remote_read", "raw_network") or work.target == "null":
            return None
        rates = [rate for rate in (work.target_rate_bytes_per_s, self._storage_rate(way.target)) if rate]
        return min(rates) if rates else None

    def _storage_rate(self, place: str) -> float | None:
        topology = self._scenario.topology
        site = topology.site_of(place) if topology is not None else None
        return site.storage_rate_bytes_per_s if site is not None else None

    @contextlib.contextmanager
    def _pace(self, servers: Mapping[str, RunningServer]) -> Iterator[None]:
        """Holds servers back at sites with slow disks."""
        slow = [(server, rate) for place, server in servers.items() if (rate := self._storage_rate(place))]
        ended = threading.Event()
        threads = [threading.Thread(target=_pace, args=(server, rate, ended), daemon=True) for server, rate in slow]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join()

    @contextlib.contextmanager
    def _load(self) -> Iterator[None]:
        """Other traffic on the way of the bytes, as long as the run lasts."""
        rate = self._scenario.work.competing_rate_bits_per_s
        if not rate or not self.asked.pairs:
            yield
            return
        sender, receiver = self.asked.pairs[0]
        agents: list[RemoteAgent] = []
        try:
            agents.append(self._sites.another_agent(receiver if self._sites.places[receiver].has_own_network else HOST))
            agents.append(self._sites.another_agent(sender if self._sites.places[sender].has_own_network else HOST))
            host = next(address for address in self._sites.places[receiver].addresses() if ":" not in address)
            drain = agents[0].order("drain", host=host, wait_s=3600.0)
            port = agents[0].begin_of(drain)["port"]
            load = agents[1].order("load", host=host, port=port, rate_bits_per_s=rate, duration_s=1e6)
            agents[1].begin_of(load)
            # Past its slow start.
            time.sleep(0.5)
            yield
        finally:
            for agent in reversed(agents):
                agent.close()


def _reversed(way: Way) -> Way:
    """The same work in the opposite direction."""
    work = way.scenario.work
    source = way.sources[0]
    if work.kind in THIRD_PARTY:
        changes: dict[str, Any] = {"source_site": way.target, "target_site": source}
        back = Way(_with_work(way.scenario, changes), (way.target,), source)
    elif work.kind == "upload":
        back = Way(_with_work(way.scenario, {"kind": "copy"}), (way.target,), source)
    else:
        back = Way(_with_work(way.scenario, {"kind": "upload"}), (way.target,), source)
    return back


def _with_work(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    return scenario.model_copy(update={"work": scenario.work.model_copy(update=dict(changes))})


def _clock_of(servers: Any) -> Callable[[], float]:
    listed = list(servers)
    return lambda: sum(server.cpu_s() for server in listed)


def _controls(state: Mapping[str, Any] | None) -> list[str]:
    nodes = state["nodes"] if state else []
    return sorted(
        {node["congestion_control"] for node in nodes if node["congestion_control"] and not node["is_router"]}
    )


def _pace(server: RunningServer, rate_bytes_per_s: float, ended: threading.Event) -> None:
    """Stops a server while it has read or written more than its disk would have by now: as reads that block would."""
    began, first = time.monotonic(), _read_and_written(server.pid)
    is_stopped = False
    ahead = max(1 << 18, rate_bytes_per_s * 2 * _PACE_EVERY_S)
    while not ended.wait(_PACE_EVERY_S):
        done = max(now - then for now, then in zip(_read_and_written(server.pid), first, strict=True))
        is_ahead = done > (time.monotonic() - began) * rate_bytes_per_s + ahead
        if is_ahead != is_stopped:
            _signal_all(server.pid, signal.SIGSTOP if is_ahead else signal.SIGCONT)
            is_stopped = is_ahead
    if is_stopped:
        _signal_all(server.pid, signal.SIGCONT)


def _read_and_written(pid: int) -> tuple[int, int]:
    read = written = 0
    for each in [pid, *(below for below, _ in processes.descendants(pid))]:
        with contextlib.suppress(OSError):
            counters = dict(line.split(": ") for line in Path(f"/proc/{each}/io").read_text().splitlines())
            read, written = read + int(counters["rchar"]), written + int(counters["wchar"])
    return read, written


def _signal_all(pid: int, number: int) -> None:
    for each in [*(below for below, _ in processes.descendants(pid)), pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, number)

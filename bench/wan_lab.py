"""One emulated network with servers at its sites and a client: runs over it, and what they cost."""

import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from math import inf
from urllib.parse import urlsplit

from gridlane_lab import bound
from gridlane_lab.processes import ticks_now, ticks_since
from processes import Sample, cpu_s
from running import generate
from wan_sites import Client, GridlaneServe, Identity, Network, Nginx, XRootD

CLIENT = "client"


@dataclass(frozen=True)
class Place:
    """A network, and what is served where."""

    name: str
    scenario: str  # as `gridlane wan up` reads it
    sites: tuple  # with servers, the nearest first
    servers: tuple = ("nginx",)
    liar: str = ""  # the site whose files are not what they should be
    towards: str = CLIENT  # the site that files go to


@dataclass
class Run(Sample):
    """One run of a client over the network."""

    began: float  # on the clock of time.monotonic
    failure: str | None  # why it is worth nothing
    code: int
    timed_out: bool
    errors: str
    events: list  # (seconds since the beginning, event) of a client that was asked for them
    sent: dict  # bytes of packets by the site that sent them
    dropped: int  # packets that found a queue full
    busy: float  # share of the machine's CPU time, of all programs
    forwarder_cpu_s: float
    memory_bytes: int  # most that the client had
    connections: dict = field(default_factory=dict)  # number by site
    families: set = field(default_factory=set)
    controls: set = field(default_factory=set)

    def first(self, kind, accept=lambda event: True, from_s=0.0):
        """When an event of this type came for the first time, and what it was."""
        for at, event in self.events:
            if at >= from_s and event["type"] == kind and accept(event):
                return at, event
        return inf, None

    @property
    def summary(self):
        return self.first("summary")[1] or {}


class Hook:
    """Something to do while a client runs, `due` so many seconds after its beginning."""

    due = inf

    def act(self, lab, elapsed_s):
        """Does it, and says by `due` when to come again."""
        raise NotImplementedError


class Look(Hook):
    """Looks at the connections from the servers' side, once."""

    def __init__(self, due, servers):
        self.due, self.servers, self.found = due, servers, {}

    def act(self, lab, elapsed_s):
        self.due = inf
        for server in self.servers:
            self.found.setdefault(server.site, []).extend(lab.network.connections(server.site, server.port))


class EachSecond(Hook):
    """Counts what the sites sent, each second."""

    def __init__(self):
        self.due, self.points = 1.0, []

    def act(self, lab, elapsed_s):
        before = time.monotonic()
        sent = lab.sent(lab.network.show())
        after = time.monotonic()
        self.points.append(((before + after) / 2, sum(sent.values())))
        self.due += 1.0

    def rates(self):
        """Bytes of packets per second, second by second."""
        return [(b - a) / (then - now) for (now, a), (then, b) in zip(self.points, self.points[1:])]


class Lab:
    """Up as long as the value is used in a `with`."""

    def __init__(self, shelf, place):
        self.shelf, self.place = shelf, place
        self.directory = shelf.work / place.name
        self.servers = {kind: {} for kind in place.servers}

    def __enter__(self):
        self.directory.mkdir(mode=0o755)
        scenario = self.directory / "scenario.toml"
        scenario.write_text(self.place.scenario)
        self.network = Network(self.shelf.binary, f"bench-{os.getpid()}", scenario)
        try:
            self._fill()
        except BaseException:
            self.network.down()
            raise
        return self

    def _fill(self):
        self.state = self.network.show()
        addresses = {node["name"]: node["addresses"] for node in self.state["nodes"]}
        self.paths = {path["from"]: path for path in self.state["paths"] if path["to"] == self.place.towards}
        self.client = Client(self.network, CLIENT, self.directory / "errors")
        for site in self.place.sites:
            directory = self.directory / site
            directory.mkdir(mode=0o755)
            for kind, servers in self.servers.items():
                servers[site] = self.server(kind, site, directory / kind, addresses[site])
        for servers in self.servers.values():
            for server in servers.values():
                self.wait_for(server)

    def server(self, kind, site, directory, addresses):
        """Starts a server of this kind there."""
        export = self.shelf.lies if site == self.place.liar else self.shelf.export
        where, identity = (self.network, site, directory, export), self.shelf.identity
        return {
            "nginx": lambda: Nginx(*where, identity),
            "serve": lambda: GridlaneServe(*where, identity, self.shelf.binary, addresses),
            "xrootd": lambda: XRootD(*where),
        }[kind]()

    def serving(self, tool):
        """The servers that a client's run keeps busy."""
        return [self.servers[kind][site] for kind, site in tool.sources]

    def __exit__(self, *_):
        for servers in self.servers.values():
            for server in servers.values():
                if server.process.poll() is None:
                    server.process.terminate()
        self.network.process.terminate()
        self.network.process.wait()
        self.network.down()

    def wait_for(self, server):
        """One that does not come up is started once more: xrootd sometimes hangs while it begins."""
        error = self.client.wait_for(server, server.site, server.port)
        if error:
            print(f"{server.name} at {server.site} does not start ({error}); once more", flush=True)
            if server.process.poll() is None:
                server.kill()
            server.start()
            error = self.client.wait_for(server, server.site, server.port)
        if error:
            raise SystemExit(f"{server.name} at {server.site} does not start: {error}\n{server.log()}")

    def another_client(self):
        """One that runs at the same time."""
        return Client(self.network, CLIENT, self.directory / "errors-of-another")

    # --- Figures of the network ------------------------------------------------------------------------

    def path(self, site, family=4, **more):
        found = self.paths[site]
        return bound.Path(found["payload_bytes_per_s"][0 if family == 4 else 1], found["round_trip_s"], **more)

    def overhead(self, site, family=4):
        """Bytes of packets for each byte of payload."""
        rate = self.paths[site]["rate_bits_per_s"] / 8
        packets = rate * self.state["mtu"] / (self.state["mtu"] + self.state["framing_bytes"])
        return packets / self.path(site, family).payload_bytes_per_s

    def link_of(self, site):
        return next(link["link"] for link in self.state["links"] if link["from"] == site)

    def sent(self, state):
        """Bytes of packets that each site has put on its way so far."""
        return {
            link["from"]: link["counters"]["passed_bytes"] for link in state["links"] if link["from"] in self.place.sites
        }

    def checked(self):
        state = self.network.show()
        if state["void"] is not None:
            raise SystemExit(f"the figures mean nothing, no page is written: {state['void']}")
        return state

    # --- Runs ------------------------------------------------------------------------------------------

    def run(self, tool, size, hooks=(), keep=False):
        """Runs a client to its end; `keep` leaves what an earlier run has left. The copy is compared outside the time."""
        if not keep:
            self.shelf.remove_target()
        servers = self.serving(tool)
        before, ticks, served = self.checked(), ticks_now(), sum(map(cpu_s, servers))
        run = self.client.begin(tool.command, tool.limit_s, tool.keeps_events)
        self.pid = run["pid"]
        while not self.client.has_ended(_wait_s(hooks, time.monotonic() - run["began"])):
            now = time.monotonic() - run["began"]
            for hook in hooks:
                if hook.due <= now:
                    hook.act(self, now)
        answer = self.client.end()
        served = sum(map(cpu_s, servers)) - served
        idle, _, total = ticks_since(ticks)
        after = self.checked()
        sent, sent_before = self.sent(after), self.sent(before)
        return Run(
            seconds=answer["seconds"],
            bytes=size,
            client_cpu_s=answer["cpu_s"],
            server_cpu_s=max(served, 0.0),
            began=run["began"],
            failure=self._failure(tool, answer),
            code=answer["code"],
            timed_out=answer["timed_out"],
            errors=answer["errors"],
            events=[(at, json.loads(line)) for at, line in answer["events"] if line.startswith("{")],
            sent={site: sent[site] - sent_before[site] for site in sent},
            dropped=_counted(after, "dropped_packets") - _counted(before, "dropped_packets"),
            busy=1 - idle / max(total, 1),
            forwarder_cpu_s=after["forwarder_cpu_s"] - before["forwarder_cpu_s"],
            memory_bytes=answer["memory_bytes"],
        )

    def _failure(self, tool, answer):
        if answer["timed_out"]:
            return f"not done after {tool.limit_s:.0f} s"
        if answer["code"]:
            return f"exit {answer['code']} after {answer['seconds']:.1f} s: {answer['errors'][-600:].strip()}"
        if tool.original and not same(self.shelf.target, tool.original):
            return "exit 0, but the copy is not the file"
        return None


def site_of(address):
    return urlsplit(address).hostname


def same(one, other):
    return subprocess.run(["cmp", "-s", str(one), str(other)], check=False).returncode == 0


def _wait_s(hooks, elapsed_s):
    due = min((hook.due for hook in hooks), default=inf)
    return None if due == inf else max(0.0, due - elapsed_s)


def _counted(state, counter):
    return sum(link["counters"][counter] for link in state["links"])


class Shelf:
    """The files that are copied, below one directory in tmpfs; the target; and what all networks have in common."""

    def __init__(self, work, binary, sites):
        self.work, self.binary = work, binary
        # Another user, xrootd's, reads below; the key is its owner's only.
        work.chmod(0o711)
        self.export, self.lies, self.target = work / "export", work / "lies", work / "target"
        for directory in (self.export, self.lies):
            directory.mkdir(mode=0o755)
        self.identity = Identity(work / "identity", sites)
        self.authority = str(self.identity.authority)

    def file(self, size, directory=None):
        return (directory or self.export) / str(size)

    def need(self, size):
        """A file of this size, and the memory for its copy, which is touched once: the first touch is many times
        slower."""
        path = self.file(size)
        if not path.exists():
            generate(path, size)
            path.chmod(0o644)
            generate(self.target, size)
            self.target.unlink()

    def write(self, name, text):
        path = self.work / name
        path.write_text(text)
        return path

    def remove_target(self):
        # Also what an interrupted copy leaves beside it, and aria2c's notes.
        for path in self.work.glob(f"*{self.target.name}*"):
            if path.is_dir():
                subprocess.run(["rm", "-r", str(path)], check=True)
            else:
                path.unlink()
        for path in self.work.glob(f".{self.target.name}*"):
            path.unlink()

"""Where a scenario happens: emulated networks, sites on loopback, and real endpoints.

A network has places, where servers and clients run. It lives as long as cells that need the same one follow each other,
and nothing of it is left afterwards: `workspace` sees to that even when this process is killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gridlane_lab import network, processes, serving
from gridlane_lab.agents import RemoteAgent
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.scenario import Event, Host, Link, Scenario, Topology
from gridlane_lab.workspace import Workspace

# The host itself, for commands that run at no site.
HOST = "host"


@dataclass(frozen=True)
class Place:
    """A site, or one host of a site, as servers and clients see it."""

    name: str
    host: str
    has_own_network: bool
    _addresses: tuple[str, ...]
    _network: network.Network | None = None
    _ports: set[int] = field(default_factory=set)

    def addresses(self) -> Sequence[str]:
        """Addresses that other places reach it at."""
        return self._addresses

    def port(self, usual: int) -> int:
        """A port for a server: a free one where ports are those of the host, else the usual one or one like it."""
        if not self.has_own_network:
            return serving.free_port()
        port = next(port for port in range(usual, 65_536, 1000) if port not in self._ports)
        self._ports.add(port)
        return port

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command as it runs there: same process, whatever has to be entered."""
        return list(argv) if self._network is None else self._network.at(self.name, *argv)


class Sites:
    """A network with its places. `close` ends it with everything inside."""

    backend = "loopback"

    def __init__(self, workspace: Workspace, names: Sequence[str]) -> None:
        self._workspace = workspace
        self._agents: dict[str, RemoteAgent] = {}
        self.places: dict[str, Place] = {}
        self._make_places(names)

    def _make_places(self, names: Sequence[str]) -> None:
        # All of them are this host, and differ by the ports of their servers.
        for name in names:
            self.places[name] = Place(name, "127.0.0.1", False, ("127.0.0.1",))

    def agent(self, place: str) -> RemoteAgent:
        """Runs commands at a place, or at `HOST`."""
        key = place if place != HOST and self.places[place].has_own_network else HOST
        if key not in self._agents:
            self._agents[key] = self.another_agent(key)
        return self._agents[key]

    def another_agent(self, place: str) -> RemoteAgent:
        """An agent that its user closes."""
        at = list if place == HOST else self.places[place].command
        agent = RemoteAgent(at, place, self._workspace.memory)
        self._workspace.add_process(agent.process.pid)
        return agent

    def agents(self) -> list[RemoteAgent]:
        """Those that there are."""
        return list(self._agents.values())

    def state(self) -> dict[str, Any] | None:
        """What the emulator tells; None where nothing is emulated."""
        return None

    def change(self, event: Event) -> None:
        """Changes a link."""
        raise LabError(
            f"the link {event.link} cannot change on {self.backend}",
            hint='events need [topology] backend = "tun"',
            code=ExitCode.UNSUPPORTED,
        )

    def restore(self, links: Sequence[str]) -> None:
        """Makes links what the scenario says."""

    def interface_bytes(self, place: str) -> int | None:
        """Bytes of packets that a place has sent so far; None where several share interfaces."""
        del place
        return None

    def connections(self, place: str, port: int) -> list[dict[str, Any]]:
        """The connections of a server at a place (`network.connections`)."""
        del place
        return network.connections(port)

    def close(self) -> None:
        """Ends everything."""
        for agent in self._agents.values():
            agent.close()
        self._agents = {}


class EmulatedSites(Sites):
    """`gridlane wan`."""

    def __init__(
        self, workspace: Workspace, topology: Topology, host: Host, seed: int, gridlane: str, number: int
    ) -> None:
        self.backend = topology.backend
        self._topology = topology
        self._gridlane = gridlane
        self._name = f"{workspace.name}-{number}"
        scenario = workspace.memory / f"network-{number}.toml"
        self.text = wan_scenario(topology, host, seed)
        scenario.write_text(self.text)
        workspace.add_network(gridlane, self._name)
        try:
            self.network = network.Network(gridlane, self._name, scenario, topology.backend)
        except network.NetworkError as error:
            workspace.remove_network(self._name)
            raise _network_error(error) from None
        try:
            self.initial = self.network.show()
            super().__init__(workspace, list(_host_names(topology)))
        except BaseException:
            self.network.down()
            raise

    def _make_places(self, names: Sequence[str]) -> None:
        addresses = {node["name"]: tuple(node["addresses"]) for node in self.initial["nodes"]}
        for name in names:
            self.places[name] = Place(name, name, True, addresses[name], self.network)

    def state(self) -> dict[str, Any]:
        """What the emulator tells: sites, paths, links, counters."""
        try:
            return self.network.show()
        except network.NetworkError as error:
            raise _network_error(error) from None

    def change(self, event: Event) -> None:
        """Changes a link."""
        options = [f"--from={event.sent_by}"] if event.sent_by else []
        if event.restore:
            options.append("--restore")
        if event.rate_bits_per_s is not None:
            options.append(f"--rate={_rate(event.rate_bits_per_s)}")
        if event.delay_ms is not None:
            options.append(f"--delay-ms={event.delay_ms:g}")
        if event.loss_ratio is not None:
            options.append(f"--loss={event.loss_ratio:g}")
        if event.down is not None:
            options.append("--down" if event.down else "--up")
        assert event.link is not None
        try:
            self.network.set(event.link, *options)
        except network.NetworkError as error:
            raise _network_error(error) from None

    def restore(self, links: Sequence[str]) -> None:
        """Makes links what the scenario says."""
        for link in links:
            self.network.set(link, "--restore")

    def interface_bytes(self, place: str) -> int | None:
        """Bytes of packets that a place has sent so far."""
        counters = processes.interface_bytes(self.agent(place).process.pid)
        return sum(sent for name, (_, sent) in counters.items() if name != "lo") if counters else None

    def connections(self, place: str, port: int) -> list[dict[str, Any]]:
        """The connections of a server at a place."""
        return self.network.connections(place, port)

    def close(self) -> None:
        """Ends the network with everything inside."""
        super().close()
        self.network.down()
        self._workspace.remove_network(self._name)


def make_sites(scenario: Scenario, workspace: Workspace, gridlane: str | None, number: int) -> Sites:
    """The network of a resolved scenario."""
    topology = scenario.topology
    if topology is None:
        # Real endpoints: clients run here.
        return Sites(workspace, [scenario.work.target_site])
    if topology.backend == "loopback":
        return Sites(workspace, list(_host_names(topology)))
    if gridlane is None:
        raise LabError(
            "an emulated network needs the binary of gridlane, which is not there",
            hint="make build",
            code=ExitCode.NOT_FOUND,
        )
    return EmulatedSites(workspace, topology, scenario.host, scenario.data.seed, gridlane, number)


def check_rights(scenario: Scenario) -> None:
    """Says at once what an emulated network would miss."""
    if scenario.topology is None or scenario.topology.backend == "loopback":
        return
    if os.name != "posix" or not Path("/proc/self/ns/net").exists():
        raise LabError(
            "emulated networks need Linux with network namespaces",
            hint='use [topology] backend = "loopback", or another machine',
            code=ExitCode.UNSUPPORTED,
        )
    if processes.find("ip") is None:
        raise LabError(
            "emulated networks need the program ip, which is not installed",
            hint="apt-get install iproute2",
            code=ExitCode.NOT_FOUND,
        )
    if scenario.topology.backend == "tun" and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        what = "is not there" if not Path("/dev/net/tun").exists() else "may not be used by this user"
        raise LabError(
            f"emulated networks need /dev/net/tun, which {what}",
            hint='run as root on a machine that has it, or use [topology] backend = "loopback"',
            code=ExitCode.DENIED,
        )


# --- The emulator's scenario ----------------------------------------------------------------------------------------


def wan_scenario(topology: Topology, host: Host, seed: int) -> str:
    """A topology as `gridlane wan up` reads it (docs/reference/wan-scenario.md). A site of several hosts is a router,
    with a host behind each of its own links, which have neither delay nor limit."""
    routers = list(topology.routers)
    inner = []
    for site in topology.site:
        if site.count > 1:
            routers.append(site.name)
            inner += [(site.name, host) for host in site.hosts()]
    lines = [
        f"sites = {json.dumps(list(_host_names(topology)))}",
        f"routers = {json.dumps(routers)}",
        f"seed = {seed}",
        f"mtu = {topology.mtu_bytes}",
        f"buffers = {json.dumps(host.buffers)}",
    ]
    if host.congestion_control is not None:
        lines.append(f"congestion_control = {json.dumps(host.congestion_control)}")
    for link in topology.link:
        lines += ["", "[[link]]", *_link_lines(link)]
    for router, name in inner:
        lines += ["", "[[link]]", f"between = {json.dumps([router, name])}"]
    return "\n".join(lines) + "\n"


def _link_lines(link: Link) -> Iterator[str]:
    yield f"between = {json.dumps(link.between)}"
    yield f"name = {json.dumps(link.label)}"
    values: dict[str, object] = {
        "rate_bits_per_s": link.rate_bits_per_s,
        "delay_ms": link.one_way_ms,
        "jitter_ms": link.jitter_ms,
        "loss_ratio": link.loss_ratio,
        "queue": link.queue,
    }
    for line in _figures(values):
        yield line
    for node, figures in link.sending.items():
        for line in _figures(figures):
            yield f"from.{json.dumps(node)}.{line}"


def _figures(values: Mapping[str, object]) -> Iterator[str]:
    for key, value in values.items():
        if value is None:
            continue
        if key == "rate_bits_per_s":
            yield f"rate = {json.dumps(_rate(float(str(value))))}"
        elif key in ("queue", "queue_bytes"):
            yield f"queue = {json.dumps(value if value == 'bdp' else f'{int(float(str(value)))}B')}"
        elif key == "loss_ratio":
            yield f"loss = {float(str(value))!r}"
        elif key in ("delay_ms", "jitter_ms"):
            yield f"{key} = {float(str(value))!r}"
        elif key == "round_trip_ms":
            yield f"delay_ms = {float(str(value)) / 2!r}"
        else:
            raise LabError(
                f"a link has no figure {key!r} of its own for what one end sends",
                hint="there are: rate_bits_per_s, delay_ms, jitter_ms, loss_ratio, queue_bytes",
                code=ExitCode.USAGE,
            )


def _rate(bits_per_s: float) -> str:
    return f"{round(bits_per_s)}b/s"


def _host_names(topology: Topology) -> Iterator[str]:
    for site in topology.site:
        yield from site.hosts()


def _network_error(error: network.NetworkError) -> LabError:
    codes = {code.value: code for code in ExitCode}
    return LabError(str(error), hint=error.hint, code=codes.get(error.code, ExitCode.OTHER))

"""The server of iperf3, for what a path carries without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from gridlane_lab.driver import Availability, Export, RunningServer, ServerDriver, Site
from gridlane_lab.drivers.common import find
from gridlane_lab.registry import register_server
from gridlane_lab.scenario import Kind, Option
from gridlane_lab.servers.base import ProcessServer, check_options


@register_server
class Iperf3(ServerDriver):
    """Takes part in the kind `raw_network` only."""

    name: ClassVar[str] = "iperf3"
    protocols: ClassVar[frozenset[str]] = frozenset({"tcp"})
    kinds: ClassVar[frozenset[Kind]] = frozenset({"raw_network"})

    def availability(self) -> Availability:
        """Looks for the program."""
        return find("iperf3", "iperf3", ("--version",))

    def start(self, site: Site, export: Export, flags: Sequence[str], options: Mapping[str, Option]) -> RunningServer:
        """Starts it, and returns at once."""
        check_options(options, [], self.name)
        port = site.port(5201)
        command = ["iperf3", "--server", "--port", port, "--forceflush", *flags]
        return ProcessServer(site, export, command, {"tcp": f"tcp://{site.host}:{port}/"}, [port])

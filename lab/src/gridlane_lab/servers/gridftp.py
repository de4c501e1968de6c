"""Debian's GridFTP server, for anonymous clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from gridlane_lab import serving
from gridlane_lab.driver import Availability, Export, RunningServer, ServerDriver, Site
from gridlane_lab.drivers.common import find
from gridlane_lab.registry import register_server
from gridlane_lab.scenario import Kind, Option
from gridlane_lab.servers.base import ProcessServer, check_options


@register_server
class GridFtp(ServerDriver):
    """Anonymous, so that its URLs begin with `ftp://`: the other scheme needs a certificate of the client."""

    name: ClassVar[str] = "gridftp"
    protocols: ClassVar[frozenset[str]] = frozenset({"gsiftp", "ftp"})
    kinds: ClassVar[frozenset[Kind]] = frozenset({"copy", "upload", "copy_then_read", "tpc_pull", "tpc_push"})

    def availability(self) -> Availability:
        """Looks for the program."""
        return find("globus-gridftp-server", "globus-gridftp-server-progs", ("-version",))

    def start(self, site: Site, export: Export, flags: Sequence[str], options: Mapping[str, Option]) -> RunningServer:
        """Starts it, and returns at once."""
        check_options(options, [], self.name)
        port = site.port(2811)
        command = serving.gridftp_server(port, export.directory, True, flags)
        # The address that passive connections are made to: its own name would be looked up otherwise.
        address = next(address for address in site.addresses() if ":" not in address)
        # Paths are those of this machine, of which it allows those of the export.
        url = f"ftp://{site.host}:{port}{export.directory}/"
        command += ["-control-interface", address, "-data-interface", address]
        return ProcessServer(site, export, command, {"gsiftp": url, "ftp": url}, [port])

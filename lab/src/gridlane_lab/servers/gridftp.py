"""Debian's GridFTP server, for anonymous clients or those with a proxy."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from typing import ClassVar

from gridlane_lab import serving
from gridlane_lab.driver import Admission, Availability, Export, RunningServer, ServerDriver, Site
from gridlane_lab.drivers.common import find
from gridlane_lab.registry import register_server
from gridlane_lab.scenario import Kind, Option
from gridlane_lab.servers.base import ProcessServer, check_options


@register_server
class GridFtp(ServerDriver):
    """Without credentials its URLs begin with `ftp://`: the other scheme needs a certificate of the client. With them
    control channels are encrypted and data channels authenticated, as is Globus's default."""

    name: ClassVar[str] = "gridftp"
    protocols: ClassVar[frozenset[str]] = frozenset({"gsiftp", "ftp"})
    kinds: ClassVar[frozenset[Kind]] = frozenset({"copy", "upload", "copy_then_read", "tpc_pull", "tpc_push"})

    auth: ClassVar[Mapping[str, Admission]] = {"proxy": Admission(frozenset({"gsiftp"}), kinds)}

    def availability(self) -> Availability:
        """Looks for the program."""
        return find("globus-gridftp-server", "globus-gridftp-server-progs", ("-version",))

    def start(self, site: Site, export: Export, flags: Sequence[str], options: Mapping[str, Option]) -> RunningServer:
        """Starts it, and returns at once."""
        check_options(options, [], self.name)
        port = site.port(2811)
        is_anonymous = export.auth == "none"
        command = serving.gridftp_server(port, export.directory, is_anonymous, flags)
        environment: dict[str, str] = {}
        if not is_anonymous:
            users = export.scratch / "grid-mapfile"
            users.write_text(f'"{export.user}" {getpass.getuser()}\n')
            environment = {
                "X509_USER_CERT": str(export.certificate),
                "X509_USER_KEY": str(export.key),
                "X509_CERT_DIR": str(export.authority_directory),
                "GRIDMAP": str(users),
            }
        # The address that passive connections are made to: its own name would be looked up otherwise.
        address = next(address for address in site.addresses() if ":" not in address)
        # Paths are those of this machine, of which it allows those of the export.
        place = f"://{site.host}:{port}{export.directory}/"
        url = f"ftp{place}"
        command += ["-control-interface", address, "-data-interface", address]
        urls = {"gsiftp": url, "ftp": url} if is_anonymous else {"gsiftp": f"gsiftp{place}"}
        return ProcessServer(site, export, command, urls, [port], environment)

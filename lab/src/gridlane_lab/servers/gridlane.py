"""`gridlane serve`: http, https, root:// and roots:// on one port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from gridlane_lab import serving
from gridlane_lab.driver import Admission, Availability, Export, RunningServer, ServerDriver, Site
from gridlane_lab.drivers.common import gridlane_binary
from gridlane_lab.registry import register_server
from gridlane_lab.scenario import Kind, Option
from gridlane_lab.servers.base import ProcessServer, check_options


@register_server
class Gridlane(ServerDriver):
    """Options: `limit_rate` (bytes per second that it sends, over all connections).

    Servers cannot pass a client's proxy on to each other: it wants none for third-party copies."""

    name: ClassVar[str] = "gridlane"
    protocols: ClassVar[frozenset[str]] = frozenset({"http", "https", "root", "roots"})
    kinds: ClassVar[frozenset[Kind]] = frozenset(
        {"copy", "upload", "remote_read", "copy_then_read", "tpc_pull", "tpc_push"}
    )

    auth: ClassVar[Mapping[str, Admission]] = {
        "proxy": Admission(frozenset({"https"}), frozenset({"copy", "upload", "remote_read", "copy_then_read"}))
    }

    def availability(self) -> Availability:
        """Looks for the program."""
        return gridlane_binary()

    def start(self, site: Site, export: Export, flags: Sequence[str], options: Mapping[str, Option]) -> RunningServer:
        """Starts it, and returns at once."""
        check_options(options, ["limit_rate"], self.name)
        binary = self.availability().path
        assert binary is not None
        port = site.port(1094)
        more = [*flags, "--ca", export.authority_file, "--server-name", site.host]
        if export.auth == "none":
            more.append("--insecure-allow-anonymous")
        else:
            conf = export.scratch / "serve.toml"
            conf.write_text(serving.gridlane_conf(export.authority_file))
            more += ["--config", conf]
        if export.writable:
            more += ["--allow-write", "--tpc-allow", "any", "--tpc-push-for-anyone"]
        if "limit_rate" in options:
            more += ["--limit-rate", options["limit_rate"]]
        listen = [serving.with_port(address, port) for address in site.addresses()]
        command = serving.gridlane_serve(binary, export.directory, listen, export.certificate, export.key, more)
        base = f"://{site.host}:{port}/"
        urls = {"http": f"http{base}", "https": f"https{base}", "root": f"root{base}/", "roots": f"roots{base}/"}
        return ProcessServer(site, export, command, urls, [port])

"""nginx: http and https. It takes files below `put/`, and makes no third-party copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from gridlane_lab import serving
from gridlane_lab.driver import Availability, Export, RunningServer, ServerDriver, Site
from gridlane_lab.drivers.common import find
from gridlane_lab.registry import register_server
from gridlane_lab.scenario import Kind, Option
from gridlane_lab.servers.base import ProcessServer, check_options, texts


@register_server
class Nginx(ServerDriver):
    """Options: `config` (lines for the block `server`)."""

    name: ClassVar[str] = "nginx"
    protocols: ClassVar[frozenset[str]] = frozenset({"http", "https"})
    kinds: ClassVar[frozenset[Kind]] = frozenset({"copy", "upload", "remote_read", "copy_then_read"})

    def availability(self) -> Availability:
        """Looks for the program."""
        return find("nginx", "nginx", ("-v",))

    def start(self, site: Site, export: Export, flags: Sequence[str], options: Mapping[str, Option]) -> RunningServer:
        """Starts it, and returns at once."""
        check_options(options, ["config"], self.name)
        plain, tls = site.port(80), site.port(443)
        listen = "".join(
            f"listen {serving.with_port(address, plain)}; listen {serving.with_port(address, tls)} ssl; "
            for address in site.addresses()
        )
        conf = export.scratch / "nginx.conf"
        more = "\n        ".join(texts(options, "config"))
        conf.write_text(
            serving.nginx_conf(listen, export.directory, export.certificate, export.key, "stderr warn", more)
        )
        command = ["nginx", "-p", export.scratch, "-c", conf, *flags]
        urls = {"http": f"http://{site.host}:{plain}/", "https": f"https://{site.host}:{tls}/"}
        return ProcessServer(site, export, command, urls, [plain, tls])

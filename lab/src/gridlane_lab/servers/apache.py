"""Apache with mod_dav: http and https. It makes no third-party copies."""

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
class Apache(ServerDriver):
    """Options: `config` (lines of the configuration)."""

    name: ClassVar[str] = "apache"
    protocols: ClassVar[frozenset[str]] = frozenset({"http", "https"})
    kinds: ClassVar[frozenset[Kind]] = frozenset({"copy", "upload", "remote_read", "copy_then_read"})

    def availability(self) -> Availability:
        """Looks for the program."""
        return find("apache2", "apache2-bin", ("-v",))

    def start(self, site: Site, export: Export, flags: Sequence[str], options: Mapping[str, Option]) -> RunningServer:
        """Starts it, and returns at once."""
        check_options(options, ["config"], self.name)
        plain, tls = site.port(80), site.port(443)
        log = export.scratch / "apache.log"
        conf = export.scratch / "apache.conf"
        conf.write_text(
            serving.apache_conf(
                export.scratch,
                export.directory,
                [serving.with_port(address, plain) for address in site.addresses()],
                [serving.with_port(address, tls) for address in site.addresses()],
                export.certificate,
                export.key,
                error_log=str(log),
                more="".join(f"{line}\n" for line in texts(options, "config")),
            )
        )
        # What it stores is stored by its own user; the lock database is, too.
        serving.give_to("www-data", export.directory / "put", export.scratch)
        command = ["apache2", "-D", "FOREGROUND", "-f", conf, *flags]
        urls = {"http": f"http://{site.host}:{plain}/", "https": f"https://{site.host}:{tls}/"}
        return ProcessServer(site, export, command, urls, [plain, tls], own_log=log)

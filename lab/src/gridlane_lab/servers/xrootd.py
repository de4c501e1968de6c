"""Debian's xrootd: root://, roots://, http and https on one port, with third-party copies of both kinds."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import ClassVar

from gridlane_lab import serving
from gridlane_lab.driver import Availability, Export, RunningServer, ServerDriver, Site
from gridlane_lab.drivers.common import find
from gridlane_lab.registry import register_server
from gridlane_lab.scenario import Kind, Option
from gridlane_lab.servers.base import ProcessServer, check_options, texts


@register_server
class XRootD(ServerDriver):
    """Options: `config` (lines of the configuration)."""

    name: ClassVar[str] = "xrootd"
    protocols: ClassVar[frozenset[str]] = frozenset({"http", "https", "root", "roots"})
    kinds: ClassVar[frozenset[Kind]] = frozenset(
        {"copy", "upload", "remote_read", "copy_then_read", "tpc_pull", "tpc_push"}
    )

    def availability(self) -> Availability:
        """Looks for the program."""
        return find("xrootd", "xrootd-server", ("-v",))

    def start(self, site: Site, export: Export, flags: Sequence[str], options: Mapping[str, Option]) -> RunningServer:
        """Starts it, and returns at once."""
        check_options(options, ["config"], self.name)
        port = site.port(1095)
        scratch = export.scratch
        (scratch / "admin").mkdir(exist_ok=True)
        # The key has to be its own.
        shutil.copy(export.certificate, scratch / "certificate.pem")
        shutil.copy(export.key, scratch / "key.pem")
        (scratch / "key.pem").chmod(0o600)
        conf = scratch / "xrootd.cfg"
        conf.write_text(
            serving.xrootd_conf(
                scratch,
                export.directory,
                port,
                rights="" if export.writable else "r/o",
                has_tls=True,
                has_http=True,
                has_copies=export.writable,
                authority=export.authority_file,
                more="".join(f"{line}\n" for line in texts(options, "config")),
            )
        )
        serving.give_to("xrootd", scratch, *([export.directory / "put"] if export.writable else []))
        log = scratch / "admin" / "xrootd.log"
        command = [*serving.as_user("xrootd"), "xrootd", "-c", conf, "-n", site.name, "-l", log, *flags]
        base = f"://{site.host}:{port}/"
        urls = {"http": f"http{base}", "https": f"https{base}", "root": f"root{base}/", "roots": f"roots{base}/"}
        return ProcessServer(site, export, command, urls, [port], own_log=log)

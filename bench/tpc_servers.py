"""Two servers of each kind on this machine that copy files between themselves, and what a copy costs them."""

import os
import shutil
import time
from pathlib import Path

from processes import Xrootd
from running import Serve
from wan_sites import Identity, XRootD

# Third-party copies over HTTP; for outgoing connections the authorities that the server itself knows.
XROOTD_COPIES_CONF = """\
http.exthandler xrdtpc libXrdHttpTPC.so
xrd.tlsca certfile {authority}
"""

# Third-party copies over root://, made by the program that XRootD's manual names.
XROOTD_ROOT_COPIES_CONF = """\
ofs.tpc autorm ttl 15 15 xfr 20 pgm {xrdcp} --server
"""

# What the emulated network's servers need for https, on the same port.
XROOTD_WAN_CONF = """\
xrd.tls {directory}/certificate.pem {directory}/key.pem
xrootd.tls capable none
xrd.protocol http:{port} libXrdHttp.so
http.trace none
"""

# A server's work is over when its clock has stood still for so long.
_STILL_S, _STILL_LIMIT_S = 0.03, 3.0


class Pair:
    """Two servers of one kind: files are below `export` at the source, and below `landing` at the destination."""

    def __init__(self, name, source, destination):
        self.name, self.source, self.destination = name, source, destination
        # xrdcp takes one slash after the port for the path's own, the other servers' addresses have none of theirs.
        self._root_slash = "" if name == "xrootd" else "/"

    @property
    def servers(self):
        return [self.source, self.destination]

    def at_source(self, name, scheme):
        return self.source.url(self._path(name, scheme), scheme)

    def at_destination(self, name, scheme):
        return self.destination.url(self._path(name, scheme), scheme)

    def _path(self, name, scheme):
        return self._root_slash + name if scheme.startswith("root") else name

    def cpu_s(self):
        """CPU time of both servers so far, with all that they have started, when neither does anything any more."""
        limit = time.monotonic() + _STILL_LIMIT_S
        before = None
        while (now := sum(cpu_of_all_s(server.process.pid) for server in self.servers)) != before:
            if before is not None and (now - before < 0.001 or time.monotonic() > limit):
                break
            before = now
            time.sleep(_STILL_S)
        return now


def cpu_of_all_s(pid):
    """CPU time of a process, of all below it, and of those below it that have ended."""
    try:
        # The clock of the process, finer than ticks; and ticks of the children that it has waited for.
        own = time.clock_gettime((~pid << 3) | 2)
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ended = (int(stat[13]) + int(stat[14])) / os.sysconf("SC_CLK_TCK")
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        below = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return 0.0
    return own + ended + sum(map(cpu_of_all_s, below))


def gridlane_pair(binary, work, export, landing, identity):
    options = ["--cert", str(identity.certificate), "--key", str(identity.key), "--ca", str(identity.authority)]
    source = Serve(binary, export, work / "gridlane-source", *options)
    destination = Serve(binary, landing, work / "gridlane-destination", "--allow-write", *options)
    return Pair("gridlane", source, destination)


def xrootd_pair(work, export, landing, identity):
    more = XROOTD_COPIES_CONF.format(authority=identity.authority)
    more += XROOTD_ROOT_COPIES_CONF.format(xrdcp=shutil.which("xrdcp"))
    where = (identity.certificate, identity.key, True, more)
    source = Xrootd(export, work / "xrootd-source", *where)
    return Pair("xrootd", source, Xrootd(landing, work / "xrootd-destination", *where))


def local_identity(work):
    return Identity(work / "identity", ["localhost", "127.0.0.1"])


def give_to_xrootd(*paths):
    """XRootD works as a user of its own."""
    if os.getuid() == 0:
        for path in paths:
            shutil.chown(path, "xrootd", "xrootd")


class CopyingXRootD(XRootD):
    """At a site of an emulated network, with https and third-party copies."""

    def __init__(self, network, site, directory, export, identity):
        more = XROOTD_WAN_CONF.format(directory=directory, port=self.port)
        more += XROOTD_COPIES_CONF.format(authority=identity.authority)
        super().__init__(network, site, directory, export, "", more, (identity.certificate, identity.key))

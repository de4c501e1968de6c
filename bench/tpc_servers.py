"""Two servers of each kind on this machine that copy files between themselves, and what a copy costs them."""

from processes import Xrootd
from running import Serve
from wan_sites import Identity, XRootD

from gridlane_lab.processes import cpu_of_all_s, settled
from gridlane_lab.serving import give_to


class Pair:
    """Two servers of one kind: files are below `export` at the source, and below `landing` at the destination."""

    def __init__(self, name, source, destination):
        self.name, self.source, self.destination = name, source, destination

    @property
    def servers(self):
        return [self.source, self.destination]

    def at_source(self, name, scheme):
        return self.source.url(name, scheme)

    def at_destination(self, name, scheme):
        return self.destination.url(name, scheme)

    def cpu_s(self):
        """CPU time of both servers so far, with all that they have started, when neither does anything any more."""
        return settled(lambda: sum(cpu_of_all_s(server.process.pid) for server in self.servers))


def gridlane_pair(binary, work, export, landing, identity):
    options = ["--cert", str(identity.certificate), "--key", str(identity.key), "--ca", str(identity.authority)]
    source = Serve(binary, export, work / "gridlane-source", *options)
    destination = Serve(binary, landing, work / "gridlane-destination", "--allow-write", *options)
    return Pair("gridlane", source, destination)


def xrootd_pair(work, export, landing, identity):
    where = (identity.certificate, identity.key, True, True, identity.authority)
    source = Xrootd(export, work / "xrootd-source", *where)
    return Pair("xrootd", source, Xrootd(landing, work / "xrootd-destination", *where))


def local_identity(work):
    return Identity(work / "identity", ["localhost", "127.0.0.1"])


def give_to_xrootd(*paths):
    """XRootD works as a user of its own."""
    give_to("xrootd", *paths)


class CopyingXRootD(XRootD):
    """At a site of an emulated network, with https and third-party copies."""

    def __init__(self, network, site, directory, export, identity):
        more = {"has_tls": True, "has_http": True, "has_copies": True, "authority": identity.authority}
        super().__init__(network, site, directory, export, "", more, (identity.certificate, identity.key))

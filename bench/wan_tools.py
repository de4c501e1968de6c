"""The clients: how each is told to fetch a file from several sites, and what it is compared with."""

from dataclasses import dataclass
from pathlib import Path

from wan_sites import GridlaneServe, Nginx, XRootD

PORTS = {"nginx": Nginx.port, "serve": GridlaneServe.port, "xrootd": XRootD.port, "xrootd-https": XRootD.port}
PROTOCOLS = {"nginx": "https", "serve": "https", "xrootd": "root", "xrootd-https": "https"}

# A client that takes longer is hung; its run counts as failed.
LIMIT_S = 120


@dataclass(eq=False)
class Tool:
    """A way to fetch something, and the servers that it talks to."""

    name: str
    command: list
    sources: tuple  # (kind of server, site), the nearest first
    rounds: int
    original: Path | None = None  # what the target must be
    keeps_events: bool = False
    limit_s: float = LIMIT_S

    @property
    def protocols(self):
        return [PROTOCOLS[kind] for kind, _ in self.sources]


def url(kind, site, name):
    slash = "//" if kind == "xrootd" else "/"
    return f"{PROTOCOLS[kind]}://{site}:{PORTS[kind]}{slash}{name}"


def gridlane(shelf, size, sources, rounds, name=None, more=()):
    """`gridlane cp` with its events, which say more than a tool can be asked afterwards."""
    first, *mirrors = (url(kind, site, size) for kind, site in sources)
    command = [shelf.binary, "cp", first, str(shelf.target), "--json", "--ca", shelf.authority, *more]
    for mirror in mirrors:
        command += ["--mirror", mirror]
    names = {"serve": "gridlane serve"}
    kinds = " and ".join(dict.fromkeys(names.get(kind, kind) for kind, _ in sources))
    return Tool(
        name or f"gridlane cp from {kinds}", command, tuple(sources), rounds, shelf.file(size), keeps_events=True,
    )


def aria2(shelf, size, sites, rounds, limit_s=LIMIT_S):
    """With its defaults: one connection to each server, pieces of at least 20 MiB."""
    command = [
        "aria2c", "--no-conf", "--quiet", "--file-allocation=none", f"--ca-certificate={shelf.authority}",
        f"--dir={shelf.target.parent}", f"--out={shelf.target.name}", *(url("nginx", site, size) for site in sites),
    ]
    return Tool("aria2c from nginx", command, _all("nginx", sites), rounds, shelf.file(size), limit_s=limit_s)


def xrdcp(shelf, size, sites, rounds, limit_s=LIMIT_S):
    """Of several replicas only a metalink or a redirector can tell it. Without the CRC32C of pages: Debian's build computes
    it in software, which two shared cores feel."""
    command = ["env", "XRD_CPUSEPGWRTRD=0", "xrdcp", "--nopbar", "--silent"]
    command += ["--sources", str(len(sites)), str(metalink(shelf, size, _all("xrootd", sites))), str(shelf.target)]
    return Tool("xrdcp without page checksums", command, _all("xrootd", sites), rounds, shelf.file(size), limit_s=limit_s)


def curl(shelf, size, site, rounds, max_s=None):
    command = ["curl", "--silent", "--show-error", "--fail", "--cacert", shelf.authority, "-o", str(shelf.target)]
    if max_s:
        command += ["--max-time", str(max_s)]
    return Tool("curl from nginx", [*command, url("nginx", site, size)], (("nginx", site),), rounds, shelf.file(size))


def metalink(shelf, size, sources, digests="", name=None):
    """A metalink of a file's replicas; `digests` are its elements `hash` and `pieces`."""
    name = f"{name or size}-{'-'.join(kind + site for kind, site in sources)}.meta4"
    return shelf.write(name, document([entry(shelf.target.name, size, size, sources, digests)]))


def entry(target, name, size, sources, digests=""):
    """A file of this name at the sources, which is to be called `target`."""
    urls = "".join(
        f'<url priority="{rank}">{url(kind, site, name)}</url>' for rank, (kind, site) in enumerate(sources, 1)
    )
    return f'<file name="{target}"><size>{size}</size>{digests}{urls}</file>'


def document(entries):
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<metalink xmlns="urn:ietf:params:xml:ns:metalink">'
    return head + "".join(entries) + "</metalink>\n"


def _all(kind, sites):
    return tuple((kind, site) for site in sites)

"""Three sites that share nothing: large files from one, two and three of them, over https and root://; and 1 MB."""

from statistics import median

from wan_lab import Place
from wan_report import size_name
from wan_rows import Race, Row, Scenario, extra, figure, fractions, line, variation
from wan_tools import Tool, aria2, curl, document, entry, gridlane, xrdcp

SITES = ("near", "middle", "far")
# Round trips in milliseconds by site.
DELAYS_MS = {"near": 10, "middle": 20, "far": 30}

# From this size on it is looked at how even the rate is: it takes seconds to see.
EVEN_BYTES = 2 * 10**9

LINK = """
[[link]]
between = ["{site}", "client"]
rate = "{rate}"
delay_ms = {delay_ms:g}
"""


def star(about, rates, round_trips_ms, head=""):
    """A scenario of sites with a link each."""
    sites = ", ".join(f'"{site}"' for site in ["client", *rates])
    links = "".join(
        LINK.format(site=site, rate=rate, delay_ms=round_trips_ms[site] / 2) for site, rate in rates.items()
    )
    return f'# {about}\nsites = [{sites}]\nseed = 1\nbuffers = "bdp"\n{head}{links}'


THREE = star("Three sites that share nothing on their way to the client.", dict.fromkeys(SITES, "800Mb/s"), DELAYS_MS)


def https(sites, kind="nginx"):
    return tuple((kind, site) for site in sites)


class Three(Scenario):
    name, title = "three", "Three sites of 800 Mb/s at 10, 20 and 30 ms"
    about = ("Large files from one, two and three sites, and how even the rate is from second to second.",)
    servers = ("nginx", "serve", "xrootd")

    def place(self):
        return Place(self.name, THREE, SITES, self.servers)

    def rows(self):
        for size in self.bench.sizes(500, 1000, 2000):
            for k in (1, 2, 3):
                yield self.row(size, k)

    def row(self, size, k):
        sites = SITES[:k]
        # Peers from one and two sites are measured at one size: the others say nothing else.
        with_peers = k == 3 or size == self.bench.megabytes(500)
        few = self.few if with_peers else 0
        tools = [
            gridlane(self.shelf, size, https(sites), self.rounds),
            gridlane(self.shelf, size, https(sites, "serve"), self.rounds if k == 3 else few),
            aria2(self.shelf, size, sites, few),
            aria2(self.shelf, size, sites, few, best=True),
            xrdcp(self.shelf, size, sites, few),
            xrdcp(self.shelf, size, sites, few, pages=False),
        ]
        tools = [tool for tool in tools if tool.rounds]
        each_second = size >= EVEN_BYTES

        def judge(lab, runs):
            ours, *others = tools
            yield fractions(f"of bound({k}), from nginx", runs[ours], 0.97)
            if k == 3:
                yield fractions(f"of bound({k}), from gridlane serve", runs[others[0]], 0.97)
            if each_second:
                yield figure("variation of the rate per second", variation(runs[ours]), most=0.05, digits=3)
            yield extra(lab, ours, runs[ours])

        return Race(self, f"{size_name(size)} from {k}", size, tools, judge, each_second=each_second)


class Root(Scenario):
    name, title = "root", "root:// alone, and mixed with https"
    about = (
        "The same sites: from xrootd alone, and from nginx at the nearest over https together with xrootd at the others",
        "over root://.",
    )

    def place(self):
        return Place(self.name, THREE, SITES, ("nginx", "xrootd"))

    def rows(self):
        for size in self.bench.sizes(500, 1000, 2000):
            for k in (1, 3) if size == self.bench.megabytes(500) else (3,):
                yield self.row(size, k)

    def row(self, size, k):
        alone = gridlane(self.shelf, size, https(SITES[:k], "xrootd"), self.rounds)
        mixed = (("nginx", SITES[0]), *https(SITES[1:k], "xrootd"))
        mixed = gridlane(self.shelf, size, mixed, self.rounds if k > 1 else 0)
        tools = [tool for tool in (alone, mixed) if tool.rounds]
        each_second = size >= EVEN_BYTES

        def judge(lab, runs):
            for tool in tools:
                yield fractions(f"of bound({k}), {tool.name.removeprefix('gridlane cp ')}", runs[tool], 0.97)
                if each_second:
                    yield figure("variation of the rate per second", variation(runs[tool]), most=0.05, digits=3)
                yield extra(lab, tool, runs[tool])

        return Race(self, f"root://, {size_name(size)} from {k}", size, tools, judge, each_second=each_second)


class OneMegabyte(Scenario):
    name, title = "1mb", "1 MB: the first and the second file of a command"
    about = (
        "A file this small is over in slow start. The second file is of the same command, told by a metalink of two files",
        "and copied after the first (`--parallel 1`); its time is from the end of the first to its own.",
    )
    size = 1_000_000

    def place(self):
        return Place("megabyte", THREE, SITES, ("nginx", "serve", "xrootd"))

    def rows(self):
        rounds = 3 if self.bench.quick else 15
        tools = [gridlane(self.shelf, self.size, https(SITES[:k]), rounds, f"gridlane cp from {k} nginx") for k in (1, 2, 3)]
        tools += [
            gridlane(self.shelf, self.size, https(SITES, "serve"), rounds, "gridlane cp from 3 gridlane serve"),
            aria2(self.shelf, self.size, SITES, rounds),
            aria2(self.shelf, self.size, SITES, rounds, best=True),
            xrdcp(self.shelf, self.size, SITES, rounds),
            xrdcp(self.shelf, self.size, SITES, rounds, pages=False),
            curl(self.shelf, self.size, SITES[0], rounds),
        ]
        one, three, peers = tools[0], tools[2], tools[4:8]
        if self.bench.options.ours:
            peers = []

        def judge(lab, runs):
            yield figure(
                "three sources: time over that from the best one",
                [a.seconds / b.seconds if a and b else None for a, b in zip(runs[three], runs[one])], most=1.05,
            )
            yield figure(
                "three sources: time over bound(k)",
                [run.seconds / run.bound_s if run else None for run in runs[three]], most=1.15,
            )
            if not peers:
                return
            best = [max((run.rate for run in runs_of if run), default=0) for runs_of in zip(*(runs[t] for t in peers))]
            yield figure(
                "rate over the best of aria2c and xrdcp",
                [run.rate / other if run and other else None for run, other in zip(runs[three], best)], least=1.2,
            )

        yield Race(self, "1 MB, the first file", self.size, tools, judge)
        yield Second(self, "1 MB, the second file", rounds)


class Second(Row):
    """The second file of a command: what a connection that is open is worth."""

    def __init__(self, scenario, name, rounds):
        super().__init__(scenario, name)
        self.rounds, self.size = rounds, OneMegabyte.size

    def measure(self, lab):
        shelf = self.bench.shelf
        shelf.need(self.size)
        names = [f"{self.size}-{number}" for number in (1, 2)]
        for name in names:
            path = shelf.export / name
            if not path.exists():
                path.write_bytes(shelf.file(self.size).read_bytes())
                path.chmod(0o644)
        lines, figures = [], []
        for kind in ("nginx", "serve"):
            entries = [entry(name, name, self.size, https(SITES, kind)) for name in names]
            place = shelf.write(f"two-{kind}.meta4", document(entries))
            command = [
                shelf.binary, "cp", str(place), f"{shelf.target}/", "--json", "--ca", shelf.authority, "--parallel", "1",
            ]
            tool = Tool(f"gridlane cp from {kind}", command, https(SITES, kind), self.rounds, keeps_events=True)
            runs, seconds = [], []
            for _ in range(self.rounds):
                shelf.remove_target()
                shelf.target.mkdir()
                run = lab.run(tool, 2 * self.size, keep=True)
                run.bound_s = 0.0
                done = [at for at, event in run.events if event["type"] == "file.done"]
                if run.failure or len(done) != 2:
                    self.fail(tool.name, run.failure or f"{len(done)} files done")
                    runs.append(None)
                    seconds.append(None)
                    continue
                runs.append(run)
                seconds.append(done[1] - done[0])
            path = lab.path(SITES[0])
            least = path.round_trip_s + self.size / path.payload_bytes_per_s
            lines.append(line(tool, runs, runs) | {"fraction": None})
            known = [value for value in seconds if value is not None]
            if known:
                lines[-1]["note"] = f"second file {1e3 * median(known):.0f} ms, round trip + size/rate {1e3 * least:.0f} ms"
            values = [value / least if value else None for value in seconds]
            figures.append(figure(f"from {kind}: time over round trip + size/rate", values, most=1.2))
        return {"name": self.name, "size": 2 * self.size, "lines": lines, "figures": figures}

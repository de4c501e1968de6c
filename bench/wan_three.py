"""Three sites that share nothing: a file over two protocols at once, and the second file of a command. What else is copied
from them is measured by the lab (lab/scenarios/own)."""

from statistics import median

from wan_lab import Place
from wan_report import size_name
from wan_rows import Race, Row, Scenario, extra, figure, fractions, line, variation
from wan_tools import Tool, document, entry, gridlane

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


class Mixed(Scenario):
    name, title = "mixed", "https from one site together with root:// from two"
    about = ("From nginx at the nearest over https together with xrootd at the others over root://.",)

    def place(self):
        return Place(self.name, THREE, SITES, ("nginx", "xrootd"))

    def rows(self):
        for size in self.bench.sizes(500, 1000, 2000):
            yield self.row(size)

    def row(self, size):
        sources = (("nginx", SITES[0]), *https(SITES[1:], "xrootd"))
        tool = gridlane(self.shelf, size, sources, self.rounds)
        each_second = size >= EVEN_BYTES

        def judge(lab, runs):
            yield fractions(f"of bound({len(sources)})", runs[tool], 0.97)
            if each_second:
                yield figure("variation of the rate per second", variation(runs[tool]), most=0.05, digits=3)
            yield extra(lab, tool, runs[tool])

        return Race(self, f"https and root://, {size_name(size)} from 3", size, [tool], judge, each_second=each_second)


class SecondFile(Scenario):
    name, title = "second", "1 MB: the second file of a command"
    about = (
        "The second file is of the same command, told by a metalink of two files and copied after the first (`--parallel 1`);",
        "its time is from the end of the first to its own. How long the first takes: lab/scenarios/own/wan-megabyte.toml.",
    )

    def place(self):
        return Place("megabyte", THREE, SITES, ("nginx", "serve"))

    def rows(self):
        yield Second(self, "1 MB, the second file", 3 if self.bench.quick else 15)


class Second(Row):
    """What a connection that is open is worth."""

    size = 1_000_000

    def __init__(self, scenario, name, rounds):
        super().__init__(scenario, name)
        self.rounds = rounds

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
        shelf.remove_target()
        return {"name": self.name, "size": 2 * self.size, "lines": lines, "figures": figures}

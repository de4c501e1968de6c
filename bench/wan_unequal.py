"""Sites that differ: three with a tenth of the rate between them, the slow one near and the slow one far; and five."""

from wan_lab import Place
from wan_report import size_name
from wan_rows import Race, Scenario, extra, fractions
from wan_three import https, star
from wan_tools import aria2, gridlane, xrdcp

SITES = ("near", "middle", "far")
RATES = dict(zip(SITES, ("80Mb/s", "400Mb/s", "800Mb/s")))

# Megabytes per second of the wire, and round trips in milliseconds.
FIVE = {"near": (200, 0.5), "middle": (100, 20), "far": (60, 50), "farther": (40, 100), "farthest": (20, 300)}


class Unequal(Scenario):
    sites = SITES
    targets = {1000: 0.95, 100: 0.85}
    round_trips_ms = rates = None

    def place(self):
        return Place(self.name, star(self.title + ".", self.rates, self.round_trips_ms), self.sites, ("nginx", "xrootd"))

    def rows(self):
        for megabytes, least in self.targets.items():
            yield self.row(self.bench.megabytes(megabytes), least)

    def row(self, size, least):
        sites = self.sites
        tools = [
            gridlane(self.shelf, size, https(sites), self.rounds),
            aria2(self.shelf, size, sites, self.few),
            aria2(self.shelf, size, sites, self.few, best=True),
            xrdcp(self.shelf, size, sites, self.few, pages=False),
        ]
        ours = tools[0]

        def judge(lab, runs):
            yield fractions(f"of bound({len(sites)})", runs[ours], least)
            yield extra(lab, ours, runs[ours])

        return Race(self, f"{size_name(size)}, {len(sites)} unequal sites, {self.name}", size, tools, judge)


class SlowIsNear(Unequal):
    name, title = "slow-near", "80/400/800 Mb/s at 5/50/150 ms"
    rates, round_trips_ms = RATES, dict(zip(SITES, (5, 50, 150)))


class SlowIsFar(Unequal):
    name, title = "slow-far", "80/400/800 Mb/s at 150/50/5 ms"
    rates, round_trips_ms = RATES, dict(zip(SITES, (150, 50, 5)))


class Five(Unequal):
    name, title = "five", "200/100/60/40/20 MB/s at 0.5/20/50/100/300 ms"
    sites = tuple(FIVE)
    rates = {site: f"{8 * rate}Mb/s" for site, (rate, _) in FIVE.items()}
    round_trips_ms = {site: round_trip for site, (_, round_trip) in FIVE.items()}
    targets = {2000: 0.92}


SCENARIOS = (SlowIsNear, SlowIsFar, Five)

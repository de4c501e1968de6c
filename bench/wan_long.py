"""One source far away: windows and losses limit one connection, and how many more help. The bound is of what one stream gets,
which is measured in the same row. Where nothing limits it: lab/scenarios/own/wan-far.toml."""

from gridlane_lab import bound
from wan_lab import EachSecond, Place
from wan_rows import Race, Row, Scenario, figure, fractions, line
from wan_three import LINK, https
from wan_tools import curl, gridlane

SITE = "far"
CONNECTIONS_MAX = 16

HEAD = """\
# One site far away.
sites = ["client", "far"]
seed = 1
buffers = "{buffers}"
congestion_control = "{control}"
"""


def scenario(round_trip_ms, buffers="bdp", control="bbr", loss=0.0, queue="bdp"):
    text = HEAD.format(buffers=buffers, control=control)
    text += LINK.format(site=SITE, rate="1Gb/s", delay_ms=round_trip_ms / 2)
    text += f'queue = "{queue}"\n'
    # Data is lost, not what acknowledges it.
    return text + (f"from.{SITE}.loss = {loss:g}\n" if loss else "")


def connections(runs):
    return figure("connections k", [run.connections[SITE] if run else None for run in runs], most=CONNECTIONS_MAX, digits=0)


class Limited(Scenario):
    """With something that limits one connection: the kernel's default buffers, or losses."""

    round_trip_ms, buffers, control, loss, megabytes = 0, "bdp", "bbr", 0.0, 500

    def place(self):
        text = scenario(self.round_trip_ms, self.buffers, self.control, self.loss)
        return Place(self.name, text, (SITE,))

    def rows(self):
        yield OfOneStream(self, self.title.removeprefix("One source, "), self.bench.megabytes(self.megabytes))


class OfOneStream(Row):
    """Beside what one stream gets: curl, for some seconds, without those in which it begins."""

    def __init__(self, scenario, name, size):
        super().__init__(scenario, name)
        self.size = size

    def measure(self, lab):
        shelf, scenario = self.bench.shelf, self.scenario
        shelf.need(self.size)
        long = 500 * 10**6
        shelf.need(long)
        lasts_s = 5 if self.bench.quick else 12
        theirs = curl(shelf, long, SITE, scenario.few, max_s=lasts_s)
        theirs.name, theirs.original = f"curl from nginx, at most {lasts_s} s", None
        ours = gridlane(shelf, self.size, https([SITE]), scenario.rounds)
        race = Race(scenario, self.name, self.size, [ours])
        runs, their_runs, streams = [], [], []
        for turn in range(scenario.rounds):
            if turn < scenario.few:
                seconds = EachSecond()
                look = race.look(lab, theirs)
                their_runs.append(lab.run(theirs, long, [seconds, look]))
                race.describe(lab, theirs, their_runs[-1], look.found)
                rates = seconds.rates()
                streams.append(stream_rate(rates, their_runs[-1]) / lab.overhead(SITE, 6))
                their_runs[-1].bytes = their_runs[-1].sent[SITE] / lab.overhead(SITE, 6)
            runs.append(race.one(lab, ours))
        stream = sum(streams) / len(streams)
        for run in filter(None, runs):
            run.bound_s = self.bound_s(lab, run, stream)
        link = lab.path(SITE, 6).payload_bytes_per_s
        return {
            "name": self.name,
            "size": self.size,
            "lines": [line(ours, runs, runs), line(theirs, their_runs, runs) | {"fraction": None, "ratio": None}],
            "figures": [
                fractions(f"of min(link, {CONNECTIONS_MAX} × one stream)", runs, 0.9),
                connections(runs),
                figure("one stream, after its start", [rate / 1e6 for rate in streams], unit=" MB/s", digits=1),
                figure("min(link, 16 × one stream)", [min(link, CONNECTIONS_MAX * stream) / 1e6], unit=" MB/s", digits=1),
            ],
        }

    def bound_s(self, lab, run, stream):
        """At the best rate that there is, behind the set-up and slow start of the connections that were opened."""
        path = lab.path(SITE, 6 if run.families == {6} else 4)
        rate = min(path.payload_bytes_per_s, CONNECTIONS_MAX * stream)
        limited = bound.Path(rate, path.round_trip_s, max(1, run.connections[SITE]))
        return bound.bound_s(self.size, [limited], bound.ROUND_TRIPS["https"])


def stream_rate(per_second, run):
    """Bytes of packets per second in the later two thirds of a run."""
    later = per_second[len(per_second) // 3 :]
    return sum(later) / len(later) if later else run.sent[SITE] / run.seconds


def limited(name, title, **figures):
    return type("Limited", (Limited,), {"name": name, "title": f"One source, 1 Gb/s, {title}", **figures})


BUFFERS = [
    limited(f"default-{ms}ms", f"{ms} ms, default buffers", round_trip_ms=ms, buffers="host") for ms in (26, 100, 300)
]
LOSSES = [
    limited(
        f"loss-{control}-{ms}ms-{loss:g}", f"{ms} ms, {control.upper()}, loss {loss:g}",
        round_trip_ms=ms, control=control, loss=loss, megabytes=200,
    )
    for control in ("cubic", "bbr")
    for ms in (26, 100, 300)
    for loss in (1e-5, 1e-4)
]
SCENARIOS = [*BUFFERS, *LOSSES]

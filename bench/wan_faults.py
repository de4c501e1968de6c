"""What goes wrong in the middle: a server that is killed, a path that falls silent or slow, a client that is killed."""

import os
import signal
import time
from math import inf

from wan_lab import Hook, Place, site_of
from wan_rows import Race, Scenario, figure, fractions, line
from wan_three import SITES, THREE, https
from wan_tools import aria2, gridlane, xrdcp

# The source that something happens to.
VICTIM = "near"
SLOW_SHARE = 0.05
# So long a peer may take; without a fault it takes 5 s.
PATIENCE_S, QUICK_PATIENCE_S = 40, 8

MIB = 1 << 20


class AtShare(Hook):
    """Does something when so much of the file has left the sites."""

    def __init__(self, lab, size, share, cause):
        self.size, self.share, self.cause = size, share, cause
        self.before = lab.sent(lab.network.show())
        self.due, self.at = 0.05, None

    def act(self, lab, elapsed_s):
        sent = lab.sent(lab.network.show())
        done = sum((sent[site] - self.before[site]) / lab.overhead(site) for site in sent)
        if done < self.share * self.size:
            left_s = elapsed_s * (self.share * self.size - done) / max(done, 1.0)
            self.due = elapsed_s + min(max(0.02, 0.7 * left_s), 0.5)
            return
        began = time.monotonic()
        self.cause(lab)
        self.at, self.due = elapsed_s + (time.monotonic() - began), inf


class Fault(Race):
    """A race in which every run meets the same fault."""

    share, reports = 0.5, True
    left_share = 0.0  # of the victim's rate

    def __init__(self, scenario, name, size):
        shelf, peers = scenario.shelf, 1
        limit_s = QUICK_PATIENCE_S if scenario.bench.quick else PATIENCE_S
        tools = [
            gridlane(shelf, size, https(SITES), scenario.rounds),
            aria2(shelf, size, SITES, peers, limit_s=limit_s),
            xrdcp(shelf, size, SITES, peers, limit_s=limit_s),
        ]
        super().__init__(scenario, name, size, tools, self.figures)

    def cause(self, lab, tool):
        raise NotImplementedError

    def repair(self, lab, tool):
        raise NotImplementedError

    def one(self, lab, tool):
        hook = AtShare(lab, self.size, self.share, lambda lab: self.cause(lab, tool))
        try:
            look = self.look(lab, tool)
            run = lab.run(tool, self.size, [hook, look])
        finally:
            if hook.at is not None:
                self.repair(lab, tool)
        run.fault_s = hook.at
        self.describe(lab, tool, run, look.found)
        if run.failure or hook.at is None:
            why = run.failure or "it was over before the fault"
            if tool is self.tools[0]:
                self.fail(tool.name, why)
            self.notes[tool] = why
            return None
        return run

    def line(self, lab, tool, runs):
        return super().line(lab, tool, runs) | ({"note": self.notes[tool]} if tool in self.notes else {})

    def changes(self, run, site):
        if run is None or site != VICTIM or run.fault_s is None:
            return {}
        return {"changes": ((run.fault_s, self.left_share * self.rate),)}

    def measure(self, lab):
        self.notes, self.rate = {}, lab.path(VICTIM).payload_bytes_per_s
        return super().measure(lab)

    def figures(self, lab, runs):
        ours = runs[self.tools[0]]
        yield fractions("of the causal bound", ours, 0.95)
        path = lab.path(VICTIM)
        values = [self.report_delay(run) if run else None for run in ours]
        most = 1 + 4 * path.round_trip_s
        if self.reports:
            yield figure("`source` event after the fault", values, most=most, unit=" s")
        else:
            yield figure("`source` event after the fault", values, unit=" s")
        values = [self.report_delay(run, "retry") if run else None for run in ours]
        yield figure("`retry` event after the fault", values, unit=" s")

    def report_delay(self, run, kind="source"):
        """Seconds from the fault to the first event of this type about the victim."""
        at, _ = run.first(kind, lambda event: site_of(event["url"]) == VICTIM, from_s=run.fault_s - 0.05)
        return at - run.fault_s if at < inf else inf


class Killed(Fault):
    def cause(self, lab, tool):
        self.server(lab, tool).kill()

    def repair(self, lab, tool):
        server = self.server(lab, tool)
        server.start()
        lab.wait_for(server)

    @staticmethod
    def server(lab, tool):
        kind = next(kind for kind, site in tool.sources if site == VICTIM)
        return lab.servers[kind][VICTIM]


class Silent(Fault):
    def cause(self, lab, tool):
        lab.network.set(lab.link_of(VICTIM), "--down")

    def repair(self, lab, tool):
        lab.network.set(lab.link_of(VICTIM), "--up")


class Slow(Fault):
    # Slow is not broken: nothing has to be said of it.
    share, left_share, reports = 0.8, SLOW_SHARE, False

    def cause(self, lab, tool):
        rate = SLOW_SHARE * lab.paths[VICTIM]["rate_bits_per_s"] / 1e6
        lab.network.set(lab.link_of(VICTIM), "--from", VICTIM, "--rate", f"{rate:g}Mb/s")

    def repair(self, lab, tool):
        lab.network.set(lab.link_of(VICTIM), "--restore")


class Faults(Scenario):
    name, title = "faults", "One of three sources fails, falls silent, becomes slow"
    about = (
        f"Three sites of 800 Mb/s as above; it happens to {VICTIM}. The bound is causal: of what each path offered until and",
        "after the fault, as if all clients had known at once. Peers run once, for at most "
        f"{PATIENCE_S} s.",
    )

    def place(self):
        return Place(self.name, THREE, SITES, ("nginx", "xrootd"))

    def rows(self):
        size = self.bench.megabytes(1000)
        yield Killed(self, "one killed at 50 %", size)
        yield Silent(self, "one silent at 50 %", size)
        yield Slow(self, "one down to 5 % of its rate at 80 %", size)


class Restart(Race):
    """The client is killed, and the same command is run again."""

    def __init__(self, scenario, name, size):
        super().__init__(scenario, name, size, [gridlane(scenario.shelf, size, https(SITES), scenario.rounds)])

    def measure(self, lab):
        self.bench.shelf.need(self.size)
        tool, = self.tools
        runs, again, kept = [], [], []
        for _ in range(tool.rounds):
            hook = AtShare(lab, self.size, 0.5, lambda lab: os.kill(lab.pid, signal.SIGKILL))
            first = lab.run(tool, self.size, [hook])
            second = lab.run(tool, self.size, keep=True)
            self.describe(lab, tool, second, {})
            if first.code != -signal.SIGKILL or second.failure:
                self.fail(tool.name, second.failure or "it was over before it was killed")
                runs.append(None)
                again.append(None)
                continue
            sent = sum((first.sent[site] + second.sent[site]) / lab.overhead(site, 6) for site in SITES)
            runs.append(second)
            again.append(max(0.0, sent / 1.005 - self.size) / MIB)
            kept.append(second.summary.get("resumed_bytes", 0) / MIB)
        # In flight: what the paths and their queues hold.
        flying = 2 * sum(path.payload_bytes_per_s * path.round_trip_s for path in map(lab.path, SITES)) / MIB
        return {
            "name": self.name,
            "size": self.size,
            "lines": [line(tool, runs, runs) | {"fraction": None}],
            "figures": [
                figure("fetched again, by the links' counters", again, most=64 + flying, unit=" MiB", digits=0),
                figure("kept of the first run", kept, unit=" MiB", digits=0),
            ],
        }


class Restarts(Scenario):
    name, title = "restart", "The client is killed at 50 % and started again"
    about = ("kill -9 when half of the file has left the sites; the line below is of the second run, which fetches the rest.",)

    def place(self):
        return Place(self.name, THREE, SITES)

    def rows(self):
        yield Restart(self, "kill -9 at 50 %, restart", self.bench.megabytes(1000))


SCENARIOS = (Faults, Restarts)

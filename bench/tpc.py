#!/usr/bin/env python3
"""Third-party copies that one initiator asks for one after the other or many at a time, and that a scenario of the lab cannot
express: a thousand small files between two servers on this machine, and the second file between two servers far apart
(bench/tpc_wan.py). Two gridlane servers beside two of Debian's xrootd. Everything else is in lab/scenarios/own/copies-*.toml.

Writes bench/results/tpc-DATE.json and docs/performance/tpc-many.md, which says what to know before reading.
"""

import shutil
import sys

from program import Arguments, Run, in_memory, is_chosen, no_such_row  # first: it makes the modules in scripts/ known
from pairs import Pairs, cpu_row, rate_row
from running import generate, make_old
from tpc_report import write_page
from tpc_runs import Failed, Runs
from tpc_servers import give_to_xrootd, gridlane_pair, local_identity, xrootd_pair
from tpc_wan import WideBench
from wan_report import size_name

IN_FLIGHT = 16
TARGET = 5.0
SMALL_BYTES, STEP_BYTES = 1_000_000, 4099
# What the second file over a wide area takes.
ROOM_BYTES = 1_000_000_000


def main():
    options = arguments()
    if options.list:
        for name in Bench(options, None).names():
            print(name)
        return 0
    # The files, and their copies.
    needed = ROOM_BYTES + 2 * options.files * SMALL_BYTES
    return in_memory(needed, lambda work: Bench(options, work).run())


def arguments():
    arguments = Arguments("bench-tpc", "Paired runs of third-party copies.", "2 pairs, a round of each scenario, few files")
    arguments.amount("pairs", 15, 2, "pairs of runs per row on loopback")
    arguments.amount("files", 1000, 100, f"files of {size_name(SMALL_BYTES)}")
    arguments.amount("rounds", 6, 1, "rounds of runs per scenario over a wide area")
    arguments.add_argument("--list", action="store_true", help="print which rows there are")
    arguments.page("tpc-many.md")
    options = arguments.parse()
    # The scenarios over wide areas ask for it.
    options.ours = False
    return options


class Bench:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.measured = Pairs(options.pairs, lambda: None)
        # No work: the names of its rows alone are wanted.
        self.wide = WideBench(options, work and work / "wide")

    @property
    def many(self):
        """The name of the row on loopback."""
        return f"{self.options.files} x {size_name(SMALL_BYTES)}, {IN_FLIGHT} COPYs in flight by curl, HTTPS"

    def names(self):
        local = [name for name in [self.many] if is_chosen(name, self.options)]
        return local + [f"{scenario.name}: {row.name}" for scenario, row in self.wide.chosen()]

    def run(self):
        if not self.names():
            sys.exit(no_such_row(self.options))
        run = Run("tpc", self.options)
        if is_chosen(self.many, self.options):
            self.measure_many()
        sections = self.wide.measure()
        rows = self.measured.rows
        judged = [
            {"name": f"{row['name']}: {figure['what']}", "passed": figure["passed"]}
            for section in sections for row in section["rows"] for figure in row["figures"]
        ]

        def page(path, facts, stolen):
            write_page(path, self.options.command, facts, rows, sections, self.wide.failures, stolen)

        return run.finish(rows, page, judged, sections=sections, failures=self.wide.failures)

    def measure_many(self):
        """Our pair of servers beside the other."""
        export, landing = self.work / "export", self.work / "landing"
        for directory in (export, landing):
            directory.mkdir()
        names = [f"small-{number:04}" for number in range(self.options.files)]
        block = self.work / "block"
        generate(block, SMALL_BYTES + STEP_BYTES * len(names))
        with open(block, "rb") as file:
            for number, name in enumerate(names):
                # No two are the same.
                file.seek(STEP_BYTES * number)
                (export / name).write_bytes(file.read(SMALL_BYTES))
                make_old(export / name)
        give_to_xrootd(export, landing, *export.iterdir())
        identity = local_identity(self.work)
        runs = Runs(self.work, export, landing, identity.authority)
        ours = gridlane_pair(self.options.gridlane, self.work, export, landing, identity)
        peer = xrootd_pair(self.work, export, landing, identity)
        print(f"{self.options.pairs} pairs per row")
        try:
            sides = self.measured.in_turns([runs.by_curl(pair, "https", names, IN_FLIGHT) for pair in (ours, peer)])
            self.measured.add(rate_row(self.many, "MB/s", TARGET, *sides))
            self.measured.add(cpu_row(f"{self.many}: CPU of both servers", "server_cpu_s", None, *sides))
        except Failed as failure:
            # The peer's failure is a result.
            whose, passed = ("", False) if failure.pair is ours else ("XRootD ", None)
            self.measured.without_figures(self.many, TARGET, f"{whose}failed: {failure}", passed)
        # Gives the memory back.
        for pair in (ours, peer):
            for server in pair.servers:
                server.process.terminate()
                server.process.wait()
        for directory in (export, landing):
            shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Paired runs of third-party copies: two gridlane servers beside two of Debian's xrootd, with the same initiator.

First on loopback, then over emulated wide areas (bench/tpc_wan.py). Writes bench/results/tpc-DATE.json and
docs/performance/tpc.md, which says what to know before reading.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from program import Arguments, Run, in_memory, is_chosen, no_such_row  # first: it makes the modules in scripts/ known
from pairs import Pairs, cpu_row, rate_row
from running import generate, make_old
from tpc_report import write_page
from tpc_runs import Failed, Runs
from tpc_servers import give_to_xrootd, gridlane_pair, local_identity, xrootd_pair
from tpc_wan import WideBench
from wan_report import size_name

AT_ONCE, IN_FLIGHT = 11, 16
# Of rows that move that many files of a GB.
AT_ONCE_PAIRS = 7
SMALL_BYTES = 1_000_000
ROOM_BYTES = 500_000_000


def main():
    options = arguments()
    if options.list:
        for name in Bench(options, None).names():
            print(name)
        return 0
    # The file, as many copies of it, and those that stand there while the next begin.
    files = 2 + AT_ONCE + 1
    needed = ROOM_BYTES + max(files * options.size, 2 * options.files * SMALL_BYTES + 2 * options.size)
    return in_memory(needed, lambda work: Bench(options, work).run(), "; see --size")


def arguments():
    arguments = Arguments("bench-tpc", "Paired runs of third-party copies.", "2 pairs, a round of each scenario, small files")
    arguments.amount("pairs", 15, 2, "pairs of runs per row on loopback")
    arguments.amount("size", 1_000_000_000, 50_000_000, "bytes of the file on loopback")
    arguments.amount("files", 1000, 100, f"files of {size_name(SMALL_BYTES)}")
    arguments.amount("rounds", 6, 1, "rounds of runs per scenario over a wide area")
    arguments.add_argument("--rows", dest="only", action="append", default=[], help="the same as --only")
    arguments.add_argument("--list", action="store_true", help="print which rows there are")
    arguments.add_argument(
        "--beside", metavar="RESULTS", help="results of a run with other rows: the page has those as well",
    )
    arguments.page("tpc.md")
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

    def names(self):
        local = [name for name, _ in self.rows() if is_chosen(name, self.options)]
        return local + [f"{scenario.name}: {row.name}" for scenario, row in self.wide.chosen()]

    def run(self):
        if not self.names():
            sys.exit(no_such_row(self.options))
        run = Run("tpc", self.options)
        rows = [(name, measure) for name, measure in self.rows() if is_chosen(name, self.options)]
        if rows:
            self.prepare()
            for name, measure in rows:
                measure(name)
            self.end()
        sections = self.wide.measure()
        rows = self.measured.rows
        command = self.options.command
        if self.options.beside:
            other = json.loads(Path(self.options.beside).read_text())
            rows, sections = other["rows"] + rows, other["sections"] + sections
            self.wide.failures.extend(other["failures"])
            command = f"{other['command']}\n{command}"
        judged = [
            {"name": f"{row['name']}: {figure['what']}", "passed": figure["passed"]}
            for section in sections for row in section["rows"] for figure in row["figures"]
        ]

        def page(path, facts, stolen):
            write_page(path, command, facts, rows, sections, self.wide.failures, stolen)

        return run.finish(rows, page, judged, sections=sections, failures=self.wide.failures, command=command)

    def prepare(self):
        export, landing = self.work / "export", self.work / "landing"
        for directory in (export, landing):
            directory.mkdir()
        file = export / "big"
        generate(file, self.options.size)
        make_old(file)
        # Names of the same bytes.
        self.big = [f"big-{number:02}" for number in range(AT_ONCE)]
        for name in self.big:
            os.link(file, export / name)
        self.small = [f"small-{number:04}" for number in range(self.options.files)]
        with open(file, "rb") as block:
            for number, name in enumerate(self.small):
                # From another place each, also where there are more files than places.
                block.seek(number * 4099 % max(1, self.options.size - SMALL_BYTES))
                (export / name).write_bytes(block.read(SMALL_BYTES))
                make_old(export / name)
        give_to_xrootd(export, landing, *export.iterdir())
        identity = local_identity(self.work)
        self.runs = Runs(self.options.gridlane, self.work, export, landing, identity.authority)
        self.ours = gridlane_pair(self.options.gridlane, self.work, export, landing, identity)
        self.peer = xrootd_pair(self.work, export, landing, identity)
        print(f"{self.options.pairs} pairs of {size_name(self.options.size)} per row")

    def end(self):
        """Gives the memory back."""
        for pair in (self.ours, self.peer):
            for server in pair.servers:
                server.process.terminate()
                server.process.wait()
        for name in ("export", "landing"):
            shutil.rmtree(self.work / name)

    # --- Rows ------------------------------------------------------------------------------------------

    def rows(self):
        """Names, and what measures each: called with the name."""
        size, small = size_name(self.options.size), size_name(SMALL_BYTES)
        yield f"HTTPS pull of {size}, 1 stream", self.one_stream
        yield f"HTTPS pull of {size}, 8 streams", self.streams
        for scheme, target in (("https", 1.5), ("http", 1.0)):
            yield f"{AT_ONCE} x {size} at once, {scheme.upper()}", self.at_once(scheme, target)
        yield f"{self.options.files} x {small}, {IN_FLIGHT} COPYs in flight by curl, HTTPS", self.many
        yield f"root:// TPC of {size}, xrdcp --tpc only", self.root_by_xrdcp
        yield f"root:// TPC of {size}, gridlane cp --tpc only", self.root_by_cp

    def beside(self, name, target, make, cpu=None, word="failed"):
        """Our pair of servers beside the other; `make` makes the work of a pair."""
        try:
            ours, peer = self.measured.in_turns([make(self.ours), make(self.peer)])
        except Failed as failure:
            self.not_measured(name, target, failure, word)
            return
        self.measured.add(rate_row(name, "MB/s", target, ours, peer))
        self.measured.add(cpu_row(f"{name}: CPU of both servers", "server_cpu_s", cpu, ours, peer))

    def not_measured(self, name, target, failure, word="failed"):
        whose = "" if failure.pair is self.ours else "XRootD "
        # The peer's failure is a result.
        passed = None if whose else False
        self.measured.without_figures(name, target, f"{whose}{word}: {failure}", passed)

    def one_stream(self, name):
        self.beside(name, 1.5, lambda pair: self.runs.pull(pair, "https", ["big"], streams=1), cpu=0.7)

    def streams(self, name):
        ours, peer = self.ours, self.peer
        self.of_streams(f"{name}, beside our own 1", 0.95, (ours, 8), (ours, 1))
        self.of_streams(f"{name}, beside XRootD's 8", None, (ours, 8), (peer, 8))
        self.of_streams(f"XRootD's {name}, beside its own 1", None, (peer, 8), (peer, 1))

    def of_streams(self, name, target, *sides):
        """Two ways of the same pull, each with its pair and its streams; and how many connections they open."""
        try:
            opened = [self.runs.connections(pair, "https", "big", streams) for pair, streams in sides]
            one, other = self.measured.in_turns([self.runs.pull(pair, "https", ["big"], streams) for pair, streams in sides])
        except Failed as failure:
            self.not_measured(name, target, failure)
            return
        note = f"connections that carried bytes: {opened[0]} and {opened[1]}"
        self.measured.add(rate_row(name, "MB/s", target, one, other) | {"note": note})

    def at_once(self, scheme, target):
        def measure(name):
            self.measured.pairs = min(AT_ONCE_PAIRS, self.options.pairs)
            self.beside(name, target, lambda pair: self.runs.pull(pair, scheme, self.big, in_flight=AT_ONCE))
            self.measured.pairs = self.options.pairs

        return measure

    def many(self, name):
        self.beside(name, 5.0, lambda pair: self.runs.by_curl(pair, "https", self.small, IN_FLIGHT))

    def root_by_xrdcp(self, name):
        self.beside(name, None, lambda pair: self.runs.xrdcp(pair, "big"), 0.6, "not available")

    def root_by_cp(self, name):
        self.beside(name, None, lambda pair: self.runs.cp(pair, "big"), 0.6, "not available")
        against = f"{name}, beside our HTTP pull"
        try:
            root, http = self.measured.in_turns([
                self.runs.cp(self.ours, "big"), self.runs.pull(self.ours, "http", ["big"]),
            ])
        except Failed as failure:
            self.not_measured(against, 0.9, failure, "not available")
            return
        self.measured.add(rate_row(against, "MB/s", 0.9, root, http))


if __name__ == "__main__":
    sys.exit(main())

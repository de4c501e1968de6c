#!/usr/bin/env python3
"""Two binaries of gridlane in turns: has a change of code, compiler or library cost speed?

    bench/binaries.py OLD NEW --load root_load
    bench/binaries.py OLD NEW --tables own --only http,small --pairs 41

The rows are those of the other benchmarks, without their peers: `loopback` and `root` have a server or a client of each binary
beside the programs of others, `wan` (as root, emulated wide areas: binaries_wan.py) the client. `own` has client and server of each binary
together. For each row the ratio of NEW to OLD is shown, as median with its 95 % interval: of time, and of CPU time of client and
server together. Above 1 NEW is slower. The exit code is 1 when a whole interval lies beyond --most (1.02).

Files lie in memory. Nothing else should run on the machine.
"""

import argparse
import dataclasses
import os
import shutil
import sys
from pathlib import Path
from statistics import median

from program import in_memory, is_chosen, no_such_row  # first: it makes the modules in scripts/ known
import binaries_wan
import loopback
import root
from processes import run_client
from running import Serve, make_old
from stats import summarize, without_order
from wan_lab import Lab, Shelf

LARGE_BYTES = 512 * 1024 * 1024
SMALL_FILES = 1000
SMALL_BYTES = 10_000
# Of the loopback and root:// tables.
FILE_BYTES, TREE_FILES, ENTRIES = 1_000_000_000, 10_000, 100_000


class Side:
    """One binary: its server, and its client."""

    def __init__(self, binary, work, name):
        self.binary, self.work = binary, work / name
        self.work.mkdir()
        self.server = Serve(binary, work / "export", self.work / "data", "--allow-write", "--durability", "none")

    def run(self, row):
        """Seconds, and CPU seconds of both, of one copy."""
        source, target = row(self)
        command = [self.binary, "cp", "--quiet", "--force", "--ca", self.server.authority]
        if source.endswith("/"):
            command.append("-r")
        sample = run_client([*command, source, target], 1, [self.server])
        if Path(target).is_dir():
            shutil.rmtree(target)
        return sample.seconds, sample.cpu_s


def get(scheme):
    return lambda side: (side.server.url("large", scheme), "/dev/null")


def put(scheme):
    return lambda side: (str(side.work.parent / "export" / "large"), side.server.url("uploaded", scheme))


def small(scheme):
    return lambda side: (side.server.url("small/", scheme), str(side.work / "small"))


OWN = {
    "http": get("http"),
    "https": get("https"),
    "root": get("root"),
    "put-http": put("http"),
    "put-https": put("https"),
    "put-root": put("root"),
    "small-http": small("http"),
    "small-https": small("https"),
    "small-root": small("root"),
}


# --- Works: each gives seconds and CPU seconds of both ends --------------------------------------------------


class Works:
    """Takes the place of what measures in a benchmark, and keeps the works of gridlane's side of each row, by its name and unit."""

    def __init__(self):
        self.found = {}

    def compare(self, name, unit, _target, ours, *_):
        self.found[name, unit] = ours

    def claims(self, name, unit, sides, _claims):
        self.found[name, unit] = next(iter(sides.values()))


def sampled(work):
    """Time and CPU time of a byte, or of whatever is counted."""

    def run():
        sample = work()
        return 1 / sample.rate, sample.cpu_s / sample.bytes

    return run


def in_both(bench, options, rows):
    """The works of the rows of a benchmark, by name: with the old binary, and with the new one."""
    found = []
    for binary in (options.old, options.new):
        bench.turn_to(str(binary))
        bench.measured = Works()
        rows(bench)
        found.append(bench.measured.found)
    old, new = found
    return {(name, unit): (sampled(old[name, unit]), sampled(work)) for (name, unit), work in new.items()}


def settings(options, **more):
    return argparse.Namespace(
        gridlane=str(options.new), load=str(options.load), quick=False, only=[], pairs=options.pairs, size=FILE_BYTES, **more,
    )


def loopback_works(options, work):
    bench = loopback.Bench(settings(options, files=TREE_FILES), work)
    bench.prepare()
    paired = [name for name in bench.ROWS if bench.ROWS[name] not in bench.WITHOUT_PEERS and is_chosen(f"loopback: {name}", options)]
    return in_both(bench, options, lambda bench: [bench.ROWS[name](bench, name) for name in paired])


def root_works(options, work):
    bench = root.Bench(settings(options, entries=ENTRIES), work)
    bench.prepare()
    return in_both(bench, options, lambda bench: [bench.measured.compare(*row) for row in bench.rows()])


def own_works(options, work):
    export = work / "export"
    (export / "small").mkdir(parents=True)
    block = os.urandom(1024 * 1024)
    with open(export / "large", "wb") as large:
        for _ in range(LARGE_BYTES // len(block)):
            large.write(block)
    for number in range(SMALL_FILES):
        (export / "small" / f"{number:05}").write_bytes(block[number : number + SMALL_BYTES])
    for served in export.rglob("*"):
        make_old(served)
    sides = [Side(str(binary), work, name) for name, binary in (("old", options.old), ("new", options.new))]
    return {(name, "s"): tuple(lambda side=side, row=row: side.run(row) for side in sides) for name, row in OWN.items()}


# --- Comparing -----------------------------------------------------------------------------------------------


class Table:
    """Rows as they are measured, and which of them are slower."""

    def __init__(self, options):
        self.options, self.slower, self.is_empty = options, [], True
        print("| row | old | new | time, new/old | CPU, new/old |\n| --- | ---: | ---: | --- | --- |", flush=True)

    def compare(self, name, unit, old, new):
        if not is_chosen(name, self.options):
            return
        self.is_empty = False
        works = (old, new)
        for work in works:
            work()  # not counted
        pairs = []
        for number in range(self.options.pairs):
            # The first may find the caches cold: they take turns in that as well.
            order = (0, 1) if number % 2 == 0 else (1, 0)
            found = {at: works[at]() for at in order}
            pairs.append((found[0], found[1]))
        # A byte takes less than a nanosecond.
        raw = [[max(new[measure], 1e-15) / max(old[measure], 1e-15) for old, new in pairs] for measure in (0, 1)]
        ratios = [summarize(without_order(each)) for each in raw]
        middle = [median(pair[at][0] for pair in pairs) for at in (0, 1)]
        values = [f"{value:.3g} s" if unit == "s" else f"{(1e-6 if unit == 'MB/s' else 1) / value:.4g} {unit}" for value in middle]
        is_slower = [ratio["low"] > self.options.most for ratio in ratios]
        told = [
            f"{'**' * worse}{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]{'**' * worse}"
            for ratio, worse in zip(ratios, is_slower)
        ]
        print(f"| {name} | {values[0]} | {values[1]} | {told[0]} | {told[1]} |", flush=True)
        if any(is_slower):
            self.slower.append(name)


def compare_wan(table, options, work):
    """Over one network after the other; the servers of gridlane are new ones for both."""
    shelf = Shelf(work, str(options.new), binaries_wan.HOSTS)
    for row in binaries_wan.rows(shelf):
        if not is_chosen(row.name, options):
            continue
        shelf.need(row.size)
        with Lab(shelf, row.place) as lab:
            for tool in row.tools:
                works = (wan_work(lab, row, tool, binary) for binary in (options.old, options.new))
                table.compare(f"{row.name}, {tool.name}", "s", *works)


def wan_work(lab, row, tool, binary):
    tool = dataclasses.replace(tool, command=[str(binary), *tool.command[1:]])

    def run():
        done = lab.run(tool, row.size)
        if done.failure:
            sys.exit(f"{binary}, {row.name}: {done.failure}")
        return done.seconds, done.cpu_s

    return run


TABLES = {"own": own_works, "loopback": loopback_works, "root": root_works, "wan": None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--load", type=Path, help="the program root_load, for the table root")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--most", type=float, default=1.02, help="of time and of CPU, that a whole interval may not lie beyond")
    parser.add_argument("--tables", default=",".join(TABLES), help="some of " + ", ".join(TABLES))
    parser.add_argument("--only", default="", help="rows whose name contains one of these, with commas between")
    options = parser.parse_args()
    options.only = list(filter(None, options.only.split(",")))
    for name in ("old", "new", "load"):
        setattr(options, name, (path := getattr(options, name)) and path.resolve())
    tables = options.tables.split(",")
    if unknown := [name for name in tables if name not in TABLES]:
        parser.error(f"no table is called {' or '.join(map(repr, unknown))}: there are {', '.join(TABLES)}")
    if "root" in tables and not options.load:
        parser.error("--load is missing: the program root_load (cargo build --release -p gridlane-xrd --example root_load)")
    table = Table(options)
    for name in tables:
        if code := in_memory(9_000_000_000, lambda work, name=name: measure(name, table, options, work)):
            sys.exit(code)
    if table.is_empty:
        sys.exit(no_such_row(options))
    if table.slower:
        sys.exit(f"slower: {', '.join(table.slower)}")


def measure(name, table, options, work):
    if name == "wan":
        return compare_wan(table, options, work)
    for (row, unit), works in TABLES[name](options, work).items():
        table.compare(f"{name}: {row}", unit, *works)


if __name__ == "__main__":
    main()

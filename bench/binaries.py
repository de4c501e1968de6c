#!/usr/bin/env python3
"""Two binaries of gridlane in turns, as client and server of each other's kind: has a change of compiler, profile or
library cost speed?

    bench/binaries.py OLD NEW --pairs 15
    bench/binaries.py OLD NEW --rows http,small-http --pairs 15

For each row the ratio of NEW to OLD is shown, as median with its 95 % interval: of time, and of CPU time of client and server
together. Above 1 NEW is slower. The exit code is 1 when a whole interval of time lies beyond --most (1.02).

Files lie in memory and are an hour old. Nothing else should run on the machine.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from running import Serve, clean_up, exit_on_signals, make_old  # noqa: E402
from stats import summarize  # noqa: E402

LARGE_BYTES = 512 * 1024 * 1024
SMALL_FILES = 1000
SMALL_BYTES = 10_000
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(pid):
    """CPU seconds of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


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
        before, began = cpu_of(self.server.process.pid), time.monotonic()
        client = subprocess.Popen(command + [source, target], stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(client.pid, 0)
        client.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        if client.returncode != 0:
            sys.exit(f"{' '.join(command)} {source} {target} failed with {client.returncode}")
        cpu_s = usage.ru_utime + usage.ru_stime + cpu_of(self.server.process.pid) - before
        if Path(target).is_dir() and target != "/dev/null":
            shutil.rmtree(target)
        return seconds, cpu_s


def get(scheme):
    return lambda side: (side.server.url("large", scheme), "/dev/null")


def put(scheme):
    return lambda side: (str(side.work.parent / "export" / "large"), side.server.url("uploaded", scheme))


def small(scheme):
    return lambda side: (side.server.url("small/", scheme), str(side.work / "small"))


ROWS = {
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--most", type=float, default=1.02, help="of time, that a whole interval may not lie beyond")
    parser.add_argument("--rows", default=",".join(ROWS), help="some of " + ", ".join(ROWS))
    options = parser.parse_args()
    rows = options.rows.split(",")
    if unknown := [name for name in rows if name not in ROWS]:
        parser.error(f"no row is called {' or '.join(map(repr, unknown))}: there are {', '.join(ROWS)}")
    exit_on_signals()
    work = Path(tempfile.mkdtemp(prefix="gridlane-binaries-", dir="/dev/shm"))
    try:
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
        sides = [Side(str(binary.resolve()), work, name) for name, binary in (("old", options.old), ("new", options.new))]
        print(f"{'row':<12} {'old s':>7} {'new s':>7}  {'time, new/old':<24} CPU, new/old")
        slower = []
        for name in rows:
            row = ROWS[name]
            for side in sides:
                side.run(row)  # not counted
            pairs = []
            for number in range(options.pairs):
                # Whoever is first may find the caches cold: they take turns in that as well.
                order = sides if number % 2 == 0 else sides[::-1]
                found = {side: side.run(row) for side in order}
                pairs.append([found[side] for side in sides])
            seconds = summarize([new[0] / old[0] for old, new in pairs])
            cpu = summarize([new[1] / old[1] for old, new in pairs])
            told = [f"{x['median']:.3f} [{x['low']:.3f}, {x['high']:.3f}]" for x in (seconds, cpu)]
            middle = [sorted(pair[at][0] for pair in pairs)[len(pairs) // 2] for at in (0, 1)]
            print(f"{name:<12} {middle[0]:>7.3f} {middle[1]:>7.3f}  {told[0]:<24} {told[1]}", flush=True)
            if seconds["low"] > options.most:
                slower.append(name)
        if slower:
            sys.exit(f"slower: {', '.join(slower)}")
    finally:
        clean_up(work)


if __name__ == "__main__":
    main()

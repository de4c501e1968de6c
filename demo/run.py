#!/usr/bin/env python3
"""Copies between real servers on this machine, with the faults that happen in practice, as a table.

Three `gridlane serve` with different --limit-rate hold the same files. Every result is compared with its
original by `cmp` or SHA-256, never by what gridlane says of itself. The exit code is 0 only when every copy
was right. Nothing is left running and no file is left, also after Ctrl-C.

bound is what the servers' limits allow: the size divided by the sum of their rates, over the time in which
they were there; fraction is what part of that was reached.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "scripts"))

from copying import Copy  # noqa: E402
from liar import Liar  # noqa: E402
from running import Serve, clean_up, exit_on_signals, generate  # noqa: E402

RATES = [80_000_000, 50_000_000, 30_000_000]  # bytes per second of the three servers
BIG = "big.dat"
WIDTHS = (32, 8, 6, 7, 10, 10)
COLUMNS = 98


def main():
    options = arguments()
    exit_on_signals()
    place = workplace(options.size)
    work = Path(tempfile.mkdtemp(prefix="gridlane-demo-", dir=place))
    try:
        return Demo(options.gridlane, work, options.size).run()
    except KeyboardInterrupt:
        print("\ninterrupted")
        return 130
    finally:
        clean_up(work)


def arguments():
    parser = argparse.ArgumentParser(description="Copies between real servers on this machine, as a table.")
    parser.add_argument("--gridlane", required=True, help="the binary")
    parser.add_argument("--size", type=int, default=1_000_000_000, help="bytes of the big file (default: 1 GB)")
    options = parser.parse_args()
    options.gridlane = str(Path(options.gridlane).resolve())
    return options


def workplace(size):
    """Memory when it has room for the file, a damaged one and a copy; else the disk."""
    needed = 3 * size + 200_000_000
    for place in ("/dev/shm", tempfile.gettempdir()):
        room = shutil.disk_usage(place).free if os.path.isdir(place) else 0
        if place == "/dev/shm":
            room = min(room, memory_available())
        if room > needed:
            return place
    sys.exit(f"the demo needs {needed / 1e9:.1f} GB in /dev/shm or {tempfile.gettempdir()}; see --size")


def memory_available():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


class Demo:
    def __init__(self, gridlane, work, size):
        self.gridlane = gridlane
        self.work = work
        self.size = size
        self.servers = []
        self.all_right = True

    def run(self):
        began = time.monotonic()
        self.prepare()
        row("case", "seconds", "MB/s", "bound", "fraction", "compared", "note")
        print("-" * COLUMNS)
        self.real_files()
        self.from_one()
        self.from_three()
        self.from_three("http+https, three replicas", ["https", "http", "https"])
        self.from_three("root+https, three replicas", ["root", "https", "root"])
        self.one_killed()
        self.one_damaged()
        self.one_lies()
        self.killed_and_resumed()
        self.stop_servers()
        print("-" * COLUMNS)
        verdict = "every copy is right" if self.all_right else "SOME COPIES ARE WRONG"
        print(f"{verdict}; {time.monotonic() - began:.0f} s in all")
        return 0 if self.all_right else 1

    # --- Preparation ---------------------------------------------------------------------------------

    def prepare(self):
        where = "memory" if str(self.work).startswith("/dev/shm") else self.work
        print(f"Making {self.size / 1e9:g} GB in {where}; three servers limited to", end=" ", flush=True)
        print(" + ".join(f"{rate // 10**6}" for rate in RATES), "MB/s")
        self.original = self.work / "original"
        self.original.mkdir()
        generate(self.original / BIG, self.size)
        for source in sorted((HERE / "data").iterdir()):
            shutil.copy(source, self.original)
        # Replicas share the bytes on disk; the servers do not know.
        self.sites = []
        for number in range(len(RATES)):
            site = self.work / f"site-{number + 1}"
            shutil.copytree(self.original, site, copy_function=os.link)
            self.sites.append(site)
        # The same size, other bytes.
        self.damaged = self.work / "damaged"
        self.damaged.mkdir()
        shutil.copy(self.original / BIG, self.damaged)
        with open(self.damaged / BIG, "r+b") as file:
            file.seek(self.size * 2 // 3)
            file.write(b"damaged")
        self.start_servers()

    def start_servers(self, sites=None):
        self.stop_servers()
        for site, rate in zip(sites or self.sites, RATES):
            home = self.work / f"home-{len(self.servers)}"
            self.servers.append(Serve(self.gridlane, site, home, "--limit-rate", str(rate)))

    def stop_servers(self):
        for server in self.servers:
            server.kill()
        self.servers = []

    def authorities(self):
        return [word for server in self.servers for word in ("--ca", server.authority)]

    # --- The cases -----------------------------------------------------------------------------------

    def real_files(self):
        names = [line.split() for line in (self.original / "SHA256SUMS").read_text().splitlines()]
        seconds, total, right, problem = 0.0, 0, True, ""
        for digest, name in names:
            target = self.work / name
            copy = Copy(self.gridlane, [server.url(name) for server in self.servers], target)
            seconds += copy.wait()
            if target.exists():
                total += target.stat().st_size
                right &= hashlib.sha256(target.read_bytes()).hexdigest() == digest
                target.unlink()
            else:
                right, problem = False, copy.error()
        self.report(f"{len(names)} real files, three replicas", seconds, total, None, right, problem or "one after the other")

    def from_one(self):
        copy = Copy(self.gridlane, [self.servers[0].url(BIG)], self.work / "copy")
        self.finish("one replica", copy, self.size / RATES[0])

    def from_three(self, case="three replicas", schemes=("http", "http", "http")):
        urls = [server.url(BIG, scheme) for server, scheme in zip(self.servers, schemes)]
        copy = Copy(self.gridlane, urls, self.work / "copy", *self.authorities())
        self.finish(case, copy, self.size / sum(RATES))

    def one_killed(self):
        copy = Copy(self.gridlane, [server.url(BIG) for server in self.servers], self.work / "copy")
        after = copy.wait_for_bytes(self.size // 2)
        self.servers[0].kill()
        left = max(0.0, self.size - after * sum(RATES))
        bound = after + left / sum(RATES[1:])
        self.finish("fastest server killed half-way", copy, bound, f"killed after {after:.1f} s")
        self.start_servers()

    def one_damaged(self):
        self.start_servers([*self.sites[:2], self.damaged])
        urls = [server.url(BIG) for server in self.servers]
        copy = Copy(self.gridlane, urls, self.work / "copy")
        self.finish("one replica is damaged", copy, self.size / sum(RATES[:2]), blamed=urls[2])
        self.start_servers()

    def one_lies(self):
        asked = subprocess.run(
            [self.gridlane, "checksum", "--type", "adler32", self.servers[0].url(BIG)],
            capture_output=True, text=True, check=True,
        )
        adler32 = asked.stdout.split()[0].partition(":")[2]
        liar = Liar(self.original / BIG, adler32, RATES[2])
        urls = [self.servers[0].url(BIG), self.servers[1].url(BIG), liar.url]
        copy = Copy(self.gridlane, urls, self.work / "copy")
        self.finish("one replica lies", copy, self.size / sum(RATES[:2]), blamed=liar.url)
        liar.stop()

    def killed_and_resumed(self):
        urls = [server.url(BIG) for server in self.servers]
        target = self.work / "copy"
        first = Copy(self.gridlane, urls, target)
        spent = first.wait_for_bytes(self.size // 2)
        first.kill()
        second = Copy(self.gridlane, urls, target)
        bound = self.size / sum(RATES)
        self.finish("client killed half-way, resumed", second, bound, spent=spent)

    # --- Judging -------------------------------------------------------------------------------------

    def finish(self, case, copy, bound, note="", blamed=None, spent=0.0):
        """Waits for a copy of the big file, compares it with the original, and reports."""
        seconds = spent + copy.wait()
        target = self.work / "copy"
        right = copy.process.returncode == 0 and same(target, self.original / BIG)
        notes = [note] if note else []
        if not right:
            notes = [copy.error()]
        summary = copy.summary or {}
        if right and summary.get("verification") != "verified":
            right = False
            notes.append(f"but gridlane says {summary.get('verification')}")
        if blamed:
            named = any(is_blamed(source) for source in summary.get("sources", []) if source["url"] == blamed)
            right &= named
            notes.append(f"named: {short(blamed)}" if named else "NOT named")
        if spent:
            kept = summary.get("resumed_bytes") or 0
            right &= kept > 0
            notes.append(f"{kept / 1e6:.0f} MB kept")
        self.report(case, seconds, self.size, bound, right, "; ".join(notes))
        target.unlink(missing_ok=True)

    def report(self, case, seconds, count, bound, right, note):
        self.all_right &= right
        limit = f"{count / bound / 1e6:.0f}" if bound else "-"
        fraction = f"{bound / seconds:.2f}" if bound else "-"
        rate = f"{count / seconds / 1e6:.0f}" if seconds else "-"
        time_s = f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2f}"
        row(case, time_s, rate, limit, fraction, "same" if right else "WRONG", note)


def row(*cells):
    first, *numbers, note = cells
    line = first.ljust(WIDTHS[0]) + "".join(cell.rjust(width) for cell, width in zip(numbers, WIDTHS[1:]))
    print(f"{line}  {note}".rstrip(), flush=True)


def is_blamed(source):
    """Whether the summary says that this source has wrong bytes, not merely that it had trouble."""
    return source["error"] is not None and source["error"]["class"] == "checksum_mismatch"


def short(url):
    return url.removeprefix("http://").partition("/")[0]


def same(found, expected):
    """An independent comparison."""
    return found.exists() and subprocess.run(["cmp", "-s", str(found), str(expected)], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Paired runs with uploads of small files, listings and many ranges, against rclone, nginx and Apache. How trees are
read is in bench/loopback.py.

Writes bench/results/trees-DATE.json and docs/performance/trees.md.
"""

import argparse
import shutil
import sys
import tempfile
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

from pairs import Pairs, stolen_and_all  # noqa: E402
from processes import Apache, Nginx, client_peak_kib, peak_kib, run_client  # noqa: E402
from report import Page, machine, write_json, write_page  # noqa: E402
from running import Serve, clean_up, exit_on_signals, generate  # noqa: E402
from small_files import FILES_PER_DIRECTORY, SmallFiles  # noqa: E402

RANGES = 256
RANGE_REQUESTS = 200


def main():
    options = arguments()
    exit_on_signals()
    needed = 1_500_000_000
    if shutil.disk_usage("/dev/shm").free < needed:
        sys.exit(f"the benchmarks need {needed / 1e9:.1f} GB free in /dev/shm")
    work = Path(tempfile.mkdtemp(prefix="gridlane-bench-", dir="/dev/shm"))
    work.chmod(0o755)
    try:
        return Bench(options, work).run()
    except KeyboardInterrupt:
        print("\ninterrupted")
        return 130
    finally:
        clean_up(work)


def arguments():
    parser = argparse.ArgumentParser(description="Paired runs with trees of small files.")
    parser.add_argument("--gridlane", required=True, help="the binary")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of runs per row (default: 7)")
    parser.add_argument("--bytes", type=int, default=100_000, help="bytes of each (default: 100000)")
    parser.add_argument("--entries", type=int, default=1_000_000, help="entries of the directory that is listed")
    parser.add_argument("--quick", action="store_true", help="3 pairs, 20000 entries: shows that it works")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--page", default=str(ROOT / "docs/performance/trees.md"), help="the page to write")
    options = parser.parse_args()
    options.gridlane = str(Path(options.gridlane).resolve())
    if options.quick:
        options.pairs, options.entries = 3, 20_000
    return options


class Bench:
    def __init__(self, options, work):
        self.options = options
        self.binary = options.gridlane
        self.work = work
        self.export = work / "export"
        self.target = work / "target"
        self.measured = Pairs(options.pairs, self.check)

    def run(self):
        began = stolen_and_all()
        self.prepare()
        for name, unit, target, ours, peer in [*self.tree_rows(), *self.range_rows(), *self.listing_rows()]:
            if self.options.only in name:
                self.measured.compare(name, unit, target, ours, peer)
        memory = self.memory() if self.options.only in "memory" else []
        stolen, total = (after - before for before, after in zip(began, stolen_and_all()))
        facts = machine()
        rows = self.measured.rows
        results = ROOT / "bench/results" / f"trees-{datetime.now():%Y%m%dT%H%M%S}.json"
        write_json(results, facts, rows)
        print(f"wrote {results.relative_to(ROOT)}")
        if self.options.quick or self.options.only:
            print("no page written: it takes a full run")
            return 0
        caveats = [
            f"{FILES_PER_DIRECTORY} files of {self.options.bytes / 1e3:g} kB in a directory in tmpfs; targets are in tmpfs too and removed "
            "before\n  every run. The tree of every row's first run is compared with the original.",
            "rclone has 8 transfers and 16 checkers, `gridlane cp -r` its defaults. rclone's `webdav` back end asks before and\n  after "
            "every file.",
            "`gridlane serve` computes adler32 of every upload. rclone computes nothing.",
        ]
        page = Page("Uploads of trees, listings, many ranges: figures", "bench/trees.py", "make bench-trees", caveats, memory)
        write_page(Path(self.options.page), page, facts, rows, 100 * stolen / max(total, 1))
        print(f"wrote {self.options.page}")
        return 0

    def prepare(self):
        (self.export / "put").mkdir(parents=True)
        (self.export / "put").chmod(0o777)
        # One directory only: rclone asks three times for every file, and waits between.
        self.small = SmallFiles(self.binary, self.work, self.export, FILES_PER_DIRECTORY, self.options.bytes)
        generate(self.export / "big", 100_000_000)
        many = self.export / "many"
        many.mkdir()
        for number in range(self.options.entries):
            (many / f"file-{number:07}").touch()
        home = self.work / "home"
        self.serve = Serve(self.binary, self.export, home, "--allow-write")
        key = home / "gridlane" / "key.pem"
        self.nginx = Nginx(self.export, self.work / "nginx", self.serve.authority, key)
        self.apache = Apache(self.export, self.work / "apache")
        self.small.trust(self.serve.authority)
        print(f"{self.options.pairs} pairs per row, {FILES_PER_DIRECTORY} files of {self.options.bytes} bytes")

    # --- Rows ------------------------------------------------------------------------------------------

    def tree_rows(self):
        up, tree = self.export / "put/000", self.small.tree / "000"
        for scheme in ("http", "https"):
            url = self.serve.url("put/000", scheme)
            yield (
                f"cp -r up vs rclone webdav: {FILES_PER_DIRECTORY} files, {scheme} to gridlane serve",
                "MB/s", None,
                self.small.work_of(self.small.cp(tree, url), self.serve, up, tree),
                self.small.work_of(self.small.rclone("webdav", url, tree, up=True), self.serve, up, tree),
            )

    def range_rows(self):
        size = 100_000_000
        ranges = ",".join(f"{n * (size // RANGES)}-{n * (size // RANGES) + 999}" for n in range(RANGES))
        for scheme in ("http", "https"):
            yield (
                f"serve vs nginx: {RANGE_REQUESTS} x {RANGES} ranges of 1 kB, {scheme}",
                "requests/s", None,
                *(
                    self.work_of(
                        self.curl("-r", ranges, f"{server.url('big', scheme)}?[1-{RANGE_REQUESTS}]", "-o", "/dev/null"),
                        server, RANGE_REQUESTS,
                    )
                    for server in (self.serve, self.nginx)
                ),
            )

    def listing_rows(self):
        entries = self.options.entries
        propfind = ["-X", "PROPFIND", "-H", "Depth: 1", "-o", "/dev/null"]
        yield (
            f"serve vs Apache: PROPFIND of {entries} entries",
            "entries/s", None,
            *(
                self.work_of(self.curl(*propfind, server.url("many/")), server, entries)
                for server in (self.serve, self.apache)
            ),
        )

    def memory(self):
        """What the largest listing costs on both sides."""
        home = self.work / "home"
        rows = ["", "## Memory", "", "| work | peak of the client | peak of the server |", "| --- | ---: | ---: |"]
        for name, words in (
            ("ls", ["ls", "--json"]),
            ("cp -r --dry-run", ["cp", "-r", "--dry-run", "--json"]),
        ):
            serve = Serve(self.binary, self.export, home)
            target = [] if words[0] == "ls" else [str(self.target)]
            client = client_peak_kib([self.binary, *words, serve.url("many/"), *target])
            server = peak_kib(serve)
            rows.append(f"| `gridlane {name}` of {self.options.entries} entries | {client / 1024:.0f} MiB | {server / 1024:.0f} MiB |")
            print(rows[-1])
            serve.kill()
        return rows

    # --- Commands --------------------------------------------------------------------------------------

    def curl(self, *words):
        return ["curl", "--silent", "--show-error", "--fail", "--cacert", self.serve.authority, *words]

    def work_of(self, command, server, count):
        def run():
            self.small.clear()
            return run_client(command, count, [server])

        return run

    def check(self):
        self.small.check()


if __name__ == "__main__":
    sys.exit(main())

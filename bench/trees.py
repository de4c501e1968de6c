#!/usr/bin/env python3
"""Paired runs with many small files, listings and many ranges, against rclone, aria2c, nginx and Apache.

Writes bench/results/trees-DATE.json and docs/performance/trees.md.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

from pairs import Pairs, stolen_and_all  # noqa: E402
from processes import Apache, Nginx, peak_kib, run_client  # noqa: E402
from report import Page, machine, write_json, write_page  # noqa: E402
from running import Serve, clean_up, exit_on_signals, generate  # noqa: E402

FILES_PER_DIRECTORY = 500
RANGES = 256
RANGE_REQUESTS = 200


def main():
    options = arguments()
    exit_on_signals()
    needed = 4 * options.files * options.bytes + 200_000_000
    if shutil.disk_usage("/dev/shm").free < needed:
        sys.exit(f"the benchmarks need {needed / 1e9:.1f} GB free in /dev/shm; see --files and --bytes")
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
    parser.add_argument("--files", type=int, default=10_000, help="files of the tree (default: 10000)")
    parser.add_argument("--bytes", type=int, default=100_000, help="bytes of each (default: 100000)")
    parser.add_argument("--entries", type=int, default=1_000_000, help="entries of the directory that is listed")
    parser.add_argument("--quick", action="store_true", help="3 pairs, 500 files, 20000 entries: shows that it works")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--page", default=str(ROOT / "docs/performance/trees.md"), help="the page to write")
    options = parser.parse_args()
    options.gridlane = str(Path(options.gridlane).resolve())
    if options.quick:
        options.pairs, options.files, options.entries = 3, 500, 20_000
    return options


class Bench:
    def __init__(self, options, work):
        self.options = options
        self.binary = options.gridlane
        self.work = work
        self.export = work / "export"
        self.target = work / "target"
        self.measured = Pairs(options.pairs, self.check)
        self.written = None

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
            f"{self.options.files} files of {self.options.bytes / 1e3:g} kB in directories of {FILES_PER_DIRECTORY}, in tmpfs; targets are "
            "in tmpfs\n  too and removed before every run. Every run's tree is compared with the original once per row.",
            "rclone has 8 transfers and 16 checkers, aria2c 16 downloads from a list (it lists nothing by itself), "
            "`gridlane cp -r`\n  its defaults. rclone's `http` back end reads pages of links, its `webdav` back end PROPFIND.",
            "`gridlane cp` compares adler32 of every file when the server states one; `gridlane serve` computes adler32 of "
            "every\n  upload. The others compute nothing over http.",
        ]
        page = Page("Trees, listings, many ranges: figures", "bench/trees.py", "make bench-trees", caveats)
        write_page(Path(self.options.page), page, facts, rows, 100 * stolen / max(total, 1))
        if memory:
            with open(self.options.page, "a", encoding="utf-8") as file:
                file.write("\n".join(memory) + "\n")
        print(f"wrote {self.options.page}")
        return 0

    def prepare(self):
        (self.export / "put").mkdir(parents=True)
        (self.export / "put").chmod(0o777)
        block = self.work / "block"
        generate(block, self.options.bytes + self.options.files)
        data = block.read_bytes()
        self.list = self.work / "list"
        with open(self.list, "w", encoding="utf-8") as names:
            for number in range(self.options.files):
                name = f"{number // FILES_PER_DIRECTORY:03}/{number:06}"
                path = self.export / "tree" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data[number:number + self.options.bytes])
                names.write(f"{name}\n")
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
        print(f"{self.options.pairs} pairs per row, {self.options.files} files of {self.options.bytes} bytes")

    # --- Rows ------------------------------------------------------------------------------------------

    def tree_rows(self):
        down, up = self.target / "tree", self.export / "put/000"
        for server, schemes in ((self.nginx, ("http", "https")), (self.serve, ("http", "https"))):
            for scheme in schemes:
                ours = self.tree_work(self.cp(server.url("tree/", scheme), down), server, down)
                yield (
                    f"cp -r vs rclone http: {scheme} from {server.name}",
                    "MB/s", None, ours,
                    self.tree_work(self.rclone("http", server.url("tree", scheme), str(down), up=False), server, down),
                )
                yield (
                    f"cp -r vs aria2c -i -j16: {scheme} from {server.name}",
                    "MB/s", None, ours,
                    self.tree_work(self.aria2(server.url("tree", scheme), down), server, down),
                )
        # One directory only: rclone asks three times for every file, and waits between.
        tree = self.export / "tree/000"
        for scheme in ("http", "https"):
            url = self.serve.url("put/000", scheme)
            yield (
                f"cp -r up vs rclone webdav: {FILES_PER_DIRECTORY} files, {scheme} to gridlane serve",
                "MB/s", None,
                self.tree_work(self.cp(tree, url), self.serve, up, tree),
                self.tree_work(self.rclone("webdav", url, str(tree), up=True), self.serve, up, tree),
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
            command = ["/usr/bin/env", "python3", "-c", PEAK, self.binary, *words, serve.url("many/"), *target]
            client = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            server = peak_kib(serve)
            rows.append(f"| `gridlane {name}` of {self.options.entries} entries | {client / 1024:.0f} MiB | {server / 1024:.0f} MiB |")
            print(rows[-1])
            serve.kill()
        return rows

    # --- Commands --------------------------------------------------------------------------------------

    def cp(self, source, target):
        return [self.binary, "cp", "-r", str(source), str(target), "--quiet", "--ca", self.serve.authority]

    def rclone(self, kind, url, other, up):
        # Its WebDAV back end makes directories below its root only.
        above, _, name = url.rpartition("/")
        remote = f":{kind},url='{above}/',vendor=other:{name}" if kind == "webdav" else f":{kind},url='{url}/':"
        ends = [other, remote] if up else [remote, other]
        return ["rclone", "--config", "/dev/null", "--ca-cert", self.serve.authority, "--transfers", "8", "--checkers", "16", "copy", *ends]

    def aria2(self, url, target):
        listing = self.work / f"list-{abs(hash(url))}"
        names = self.list.read_text().split()
        listing.write_text("".join(f"{url}/{name}\n  out={name}\n" for name in names))
        return [
            "aria2c", "--no-conf", "--quiet", "--file-allocation=none", "--allow-overwrite=true", "-j16",
            f"--ca-certificate={self.serve.authority}", f"--dir={target}", "-i", str(listing),
        ]

    def curl(self, *words):
        return ["curl", "--silent", "--show-error", "--fail", "--cacert", self.serve.authority, *words]

    def tree_work(self, command, server, written, original=None):
        original = original or self.export / "tree"
        total = self.options.bytes * sum(path.is_file() for path in original.rglob("*"))

        def run():
            shutil.rmtree(written, ignore_errors=True)
            self.target.mkdir(exist_ok=True)
            self.written = (original, written)
            return run_client(command, total, [server])

        return run

    def work_of(self, command, server, count):
        def run():
            self.written = None
            return run_client(command, count, [server])

        return run

    def check(self):
        if self.written is None:
            return
        if subprocess.run(["diff", "-rq", *map(str, self.written)], check=False).returncode:
            sys.exit(f"{self.written[1]} is not what was sent")


# Prints the peak of what it runs, in KiB.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


if __name__ == "__main__":
    sys.exit(main())

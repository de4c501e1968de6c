#!/usr/bin/env python3
"""Paired runs with uploads of small files, listings and many ranges, against rclone, nginx and Apache. How trees are
read is in bench/loopback.py.

Writes bench/results/trees-DATE.json and docs/performance/trees.md.
"""

import sys

from program import Arguments, Run, in_memory, is_chosen, no_such_row  # first: it makes the modules in scripts/ known
from pairs import Pairs
from processes import Apache, Nginx, client_peak_kib, peak_kib, run_client
from report import Page, write_page
from running import Serve, generate, make_old
from small_files import FILES_PER_DIRECTORY, SmallFiles

RANGES = 256
RANGE_REQUESTS = 200
ROOM_BYTES = 1_500_000_000


def main():
    options = arguments()
    return in_memory(ROOM_BYTES, lambda work: Bench(options, work).run())


def arguments():
    arguments = Arguments("bench-trees", "Paired runs with trees of small files.", "3 pairs, 20000 entries")
    arguments.amount("pairs", 7, 3, "pairs of runs per row")
    arguments.amount("bytes", 100_000, 100_000, "bytes of each file")
    arguments.amount("entries", 1_000_000, 20_000, "entries of the directory that is listed")
    arguments.page("trees.md")
    return arguments.parse()


class Bench:
    def __init__(self, options, work):
        self.options = options
        self.binary = options.gridlane
        self.work = work
        self.export = work / "export"
        self.target = work / "target"
        self.measured = Pairs(options.pairs, self.check)

    def run(self):
        run = Run("trees", self.options)
        self.prepare()
        for name, unit, target, ours, peer in [*self.tree_rows(), *self.range_rows(), *self.listing_rows()]:
            if is_chosen(name, self.options):
                self.measured.compare(name, unit, target, ours, peer)
        memory = self.memory() if is_chosen("memory", self.options) else []
        rows = self.measured.rows
        if not (rows or memory):
            sys.exit(no_such_row(self.options))
        caveats = [
            f"{FILES_PER_DIRECTORY} files of {self.options.bytes / 1e3:g} kB in a directory in tmpfs; targets are in tmpfs too and removed "
            "before\n  every run. The tree of every row's first run is compared with the original.",
            "rclone has 8 transfers and 16 checkers, `gridlane cp -r` its defaults. rclone's `webdav` back end asks before and\n  after "
            "every file.",
            "`gridlane serve` computes adler32 of every upload. rclone computes nothing.",
        ]
        title = "Uploads of trees, listings, many ranges: figures"
        page = Page(title, "bench/trees.py", self.options.command, caveats, memory)
        return run.finish(rows, lambda path, facts, stolen: write_page(path, page, facts, rows, stolen))

    def prepare(self):
        (self.export / "put").mkdir(parents=True)
        (self.export / "put").chmod(0o777)
        # One directory only: rclone asks three times for every file, and waits between.
        self.small = SmallFiles(self.binary, self.work, self.export, FILES_PER_DIRECTORY, self.options.bytes)
        generate(self.export / "big", 100_000_000)
        make_old(self.export / "big")
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

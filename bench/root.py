#!/usr/bin/env python3
"""Paired runs over root:// against Debian's xrootd and xrdcp on this machine.

Writes bench/results/root-DATE.json and docs/performance/root.md, which says what to know before reading.
"""

import os
import shutil
import subprocess
import sys

from program import Arguments, Run, in_memory, is_chosen, no_such_row  # first: it makes the modules in scripts/ known
from pairs import Pairs, must_be_same
from processes import Xrootd, run_client
from report import Page, write_page
from running import Serve, generate

# Requests of one run of `root_load`.
READS, CLIENTS, RANDOM, VECTORS, STATS = 20_000, 64, 30, 1000, 100_000
# Makes xrdcp ask for bytes without page checksums.
NO_PAGES = ["env", "XRD_CPUSEPGWRTRD=0"]
# The same for gridlane.
NO_PAGES_OURS = ["env", "GRIDLANE_ROOT_PAGES=0"]


def main():
    options = arguments()
    return in_memory(3 * options.size + 200_000_000, lambda work: Bench(options, work).run(), "; see --size")


def arguments():
    arguments = Arguments("bench-root", "Paired runs over root://.", "3 pairs and 200 MB", load="root_load")
    arguments.amount("pairs", 15, 3, "pairs of runs per row")
    arguments.amount("size", 1_000_000_000, 200_000_000, "bytes of the file")
    arguments.amount("entries", 100_000, 10_000, "entries of the directory that is listed")
    arguments.page("root.md")
    return arguments.parse()


class Bench:
    def __init__(self, options, work):
        self.options = options
        self.binary = options.gridlane
        self.size = options.size
        self.work = work
        self.export = work / "export"
        self.target = work / "target"
        self.measured = Pairs(options.pairs, self.check)

    def run(self):
        run = Run("root", self.options)
        self.prepare()
        for name, unit, target, ours, peer, *cpu in self.rows():
            if is_chosen(name, self.options):
                self.measured.compare(name, unit, target, ours, peer, *cpu)
        rows = self.measured.rows
        if not rows:
            sys.exit(no_such_row(self.options))
        page = Page("root://: figures", "bench/root.py", self.options.command, self.caveats())
        return run.finish(rows, lambda path, facts, stolen: write_page(path, page, facts, rows, stolen))

    def caveats(self):
        return [
            f"One file of {self.size / 1e9:g} GB in tmpfs, read before the first run; targets in tmpfs are removed before every run,\n"
            "  so each run pays for fresh pages. CPU is in CPU-seconds per GB (10^9 bytes), client + server; rows of CPU are ratios of\n"
            "  the same runs as the row above them, and of their interval the higher end counts.",
            "\"with page CRCs\" is `pgread` and `pgwrite`: each 4096 bytes with their CRC-32C, computed by the sender and compared by\n"
            "  the receiver. Without: `XRD_CPUSEPGWRTRD=0` for xrdcp, `GRIDLANE_ROOT_PAGES=0` for gridlane. Over roots:// both send none.",
            "`gridlane cp` computes adler32 of everything and compares it when the server states one; xrdcp was not asked to.\n"
            "  Both servers have computed it before the first run and keep it, as sites do of files that are not new. A server that has to\n"
            "  compute it reads the file for that beside the copy: with xrootd on two cores, `gridlane cp` takes twice as long then.\n"
            "  `gridlane serve` computes adler32 of uploads. Access logs are off.",
            f"Rows of requests are made by `root_load` (crates/xrd/examples), the same program against both servers: {READS} reads of 1 kB\n"
            f"  one by one, {CLIENTS} connections that read 1 MB at random places one by one, {VECTORS} vectors of 1024 × 1 kB with 4 under way,\n"
            f"  {STATS} stats with 64 under way, a directory of {self.options.entries} files with what is known of each.",
        ]

    def prepare(self):
        (self.export / "put").mkdir(parents=True)
        self.file = self.export / "big"
        generate(self.file, self.size)
        many = self.export / "many"
        many.mkdir()
        for number in range(self.options.entries):
            (many / f"file-{number:07}").touch()
        # The memory that targets will use is touched once: the first touch is many times slower.
        generate(self.target, self.size)
        self.target.unlink()
        if os.getuid() == 0:
            # The file too: xrootd keeps a file's checksum only where it may write the file's attributes.
            for path in (self.export, self.export / "put", self.file):
                shutil.chown(path, "xrootd", "xrootd")
        home = self.work / "home"
        self.serve = Serve(self.binary, self.export, home, "--allow-write")
        self.authority = self.serve.authority
        self.xrootd = Xrootd(self.export, self.work / "xrootd", self.authority, home / "gridlane" / "key.pem")
        # Each server has read the file and keeps its checksum, as of files that are not new.
        for server in (self.serve, self.xrootd):
            where = self.address(server)
            subprocess.run(["xrdfs", where, "query", "checksum", "/big"], stdout=subprocess.DEVNULL, check=True)
        # The field's clients look for authorities by the hash of their names.
        os.environ["X509_CERT_DIR"] = str(self.work / "authorities")
        self.hash_authority()
        print(f"{self.options.pairs} pairs of {self.size / 1e9:g} GB per row")

    def hash_authority(self):
        directory = self.work / "authorities"
        directory.mkdir()
        hashed = subprocess.run(
            ["openssl", "x509", "-noout", "-hash", "-in", self.authority], capture_output=True, text=True, check=True,
        ).stdout.strip()
        shutil.copy(self.authority, directory / f"{hashed}.0")

    def turn_to(self, binary):
        """Has the rows that are made from here on run this binary."""
        self.binary = binary
        self.serve = Serve(binary, self.export, self.work / "home", "--allow-write")
        subprocess.run(["xrdfs", self.address(self.serve), "query", "checksum", "/big"], stdout=subprocess.DEVNULL, check=True)

    # --- Rows ------------------------------------------------------------------------------------------

    def rows(self):
        return [*self.server_rows(), *self.client_rows(), *self.both_rows(), *self.small_rows()]

    def server_rows(self):
        """The same client from both servers."""
        for label, before, rate, cpu in (("with page CRCs", [], 1.3, 0.4), ("without", NO_PAGES, 1.0, 1.0)):
            yield (
                f"serve vs xrootd: xrdcp to null, {label}",
                "MB/s",
                rate,
                *(self.work_of([*before, *self.xrdcp(server, "/dev/null")], [server]) for server in (self.serve, self.xrootd)),
                ("server", cpu),
            )
        yield (
            "serve vs xrootd: upload by xrdcp",
            "MB/s",
            1.3,
            *(self.work_of(self.xrdcp_up(server), [server]) for server in (self.serve, self.xrootd)),
        )

    def client_rows(self):
        """Both clients from the same server."""
        yield (
            "cp vs xrdcp: from xrootd to null, one stream, with page CRCs",
            "MB/s",
            1.1,
            self.work_of(self.cp(self.xrootd, "/dev/null", "--streams", "1"), [self.xrootd]),
            self.work_of(self.xrdcp(self.xrootd, "/dev/null"), [self.xrootd]),
            ("client", 0.4),
        )
        yield (
            "cp vs xrdcp: from xrootd to null, one stream, without page CRCs",
            "MB/s",
            1.1,
            self.work_of([*NO_PAGES_OURS, *self.cp(self.xrootd, "/dev/null", "--streams", "1")], [self.xrootd]),
            self.work_of([*NO_PAGES, *self.xrdcp(self.xrootd, "/dev/null")], [self.xrootd]),
            ("client", 0.4),
        )
        yield (
            "cp vs xrdcp: from xrootd to null, four streams, with page CRCs",
            "MB/s",
            1.1,
            self.work_of(self.cp(self.xrootd, "/dev/null", "--streams", "4"), [self.xrootd]),
            self.work_of(self.xrdcp(self.xrootd, "/dev/null", "-S", "3"), [self.xrootd]),
            ("client", 0.4),
        )

    def both_rows(self):
        """gridlane at both ends against XRootD at both ends."""
        null, file = "/dev/null", str(self.target)
        yield (
            "both ends: to null, with page CRCs",
            "MB/s",
            3.0,
            self.work_of(self.cp(self.serve, null), [self.serve]),
            self.work_of(self.xrdcp(self.xrootd, null), [self.xrootd]),
        )
        yield (
            "both ends: to null, gridlane with page CRCs, XRootD without",
            "MB/s",
            1.15,
            self.work_of(self.cp(self.serve, null), [self.serve]),
            self.work_of([*NO_PAGES, *self.xrdcp(self.xrootd, null)], [self.xrootd]),
        )
        yield (
            "both ends: to a file, with page CRCs",
            "MB/s",
            3.5,
            self.work_of(self.cp(self.serve, file), [self.serve]),
            self.work_of(self.xrdcp(self.xrootd, file), [self.xrootd]),
        )
        yield (
            "both ends: roots:// to null",
            "MB/s",
            1.3,
            self.work_of(self.cp(self.serve, null, scheme="roots"), [self.serve]),
            self.work_of(self.xrdcp(self.xrootd, null, scheme="roots"), [self.xrootd]),
        )
        yield (
            "both ends: upload, with page CRCs",
            "MB/s",
            2.5,
            self.work_of(
                [self.binary, "cp", str(self.file), self.serve.url("/put/big", "root"), "--quiet", "--force"], [self.serve],
            ),
            self.work_of(self.xrdcp_up(self.xrootd), [self.xrootd]),
        )

    def small_rows(self):
        """A program that only asks, at both servers."""
        for name, unit, target, path, words, count in (
            ("1 kB reads one by one", "reads/s", 1 / 0.9, "/big", ["reads", READS], READS),
            (f"{CLIENTS} clients, 1 MB at random", "MB/s", 1.3, "/big", ["random", CLIENTS, RANDOM], CLIENTS * RANDOM << 20),
            ("readv of 1024 x 1 kB", "vectors/s", 1.3, "/big", ["readv", VECTORS], VECTORS),
            ("stat", "stats/s", 1.3, "/big", ["stat", STATS], STATS),
            (f"dirlist of {self.options.entries}", "entries/s", 1.3, "/many", ["dirlist", 1], self.options.entries),
        ):
            yield (
                f"serve vs xrootd: {name}",
                unit,
                target,
                *(
                    self.work_of([self.options.load, self.address(server), path, *map(str, words)], [server], count)
                    for server in (self.serve, self.xrootd)
                ),
            )

    @staticmethod
    def address(server):
        return server.url("", "root").removeprefix("root://").rstrip("/")

    @staticmethod
    def source(server, scheme):
        return server.url("big" if server.name == "xrootd" else "/big", scheme)

    def cp(self, server, target, *options, scheme="root"):
        return [self.binary, "cp", self.source(server, scheme), target, "--quiet", "--ca", self.authority, *options]

    def xrdcp(self, server, target, *options, scheme="root"):
        return ["xrdcp", "--silent", "--force", *options, self.source(server, scheme), target]

    def xrdcp_up(self, server):
        place = server.url("put/big" if server.name == "xrootd" else "/put/big", "root")
        return ["xrdcp", "--silent", "--force", str(self.file), place]

    def work_of(self, command, servers, count=None):
        """The work as something to be called: removes what the last run left, runs, gives a sample."""

        def run():
            self.target.unlink(missing_ok=True)
            (self.export / "put/big").unlink(missing_ok=True)
            return run_client(command, count or self.size, servers)

        return run

    # --- Measuring -------------------------------------------------------------------------------------

    def check(self):
        for written in (self.target, self.export / "put/big"):
            if written.exists():
                must_be_same(written, self.file)


if __name__ == "__main__":
    sys.exit(main())

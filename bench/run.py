#!/usr/bin/env python3
"""Paired runs of gridlane against curl, aria2c and nginx on this machine.

Each row compares two ways to do the same work in alternating runs, so that what disturbs one disturbs the
other. Writes bench/results/DATE.json and docs/performance/main-job.md, which says what to know before reading.
"""

import argparse
import shutil
import sys
import tempfile
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

from pairs import Pairs, must_be_same, stolen_and_all  # noqa: E402
from processes import Nginx, run_client  # noqa: E402
from report import Page, machine, write_json, write_page  # noqa: E402
from running import Serve, clean_up, exit_on_signals, generate  # noqa: E402

SMALL_REQUESTS = 5000
LIMITED_RATE = 60_000_000


def main():
    options = arguments()
    exit_on_signals()
    if shutil.disk_usage("/dev/shm").free < 3 * options.size + 100_000_000:
        sys.exit(f"the benchmarks need {3 * options.size / 1e9:.1f} GB free in /dev/shm; see --size")
    work = Path(tempfile.mkdtemp(prefix="gridlane-bench-", dir="/dev/shm"))
    try:
        return Bench(options, work).run()
    except KeyboardInterrupt:
        print("\ninterrupted")
        return 130
    finally:
        clean_up(work)


def arguments():
    parser = argparse.ArgumentParser(description="Paired runs of gridlane against its peers.")
    parser.add_argument("--gridlane", required=True, help="the binary")
    parser.add_argument("--pairs", type=int, default=15, help="pairs of runs per row (default: 15)")
    parser.add_argument("--quick", action="store_true", help="3 pairs and 200 MB: shows that it works, nothing more")
    parser.add_argument("--size", type=int, default=1_000_000_000, help="bytes of the file (default: 1 GB)")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--page", default=str(ROOT / "docs/performance/main-job.md"), help="the page to write")
    options = parser.parse_args()
    options.gridlane = str(Path(options.gridlane).resolve())
    if options.quick:
        options.pairs, options.size = 3, 200_000_000
    return options


class Bench:
    def __init__(self, options, work):
        self.options = options
        self.binary = options.gridlane
        self.size = options.size
        self.work = work
        self.target = work / "target"
        self.measured = Pairs(options.pairs, self.check)

    def run(self):
        began = stolen_and_all()
        self.prepare()
        for name, unit, target, ours, peer in [*self.client_rows(), *self.aria2_rows(), *self.server_rows()]:
            if self.options.only in name:
                self.measured.compare(name, unit, target, ours, peer)
        if self.options.only in self.limited_name():
            self.limited()
        if not self.measured.rows:
            sys.exit(f"no row has {self.options.only!r} in its name")
        stolen, total = (after - before for before, after in zip(began, stolen_and_all()))
        facts = machine()
        results = ROOT / "bench/results" / f"{datetime.now():%Y%m%dT%H%M%S}.json"
        write_json(results, facts, self.measured.rows)
        print(f"wrote {results.relative_to(ROOT)}")
        if self.options.quick or self.options.only:
            print("no page written: it takes a full run")
        else:
            command = "make bench"
            if self.options.pairs != 15:
                command += f" BENCH_OPTIONS='--pairs {self.options.pairs}'"
            caveats = [
                f"One file of {self.size / 1e9:g} GB in tmpfs, read before the first run; `file` targets are in tmpfs too and removed "
                "before every\n  run, so each run pays for fresh pages. CPU is in CPU-seconds per GB (10^9 bytes), client + server.",
                "`gridlane cp` computes adler32 of everything and compares it when the server states one; curl and aria2c "
                "compute\n  nothing. `gridlane serve` and nginx have their access logs off, nginx uses sendfile; both show the "
                "same\n  ECDSA P-256 certificate.",
            ]
            page = Page("The main job: figures", "bench/run.py", command, caveats)
            write_page(Path(self.options.page), page, facts, self.measured.rows, 100 * stolen / max(total, 1))
            print(f"wrote {self.options.page}")
        for row in self.measured.rows:
            if row["passed"] is False:
                print(f"missed its target: {row['name']}")
        return 0

    def prepare(self):
        export = self.work / "export"
        (export / "put").mkdir(parents=True)
        self.file = export / "big"
        generate(self.file, self.size)
        (export / "small").write_bytes(b"x" * 1024)
        # The memory that targets will use is touched once: the first touch is many times slower.
        generate(self.target, self.size)
        self.target.unlink()
        home = self.work / "home"
        self.serve = Serve(self.binary, export, home, "--allow-write")
        key = home / "gridlane" / "key.pem"
        self.nginx = Nginx(export, self.work / "nginx", self.serve.authority, key)
        print(f"{self.options.pairs} pairs of {self.size / 1e9:g} GB per row")

    # --- Rows ------------------------------------------------------------------------------------------

    def client_rows(self):
        for server in (self.nginx, self.serve):
            for scheme in ("http", "https"):
                for target, label in (("/dev/null", "null"), (str(self.target), "file")):
                    url = server.url("big", scheme)
                    yield (
                        f"cp vs curl: {scheme} from {server.name} to {label}",
                        "MB/s",
                        1.0,
                        self.work_of(self.cp(url, target), [server]),
                        self.work_of(self.curl(url, "-o", target), [server]),
                    )

    def aria2_rows(self):
        for scheme in ("http", "https"):
            for connections in (1, 4):
                url = self.nginx.url("big", scheme)
                aria2 = [
                    "aria2c", "--no-conf", "--quiet", "--file-allocation=none", "--allow-overwrite=true",
                    f"--max-connection-per-server={connections}", f"--split={connections}",
                    f"--ca-certificate={self.serve.authority}", f"--dir={self.work}", "--out=target", url,
                ]
                yield (
                    f"cp vs aria2c -x{connections}: {scheme} from nginx to file",
                    "MB/s",
                    None,
                    self.work_of(self.cp(url, str(self.target)), [self.nginx]),
                    self.work_of(aria2, [self.nginx]),
                )

    def server_rows(self):
        for scheme in ("http", "https"):
            yield (
                f"serve vs nginx: curl {scheme} GET to null",
                "MB/s",
                None,
                *(
                    self.work_of(self.curl(server.url("big", scheme), "-o", "/dev/null"), [server])
                    for server in (self.serve, self.nginx)
                ),
            )
        yield (
            "serve vs nginx: curl http PUT to file",
            "MB/s",
            None,
            *(
                self.work_of(self.curl("-T", str(self.file), server.url("put/big")), [server])
                for server in (self.serve, self.nginx)
            ),
        )
        for scheme in ("http", "https"):
            yield (
                f"serve vs nginx: {SMALL_REQUESTS} x 1 kB {scheme} GET, one connection",
                "requests/s",
                None,
                *(
                    self.work_of(
                        self.curl(f"{server.url('small', scheme)}?[1-{SMALL_REQUESTS}]", "-o", "/dev/null"),
                        [server],
                        SMALL_REQUESTS,
                    )
                    for server in (self.serve, self.nginx)
                ),
            )

    def cp(self, url, target):
        return [self.binary, "cp", url, target, "--quiet", "--ca", self.serve.authority]

    def curl(self, *words):
        return ["curl", "--silent", "--show-error", "--fail", "--cacert", self.serve.authority, *words]

    def work_of(self, command, servers, count=None):
        """The work as something to be called: removes what the last run left, runs, gives a sample."""

        def run():
            self.target.unlink(missing_ok=True)
            (self.work / "export/put/big").unlink(missing_ok=True)
            return run_client(command, count or self.size, servers)

        return run

    # --- Measuring -------------------------------------------------------------------------------------

    def check(self):
        for written in (self.target, self.work / "export/put/big"):
            if written.exists():
                must_be_same(written, self.file)

    def limited_name(self):
        return f"cp from three servers limited to {LIMITED_RATE // 10**6} MB/s each, to file: fraction of bound(3)"

    def limited(self):
        export = self.work / "export"
        limit = ("--limit-rate", str(LIMITED_RATE))
        servers = [Serve(self.binary, export, self.work / "home", *limit) for _ in range(3)]
        urls = [server.url("big") for server in servers]
        command = self.cp(urls[0], str(self.target))
        for url in urls[1:]:
            command += ["--mirror", url]
        self.measured.bounded(self.limited_name(), 0.95, 3 * LIMITED_RATE, self.work_of(command, servers))


if __name__ == "__main__":
    sys.exit(main())

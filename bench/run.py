#!/usr/bin/env python3
"""Paired runs of gridlane against curl, aria2c and nginx on this machine.

Each row compares two ways to do the same work in alternating runs, so that what disturbs one disturbs the
other. Writes bench/results/DATE.json and docs/performance/main-job.md, which says what to know before reading.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

from processes import Nginx, run_client  # noqa: E402
from report import machine, write_json, write_page  # noqa: E402
from running import Serve, clean_up, exit_on_signals, generate  # noqa: E402
from stats import summarize  # noqa: E402

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
        self.rows = []

    def run(self):
        began = stolen_and_all()
        self.prepare()
        for name, unit, target, ours, peer in [*self.client_rows(), *self.aria2_rows(), *self.server_rows()]:
            if self.options.only in name:
                self.compare(name, unit, target, ours, peer)
        if self.options.only in self.limited_name():
            self.limited()
        if not self.rows:
            sys.exit(f"no row has {self.options.only!r} in its name")
        stolen, total = (after - before for before, after in zip(began, stolen_and_all()))
        facts = machine()
        results = ROOT / "bench/results" / f"{datetime.now():%Y%m%dT%H%M%S}.json"
        write_json(results, facts, self.rows)
        print(f"wrote {results.relative_to(ROOT)}")
        if self.options.quick or self.options.only:
            print("no page written: it takes a full run")
        else:
            command = "make bench"
            if self.options.pairs != 15:
                command += f" BENCH_OPTIONS='--pairs {self.options.pairs}'"
            write_page(Path(self.options.page), facts, self.rows, command, self.size, 100 * stolen / max(total, 1))
            print(f"wrote {self.options.page}")
        for row in self.rows:
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

    def compare(self, name, unit, target, ours, peer):
        for work in (ours, peer):
            work()  # not counted
            self.check()
        pairs = [(ours(), peer()) for _ in range(self.options.pairs)]
        ratio = summarize([a.rate / b.rate for a, b in pairs])
        self.add({
            "name": name,
            "unit": unit,
            "target": target,
            "gridlane": side([a for a, _ in pairs]),
            "peer": side([b for _, b in pairs]),
            "ratio": ratio,
            "passed": ratio["low"] >= target if target else None,
        })

    def check(self):
        """Whatever was written must be right: a fast wrong copy is worth nothing."""
        for written in (self.target, self.work / "export/put/big"):
            if written.exists() and subprocess.run(["cmp", "-s", str(written), str(self.file)], check=False).returncode:
                sys.exit(f"{written} is not what was sent")

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
        work = self.work_of(command, servers)
        work()
        self.check()
        bound = 3 * LIMITED_RATE
        samples = [work() for _ in range(self.options.pairs)]
        ratio = summarize([sample.rate / bound for sample in samples])
        self.add({
            "name": self.limited_name(),
            "unit": "MB/s",
            "target": 0.95,
            "gridlane": side(samples),
            "bound": bound,
            "ratio": ratio,
            "passed": ratio["low"] >= 0.95,
        })

    def add(self, row):
        self.rows.append(row)
        ratio = row["ratio"]
        verdict = {True: "pass", False: "FAIL", None: ""}[row["passed"]]
        print(f"{row['name']:72} {ratio['median']:5.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}] {verdict}", flush=True)


def side(samples):
    """Medians of one side of a row, and every sample for whoever wants to look closer."""
    return {
        "rate": median(sample.rate for sample in samples),
        "client_cpu": median(sample.client_cpu_s / sample.bytes * 1e9 for sample in samples),
        "server_cpu": median(sample.server_cpu_s / sample.bytes * 1e9 for sample in samples),
        "samples": [[sample.seconds, sample.client_cpu_s, sample.server_cpu_s] for sample in samples],
    }


def stolen_and_all():
    """Clock ticks that the hypervisor took, and all ticks, since the machine started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[7], sum(ticks)


if __name__ == "__main__":
    sys.exit(main())

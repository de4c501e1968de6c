#!/usr/bin/env python3
"""Reading parts of remote files: `gridlane read` and the Python package beside pyxrootd, fsspec and themselves.

Known and unknown offsets over emulated wide areas, the adaptive policy beside the best forced one in hindsight (measured, and
simulated), recorded traces, the cost of an element, a tree by uproot. In each row all ways of doing the work alternate,
run by run. Writes bench/results/read-DATE.json and docs/performance/reading-figures.md, which says what to know before reading.
"""

import os
import shutil
import subprocess
import sys
import time
from functools import cached_property
from pathlib import Path

from program import ROOT, Arguments, Run, in_memory, no_such_row  # first: it makes the modules in scripts/ known
import read_client
import read_jobs
import read_judge
import read_loopback
import read_report
import read_simulated
import read_wan
from processes import Xrootd, run_client
from read_runs import Failed, Outcome
from report import machine, write_json
from running import Serve, generate, make_old
from wan_lab import Lab, Place, Shelf
from wan_long import SITE, scenario
from wan_report import row_lines

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gridlane-test"
ROOM_BYTES = 3_000_000_000
# Bytes that a port of a switch has room for.
SWITCH_QUEUE = "500kB"
# A page of terms for the file that is merged: it is kept.
MERGED, COPIES = "nanoaod-100.root", 100
SEED_FILE = "root/NanoAODv5_sample.root"


def main():
    options = arguments()
    if options.self_test:
        read_judge.self_test()
        read_simulated.self_test()
        read_report.self_test()
        jobs_self_test()
        print("the arithmetic of reading holds")
        return 0
    bench = Bench(options, None)
    chosen = bench.chosen()
    if not chosen:
        sys.exit(no_such_row(options))
    if options.list:
        for row in chosen:
            print(f"{row.name:75} {row.minutes:3.0f} min{'' if row.is_usual else ', by its name only'}")
        return 0
    return in_memory(ROOM_BYTES, lambda work: Bench(options, work).run())


def arguments():
    arguments = Arguments("bench-read", "What reading a part of a remote file costs.", "one or two runs, files of 50 MB")
    arguments.amount("rounds", 7, 1, "counted runs of each side of a row")
    arguments.amount("few", 3, 1, "the same of rows that have many sides or take long")
    arguments.amount("size", 1_000_000_000, 50_000_000, "bytes of the file")
    arguments.amount("elements", 100_000, 10_000, "ranges in one call, on loopback")
    arguments.add_argument("--row", action="append", default=[], help="rows whose name begins with this (repeatable)")
    arguments.add_argument("--simulator", help="the example hindsight; without it no row is simulated")
    arguments.add_argument("--wheel", help="the wheel of the Python package; without it no row has it")
    arguments.add_argument("--data", help="the directory of real files and traces (default: GRIDLANE_DATA, or ../shared/data)")
    arguments.add_argument("--list", action="store_true", help="show the names of the rows, and how long each takes")
    arguments.add_argument("--self-test", action="store_true", help="only test the arithmetic")
    arguments.page("reading-figures.md")
    options = arguments.parse()
    options.by_part = options.only
    # There is no page of a part of the rows, however they are named.
    options.only = options.only + options.row
    return options


class Bench:
    """What all rows share: files, servers, networks, interpreters; each is made when a row needs it."""

    def __init__(self, options, work):
        self.options, self.work = options, work
        self.binary, self.size = options.gridlane, options.size
        self.rounds, self.few, self.elements = options.rounds, options.few, min(options.elements, options.size // 2000)
        self.data = Path(options.data or os.environ.get("GRIDLANE_DATA") or ROOT.parent / "shared/data")
        self.failures, self._lab, self._simulated = [], (None, None), {}
        if work:
            self.shelf = Shelf(work, self.binary, (SITE, "localhost"))
            (work / "traces").mkdir()
            # OpenSSL's users and gridlane alike.
            os.environ["SSL_CERT_FILE"] = self.authority

    def rows(self):
        yield from read_loopback.rows(self)
        yield from read_simulated.rows(self)
        yield from read_wan.rows(self)

    def chosen(self):
        """Networks change as seldom as possible."""
        rows = [row for row in self.rows() if is_wanted(row, self.options)]
        return sorted(rows, key=lambda row: (row.round_trip_ms is not None, row.round_trip_ms or 0))

    def run(self):
        run = Run("read", self.options)
        rows, facts = [], machine()
        so_far = ROOT / "bench/results/read-so-far.json"
        try:
            for row in self.chosen():
                rows.append(self.measure(row))
                # A run takes an hour, and what ends it may not ask.
                write_json(so_far, facts, rows, failures=self.failures)
        finally:
            self.leave()
        rows = [*rows, *self.of_all_traces(rows)]
        judged = [figure | {"name": f"{row['name']}: {figure['what']}"} for row in rows for figure in row["figures"]]
        page = lambda path, facts, stolen: read_report.write_page(path, self.options.command, facts, rows, self.failures, stolen)  # noqa: E731
        code = run.finish(rows_for_json(rows), page, judged, failures=self.failures)
        so_far.unlink()
        return code

    def measure(self, row):
        began = time.monotonic()
        try:
            result = row.measure(self)
        except Failed as failure:
            self.fail(row.name, failure)
            result = {"sides": [], "figures": [], "note": f"failed: {failure}"}
        result = {"name": row.name, "section": row.section, **result, "took_s": time.monotonic() - began}
        print(f"\n{row.name} ({result['took_s']:.0f} s)", flush=True)
        for side in result["sides"]:
            if "seconds" in side:
                cpu = f"CPU {side['client_cpu_s']:.3f} + {side['server_cpu_s']:.3f} s"
                lost = f"  lost {side['dropped']:.0f}" if side["dropped"] else ""
                print(f"  {side['name']:42} {side['seconds']['median']:9.3f} s  {cpu}{lost} {side['note']}")
            else:
                print(f"  {side['name']:42} {side['note'] or 'failed'}")
        for text in row_lines({**result, "lines": []}):
            print(text)
        if result.get("note"):
            print(f"  {result['note']}", flush=True)
        return result

    def of_all_traces(self, rows):
        """What is wanted of traces together, when all of them were measured."""
        judged = [row["figures"][0]["summary"] for row in rows if row["name"].startswith("trace ") and row["figures"]]
        if len(judged) != 2 * len(self.traces()) or not judged:
            return []
        # A trace whose runs were all cut off fails both.
        ratios = None if None in judged else [summary["median"] for summary in judged]
        parts = [read_judge.quantile(ratios, part) if ratios else None for part in (0.9, 1.0)]
        figures = [
            read_wan.figure(f"90 % of {len(judged)} within, of the best in hindsight", parts[:1], most=read_wan.TRACES_MOST),
            read_wan.figure("all within", parts[1:], most=read_wan.TRACE_MOST),
        ]
        return [{"name": "traces together", "section": "Recorded traces", "sides": [], "figures": figures, "took_s": 0.0}]

    def fail(self, who, why):
        self.failures.append(f"{who}: {why}")
        print(f"FAILED {self.failures[-1]}", flush=True)

    # --- Files -------------------------------------------------------------------------------------------

    def served(self, name):
        return self.shelf.export / name

    def need(self, name, size):
        """A file that is served: the real one of that name, or one of random bytes."""
        path = self.served(name)
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        real = self.data / name
        if real.exists() and real.stat().st_size == size:
            shutil.copyfile(real, path)
        else:
            generate(path, size)
        path.chmod(0o644)
        make_old(path)

    def need_tree(self, count):
        """The tree of 212 MB, which is made once and kept in the user's cache; and a file with the names of so many branches."""
        kept = CACHE / "trees" / MERGED
        if not kept.exists():
            self.merge(kept)
        path, names = self.served(MERGED), self.work / "branches"
        if not path.exists():
            shutil.copyfile(kept, path)
            path.chmod(0o644)
            make_old(path)
            command = [*self.python("ours"), read_client.__file__, "branches", "memory", str(path), str(count)]
            names.write_text(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        return MERGED, names

    def merge(self, kept):
        """By hadd of the wheel of C++ ROOT: 85 s of CPU time."""
        package = next(CACHE.glob("root-1/lib/python3.*/site-packages/ROOT"), None)
        if package is None:
            raise Failed("there is no C++ ROOT for this machine")
        kept.parent.mkdir(exist_ok=True)
        partial = kept.with_suffix(".partial.root")
        print("merging the tree that uproot reads, once", flush=True)
        environment = dict(os.environ, ROOTSYS=str(package), LD_LIBRARY_PATH=str(package / "lib"))
        command = [package / "bin/hadd", "-f", partial, *[self.data / SEED_FILE] * COPIES]
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode:
            raise Failed("hadd of the wheel of ROOT does not make the tree")
        partial.rename(kept)

    def trace(self, job, path=None):
        """The file with the calls of a job."""
        path = Path(path or self.work / "traces" / f"{job.name.replace(' ', '-')}-{abs(hash(job.calls)):x}.csv")
        if not path.exists():
            path.write_text(job.text())
        return path

    def traces(self):
        return read_jobs.recorded(self.data)

    # --- Simulator ---------------------------------------------------------------------------------------

    def simulated(self, jobs):
        if not self.options.simulator:
            raise Failed("no simulator was given")
        if jobs not in self._simulated:
            self._simulated[jobs] = read_simulated.run(self.options.simulator, jobs, self.size)
        return self._simulated[jobs]

    def simulated_cell(self, ms, part, event_bytes):
        """The same job in the simulator, if there is one."""
        if not self.options.simulator:
            return None
        return next((cell for cell in self.simulated("harness") if cell.key() == (ms, part, event_bytes)), None)

    # --- Servers and networks ----------------------------------------------------------------------------

    @property
    def authority(self):
        return self.shelf.authority

    @cached_property
    def serve(self):
        identity = self.shelf.identity
        options = ["--cert", str(identity.certificate), "--key", str(identity.key)]
        return Serve(self.binary, self.shelf.export, self.work / "home", *options)

    @cached_property
    def xrootd(self):
        identity = self.shelf.identity
        return Xrootd(self.shelf.export, self.work / "xrootd", identity.certificate, identity.key)

    def address(self, server, scheme, name):
        """A file on loopback. The certificate has names, and no addresses."""
        url = server.url(name if server is self.__dict__.get("xrootd") else f"{'/' if scheme == 'root' else ''}{name}", scheme)
        return url.replace("127.0.0.1", "localhost") if scheme == "https" else url

    def lab(self, round_trip_ms):
        """The network of this round trip, with both servers at its far end. One is up at a time."""
        if self._lab[0] != round_trip_ms:
            self.leave()
            # What a network within a site holds is less than the first windows of eight connections; its switches have more room.
            queue = SWITCH_QUEUE if round_trip_ms < 2 else "bdp"
            place = Place(f"read-{round_trip_ms:g}", scenario(round_trip_ms, queue=queue), (SITE,), ("serve", "xrootd"))
            lab = Lab(self.shelf, place)
            lab.__enter__()
            self._lab = (round_trip_ms, lab)
        return self._lab[1]

    def leave(self):
        if self._lab[1]:
            self._lab[1].__exit__(None, None, None)
            shutil.rmtree(self._lab[1].directory)
            self._lab = (None, None)

    # --- Clients -----------------------------------------------------------------------------------------

    @cached_property
    def ours(self):
        """An interpreter with the wheel; what reads through it lies beside it."""
        if not self.options.wheel:
            raise Failed("no wheel was given")
        wheel = next(iter(sorted(Path(self.options.wheel).glob("*.whl"))), None) if Path(self.options.wheel).is_dir() else Path(self.options.wheel)
        if wheel is None:
            raise Failed(f"no wheel is in {self.options.wheel}")
        where = self.work / "python"
        subprocess.run([CACHE / "python-1/bin/python", "-m", "venv", where], check=True)
        pip = [where / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel]
        subprocess.run(pip, check=True)
        [beside] = CACHE.glob("python-1/lib/python3.*/site-packages")
        return ["env", f"PYTHONPATH={beside}", str(where / "bin/python")]

    def python(self, whose):
        """An interpreter with a client: the wheel's, Debian's with pyxrootd, the environment's with fsspec-xrootd."""
        if whose == "ours":
            return self.ours
        return {"debian": ["/usr/bin/python3"], "xrootd": [str(CACHE / "xrootd-6.2.1/bin/python")]}[whose]

    def client(self, whose, words, check):
        return [*self.python(whose), read_client.__file__, *(["--check"] if check else []), *map(str, words)]

    def cp(self, address):
        """A copy to nowhere, a whole process."""
        sample = run_client([self.binary, "cp", address, "/dev/null", "--quiet", "--ca", self.authority], self.size, [self.serve])
        return Outcome(sample.seconds, sample.client_cpu_s, sample.server_cpu_s, {})


def is_wanted(row, options):
    """Whether a row is to be measured: by a part of its name, by its beginning, or because it is a usual one."""
    if not options.only:
        return row.is_usual or options.list
    return any(part in row.name for part in options.by_part) or any(row.name.startswith(start) for start in options.row)


def rows_for_json(rows):
    """The table of `Run.finish` asks each row whether it has passed; here figures do."""
    return [{**row, "passed": None} for row in rows]


def jobs_self_test():
    """Fails where jobs are not what they say."""
    some = read_jobs.events(1_000_000, 1000, 0.1, 1)
    assert len(some) == len(set(some)) == 100 and all(offset % 1000 == 0 and offset < 1_000_000 for offset, _ in some)
    assert len(read_jobs.events(1_000_000, 1000, 0, 1)) == 1
    first, second = read_jobs.twice("two", "file", 1_000_000, 1000, 0.1)
    assert len(first.ranges) == len(second.ranges) == 100 and not set(first.ranges) & set(second.ranges)
    job = read_jobs.unknown("job", "file", 100, 10, 0.5)
    assert len(job.calls) == 5 and job.wanted_bytes == 50
    known = read_jobs.known("job", "file", 100, 10, 0.5)
    assert len(known.calls) == 1 and read_jobs.parse(known.text()) == known.calls and read_jobs.parse(job.text()) == job.calls


if __name__ == "__main__":
    sys.exit(main())

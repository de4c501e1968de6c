"""What the benchmark programs have in common: their options, a directory in memory, and how a run of rows ends.

A program that imports it finds the modules in scripts/ too, and those of the lab that need no more than Python."""

import argparse
import shutil
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "scripts"), str(ROOT / "lab/src")]

from pairs import stolen_and_all  # noqa: E402
from report import machine, write_json  # noqa: E402
from running import clean_up, exit_on_signals  # noqa: E402


class Arguments(argparse.ArgumentParser):
    """The options that every benchmark has. `target` is make's; `quick` says what is less with --quick; `load` is the
    program that makes the requests, where it is one of ours."""

    def __init__(self, target, about, quick, load=None):
        super().__init__(description=about)
        self.target, self.amounts = target, {}
        self.add_argument("--gridlane", help="the binary")
        if load:
            self.add_argument("--load", required=True, help=f"the program {load}")
        self.add_argument("--quick", action="store_true", help=f"{quick}: shows that it works, nothing more")
        self.add_argument("--only", action="append", default=[], help="rows whose name contains this (repeatable)")

    def amount(self, name, full, quick, about):
        """An option of a number, with what it is in a full run and in a quick one."""
        self.amounts[name] = (full, quick)
        self.add_argument(f"--{name}", type=int, help=f"{about} (default: {full})")

    def page(self, name):
        self.add_argument("--page", default=str(ROOT / "docs/performance" / name), help="the page to write")

    def parse(self):
        """The options, with complete paths; `command` repeats the run."""
        options = self.parse_args()
        needs_none = any(getattr(options, name, False) for name in ("list", "self_test"))
        if not (options.gridlane or needs_none):
            self.error("--gridlane is missing")
        for name in {"gridlane", "load"} & vars(options).keys():
            setattr(options, name, str(Path(getattr(options, name) or "").resolve()))
        other = []
        for name, (full, quick) in self.amounts.items():
            value = getattr(options, name) or (quick if options.quick else full)
            setattr(options, name, value)
            other += [f"--{name} {value}"] if value != full else []
        other += [f'--only "{part}"' for part in options.only]
        options.command = make(self.target, other)
        return options


def make(target, options):
    """What people type."""
    return f"make {target}" + (f" BENCH_OPTIONS='{' '.join(options)}'" if options else "")


def is_chosen(name, options):
    """Whether a row is to be measured."""
    return not options.only or any(part in name for part in options.only)


def no_such_row(options):
    return f"no row has {' or '.join(map(repr, options.only))} in its name"


def in_memory(needed_bytes, work, hint=""):
    """Calls `work` with a new directory in memory, and returns what it returns. Nothing stays behind: not the directory,
    and no process that was started."""
    exit_on_signals()
    if shutil.disk_usage("/dev/shm").free < needed_bytes:
        sys.exit(f"the benchmark needs {needed_bytes / 1e9:.1f} GB free in /dev/shm{hint}")
    directory = Path(tempfile.mkdtemp(prefix="gridlane-", dir="/dev/shm"))
    # xrootd and Apache work as users of their own.
    directory.chmod(0o755)
    try:
        return work(directory)
    except KeyboardInterrupt:
        print("\ninterrupted")
        return 130
    finally:
        clean_up(directory)


class Run:
    """From before the first row to after the last one."""

    def __init__(self, name, options):
        self.name, self.options = name, options
        self.ticks, self.clock = stolen_and_all(), time.monotonic()

    def finish(self, rows, write_page, judged=(), **more):
        """Writes the figures, and after a full run the page: `write_page` gets its path, what the figures depend on, and how
        many percent of the CPU time were stolen. `judged` are more rows that have limits."""
        stolen, total = (after - before for before, after in zip(self.ticks, stolen_and_all()))
        stolen = 100 * stolen / max(total, 1)
        facts = machine()
        results = ROOT / "bench/results" / f"{self.name}-{datetime.now():%Y%m%dT%H%M%S}.json"
        write_json(results, facts, rows, **more, stolen_percent=stolen)
        print(f"wrote {results.relative_to(ROOT)} after {time.monotonic() - self.clock:.0f} s")
        if self.options.quick or self.options.only:
            print("no page written: it takes a full run")
        else:
            write_page(Path(self.options.page), facts, stolen)
            print(f"wrote {self.options.page}")
        for row in [*rows, *judged]:
            if row["passed"] is False:
                print(f"missed its target: {row['name']}")
        return 0

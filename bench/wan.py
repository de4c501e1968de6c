#!/usr/bin/env python3
"""`gridlane cp` beside aria2c, xrdcp, curl and others over emulated wide areas: what goes wrong there, and what limits it.

What a scenario of the lab cannot express: faults at a part of a file, servers that lie, bounds that are measured in the same
row, trees, two protocols in one copy. The rest is in lab/scenarios/own. In each row the clients alternate, run by run. Writes
bench/results/DATE-wan.json and docs/performance/wan-faults.md, which says what to know before reading.
"""

import json
import shutil
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

from program import ROOT, Arguments, in_memory, is_chosen, make, no_such_row  # first: it makes the modules in scripts/ known
from gridlane_lab import bound
from gridlane_lab.processes import ticks_now, ticks_since
import wan_faults
import wan_liars
import wan_long
import wan_report
import wan_shared
import wan_small
import wan_three
from report import machine
from wan_lab import Lab, Shelf

# In the order of the page.
SCENARIOS = [
    wan_three.SecondFile, *wan_faults.SCENARIOS, wan_liars.Liars, wan_shared.Shared, *wan_long.SCENARIOS, wan_small.Small,
    wan_three.Mixed,
]
ROUNDS = 6
ROOM_BYTES = 9_000_000_000
HOSTS = ("near", "middle", "far", "one", "two", "rival")


def main():
    options = arguments()
    if options.self_test:
        bound.self_test()
        print("the arithmetic of the bound holds")
        return 0
    if options.list:
        for scenario, row in Bench(options, None).chosen():
            print(f"{scenario.name}: {row.name}")
        return 0
    return in_memory(ROOM_BYTES, lambda work: Bench(options, work).run())


def arguments():
    arguments = Arguments("bench-wan", "gridlane and its peers over emulated wide areas.", "one run of each client and small files")
    arguments.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"counted runs of what has a target (default: {ROUNDS})",
    )
    arguments.add_argument("--ours", action="store_true", help="without aria2c, xrdcp, rclone and gfal-copy")
    arguments.add_argument("--list", action="store_true", help="print which rows there are, as --only takes them: 'liars:', 'one killed'")
    arguments.add_argument("--page", help="the page to write, also after a run that is not a full one")
    arguments.add_argument("--simulated", help="what the simulator of the plan printed, to stand beside what was measured")
    arguments.add_argument(
        "--resume", help="results of a run that did not come to its end: scenarios with the same rows and rounds in them count",
    )
    arguments.add_argument("--self-test", action="store_true", help="only test the arithmetic of the bound")
    options = arguments.parse()
    options.is_full = not (options.quick or options.only or options.ours)
    return options


class Bench:
    """What all scenarios share."""

    scenarios, hosts, shelf_type, lab_type = SCENARIOS, HOSTS, Shelf, Lab

    def __init__(self, options, work):
        self.options, self.quick = options, options.quick
        self.rounds = 1 if options.quick else options.rounds
        self.shelf = self.shelf_type(work, options.gridlane, self.hosts) if work else Plan()
        self.failures, self.has_failed, self.sections = [], False, []
        self.results = ROOT / "bench/results" / f"{datetime.now():%Y%m%dT%H%M%S}-wan.json"

    def megabytes(self, size):
        """A size in bytes; of quick runs a tenth."""
        return size * 10**6 // (10 if self.quick else 1)

    def sizes(self, *megabytes):
        """Sizes in bytes; a quick run takes the largest."""
        return list(map(self.megabytes, [max(megabytes)] if self.quick else megabytes))

    def chosen(self):
        for scenario_type in self.scenarios:
            scenario = scenario_type(self)
            for row in scenario.rows():
                if is_chosen(f"{scenario.name}: {row.name}", self.options):
                    yield scenario, row

    def run(self):
        began, ticks = time.monotonic(), ticks_now()
        rows = {}
        for scenario, row in self.chosen():
            rows.setdefault(scenario, []).append(row)
        if not rows:
            sys.exit(no_such_row(self.options))
        earlier = self.earlier(rows)
        for scenario, chosen in rows.items():
            if scenario.name in earlier:
                self.sections.append(earlier[scenario.name])
            else:
                self.section(scenario, chosen)
                wan_report.write_json(self.results, machine(), self.sections, self.failures)
        return self.report(time.monotonic() - began, ticks, earlier)

    def earlier(self, rows):
        """Scenarios by name that a run before this one has measured with the same rows and rounds."""
        if not self.options.resume:
            return {}
        figures = json.loads(Path(self.options.resume).read_text())
        self.failures += figures["failures"]
        self.has_failed = any(", gridlane" in failure for failure in self.failures)
        wanted = {scenario.name: [row.name for row in chosen] for scenario, chosen in rows.items()}
        return {
            section["name"]: section for section in figures["sections"]
            if [row["name"] for row in section["rows"]] == wanted.get(section["name"]) and section["rounds"] == self.rounds
        }

    def section(self, scenario, rows):
        place = scenario.place()
        print(f"\n{scenario.title}", flush=True)
        began = time.monotonic()
        with self.lab_type(self.shelf, place) as lab:
            results = []
            for row in rows:
                results.append(row.measure(lab))
                results[-1]["figures"] = list(results[-1]["figures"])
                for text in wan_report.row_lines(results[-1]):
                    print(text, flush=True)
            lab.checked()
            self.sections.append({
                "name": scenario.name,
                "title": scenario.title,
                "about": list(scenario.about),
                "scenario": place.scenario,
                "network": lab.network.show(),
                "rows": results,
                "rounds": self.rounds,
                "seconds": time.monotonic() - began,
            })

    def report(self, seconds, ticks, earlier):
        options = self.options
        idle, stolen, total = ticks_since(ticks)
        facts = {
            **machine(),
            "gridlane": first_line(options.gridlane, "--version"),
            "xrootd server": first_line("xrootd", "-v"),
            "gfal-copy": first_line("env", "GFAL_PYTHONBIN=/usr/bin/python3", "gfal-copy", "--version"),
            "busy": f"{100 * (1 - idle / total):.0f} % of the CPU time of the whole run, by all programs",
            "stolen": f"{100 * stolen / total:.1f} % of the CPU time, by the hypervisor",
            "duration": f"{seconds / 60:.0f} minutes",
        }
        if earlier:
            facts["in a run before"] = f"{', '.join(earlier)}: {sum(section['seconds'] for section in earlier.values()) / 60:.0f} minutes"
        wan_report.write_json(self.results, facts, self.sections, self.failures)
        print(f"wrote {self.results.relative_to(ROOT)} after {seconds:.0f} s")
        if not (options.is_full or options.page):
            print("no page written: it takes a full run, or --page")
        else:
            page = Path(options.page or ROOT / "docs/performance/wan-faults.md")
            simulated = Path(options.simulated).read_text() if options.simulated else None
            wan_report.write_page(page, self.command(), facts, self.sections, self.failures, simulated)
            print(f"wrote {page}")
        return 1 if self.has_failed else 0

    def command(self):
        chosen = ["--quick"] if self.quick else []
        if self.options.ours:
            chosen.append("--ours")
        chosen += [f'--only "{part}"' for part in self.options.only]
        if self.options.rounds != ROUNDS:
            chosen.append(f"--rounds {self.options.rounds}")
        return make("bench-wan", chosen)


class Plan:
    """In place of files, where only the names of the rows are wanted."""

    work = target = Path("/nowhere/target")
    export = lies = work
    binary = authority = ""

    def file(self, size, directory=None):
        return self.target

    def write(self, name, text):
        return self.work / name


def first_line(*command):
    if not shutil.which(command[0]):
        return "missing"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return ((done.stdout or done.stderr).strip().splitlines() or ["unknown"])[0]


if __name__ == "__main__":
    sys.exit(main())

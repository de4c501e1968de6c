"""Runs scenarios in tests, and looks for what they have left."""

import json
import subprocess
import sys
from pathlib import Path

import fakes

from gridlane_lab import matrix, record, registry, scenario
from gridlane_lab.driver import RunnerOptions
from gridlane_lab.pathcheck import Tolerance
from gridlane_lab.runner import LabRunner

MEMORY = Path("/dev/shm")

# Both cores may be busy with other things.
PATIENT = Tolerance(round_trip_s=0.5, rate_least_ratio=0.2, tries=5)


def load(path, text):
    path.write_text(text)
    registry.load()
    fakes.register()
    return scenario.load(path, "smoke")


class Lab:
    """One run of a scenario in a directory of its own."""

    def __init__(self, tmp_path, text, gridlane, tolerance=PATIENT, name="run"):
        self.whole = load(tmp_path / f"{name}.toml", text)
        self.cells = matrix.expand(self.whole, registry.capabilities()).cells
        self.directory = record.RunDirectory.create(tmp_path / name, self.whole.to_json(), text)
        self.options = RunnerOptions(gridlane, MEMORY)
        self.tolerance = tolerance
        self.rows = []

    def run(self):
        """All blocks; the rows."""
        with self.directory, self.runner() as runner:
            for row in runner.environment():
                self.keep(row)
            self.directory.commit(None)
            for turns in matrix.schedule(self.whole, self.cells):
                for row in runner.run_block(turns):
                    self.keep(row)
                self.directory.commit(turns[0].block)
            self.directory.finish()
        return self.rows

    def runner(self):
        return LabRunner(
            self.whole,
            self.cells,
            self.directory,
            record.new_id(),
            self.options,
            lambda turn, phase: None,
            self.tolerance,
        )

    def keep(self, row):
        self.directory.append(row)
        self.rows.append(row)

    def of(self, kind):
        return [row for row in self.rows if isinstance(row, kind)]

    def runs(self, **levels):
        """The runs of a cell."""
        return [
            row
            for row in self.of(record.Run)
            if all(json.loads(row.variant_json)[name] == level for name, level in levels.items())
        ]

    def transfers(self, run):
        return [row for row in self.of(record.Transfer) if row.run_id == run.run_id]


def last_record(path):
    """What a run says that it has made."""
    return json.loads(path.read_text().splitlines()[-1])


def leftovers(state):
    """What is there that a run should have removed."""
    found = [str(path) for path in state.glob("lab-*.json")]
    names = {path.stem for path in state.glob("lab-*.json")}
    found += [str(path) for path in MEMORY.glob("gridlane-lab-*") if path.name.removeprefix("gridlane-") in names]
    return found


def processes_naming(text):
    """Command lines of processes that name something."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def command(*words):
    """The command line of the lab, with the tools of the tests."""
    return [sys.executable, str(Path(__file__).with_name("lab_main.py")), *map(str, words)]


def network_is_up(gridlane, name):
    done = subprocess.run([gridlane, "wan", "show", "--name", name, "--json"], capture_output=True, check=False)
    return done.returncode == 0

"""What a run has made on this machine, so that it is removed whatever happens: by the run itself, or by the next one.

A run keeps a record of its networks, processes and directories, and a lock on the record as long as it lives. A record
whose lock is free is of a run that was killed: what it names is ended and removed before anything else begins.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, TextIO

from gridlane_lab import network, processes
from gridlane_lab.errors import ExitCode, LabError

# Variables that move the records, and the directory of files on disk.
STATE_VARIABLE = "GRIDLANE_LAB_STATE"
DISK_VARIABLE = "GRIDLANE_LAB_DISK"


def state_directory() -> Path:
    """Where the records of this user's runs are."""
    named = os.environ.get(STATE_VARIABLE)
    if named:
        path = Path(named)
    elif os.getuid() == 0:
        path = Path("/run/gridlane-lab")
    elif os.environ.get("XDG_RUNTIME_DIR"):
        path = Path(os.environ["XDG_RUNTIME_DIR"]) / "gridlane-lab"
    else:
        path = Path(tempfile.gettempdir()) / f"gridlane-lab-{os.getuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def disk_directory() -> Path:
    """Where files on disk are."""
    return Path(os.environ.get(DISK_VARIABLE, "/var/tmp"))


class Workspace:
    """Directories for one run, and the record of what is to be removed. Use it in a `with`."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self.state = state_directory()
        self.name = f"lab-{os.getpid()}-{secrets.token_hex(3)}"
        self._record_path = self.state / f"{self.name}.json"
        self._record: dict[str, Any] = {"process": os.getpid(), "networks": [], "processes": [], "directories": []}
        self._lock: TextIO | None = None
        self._turn: TextIO | None = None

    def __enter__(self) -> Workspace:
        self._turn = _take_turn(self.state)
        sweep(self.state)
        self._lock = open(self._record_path, "w", encoding="utf-8")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._write()
        # In memory and on disk: other users, as which servers work, go through; the keys inside are their owner's only.
        try:
            self.memory = self._directory(self._work / f"gridlane-{self.name}", "name another place with --work")
            self.disk = self._directory(
                disk_directory() / f"gridlane-{self.name}-disk", f"name another place with {DISK_VARIABLE}"
            )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        _remove(self._record)
        self._record_path.unlink(missing_ok=True)
        for file in (self._lock, self._turn):
            if file is not None:
                file.close()
        self._lock = self._turn = None

    def add_network(self, gridlane: str, name: str) -> None:
        """Before a network is made."""
        self._record["networks"].append([gridlane, name])
        self._write()

    def remove_network(self, name: str) -> None:
        """After it has gone down."""
        self._record["networks"] = [entry for entry in self._record["networks"] if entry[1] != name]
        self._write()

    def add_process(self, pid: int) -> None:
        """After a process was started that may outlive this one by a moment."""
        known = [entry for entry in self._record["processes"] if processes.start_ticks(entry[0]) == entry[1]]
        self._record["processes"] = [*known, [pid, processes.start_ticks(pid)]]
        self._write()

    def _directory(self, path: Path, hint: str) -> Path:
        self._record["directories"].append(str(path))
        self._write()
        try:
            path.mkdir(mode=0o711)
            path.chmod(0o711)
        except OSError as error:
            raise LabError(
                f"no directory can be made here: {error.strerror}",
                where=str(path.parent),
                hint=hint,
                code=ExitCode.NO_SPACE,
            ) from None
        return path

    def _write(self) -> None:
        if self._lock is None:
            return
        # Behind what was there, because the lock is on this file: the last whole line counts, whenever the end comes.
        self._lock.write(json.dumps(self._record) + "\n")
        self._lock.flush()


def _take_turn(state: Path) -> TextIO:
    """Two runs at once on one machine would measure each other."""
    turn = open(state / "turn", "a+", encoding="utf-8")  # noqa: SIM115
    try:
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        turn.seek(0)
        holder = turn.read().strip() or "another process"
        turn.close()
        raise LabError(
            f"{holder} is measuring on this machine, and two runs would measure each other",
            hint="wait for it",
            code=ExitCode.BUSY,
        ) from None
    turn.seek(0)
    turn.truncate()
    turn.write(f"process {os.getpid()}")
    turn.flush()
    return turn


def sweep(state: Path | None = None) -> list[str]:
    """Ends and removes what runs have left that were killed; their names."""
    swept = []
    for path in sorted((state or state_directory()).glob("lab-*.json")):
        with open(path, encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            _remove(_last_record(file.read()))
            path.unlink(missing_ok=True)
            swept.append(path.stem)
    return swept


def _last_record(text: str) -> dict[str, Any]:
    for line in reversed(text.splitlines()):
        try:
            record: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        return record
    return {}


def _remove(record: dict[str, Any]) -> None:
    for pid, started in record.get("processes", []):
        # The number may be another process's by now.
        if started is not None and processes.start_ticks(pid) == started:
            for each, _ in [*processes.descendants(pid), (pid, started)]:
                try:
                    os.kill(each, signal.SIGKILL)
                except ProcessLookupError:
                    pass
    for gridlane, name in record.get("networks", []):
        network.take_down(gridlane, name)
    for directory in record.get("directories", []):
        shutil.rmtree(directory, ignore_errors=True)

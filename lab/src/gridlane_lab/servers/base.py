"""A server as a process at a site: started without waiting, ready when it listens, ended with all below it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gridlane_lab import processes
from gridlane_lab.driver import Export, RunningServer, Site
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.scenario import Option

# How much of a log an error shows.
_TAIL_BYTES = 2000


class ProcessServer(RunningServer):
    """Runs a command at a site. `ports` are those that have to listen before it is ready."""

    def __init__(
        self,
        site: Site,
        export: Export,
        command: Sequence[object],
        urls: Mapping[str, str],
        ports: Sequence[int],
        environment: Mapping[str, str] | None = None,
        own_log: Path | None = None,
    ) -> None:
        self.urls = urls
        self._command = site.command(list(map(str, command)))
        self._ports = set(ports)
        self._scratch = export.scratch
        self._log = export.scratch / "log"
        self._own_log = own_log
        self._environment = _clean_environment(export.scratch) | dict(environment or {})
        self._ended_cpu_s = self._cpu_s = 0.0
        self._peak_bytes = 0
        self.restart()

    def restart(self) -> None:
        """Starts it, also when it has been killed."""
        with open(self._log, "ab") as log:
            self.process = processes.start(
                self._command, stdout=log, stderr=subprocess.STDOUT, env=self._environment, cwd=self._scratch
            )

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def trouble(self) -> str | None:
        """Why it does not answer; None when all its ports listen."""
        code = self.process.poll()
        if code is not None:
            return f"it ended with {code}: {self.log_tail().strip() or 'and said nothing'}"
        missing = self._ports - processes.listening_ports(self.process.pid)
        return f"nothing listens at port {', '.join(map(str, sorted(missing)))} yet" if missing else None

    def cpu_s(self) -> float:
        """CPU time of all its processes, of earlier ones as well. It never goes back: that of a child which has
        ended is counted in whole ticks."""
        self._cpu_s = max(self._cpu_s, self._ended_cpu_s + processes.cpu_of_all_s(self.process.pid))
        return self._cpu_s

    def peak_memory_bytes(self) -> int:
        """The most that its processes have had resident."""
        self._peak_bytes = max(self._peak_bytes, processes.peak_memory_bytes(self.process.pid))
        return self._peak_bytes

    def kill(self) -> None:
        """Ends it at once."""
        self._remember()
        processes.kill(self.process)

    def stop(self) -> None:
        """Ends it, and waits."""
        self._remember()
        processes.end(self.process)

    def log_tail(self) -> str:
        """The end of what it said."""
        logs = [self._log]
        if self._own_log is not None:
            # Some put the name of an instance before the file's.
            logs += sorted(self._own_log.parent.rglob(self._own_log.name))
        return "".join(_tail(log) for log in logs)

    def _remember(self) -> None:
        """What is known only as long as the process is there."""
        if self.process.poll() is None:
            self.peak_memory_bytes()
            self._ended_cpu_s = self.cpu_s()


def texts(options: Mapping[str, Option], name: str) -> list[str]:
    """The value of an option that takes one text or several."""
    value = options.get(name, [])
    return [str(part) for part in value] if isinstance(value, list) else [str(value)]


def check_options(options: Mapping[str, Option], known: Sequence[str], driver: str) -> None:
    """Refuses options that the driver does not know."""
    for name in options:
        if name not in known:
            raise LabError(
                f"the server driver {driver} has no option {name!r}",
                hint=f"it has: {', '.join(known) or 'none'}",
                code=ExitCode.USAGE,
            )


def _clean_environment(scratch: Path) -> dict[str, str]:
    """Without what a user's configuration would change."""
    path = os.environ.get("PATH", os.defpath)
    return {
        "PATH": f"{path}:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": str(scratch),
        "LANG": "C.UTF-8",
        "XDG_DATA_HOME": str(scratch),
        "XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR", ""),
    }


def _tail(log: Path) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""

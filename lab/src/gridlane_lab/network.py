"""An emulated network of `gridlane wan`, held by one process as long as this one runs.

Of the standard library only: `bench/` uses it as well.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gridlane_lab import processes


class NetworkError(Exception):
    """It does not come up, or does not do what it was told. `code` is an exit code of `gridlane`."""

    def __init__(self, what: str, code: int = 1, hint: str = "") -> None:
        super().__init__(what)
        self.code = code
        self.hint = hint


class Network:
    """Up until `down`, or until this process ends, however that happens."""

    def __init__(self, gridlane: str, name: str, scenario: Path, backend: str = "tun") -> None:
        self.name = name
        self._gridlane = gridlane
        # In the foreground: it goes down when its parent dies, and takes everything inside along.
        command = [gridlane, "wan", "up", str(scenario), "--name", name, "--foreground", "--json", "--backend", backend]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = processes.start(command, stdout=subprocess.PIPE, stderr=self._errors)
        try:
            self._take_first_line()
        except BaseException:
            self.down()
            raise

    def _take_first_line(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        first = json.loads(line) if line.startswith(b"{") else {}
        if not line or "error" in first:
            told = first.get("error") or {}
            code = self.process.wait()
            self._errors.seek(0)
            errors = self._errors.read().decode(errors="replace").strip()
            what = told.get("message") or errors or f"`gridlane wan up` ended with {code}"
            raise NetworkError(
                f"the emulated network does not come up: {what}", told.get("code") or code, told.get("hint") or ""
            )

    def at(self, site: str, *command: object) -> list[str]:
        """The command as it runs at a site. `wan exec` becomes the command: same process."""
        return [self._gridlane, "wan", "exec", "--name", self.name, site, "--", *map(str, command)]

    def show(self) -> dict[str, Any]:
        """Sites, paths, links and counters (docs/reference/json-events.md)."""
        command = [self._gridlane, "wan", "show", "--name", self.name, "--json"]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            raise NetworkError(f"the emulated network is gone: {done.stderr.decode(errors='replace').strip()}")
        state: dict[str, Any] = json.loads(done.stdout)
        return state

    def set(self, link: str, *options: str) -> None:
        """Changes a link while traffic runs."""
        command = [self._gridlane, "wan", "set", "--name", self.name, link, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NetworkError(f"the link {link} does not change: {done.stderr.strip()}")

    def down(self) -> None:
        """Ends it with everything inside, also when it died. Safe to call twice."""
        processes.end(self.process)
        for file in (self.process.stdout, self._errors):
            if file is not None:
                file.close()
        take_down(self._gridlane, self.name)

    def connections(self, site: str, port: int) -> list[dict[str, Any]]:
        """The connections of a server at a site."""
        return connections(port, lambda command: self.at(site, *command))


def connections(port: int, at: Callable[[Sequence[str]], list[str]] = list) -> list[dict[str, Any]]:
    """The connections of the server at a port, from `ss`: of each its other end, IP version, congestion control and the
    bytes that the server has sent. `at` makes a command one that runs where the server is."""
    command = at(["ss", "-Htni", "state", "established", "sport", "=", f":{port}"])
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return []
    return connections_in(shown)


def connections_in(shown: str) -> list[dict[str, Any]]:
    """What `ss -Htni` prints, by connection: a line that begins with a number, and one with what is known of it."""
    found: list[dict[str, Any]] = []
    for line in shown.splitlines():
        if line[:1].isdigit():
            family = 6 if "[" in line and "[::ffff:" not in line else 4
            found.append({"peer": line.split()[3], "family": family, "sent_bytes": 0})
        elif found:
            control = re.match(r"\s*(?:ts |sack |ecn |ecnseen )*(\w+)", line)
            sent = re.search(r"\bbytes_sent:(\d+)", line)
            found[-1]["congestion_control"] = control.group(1) if control else "unknown"
            found[-1]["sent_bytes"] = int(sent[1]) if sent else 0
    return found


def take_down(gridlane: str, name: str) -> None:
    """Removes a network, or what is left of one. Nothing to say when there is nothing left."""
    command: Sequence[str] = [gridlane, "wan", "down", "--name", name, "--quiet"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

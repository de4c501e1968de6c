"""Processes under measurement: none outlives the program that started it, and what they and all below them have cost.

Of the standard library only: `bench/` and `demo/` use it as well.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_running: list[subprocess.Popen[Any]] = []

# Programs that distributions keep out of a user's PATH.
_MORE_DIRECTORIES = "/usr/local/sbin:/usr/sbin:/sbin"


# --- Starting and ending ------------------------------------------------------------------------------------------


def _die_with_parent() -> None:
    # Linux: even when the parent is killed, nothing stays behind. Not SIGKILL: nginx must end its workers.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def start(command: Sequence[Any], **options: Any) -> subprocess.Popen[Any]:
    """Starts a process that does not outlive this one. Only from the main thread: the end of any other ends it."""
    options.setdefault("stdin", subprocess.DEVNULL)
    # An interrupt at the terminal is for this program, which ends the others in order.
    options.setdefault("start_new_session", True)
    process = subprocess.Popen(list(map(str, command)), preexec_fn=_die_with_parent, **options)
    _running.append(process)
    return process


def end(process: subprocess.Popen[Any], patience_s: float = 3.0) -> None:
    """Ends a process that `start` started, with all below it. Safe to call twice."""
    below = descendants(process.pid) if process.poll() is None else []
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pid, started in below:
        if start_ticks(pid) == started:
            _signal(pid, signal.SIGKILL)
    if process in _running:
        _running.remove(process)


def kill(process: subprocess.Popen[Any]) -> None:
    """Ends a process as a crash would: at once, with all below it."""
    if process.poll() is None:
        for pid, _ in [*descendants(process.pid), (process.pid, 0)]:
            _signal(pid, signal.SIGKILL)
    process.wait()


def kill_all() -> None:
    """Ends every process that was started, the last ones (clients) first."""
    for process in reversed(_running):
        if process.poll() is None:
            process.terminate()
    for process in reversed(_running):
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def clean_up(directory: Path) -> None:
    """Leaves nothing: no process that was started, not the directory. Impatience does not stop it half-way."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    kill_all()
    shutil.rmtree(directory, ignore_errors=True)


def exit_on_signals() -> None:
    """Makes termination an ordinary exit, so that `finally` cleans up."""
    # A shell starts background jobs with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, _: sys.exit(128 + number))


def find(program: str) -> str | None:
    """The path of a program, also of those that are not for ordinary users."""
    path = os.environ.get("PATH", os.defpath)
    return shutil.which(program, path=f"{path}:{_MORE_DIRECTORIES}")


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since the machine did: with the number it is one process only."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


# --- What they cost -----------------------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    """The processes that any thread of a process has started, and that have not ended."""
    found = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (thread / "children").read_text().split()]
    except OSError:
        pass
    return found


def descendants(pid: int) -> list[tuple[int, int | None]]:
    """All processes below one, the lowest first, each with its `start_ticks`."""
    found: list[tuple[int, int | None]] = []
    for child in children(pid):
        found += [*descendants(child), (child, start_ticks(child))]
    return found


def cpu_of_all_s(pid: int) -> float:
    """CPU time of a process, of all below it, and of those below it that have ended."""
    try:
        # The clock of the process, as clock_getcpuclockid(3) makes it, is finer than ticks, and has the threads that
        # have ended; of the children that it has waited for there are ticks.
        own = time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0
    fields = _stat(pid)
    ended = 0.0 if fields is None else (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return own + ended + sum(map(cpu_of_all_s, children(pid)))


def peak_memory_bytes(pid: int) -> int:
    """The most memory that a process and all that is below it now have had resident; 0 if it has ended."""
    return peak_of_one_bytes(pid) + sum(map(peak_memory_bytes, children(pid)))


def peak_of_one_bytes(pid: int) -> int:
    """The most memory that a process alone has had resident; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat behind the name and the state, numbered as in proc(5) less 3."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def settled(clock: Any, still_s: float = 0.03, limit_s: float = 3.0, least_s: float = 0.001) -> float:
    """The value of a clock of CPU time when its processes do nothing any more: what they do after the client has its
    bytes belongs to it. After `limit_s` they are busy with something else."""
    limit = time.monotonic() + limit_s
    before: float = clock()
    while True:
        time.sleep(still_s)
        now: float = clock()
        if now - before < least_s or time.monotonic() > limit:
            return now
        before = now


# --- The machine --------------------------------------------------------------------------------------------------


def ticks_now() -> tuple[int, int, int]:
    """Clock ticks idle, stolen by the hypervisor, and all, since the machine started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[3] + ticks[4], ticks[7], sum(ticks)


def ticks_since(ticks: Iterable[int]) -> tuple[int, ...]:
    """The same since an earlier moment."""
    return tuple(now - then for then, now in zip(ticks, ticks_now(), strict=True))


def listening_ports(pid: int) -> set[int]:
    """The TCP ports that listen in the network of a process, whichever namespace that is."""
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A":
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def interface_bytes(pid: int) -> dict[str, tuple[int, int]]:
    """Interface → bytes received and sent so far, in the network of a process."""
    try:
        lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, counters = line.partition(":")
        fields = counters.split()
        found[name.strip()] = (int(fields[0]), int(fields[8]))
    return found

#!/usr/bin/env python3
"""Runs commands where they are to run, and times them there, so that entering a place is not in the figures.

Started as `agent.py FD` with a connected socket: one JSON object a line in each direction. An order has `id` and `op`;
answers have the same `id`. `run` is answered twice: when the command has begun, and when it has ended. Everything that
an agent has started ends with it, and it ends with the program that holds the other end of the socket.

Of the standard library only, and of no other module of the lab: it starts in 30 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

# Lines of events that are kept of a run. Those of single files of a tree are many and say little.
EVENTS_MAX = 2000
# A line that is longer is no event, and lines that are more in all are in the file only: the rest of a tool's output is
# as long as it likes, and must not be as much memory. Summaries come last, and have half of it for themselves.
EVENT_BYTES_MAX = 1 << 18
EVENTS_BYTES_MAX = 1 << 24

# How often the rate of a slow disk is looked after, and how much a process may be ahead of it.
PACE_EVERY_S = 0.005

# Tells that the work has begun, and more that is known by then.
Begun = Callable[..., None]

_IN_MODIFY = 0x2
_IN_NONBLOCK = 0o4000
_libc = ctypes.CDLL(None, use_errno=True)


class Agent:
    """Takes orders until the socket is closed."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._writing = threading.Lock()
        self._guard = threading.Lock()
        self._groups: dict[int, int] = {}
        self._is_ending = False
        self._watcher = Watcher()

    def serve(self) -> None:
        """Carries out orders, each in a thread of its own."""
        # The other end may be gone with answers that it has not read.
        with contextlib.suppress(OSError), self._channel.makefile("r") as lines:
            for line in lines:
                order = json.loads(line)
                threading.Thread(target=self._carry_out, args=(order,), daemon=True).start()
        self.end()

    def end(self) -> None:
        """Ends everything that runs."""
        with self._guard:
            self._is_ending = True
            for group in self._groups.values():
                _kill(group)

    def _answer(self, value: dict[str, Any]) -> None:
        with self._writing, contextlib.suppress(OSError):
            self._channel.sendall((json.dumps(value) + "\n").encode())

    def _carry_out(self, order: dict[str, Any]) -> None:
        number = order.pop("id")

        def begun(**facts: Any) -> None:
            self._answer({"id": number, "event": "begun", **facts})

        op = order.pop("op")
        try:
            if op == "run":
                answer = self._run(number, begun, **order)
            elif op == "kill":
                answer = self._kill(**order)
            else:
                answer = _OPERATIONS[op](begun=begun, **order)
        except OSError as error:
            answer = {"error": f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")}
        self._answer({"id": number, "event": "ended", **answer})

    def _run(
        self,
        number: int,
        begun: Begun,
        command: list[str],
        environment: dict[str, str],
        limit_s: float,
        stdout: str,
        stderr: str,
        json_lines: bool = False,
        watch: str | None = None,
        rate_bytes_per_s: float | None = None,
    ) -> dict[str, Any]:
        """Runs a command: its time, its CPU, its memory, how it ended, when the first bytes were in its target."""
        to_file = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        files: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, stderr, to_file, 0o644),
        ]
        events: list[tuple[int, str]] = []
        reader, its_output = None, -1
        if json_lines:
            output, its_output = os.pipe()
            files.append((os.POSIX_SPAWN_DUP2, its_output, 1))
            reader = threading.Thread(target=_read_lines, args=(output, stdout, events), daemon=True)
            reader.start()
        else:
            files.append((os.POSIX_SPAWN_OPEN, 1, stdout, to_file, 0o644))
        first = self._watcher.add(watch) if watch else None
        with self._guard:
            if self._is_ending:
                raise ProcessLookupError("the agent ends")
            started_ns = time.monotonic_ns()
            try:
                # A group of its own: what it starts ends with it.
                pid = os.posix_spawnp(command[0], command, environment, file_actions=files, setpgroup=0)
            finally:
                if json_lines:
                    os.close(its_output)
            self._groups[number] = pid
        begun(pid=pid, started_ns=started_ns)
        cut = threading.Event()

        def cut_off() -> None:
            cut.set()
            _kill(pid)

        timer = threading.Timer(limit_s, cut_off)
        timer.daemon = True
        timer.start()
        ended = threading.Event()
        peak = [0]
        if rate_bytes_per_s:
            threading.Thread(target=_pace, args=(pid, rate_bytes_per_s, ended), daemon=True).start()
        threading.Thread(target=_watch_memory, args=(pid, ended, peak), daemon=True).start()
        if rate_bytes_per_s:
            # A write that blocks would have kept it until its disk had everything.
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            left_s = _written(pid) / rate_bytes_per_s - (time.monotonic_ns() - started_ns) / 1e9
            if left_s > 0 and not cut.is_set():
                time.sleep(left_s)
        _, status, usage = os.wait4(pid, 0)
        closed_ns = time.monotonic_ns()
        ended.set()
        timer.cancel()
        with self._guard:
            del self._groups[number]
        # What it has left behind ends too.
        _kill(pid)
        if reader:
            reader.join(5)
        return {
            "started_ns": started_ns,
            "closed_ns": closed_ns,
            "first_byte_ns": self._watcher.found(first),
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "memory_bytes": _memory(usage.ru_maxrss * 1024, peak[0]),
            "code": os.waitstatus_to_exitcode(status),
            "cut_off": cut.is_set(),
            "events": [[(at - started_ns) / 1e9, line] for at, line in events],
        }

    def _kill(self, what: int, signal_number: int = signal.SIGKILL) -> dict[str, Any]:
        with self._guard:
            if what in self._groups:
                _kill(self._groups[what], signal_number)
        return {}


class Watcher:
    """Tells when a file in a directory was written to for the first time, by the kernel's word: nothing is polled."""

    # Notes of tools beside their targets are no bytes of the file.
    _NOTES = (b".aria2", b".aria2__temp", b".meta4", b".metalink", b".json", b".log")

    def __init__(self) -> None:
        self._inotify = _libc.inotify_init1(os.O_CLOEXEC | _IN_NONBLOCK)
        self._found: dict[int, int] = {}
        self._paths: dict[int, bytes] = {}
        if self._inotify >= 0:
            threading.Thread(target=self._look, daemon=True).start()

    def add(self, directory: str) -> int | None:
        """Begins to watch; the number is for `found`."""
        if self._inotify < 0:
            return None
        path = os.fsencode(directory)
        watch = int(_libc.inotify_add_watch(self._inotify, path, _IN_MODIFY))
        if watch < 0:
            return None
        self._paths[watch] = path
        return watch

    def found(self, watch: int | None) -> int | None:
        """When the first bytes came, in nanoseconds of the monotonic clock; ends watching."""
        if watch is None:
            return None
        # What happened in the last moment is told in a moment.
        if watch not in self._found:
            time.sleep(0.002)
        if self._paths.pop(watch, None) is not None and watch not in self._found:
            _libc.inotify_rm_watch(self._inotify, watch)
        return self._found.pop(watch, None)

    def _look(self) -> None:
        while True:
            select.select([self._inotify], [], [])
            now = time.monotonic_ns()
            try:
                buffer = os.read(self._inotify, 1 << 16)
            except OSError:
                continue
            at = 0
            while at < len(buffer):
                watch, mask, _, length = struct.unpack_from("iIII", buffer, at)
                name = buffer[at + 16 : at + 16 + length].rstrip(b"\0")
                at += 16 + length
                if mask & _IN_MODIFY and watch not in self._found and not name.endswith(self._NOTES):
                    path = self._paths.get(watch)
                    if path is not None and _has_blocks(os.path.join(path, name)):
                        self._found[watch] = now
                        _libc.inotify_rm_watch(self._inotify, watch)


def _has_blocks(path: bytes) -> bool:
    try:
        return os.stat(path).st_blocks > 0
    except OSError:
        # Renamed since.
        return True


def _kill(group: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _read_lines(output: int, copy: str, events: list[tuple[int, str]]) -> None:
    """Keeps lines with the time when they came, and all of them in a file."""
    kept, begins_line = 0, True
    with open(output, "rb") as lines, open(copy, "wb") as whole:
        while line := lines.readline(EVENT_BYTES_MAX):
            now = time.monotonic_ns()
            whole.write(line)
            is_event = begins_line and line.startswith(b"{") and len(line) < EVENT_BYTES_MAX
            begins_line = line.endswith(b"\n")
            is_summary = b'"summary"' in line
            room = EVENTS_BYTES_MAX if is_summary else EVENTS_BYTES_MAX // 2
            if is_event and kept + len(line) <= room and (len(events) < EVENTS_MAX or is_summary):
                kept += len(line)
                events.append((now, line.decode(errors="replace")))


def _memory(by_usage: int, by_looking: int) -> int | None:
    """The most that a command had resident. The kernel's figure begins with what the agent had when it started the
    command: below that it says nothing, and what was seen now and then counts."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return by_usage if by_usage > 1.1 * own else by_looking or None


def _watch_memory(pid: int, ended: threading.Event, peak: list[int]) -> None:
    wait_s = 0.02
    while not ended.wait(wait_s):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("VmHWM"):
                    peak[0] = max(peak[0], 1024 * int(line.split()[1]))
        wait_s = min(1.0, 2 * wait_s)


def _pace(pid: int, rate_bytes_per_s: float, ended: threading.Event) -> None:
    """Stops the processes of a group while they have written more than a disk of this rate had taken: as a write that
    blocks would."""
    began = time.monotonic()
    is_stopped = False
    ahead = max(1 << 18, rate_bytes_per_s * 2 * PACE_EVERY_S)
    while not ended.wait(PACE_EVERY_S):
        is_ahead = _written(pid) > (time.monotonic() - began) * rate_bytes_per_s + ahead
        if is_ahead != is_stopped:
            _kill(pid, signal.SIGSTOP if is_ahead else signal.SIGCONT)
            is_stopped = is_ahead
    if is_stopped:
        _kill(pid, signal.SIGCONT)


def _written(pid: int) -> int:
    """Bytes that a process and what it has started have written; those to sockets are few in a client that reads."""
    total = 0
    with contextlib.suppress(OSError, ValueError):
        with open(f"/proc/{pid}/io") as counters:
            total = next(int(line.split()[1]) for line in counters if line.startswith("wchar"))
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as children:
                total += sum(_written(int(child)) for child in children.read().split())
    return total


# --- Looking at paths ---------------------------------------------------------------------------------------------


def connect(begun: Begun, host: str, port: int, timeout_s: float = 2.0) -> dict[str, Any]:
    """Whether a server listens there, over every address of the name; and how long it took to find out."""
    began = time.monotonic()
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.settimeout(timeout_s)
                began = time.monotonic()
                probe.connect(address)
    except OSError as error:
        return {"error": str(error)}
    return {"error": None, "seconds": time.monotonic() - began}


def echo(begun: Begun, host: str, count: int, wait_s: float) -> dict[str, Any]:
    """Sends packets back until `count` have come, or none comes any more."""
    with socket.socket(_family(host), socket.SOCK_DGRAM) as server:
        server.bind((host, 0))
        begun(port=server.getsockname()[1])
        server.settimeout(wait_s)
        done = 0
        while done < count:
            try:
                packet, peer = server.recvfrom(2048)
            except TimeoutError:
                break
            server.sendto(packet, peer)
            done += 1
    return {"packets": done}


def ping(begun: Begun, host: str, port: int, count: int, every_s: float, wait_s: float) -> dict[str, Any]:
    """Round trips to an `echo`, in seconds; packets that do not come back within `wait_s` are lost."""
    sent: dict[int, float] = {}
    trips: list[float] = []
    with socket.socket(_family(host), socket.SOCK_DGRAM) as client:
        client.connect((host, port))
        due = time.monotonic()
        limit = due + count * every_s + wait_s
        while len(trips) < count and (now := time.monotonic()) < limit:
            if len(sent) < count and now >= due:
                number = len(sent)
                sent[number] = time.monotonic()
                client.send(struct.pack("!I", number) + bytes(60))
                due += every_s
            ready_until = due if len(sent) < count else limit
            client.settimeout(max(0.0005, ready_until - time.monotonic()))
            with contextlib.suppress(TimeoutError):
                packet = client.recv(2048)
                trips.append(time.monotonic() - sent[struct.unpack_from("!I", packet)[0]])
    return {"round_trips_s": trips, "lost": count - len(trips)}


# Of Linux: many packets in one call, each way.
_UDP_SEGMENT, _UDP_GRO = 103, 104
# SO_TIMESTAMPNS, and what it adds to a packet.
_TIMESTAMPS = 35
_SEGMENTS = 40
# Of one datagram over IPv4, without its headers.
_DATAGRAM_BYTES_MAX = 65_507


def sink(begun: Begun, host: str, payload_bytes: int, wait_s: float) -> dict[str, Any]:
    """Counts the packets of a `flood`, from the first to the last, until none has come for `wait_s`."""
    arrivals: list[tuple[float, int]] = []
    with socket.socket(_family(host), socket.SOCK_DGRAM) as server:
        with contextlib.suppress(OSError):
            server.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        with contextlib.suppress(OSError):
            server.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        # The kernel's own time of each arrival: this process may be waiting for a core.
        server.setsockopt(socket.SOL_SOCKET, _TIMESTAMPS, 1)
        server.bind((host, 0))
        begun(port=server.getsockname()[1])
        server.settimeout(10 + wait_s)
        into = bytearray(1 << 16)
        while True:
            try:
                count, notes, _, _ = server.recvmsg_into([into], 128)
            except TimeoutError:
                break
            arrivals.append((_arrival(notes), count))
            server.settimeout(wait_s)
    if len(arrivals) < 8:
        return {"packets": sum(count for _, count in arrivals) // payload_bytes, "packets_per_s": None}
    # The first tenth is left out: the queue fills, and what comes together has one time.
    begin = len(arrivals) // 10
    packets = sum(count for _, count in arrivals[begin + 1 :]) / payload_bytes
    seconds = arrivals[-1][0] - arrivals[begin][0]
    total = sum(count for _, count in arrivals) // payload_bytes
    return {"packets": total, "packets_per_s": packets / seconds if seconds > 0 else None}


def _arrival(notes: list[tuple[int, int, bytes]]) -> float:
    for level, kind, value in notes:
        if level == socket.SOL_SOCKET and kind == _TIMESTAMPS and len(value) >= 16:
            seconds, nanoseconds = struct.unpack_from("qq", value)
            return float(seconds) + nanoseconds / 1e9
    return time.time()


def flood(
    begun: Begun, host: str, port: int, payload_bytes: int, packets_per_s: float, duration_s: float
) -> dict[str, Any]:
    """Sends packets at a rate, in small bunches. `late_s` is the most that it was behind: this process may have waited
    for a core."""
    sent, late_s = 0, 0.0
    with socket.socket(_family(host), socket.SOCK_DGRAM) as client:
        with contextlib.suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, 32, 8 << 20)  # SO_SNDBUFFORCE
        client.connect((host, port))
        # What is handed over at once is one datagram to the kernel, and has no more bytes than one.
        bunch = max(1, min(_SEGMENTS, int(packets_per_s / 1000), _DATAGRAM_BYTES_MAX // payload_bytes))
        try:
            client.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, payload_bytes)
        except OSError:
            bunch = 1
        block = bytes(payload_bytes * bunch)
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < duration_s:
            if sent > elapsed * packets_per_s:
                time.sleep(0.0005)
                continue
            late_s = max(late_s, elapsed - sent / packets_per_s)
            with contextlib.suppress(OSError):
                client.send(block)
            sent += bunch
    return {"packets": sent, "late_s": late_s}


def load(begun: Begun, host: str, port: int, rate_bits_per_s: float, duration_s: float) -> dict[str, Any]:
    """Sends over one TCP connection, at most at a rate."""
    sent, block = 0, bytes(1 << 16)
    with socket.create_connection((host, port), 10) as connection:
        connection.settimeout(1)
        began = time.monotonic()
        begun()
        while (elapsed := time.monotonic() - began) < duration_s:
            if sent > elapsed * rate_bits_per_s / 8:
                time.sleep(0.001)
                continue
            try:
                sent += connection.send(block)
            except TimeoutError:
                continue
            except OSError:
                break
        return {"bytes": sent, "seconds": time.monotonic() - began}


def drain(begun: Begun, host: str, wait_s: float) -> dict[str, Any]:
    """Takes what `load` sends, from one connection."""
    received = 0
    with socket.socket(_family(host), socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        listener.listen(1)
        listener.settimeout(10)
        begun(port=listener.getsockname()[1])
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(wait_s)
            into = bytearray(1 << 18)
            with contextlib.suppress(OSError):
                while count := connection.recv_into(into):
                    received += count
    return {"bytes": received}


def read_files(begun: Begun, paths: list[str]) -> dict[str, Any]:
    """What settings are here, where they may differ from those of the host."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError), open(path) as file:
            found[path] = file.read().strip()
    return {"files": found}


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


_OPERATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "connect": connect,
    "echo": echo,
    "ping": ping,
    "sink": sink,
    "flood": flood,
    "load": load,
    "drain": drain,
    "read": read_files,
}


def main() -> None:
    """Until the other end of the socket is closed."""
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        agent = Agent(channel)

        def end(number: int, _: Any) -> None:
            agent.end()
            os._exit(128 + number)

        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(name, end)
        agent.serve()
    os._exit(0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs clients inside the client's namespace and times them there, so that entering it is not in the figures.

Started by bench/wan_sites.py with a connected socket: `wan_client.py FD`. One JSON object a line in each direction; a run
is answered twice, when it has begun and when it has ended.
"""

import json
import os
import signal
import socket
import sys
import threading
import time

_client = 0  # the process that runs now

# Lines of events that are kept of a run. Those of single files of a tree are many and say little.
_EVENTS_MAX = 2000


def main():
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, end)
    signal.signal(signal.SIGALRM, lambda *_: kill())
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rw") as lines:
        def answer(value):
            lines.write(json.dumps(value) + "\n")
            lines.flush()

        for line in lines:
            order = json.loads(line)
            answer(run(answer, **order) if "command" in order else connect(**order))


def run(answer, command, limit_s, errors, keeps_events):
    """Runs a command: its time, its CPU, its memory, how it ended, and what it said when on standard output."""
    global _client
    to_file = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, errors, to_file, 0o600),
    ]
    events, reader = [], None
    if keeps_events:
        output, its_output = os.pipe()
        files.append((os.POSIX_SPAWN_DUP2, its_output, 1))
        reader = threading.Thread(target=read, args=(output, events))
        reader.start()
    else:
        files.append((os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0))
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    # The same clock in all processes.
    began = time.monotonic()
    _client = os.posix_spawnp(command[0], command, os.environ, file_actions=files)
    if keeps_events:
        os.close(its_output)
    answer({"pid": _client, "began": began})
    _, status, usage = os.wait4(_client, 0)
    seconds = time.monotonic() - began
    _client = 0
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    if reader:
        reader.join()
    return {
        "seconds": seconds,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_bytes": usage.ru_maxrss * 1024,
        "code": os.waitstatus_to_exitcode(status),
        "timed_out": left_s == 0,
        "events": [[at - began, line] for at, line in events],
    }


def read(output, events):
    """Keeps lines with the time when they came."""
    with open(output, "rb") as lines:
        for line in lines:
            if len(events) < _EVENTS_MAX or b'"summary"' in line:
                events.append((time.monotonic(), line.decode(errors="replace")))


def connect(host, port):
    """True if a server listens there: over every address of the name."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.settimeout(2)
                probe.connect(address)
    except OSError as error:
        return {"error": str(error)}
    return {"error": None}


def kill():
    if _client:
        os.kill(_client, signal.SIGKILL)


def end(number, _):
    kill()
    os._exit(128 + number)


if __name__ == "__main__":
    main()

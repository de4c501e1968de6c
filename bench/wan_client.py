#!/usr/bin/env python3
"""Runs clients inside the client's namespace and times them there, so that entering it is not in the figures.

Started by bench/wan.py with a connected socket: `wan_client.py FD`. One JSON object a line in each direction.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

_client = 0  # the process that runs now


def main():
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, end)
    signal.signal(signal.SIGALRM, lambda *_: kill())
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rw") as lines:
        for line in lines:
            order = json.loads(line)
            answer = run(**order) if "command" in order else connect(**order)
            lines.write(json.dumps(answer) + "\n")
            lines.flush()


def run(command, remove, limit_s, errors):
    """Runs a command whose results were removed before: its time, its CPU, its memory, how it ended."""
    global _client
    for path in remove:
        Path(path).unlink(missing_ok=True)
    to_file = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, errors, to_file, 0o600),
    ]
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    began = time.perf_counter()
    _client = os.posix_spawnp(command[0], command, os.environ, file_actions=files)
    _, status, usage = os.wait4(_client, 0)
    seconds = time.perf_counter() - began
    _client = 0
    signal.setitimer(signal.ITIMER_REAL, 0)
    return {
        "seconds": seconds,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_bytes": usage.ru_maxrss * 1024,
        "code": os.waitstatus_to_exitcode(status),
    }


def connect(host, port):
    """Whether somebody listens there: over every address of the name."""
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

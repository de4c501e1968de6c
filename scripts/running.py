"""Processes of the demo and the benchmarks: all are gone when the program that started them ends, however it
ends. And the file that both copy."""

import ctypes
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_running = []


def _die_with_parent():
    # Linux: even when the parent is killed, nothing stays behind. Not SIGKILL: nginx must end its workers.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def start(command, **options):
    """Starts a process that does not outlive this one."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent, **options)
    _running.append(process)
    return process


def kill_all():
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


def clean_up(directory):
    """Leaves nothing: no process that was started, not the directory. Impatience does not stop it half-way."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    kill_all()
    shutil.rmtree(directory, ignore_errors=True)


def exit_on_signals():
    """Makes termination an ordinary exit, so that `finally` cleans up."""
    # A shell starts background jobs with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, _: sys.exit(128 + number))


class Serve:
    """`gridlane serve` on a free port of 127.0.0.1, without an access log."""

    name = "gridlane serve"

    def __init__(self, gridlane, directory, data_home, *options):
        command = [gridlane, "serve", str(directory), "--json", "--listen", "127.0.0.1:0", "--access-log", "off"]
        command += options
        environment = dict(os.environ, XDG_DATA_HOME=str(data_home))
        self.process = start(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the server does not start: {' '.join(command)}")
        listening = json.loads(line)
        self._bases = {url.split(":")[0]: url.rstrip("/") for url in listening["urls"]}
        self.authority = listening["ca"]

    def url(self, name, scheme="http"):
        return f"{self._bases[scheme]}/{name}"

    def kill(self):
        self.process.kill()
        self.process.wait()


def make_old(path):
    """Sets its time as if it had not changed for an hour, like most served files: `serve` copies a file that was changed
    within a minute before it sends it."""
    hour_ago = time.time() - 3600
    os.utime(path, (hour_ago, hour_ago))


def generate(path, size):
    """Writes bytes that look random, the same on every machine: random blocks, in which every piece of 64 KiB
    has its own number, so that a piece in the wrong place does not go unnoticed."""
    block = bytearray(random.Random(2026).randbytes(16 << 20))
    step, piece = 64 << 10, 0
    with open(path, "wb") as file:
        while size > 0:
            for place in range(0, len(block), step):
                struct.pack_into("<Q", block, place, piece)
                piece += 1
            file.write(memoryview(block)[:size])
            size -= len(block)

"""What the demo and the benchmarks share: processes that are gone when the program that started them ends, however it
ends (the lab has them), a server, and the file that both copy."""

import json
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "lab/src"))

from gridlane_lab.processes import clean_up, exit_on_signals, kill_all, start  # noqa: E402

__all__ = ["Serve", "clean_up", "exit_on_signals", "generate", "kill_all", "make_old", "start"]


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

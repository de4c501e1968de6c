"""Runs commands in turns, as the benchmarks do, and prints the least that each took: JSON in, JSON out."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[4]
sys.path += [str(ROOT / "bench"), str(ROOT / "scripts")]

from processes import run_client  # noqa: E402
from running import kill_all  # noqa: E402

order = json.loads(sys.argv[1])
samples = [[] for _ in order["sides"]]
try:
    for _ in range(order["runs"]):
        for side, found in zip(order["sides"], samples):
            if order["remove"]:
                shutil.rmtree(order["remove"], ignore_errors=True)
            server = SimpleNamespace(process=SimpleNamespace(pid=side["server"]))
            found.append(run_client(side["command"], 1, [server]))
finally:
    kill_all()
print(json.dumps([
    {what: min(getattr(sample, what) for sample in found) for what in ("seconds", "client_cpu_s", "server_cpu_s")}
    for found in samples
]))

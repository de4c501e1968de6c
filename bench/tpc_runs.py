"""Copies between the two servers of a pair: what they took, what they cost, and whether the bytes are right."""

import filecmp
import os
import subprocess
import time

from processes import Sample
from running import start

# An initiator that takes longer is hung.
LIMIT_S = 600


class Failed(Exception):
    """A run that is worth nothing: `pair` says whose servers it was with."""

    def __init__(self, pair, why):
        super().__init__(why)
        self.pair = pair


class Runs:
    """Makes works of copies: functions that remove what the last run left, run, compare, and give a sample."""

    def __init__(self, work, export, landing, authority):
        self.authority = str(authority)
        self._work, self._export, self._landing = work, export, landing

    def by_curl(self, pair, scheme, names, in_flight):
        """COPY requests by curl, so many at a time on connections that it keeps. Its own time counts, start and end included."""
        answers = self._work / "answers"
        answers.mkdir(exist_ok=True)
        listed = self._work / f"{pair.name}-{scheme}-{len(names)}.curl"
        listed.write_text("next\n".join(
            f'request = "COPY"\nurl = "{pair.at_destination(name, scheme)}"\noutput = "{answers / name}"\n'
            f'header = "Source: {pair.at_source(name, scheme)}"\nheader = "Credential: none"\nheader = "Overwrite: T"\n'
            f'cacert = "{self.authority}"\nfail\n'
            for name in names
        ))
        command = ["curl", "--silent", "--show-error", "--parallel", "--parallel-max", in_flight, "--config", listed]

        def run():
            for answer in answers.iterdir():
                answer.unlink()
            sample = self._run(pair, command, names)
            for name in names:
                last = (answers / name).read_text().strip().rpartition("\n")[2]
                if not last.startswith("success"):
                    raise Failed(pair, f"{name}: {last or 'an answer without a last line'}")
            return sample

        return run

    def _bytes(self, names):
        return sum((self._export / name).stat().st_size for name in names)

    def _run(self, pair, command, names):
        self.clear()
        before = pair.cpu_s()
        began = time.perf_counter()
        process = start(["timeout", str(LIMIT_S), *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said = " ".join(errors.decode(errors="replace").replace("\0", "").split())
            raise Failed(pair, f"exit {process.returncode}: {said}"[:300])
        cpu = pair.cpu_s() - before
        self._compare(pair, names)
        client_cpu = usage.ru_utime + usage.ru_stime
        return Sample(seconds, self._bytes(names), client_cpu, cpu)

    def _compare(self, pair, names):
        for name in names:
            original, copy = self._export / name, self._landing / name
            if not copy.exists():
                raise Failed(pair, f"success, but there is no {name}")
            # Not by size and time, which is what it does otherwise.
            if not filecmp.cmp(original, copy, shallow=False):
                raise Failed(pair, f"wrong bytes in {name}")
            filecmp.clear_cache()

    def clear(self):
        """Removes what the last run left. The servers' own files have hidden names."""
        for path in self._landing.iterdir():
            if not path.name.startswith("."):
                path.unlink()

"""Single copies between the two servers of a pair: what they took, what they cost, and whether the bytes are right."""

import filecmp
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from processes import Sample
from running import start

INITIATOR = Path(__file__).with_name("tpc_copy.py")

# An initiator that takes longer is hung.
LIMIT_S = 600
# A connection that has carried less than this part of the bytes carries none of the file.
CARRIES = 1 / 1000
# How often connections are looked at.
EVERY_S = 0.02


class Failed(Exception):
    """A run that is worth nothing: `pair` says whose servers it was with."""

    def __init__(self, pair, why):
        super().__init__(why)
        self.pair = pair


class Runs:
    """Makes works of copies: functions that remove what the last run left, run, compare, and give a sample."""

    def __init__(self, binary, work, export, landing, authority):
        self.binary, self.authority = binary, str(authority)
        self._work, self._export, self._landing = work, export, landing

    def pull(self, pair, scheme, names, streams=None, in_flight=1):
        """COPY requests by the initiator of bench/tpc_copy.py."""
        wanted = [
            {"target": pair.at_destination(name, scheme), "sources": [pair.at_source(name, scheme)]} for name in names
        ]
        listed = self._work / f"{pair.name}-{scheme}-{len(names)}-{streams}.json"
        listed.write_text(json.dumps(wanted))
        command = [sys.executable, INITIATOR, listed, "--ca", self.authority, "--in-flight", in_flight]
        command += [] if streams is None else ["--streams", streams]

        def seconds(printed):
            return json.loads(printed)["seconds"]

        return lambda: self._run(pair, command, names, seconds)

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

    def connections(self, pair, scheme, name, streams):
        """The number of connections at the source that carry the file, of one run that is made for that."""
        with Watch(pair.source, scheme, self._bytes([name])) as watch:
            self.pull(pair, scheme, [name], streams)()
        return watch.found

    def xrdcp(self, pair, name):
        """XRootD's client. Its own time counts: it says nothing of that of the copy."""
        command = ["xrdcp", "--silent", "--nopbar", "--force", "--tpc", "only", *self._root(pair, name)]
        return lambda: self._run(pair, command, [name])

    def cp(self, pair, name):
        command = [self.binary, "cp", "--tpc", "only", "--quiet", *self._root(pair, name)]
        return lambda: self._run(pair, command, [name])

    @staticmethod
    def _root(pair, name):
        return [pair.at_source(name, "root"), pair.at_destination(name, "root")]

    def _bytes(self, names):
        return sum((self._export / name).stat().st_size for name in names)

    def _run(self, pair, command, names, read=None):
        self.clear()
        before = pair.cpu_s()
        began = time.perf_counter()
        process = start(["timeout", str(LIMIT_S), *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        printed, errors = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said = " ".join(errors.decode(errors="replace").replace("\0", "").split())
            raise Failed(pair, f"exit {process.returncode}: {said}"[:300])
        cpu = pair.cpu_s() - before
        self._compare(pair, names)
        client_cpu = usage.ru_utime + usage.ru_stime
        return Sample(read(printed) if read else seconds, self._bytes(names), client_cpu, cpu)

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


class Watch:
    """Counts the connections of a source that carry a file, all through one run: it is not the time that counts there."""

    def __init__(self, server, scheme, count):
        self._port = re.search(r":(\d+)", server.url("", scheme))[1]
        self._least = count * CARRIES

    def __enter__(self):
        self.found, self._ended, self._before, self._most = 0, threading.Event(), self._sent(), {}
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self):
        while not self._ended.wait(EVERY_S):
            self._most.update(self._sent())

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()
        # What has stayed open.
        self._most.update(self._sent())
        self.found = sum(sent - self._before.get(peer, 0) >= self._least for peer, sent in self._most.items())

    def _sent(self):
        """Bytes that the source has sent so far, by the address of the other end."""
        command = ["ss", "-Htni", "state", "established", "sport", "=", f":{self._port}"]
        found, peer = {}, None
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
            if line[:1].isspace():
                sent = re.search(r"bytes_sent:(\d+)", line)
                found[peer] = int(sent[1]) if sent else 0
            else:
                peer = line.split()[3]
        return found

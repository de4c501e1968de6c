"""One copy of the demo: `gridlane cp --json`, its events read while it runs."""

import json
import subprocess
import threading
import time

from running import start


class Copy:
    """One `gridlane cp --json`; its events are read while it runs."""

    def __init__(self, gridlane, sources, target, *options):
        self.command = [gridlane, "cp", sources[0], str(target), "--json", *options]
        for mirror in sources[1:]:
            self.command += ["--mirror", mirror]
        self.bytes = 0
        self.summary = None
        self.failure = None
        self._errors = []
        self.started = time.monotonic()
        self.process = start(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._readers = [
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=lambda: self._errors.extend(self.process.stderr), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_events(self):
        for line in self.process.stdout:
            event = json.loads(line)
            if event["type"] == "progress":
                self.bytes = event["bytes"]
            elif event["type"] == "summary":
                self.summary = event
            elif event["type"] == "file.failed":
                self.failure = event["error"]["message"]

    def wait_for_bytes(self, count):
        """Waits until so many bytes have arrived; answers after how many seconds."""
        while self.bytes < count and self.process.poll() is None:
            time.sleep(0.01)
        if self.process.poll() is not None:
            raise RuntimeError(f"the copy ended too early: {self.error()}")
        return time.monotonic() - self.started

    def kill(self):
        self.process.kill()
        self.wait()

    def wait(self):
        """Waits for its end; answers with its seconds."""
        self.process.wait()
        seconds = time.monotonic() - self.started
        for reader in self._readers:
            reader.join()
        return seconds

    def error(self):
        return self.failure or "".join(self._errors).strip() or f"exit code {self.process.returncode}"

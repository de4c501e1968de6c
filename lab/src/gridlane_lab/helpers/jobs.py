"""A job: reads steps, counts, and prints JSON lines. Also when it is ended: how far it came is what is kept of it."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from ranges import Step, Wanted
from transports import Policy, ReadError, Transport, policy_of, transport_of

_EVERY_S = 1.0


class EndedError(Exception):
    """A signal ended the job."""


def options(about: str) -> argparse.ArgumentParser:
    """The options that all readers share."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--pattern", choices=("sequential", "random", "trace", "branches"), default="sequential")
    parser.add_argument("--mode", choices=("single", "vector", "ahead", "lazy"), default="single")
    parser.add_argument("--size-bytes", type=int, required=True)
    parser.add_argument("--fraction", type=float, default=1.0)
    parser.add_argument("--event-bytes", type=int, default=1_000_000)
    parser.add_argument("--vector-width", type=int, default=1024)
    parser.add_argument("--segment-bytes", type=int, default=128_000_000)
    parser.add_argument("--block-bytes", type=int, default=5 << 20, help="of the read-ahead")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--trace", help="a trace, or the layout of a tree")
    parser.add_argument("--branch-fraction", type=float, default=1.0)
    parser.add_argument("--trigger-factor", type=int, default=0)
    parser.add_argument("--directory", help="for segments of the lazy download")
    return parser


def remote_options(about: str) -> argparse.ArgumentParser:
    """Those, and where the file is."""
    parser = options(about)
    parser.add_argument("--ca", help="trust the authorities in this PEM file")
    parser.add_argument("--token-file")
    parser.add_argument("url", help="root://, https://, http://, or a path")
    return parser


def wanted_of(given: argparse.Namespace) -> Wanted:
    """The job of the options."""
    return Wanted(
        pattern=given.pattern,
        mode=given.mode,
        size_bytes=given.size_bytes,
        fraction=given.fraction,
        event_bytes=given.event_bytes,
        vector_width=given.vector_width,
        seed=given.seed,
        trace=given.trace,
        branch_fraction=given.branch_fraction,
        trigger_factor=given.trigger_factor,
    )


class Job:
    """What is printed of a job, from its beginning."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.facts: dict[str, Any] = {}
        self.digest = 1
        self.events = self.bytes_read = 0
        self._told = self.began
        signal.signal(signal.SIGTERM, self._leave)

    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began

    @contextlib.contextmanager
    def reading(self, given: argparse.Namespace) -> Iterator[Policy]:
        """The file of `remote_options`, opened; and closed after reads that went well."""
        transport = transport_of(given.url, given.ca, given.token_file)
        self.facts["open_s"] = self.seconds()
        policy = policy_of(
            given.mode, transport, given.size_bytes, given.block_bytes, given.segment_bytes, given.directory
        )
        yield policy
        policy.close()
        transport.close()

    def run(self, steps: Iterable[Step], policy: Policy, each: Callable[[bytes], object] | None = None) -> None:
        """All steps. `each` is called with every range that was read."""
        for ranges, events in steps:
            for data in policy.step(ranges) if ranges else ():
                if not self.bytes_read:
                    self.facts["first_byte_s"] = self.seconds()
                self.bytes_read += len(data)
                self.digest = zlib.adler32(data, self.digest)
                if each is not None:
                    each(data)
            self.events = events
            now = time.monotonic()
            if now - self._told >= _EVERY_S:
                self._told = now
                self.say("progress", policy)
        self.facts["last_byte_s"] = self.seconds()

    def say(self, kind: str, policy: Policy | None, **more: Any) -> None:
        """One line."""
        transport: Transport | None = policy.transport if policy else None
        line = {
            "type": kind,
            "seconds": self.seconds(),
            "events": self.events,
            "bytes": self.bytes_read,
            **self.facts,
            **more,
        }
        if policy is not None and transport is not None:
            line |= {
                "bytes_moved": transport.bytes_moved,
                "requests": transport.requests,
                "reconnects": transport.reconnects,
                "wait_s": policy.wait_s,
            }
        print(json.dumps(line), flush=True)

    def main(self, work: Callable[[Job], Policy]) -> int:
        """Runs `work`, which returns the policy that it has used; the exit code."""
        try:
            policy = work(self)
        except ReadError as error:
            self.say("failed", None, error=str(error), phase=error.phase, http_status=error.http_status)
            print(error, file=sys.stderr)
            return 1
        except EndedError:
            self.say("ended", None)
            return 143
        self.say("summary", policy, adler32=f"{self.digest:08x}")
        return 0

    @staticmethod
    def _leave(*_: object) -> NoReturn:
        raise EndedError

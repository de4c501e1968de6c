"""The job of `[work.read]` as the readers get it, and how many bytes it needs."""

from __future__ import annotations

import functools
from pathlib import Path

from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.helpers.ranges import Wanted
from gridlane_lab.scenario import Read, Scenario

TRACES = Path(__file__).resolve().parent / "traces"


def trace_names() -> list[str]:
    """Names of the traces and layouts that come along."""
    return sorted(path.name.removesuffix(".csv.gz") for path in TRACES.glob("*.csv.gz"))


def trace_file(trace: str) -> Path:
    """A trace that comes along by its name, or another by its path."""
    path = Path(trace) if "/" in trace else TRACES / f"{trace}.csv.gz"
    if not path.is_file():
        raise LabError(
            f"there is no trace {trace!r}",
            where="[work.read] trace",
            hint=f"give a path with a slash, or one of: {', '.join(trace_names())}",
            code=ExitCode.NOT_FOUND,
        )
    return path


def wanted(scenario: Scenario, read: Read, size_bytes: int, number: int) -> Wanted | None:
    """The job of a reader with this number, where it can be known without the file: not that of a real tree."""
    if read.pattern in ("trace", "branches") and read.trace is None:
        return None
    return Wanted(
        pattern=read.pattern,
        mode=read.mode,
        size_bytes=size_bytes,
        fraction=float(read.fraction),
        event_bytes=int(read.event_bytes),
        vector_width=read.vector_width,
        seed=f"{scenario.data.seed}/{number}",
        trace=str(trace_file(read.trace)) if read.trace is not None else None,
        branch_fraction=float(read.branch_fraction),
        trigger_factor=read.trigger_factor,
    )


def asked_bytes(scenario: Scenario, read: Read, size_bytes: int) -> int:
    """The bytes of a file that a reader asks for, each once; of a real tree, as many as its fraction says."""
    job = wanted(scenario, read, size_bytes, 0)
    return round(size_bytes * read.fraction) if job is None else needed_bytes(job)


@functools.lru_cache(maxsize=256)
def needed_bytes(job: Wanted) -> int:
    """The bytes of the file that a job needs, each once."""
    if job.pattern in ("sequential", "random"):
        return job.events() * job.event_bytes
    count = end = 0
    for offset, length in sorted(one for ranges, _ in job.steps() for one in ranges):
        count += max(0, offset + length - max(offset, end))
        end = max(end, offset + length)
    return count

"""What a scenario needs of memory and disk while it runs, and whether that is there: refused before it runs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gridlane_lab import bound, machine, paths
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.matrix import Cell
from gridlane_lab.scenario import Scenario
from gridlane_lab.units import bytes_text

# Servers, tools and the lab itself need some; a machine that is full to the brim measures its own trouble.
RESERVE_BYTES = 512 << 20
# What a sustained run has at its targets at most: they are compared and removed while others arrive.
_SUSTAINED_FILES = 4

_WITHOUT_TARGET = ("remote_read", "raw_network", "job")


@dataclass(frozen=True)
class Needs:
    """Bytes of files at once."""

    memory_bytes: int
    disk_bytes: int


def transfers_of(scenario: Scenario) -> int:
    """How many transfers one run of a resolved scenario makes, where that does not depend on time."""
    work, file = scenario.work, scenario.file_of()
    files = file.count if work.kind not in ("remote_read", "copy_then_read", "raw_network", "memory_copy") else 1
    both = 2 if work.direction == "both" else 1
    return max(files, work.concurrency) * work.clients * both


def target_needs(scenario: Scenario, transfers: int | None = None) -> Needs:
    """What the targets of one run take."""
    work = scenario.work
    if work.kind in _WITHOUT_TARGET or (work.target == "null" and work.kind in ("copy", "memory_copy")):
        return Needs(0, 0)
    count = transfers_of(scenario) if transfers is None else transfers
    if work.duration_s:
        count = min(count, work.concurrency * work.clients * 2) * _SUSTAINED_FILES
    size = count * scenario.file_of().size_bytes
    on_disk = work.target == "disk" and work.kind in ("copy", "memory_copy", "copy_then_read")
    return Needs(0, size) if on_disk else Needs(size, 0)


def files(cells: Sequence[Cell]) -> Needs:
    """What the files that the cells copy or read take, each once."""
    found: dict[tuple[str, str, int], int] = {}
    for cell in cells:
        if cell.scenario.work.kind == "raw_network":
            continue
        file = cell.scenario.file_of()
        key = (storage(cell.scenario), file.name, file.size_bytes)
        found[key] = max(found.get(key, 0), file.size_bytes * file.count)
    return Needs(
        sum(size for (kind, *_), size in found.items() if kind == "tmpfs"),
        sum(size for (kind, *_), size in found.items() if kind == "disk"),
    )


def needs(cells: Sequence[Cell]) -> Needs:
    """What the cells take: all files, and the targets of the largest run."""
    made = files(cells)
    targets = [target_needs(cell.scenario) for cell in cells]
    return Needs(
        made.memory_bytes + max((target.memory_bytes for target in targets), default=0),
        made.disk_bytes + max((target.disk_bytes for target in targets), default=0),
    )


def storage(scenario: Scenario) -> str:
    """Where the files of a run are, `tmpfs` or `disk`: as its first source has them."""
    sources = scenario.work.chosen_sources() or [scenario.work.target_site]
    return storage_at(scenario, sources[0])


def storage_at(scenario: Scenario, place: str) -> str:
    """Where the files of a site, or of one host of it, are: `tmpfs` or `disk`."""
    site = scenario.topology.site_of(place) if scenario.topology is not None else None
    return site.storage if site is not None else "tmpfs"


def check(cells: Sequence[Cell], memory: Path, disk: Path) -> None:
    """Refuses what does not fit. `memory` and `disk` are where files go."""
    needed = needs(cells)
    _refuse(needed.memory_bytes, memory, "memory" if machine.is_in_memory(memory) else "disk")
    _refuse(needed.disk_bytes, disk, "disk")


def check_run(scenario: Scenario, transfers: int, memory: Path, disk: Path) -> None:
    """Refuses a run for whose targets there is no room any more."""
    needed = target_needs(scenario, transfers)
    _refuse(needed.memory_bytes, memory, "memory" if machine.is_in_memory(memory) else "disk")
    _refuse(needed.disk_bytes, disk, "disk")


def warm(cells: Sequence[Cell], directory: Path) -> None:
    """Touches the memory that targets will use: the first touch is many times slower."""
    most = max((target_needs(cell.scenario).memory_bytes for cell in cells), default=0)
    if not most or not machine.is_in_memory(directory):
        return
    path, block = directory / "warm", bytes(1 << 22)
    try:
        with open(path, "wb") as file:
            for _ in range(-(-most // len(block))):
                file.write(block)
    finally:
        path.unlink(missing_ok=True)


def _refuse(needed: int, directory: Path, what: str) -> None:
    free = machine.free_bytes(directory)
    if needed and needed + RESERVE_BYTES > free:
        raise LabError(
            f"{bytes_text(needed)} of {what} are needed beside {bytes_text(RESERVE_BYTES)} for programs, "
            f"and {bytes_text(free)} are free",
            where=str(directory),
            hint="make room, use smaller files or fewer at once, or give another place",
            code=ExitCode.NO_SPACE,
        )


def bound_of(
    scenario: Scenario, connections: Sequence[int] = (), headers_bytes: int = bound.IPV4_HEADERS_BYTES
) -> tuple[float | None, float | None, float | None]:
    """bound(k) in seconds, the capacity in bits per second and the round trip of a run, where they are known; with the
    connections that a transfer was seen to open to each source, and the headers of their packets. The capacity is that
    of the smallest headers, which nothing can exceed."""
    known = paths.paths(scenario)
    return (
        paths.bound_s(scenario, connections, headers_bytes),
        paths.capacity_bits_per_s(scenario),
        known.round_trip_s if known is not None and known.single else None,
    )

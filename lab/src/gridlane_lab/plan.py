"""What a scenario takes before it starts: runs, time, bytes, memory and disk. Refuses what does not fit.

Times are bounds with an allowance for tools that are slower and for what is around a transfer; a run that is over
before its limit does not count for more than the limit. Where no bound is known (loopback, endpoints without figures)
a rate is assumed, and the plan says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gridlane_lab import paths, space
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.machine import available_memory_bytes
from gridlane_lab.matrix import Cell, schedule
from gridlane_lab.scenario import Scenario
from gridlane_lab.units import bytes_text, seconds_text

# Tools need so much longer than the bound, in the mean over those that were measured.
SLOWNESS = 1.3
# Start and clean-up of one run with its checks of the paths; comparison and the first touch of the memory by bytes.
RUN_S = 0.35
COMPARE_BYTES_PER_S = 1.5e9
# A network with its authority and the checks of its rates, each time that it is made; each server in it.
NETWORK_S = 2.0
SERVER_S = 0.3
# Where the paths say nothing.
ASSUMED_BYTES_PER_S = 250e6
# Writing of files before the first run.
MAKE_BYTES_PER_S = 400e6
# What servers, tools and the lab itself need beside the files.
PROGRAMS_BYTES = 1_500_000_000
# A single read that waits for an answer costs this beside the round trip.
READ_S = 60e-6


@dataclass(frozen=True)
class Plan:
    """The estimate of a scenario in one size."""

    cells: int
    runs: int
    networks: int
    time_s: float
    # Payload of all runs.
    moved_bytes: float
    # At once: files at the sources and the largest target, where they are in memory; and on disk.
    memory_bytes: int
    disk_bytes: int
    # Cells of which the time is assumed.
    assumed_cells: int
    # Cells that may be cut off by the limit of a transfer.
    cut_cells: int


def make(scenario: Scenario, cells: Sequence[Cell]) -> Plan:
    """The estimate. Pure."""
    time_s, moved, runs = 0.0, 0.0, 0
    assumed = cut = 0
    warmup = scenario.matrix.warmup_blocks
    for cell in cells:
        seconds, is_assumed = run_s(cell.scenario)
        assumed += is_assumed
        cut += seconds > limited_s(cell.scenario)
        size = paths.run_bytes(cell.scenario) or cell.scenario.file_of().size_bytes
        times = cell.blocks + warmup
        time_s += times * (limited_s(cell.scenario) + RUN_S + size / COMPARE_BYTES_PER_S)
        moved += times * size
        runs += times
    networks, servers = starts(scenario, cells)
    time_s += NETWORK_S * networks + SERVER_S * servers
    made = space.files(cells)
    needed = space.needs(cells)
    return Plan(
        cells=len(cells),
        runs=runs,
        networks=len({cell.scenario.network_key() for cell in cells}),
        time_s=time_s + (made.memory_bytes + made.disk_bytes) / MAKE_BYTES_PER_S,
        moved_bytes=moved,
        memory_bytes=needed.memory_bytes + PROGRAMS_BYTES,
        disk_bytes=needed.disk_bytes,
        assumed_cells=assumed,
        cut_cells=cut,
    )


def run_s(scenario: Scenario) -> tuple[float, bool]:
    """How long one run of a resolved scenario takes, before any limit; and whether that is assumed."""
    work = scenario.work
    size = scenario.file_of().size_bytes * work.concurrency * work.clients
    capacity = paths.capacity_bits_per_s(scenario)
    at_once_s = size * 8 / capacity if capacity else size / ASSUMED_BYTES_PER_S
    if work.duration_s > 0:
        # Nothing begins later, and what runs then is half done in the mean.
        return work.duration_s + min(at_once_s / 2, scenario.limits.transfer_s), False
    if work.kind == "raw_network":
        seconds = scenario.tool[0].options.get("seconds")
        return (float(seconds), False) if isinstance(seconds, (int, float)) else (at_once_s, capacity is None)
    bound_s = paths.bound_s(scenario)
    found = paths.paths(scenario)
    is_assumed = bound_s is None
    if bound_s is None:
        bound_s = (paths.run_bytes(scenario) or 0.0) / ASSUMED_BYTES_PER_S
    seconds = SLOWNESS * bound_s + work.stagger_s * (work.concurrency - 1)
    read = work.read
    if work.kind == "remote_read" and read is not None and read.mode == "single" and read.event_bytes > 0:
        reads = read.fraction * scenario.file_of().size_bytes / read.event_bytes
        seconds += reads * ((found.round_trip_s if found else 0.0) + READ_S)
    return seconds, is_assumed


def starts(scenario: Scenario, cells: Sequence[Cell]) -> tuple[int, int]:
    """How many networks are made in the order of the runs, and how many servers are started in them. Pure."""
    keys = {cell.key: cell.scenario.network_key() for cell in cells}
    wanted = {cell.key: _servers(cell.scenario) for cell in cells}
    networks = servers = 0
    current, running = "", set[tuple[str, str, str]]()
    for turns in schedule(scenario, cells):
        for turn in turns:
            cell = turn.cell
            if keys[cell.key] != current or cell.scenario.host.fresh_namespaces:
                networks, current, running = networks + 1, keys[cell.key], set()
            servers += len(set(wanted[cell.key]) - running)
            running |= set(wanted[cell.key])
    return networks, servers


def limited_s(scenario: Scenario) -> float:
    """How long one run takes with the limit of its transfers, which is none of a run that lasts for a time."""
    seconds, _ = run_s(scenario)
    return seconds if scenario.work.duration_s > 0 else min(seconds, scenario.limits.transfer_s)


def _servers(scenario: Scenario) -> list[tuple[str, str, str]]:
    """The servers that one run has started: name, credential and host of each."""
    work, server = scenario.work, scenario.server_of()
    if server is None or work.kind == "memory_copy":
        return []
    places = [*work.chosen_sources(), *([work.target_site] if work.kind in ("tpc_pull", "tpc_push") else [])]
    return [(server.name, work.auth, host) for place in places for host in scenario.hosts(place)]


def check(plan: Plan, scenario: Scenario, disk_directory: Path) -> None:
    """Refuses a plan that time, memory or disk cannot hold. `disk_directory` is where files and targets on disk go."""
    where = f"scenario {scenario.name}"
    limits = scenario.limits
    if plan.time_s > limits.total_s:
        raise LabError(
            f"takes about {seconds_text(plan.time_s)}, and [limits] total_s allows {seconds_text(limits.total_s)}",
            where=where,
            hint="run fewer blocks or cells, a smaller size, or raise the limit",
            code=ExitCode.TIMEOUT,
        )
    memory = available_memory_bytes()
    if limits.memory_bytes is not None:
        memory = min(memory, limits.memory_bytes)
    if plan.memory_bytes > memory:
        raise LabError(
            f"needs {bytes_text(plan.memory_bytes)} of memory, and {bytes_text(memory)} are there",
            where=where,
            hint='use smaller files, `storage = "disk"`, or a larger machine',
            code=ExitCode.NO_SPACE,
        )
    disk = shutil.disk_usage(disk_directory).free
    if limits.disk_bytes is not None:
        disk = min(disk, limits.disk_bytes)
    if plan.disk_bytes > disk:
        raise LabError(
            f"needs {bytes_text(plan.disk_bytes)} of disk in {disk_directory}, and {bytes_text(disk)} are there",
            where=where,
            hint="make room, or name another place with GRIDLANE_LAB_DISK",
            code=ExitCode.NO_SPACE,
        )

"""From what was measured of a run to its rows. Statuses are decided here, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gridlane_lab import space
from gridlane_lab.compare import Comparison, bytes_below
from gridlane_lab.driver import Reading
from gridlane_lab.matrix import Turn
from gridlane_lab.reading import asked_bytes
from gridlane_lab.record import Row, Run, Sample, SourceShare, Status, Transfer, new_id
from gridlane_lab.scenario import Scenario
from gridlane_lab.seen import NOTHING_SEEN, Seen
from gridlane_lab.transfers import Attempt

# A run of several transfers has the worst of their statuses, in this order.
_WORST = (
    Status.WRONG_BYTES,
    Status.FAILED,
    Status.CUT_OFF,
    Status.NOT_AVAILABLE,
    Status.NOT_RUN,
    Status.VOID,
    Status.UNVERIFIED,
    Status.OK,
)
# More than a path carries in a run's time, but for the clocks and what waits in queues, has come another way.
_CAPACITY_MARGIN = 1.02
# Super-packets count their headers once: a site has sent at least so much of what arrived.
_INTERFACE_MARGIN = 0.98
# Compressible protocols and small files are no matter of this check.
_INTERFACE_LEAST_BYTES = 1_000_000
_MESSAGE_MAX = 500


@dataclass
class RunFacts:
    """What is known of a run before it is measured."""

    run_id: str
    experiment_id: str
    environment_id: str
    turn: Turn
    network_key: str
    started_utc: str
    backend: str = ""
    raw: Path = Path()
    # Why its figures mean nothing.
    void: str = ""


@dataclass(frozen=True)
class Measured:
    """What was measured."""

    attempts: Sequence[Attempt]
    # By the number of the transfer.
    comparisons: Mapping[int, Comparison]
    server_cpu_s: float | None
    server_memory_bytes: int | None
    emulator_cpu_s: float | None
    busy_ratio: float
    stolen_ratio: float
    interface_bytes: int | None
    congestion_controls: list[str]
    samples: Sequence[Sample]
    seen: Seen = NOTHING_SEEN
    wire_bytes: int | None = None
    dropped_packets: int | None = None


@dataclass
class Found:
    """The judgement."""

    transfers: list[Transfer] = field(default_factory=list)
    shares: list[SourceShare] = field(default_factory=list)
    status: Status = Status.OK
    reason: str = ""
    wall_s: float | None = None


def judge(run: RunFacts, scenario: Scenario, measured: Measured, is_capacity_known: bool) -> Found:
    """The rows of the transfers, and the status of the run. Sets `run.void` where figures cannot be true."""
    found = Found()
    for attempt in measured.attempts:
        transfer, shares = _transfer(run, attempt, measured.comparisons.get(attempt.job.number))
        found.transfers.append(transfer)
        found.shares += shares
    started = [row.started_ns for row in found.transfers if row.started_ns is not None]
    closed = [row.closed_ns for row in found.transfers if row.closed_ns is not None]
    if started and closed:
        found.wall_s = (max(closed) - min(started)) / 1e9
    statuses = {row.status for row in found.transfers}
    found.status = next((status for status in _WORST if status in statuses), Status.FAILED)
    bad = [row for row in found.transfers if row.status is found.status and not row.status.is_success]
    if bad:
        found.reason = bad[0].error
        if len(found.transfers) > 1:
            found.reason = f"{len(bad)} of {len(found.transfers)} transfers: {found.reason}"
    elif not found.transfers:
        found.reason = "no transfer began"
    run.void = run.void or _impossible(scenario, measured, found, is_capacity_known)
    return found


def of_run(run: RunFacts, measured: Measured, found: Found) -> Iterator[Row]:
    """All rows, the run's last."""
    scenario = run.turn.cell.scenario
    sources = [scenario.hosts(place) for place in scenario.work.chosen_sources()]
    by_source, together = _connections(sources, found, measured.seen)
    bound_s, capacity, round_trip_s = space.bound_of(scenario, by_source, measured.seen.headers_bytes)
    yield from found.transfers
    yield from found.shares
    yield from measured.samples
    is_void = bool(run.void) and found.status not in (Status.NOT_AVAILABLE,)
    client_cpu = [attempt.answer["cpu_s"] for attempt in measured.attempts if "cpu_s" in attempt.answer]
    memory = [attempt.answer["memory_bytes"] for attempt in measured.attempts if attempt.answer.get("memory_bytes")]
    blocks = [comparison.file_system_bytes for comparison in measured.comparisons.values()]
    yield _run_row(
        run,
        status=Status.VOID if is_void else found.status,
        reason=run.void if is_void else found.reason,
        command=next((text for attempt in measured.attempts if (text := attempt.command_text())), ""),
        wall_s=found.wall_s,
        bound_s=bound_s,
        capacity_bits_per_s=capacity,
        round_trip_s=round_trip_s,
        client_cpu_s=sum(client_cpu) if client_cpu else None,
        server_cpu_s=measured.server_cpu_s,
        emulator_cpu_s=measured.emulator_cpu_s,
        client_memory_bytes=max(memory, default=None),
        server_memory_bytes=measured.server_memory_bytes or None,
        busy_ratio=measured.busy_ratio,
        stolen_ratio=measured.stolen_ratio,
        interface_bytes=measured.interface_bytes,
        file_system_bytes=sum(count for count in blocks if count is not None) if any(blocks) else None,
        wire_bytes=measured.wire_bytes,
        dropped_packets=measured.dropped_packets,
        connections=together,
        ip_version=measured.seen.ip_version,
        congestion_controls=measured.congestion_controls,
    )


def _connections(sources: Sequence[Sequence[str]], found: Found, seen: Seen) -> tuple[list[int], int | None]:
    """Connections of one transfer to each of its sources, and of all transfers to all sources, which are given by their
    hosts. A tool that tells its connections knows them all, unless servers copy for it; of others those count that the
    servers had when it was looked."""
    transfers = found.transfers
    told = [row.connections for row in transfers if row.connections]
    is_third_party = any(row.kind.startswith("tpc") for row in transfers)
    if told and len(told) == len(transfers) and not (is_third_party and seen.together):
        to_each = {(share.transfer_id, share.source): share.connections for share in found.shares}
        by_source = [1] * len(sources)
        for row in transfers:
            # Where only the sum is told, the sources have had the same.
            even = -(-(row.connections or 1) // max(1, len(row.sources)))
            for index, url in enumerate(row.sources[: len(sources)]):
                count = to_each.get((row.transfer_id, url))
                by_source[index] = max(by_source[index], even if count is None else count)
        return by_source, sum(told)
    at_hosts = seen.connections or {}
    counts = [sum(at_hosts.get(host, 0) for host in hosts) for hosts in sources]
    return [max(1, -(-count // max(1, len(transfers)))) for count in counts], seen.together


def without_transfers(run: RunFacts, status: Status, reason: str, scope: str) -> Iterator[Row]:
    """A run that could not begin: a row for each transfer that it would have made."""
    scenario = run.turn.cell.scenario
    work = scenario.work
    file = scenario.file_of()
    for number in range(space.transfers_of(scenario)):
        yield Transfer(
            transfer_id=new_id(),
            run_id=run.run_id,
            kind=work.kind,
            protocol=work.protocol,
            number=number,
            status=status,
            source_site=next(iter(work.chosen_sources()), None),
            target_site=work.target_site,
            file_size_bytes=file.size_bytes,
            bytes_requested=_requested(scenario, file.size_bytes),
            streams=work.streams,
            error_scope=scope or None,
            error_phase="start",
            error=reason[:_MESSAGE_MAX],
        )
    yield _run_row(run, status=status, reason=reason)


def _run_row(run: RunFacts, **values: Any) -> Run:
    turn = run.turn
    tool = turn.cell.scenario.tool[0]
    topology = turn.cell.scenario.topology
    return Run(
        run_id=run.run_id,
        experiment_id=run.experiment_id,
        environment_id=run.environment_id,
        block=turn.block,
        order_in_block=turn.order_in_block,
        cell_key=turn.cell.key,
        variant_json=json.dumps(turn.cell.levels),
        tool=tool.name,
        driver=tool.driver,
        backend=run.backend or (topology.backend if topology is not None else "endpoints"),
        network_key=run.network_key,
        started_utc=run.started_utc,
        raw=f"raw/{run.run_id}",
        **values,
    )


def _transfer(run: RunFacts, attempt: Attempt, comparison: Comparison | None) -> tuple[Transfer, list[SourceShare]]:
    job = attempt.job
    work = job.scenario.work
    reading = _read(attempt)
    status, error, verified_by = _status(attempt, reading, comparison)
    size = job.original.size_bytes
    requested = _requested(job.scenario, size)
    moved = _moved(attempt, reading, comparison, status, requested)
    verified: int | None = None
    if status is Status.OK:
        verified = moved if verified_by == "tool" else reading.bytes_verified
        if comparison is not None:
            verified = comparison.size_bytes
    elif status is Status.WRONG_BYTES:
        verified = 0
    started, closed = attempt.started_ns, attempt.closed_ns
    if work.kind in ("tpc_pull", "tpc_push"):
        # The client carries no bytes: the moments that it tells are those of markers, which come now and then.
        reading = replace(reading, first_byte_s=None, last_byte_s=None, verified_s=None)
    is_failure = not status.is_success
    events_requested = reading.events_requested
    if (
        events_requested is None
        and work.read is not None
        and work.kind in ("remote_read", "copy_then_read")
        and work.read.event_bytes
    ):
        events_requested = max(1, round(work.read.fraction * size / work.read.event_bytes))
    row = Transfer(
        transfer_id=new_id(),
        run_id=run.run_id,
        kind=work.kind,
        protocol=work.protocol,
        number=job.number,
        status=status,
        sources=list(job.task.sources),
        destination=job.task.target,
        source_site=job.source_sites[0] if job.source_sites else None,
        target_site=job.target_site,
        file_size_bytes=size,
        bytes_requested=requested,
        bytes_moved=moved,
        bytes_verified=verified,
        verified_by=verified_by,
        streams=work.streams,
        sources_used=reading.sources_used,
        connections=reading.connections,
        exit_code=attempt.answer.get("code"),
        error_scope=reading.error_scope if is_failure else None,
        error_phase=reading.error_phase if is_failure else None,
        http_status=reading.http_status,
        error=error[:_MESSAGE_MAX],
        retries=reading.retries,
        reconnects=reading.reconnects,
        requests=reading.requests,
        events_read=reading.events_read,
        events_requested=events_requested,
        wait_s=reading.wait_s,
        queued_ns=attempt.queued_ns,
        started_ns=started,
        first_byte_ns=_moment(started, closed, reading.first_byte_s),
        last_byte_ns=_moment(started, closed, reading.last_byte_s),
        verified_ns=_moment(started, closed, reading.verified_s),
        closed_ns=closed,
        client_cpu_s=attempt.answer.get("cpu_s"),
        compare_s=comparison.seconds if comparison is not None else None,
    )
    row = row.with_derived()
    shares = [
        SourceShare(
            transfer_id=row.transfer_id,
            source=source,
            bytes_moved=count,
            wasted_bytes=reading.source_wasted_bytes.get(source),
        )
        for source, count in reading.source_bytes.items()
    ]
    shares = [replace(share, connections=reading.source_connections.get(share.source)) for share in shares]
    _write_facts(attempt, row, comparison)
    return row, shares


def _read(attempt: Attempt) -> Reading:
    """What the tool said. A driver that stumbles over it is no reason to lose the run."""
    if attempt.command is None or attempt.error:
        return Reading()
    try:
        return attempt.job.driver.read(attempt.job.task, attempt.output())
    except Exception as error:
        return Reading(error=f"the driver does not understand the output: {error!r}", error_scope="client")


def _status(attempt: Attempt, reading: Reading, comparison: Comparison | None) -> tuple[Status, str, str]:
    """The status, the error, and what verified the bytes."""
    work = attempt.job.scenario.work
    if attempt.error:
        return Status.FAILED, attempt.error, "none"
    if attempt.is_cut_off:
        limit_s = attempt.job.scenario.limits.transfer_s
        return Status.CUT_OFF, f"not done after {limit_s:g} s", "none"
    code = attempt.answer.get("code")
    if code != 0:
        return Status.FAILED, reading.error or f"exit code {code}", "none"
    if reading.error:
        return Status.FAILED, reading.error, "none"
    if comparison is not None:
        if comparison.is_same:
            return Status.OK, "", "runner"
        if comparison.trouble:
            return Status.UNVERIFIED, comparison.trouble, "none"
        if comparison.size_bytes is None:
            return Status.WRONG_BYTES, "success, and there is no file", "runner"
        size = attempt.job.original.size_bytes
        if comparison.size_bytes != size:
            return Status.WRONG_BYTES, f"success, and {comparison.size_bytes} bytes instead of {size}", "runner"
        return Status.WRONG_BYTES, "success, and other bytes", "runner"
    if reading.bytes_verified is not None:
        # Reads leave no file: what was read is compared with the part of the file that was asked for.
        if reading.bytes_verified:
            return Status.OK, "", "runner"
        return Status.WRONG_BYTES, "success, and other bytes", "runner"
    if reading.checksum_compared:
        return Status.OK, "", "tool"
    if work.kind == "copy" and reading.bytes_moved not in (None, attempt.job.original.size_bytes):
        # Fewer bytes are no copy. More have been fetched twice.
        assert reading.bytes_moved is not None
        if reading.bytes_moved < attempt.job.original.size_bytes:
            return Status.WRONG_BYTES, f"success, and {reading.bytes_moved} bytes", "size"
    return Status.UNVERIFIED, "", "size" if reading.bytes_moved is not None else "none"


def _moved(
    attempt: Attempt, reading: Reading, comparison: Comparison | None, status: Status, requested: int | None
) -> int | None:
    if reading.bytes_moved is not None:
        return reading.bytes_moved
    if comparison is not None and comparison.size_bytes is not None:
        return comparison.size_bytes
    if status.is_success:
        return requested
    return bytes_below(attempt.job.directory)


def _requested(scenario: Scenario, size_bytes: int) -> int | None:
    """What a transfer is for: the file, or the part of it that is read."""
    work = scenario.work
    if work.kind == "raw_network":
        return None
    if work.kind == "remote_read" and work.read is not None:
        return asked_bytes(scenario, work.read, size_bytes)
    return size_bytes


def _moment(started_ns: int | None, closed_ns: int | None, seconds: float | None) -> int | None:
    """A moment that a tool tells, on the clock of the runner. One outside of its own time is no moment of it."""
    if started_ns is None or seconds is None:
        return None
    moment = started_ns + int(seconds * 1e9)
    if closed_ns is not None and moment > closed_ns:
        # Its clock and ours differ by a moment.
        return closed_ns if moment - closed_ns < 50_000_000 else None
    return moment if moment >= started_ns else None


def _impossible(scenario: Scenario, measured: Measured, found: Found, is_capacity_known: bool) -> str:
    """Why figures cannot be true, by what the paths carry and what the interfaces counted; empty when they can."""
    good = [row for row in found.transfers if row.status.is_success]
    counted = sum((row.bytes_verified if row.bytes_verified is not None else row.bytes_moved) or 0 for row in good)
    _, capacity, round_trip_s = space.bound_of(scenario)
    if is_capacity_known and capacity is not None and found.wall_s and scenario.work.direction == "one":
        most = capacity / 8 * (found.wall_s + (round_trip_s or 0.0)) * _CAPACITY_MARGIN
        if counted > most:
            return f"{counted} bytes in {found.wall_s:.3f} s are more than the paths carry"
    sent = measured.interface_bytes
    if sent is not None and counted > _INTERFACE_LEAST_BYTES and sent < _INTERFACE_MARGIN * counted:
        return f"{counted} bytes arrived, and the interfaces of the sites sent {sent}"
    return ""


def _write_facts(attempt: Attempt, row: Transfer, comparison: Comparison | None) -> None:
    """What has no column, beside the output of the tool."""
    first = attempt.answer.get("first_byte_ns")
    facts = {
        "transfer_id": row.transfer_id,
        "status": row.status,
        # In the target as the file system saw it. Tools that gather bytes before they write are late here, so that no
        # rate is taken from it.
        "first_write_s": (first - row.started_ns) / 1e9 if first and row.started_ns else None,
        "memory_bytes": attempt.answer.get("memory_bytes"),
        "compare_s": comparison.seconds if comparison is not None else None,
        "error": row.error,
    }
    (attempt.job.raw / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")

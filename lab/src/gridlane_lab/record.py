"""The rows that are kept of everything that runs, and the directory that holds them.

Units are in the names: bytes, bits per second, seconds, and nanoseconds of one monotonic clock. A value that was not
measured is None, never 0. A failure is a row with a status, never a gap and never a number.

A run directory:

    lock              held while somebody writes
    scenario.json     the scenario in its size, resolved from its files; scenario.toml is the file as it was
    rows.jsonl        while it runs: one row a line, `{"table": …, "row": {…}}`; a `{"commit": …}` ends each block
    interrupted.jsonl rows of blocks that did not come to their end: kept to look at, counted nowhere
    raw/RUN_ID/       what the tools and servers said
    tables/*.parquet  after the last block: the same rows, a file for each table
    complete.json     written last: rows and digests of the tables. Without it, a run is not whole
    report/           index.html, figures and their data

Rows are appended and synced at the end of each block, so that neither a crash nor a power cut loses a block that was
committed. What follows the last commit is set aside when a run is resumed, and its block runs again as a whole: a block
is what is compared, and must not be half of one day and half of another. Parquet files come from temporary files by
renaming, and nobody takes them for whole before `complete.json` agrees.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import secrets
import socket
import threading
import time
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self, TextIO

import polars as pl

from gridlane_lab.errors import ExitCode, LabError

SCHEMA = 1


class Status(StrEnum):
    """How a transfer or a run ended."""

    # Complete, and the bytes were compared.
    OK = "ok"
    # Complete by the tool's word and by the number of bytes; there was nothing to compare (raw network, `/dev/null`).
    UNVERIFIED = "unverified"
    FAILED = "failed"
    # Ended by the limit of the scenario. What had arrived counts for an extrapolation, and for nothing else.
    CUT_OFF = "cut off"
    # The tool said success, and the bytes are others.
    WRONG_BYTES = "wrong bytes"
    # The tool, or the server, is not on this machine.
    NOT_AVAILABLE = "not available"
    # The time of the scenario was up before it began: nothing is known of the tool.
    NOT_RUN = "not run"
    # The path or the machine did not keep what was promised: the figures mean nothing.
    VOID = "void"

    @property
    def is_success(self) -> bool:
        """Whether figures of speed may be taken from it."""
        return self in (Status.OK, Status.UNVERIFIED)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One execution of a scenario."""

    TABLE: ClassVar[str] = "experiment"

    experiment_id: str
    scenario: str
    size: str
    scenario_sha256: str
    question: str
    seed: int
    started_utc: str
    lab_version: str
    git_commit: str | None = None
    git_is_dirty: bool | None = None
    operator_note: str = ""
    schema: int = SCHEMA


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What the figures depend on. A resumed run has one row for each time that it was started."""

    TABLE: ClassVar[str] = "environment"

    environment_id: str
    experiment_id: str
    recorded_utc: str
    host: str
    kernel: str
    cpu_model: str
    logical_cpus: int
    memory_bytes: int
    governor: str | None = None
    clock_source: str | None = None
    # `gridlane wan` with its back end, or the network interface.
    emulator: str | None = None
    congestion_controls: list[str] = dataclasses.field(default_factory=list)
    # Setting → value, as JSON; those inside of namespaces as `SITE:SETTING`.
    sysctls_json: str = "{}"
    # Program → {version, path, sha256}, as JSON.
    programs_json: str = "{}"
    container_images: list[str] = dataclasses.field(default_factory=list)
    time_sync_offset_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class PathCheck:
    """One direction of a path, before or after runs: what was asked for, and what was measured."""

    TABLE: ClassVar[str] = "path_check"

    path_check_id: str
    experiment_id: str
    # None: of the network before any run.
    run_id: str | None
    network_key: str
    moment: str  # `before` or `after`
    sender: str
    receiver: str
    requested_round_trip_s: float | None = None
    round_trip_p5_s: float | None = None
    round_trip_p50_s: float | None = None
    round_trip_p99_s: float | None = None
    requested_rate_bits_per_s: float | None = None
    rate_bits_per_s: float | None = None
    # What TCP payload the rate allows.
    payload_rate_bits_per_s: float | None = None
    requested_loss_ratio: float | None = None
    loss_ratio: float | None = None
    queue_bytes: int | None = None
    dropped_packets: int | None = None
    # Packets that vanished where no network was modelled. Anything but 0 makes the run void.
    unaccounted_drops: int | None = None
    lateness_p99_s: float | None = None
    headroom_ratio: float | None = None
    # `ok`, `void`, or `not measured`.
    verdict: str = "not measured"
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One cell in one block."""

    TABLE: ClassVar[str] = "run"

    run_id: str
    experiment_id: str
    environment_id: str
    block: int  # below 0: warm-up
    order_in_block: int
    cell_key: str
    # Factor → level, as JSON.
    variant_json: str
    tool: str
    driver: str
    backend: str
    network_key: str
    started_utc: str
    status: Status
    reason: str = ""
    # The exact command of the first transfer, quoted for a shell.
    command: str = ""
    # From the first transfer's start to the last one's end.
    wall_s: float | None = None
    # The least time in which the paths could move the bytes (`bound`), and the payload rate that they have together.
    bound_s: float | None = None
    capacity_bits_per_s: float | None = None
    round_trip_s: float | None = None
    client_cpu_s: float | None = None
    server_cpu_s: float | None = None
    emulator_cpu_s: float | None = None
    client_memory_bytes: int | None = None
    server_memory_bytes: int | None = None
    # Share of all cores that was busy, and that the hypervisor took.
    busy_ratio: float | None = None
    stolen_ratio: float | None = None
    # Cross-checks: bytes of packets that the sites sent, and bytes that arrived in the file system.
    interface_bytes: int | None = None
    file_system_bytes: int | None = None
    congestion_controls: list[str] = dataclasses.field(default_factory=list)
    # Below the run directory.
    raw: str = ""
    # Of the emulator: bytes of packets that the sites put on their links, headers included; and packets that found a
    # queue full, on any link.
    wire_bytes: int | None = None
    dropped_packets: int | None = None
    # To all sources together, as the tool says or as the servers had them; and their version of IP.
    connections: int | None = None
    ip_version: int | None = None


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """The unit of analysis: one file, one read, or one job."""

    TABLE: ClassVar[str] = "transfer"

    transfer_id: str
    run_id: str
    kind: str
    protocol: str
    # Position among the transfers of the run.
    number: int = 0
    status: Status
    sources: list[str] = dataclasses.field(default_factory=list)
    destination: str = ""
    # Sites, for grids.
    source_site: str | None = None
    target_site: str | None = None
    file_size_bytes: int | None = None
    bytes_requested: int | None = None
    bytes_moved: int | None = None
    # 0 where the bytes are wrong; None where there was nothing to compare.
    bytes_verified: int | None = None
    # `runner`: the lab compared the target; `tool`: a checksum that the tool reported; `size`; `none`.
    verified_by: str = "none"
    streams: int | None = None
    sources_used: int | None = None
    connections: int | None = None
    attempt: int = 1
    exit_code: int | None = None
    # `source`, `destination`, `network`, `client`, `service`.
    error_scope: str | None = None
    error_phase: str | None = None
    error_code: str | None = None
    http_status: int | None = None
    is_retryable: bool | None = None
    error: str = ""
    retries: int | None = None
    reconnects: int | None = None
    # Of reads.
    requests: int | None = None
    events_read: int | None = None
    events_requested: int | None = None
    wait_s: float | None = None
    # Nanoseconds of the clock `clock_id`.
    queued_ns: int | None = None
    started_ns: int | None = None
    connected_ns: int | None = None
    authorised_ns: int | None = None
    opened_ns: int | None = None
    first_byte_ns: int | None = None
    last_byte_ns: int | None = None
    verified_ns: int | None = None
    closed_ns: int | None = None
    clock_id: str = "monotonic"
    # Derived here, once (`with_derived`).
    prepare_s: float | None = None
    transfer_s: float | None = None
    verify_s: float | None = None
    # That the lab took afterwards to compare the bytes; in no other time.
    compare_s: float | None = None
    total_s: float | None = None
    goodput_bits_per_s: float | None = None
    total_rate_bits_per_s: float | None = None
    overhead_ratio: float | None = None
    client_cpu_s: float | None = None

    def with_derived(self) -> Self:
        """With all that follows from the timestamps and bytes. A transfer that failed has times and no rates.

        prepare_s       start to first byte: set-up, credentials, open
        transfer_s      first byte to last byte. Of a tool that does not tell them: start to end
        verify_s        last byte to the end of verification by the tool; `compare_s` is the lab's own, after the end
        total_s         start to end of the tool
        overhead_ratio  part of the total that is no transfer
        """
        first = self.started_ns if self.first_byte_ns is None else self.first_byte_ns
        last = self.closed_ns if self.last_byte_ns is None else self.last_byte_ns
        total_s = _seconds(self.started_ns, self.closed_ns)
        transfer_s = _seconds(first, last)
        counted = self.bytes_verified if self.status is Status.OK else self.bytes_moved
        is_counted = self.status.is_success and counted is not None

        def rate(seconds: float | None) -> float | None:
            return counted * 8 / seconds if is_counted and counted is not None and seconds else None

        return dataclasses.replace(
            self,
            prepare_s=_seconds(self.started_ns, self.first_byte_ns),
            transfer_s=transfer_s,
            verify_s=_seconds(self.last_byte_ns, self.verified_ns),
            total_s=total_s,
            goodput_bits_per_s=rate(transfer_s),
            total_rate_bits_per_s=rate(total_s),
            overhead_ratio=1 - transfer_s / total_s if total_s and transfer_s is not None else None,
        )


@dataclass(frozen=True, kw_only=True)
class SourceShare:
    """What one source gave to a transfer."""

    TABLE: ClassVar[str] = "source_share"

    transfer_id: str
    source: str
    bytes_moved: int
    # Fetched twice, or thrown away.
    wasted_bytes: int | None = None
    requests: int | None = None
    first_use_s: float | None = None
    last_use_s: float | None = None
    connections: int | None = None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What was seen at one moment of a run: of a transfer, a site or a host. Never the unit of analysis."""

    TABLE: ClassVar[str] = "sample"

    run_id: str
    subject: str
    # Since the run's start, at the end of the interval.
    t_s: float
    interval_s: float
    bytes_moved: int | None = None
    cwnd_bytes: int | None = None
    round_trip_s: float | None = None
    retransmits: int | None = None
    in_flight_bytes: int | None = None
    delivery_rate_bits_per_s: float | None = None
    cpu_user_s: float | None = None
    cpu_system_s: float | None = None
    rss_bytes: int | None = None
    queue_bytes: int | None = None
    transfers_active: int | None = None
    # In the ramp-up, by the rule of the scenario.
    is_omitted: bool = False


@dataclass(frozen=True, kw_only=True)
class ClaimRow:
    """A claim as it was judged from the rows."""

    TABLE: ClassVar[str] = "claim"

    claim: str
    experiment_id: str
    statement: str
    kind: str
    response: str
    estimate: float | None
    low: float | None
    high: float | None
    least: float | None
    most: float | None
    blocks: int
    rows: int
    failed_rows: int
    p_value: float | None
    p_value_holm: float | None
    effect_cliffs_delta: float | None
    # `holds`, `does not hold`, `undecided`, `points only`, `not measured`.
    verdict: str
    reason: str
    # How the rows were chosen, as JSON.
    query_json: str


Row = Experiment | Environment | PathCheck | Run | Transfer | SourceShare | Sample | ClaimRow
TABLES: dict[str, type[Row]] = {
    row.TABLE: row for row in (Experiment, Environment, PathCheck, Run, Transfer, SourceShare, Sample, ClaimRow)
}


def polars_schema(row_type: type[Row]) -> dict[str, pl.DataType]:
    """The columns of a table, in the order of the fields."""
    hints = typing.get_type_hints(row_type)
    return {field.name: _polars_type(hints[field.name]) for field in dataclasses.fields(row_type)}


def _polars_type(hint: Any) -> pl.DataType:
    members = [member for member in typing.get_args(hint) if member is not type(None)]
    if isinstance(hint, types.UnionType):
        return _polars_type(members[0])
    if typing.get_origin(hint) is list:
        return pl.List(_polars_type(members[0]))
    return {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64()}.get(hint, pl.String())


def _seconds(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e9


# --- Identities -----------------------------------------------------------------------------------------

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_last_ulid = 0
_ulid_lock = threading.Lock()


def new_id() -> str:
    """A ULID: sorts by the time when it was made, also among those of one millisecond."""
    global _last_ulid
    with _ulid_lock:
        value = (time.time_ns() // 1_000_000 << 80) | secrets.randbits(80)
        _last_ulid = max(value, _last_ulid + 1)
        value = _last_ulid
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -5, -5))


def utc_now() -> str:
    """The time as rows have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- Writing ----------------------------------------------------------------------------------------------


class RunDirectory:
    """The directory of one run, held by one process. Use it in a `with`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: TextIO | None = None
        self._rows: TextIO | None = None
        self.committed_blocks: set[int] = set()

    @classmethod
    def create(cls, path: Path, scenario_json: str, scenario_toml: str) -> RunDirectory:
        """A new one, which must not exist or be empty."""
        if path.exists() and any(path.iterdir()):
            raise LabError(
                "is not empty",
                where=str(path),
                hint="choose another directory, or go on with --resume",
                code=ExitCode.EXISTS,
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            directory = cls(path)
            directory._take_lock()
            write_whole(path / "scenario.toml", scenario_toml.encode())
            write_whole(path / "scenario.json", scenario_json.encode())
            directory._open()
        except OSError as error:
            raise _disk_error(path, error) from None
        return directory

    @classmethod
    def resume(cls, path: Path, scenario_json: str | None = None) -> RunDirectory:
        """One whose run did not come to its end. `scenario_json`, where given, must be what it began with."""
        if not (path / "scenario.json").is_file():
            raise LabError(
                "holds no run",
                where=str(path),
                hint="give the directory of a run that was interrupted",
                code=ExitCode.NOT_FOUND,
            )
        directory = cls(path)
        directory._take_lock()
        if scenario_json is not None and (path / "scenario.json").read_text() != scenario_json:
            directory.close()
            raise LabError(
                "began with another scenario",
                where=str(path),
                hint="resume without a scenario file, or begin a new run",
                code=ExitCode.EXISTS,
            )
        if (path / "complete.json").exists():
            directory.close()
            raise LabError(
                "holds a run that is complete",
                where=str(path),
                hint="`gridlane-lab report` rebuilds its report",
                code=ExitCode.EXISTS,
            )
        try:
            directory._set_aside()
            directory._open()
        except OSError as error:
            directory.close()
            raise _disk_error(path, error) from None
        return directory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the directory free. Rows after the last commit are no part of the run."""
        for file in (self._rows, self._lock):
            if file is not None:
                file.close()
        self._rows = self._lock = None

    def scenario_json(self) -> str:
        """The scenario that it began with."""
        return (self.path / "scenario.json").read_text()

    def raw(self, run_id: str) -> Path:
        """A new directory for what tools and servers say."""
        path = self.path / "raw" / run_id
        path.mkdir(parents=True, exist_ok=True)
        return path

    def append(self, row: Row) -> None:
        """Writes a row. It is part of the run when its block is committed."""
        self._write({"table": row.TABLE, "row": dataclasses.asdict(row)})

    def commit(self, block: int | None) -> None:
        """Makes everything so far part of the run, durably. `None`: rows that belong to no block."""
        self._write({"commit": {"block": block, "utc": utc_now()}})
        try:
            os.fsync(self._file().fileno())
        except OSError as error:
            raise _disk_error(self.path, error) from None
        if block is not None:
            self.committed_blocks.add(block)

    def finish(self) -> None:
        """Writes the tables as Parquet, and last the word that they are whole."""
        try:
            rows = read_rows(self.path / "rows.jsonl").rows
            write_tables(self.path, tables_of(rows))
        except OSError as error:
            raise _disk_error(self.path, error) from None

    def _file(self) -> TextIO:
        if self._rows is None:
            raise ValueError("the run directory is closed")
        return self._rows

    def _write(self, value: Mapping[str, Any]) -> None:
        try:
            self._file().write(json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n")
            self._file().flush()
        except OSError as error:
            raise _disk_error(self.path, error) from None

    def _open(self) -> None:
        self._rows = open(self.path / "rows.jsonl", "a", encoding="utf-8")  # noqa: SIM115
        sync_directory(self.path)

    def _take_lock(self) -> None:
        lock = open(self.path / "lock", "a+", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            lock.close()
            raise LabError(
                f"is in use by {holder}",
                where=str(self.path),
                hint="wait for it, or choose another directory",
                code=ExitCode.BUSY,
            ) from None
        lock.seek(0)
        lock.truncate()
        lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        self._lock = lock

    def _set_aside(self) -> None:
        """Moves what follows the last commit to another file."""
        path = self.path / "rows.jsonl"
        found = read_rows(path)
        self.committed_blocks = found.blocks
        if found.rest:
            with open(self.path / "interrupted.jsonl", "ab") as file:
                file.write(found.rest + (b"" if found.rest.endswith(b"\n") else b"\n"))
                file.flush()
                os.fsync(file.fileno())
            write_whole(path, found.committed)


@dataclass(frozen=True)
class Rows:
    """What a file of rows holds: committed rows, the blocks that they make up, and the bytes of both parts."""

    rows: list[Row]
    blocks: set[int]
    committed: bytes
    rest: bytes


def read_rows(path: Path) -> Rows:
    """The rows of a run as far as they are committed."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    rows: list[Row] = []
    pending: list[Row] = []
    blocks: set[int] = set()
    end = position = 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        position += len(line)
        try:
            value = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            value = None
        if value is None:
            # A torn line is the end of what was written, unless there is more behind it.
            if position < len(content) and b'{"commit"' in content[position:]:
                raise LabError(
                    "is damaged: no JSON before a commit", where=f"{path}:{number}", hint="restore the file from a copy"
                )
            break
        if "commit" in value:
            rows += pending
            pending = []
            end = position
            if value["commit"]["block"] is not None:
                blocks.add(value["commit"]["block"])
        else:
            pending.append(_row_of(value, f"{path}:{number}"))
    return Rows(rows, blocks, content[:end], content[end:])


def _row_of(value: Mapping[str, Any], where: str) -> Row:
    try:
        row_type = TABLES[value["table"]]
        fields = dict(value["row"])
        if "status" in fields:
            fields["status"] = Status(fields["status"])
        return row_type(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise LabError(
            f"no row that this version knows: {error}", where=where, hint="read it with the version that wrote it"
        ) from None


def tables_of(rows: list[Row]) -> dict[str, pl.DataFrame]:
    """Rows as tables; a table without rows is there, and empty."""
    values: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for row in rows:
        values[row.TABLE].append(dataclasses.asdict(row))
    return {name: pl.DataFrame(values[name], schema=polars_schema(TABLES[name]), orient="row") for name in TABLES}


def write_tables(path: Path, tables: Mapping[str, pl.DataFrame]) -> None:
    """Parquet files, and last `complete.json`. Whatever was complete before is not, until it is again."""
    (path / "complete.json").unlink(missing_ok=True)
    directory = path / "tables"
    directory.mkdir(exist_ok=True)
    facts: dict[str, dict[str, Any]] = {}
    for name, table in tables.items():
        temporary = directory / f".{name}.parquet.tmp"
        table.write_parquet(temporary, compression="zstd", statistics=True)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, directory / f"{name}.parquet")
        facts[name] = {"rows": table.height, "sha256": _sha256(directory / f"{name}.parquet")}
    sync_directory(directory)
    whole = {"schema": SCHEMA, "written_utc": utc_now(), "tables": facts}
    write_whole(path / "complete.json", (json.dumps(whole, indent=1) + "\n").encode())


# --- Reading ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Results:
    """The tables of a run. What is computed from them is computed once for each of these."""

    path: Path
    tables: dict[str, pl.DataFrame]
    # False: it did not come to its end, and the tables hold the blocks that were committed.
    is_complete: bool

    def __getitem__(self, table: str) -> pl.DataFrame:
        return self.tables[table]


def read_results(path: Path) -> Results:
    """The tables of a run: from Parquet when it is complete, else the blocks that were committed."""
    path = Path(path)
    if not path.is_dir():
        raise LabError(
            "no such directory", where=str(path), hint="give the directory of a run", code=ExitCode.NOT_FOUND
        )
    try:
        whole = json.loads((path / "complete.json").read_text())
    except FileNotFoundError:
        if not (path / "rows.jsonl").is_file():
            raise LabError(
                "holds no results", where=str(path), hint="give the directory of a run", code=ExitCode.NOT_FOUND
            ) from None
        return Results(path, tables_of(read_rows(path / "rows.jsonl").rows), False)
    except ValueError:
        raise LabError("is damaged: complete.json is no JSON", where=str(path), hint="restore it from a copy") from None
    tables = {}
    for name, row_type in TABLES.items():
        file = path / "tables" / f"{name}.parquet"
        facts = whole["tables"].get(name)
        if facts is None:
            tables[name] = pl.DataFrame(schema=polars_schema(row_type))
            continue
        if not file.is_file() or _sha256(file) != facts["sha256"]:
            raise LabError(
                "is not what complete.json says", where=str(file), hint="restore it from a copy", code=ExitCode.CHECKSUM
            )
        tables[name] = pl.read_parquet(file)
    return Results(path, tables, True)


def rows_of(table: pl.DataFrame, row_type: type[Row]) -> Iterator[Row]:
    """A table as rows."""
    for values in table.iter_rows(named=True):
        yield _row_of({"table": row_type.TABLE, "row": values}, row_type.TABLE)


# --- Files ----------------------------------------------------------------------------------------------------


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file so that it is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _disk_error(path: Path, error: OSError) -> LabError:
    return LabError(
        f"cannot be written: {error.strerror or error}",
        where=str(path),
        hint="make room or give another directory, then go on with --resume",
        code=ExitCode.NO_SPACE,
    )

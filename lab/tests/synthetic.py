"""A runner without a network: results that look like those of the five experiments, from a model and a seed.

Rates are a part of the bound that is the tool's own, with noise by block (which all share) and by run. Some fail as
the scenario's tools do: `breaks` fails in every third block, `lies` delivers wrong bytes, `missing` is not installed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from gridlane_lab import matrix, paths, record, registry, scenario
from gridlane_lab.driver import Availability, Capabilities, Command, Runner, Task, ToolDriver
from gridlane_lab.matrix import Turn
from gridlane_lab.record import PathCheck, Row, Run, Sample, SourceShare, Status, Transfer

ALL = frozenset({"http", "https", "root", "roots", "gsiftp"})
EVERYTHING = Capabilities(
    protocols=ALL,
    kinds=frozenset({"copy", "upload", "tpc_pull", "tpc_push", "remote_read", "copy_then_read", "raw_network", "job"}),
    sources_max=8,
    streams_max=16,
    read_modes=frozenset({"single", "vector", "ahead", "lazy"}),
)


class Fake(ToolDriver):
    """Never started: the runner of this module makes the rows."""

    def __init__(self, name: str, capabilities: Capabilities = EVERYTHING) -> None:
        self.name = name
        self.capabilities = capabilities

    def availability(self) -> Availability:
        if self.name == "missing":
            return Availability(None, None, reason="missing is not installed; apt-get install missing")
        return Availability(f"/usr/bin/{self.name}", f"{self.name} 1.2.3", "00" * 32)

    def command(self, task: Task) -> Command:
        return Command((self.name, *task.sources, task.target))


def drivers() -> dict[str, Fake]:
    one = Capabilities(protocols=frozenset({"https"}))
    fakes = {name: Fake(name) for name in ("gridlane", "aria2c", "xrdcp", "fdt", "breaks", "lies", "missing")}
    fakes["curl"] = Fake("curl", one)
    return fakes


def register() -> None:
    """Makes the fakes known to the command line."""
    registry._tools.clear()
    registry._tools.update(drivers())


def capabilities() -> dict[str, Capabilities]:
    return {name: driver.capabilities for name, driver in drivers().items()}


EFFICIENCY = {"gridlane": 0.975, "aria2c": 0.93, "xrdcp": 0.80, "curl": 0.90, "fdt": 0.88, "breaks": 0.7, "lies": 0.9}


class ModelRunner(Runner):
    """Yields rows as a real one would, from a model."""

    def __init__(self, whole: scenario.Scenario, directory: record.RunDirectory, experiment_id: str) -> None:
        self.scenario, self.directory, self.experiment_id = whole, directory, experiment_id
        self.environment_id = f"E{experiment_id[1:]}"
        self.checked: set[str] = set()

    def __enter__(self) -> ModelRunner:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def environment(self) -> Iterator[Row]:
        yield record.Environment(
            environment_id=self.environment_id,
            experiment_id=self.experiment_id,
            recorded_utc="2026-01-01T00:00:00.000Z",
            host="model",
            kernel="6.18.0",
            cpu_model="none <b>at all</b>",
            logical_cpus=2,
            memory_bytes=24 * 10**9,
            congestion_controls=["bbr", "cubic"],
            sysctls_json=json.dumps({"net.ipv4.tcp_wmem": "4096 16384 4194304"}),
            programs_json=json.dumps({name: {"version": f"{name} 1.2.3", "path": "x"} for name in EFFICIENCY}),
        )

    def run_block(self, turns: Sequence[Turn]) -> Iterator[Row]:
        for turn in turns:
            yield from self.turn(turn)

    def turn(self, turn: Turn) -> Iterator[Row]:
        cell = turn.cell
        sc, work = cell.scenario, cell.scenario.work
        draw = random.Random(f"{turn.block}/{cell.key}")
        of_block = random.Random(f"block {turn.block}").gauss(1, 0.006)
        run_id = f"R{len(self.checked):03}{turn.block + 10:03}{turn.order_in_block:04}"
        network = sc.network_key()
        if network not in self.checked:
            self.checked.add(network)
            for link in sc.topology.link if sc.topology else []:
                yield PathCheck(
                    path_check_id=f"P{network}{link.label}",
                    experiment_id=self.experiment_id,
                    run_id=None,
                    network_key=network,
                    moment="before",
                    sender=link.between[0],
                    receiver=link.between[1],
                    requested_round_trip_s=2 * link.one_way_ms / 1e3,
                    round_trip_p50_s=2 * link.one_way_ms / 1e3 + 0.0002,
                    requested_rate_bits_per_s=link.rate_bits_per_s,
                    rate_bits_per_s=(link.rate_bits_per_s or 0) * 0.94,
                    verdict="ok",
                )
        tool = sc.tool[0].driver
        status, reason = Status.OK, ""
        if tool == "missing":
            status, reason = Status.NOT_AVAILABLE, "missing is not installed; apt-get install missing"
        elif tool == "breaks" and turn.block % 3 == 1:
            status, reason = Status.FAILED, "exit 7: connection reset by <peer> & others"
        elif tool == "lies" and turn.block % 2 == 0:
            status, reason = Status.WRONG_BYTES, "exit 0, but the copy is not the file"
        size = sc.file_of().size_bytes
        bound_s = paths.bound_s(sc)
        seconds = (bound_s or size / 1e9) / (EFFICIENCY.get(tool, 0.93) * of_block) * draw.lognormvariate(
            0, 0.008
        ) + 0.02
        found = paths.paths(sc)
        round_trip = found.round_trip_s if found else 0.0
        events = asked = None
        if work.read is not None:
            asked = int(work.read.fraction * size / work.read.event_bytes)
            events = asked
            if work.kind == "remote_read" and work.read.mode == "single":
                seconds += asked * round_trip
            if work.kind == "copy_then_read":
                seconds += 0.2 * work.read.fraction
        limit = sc.limits.transfer_s
        size = round(size * work.read.fraction) if work.read is not None and work.kind == "remote_read" else size
        moved = size
        capacity = paths.capacity_bits_per_s(sc)
        if work.kind == "raw_network":
            seconds, moved = 10.0, int((capacity or 8e9) / 8 * 0.97 * of_block * 10)
        if status is Status.OK and seconds > limit:
            status, reason = Status.CUT_OFF, f"not done after {limit:.0f} s"
            part = limit / seconds
            seconds, moved = limit, int(size * part)
            events = None if asked is None else int(asked * part)
        count = work.concurrency
        wall = seconds if count == 1 else seconds * 1.02
        if status is not Status.NOT_AVAILABLE and work.duration_s:
            wall, failed = yield from self.sustained(
                run_id, sc, draw, (capacity or 8e9) / 8, EFFICIENCY.get(tool, 0.85)
            )
            if failed:
                status, reason = Status.FAILED, f"{failed} transfers: reset"
        elif status is not Status.NOT_AVAILABLE:
            for number in range(count):
                yield self.transfer(run_id, number, sc, status, reason, seconds, moved, events, asked, round_trip)
            yield from self.shares(f"{run_id}-0", work.chosen_sources(), moved, size, tool, draw)
        if status is not Status.NOT_AVAILABLE and not math.isinf(wall):
            steps = max(1, min(40, int(wall * 4)))
            total = (capacity or 8e9) / 8 * 0.9 * wall if work.duration_s else moved * count
            for step in range(steps):
                for site in work.chosen_sources():
                    yield Sample(
                        run_id=run_id,
                        subject=site,
                        t_s=(step + 1) * wall / steps,
                        interval_s=wall / steps,
                        bytes_moved=int(total / steps / len(work.chosen_sources()) * draw.uniform(0.9, 1.1)),
                    )
        is_there = status is not Status.NOT_AVAILABLE
        yield Run(
            run_id=run_id,
            experiment_id=self.experiment_id,
            environment_id=self.environment_id,
            block=turn.block,
            order_in_block=turn.order_in_block,
            cell_key=cell.key,
            variant_json=json.dumps(cell.levels),
            tool=sc.tool[0].name,
            driver=tool,
            backend="model",
            network_key=network,
            started_utc="2026-01-01T00:00:00.000Z",
            status=status,
            reason=reason,
            command=f"{tool} '{work.protocol}://near/{size}' /target" if is_there else "",
            wall_s=wall if is_there else None,
            bound_s=bound_s,
            capacity_bits_per_s=capacity,
            round_trip_s=round_trip,
            client_cpu_s=0.4 * moved / 1e9 * (1 + draw.random() / 10) if is_there else None,
            server_cpu_s=0.6 * moved / 1e9 if is_there else None,
            interface_bytes=int(1.03 * moved * count) if is_there and not work.duration_s else None,
            raw=f"raw/{run_id}",
        )

    def shares(self, transfer_id, sites, moved, size, tool, draw) -> Iterator[Row]:
        """As gridlane tells them; xrdcp does not tell what it threw away, and others tell nothing."""
        weights = [draw.uniform(0.8, 1.2) for _ in sites]
        for site, weight in zip(sites, weights, strict=True):
            if tool in ("gridlane", "xrdcp"):
                yield SourceShare(
                    transfer_id=transfer_id,
                    source=f"https://{site}/{size}",
                    bytes_moved=int(moved * weight / sum(weights)),
                    wasted_bytes=int(0.03 * moved / len(sites)) if tool == "gridlane" and len(sites) > 1 else None,
                )

    def sustained(self, run_id, sc, draw, bytes_per_s, efficiency):
        """Transfers that follow one another in lanes; every fiftieth fails, and the first ones wait a little."""
        work, size = sc.work, sc.file_of().size_bytes
        begin, number, failed, ends = 0.0, 0, 0, []
        lanes = work.concurrency
        for lane in range(lanes):
            at = begin + lane * work.stagger_s
            while at < work.duration_s and number < 400:
                took = size / (bytes_per_s / lanes * efficiency) * draw.lognormvariate(0, 0.1) + 0.06
                fails = draw.random() < 0.02
                cause = (
                    f"exit 56: reset by 10.1.0.2:{draw.randrange(30000, 60000)}" if draw.random() < 0.7 else "exit 28"
                )
                failed += fails
                status, reason = (Status.FAILED, cause) if fails else (Status.OK, "")
                row = self.transfer(run_id, number, sc, status, reason, took, size, None, None, 0.0065)
                shift = round(at * 1e9)
                moments = {
                    name: value + shift
                    for name in ("queued_ns", "started_ns", "first_byte_ns", "last_byte_ns", "verified_ns", "closed_ns")
                    if (value := getattr(row, name)) is not None
                }
                yield dataclasses.replace(row, **moments)
                at, number = at + took + 0.03, number + 1
                ends.append(at)
        return max(ends), failed

    def transfer(self, run_id, number, sc, status, reason, seconds, moved, events, asked, round_trip) -> Transfer:
        work, size = sc.work, sc.file_of().size_bytes
        asked_bytes = round(size * work.read.fraction) if work.read and work.kind == "remote_read" else size
        is_done = status in (Status.OK, Status.WRONG_BYTES)
        # When bytes came is told by some tools only.
        tells = sc.tool[0].driver not in ("curl", "xrdcp")
        return Transfer(
            transfer_id=f"{run_id}-{number}",
            run_id=run_id,
            kind=work.kind,
            protocol=work.protocol,
            number=number,
            status=status,
            sources=[f"{work.protocol}://{site}/{size}" for site in work.chosen_sources()],
            destination="/target",
            source_site=work.chosen_sources()[0],
            target_site=work.target_site,
            file_size_bytes=size,
            bytes_requested=asked_bytes,
            bytes_moved=moved if is_done or status is Status.CUT_OFF else 0,
            bytes_verified=moved if status is Status.OK else 0,
            verified_by="runner" if is_done else "none",
            exit_code=0 if is_done else 7,
            error=reason,
            error_scope=None if status is Status.OK else "network",
            events_read=events,
            events_requested=asked,
            queued_ns=-round(0.02e9),
            started_ns=0,
            first_byte_ns=round(3 * round_trip * 1e9) if tells else None,
            last_byte_ns=round(seconds * 0.99e9) if tells else None,
            verified_ns=round(seconds * 1e9) if tells else None,
            closed_ns=round((seconds + 0.005) * 1e9),
        ).with_derived()


def make_run(path: Path, text: str, size: str = "quick", *, stop_after: int | None = None) -> record.Results:
    """A scenario from its text, run by the model, in a directory."""
    path.mkdir(parents=True, exist_ok=True)
    file = path / "scenario-file.toml"
    file.write_text(text)
    whole = scenario.load(file, size)
    out = path / "run"
    with record.RunDirectory.create(out, whole.to_json(), text) as directory:
        fill(directory, whole, size, stop_after=stop_after)
    return record.read_results(out)


def fill(
    directory: record.RunDirectory,
    whole: scenario.Scenario,
    size: str,
    *,
    stop_after: int | None = None,
    known: dict[str, Capabilities] | None = None,
) -> None:
    """Runs the blocks that are not committed yet. `known`: what tools can do, where they are not those of the model."""
    cells = matrix.expand(whole, known or capabilities()).cells
    if not directory.committed_blocks:
        directory.append(
            record.Experiment(
                experiment_id="X01",
                scenario=whole.name,
                size=size,
                scenario_sha256=whole.sha256(),
                question=whole.question,
                seed=whole.matrix.seed,
                started_utc="2026-01-01T00:00:00.000Z",
                lab_version="0.1.0",
            )
        )
    with ModelRunner(whole, directory, "X01") as runner:
        for row in runner.environment():
            directory.append(row)
        directory.commit(None)
        for number, turns in enumerate(matrix.schedule(whole, cells)):
            if number == stop_after:
                return
            if turns and turns[0].block not in directory.committed_blocks:
                for row in runner.run_block(turns):
                    directory.append(row)
                directory.commit(turns[0].block)
    directory.finish()


TOOLS = """
[[tool]]
name = "gridlane"
driver = "gridlane"
[[tool]]
name = "aria2c"
driver = "aria2c"
[[tool]]
name = "xrdcp"
driver = "xrdcp"
"""

MULTI_SOURCE = (
    """
schema = 1
name = "multi-source"
question = "What do two and three sources bring?"
[topology]
site = [{ name = "client", role = "client" }, { name = "near" }, { name = "middle" }, { name = "far" }]
link = [
    { between = ["near", "client"], rate_bits_per_s = "800Mb/s", round_trip_ms = 10 },
    { between = ["middle", "client"], rate_bits_per_s = "800Mb/s", round_trip_ms = 20 },
    { between = ["far", "client"], rate_bits_per_s = "800Mb/s", round_trip_ms = 30 },
]
[data]
file = [{ name = "f", size_bytes = { factor = "size_bytes" } }]
[[server]]
name = "nginx"
driver = "nginx"
"""
    + TOOLS
    + """
[[tool]]
name = "curl"
driver = "curl"
[[tool]]
name = "broken tool"
driver = "breaks"
only = { sources = [1, 3] }
[[tool]]
name = "liar"
driver = "lies"
only = { sources = 3 }
[[tool]]
name = "absent"
driver = "missing"
only = { sources = 3 }
[work]
kind = "copy"
file = "f"
server = "nginx"
source_sites = ["near", "middle", "far"]
[matrix]
blocks = 8
warmup_blocks = 1
seed = 3
fewer = [{ match = { size_bytes = 1000000 }, blocks = 3 }]
[matrix.factors]
sources = [1, 2, 3]
size_bytes = [1_000_000, 500_000_000]
[analysis]
response = "total_rate_bits_per_s"
baseline = { tool = "aria2c" }
[[analysis.figure]]
name = "boxes"
kind = "box"
title = "Rate by tool and number of sources"
panel = "sources"
where = { size_bytes = 500000000 }
[[analysis.figure]]
name = "boxes-1mb"
kind = "box"
title = "Rate of 1 MB"
panel = "sources"
where = { size_bytes = 1000000 }
[[analysis.figure]]
name = "ratios"
kind = "forest"
title = "Against aria2c"
[[analysis.figure]]
name = "bytes-over-time"
kind = "hourly_area"
title = "Bytes by source"
panel = "tool"
where = { sources = 3, size_bytes = 500000000, tool = ["gridlane", "aria2c", "xrdcp"] }
[[analysis.figure]]
name = "distribution"
kind = "ecdf"
title = "Times of single transfers"
response = "wall_s"
panel = "sources"
where = { size_bytes = 500000000 }
[[analysis.figure]]
name = "normality"
kind = "qq"
title = "Quantiles"
where = { size_bytes = 500000000, sources = 3 }
[[analysis.claim]]
name = "three-beat-one"
statement = "With three sources gridlane is at least 2.5 times as fast as with one"
kind = "ratio"
variant = { tool = "gridlane", sources = 3, size_bytes = 500000000 }
baseline = { tool = "gridlane", sources = 1, size_bytes = 500000000 }
least = 2.5
published = [2.5, 3.0]
[[analysis.claim]]
name = "near-bound"
statement = "gridlane reaches 0.95 of the bound"
kind = "bound_fraction"
variant = { tool = "gridlane", size_bytes = 500000000 }
least = 0.95
[[analysis.claim]]
name = "broken"
statement = "The broken tool is not slower than aria2c"
kind = "ratio"
variant = { tool = "broken tool", size_bytes = 500000000 }
baseline = { tool = "aria2c", size_bytes = 500000000 }
least = 1.0
[[analysis.claim]]
name = "small"
statement = "1 MB gains nothing with aria2c"
kind = "equivalent"
variant = { tool = "aria2c", sources = 3, size_bytes = 1000000 }
baseline = { tool = "aria2c", sources = 1, size_bytes = 1000000 }
most = 1.1
[[analysis.claim]]
name = "reliable"
statement = "Nine of ten transfers of gridlane succeed"
kind = "success"
variant = { tool = "gridlane" }
least = 0.9
[[analysis.claim]]
name = "absent-is-fast"
statement = "A tool that is absent has no figures"
kind = "median"
variant = { tool = "absent" }
least = 1e6
[[analysis.claim]]
name = "no-magic"
statement = "No run is above capacity"
kind = "never_above_capacity"
"""
)

REMOTE_READ = """
schema = 1
name = "copy-or-read"
question = "From which part on is copying faster?"
[topology]
site = [{ name = "client", role = "client" }, { name = "near" }]
link = [{ between = ["near", "client"], rate_bits_per_s = "1Gb/s", round_trip_ms = { factor = "round_trip_ms" } }]
[data]
file = [{ name = "f", size_bytes = 100_000_000 }]
[[server]]
name = "xrootd"
driver = "xrootd"
[[tool]]
name = "gridlane"
driver = "gridlane"
[work]
kind = "remote_read"
file = "f"
protocol = "root"
server = "xrootd"
source_sites = ["near"]
[work.read]
event_bytes = 100_000
fraction = { factor = "fraction" }
mode = { factor = "read_mode" }
[matrix]
blocks = 6
slow_factors = ["round_trip_ms"]
exclude = [{ kind = "copy_then_read", read_mode = "vector" }]
[matrix.factors]
kind = ["remote_read", "copy_then_read"]
read_mode = ["single", "vector"]
fraction = [0.01, 0.05, 0.1, 0.5, 1.0]
round_trip_ms = [0.5, 26, 300]
[limits]
transfer_s = 100
[analysis]
response = "wall_s"
baseline = { kind = "copy_then_read" }
[[analysis.figure]]
name = "break-even"
kind = "time_fraction"
title = "Wall time against the part that is read"
series = ["kind", "read_mode"]
panel = "round_trip_ms"
log_y = true
[[analysis.figure]]
name = "time-rtt"
kind = "time_rtt"
title = "Wall time against round trip"
series = ["kind", "read_mode"]
panel = "fraction"
where = { fraction = [0.01, 0.1, 1.0] }
log_y = true
"""

ROUND_TRIPS = (
    """
schema = 1
name = "streams"
question = "How do streams scale with the round trip?"
[topology]
site = [{ name = "client", role = "client" }, { name = "near" }]
link = [{ between = ["near", "client"], rate_bits_per_s = "1Gb/s", round_trip_ms = { factor = "round_trip_ms" } }]
[data]
file = [{ name = "f", size_bytes = 500_000_000 }]
[[server]]
name = "xrootd"
driver = "xrootd"
"""
    + TOOLS
    + """
[work]
kind = "copy"
file = "f"
server = "xrootd"
source_sites = ["near"]
[matrix]
blocks = 6
slow_factors = ["round_trip_ms"]
[matrix.factors]
streams = [1, 8]
round_trip_ms = [0, 10, 50, 100, 300]
[analysis]
response = "total_rate_bits_per_s"
[[analysis.figure]]
name = "rate-rtt"
kind = "rate_rtt"
title = "Rate against round trip"
panel = "streams"
"""
)

MESH = """
schema = 1
name = "mesh"
question = "Which pairs are slow?"
[topology]
site = [{ name = "client", role = "client" }, { name = "bonn" }, { name = "cern" }, { name = "jinr" }, { name = "ral" }]
routers = ["exchange"]
link = [
    { between = ["client", "exchange"], rate_bits_per_s = "1Gb/s", round_trip_ms = 2 },
    { between = ["bonn", "exchange"], rate_bits_per_s = "10Gb/s", round_trip_ms = 8 },
    { between = ["cern", "exchange"], rate_bits_per_s = "20Gb/s", round_trip_ms = 4 },
    { between = ["jinr", "exchange"], rate_bits_per_s = "2Gb/s", round_trip_ms = 60 },
    { between = ["ral", "exchange"], rate_bits_per_s = "10Gb/s", round_trip_ms = 20 },
]
[data]
file = [{ name = "f", size_bytes = 1_000_000_000 }]
[[server]]
name = "gridlane"
driver = "gridlane"
[[tool]]
name = "gridlane"
driver = "gridlane"
[[tool]]
name = "breaks"
driver = "breaks"
[work]
kind = "tpc_pull"
file = "f"
server = "gridlane"
[matrix]
blocks = 2
[matrix.factors]
source_site = ["bonn", "cern", "jinr", "ral"]
target_site = ["bonn", "cern", "jinr", "ral"]
[[analysis.figure]]
name = "grid"
kind = "heat_map"
title = "Rate by pair"
x = "target_site"
y = "source_site"
panel = "tool"
"""

ALL_SCENARIOS = {"multi-source": MULTI_SOURCE, "copy-or-read": REMOTE_READ, "streams": ROUND_TRIPS, "mesh": MESH}

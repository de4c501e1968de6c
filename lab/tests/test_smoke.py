"""Scenarios with small files, on loopback and over the emulator: every row is complete, true, and there."""

import dataclasses
import json
import os
import signal
import subprocess
import time

import pytest
from laboratory import MEMORY, Lab, command, last_record, leftovers, network_is_up, processes_naming

from gridlane_lab import record, report, runner
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.record import Environment, PathCheck, Run, Sample, SourceShare, Status, Transfer
from gridlane_lab.workspace import sweep

LOOPBACK = """
schema = 1
name = "smoke-loopback"
question = "Does every outcome become a row?"

[topology]
backend = "loopback"

[[topology.site]]
name = "near"

[[topology.site]]
name = "client"
role = "client"

[data]
file = [{ name = "small", size_bytes = "300kB", count = 2 }]

[[server]]
name = "gridlane"
driver = "gridlane"

[[tool]]
name = "fetch"
driver = "fake-fetch"

[[tool]]
name = "again"
driver = "fake-again"

[[tool]]
name = "lying"
driver = "fake-lying"

[[tool]]
name = "short"
driver = "fake-short"

[[tool]]
name = "nothing"
driver = "fake-nothing"

[[tool]]
name = "failing"
driver = "fake-failing"

[[tool]]
name = "hanging"
driver = "fake-hanging"

[[tool]]
name = "missing"
driver = "fake-missing"

[work]
kind = "copy"
file = "small"
server = "gridlane"
source_sites = ["near"]
concurrency = 2

[limits]
transfer_s = 3

[matrix]
blocks = 2
"""

EMULATED = """
schema = 1
name = "smoke-emulated"
question = "Are figures below what paths carry?"

[topology]
site = [{ name = "near" }, { name = "far" }, { name = "client", role = "client" }]

[[topology.link]]
between = ["near", "client"]
rate_bits_per_s = "80Mb/s"
round_trip_ms = 8

[[topology.link]]
between = ["far", "client"]
rate_bits_per_s = "40Mb/s"
round_trip_ms = 20

[data]
file = [{ name = "small", size_bytes = "1500kB" }]

[[server]]
name = "gridlane"
driver = "gridlane"

[[server]]
name = "nginx"
driver = "nginx"

[[tool]]
name = "gridlane"
driver = "gridlane"

[[tool]]
name = "curl"
driver = "curl"

[work]
kind = "copy"
file = "small"
source_sites = ["near", "far"]

[limits]
transfer_s = 30

[matrix]
blocks = 2

[matrix.factors]
server = ["gridlane", "nginx"]
sources = [1, 2]
"""

EXPECTED = {
    "fetch": Status.OK,
    "again": Status.OK,
    "lying": Status.WRONG_BYTES,
    "short": Status.WRONG_BYTES,
    "nothing": Status.WRONG_BYTES,
    "failing": Status.FAILED,
    "hanging": Status.CUT_OFF,
    "missing": Status.NOT_AVAILABLE,
}


def test_every_outcome_is_a_row(tmp_path, gridlane, own_state):
    lab = Lab(tmp_path, LOOPBACK, gridlane)
    lab.run()
    for tool, status in EXPECTED.items():
        runs = lab.runs(tool=tool)
        assert [run.status for run in runs] == [status] * 2, (tool, runs)
        for run in runs:
            transfers = lab.transfers(run)
            assert [row.status for row in transfers] == [status] * 2
            assert {row.number for row in transfers} == {0, 1}
            for row in transfers:
                check_transfer(row, status)
            if status is not Status.OK:
                assert run.reason
    [environment] = lab.of(Environment)
    programs = json.loads(environment.programs_json)
    assert programs["gridlane"]["sha256"] and programs["tool missing"]["reason"].startswith("fake-missing is not")
    assert "net/ipv4/tcp_rmem" in json.loads(environment.sysctls_json)
    assert all(run.command for run in lab.of(Run) if run.status not in (Status.NOT_AVAILABLE,))
    assert all((lab.directory.path / run.raw / "0" / "stderr").exists() for run in lab.runs(tool="failing"))
    assert "on fire" in lab.runs(tool="failing")[0].reason
    # In an order that the seed draws, every cell once in a block.
    orders = [[run.tool for run in lab.of(Run) if run.block == block] for block in (0, 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(EXPECTED) and orders[0] != orders[1]
    assert record.read_results(lab.directory.path).is_complete
    assert not leftovers(own_state) and not processes_naming(own_state.parent.name)


def check_transfer(row, status):
    assert row.error if not status.is_success else not row.error
    if status is Status.NOT_AVAILABLE:
        assert row.started_ns is None and row.bytes_moved is None
        return
    assert row.queued_ns <= row.started_ns < row.closed_ns
    assert row.sources and row.destination and row.file_size_bytes == 300_000
    if status is Status.OK:
        assert row.bytes_verified == row.bytes_moved == 300_000 and row.verified_by == "runner"
        assert row.compare_s > 0 and row.goodput_bits_per_s > 0 and row.client_cpu_s > 0
    else:
        assert row.goodput_bits_per_s is None and row.total_rate_bits_per_s is None and not row.bytes_verified
    if status is Status.CUT_OFF:
        # What had arrived by then.
        assert row.bytes_moved == 5000 and 2.9 < row.total_s < 60


def test_figures_are_below_what_paths_carry(tmp_path, gridlane, own_state):
    lab = Lab(tmp_path, EMULATED, gridlane)
    lab.run()
    runs = lab.of(Run)
    assert len(runs) == 2 * (2 * 2 + 2)
    for run in runs:
        assert run.status is Status.OK, (run.cell_key, run.status, run.reason)
        assert run.backend == "tun" and run.bound_s > 0 and run.round_trip_s == 0.008
        [transfer] = lab.transfers(run)
        rate = transfer.goodput_bits_per_s
        assert transfer.bytes_verified == 1_500_000 and rate <= 1.02 * run.capacity_bits_per_s, (rate, run)
        assert run.capacity_bits_per_s < (80e6 if json.loads(run.variant_json)["sources"] == 1 else 120e6)
        assert run.wall_s > run.bound_s
        assert run.client_cpu_s > 0 and run.server_cpu_s > 0 and run.emulator_cpu_s > 0
        assert run.interface_bytes > 1_500_000 and run.file_system_bytes >= 1_500_000
        # With the headers of all packets, which interfaces count once for many; and with what was sent again.
        assert run.wire_bytes > 1.03 * 1_500_000 and run.dropped_packets >= 0
        assert run.connections is None or run.connections >= 1
        checks = [row for row in lab.of(PathCheck) if row.run_id == run.run_id]
        sources = json.loads(run.variant_json)["sources"]
        assert {(row.moment, row.sender) for row in checks} == {
            (moment, sender) for moment in ("before", "after") for sender in ("near", "far")[:sources]
        }
        for row in checks:
            assert row.verdict == "ok" and row.unaccounted_drops == 0
            assert row.round_trip_p50_s >= row.requested_round_trip_s
    rates = [row for row in lab.of(PathCheck) if row.rate_bits_per_s is not None]
    # None is measured by a sender that waited for a core.
    assert all(row.rate_bits_per_s <= 1.02 * row.requested_rate_bits_per_s for row in rates)
    # Two sources gave their parts.
    shares = {}
    for share in lab.of(SourceShare):
        shares.setdefault(share.transfer_id, []).append(share)
    assert any(len([share for share in those if share.bytes_moved]) == 2 for those in shares.values())
    [environment] = lab.of(Environment)
    assert "near:net/ipv4/tcp_wmem" in json.loads(environment.sysctls_json)
    assert not leftovers(own_state)


def test_hosts_of_a_site_take_turns(tmp_path, gridlane, own_state):
    text = EMULATED.replace('{ name = "near" }', '{ name = "near", count = 2 }')
    text = text.replace('{ name = "client", role', '{ name = "client", count = 2, role').replace(
        "blocks = 2", "blocks = 1"
    )
    text = text.replace('server = ["gridlane", "nginx"]\nsources = [1, 2]', 'server = ["gridlane"]\nconcurrency = [3]')
    lab = Lab(tmp_path, text, gridlane)
    lab.run()
    runs = lab.of(Run)
    assert len(runs) == 2
    for run in runs:
        assert run.status is Status.OK, (run.cell_key, run.status, run.reason)
        rows = sorted(lab.transfers(run), key=lambda row: row.number)
        hosts = [row.sources[0].split("/")[2].partition(":")[0] for row in rows]
        assert hosts == ["near-1", "near-2", "near-1"]
        # Rows name the sites, as the scenario does.
        assert {(row.source_site, row.target_site) for row in rows} == {("near", "client")}
        # Of the link that they share, and not of each.
        assert run.capacity_bits_per_s < 80e6 and 3 * 1_500_000 * 8 / run.wall_s < 1.02 * run.capacity_bits_per_s
        assert run.interface_bytes > 3 * 1_500_000
        # Both hosts of the source are looked at.
        assert run.connections is not None
        checks = {(row.sender, row.receiver) for row in lab.of(PathCheck) if row.run_id == run.run_id}
        assert checks == {("near-1", "client-1"), ("near-2", "client-2")}
    assert not leftovers(own_state)


def test_events_load_and_both_directions(tmp_path, gridlane):
    text = EMULATED.replace(
        "[data]",
        """
[[topology.event]]
at_s = 0.2
link = "near-client"
down = true

[[topology.event]]
at_s = 0.7
link = "near-client"
down = false

[[topology.event]]
at_s = 0.1
site = "far"
server = "kill"

[data]
""",
    ).replace('server = ["gridlane", "nginx"]\nsources = [1, 2]', "clients = [2]")
    text = text.replace("[work]", '[work]\nserver = "gridlane"\ncompeting_rate_bits_per_s = 5e6\ndirection = "both"')
    text = text.replace('kind = "copy"', 'kind = "copy"\nsources = 1').replace("blocks = 2", "blocks = 1")
    lab = Lab(tmp_path, text, gridlane)
    lab.run()
    for run in lab.of(Run):
        assert run.status is Status.OK, (run.cell_key, run.status, run.reason)
        transfers = lab.transfers(run)
        # Two clients, each a download and an upload at the same time.
        assert sorted(row.kind for row in transfers) == ["copy", "copy", "upload", "upload"]
        assert max(row.started_ns for row in transfers) < min(row.closed_ns for row in transfers)
        # Nothing passes while the link is down.
        assert run.wall_s > 0.6
        happened = (lab.directory.path / run.raw / "events.jsonl").read_text().splitlines()
        assert [json.loads(line)["at_s"] for line in happened] == [0.1, 0.2, 0.7]
    assert lab.of(Sample)


def test_a_path_that_misses_its_specification_makes_runs_void(tmp_path, gridlane, monkeypatch):
    text = EMULATED.replace("sources = [1, 2]", "sources = [1]").replace("blocks = 2", "blocks = 1")
    lab = Lab(tmp_path, text.replace('server = ["gridlane", "nginx"]', 'server = ["nginx"]'), gridlane)
    with lab.directory, lab.runner() as runner:
        turns = next(iter(_schedule(lab)))
        list(runner.environment())
        # Another path than the scenario's, which nobody has told the lab of.
        runner._segment.sites.network.set("near-client", "--delay-ms", "40")
        rows = list(runner.run_block(turns))
    runs = [row for row in rows if isinstance(row, Run)]
    assert runs and all(run.status is Status.VOID for run in runs)
    assert "delay_s" in runs[0].reason


def test_when_the_time_is_over_no_run_begins_and_all_have_rows(tmp_path, gridlane, own_state, monkeypatch):
    lab = Lab(tmp_path, LOOPBACK.replace("blocks = 2", 'blocks = 3\nfactors = { tool = ["fetch", "again"] }'), gridlane)
    answers = iter(["", "", ""])
    monkeypatch.setattr(runner, "_too_late", lambda total_s, elapsed_s: next(answers, f"{total_s:g} s were over"))
    lab.options = dataclasses.replace(lab.options, total_s=77.0)
    lab.run()
    runs = lab.of(Run)
    assert [run.block for run in runs] == [0, 0, 1, 1, 2, 2]
    assert [run.status for run in runs] == [Status.OK] * 3 + [Status.NOT_RUN] * 3
    for run in runs[3:]:
        rows = lab.transfers(run)
        assert run.reason == "77 s were over" and [row.status for row in rows] == [Status.NOT_RUN] * 2
        assert all(row.started_ns is None and row.error == run.reason and row.error_scope is None for row in rows)
        assert run.wall_s is None
    results = record.read_results(lab.directory.path)
    assert results.is_complete and results["run"].height == 6
    assert "3 runs did not begin" in report.write(lab.directory.path).read_text()
    assert not leftovers(own_state)


def test_when_it_is_too_late():
    assert runner._too_late(None, 1e9) == runner._too_late(10.0, 9.9) == ""
    assert runner._too_late(10.0, 10.1) == "[limits] total_s = 10 was over"


def test_a_server_that_does_not_start(tmp_path, gridlane, own_state):
    text = LOOPBACK.replace('driver = "gridlane"', 'driver = "gridlane"\nflags = ["--no-such-option"]', 1)
    lab = Lab(tmp_path, text.replace("blocks = 2", 'blocks = 1\nfactors = { tool = ["fetch"] }'), gridlane)
    lab.run()
    [run] = lab.of(Run)
    assert run.status is Status.FAILED and "--no-such-option" in run.reason
    assert {row.error_scope for row in lab.of(Transfer)} == {"service"}
    assert not leftovers(own_state)


def test_what_does_not_fit_is_refused(tmp_path, gridlane, own_state):
    text = LOOPBACK.replace('"300kB"', '"900TB"')
    lab = Lab(tmp_path, text, gridlane)
    with pytest.raises(LabError, match="are needed") as refused, lab.directory, lab.runner():
        pass
    assert refused.value.code is ExitCode.NO_SPACE and not leftovers(own_state)


def test_killed_resumed_and_two_at_once(tmp_path, gridlane, own_state):
    scenario = tmp_path / "killed.toml"
    text = EMULATED.replace("blocks = 2", "blocks = 4").replace("sources = [1, 2]", "sources = [1]")
    # Void or not is no matter of this test, and the machine may be busy.
    scenario.write_text(text.replace('server = ["gridlane", "nginx"]', 'server = ["nginx"]'))
    out = tmp_path / "out"
    words = ("--size", "smoke", "--gridlane", gridlane, "--work", MEMORY)
    first = subprocess.Popen(command("run", scenario, "--out", out, *words), stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: b'"block":0' in read(out / "rows.jsonl"), first)
        # It holds its locks, and does not come to its end meanwhile.
        first.send_signal(signal.SIGSTOP)
        record_file = next(own_state.glob("lab-*.json"))
        kept = last_record(record_file)
        second = subprocess.run(
            command("run", scenario, "--out", tmp_path / "other", *words), capture_output=True, text=True, check=False
        )
        assert second.returncode == ExitCode.BUSY and "measure each other" in second.stderr
        same = subprocess.run(
            command("run", "--resume", "--out", out, *words), capture_output=True, text=True, check=False
        )
        assert same.returncode == ExitCode.BUSY and "in use" in same.stderr
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    [(_, network)] = kept["networks"]
    assert record_file.exists()
    done = subprocess.run(
        command("run", "--resume", "--out", out, *words), capture_output=True, text=True, check=False, timeout=120
    )
    # Some of gridlane may be void on a machine that is busy.
    assert done.returncode in (ExitCode.OK, ExitCode.SOME_FAILED), done.stderr
    results = record.read_results(out)
    assert results.is_complete and sorted(set(results["run"]["block"])) == [0, 1, 2, 3]
    assert results["run"].height == 4 * 2 and results["environment"].height == 2
    assert not record_file.exists() and not network_is_up(gridlane, network)
    assert not any(os.path.exists(directory) for directory in kept["directories"])
    assert not processes_naming(kept["directories"][0]) and not leftovers(own_state)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(tmp_path, gridlane, own_state, number):
    scenario = tmp_path / "interrupted.toml"
    scenario.write_text(LOOPBACK.replace("blocks = 2", 'blocks = 20\nfactors = { tool = ["hanging"] }'))
    words = ("--size", "smoke", "--out", tmp_path / "out", "--gridlane", gridlane, "--work", MEMORY)
    running = subprocess.Popen(
        command("run", scenario, *words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: b'"block":0' in read(tmp_path / "out/rows.jsonl"), running)
    kept = last_record(next(own_state.glob("lab-*.json")))
    running.send_signal(number)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == ExitCode.INTERRUPTED and "Traceback" not in errors, errors
    assert not leftovers(own_state) and not processes_naming(kept["directories"][0])
    assert not any(os.path.exists(directory) for directory in kept["directories"])


def test_sweeping_again_finds_nothing(own_state):
    own_state.mkdir(exist_ok=True)
    assert sweep(own_state) == []


def _schedule(lab):
    from gridlane_lab import matrix

    return matrix.schedule(lab.whole, lab.cells)


def read(path):
    return path.read_bytes() if path.exists() else b""


def wait_for(is_there, process, patience_s=60):
    limit = time.monotonic() + patience_s
    while not is_there():
        assert process.poll() is None, process.returncode
        assert time.monotonic() < limit
        time.sleep(0.05)

"""What emulated paths allow, and what a plan makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import synthetic

from gridlane_lab import bound, matrix, paths, plan, scenario, space
from gridlane_lab.errors import ExitCode, LabError


def cells(tmp_path, text):
    file = tmp_path / "one.toml"
    file.write_text(text)
    whole = scenario.load(file)
    return whole, matrix.expand(whole, synthetic.capabilities()).cells


def cell(tmp_path, text, key):
    return next(one.scenario for one in cells(tmp_path, text)[1] if one.key == key)


def test_sources_that_share_nothing_add_up(tmp_path):
    three = cell(tmp_path, synthetic.MULTI_SOURCE, "size_bytes=500000000 sources=3 tool=gridlane")
    found = paths.paths(three)
    payload = bound.payload_bytes_per_s(800e6)
    assert [path.round_trip_s for path in found.single] == pytest.approx([0.010, 0.020, 0.030])
    assert found.together_bytes_per_s == pytest.approx(3 * payload)
    assert paths.capacity_bits_per_s(three) == pytest.approx(3 * payload * 8)
    # What bench/ has measured against: three sites of 800 Mb/s.
    assert paths.bound_s(three) == pytest.approx(bound.bound_s(5e8, found.single, 3))
    # More connections than were asked for begin sooner.
    four = [replace(path, connections=4) for path in found.single]
    assert paths.bound_s(three, [4, 4, 4]) == pytest.approx(bound.bound_s(5e8, four, 3))
    mixed = [*found.single[:2], four[2]]
    assert paths.bound_s(three, [1, 1, 4]) == pytest.approx(bound.bound_s(5e8, mixed, 3))
    assert paths.bound_s(three, [4, 4, 4]) < paths.bound_s(three, [1, 1, 4]) < paths.bound_s(three)
    # Packets of IPv6 carry less; the capacity is what nothing can exceed.
    over_ipv6, capacity, _ = space.bound_of(three, headers_bytes=bound.IPV6_HEADERS_BYTES)
    payload = bound.payload_bytes_per_s(800e6, headers_bytes=72)
    assert over_ipv6 == pytest.approx(
        bound.bound_s(5e8, [replace(path, payload_bytes_per_s=payload) for path in found.single], 3)
    )
    assert over_ipv6 > paths.bound_s(three) and capacity == paths.capacity_bits_per_s(three)


def test_a_shared_link_limits_all(tmp_path):
    text = synthetic.MULTI_SOURCE.replace("[topology]\n", '[topology]\nrouters = ["x"]\n')
    for site in ("near", "middle", "far"):
        text = text.replace(f'between = ["{site}", "client"]', f'between = ["{site}", "x"]')
    text = text.replace("link = [", 'link = [\n{ between = ["x", "client"], rate_bits_per_s = "1Gb/s", delay_ms = 1 },')
    three = cell(tmp_path, text, "size_bytes=500000000 sources=3 tool=gridlane")
    assert paths.paths(three).together_bytes_per_s == pytest.approx(bound.payload_bytes_per_s(1e9))
    assert paths.paths(three).round_trip_s == pytest.approx(0.012)
    one = cell(tmp_path, text, "size_bytes=500000000 sources=1 tool=gridlane")
    assert paths.paths(one).together_bytes_per_s == pytest.approx(bound.payload_bytes_per_s(800e6))


def test_each_direction_has_its_rate(tmp_path):
    text = synthetic.ROUND_TRIPS.replace(
        'rate_bits_per_s = "1Gb/s",', 'rate_bits_per_s = "1Gb/s", sending = { client = { rate_bits_per_s = 1e8 } },'
    )
    down = cell(tmp_path, text, "round_trip_ms=10 streams=1 tool=gridlane")
    assert paths.paths(down).single[0].payload_bytes_per_s == pytest.approx(bound.payload_bytes_per_s(1e9))
    up = cell(tmp_path, text.replace('kind = "copy"', 'kind = "upload"'), "round_trip_ms=10 streams=1 tool=gridlane")
    assert paths.paths(up).single[0].payload_bytes_per_s == pytest.approx(bound.payload_bytes_per_s(1e8))


def test_bytes_that_a_run_needs(tmp_path):
    read = cell(
        tmp_path, synthetic.REMOTE_READ,
        "fraction=0.1 kind=remote_read read_mode=vector round_trip_ms=26 tool=gridlane",
    )  # fmt: skip
    assert paths.run_bytes(read) == 10_000_000
    copied = cell(
        tmp_path, synthetic.REMOTE_READ,
        "fraction=0.1 kind=copy_then_read read_mode=single round_trip_ms=26 tool=gridlane",
    )  # fmt: skip
    assert paths.run_bytes(copied) == 100_000_000


def test_hosts_are_those_of_their_site_alone(tmp_path):
    """Names of sites may look like those of hosts."""
    text = synthetic.ROUND_TRIPS.replace('{ name = "near" }', '{ name = "near", count = 2 }, { name = "near-x" }')
    text = text.replace("link = [", 'link = [{ between = ["near-x", "client"], delay_ms = 1 },')
    topology = cell(tmp_path, text, "round_trip_ms=10 streams=1 tool=gridlane").topology
    found = {place: topology.site_of(place) for place in ("near", "near-2", "near-x", "near-3", "client", "none")}
    assert {place: site and site.name for place, site in found.items()} == {
        "near": "near", "near-2": "near", "near-x": "near-x", "near-3": None, "client": "client", "none": None,
    }  # fmt: skip


def test_hosts_of_one_site_have_no_path(tmp_path):
    text = synthetic.ROUND_TRIPS.replace('{ name = "near" }', '{ name = "near", count = 2 }')
    text = text.replace('source_sites = ["near"]', 'source_sites = ["near-1"]\ntarget_site = "near-2"')
    within = cell(tmp_path, text, "round_trip_ms=10 streams=1 tool=gridlane")
    assert paths.paths(within) is None and paths.bound_s(within) is None
    assert paths.capacity_bits_per_s(within) is None


def test_hosts_of_a_site_share_its_link(tmp_path):
    text = synthetic.ROUND_TRIPS.replace('{ name = "near" }', '{ name = "near", count = 4 }')
    text = text.replace("[matrix]", "concurrency = 4\n[matrix]", 1)
    key = "round_trip_ms=10 streams=1 tool=gridlane"
    shared, alone = cell(tmp_path, text, key), cell(tmp_path, synthetic.ROUND_TRIPS, key)
    assert shared.hosts("near") == ["near-1", "near-2", "near-3", "near-4"] and shared.hosts("near-2") == ["near-2"]
    assert alone.hosts("near") == ["near"]
    assert paths.capacity_bits_per_s(shared) == paths.capacity_bits_per_s(alone) > 0
    # A host has no more than all of them.
    one = text.replace('source_sites = ["near"]', 'source_sites = ["near-3"]')
    assert paths.capacity_bits_per_s(cell(tmp_path, one, key)) == paths.capacity_bits_per_s(alone)


def test_a_plan_counts_everything(tmp_path):
    whole, found = cells(tmp_path, synthetic.MULTI_SOURCE)
    estimate = plan.make(whole, found)
    large = [one for one in found if one.levels["size_bytes"] == 500_000_000]
    assert estimate.cells == len(found)
    assert estimate.runs == sum(one.blocks + 1 for one in found)
    assert estimate.networks == 1
    assert estimate.moved_bytes == pytest.approx(len(large) * 9 * 5e8 + (len(found) - len(large)) * 4 * 1e6)
    assert estimate.memory_bytes == 501_000_000 + 500_000_000 + plan.PROGRAMS_BYTES
    assert 300 < estimate.time_s < 1200
    assert estimate.assumed_cells == 0 and estimate.cut_cells == 0


def test_time_of_what_moves_no_file_and_of_what_lasts(tmp_path):
    key = "round_trip_ms=10 streams=1 tool=gridlane"
    text = synthetic.ROUND_TRIPS
    one = cell(tmp_path, text, key)
    capacity, size = paths.capacity_bits_per_s(one), one.file_of().size_bytes

    def with_work(options=None, **changes):
        tool = one.tool[0].model_copy(update={"options": options or {}})
        return one.model_copy(update={"work": one.work.model_copy(update=changes), "tool": [tool]})

    # iperf3 moves as much as a file has, or lasts as long as it is told.
    assert plan.run_s(with_work(kind="raw_network"))[0] == pytest.approx(size * 8 / capacity)
    assert plan.run_s(with_work(kind="raw_network", options={"seconds": 2.0})) == (2.0, False)
    # What has begun in time is half done at the end in the mean; the limit is that of a transfer, not of the run.
    lasting = with_work(duration_s=5000.0, concurrency=4)
    assert plan.run_s(lasting)[0] == pytest.approx(5000 + min(4 * size * 8 / capacity / 2, lasting.limits.transfer_s))
    assert plan.limited_s(lasting) == plan.run_s(lasting)[0] > lasting.limits.transfer_s
    assert plan.limited_s(with_work(file=one.work.file)) <= one.limits.transfer_s


def test_networks_and_servers_that_a_run_makes(tmp_path):
    whole, found = cells(tmp_path, synthetic.ROUND_TRIPS)
    networks, servers = plan.starts(whole, found)
    distinct = len({one.scenario.network_key() for one in found})
    # The network that a block ends with may be the one that the next begins with.
    assert distinct > 1 and (distinct - 1) * whole.matrix.blocks < networks <= distinct * whole.matrix.blocks
    assert servers == networks
    text = synthetic.ROUND_TRIPS.replace('{ name = "near" }', '{ name = "near", count = 3 }')
    assert plan.starts(*cells(tmp_path, text)) == (networks, 3 * servers)
    # One network for all blocks, with the servers of three sites.
    assert plan.starts(*cells(tmp_path, synthetic.MULTI_SOURCE)) == (1, 3)
    fresh = synthetic.MULTI_SOURCE.replace("[data]", "[host]\nfresh_namespaces = true\n[data]", 1)
    assert plan.starts(*cells(tmp_path, fresh))[0] == plan.make(*cells(tmp_path, fresh)).runs


def test_a_plan_and_a_run_count_the_same(tmp_path):
    """What a run refuses for want of room, the plan refuses before."""
    text = synthetic.MULTI_SOURCE.replace('{ name = "near"', '{ name = "near", storage = "disk"', 1)
    whole, found = cells(tmp_path, text)
    estimate, needed = plan.make(whole, found), space.needs(found)
    assert needed.disk_bytes == 501_000_000 and needed.memory_bytes == 500_000_000
    assert (estimate.memory_bytes, estimate.disk_bytes) == (500_000_000 + plan.PROGRAMS_BYTES, 501_000_000)


def test_single_reads_wait_and_are_cut(tmp_path):
    whole, found = cells(tmp_path, synthetic.REMOTE_READ)
    estimate = plan.make(whole, found)
    assert estimate.cut_cells == 2
    slow = next(
        one for one in found if one.key.startswith("fraction=1 kind=remote_read read_mode=single round_trip_ms=300")
    )
    assert plan.run_s(slow.scenario)[0] > 1000 * 0.3


def test_what_does_not_fit_is_refused(tmp_path, monkeypatch):
    whole, found = cells(tmp_path, synthetic.MULTI_SOURCE)
    estimate = plan.make(whole, found)
    plan.check(estimate, whole, tmp_path)
    monkeypatch.setattr(plan, "available_memory_bytes", lambda: 10**9)
    with pytest.raises(LabError, match=r"needs 2\.501 GB of memory, and 1 GB are there") as error:
        plan.check(estimate, whole, tmp_path)
    assert error.value.code == ExitCode.NO_SPACE
    tight = whole.model_copy(update={"limits": whole.limits.model_copy(update={"total_s": 10.0})})
    with pytest.raises(LabError, match=r"takes about .* allows 10 s") as error:
        plan.check(estimate, tight, tmp_path)
    assert error.value.code == ExitCode.TIMEOUT
    small = whole.model_copy(update={"limits": whole.limits.model_copy(update={"disk_bytes": 5})})
    on_disk = plan.Plan(1, 1, 1, 1.0, 1.0, 1, 10, 0, 0)
    with pytest.raises(LabError, match="needs 10 B of disk"):
        plan.check(on_disk, small, tmp_path)

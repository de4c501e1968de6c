"""The scenarios that come along: all sizes load and expand, and the quick ones fit into their time together.

Those below `own/` are of no paper: their targets are gridlane's own, and their quick sizes only show that they work.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import gridlane_lab.drivers  # noqa: F401
from gridlane_lab import analysis, claims, cli, matrix, plan, registry, scenario
from gridlane_lab.driver import Task
from gridlane_lab.errors import ExitCode
from gridlane_lab.reading import trace_file
from gridlane_lab.record import Status

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
PUBLISHED = sorted(SCENARIOS.glob("*.toml"))
OWN = sorted(SCENARIOS.glob("own/*.toml"))
FILES = [*PUBLISHED, *OWN]
# Two cores, all five experiments.
QUICK_S = 40 * 60
OWN_QUICK_S = 10 * 60


def sizes_of(file: Path) -> list[str]:
    return sorted(tomllib.loads(file.read_text())["size"])


CASES = [(file, size) for file in FILES for size in sizes_of(file)]


@pytest.fixture(scope="module")
def expanded() -> dict[tuple[str, str], tuple[scenario.Scenario, matrix.Expansion]]:
    found = {}
    for file, size in CASES:
        whole = scenario.load(file, size)
        found[file.name, size] = (whole, matrix.expand(whole, registry.capabilities()))
    return found


@pytest.mark.parametrize(("file", "size"), CASES, ids=lambda value: getattr(value, "name", value))
def test_a_scenario_expands(expanded, file, size):
    whole, expansion = expanded[file.name, size]
    assert whole.name == file.stem and expansion.cells
    is_published = bool(whole.published_figure) and any(tag.startswith("experiment-") for tag in whole.tags)
    assert is_published == (file in PUBLISHED and size != "smoke")
    known = set(registry.servers())
    for server in whole.server:
        assert not known or server.driver in known, server.driver
    for cell in expansion.cells:
        read = cell.scenario.work.read
        if read is not None and read.trace is not None:
            trace_file(str(read.trace))


def test_every_tool_runs_in_some_size(expanded):
    """One that no cell has is the leftover of an edit."""
    for file in FILES:
        runs = {cell.tool for size in sizes_of(file) for cell in expanded[file.name, size][1].cells}
        assert runs == {tool.name for tool in expanded[file.name, sizes_of(file)[0]][0].tool}, file.name


def test_there_are_five_experiments_in_both_sizes():
    found = {}
    for file in PUBLISHED:
        document = tomllib.loads(file.read_text())
        for tag in document["tags"] if document["name"] != "smoke" else ():
            found.setdefault(tag, set()).update(document["size"])
    assert sorted(found) == [f"experiment-{number}" for number in range(1, 6)]
    assert all({"quick", "paper"} <= sizes for sizes in found.values())


def test_the_own_ones_have_targets_and_blocks_enough_for_them(expanded):
    """In the full size, of which the quick one has the same cells."""
    assert OWN
    for file in OWN:
        assert sizes_of(file) == ["full", "quick"] and "own" in tomllib.loads(file.read_text())["tags"]
        whole, expansion = expanded[file.name, "full"]
        quick = expanded[file.name, "quick"][1]
        assert [cell.key for cell in expansion.cells] == [cell.key for cell in quick.cells]
        estimate = plan.make(whole, expansion.cells)
        assert estimate.time_s <= whole.limits.total_s and estimate.memory_bytes <= 16e9, file.name
        targets = [claim for claim in whole.analysis.claim if claim.kind != "never_above_capacity"]
        assert targets, file.name
        for claim in targets:
            for pattern in (claim.variant, claim.baseline):
                found = [cell for cell in expansion.cells if pattern is None or matrix.matches(pattern, cell.levels)]
                assert any(cell.blocks >= 6 for cell in found), (file.name, claim.name)


@pytest.mark.parametrize(("files", "most_s"), [(PUBLISHED, QUICK_S), (OWN, OWN_QUICK_S)], ids=["published", "own"])
def test_the_quick_ones_fit_into_their_time(expanded, files, most_s):
    times = {
        file.name: plan.make(*_plan_of(expanded[file.name, "quick"])).time_s
        for file in files
        if "quick" in sizes_of(file)
    }
    assert 0 < sum(times.values()) <= most_s, times


def _plan_of(found):
    whole, expansion = found
    return whole, expansion.cells


def test_each_quick_one_fits_into_a_small_machine(expanded):
    for (name, size), (whole, expansion) in expanded.items():
        if size in ("quick", "smoke"):
            estimate = plan.make(whole, expansion.cells)
            assert estimate.memory_bytes <= 10e9, name
            assert estimate.time_s <= whole.limits.total_s, name


def test_what_is_claimed_of_the_quick_ones_has_six_blocks(expanded):
    """Ratios, differences and the like: variant and baseline. A check of the measurement itself needs none."""
    for (name, size), (whole, expansion) in expanded.items():
        if size != "quick" or whole.matrix.blocks < 6:
            continue
        for claim in whole.analysis.claim:
            if claim.kind in ("success", "never_above_capacity"):
                continue
            for pattern in (claim.variant, claim.baseline):
                cells = [
                    cell for cell in expansion.cells if pattern is not None and matrix.matches(pattern, cell.levels)
                ]
                assert pattern is None or any(cell.blocks >= 6 for cell in cells), (name, claim.name)


def test_every_cell_of_the_quick_ones_has_a_command(expanded, tmp_path, monkeypatch):
    """Also where the tool is not installed: it is only a word then."""
    from gridlane_lab.drivers import common, readers

    monkeypatch.setattr(common.shutil, "which", lambda name, path=None: f"/bin/{name}")
    monkeypatch.setattr(readers, "python_with", lambda *modules: "/usr/bin/python3")
    monkeypatch.setenv("GRIDLANE_LAB_FDT_JAR", "/fdt.jar")
    schemes = {"gsiftp": "ftp"}
    for (name, size), (_, expansion) in expanded.items():
        if size != "quick":
            continue
        for cell in expansion.cells:
            work = cell.scenario.work
            scheme = schemes.get(work.protocol, work.protocol)
            sources = tuple(f"{scheme}://{site}:1/file" for site in work.chosen_sources())
            is_remote = work.kind.startswith("tpc")
            one = Task(
                scenario=cell.scenario,
                sources=("/dev/shm/file",) if work.kind == "memory_copy" else sources,
                target=f"{scheme}://{work.target_site}:1/put/file" if is_remote else "/dev/shm/target",
                size_bytes=cell.scenario.file_of().size_bytes,
                checksum="adler32:1",
                scratch=tmp_path,
            )
            driver = registry.tool(cell.scenario.tool[0].driver)
            if driver.availability.__qualname__.startswith("_Declared"):
                continue
            assert driver.command(one).argv, (name, cell.key)


@pytest.mark.parametrize(("file", "size"), CASES, ids=lambda value: getattr(value, "name", value))
def test_a_plan_is_printed_or_refused_for_a_reason(expanded, file, size, capsys, monkeypatch):
    monkeypatch.setattr(plan, "available_memory_bytes", lambda: 24 * 10**9)
    code = cli.main(["plan", str(file), "--size", size])
    said = capsys.readouterr()
    whole, expansion = expanded[file.name, size]
    assert f"{len(expansion.cells)} cells, {whole.matrix.blocks} blocks" in said.out
    assert code == 0 or size == "paper"
    if code:
        # Time or room, with what is needed, what there is, and what to do.
        assert code in (ExitCode.NO_SPACE, ExitCode.TIMEOUT)
        assert said.err.count("\n") == 1
        assert re.search(r"takes about .+ and \[limits\] total_s allows|needs .+ of (memory|disk)", said.err)
        assert re.search(r"run fewer|smaller", said.err)


def test_variant_and_baseline_of_every_claim_can_be_paired(expanded):
    """In every size: by all factors that the patterns do not name and that both sides have levels of."""
    for (name, size), (whole, expansion) in expanded.items():
        observed = [
            analysis.Observation(
                run_id=cell.key, block=0, cell_key=cell.key, levels=cell.levels, status=Status.OK, reason="",
                responses=dict.fromkeys(analysis.RESPONSES, 1.0), transfers=1, successes=1, extrapolated_s=None,
                cut_off_s=None, bound_s=1.0, capacity_bits_per_s=1.0, round_trip_s=0.0, source_site="", target_site="",
            )
            for cell in expansion.cells
        ]  # fmt: skip
        for claim in whole.analysis.claim:
            variant = analysis.select(observed, claim.variant)
            assert variant, (name, size, claim.name)
            if claim.baseline is not None:
                baseline = analysis.select(observed, claim.baseline)
                named = {*claim.variant, *claim.baseline}
                first, _, _ = claims.pair_by_block(variant, baseline, named, "wall_s")
                assert first, (name, size, claim.name)


# What the published experiments had: attributes of the cells of the paper's size.
PAPER = {
    "multi-source": {"size": {1e6, 5e8, 1e9, 2e9}, "blocks": {100}, "sources": {1, 2, 3}},
    "single-source": {"size": {1e6, 5e8, 1e9, 2e9}, "blocks": {100}, "sources": {1}},
    "tpc-loopback": {"size": {1e9, 2e9, 5e9, 1e10}, "blocks": {100}, "concurrency": set(range(1, 13))},
    "tpc-pair": {"size": {1e9}, "blocks": {100}, "streams": {1, 2, 4, 8}},
    "tpc-mesh": {"size": {1e9}, "blocks": {100}},
    "tpc-hosts": {"size": {1e9}, "hosts": {1, 2, 4, 8}, "concurrency": {16}},
    "read-or-copy": {
        "size": {1e9}, "blocks": {50}, "round_trip_ms": {0.5, 26, 300}, "event_bytes": {1000, 1_000_000},
        "fraction": {0.01, 0.05, 0.1, 0.2, 0.5, 1.0}, "pattern": {"random", "sequential"},
    },
    "read-tree": {"blocks": {100}, "round_trip_ms": {0.5, 26, 300}},
    "sustained": {"size": {1e9, 1e10}, "duration_s": {86_400}, "concurrency": {1, 2, 5, 10, 20}},
    "http-xrootd": {
        "round_trip_ms": {0, 0.5, 10, 26, 50, 100, 200, 300}, "segment_bytes": {128_000_000}, "mtu_bytes": {9000},
        "blocks": {100},
    },
    "http-branches": {
        "groups": {(part, trigger) for part in (0.1, 0.3, 1.0) for trigger in (0, 20, 100)},
        "round_trip_ms": {0, 0.5, 10, 26, 50, 100, 200, 300}, "mtu_bytes": {9000},
    },
    "throughput-rtt": {
        "size": {1e9}, "blocks": {100}, "streams": {1, 4, 8}, "mtu_bytes": {9000},
        "round_trip_ms": {0, 0.5, 10, 26, 50, 100, 200, 300},
    },
}  # fmt: skip


def attributes(cell: matrix.Cell) -> dict[str, object]:
    one = cell.scenario
    found = {
        **cell.levels, "size": one.file_of().size_bytes, "blocks": cell.blocks, "sources": one.work.sources,
        "duration_s": one.work.duration_s, "concurrency": one.work.concurrency, "mtu_bytes": one.topology.mtu_bytes,
    }  # fmt: skip
    if one.work.read is not None:
        found["segment_bytes"] = one.work.read.segment_bytes
        found["groups"] = (one.work.read.branch_fraction, one.work.read.trigger_factor)
    return found


@pytest.mark.parametrize("name", [file.stem for file in PUBLISHED if file.stem != "smoke"])
def test_the_paper_s_size_has_the_paper_s_numbers(expanded, name):
    cells = [attributes(cell) for cell in expanded[f"{name}.toml", "paper"][1].cells]
    for attribute, wanted in PAPER[name].items():
        assert {cell[attribute] for cell in cells} == wanted, attribute


def test_the_lightpath_is_the_published_one(expanded):
    (link,) = expanded["sustained.toml", "paper"][0].topology.link
    assert (link.rate_bits_per_s, link.round_trip_ms) == (1e9, 6.5)


def test_the_guide_s_example_of_real_endpoints(tmp_path):
    guide = (SCENARIOS.parents[1] / "docs/guides/lab.md").read_text()
    begin = guide.index("    # mine.toml\n")
    lines = guide[begin : guide.index("\nThen\n", begin)].splitlines()
    (tmp_path / "mine.toml").write_text("\n".join(line.removeprefix("    ") for line in lines))
    whole = scenario.load(tmp_path / "mine.toml")
    cells = matrix.expand(whole, registry.capabilities()).cells
    assert [endpoint.name for endpoint in whole.endpoint] == ["home", "abroad"]
    assert len(cells) == 4


def test_the_guide_has_all_drivers_with_their_kinds():
    guide = (SCENARIOS.parents[1] / "docs/guides/lab.md").read_text()
    table = {line.split("`")[1]: line for line in guide.splitlines() if line.startswith("| `") and line.count("|") == 5}
    for name, driver in registry.tools().items():
        if name.startswith("gridlane-"):
            assert f"`{name}`" in guide
            continue
        can = driver.capabilities
        for word in (*can.kinds, *can.protocols):
            assert word in table[name], (name, word)

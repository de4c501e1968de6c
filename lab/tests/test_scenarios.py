"""The scenarios that come along: all sizes load and expand, and the quick ones fit into their time together.

Those below `own/` are of no paper: their targets are gridlane's own, and their quick sizes only show that they work.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import gridlane_lab.drivers  # noqa: F401
from gridlane_lab import matrix, plan, registry, scenario
from gridlane_lab.driver import Task
from gridlane_lab.reading import trace_file

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

"""Cells: only valid ones, impossible matrices with the reason, and an order that follows from the seed."""

from __future__ import annotations

from itertools import groupby

import pytest
import synthetic

from gridlane_lab import matrix, scenario
from gridlane_lab.errors import ExitCode, LabError


def whole(tmp_path, text=synthetic.MULTI_SOURCE):
    file = tmp_path / "one.toml"
    file.write_text(text)
    return scenario.load(file)


def expand(tmp_path, text=synthetic.MULTI_SOURCE):
    return matrix.expand(whole(tmp_path, text), synthetic.capabilities())


def refusal(tmp_path, text):
    with pytest.raises(LabError) as error:
        expand(tmp_path, text)
    assert error.value.code == ExitCode.USAGE
    return str(error.value)


def test_cells_are_those_that_mean_something(tmp_path):
    found = expand(tmp_path)
    keys = {cell.key for cell in found.cells}
    assert "size_bytes=1000000 sources=1 tool=curl" in keys
    # curl reads from one source, by its driver's word; the broken tool skips two, by the scenario's.
    assert not any("tool=curl" in key and "sources=3" in key for key in keys)
    assert not any("broken" in key and "sources=2" in key for key in keys)
    assert found.dropped["curl: reads from one source only"] == 4
    assert found.dropped["the tool broken tool takes only sources=1|3"] == 2
    assert len(found.cells) + sum(found.dropped.values()) == 3 * 2 * 7
    # A tool that is not installed is a cell all the same.
    assert any(cell.tool == "absent" for cell in found.cells)
    assert {cell.blocks for cell in found.cells if cell.levels["size_bytes"] == 1_000_000} == {3}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sources = [1, 2, 3]", "sources = [1, 2, 3, 4]", "no valid cell has sources = 4"),
        ("sources = [1, 2, 3]", "sources = [1, 2, 3, 3]", "has the level 3 twice"),
        ("sources = [1, 2, 3]", "sources = [1, 2, 3]\nweather = [1]", "the factor 'weather' changes nothing"),
        ("sources = [1, 2, 3]", "sources = []", "the factor 'sources' has no levels"),
        ("sources = [1, 2, 3]", 'sources = [1, 2, 3]\ntool = ["wget"]', "which is no [[tool]]"),
        ('{ factor = "size_bytes" }', '{ factor = "size" }', "refers to no factor"),
        ("seed = 3", "seed = 3\nexclude = [{ sources = 9 }]", "exclude has sources = 9, which is no level"),
        ("seed = 3", "seed = 3\nexclude = [{ colour = 9 }]", "exclude names 'colour', which is no factor"),
        ("seed = 3", 'seed = 3\nonly = [{ tool = "curl", sources = 2 }]', "no valid cell is left"),
        ("seed = 3", 'seed = 3\nslow_factors = ["x"]', "slow_factors names 'x'"),
        ('baseline = { tool = "aria2c" }', 'baseline = { tool = "curl", sources = 2 }', "matches no valid cell"),
        ('driver = "curl"', 'driver = "wget"', "has the driver 'wget', which does not exist"),
        ('panel = "sources"', 'panel = "moon"', "names 'moon', which is no factor"),
        ('server = "nginx"\n', 'server = "iis"\n', "[work] server = 'iis' is no [[server]]"),
        ('"middle", "far"]\n[matrix]', '"middle", "mars"]\n[matrix]', "[work] names 'mars'"),
        ('file = "f"', 'file = "g"', "is no [[data.file]]; there are: f"),
    ],
)  # fmt: skip
def test_impossible_matrices_are_refused(tmp_path, old, new, said):
    assert old in synthetic.MULTI_SOURCE
    assert said in refusal(tmp_path, synthetic.MULTI_SOURCE.replace(old, new, 1))


def test_too_large_a_matrix_is_refused(tmp_path):
    levels = ", ".join(map(str, range(1, 70_000)))
    text = synthetic.MULTI_SOURCE.replace("sources = [1, 2, 3]", f"sources = [1, 2, 3]\nstreams = [{levels}]")
    assert "combinations of levels, at most" in refusal(tmp_path, text)


def test_blocks_are_random_and_repeatable(tmp_path):
    one = whole(tmp_path)
    cells = matrix.expand(one, synthetic.capabilities()).cells
    blocks = list(matrix.schedule(one, cells))
    assert [turns[0].block for turns in blocks] == list(range(-1, 8))
    again = list(matrix.schedule(one, cells))
    assert [[t.cell.key for t in turns] for turns in blocks] == [[t.cell.key for t in turns] for turns in again]
    # Cells with fewer blocks are in the first ones only.
    assert len(blocks[0]) == len(blocks[3]) == len(cells)
    assert len(blocks[4]) == sum(cell.blocks == 8 for cell in cells)
    orders = {tuple(t.cell.key for t in turns) for turns in blocks[4:]}
    assert len(orders) == len(blocks[4:])
    assert [t.order_in_block for t in blocks[2]] == list(range(len(blocks[2])))
    other = one.model_copy(update={"matrix": one.matrix.model_copy(update={"seed": 4})})
    assert [t.cell.key for t in next(matrix.schedule(other, cells))] != [t.cell.key for t in blocks[0]]


def test_slow_factors_change_rarely(tmp_path):
    one = whole(tmp_path, synthetic.ROUND_TRIPS)
    cells = matrix.expand(one, synthetic.capabilities()).cells
    for turns in matrix.schedule(one, cells):
        changes = [level for level, _ in groupby(turn.cell.levels["round_trip_ms"] for turn in turns)]
        assert len(changes) == 5
    firsts = {turns[0].cell.levels["round_trip_ms"] for turns in matrix.schedule(one, cells)}
    assert len(firsts) > 1


def test_patterns():
    levels = {"n": 1, "x": 2.0, "tool": "a", "flag": True}
    assert matrix.matches({}, levels)
    assert matrix.matches({"n": [1, 2], "x": 2}, levels)
    assert not matrix.matches({"flag": 1}, levels)
    assert not matrix.matches({"absent": 1}, levels)
    assert matrix.cell_key(levels) == "flag=true n=1 tool=a x=2"


def test_pairs_of_sites(tmp_path):
    found = expand(tmp_path, synthetic.MESH)
    assert len(found.cells) == 12 * 2
    assert found.dropped["gridlane: source and target are the same site"] == 4

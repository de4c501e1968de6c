"""Scenario files: sizes, extensions, references, and mistakes that are told with file, line and key."""

from __future__ import annotations

import pytest
import synthetic

from gridlane_lab import scenario
from gridlane_lab.errors import ExitCode, LabError


def load(tmp_path, text, size="quick"):
    file = tmp_path / "one.toml"
    file.write_text(text)
    return scenario.load(file, size)


def refusal(tmp_path, text, size="quick"):
    with pytest.raises(LabError) as error:
        load(tmp_path, text, size)
    assert error.value.code == ExitCode.USAGE
    return str(error.value)


@pytest.mark.parametrize("text", synthetic.ALL_SCENARIOS.values(), ids=list(synthetic.ALL_SCENARIOS))
def test_json_keeps_everything(tmp_path, text):
    one = load(tmp_path, text)
    again = scenario.Scenario.from_json(one.to_json())
    assert again == one
    assert again.sha256() == one.sha256()


def test_sizes_are_overlays(tmp_path):
    text = synthetic.ROUND_TRIPS + "\n[size.quick]\n[size.paper.matrix]\nblocks = 100\n"
    assert load(tmp_path, text).matrix.blocks == 6
    paper = load(tmp_path, text, "paper")
    assert paper.matrix.blocks == 100
    assert paper.matrix.factors["streams"] == [1, 8]
    with pytest.raises(LabError, match="has no size 'smoke'; it has: quick, paper"):
        load(tmp_path, text, "smoke")
    assert "unknown size huge" in refusal(tmp_path, text + "[size.huge]\n")


def test_named_tables_merge_by_name():
    base = {"tool": [{"name": "a", "flags": ["-x"]}, {"name": "b"}], "n": {"x": 1, "y": [1, 2]}}
    over = {"tool": [{"name": "b", "flags": ["-y"]}, {"name": "c"}], "n": {"y": [3]}}
    assert scenario.merged(base, over) == {
        "tool": [{"name": "a", "flags": ["-x"]}, {"name": "b", "flags": ["-y"]}, {"name": "c"}],
        "n": {"x": 1, "y": [3]},
    }


def test_extends_puts_other_files_before(tmp_path):
    (tmp_path / "tools.toml").write_text(synthetic.TOOLS)
    text = 'extends = "tools.toml"\n' + synthetic.ROUND_TRIPS.replace(synthetic.TOOLS, "")
    assert [tool.name for tool in load(tmp_path, text).tool] == ["gridlane", "aria2c", "xrdcp"]
    (tmp_path / "tools.toml").write_text('extends = "one.toml"\n')
    assert "extends itself" in refusal(tmp_path, text)
    with pytest.raises(LabError, match="no such scenario file") as error:
        load(tmp_path, text.replace("tools.toml", "absent.toml"))
    assert error.value.code == ExitCode.NOT_FOUND


def test_mistakes_name_file_line_and_key(tmp_path):
    text = synthetic.ROUND_TRIPS
    line = text.splitlines().index("[matrix]") + 2
    said = refusal(tmp_path, text.replace("[matrix]\n", "[matrix]\nblokcs = 3\n"))
    assert f"one.toml:{line}: unknown key matrix.blokcs; known are: blocks, exclude" in said
    said = refusal(tmp_path, text.replace("blocks = 6", 'blocks = "many"'))
    assert f"one.toml:{line}: matrix.blocks: input should be a valid integer" in said and "not 'many'" in said
    said = refusal(tmp_path, text.replace("[[tool]]\n", "[[tool]]\ncolour = 1\n", 1))
    assert "unknown key tool[0].colour; known are: driver" in said
    said = refusal(tmp_path, text.replace('question = "How do streams scale with the round trip?"\n', ""))
    assert "the key question is missing" in said
    assert "is no TOML" in refusal(tmp_path, "[[")
    said = refusal(tmp_path, text.replace('rate_bits_per_s = "1Gb/s"', 'rate_bits_per_s = "1GB"'))
    assert "'1GB' is no rate; write it like 800Mb/s" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('{ name = "near" }]', '{ name = "near" }, { name = "near" }]', "two nodes called 'near'"),
        ('["near", "client"]', '["near", "moon"]', "ends at 'moon', which is no site"),
        ('["near", "client"]', '["near", "near"]', "begins and ends at the same node"),
        ("round_trip_ms = {", "delay_ms = 1, round_trip_ms = {", "has both delay_ms and round_trip_ms"),
        ("[topology]", '[[endpoint]]\nname = "e"\nurls = ["https://e/"]\n[topology]', "either [topology]"),
        ('name = "aria2c"', 'name = "gridlane"', "two [[tool]] called 'gridlane'"),
        ('title = "Rate against round trip"', "", "the key analysis.figure[0].title is missing"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(tmp_path, old, new, said):
    assert old in synthetic.ROUND_TRIPS
    assert said in refusal(tmp_path, synthetic.ROUND_TRIPS.replace(old, new, 1))


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ('kind = "ratio"\nleast = 1', "needs a baseline"),
        ('kind = "median"', "needs least or most"),
        ('kind = "equivalent"\nbaseline = {}\nmost = 0.9', "an equivalence needs `most`"),
    ],
)
def test_claims_say_something(tmp_path, claim, said):
    text = f'{synthetic.ROUND_TRIPS}\n[[analysis.claim]]\nname = "c"\nstatement = "s"\n{claim}\n'
    assert said in refusal(tmp_path, text)


def test_resolve_replaces_references(tmp_path):
    one = load(tmp_path, synthetic.ROUND_TRIPS)
    assert one.references() == {"round_trip_ms"}
    cell = one.resolve({"round_trip_ms": 50, "streams": 8, "tool": "xrdcp"})
    assert cell.topology.link[0].one_way_ms == 25
    assert cell.work.streams == 8
    assert [tool.name for tool in cell.tool] == ["xrdcp"]
    assert cell.references() == set()
    same_network = one.resolve({"round_trip_ms": 50, "streams": 1, "tool": "gridlane"})
    assert same_network.network_key() == cell.network_key()
    assert one.resolve({"round_trip_ms": 0, "streams": 1, "tool": "xrdcp"}).network_key() != cell.network_key()
    with pytest.raises(LabError, match=r"cell .*topology\.link\[0\]\.round_trip_ms: .*not 'far'"):
        one.resolve({"round_trip_ms": "far", "streams": 1, "tool": "xrdcp"})


def test_places_and_servers(tmp_path):
    text = synthetic.ROUND_TRIPS.replace('{ name = "near" }', '{ name = "near", count = 2 }')
    one = load(tmp_path, text)
    assert one.places() == ["client", "near-1", "near-2"]
    assert one.server_sites(one.server[0]) == ["near-1", "near-2"]


def test_endpoints(tmp_path):
    text = synthetic.ROUND_TRIPS.split("[topology]")[0]
    text += '[[endpoint]]\nname = "e"\nurls = ["https://e:1094/x", "root://e:1094//x"]\n'
    text += "[data]" + synthetic.ROUND_TRIPS.split("[data]")[1]
    one = load(tmp_path, text)
    assert one.places() == ["e"]
    assert one.endpoint[0].url("root") == "root://e:1094//x"
    assert one.endpoint[0].url("gsiftp") is None
    assert "is no URL of an endpoint" in refusal(tmp_path, text.replace("https://e:1094/x", "e:1094"))


def test_lines_of_keys():
    text = '[a]\nx = 1\n[[b]]\ny = 2\n[[b]]\ny = 3\nz = { w = 4 }\n[c.d]\n"e f" = 5\n'
    assert scenario.line_of(text, ("a", "x")) == 2
    assert scenario.line_of(text, ("b", 0, "y")) == 4
    assert scenario.line_of(text, ("b", 1, "y")) == 6
    assert scenario.line_of(text, ("b", 1, "z", "w")) == 7
    assert scenario.line_of(text, ("c", "d", "e f")) == 9
    assert scenario.line_of(text, ("q",)) is None

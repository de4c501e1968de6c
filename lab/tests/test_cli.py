"""The command line: what it prints, its exit codes, runs that are killed and resumed. Runs are those of the model."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
import synthetic

from gridlane_lab import cli, plan, record, registry
from gridlane_lab.errors import ExitCode

SMALL = synthetic.MESH.replace("[[analysis.figure]]", '[analysis]\nresponse = "wall_s"\n[[analysis.figure]]').split(
    "[[analysis.figure]]"
)[0]
SMALL += """
[[analysis.claim]]
name = "fast"
statement = "It is fast"
kind = "median"
variant = { tool = "gridlane" }
most = 100
"""


@pytest.fixture(autouse=True)
def _fakes(monkeypatch):
    monkeypatch.setattr(registry, "_tools", dict(synthetic.drivers()))
    monkeypatch.setattr(registry, "_servers", {})
    monkeypatch.setattr(registry, "_runner", runner)
    monkeypatch.setattr(cli, "_exit_on_signals", lambda: None)
    monkeypatch.setattr(plan, "available_memory_bytes", lambda: 20 * 10**9)


def runner(whole, cells, directory, experiment_id, options, progress):
    class Told(synthetic.ModelRunner):
        def run_block(self, turns):
            for turn in turns:
                progress(turn, "transfer")
                yield from self.turn(turn)

    assert options.gridlane.is_absolute() and cells
    return Told(whole, directory, experiment_id)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


@pytest.fixture
def gridlane(tmp_path):
    path = tmp_path / "gridlane"
    path.write_text('#!/bin/sh\nprintf "%s\\n" "$*" >>"$0.log"\n[ ! -e "$0.code" ] || exit "$(cat "$0.code")"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def refused(capsys, code, *arguments):
    assert cli.main(list(arguments)) == code
    said = capsys.readouterr().err
    assert said.startswith("gridlane-lab: ") and said.count("\n") == 1
    return said


def test_plan(file, capsys, tmp_path):
    assert cli.main(["plan", file, "--cells", "--work", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "24 cells, 2 blocks, 48 runs in 1 networks, seed 1" in said
    assert "4 combinations are no cells: gridlane: source and target are the same site" in said
    assert "source_site=bonn target_site=cern tool=breaks: 2 blocks, about" in said
    assert cli.main(["plan", file, "--json", "--blocks", "1", "--only", "tool=gridlane"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["cells"] == 12 and facts["runs"] == 12


def test_plan_refuses(file, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(plan, "available_memory_bytes", lambda: 1)
    assert cli.main(["plan", file]) == ExitCode.NO_SPACE
    assert "use smaller files" in capsys.readouterr().err
    assert "no such scenario" in refused(capsys, ExitCode.NOT_FOUND, "plan", str(tmp_path / "absent.toml"))
    assert "has no level '9'" in refused(capsys, ExitCode.USAGE, "plan", file, "--only", "tool=9")
    assert "names no factor" in refused(capsys, ExitCode.USAGE, "plan", file, "--only", "x=9")
    with pytest.raises(SystemExit) as error:
        cli.main(["plan", file, "--blocks", "0"])
    assert error.value.code == ExitCode.USAGE


def test_plan_looks_for_room_where_files_on_disk_go(file, capsys, monkeypatch, tmp_path):
    on_disk = Path(file)
    on_disk.write_text(on_disk.read_text().replace('{ name = "bonn"', '{ name = "bonn", storage = "disk"', 1))
    monkeypatch.setenv("GRIDLANE_LAB_DISK", str(tmp_path))
    free = {str(tmp_path): 1}
    monkeypatch.setattr(plan.shutil, "disk_usage", lambda place: SimpleNamespace(free=free.get(str(place), 10**15)))
    assert f"of disk in {tmp_path}, and 1 B are there" in refused(capsys, ExitCode.NO_SPACE, "plan", file, "--json")


def test_run_keeps_everything_and_reports(file, gridlane, capsys, tmp_path):
    out = tmp_path / "out"
    arguments = ["run", file, "--out", str(out), "--gridlane", gridlane, "--work", str(tmp_path), "--note", "a <note>"]
    assert cli.main(arguments) == ExitCode.OK
    said = capsys.readouterr()
    assert str(out / "report/index.html") in said.out
    assert "points only    fast: It is fast (2 of the 6 blocks that a claim needs: " in said.out
    assert " 50 %  1 of 2 blocks" in said.err and "100 %  2 of 2 blocks" in said.err
    results = record.read_results(out)
    assert results.is_complete
    assert results["experiment"]["operator_note"].to_list() == ["a <note>"]
    assert results["claim"].height == 1
    assert "a &lt;note&gt;" in (out / "report/index.html").read_text()
    assert "is not empty" in refused(capsys, ExitCode.EXISTS, *arguments).splitlines()[-1]
    assert "is complete" in refused(capsys, ExitCode.EXISTS, "run", "--resume", "--out", str(out))
    assert cli.main(["report", str(out)]) == 0
    before = (out / "report/index.html").read_bytes()
    assert cli.main(["report", str(out)]) == 0
    assert (out / "report/index.html").read_bytes() == before


def test_a_run_that_is_killed_goes_on(file, gridlane, capsys, tmp_path, monkeypatch):
    out = tmp_path / "out"
    whole = runner

    def dies(*arguments):
        made = whole(*arguments)
        original = made.run_block

        def run_block(turns):
            for number, row in enumerate(original(turns)):
                if turns[0].block == 1 and number == 5:
                    raise KeyboardInterrupt
                yield row

        made.run_block = run_block
        return made

    monkeypatch.setattr(registry, "_runner", dies)
    arguments = ["run", file, "--out", str(out), "--gridlane", gridlane, "--work", str(tmp_path)]
    assert cli.main(arguments) == ExitCode.INTERRUPTED
    assert not (out / "complete.json").exists()
    assert record.read_results(out)["run"].height == 24
    monkeypatch.setattr(registry, "_runner", whole)
    assert cli.main(["run", "--resume", "--out", str(out), "--gridlane", gridlane]) == ExitCode.OK
    results = record.read_results(out)
    assert results["run"].height == 48 and results["experiment"].height == 1
    assert results["run"]["experiment_id"].n_unique() >= 1
    assert (out / "interrupted.jsonl").stat().st_size > 0
    capsys.readouterr()
    assert "holds no run" in refused(capsys, ExitCode.NOT_FOUND, "run", "--resume", "--out", str(tmp_path))
    assert "no scenario is given" in refused(capsys, ExitCode.USAGE, "run", "--out", str(tmp_path / "new"))


def test_failures_of_ours_have_an_exit_code(gridlane, capsys, tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text(SMALL.replace('driver = "breaks"', 'driver = "gridlane-breaks"'))
    able = dataclasses.replace(synthetic.EVERYTHING, auth=frozenset({"none", "proxy"}))
    registry._tools["gridlane-breaks"] = synthetic.Fake("gridlane-breaks", able)

    def failing(whole, cells, directory, experiment_id, options, progress):
        made = runner(whole, cells, directory, experiment_id, options, progress)
        original = made.turn

        def turn(one):
            for row in original(one):
                if isinstance(row, record.Run) and row.driver == "gridlane-breaks":
                    row = dataclasses.replace(row, status=record.Status.FAILED, reason="exit 1")
                yield row

        made.turn = turn
        return made

    registry._runner = failing
    arguments = ["run", str(file), "--out", str(tmp_path / "out"), "--gridlane", gridlane, "--work", str(tmp_path)]
    assert cli.main(arguments) == ExitCode.SOME_FAILED
    assert "24 without a figure" in capsys.readouterr().err

    # A credential that is to expire makes transfers fail, and that is the experiment.
    text = file.read_text().replace("[work]", '[work]\nauth = "proxy"\nduration_s = 9\ncredential_lifetime_s = 2', 1)
    file.write_text(text.replace("[work]", "[work]\ncredential_renewed = false", 1))
    arguments[3] = str(tmp_path / "expiring")
    assert cli.main([*arguments, "--only", "tool=breaks"]) == ExitCode.OK
    assert "24 without a figure" in capsys.readouterr().err


def test_a_run_that_takes_too_long_ends_in_order(file, gridlane, capsys, tmp_path):
    given = []

    def late(whole, cells, directory, experiment_id, options, progress):
        given.append(options.total_s)
        made = runner(whole, cells, directory, experiment_id, options, progress)
        original = made.turn

        def turn(one):
            for row in original(one):
                if isinstance(row, record.Run) and one.block == 1 and options.total_s is not None:
                    row = dataclasses.replace(row, status=record.Status.NOT_RUN, reason="it was over")
                yield row

        made.turn = turn
        return made

    registry._runner = late
    arguments = ["run", file, "--gridlane", gridlane, "--work", str(tmp_path)]
    said = refused_in_the_end(capsys, ExitCode.TIMEOUT, *arguments, "--out", str(tmp_path / "out"))
    assert "24 runs did not begin" in said and "total_s = 3600" in said
    results = record.read_results(tmp_path / "out")
    assert results.is_complete and results["run"].height == 48
    assert "24 runs did not begin" in (tmp_path / "out/report/index.html").read_text()
    # Whoever wants it anyway has all of it.
    assert cli.main([*arguments, "--anyway", "--out", str(tmp_path / "anyway")]) == ExitCode.OK
    assert given == [3600.0, None]


def refused_in_the_end(capsys, code, *arguments):
    assert cli.main(list(arguments)) == code
    return capsys.readouterr().err.splitlines()[-1]


def test_the_run_directory_is_found_from_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli._parser().parse_args(["run", "a.toml", "--out", "here"]).out == tmp_path / "here"


def test_query(file, gridlane, capsys, tmp_path):
    out = tmp_path / "out"
    synthetic.make_run(tmp_path / "x", SMALL)
    out = tmp_path / "x/run"
    sql = "SELECT tool, status, count(*) AS runs FROM run GROUP BY tool, status ORDER BY tool, status"
    assert cli.main(["query", str(out), sql, "--format", "csv"]) == 0
    assert capsys.readouterr().out == "tool,status,runs\nbreaks,failed,12\nbreaks,ok,12\ngridlane,ok,24\n"
    assert cli.main(["query", str(out), sql, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0]) == {"tool": "breaks", "status": "failed", "runs": 12}
    assert cli.main(["query", str(out), sql]) == 0
    assert "breaks" in capsys.readouterr().out
    assert "the query fails" in refused(capsys, ExitCode.USAGE, "query", str(out), "SELECT x FROM y")
    # The same of a run that is not complete.
    (out / "complete.json").unlink()
    assert cli.main(["query", str(out), sql, "--format", "csv"]) == 0
    assert "gridlane,ok,24" in capsys.readouterr().out


def test_query_without_duckdb(capsys, tmp_path, monkeypatch):
    synthetic.make_run(tmp_path, SMALL)
    import sys

    monkeypatch.setitem(sys.modules, "duckdb", None)
    arguments = ["query", str(tmp_path / "run"), "SELECT count(*) AS n FROM run", "--format", "csv"]
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out == "n\n48\n"


def test_list(file, capsys, tmp_path):
    (tmp_path / "library.toml").write_text(synthetic.TOOLS)
    assert cli.main(["list", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("small.toml") and "Which pairs are slow?" in said and "library" not in said
    assert "holds no scenarios" in refused(capsys, ExitCode.NOT_FOUND, "list", str(tmp_path / "absent"))


ENDPOINTS = (
    synthetic.MULTI_SOURCE.split("[topology]")[0]
    + """
[[endpoint]]
name = "near"
urls = ["root://near:1094//x", "https://near:1094/x/"]
[[endpoint]]
name = "far"
urls = ["https://far:1094/x"]
[data]
seed = 5
file = [{ name = "f", size_bytes = 1000, count = 2 }]
[[tool]]
name = "aria2c"
driver = "aria2c"
[work]
kind = "copy"
file = "f"
source_sites = ["near", "far"]
[matrix.factors]
sources = [1, 2]
"""
)


def test_init_and_clean(gridlane, capsys, tmp_path):
    file = tmp_path / "real.toml"
    file.write_text(ENDPOINTS)
    assert cli.main(["plan", str(file)]) == 0
    assert "of 2 cells no bound is known" in capsys.readouterr().out
    assert cli.main(["init", str(file), "--gridlane", gridlane]) == 0
    assert "4 files uploaded" in capsys.readouterr().out
    called = (tmp_path / "gridlane.log").read_text().splitlines()
    assert called[:2] == [f"mkdir https://{name}:1094/x/gridlane-lab-multi-source --quiet" for name in ("near", "far")]
    assert called[2].startswith("cp ")
    assert called[2].endswith("f-1000-000 https://near:1094/x/gridlane-lab-multi-source/f-1000-000 --quiet")
    assert cli.main(["clean", str(file), "--gridlane", gridlane]) == 0
    assert "4 files removed" in capsys.readouterr().out
    assert (
        "rm https://far:1094/x/gridlane-lab-multi-source/f-1000-001 --quiet" in (tmp_path / "gridlane.log").read_text()
    )
    (tmp_path / "gridlane.code").write_text("4")
    assert "exit code 4" in refused(capsys, ExitCode.DENIED, "init", str(file), "--gridlane", gridlane)
    assert cli.main(["clean", str(file), "--gridlane", gridlane]) == ExitCode.SOME_FAILED
    (tmp_path / "gridlane.code").write_text("3")
    assert cli.main(["clean", str(file), "--gridlane", gridlane]) == ExitCode.OK
    small = tmp_path / "small.toml"
    small.write_text(SMALL)
    capsys.readouterr()
    assert "has emulated sites" in refused(capsys, ExitCode.USAGE, "init", str(small), "--gridlane", gridlane)
    assert "is no program" in refused(capsys, ExitCode.NOT_FOUND, "init", str(file), "--gridlane", str(small))


def test_store_wants_a_complete_run(capsys, tmp_path):
    synthetic.make_run(tmp_path, SMALL, stop_after=1)
    said = refused(capsys, ExitCode.OTHER, "store", str(tmp_path / "run"), "--dsn", "dbname=absent")
    assert "is not complete" in said


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    said = capsys.readouterr().out
    for command in ("list", "plan", "run", "report", "init", "clean", "query", "store"):
        assert f"\n    {command} " in said
    assert os.environ.get("MPLCONFIGDIR")

"""Rows and run directories: schemas, crashes at every byte, two writers, full disks, damaged files."""

from __future__ import annotations

import dataclasses
import json
import os

import polars as pl
import pytest
import synthetic

from gridlane_lab import record
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.record import RunDirectory, Status, Transfer


def experiment():
    return record.Experiment(
        experiment_id="X", scenario="s", size="quick", scenario_sha256="0", question="?", seed=1,
        started_utc=record.utc_now(), lab_version="0",
    )  # fmt: skip


def sample(second=1.0):
    return record.Sample(run_id="R", subject="near", t_s=second, interval_s=1.0, bytes_moved=10)


def transfer(**values):
    usual = {
        "transfer_id": "T", "run_id": "R", "kind": "copy", "protocol": "https", "status": Status.OK,
        "bytes_moved": 1000, "bytes_verified": 1000, "started_ns": 0, "first_byte_ns": 10**9, "last_byte_ns": 3 * 10**9,
        "verified_ns": 4 * 10**9, "closed_ns": 5 * 10**9,
    }  # fmt: skip
    return Transfer(**(usual | values)).with_derived()


def test_derived_figures():
    one = transfer()
    assert (one.prepare_s, one.transfer_s, one.verify_s, one.total_s) == (1, 2, 1, 5)
    assert one.goodput_bits_per_s == 4000
    assert one.total_rate_bits_per_s == 1600
    assert one.overhead_ratio == pytest.approx(0.6)


@pytest.mark.parametrize("status", [s for s in Status if not s.is_success])
def test_a_failure_is_never_a_number(status):
    one = transfer(status=status)
    assert one.goodput_bits_per_s is None and one.total_rate_bits_per_s is None
    assert one.total_s == 5


def test_unverified_bytes_count_as_moved():
    assert transfer(status=Status.UNVERIFIED, bytes_verified=None).goodput_bits_per_s == 4000
    assert transfer(bytes_verified=None).goodput_bits_per_s is None
    assert transfer(first_byte_ns=None, last_byte_ns=None).transfer_s == 5
    assert transfer(started_ns=None).total_s is None


@pytest.mark.parametrize("row_type", record.TABLES.values(), ids=list(record.TABLES))
def test_schemas_take_every_row(row_type):
    schema = record.polars_schema(row_type)
    assert list(schema) == [field.name for field in dataclasses.fields(row_type)]
    for name, kind in schema.items():
        for suffix, wanted in (("_s", pl.Float64), ("_ns", pl.Int64), ("_bytes", pl.Int64), ("_per_s", pl.Float64)):
            if name.endswith(suffix):
                assert kind == wanted, name
                break


def test_ids_sort_by_time():
    ids = [record.new_id() for _ in range(2000)]
    assert ids == sorted(ids) and len(set(ids)) == 2000 and all(len(one) == 26 for one in ids)


def test_a_run_is_kept_whole(tmp_path):
    results = synthetic.make_run(tmp_path, synthetic.MESH)
    assert results.is_complete
    assert results["run"].height == 48
    rows = record.read_rows(tmp_path / "run/rows.jsonl").rows
    again = record.tables_of(rows)
    for name in record.TABLES:
        assert again[name].equals(results[name]), name
    back = list(record.rows_of(results["transfer"], Transfer))
    assert back == [row for row in rows if isinstance(row, Transfer)]


def test_a_crash_at_any_byte_loses_no_committed_block(tmp_path):
    with RunDirectory.create(tmp_path / "a", "{}", "") as directory:
        directory.append(experiment())
        directory.commit(None)
        for block in range(3):
            directory.append(sample(block))
            directory.commit(block)
    content = (tmp_path / "a/rows.jsonl").read_bytes()
    ends = [content.find(b"\n", content.find(f'"block":{block}'.encode())) + 1 for block in range(3)]
    for cut in range(0, len(content), 7):
        path = tmp_path / f"cut-{cut}.jsonl"
        path.write_bytes(content[:cut])
        found = record.read_rows(path)
        assert found.blocks == {block for block in range(3) if ends[block] <= cut}
        assert found.committed + found.rest == content[:cut]
        assert sum(isinstance(row, record.Sample) for row in found.rows) == len(found.blocks)


def test_resume_goes_on_after_the_last_commit(tmp_path):
    whole = synthetic.make_run(tmp_path / "whole", synthetic.MULTI_SOURCE)
    part = synthetic.make_run(tmp_path / "part", synthetic.MULTI_SOURCE, stop_after=4)
    assert not part.is_complete
    assert part["run"]["block"].max() == 2
    path = tmp_path / "part/run"
    with open(path / "rows.jsonl", "a") as file:
        file.write(json.dumps({"table": "sample", "row": dataclasses.asdict(sample())}) + '\n{"table": "sam')
    with RunDirectory.resume(path) as directory:
        assert directory.committed_blocks == {-1, 0, 1, 2}
        from gridlane_lab.scenario import Scenario

        synthetic.fill(directory, Scenario.from_json(directory.scenario_json()), "quick")
    assert (path / "interrupted.jsonl").read_text().endswith('{"table": "sam\n')
    resumed = record.read_results(path)
    assert resumed.is_complete
    columns = ["block", "order_in_block", "cell_key", "status", "wall_s"]
    assert resumed["run"].select(columns).equals(whole["run"].select(columns))
    assert resumed["environment"].height == 2


def test_two_runs_cannot_share_a_directory(tmp_path):
    with RunDirectory.create(tmp_path / "a", "{}", ""):
        with pytest.raises(LabError, match=f"is in use by process {os.getpid()}") as error:
            RunDirectory.resume(tmp_path / "a")
        assert error.value.code == ExitCode.BUSY
        with pytest.raises(LabError, match="is not empty"):
            RunDirectory.create(tmp_path / "a", "{}", "")
    RunDirectory.resume(tmp_path / "a").close()


def test_resume_refuses_what_it_cannot_continue(tmp_path):
    with pytest.raises(LabError, match="holds no run"):
        RunDirectory.resume(tmp_path)
    RunDirectory.create(tmp_path / "a", "{}", "").close()
    with pytest.raises(LabError, match="began with another scenario"):
        RunDirectory.resume(tmp_path / "a", '{"x": 1}')
    synthetic.make_run(tmp_path / "b", synthetic.MESH)
    with pytest.raises(LabError, match="holds a run that is complete"):
        RunDirectory.resume(tmp_path / "b/run")


def test_what_is_damaged_is_not_taken_for_whole(tmp_path):
    synthetic.make_run(tmp_path, synthetic.MESH)
    table = tmp_path / "run/tables/run.parquet"
    content = table.read_bytes()
    table.write_bytes(content[:-1])
    with pytest.raises(LabError, match=r"is not what complete\.json says") as error:
        record.read_results(tmp_path / "run")
    assert error.value.code == ExitCode.CHECKSUM
    # Without the word that it is whole, the rows are read.
    (tmp_path / "run/complete.json").unlink()
    assert record.read_results(tmp_path / "run")["run"].height == 48
    rows = tmp_path / "run/rows.jsonl"
    lines = rows.read_text().splitlines()
    rows.write_text("\n".join([lines[0], "no json", *lines[1:]]) + "\n")
    with pytest.raises(LabError, match="is damaged"):
        record.read_results(tmp_path / "run")
    with pytest.raises(LabError, match="holds no results"):
        record.read_results(tmp_path)


def test_tables_that_are_written_again_are_not_whole_meanwhile(tmp_path, monkeypatch):
    synthetic.make_run(tmp_path, synthetic.MESH)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record, "_sha256", full)
    with pytest.raises(OSError, match="No space left"):
        record.write_tables(tmp_path / "run", record.tables_of([]))
    assert not (tmp_path / "run/complete.json").exists()


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    with RunDirectory.create(tmp_path / "a", "{}", "") as directory:
        monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        directory.append(sample())
        with pytest.raises(LabError, match=r"No space left on device; .*--resume") as error:
            directory.commit(0)
        assert error.value.code == ExitCode.NO_SPACE


def test_numbers_that_are_none_are_refused(tmp_path):
    with RunDirectory.create(tmp_path / "a", "{}", "") as directory, pytest.raises(ValueError, match="not JSON"):
        directory.append(dataclasses.replace(sample(), t_s=float("nan")))

"""The store in PostgreSQL, in a cluster of its own that is gone afterwards. Needs Debian's package postgresql."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import synthetic

from gridlane_lab import record, sink_postgres
from gridlane_lab.errors import ExitCode, LabError


def program(name):
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed; apt-get install postgresql")
    return path


@pytest.fixture(scope="module")
def dsn(tmp_path_factory):
    """A cluster without a network: its socket is in its directory. PostgreSQL refuses to run as root."""
    directory = tmp_path_factory.mktemp("pg")
    as_other = []
    if os.getuid() == 0:
        for path in (directory, *directory.parents):
            if path == Path("/tmp"):
                break
            path.chmod(0o755)
        shutil.chown(directory, "postgres", "postgres")
        as_other = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    data = directory / "data"

    def run(*command):
        subprocess.run([*as_other, *map(str, command)], check=True, capture_output=True, cwd=directory)

    run(program("initdb"), "-D", data, "-A", "trust", "-U", "lab", "--no-sync", "-E", "UTF8")
    options = f"-k {directory} -c listen_addresses= -c fsync=off"
    run(program("pg_ctl"), "-D", data, "-l", directory / "log", "-o", options, "-w", "start")
    yield f"host={directory} user=lab dbname=postgres"
    run(program("pg_ctl"), "-D", data, "-m", "immediate", "stop")


def test_runs_are_stored_once(dsn, tmp_path):
    results = synthetic.make_run(tmp_path, synthetic.MULTI_SOURCE)
    added = sink_postgres.store(results, dsn)
    assert added == {table: results[table].height for table in sink_postgres.ORDER}
    assert added["transfer"] > 100
    assert set(sink_postgres.store(results, dsn).values()) == {0}
    import psycopg

    with psycopg.connect(dsn) as connection:
        assert sink_postgres.migrate(connection) == []
        query = "SELECT variant_json->>'tool', count(*) FROM gridlane_lab.run WHERE status = 'ok' GROUP BY 1"
        counted = dict(connection.execute(query).fetchall())
        kept = connection.execute("SELECT sources, goodput_bits_per_s FROM gridlane_lab.transfer LIMIT 1").fetchone()
    assert counted["gridlane"] == results["run"].filter(variant_of("gridlane")).height
    assert isinstance(kept[0], list)


def variant_of(tool):
    import polars as pl

    return pl.col("variant_json").str.contains(f'"tool": "{tool}"', literal=True) & (pl.col("status") == "ok")


def test_columns_are_those_of_the_rows(dsn):
    import psycopg

    with psycopg.connect(dsn) as connection:
        sink_postgres.migrate(connection)
        for table, row_type in record.TABLES.items():
            query = (
                "SELECT column_name FROM information_schema.columns WHERE table_schema = 'gridlane_lab' "
                "AND table_name = %s ORDER BY ordinal_position"
            )
            columns = [name for (name,) in connection.execute(query, (table,)).fetchall()]
            assert columns == list(record.polars_schema(row_type)), table


def test_a_database_that_is_not_there(tmp_path):
    results = synthetic.make_run(tmp_path, synthetic.MESH)
    with pytest.raises(LabError, match="the database cannot be used") as error:
        sink_postgres.store(results, f"host={tmp_path} user=lab")
    assert error.value.code == ExitCode.NETWORK

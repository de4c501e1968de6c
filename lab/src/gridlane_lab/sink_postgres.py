"""A shared store of results in PostgreSQL: append-only, one transaction for each run, safe to repeat.

The tables are in the schema `gridlane_lab` of the database. Migrations are the files of `migrations/`, in the order of
their numbers; each is applied once, in a transaction that holds a lock, so that two at once wait for each other.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.record import TABLES, Results

SCHEMA = "gridlane_lab"
# Any number that nothing else in the database locks: "lab" in ASCII.
LOCK = 0x6C6162

# A table comes after those that it refers to.
ORDER = ("experiment", "environment", "run", "path_check", "transfer", "source_share", "sample", "claim")


def store(results: Results, dsn: str) -> dict[str, int]:
    """Adds a complete run; the number of rows that were not there before, by table."""
    if not results.is_complete:
        raise LabError("is not complete", where=str(results.path), hint="go on with `run --resume` first")
    psycopg = _psycopg()
    try:
        with psycopg.connect(dsn) as connection:
            migrate(connection)
            with connection.transaction(), connection.cursor() as cursor:
                return {table: _insert(cursor, table, results) for table in ORDER}
    except psycopg.OperationalError as error:
        raise LabError(
            f"the database cannot be used: {_line(error)}", hint="see --dsn", code=ExitCode.NETWORK
        ) from None
    except psycopg.Error as error:
        raise LabError(f"the database refuses the rows: {_line(error)}") from None


def migrate(connection: Any) -> list[str]:
    """Brings the tables up to date; the names of the migrations that were missing."""
    applied = []
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        cursor.execute(f"SET LOCAL search_path TO {SCHEMA}")
        cursor.execute("CREATE TABLE IF NOT EXISTS migration (name text PRIMARY KEY, applied timestamptz NOT NULL)")
        cursor.execute("SELECT name FROM migration")
        known = {name for (name,) in cursor.fetchall()}
        for name, text in migrations():
            if name not in known:
                cursor.execute(text)
                cursor.execute("INSERT INTO migration VALUES (%s, now())", (name,))
                applied.append(name)
    return applied


def migrations() -> list[tuple[str, str]]:
    """Names and texts of all migrations, in their order."""
    folder = resources.files("gridlane_lab") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [(file.name, file.read_text(encoding="utf-8")) for file in files]


def _insert(cursor: Any, table: str, results: Results) -> int:
    """Rows that are there already stay: a run that is stored twice is stored once."""
    assert table in TABLES
    frame = results[table]
    if frame.is_empty():
        return 0
    columns = frame.columns
    # By way of a table that vanishes: COPY is fast and knows no conflicts.
    cursor.execute(f"CREATE TEMPORARY TABLE incoming (LIKE {SCHEMA}.{table}) ON COMMIT DROP")
    with cursor.copy(f"COPY incoming ({', '.join(columns)}) FROM STDIN") as copy:
        for row in frame.iter_rows():
            copy.write_row(row)
    cursor.execute(f"INSERT INTO {SCHEMA}.{table} SELECT * FROM incoming ON CONFLICT DO NOTHING")
    added = int(cursor.rowcount)
    cursor.execute("DROP TABLE incoming")
    return added


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise LabError(
            "psycopg is not installed", hint="install gridlane-lab[postgres]", code=ExitCode.UNSUPPORTED
        ) from None
    return psycopg


def _line(error: Exception) -> str:
    return " ".join(str(error).split())

"""SQL over the tables of a run."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import polars as pl

from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.record import read_results


def run(directory: Path, sql: str, form: str = "table") -> str:
    """The answer as text: a table, CSV or JSON lines."""
    answer = ask(directory, sql)
    if form == "csv":
        return answer.write_csv()
    if form == "json":
        return "".join(json.dumps(row, default=str) + "\n" for row in answer.iter_rows(named=True))
    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, fmt_str_lengths=80, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True,
        tbl_width_chars=200,
    ):  # fmt: skip
        return f"{answer}\n"


def ask(directory: Path, sql: str) -> pl.DataFrame:
    """The answer as a table. By DuckDB where it is installed, else by polars, which knows less of SQL."""
    results = read_results(directory)
    tables = results.tables
    try:
        import duckdb
    except ImportError:
        try:
            return pl.SQLContext(frames=tables, eager=True).execute(sql)
        except pl.exceptions.PolarsError as error:
            raise _refused(error) from None
    try:
        with tempfile.TemporaryDirectory() as temporary, duckdb.connect(":memory:") as connection:
            for name, table in tables.items():
                file = directory / "tables" / f"{name}.parquet"
                if not results.is_complete or not file.is_file():
                    file = Path(temporary) / f"{name}.parquet"
                    table.write_parquet(file)
                quoted = str(file).replace("'", "''")
                connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{quoted}')")
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description or []]
            rows = cursor.fetchall()
    except duckdb.Error as error:
        raise _refused(error) from None
    return pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)


def _refused(error: Exception) -> LabError:
    return LabError(f"the query fails: {' '.join(str(error).split())}", code=ExitCode.USAGE)

"""Reads the first rows of streams that are files, without Spark, as a sample of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from millpond.query.model import Query, Table
from millpond.runtime.derive import render_derived
from millpond.runtime.sql import Dialect

MAX_ROWS = 2000
MAX_FILES = 50


def read_first_rows(query: Query, folder: Path) -> dict[str, pa.Table] | None:
    """The first rows of every stream; None if a table is static, or DuckDB cannot read it as Spark does."""
    found = {}
    for table in query.tables.values():
        rows = read_source(table, folder) if table.streaming else None
        if rows is None:
            return None
        found[table.name] = rows
    return found


def read_source(table: Table, folder: Path) -> pa.Table | None:
    """The first rows of the declared source of a table; None if there are none, or DuckDB cannot read it."""
    if table.source is None:
        return None
    options = {key.lower(): value for key, value in table.source.options.items()}
    files = list_files(folder / options.pop("path", ""))
    return read_files(table, files, table.source.format.lower(), options)


def read_files(
    table: Table, files: Sequence[Path], format_: str, options: dict[str, str] | None = None
) -> pa.Table | None:
    """The first rows of some files as rows of a table; None if there are none, or DuckDB cannot read them."""
    reader = _reader(table, format_, options or {})
    if not files or reader is None:
        return None
    listed = ", ".join(Dialect.DUCKDB.string(str(file)) for file in files)
    columns = ", ".join(Dialect.DUCKDB.name_of(c.name) for c in table.columns)
    try:
        with duckdb.connect() as connection:
            text = f"SELECT {columns} FROM {reader.format(f'[{listed}]')} LIMIT {MAX_ROWS}"
            rows = connection.sql(render_derived(table, f"({text})")).to_arrow_table()
            return rows if rows.num_rows else None
    except duckdb.Error:
        return None


def list_files(path: Path) -> list[Path]:
    """The oldest files of a folder, in the order in which Spark reads them."""
    try:
        visible = [file for file in path.iterdir() if file.is_file() and file.name[0] not in "._"]
        return sorted(visible, key=lambda file: (file.stat().st_mtime, file.name))[:MAX_FILES]
    except OSError:
        return []


def _reader(table: Table, format_: str, options: dict[str, str]) -> str | None:
    """DuckDB's function for a format, with ``{}`` for the list of files.

    None where DuckDB could read the files differently from Spark.
    """
    unknown = {key for key in options if key not in ("maxfilespertrigger", "latestfirst", "header")}
    if unknown:
        return None
    types = {c.name: c.type.names.duckdb for c in table.columns}
    columns = "{{" + ", ".join(f"{Dialect.DUCKDB.string(n)}: '{t}'" for n, t in types.items()) + "}}"
    match format_:
        case "json":
            return "read_json({}, columns=" + columns + ", format='newline_delimited', ignore_errors=true)"
        case "csv":
            header = options.get("header", "false").lower() == "true"
            return "read_csv({}, columns=" + columns + f", header={header}, ignore_errors=true)"
        case "parquet":
            return "read_parquet({})"
    return None

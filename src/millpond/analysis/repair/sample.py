"""Rows of streams from which the constants of repairs are taken, and on which budgets are tried."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from millpond.errors import MillpondError
from millpond.query.model import Query, Table

if TYPE_CHECKING:
    import pyarrow as pa

# The formats of files by the end of their names.
_FORMATS = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet"}


def read_sources(query: Query, folder: Path) -> dict[str, pa.Table]:
    """The first rows of the declared sources that are files; ``folder`` is that of relative paths."""
    declared = [table for table in _list_streams(query) if table.source is not None]
    if not declared:
        return {}
    from millpond.runtime.first_rows import read_source  # here, as it imports DuckDB

    rows = {table.name: read_source(table, folder) for table in declared}
    return {name: each for name, each in rows.items() if each is not None}


def read_sample(query: Query, path: Path) -> dict[str, pa.Table]:
    """The rows of a file, or of the files of a folder that are named like streams of the query.

    Raises a MillpondError if there are none.
    """
    from millpond.runtime.first_rows import read_files  # here, as it imports DuckDB

    if not path.exists():
        raise MillpondError(f"there is no sample {path}", remedy="correct the path")
    streams = _list_streams(query)
    found = {}
    for table in streams:
        files = _find_files(path, table, alone=len(streams) == 1)
        kinds = {_FORMATS[file.suffix.lower()] for file in files}
        rows = read_files(table, files, kinds.pop(), {"header": "true"}) if len(kinds) == 1 else None
        if rows is not None:
            found[table.name] = rows
    if not found:
        names = " or ".join(f"{table.name}.json" for table in streams)
        remedy = f"give a JSON, CSV or Parquet file of the stream, or a folder with {names}"
        raise MillpondError(f"the sample {path} has no rows of the query's streams", remedy=remedy)
    return found


def _list_streams(query: Query) -> list[Table]:
    return [table for table in query.declared_tables.values() if table.streaming]


def _find_files(path: Path, table: Table, alone: bool) -> list[Path]:
    """The files of a stream: the sample itself, or those in it that have the stream's name."""
    if path.is_file():
        fits = alone or path.stem.lower() == table.name.lower()
        return [path] if fits and path.suffix.lower() in _FORMATS else []
    inside = path / table.name
    files = sorted(inside.iterdir() if inside.is_dir() else path.iterdir())
    named = [f for f in files if inside.is_dir() or f.stem.lower() == table.name.lower()]
    return [file for file in named if file.is_file() and file.suffix.lower() in _FORMATS]

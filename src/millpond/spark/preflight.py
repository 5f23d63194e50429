"""What can be checked of a run before Spark starts: the paths of its input, the output and the checkpoint.

Only files of this machine are looked at.  A mistake costs a second here, and half a minute on Spark.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from glob import has_magic
from pathlib import Path

from millpond.engines.lookup.declaration import is_lookup
from millpond.errors import MillpondError, RunError, describe_os_error, one_line
from millpond.query.model import Query, Table
from millpond.spark.checkpoint import Folders
from millpond.spark.connectors import has_own_packages
from millpond.spark.local_files import LocalFiles, find_local_path
from millpond.spark.options import RunOptions

FILE_FORMATS = ("json", "csv", "xml", "parquet", "orc", "avro", "text", "binaryfile")
_OTHER_FORMATS = ("kafka", "rate", "rate-micro-batch", "socket", "jdbc", "lookup", "delta", "iceberg", "hudi")


def check_before_start(query: Query, folder: Path, options: RunOptions) -> list[str]:
    """Raise MillpondError if the run cannot succeed; return hints about its input.

    Paths of the input are relative to ``folder``.
    """
    if query.windows and options.format == "csv":
        message = f"CSV has no format for the column {query.windows[0][1]}, which has two fields"
        raise MillpondError(message, remedy="select its start and its end, or choose another format")
    _check_folders(query, options)
    hints: list[str] = []
    for table in query.declared_tables.values():
        if table.source is not None and not is_lookup(table):
            hints += _check_source(table, folder, options.master)
    return hints


# --- the output ----------------------------------------------------------------------------------------


def _check_folders(query: Query, options: RunOptions) -> None:
    """Refuse folders that cannot be written, and folders of another query."""
    output = find_local_path(options.output, options.master)
    if output is None:
        return
    checkpoint: str | None = f"{output}/_checkpoint"
    if options.checkpoint is not None:
        checkpoint = find_local_path(options.checkpoint, options.master)
    _check_writable(output, "--output")
    if checkpoint is None:
        return
    _check_writable(checkpoint, "--checkpoint")
    try:
        folders = Folders(LocalFiles(), checkpoint, output)
        folders.check(query, options.updates, options.format, is_settled=False)
    except OSError as error:
        raise RunError(f"{error.filename} cannot be read: {describe_os_error(error)}") from None


def _check_writable(path: str, option: str) -> None:
    """Refuse a path that is not a folder, or in which no folder can be made."""
    existing = Path(path)
    try:
        while not existing.exists():
            existing = existing.parent
    except OSError as error:
        raise MillpondError(f"{option} {path}: {describe_os_error(error)}") from None
    if not existing.is_dir():
        what = "is a file" if str(existing) == path else f"cannot be made: {existing} is a file"
        raise MillpondError(f"{option} {path} {what}", remedy=f"give {option} a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        message = f"{option} {path} cannot be written: permission denied for {existing}"
        raise MillpondError(message, remedy=f"give another {option}")


# --- the input -----------------------------------------------------------------------------------------


def _check_source(table: Table, folder: Path, master: str | None) -> Iterator[str]:
    """Refuse a format or path that does not exist; yield hints."""
    assert table.source is not None
    name, format_ = one_line(table.name), table.source.format.lower()
    if near := _find_misspelt(format_):
        message = f"{name}: Spark has no format {one_line(table.source.format, 40)}"
        raise MillpondError(message, remedy=f"did you mean {near}?")
    options = {key.lower(): value for key, value in table.source.options.items()}
    format_ = format_.rpartition(".")[2]
    if format_ not in FILE_FORMATS:
        return
    if not options.get("path"):
        raise MillpondError(f"{name} does not say where its files are", remedy="add OPTIONS (path '…')")
    given = options["path"]
    path = find_local_path(given if given.startswith("file:") else os.path.join(folder, given), master)
    if find_local_path(given, master) is None or path is None or has_magic(given) or "{" in given:
        return
    where = Path(path)
    try:
        if not where.exists():
            message = f"{name}: there is nothing at {one_line(path, 200)}"
            raise MillpondError(message, remedy="create the folder, or correct the path in OPTIONS")
        if table.streaming and where.is_file():
            message = f"{name}: {one_line(path, 200)} is a file, but a stream reads the files of a folder"
            raise MillpondError(message, remedy=f"write path '{one_line(str(Path(given).parent), 200)}'")
        if not os.access(where, os.R_OK):
            raise MillpondError(f"{name}: {one_line(path, 200)} cannot be read: permission denied")
        if format_ == "csv":
            yield from _check_header(table, options, where)
    except OSError as error:
        raise MillpondError(f"{name}: {one_line(path, 200)}: {describe_os_error(error)}") from None


def _find_misspelt(format_: str) -> str | None:
    """The format that a misspelt one resembles; None if a package may contain it."""
    known = (*FILE_FORMATS, *_OTHER_FORMATS)
    if "." in format_ or format_ in known:
        return None
    near = get_close_matches(format_, known, n=1, cutoff=0.75)
    return near[0] if near and not has_own_packages() else None


def _check_header(table: Table, options: Mapping[str, str], where: Path) -> Iterator[str]:
    """Hint at a first line that is a header but is read as a row, or that names other columns."""
    first = _find_first_file(where)
    if (
        first is None
        or "encoding" in options
        or "charset" in options
        or first.suffix in (".gz", ".bz2", ".zst")
    ):
        return
    with first.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        line = stream.readline(10_000)
    separator = options.get("sep", options.get("delimiter", ","))
    if len(separator) != 1 or not line.strip():
        return
    found = [field.strip().lower() for field in next(csv.reader([line], delimiter=separator), [])]
    declared = [column.name.lower() for column in table.columns]
    has_header = options.get("header", "false").lower() == "true"
    if not has_header and found == declared:
        yield (
            f"{one_line(table.name)}: the first line of {first.name} looks like a header, but is read "
            "as a row; add header 'true' to its OPTIONS"
        )
    elif has_header and found != declared and sorted(found) == sorted(declared):
        yield (
            f"{one_line(table.name)}: the header of {first.name} has the columns in another order, "
            "but columns are read by their place; declare them as "
            f"{one_line(', '.join(found), 200)}"
        )


def _find_first_file(where: Path) -> Path | None:
    if where.is_file():
        return where
    visible = (each for each in where.iterdir() if each.name[0] not in "._" and each.is_file())
    return min(visible, key=lambda each: (each.stat().st_mtime, each.name), default=None)

"""The rows that leave a shard: results, rejected rows, and reports of the state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millpond.runtime.duckdb import DuckDb
from millpond.runtime.row_kinds import RowKind

if TYPE_CHECKING:
    import pandas as pd

# A result that occurs more often is split into several rows, so that no row becomes too large when repeated.
MOST_REPEATED = 100_000
_REPEATED = f"""
    SELECT * EXCLUDE (i) REPLACE (least(w - i * {MOST_REPEATED}, {MOST_REPEATED}) AS w)
    FROM (SELECT *, unnest(range((w - 1) // {MOST_REPEATED} + 1)) AS i FROM found)
"""

# The columns of an output row after those of the select list.
TAIL = {
    "_weight": pa.int32(),
    "_revision": pa.int64(),
    "_retracted": pa.bool_(),
    "_kind": pa.int8(),
    "_entries": pa.int64(),
    "_bytes": pa.int64(),
    "_stream": pa.string(),
    "_reason": pa.string(),
    "_record": pa.string(),
}
TAIL_SCHEMA = (
    "_weight INT, _revision BIGINT, _retracted BOOLEAN, _kind TINYINT, _entries BIGINT, _bytes BIGINT, "
    "_stream STRING, _reason STRING, _record STRING"
)


def build_result_rows(db: DuckDb, rows: pa.Table, revision: int) -> Iterator[pa.Table]:
    """Rows that are added to the answer; ``w`` says how often."""
    if not rows.num_rows:
        return
    if rows.column("w").to_numpy().max() > MOST_REPEATED:
        rows = db.query(_REPEATED, {"found": rows})
    weights = rows.column("w").cast(pa.int32())
    rows = rows.append_column("_weight", weights).rename_columns({"retracted": "_retracted"})
    count = rows.num_rows
    yield rows.append_column("_revision", pa.array(np.full(count, revision))).append_column(
        "_kind", pa.array(np.full(count, RowKind.RESULT, np.int8))
    )


def build_rejected_rows(rows: pa.Table) -> pa.Table:
    """Rows for the folder ``_rejected``, from a table with the columns stream, reason and record."""
    kinds = pa.array(np.full(rows.num_rows, RowKind.REJECTED, np.int8))
    return build_note_rows(rows.select(["stream", "reason", "record"]).append_column("kind", kinds))


def build_note_rows(notes: pa.Table) -> pa.Table:
    """Rows that are not results, from a table with their kind and their note; absent columns are NULL."""
    columns = {
        f"_{name}": notes.column(name).cast(TAIL[f"_{name}"])
        for name in ("kind", "entries", "bytes", "stream", "reason", "record")
        if name in notes.column_names
    }
    return pa.table({**columns, "_weight": pa.array(np.ones(notes.num_rows, np.int32))})


def build_report_row(kind: int, entries: int, size: int = 0) -> pa.Table:
    """A report: how many ``entries`` there are, and how many bytes they take."""
    values = {"_kind": kind, "_weight": 1, "_entries": entries, "_bytes": size}
    return pa.table({name: pa.array([value], TAIL[name]) for name, value in values.items()})


def build_progress_row(time: int, ended: bool) -> pa.Table:
    """Says that all rows before a timestamp (in microseconds) are out, and whether the input has ended."""
    return build_report_row(RowKind.PROGRESS, time, int(ended))


def build_measure_row(name: str, value: int) -> pa.Table:
    """The value of a measure in this batch."""
    return build_report_row(RowKind.MEASURE, value).append_column("_reason", pa.array([name]))


def to_pandas(table: pa.Table, width: int) -> pd.DataFrame:
    """The table with all output columns, NULL if it lacks them; ``width`` is that of the select list."""
    import pandas as pd

    columns = {f"o{i}": pa.null() for i in range(width)} | TAIL
    arrays = [
        table.column(name) if name in table.column_names else pa.nulls(table.num_rows, kind)
        for name, kind in columns.items()
    ]
    whole = pa.table(arrays, names=list(columns)).combine_chunks()  # PySpark does not take chunked columns
    return whole.to_pandas(types_mapper=pd.ArrowDtype)

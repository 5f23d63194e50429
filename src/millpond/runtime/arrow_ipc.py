"""Arrow schemas and tables as bytes, so that programs that hold them can be pickled and fingerprinted."""

from __future__ import annotations

import pyarrow as pa


def schema_to_bytes(schema: pa.Schema) -> bytes:
    """A schema in the Arrow IPC format."""
    return bytes(schema.serialize().to_pybytes())


def schema_from_bytes(data: bytes) -> pa.Schema:
    """A schema, from the Arrow IPC format."""
    return pa.ipc.read_schema(pa.py_buffer(data))


def table_to_bytes(table: pa.Table) -> bytes:
    """The schema and the rows, in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def table_from_bytes(data: bytes) -> pa.Table:
    """A table, from the Arrow IPC format."""
    return pa.ipc.open_stream(data).read_all()

"""Tables as bytes, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millpond.runtime.arrow_ipc import schema_from_bytes, schema_to_bytes, table_from_bytes, table_to_bytes
from millpond.runtime.codec import StateError, decode_tables, encode_tables

SCHEMA = pa.schema([("k", pa.int32()), ("n", pa.decimal128(38, 0)), ("s", pa.string())])
TABLE = pa.table({"k": [1, 2], "n": [3, None], "s": ["a", "ä"]}, schema=SCHEMA)
SCHEMAS = {"a": SCHEMA, "b": SCHEMA}
FINGERPRINT = b"0123456789abcdef"


def test_tables_and_schemas_are_restored_from_their_bytes() -> None:
    assert schema_from_bytes(schema_to_bytes(SCHEMA)) == SCHEMA
    assert table_from_bytes(table_to_bytes(TABLE)) == TABLE
    assert table_from_bytes(table_to_bytes(SCHEMA.empty_table())) == SCHEMA.empty_table()


def test_only_tables_with_rows_are_restored() -> None:
    data = encode_tables({"a": TABLE, "b": SCHEMA.empty_table()}, SCHEMAS, FINGERPRINT, 7)
    tables, revision = decode_tables(data, SCHEMAS, FINGERPRINT)
    assert revision == 7 and list(tables) == ["a"] and tables["a"] == TABLE


def test_an_absent_table_is_an_empty_one() -> None:
    empty = {"a": SCHEMA.empty_table()}
    assert encode_tables({}, SCHEMAS, FINGERPRINT, 0) == encode_tables(empty, SCHEMAS, FINGERPRINT, 0)


@pytest.mark.parametrize(
    ("fingerprint", "version", "message"),
    [
        (b"x" * 16, 1, "the checkpoint belongs to another query"),
        (FINGERPRINT, 2, "has format 1, this Millpond reads format 2"),
    ],
)
def test_state_of_another_query_or_format_is_refused(fingerprint: bytes, version: int, message: str) -> None:
    data = encode_tables({"a": TABLE}, SCHEMAS, FINGERPRINT, 1, version=1)
    with pytest.raises(StateError, match=message):
        decode_tables(data, SCHEMAS, fingerprint, version)

"""Functions whose types sqlglot does not know."""

from __future__ import annotations

import pytest

from millpond.frontend.parse import parse

TABLE = (
    "CREATE STREAMING TABLE clicks (url STRING, ms INT, spent DOUBLE, extra MAP<STRING, INT>, at TIMESTAMP);"
)


@pytest.mark.parametrize(
    ("call", "type_"),
    [
        ("parse_url(url, 'HOST')", "STRING"),
        ("substring_index(url, '/', 1)", "STRING"),
        ("split_part(url, '/', 1)", "STRING"),
        ("nvl2(url, ms, ms)", "INT"),
        ("regexp_count(url, 'a')", "INT"),
        ("width_bucket(spent, 0, 10, 5)", "BIGINT"),
        ("rint(spent)", "DOUBLE"),
        ("map_contains_key(extra, 'a')", "BOOLEAN"),
        ("to_utc_timestamp(at, 'CET')", "TIMESTAMP"),
    ],
)
def test_the_type_of_a_function(call: str, type_: str) -> None:
    [query] = parse(f"{TABLE} SELECT ms FROM clicks WHERE {call} IS NOT NULL")
    ((column,),) = (table.derived for table in query.tables.values())
    assert column.type.name == type_

"""Finitely many rows that change, in random micro-batches: the answer is that on all rows."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from millpond.analysis.blocks import open_blocks
from millpond.engines.finite.compile import FiniteInput, compile_finite, show_group_columns
from millpond.engines.finite.execute import apply_changes
from millpond.frontend.parse import parse
from millpond.query.model import Query, Subquery
from millpond.runtime.codec import decode_tables, encode_tables
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.query_sql import evaluate_worlds

CATALOG = "CREATE STREAMING TABLE s (k TINYINT, x INT);"
COUNTS = "(SELECT k, COUNT(*) AS n, MAX(x) AS m FROM s GROUP BY k)"


def _read(sql: str) -> Query:
    (query,) = parse(f"{CATALOG} {sql}")
    return query


def _answer(query: Query, rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return evaluate_worlds(query, [{"s": rows}])[0]


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        (f"SELECT MAX(n), COUNT(*) FROM {COUNTS} c", ["int64", "int64"]),
        (f"SELECT n, COUNT(*) FROM {COUNTS} c GROUP BY n", ["int64", "int64"]),
        ("SELECT SUM(n) FROM (SELECT MAX(x) AS n FROM s GROUP BY k HAVING MAX(x) > 4) c", ["int64"]),
        (f"SELECT a.k, b.n FROM {COUNTS} a JOIN {COUNTS} b ON a.m = b.n", ["int8", "int64"]),
    ],
)
def test_the_answer_follows_the_changes_of_groups(sql: str, columns: list[str]) -> None:
    rng = random.Random(5)
    query, db = _read(sql), DuckDb()
    blocks, inputs = {}, []
    for name, table in query.tables.items():
        assert isinstance(table.block, Subquery)
        block, keys = show_group_columns(table.block.query)
        types = [pa.int8() if each in ("k", "group column 0") else pa.int64() for each in block.columns]
        blocks[name] = (block, keys)
        inputs.append(FiniteInput(name, pa.schema(list(zip(block.columns, types, strict=True))), keys))
    types = [pa.type_for_alias(each) for each in columns]
    schema = pa.schema([(f"o{i}", each) for i, each in enumerate(types)])
    program = compile_finite(
        open_blocks(query), inputs, schema, ["TINYINT" if "8" in c else "BIGINT" for c in columns]
    )
    rows: list[dict[str, Any]] = []
    known: dict[str, dict[Any, tuple[Any, ...]]] = {name: {} for name in blocks}
    state: dict[str, pa.Table] = {}
    found: Counter[tuple[Any, ...]] = Counter()
    for revision in range(12):
        rows += [{"k": rng.randrange(4), "x": rng.randrange(9)} for _ in range(rng.randrange(4))]
        changes = {}
        for kept, (name, (block, keys)) in zip(program.kept, blocks.items(), strict=True):
            places = [block.columns.index(key) for key in keys or ()]
            now = {tuple(row[i] for i in places): row for row in _answer(block, rows)}
            changed = [(row, False) for key, row in now.items() if known[name].get(key) != row]
            changed += [(row, True) for key, row in known[name].items() if key not in now]
            known[name] = now
            made = [
                dict(zip([*kept.changes.names], (*row, gone, i), strict=True))
                for i, (row, gone) in enumerate(changed)
            ]
            changes[kept.name] = pa.Table.from_pylist(made, schema=kept.changes)
        change = apply_changes(db, program, state, changes)
        data = encode_tables(change.state, program.state_schemas, program.fingerprint, revision)
        state = decode_tables(data, program.state_schemas, program.fingerprint)[0]
        added = [tuple(row.values()) for row in change.added.to_pylist()]
        removed = [tuple(row.values()) for row in change.removed.to_pylist()]
        if program.keys is not None:  # a row replaces that of its group
            places = [int(key[1:]) for key in program.keys]
            replaced = {tuple(row[i] for i in places) for row in added + removed}
            found = Counter(
                {row: n for row, n in found.items() if tuple(row[i] for i in places) not in replaced}
            )
            found.update(added)
        else:
            found.update(added)
            found.subtract(removed)
        assert +found == _answer(query, rows)

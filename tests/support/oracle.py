"""The answer of a query by brute force: DuckDB on the query's own text.

``answers`` evaluates many inputs in one statement: every stream's table carries the number of its case,
and the query runs as a LATERAL subquery for each case, its tables cut down to that case.  The text of
the query is otherwise unchanged, so DISTINCT, UNION and global aggregates mean what they mean.
``answer_one`` runs the text on plain tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import combinations
from typing import Any

import duckdb
import numpy as np
import sqlglot
from sqlglot import exp

from tests.support.generate import Catalog, Row

Answer = Counter[tuple[Any, ...]]

# Wider than declared, so that no arithmetic of the query can overflow.
_TABLE_TYPES = {
    "TINYINT": "BIGINT",
    "SMALLINT": "BIGINT",
    "INT": "BIGINT",
    "INTEGER": "BIGINT",
    "BIGINT": "BIGINT",
    "FLOAT": "DOUBLE",
    "DOUBLE": "DOUBLE",
    "STRING": "VARCHAR",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
}
_DTYPES = {"BIGINT": "int64", "DOUBLE": "float64", "BOOLEAN": "bool"}


def answers(sql: str, catalog: Catalog, cases: Sequence[Mapping[str, Sequence[Row]]]) -> list[Answer]:
    """The answer (a bag of rows in select-list order) of the query for every case (rows of each stream)."""
    connection = _connection("many cases")
    names = {table: f"_rows_{i}" for i, table in enumerate(sorted(catalog))}
    for table, name in names.items():
        connection.register(name, _columns(catalog[table], [case.get(table, ()) for case in cases]))
    connection.register("_cases", {"_case": np.arange(len(cases))})
    types = tuple((table, tuple(catalog[table])) for table in sorted(catalog))
    result: list[Answer] = [Counter() for _ in cases]
    for case, *row, count in connection.execute(_correlated(sql, types)).fetchall():
        result[case][normalise(row)] += count
    return result


def answer_one(sql: str, catalog: Catalog, rows: Mapping[str, Sequence[Row]]) -> Answer:
    """The answer for one input, by the unchanged text on plain tables."""
    return answer_duckdb(_query(sql).sql(dialect="duckdb"), catalog, rows)


def answer_duckdb(text: str, catalog: Catalog, rows: Mapping[str, Sequence[Row]]) -> Answer:
    """The answer of a query in DuckDB's own SQL for one input."""
    connection = _connection("plain")
    connection.execute("BEGIN")
    try:
        for table, columns in catalog.items():
            declared = ", ".join(f'"{c}" {_table_type(t)}' for c, t in columns)
            connection.execute(f'CREATE TABLE "{table}" ({declared})')
            values = [[row[c] for c, _ in columns] for row in rows.get(table, ())]
            if values:
                marks = ", ".join(f"({', '.join('?' for _ in columns)})" for _ in values)
                connection.execute(
                    f'INSERT INTO "{table}" VALUES {marks}', [v for row in values for v in row]
                )
        found = connection.execute(text).fetchall()
    finally:
        connection.execute("ROLLBACK")
    return Counter(normalise(row) for row in found)


def normalise(row: Sequence[Any]) -> tuple[Any, ...]:
    """The row with numbers in one form: whole ones as int, others as float to 12 digits."""
    return tuple(_normal(value) for value in row)


def _normal(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return value
    if value == int(value):
        return int(value)
    return float(f"{float(value):.12g}")


def confirm_witness(
    sql: str,
    catalog: Catalog,
    witness: Mapping[str, Any],
    time_columns: Mapping[str, str | None] | None = None,
) -> str | None:
    """None if the witness holds for every subset of its universe, else what is wrong.

    ``docs/reference/verdicts.md`` says what a witness is.

    The probes together must also distinguish all subsets, which forces 2^N memory states.  An aggregate emits
    each new answer: after every row of a probe, or after all rows of a timestamp if ``time_columns`` gives
    the time columns of the streams.
    """
    universe, probes, compare = witness["universe"], witness["probes"], witness["compare"]
    size = len(universe)
    if compare not in ("emitted", "answer"):
        return f"compare is {compare!r}."
    if size == 0 or len(probes) != size:
        return f"There are {size} rows in the universe and {len(probes)} probes."
    everything = [*witness["setup"], *universe, *(row for probe in probes for row in probe)]
    for entry in everything:
        if entry["stream"] not in catalog:
            return f"There is no stream {entry['stream']}."
        if set(entry["row"]) != {c for c, _ in catalog[entry["stream"]]}:
            return f"The row {entry['row']} does not have the columns of {entry['stream']}."
    broken = _broken_check(sql, catalog, everything)
    if broken:
        return broken

    subsets = [frozenset(c) for r in range(size + 1) for c in combinations(range(size), r)]
    step_by_step = compare == "emitted" and _query(sql).find(exp.AggFunc) is not None
    stages = [_stages(probe, time_columns or {}) if step_by_step else [probe] for probe in probes]
    inputs = []
    for subset in subsets:
        fed = [*witness["setup"], *(universe[i] for i in sorted(subset))]
        inputs.append(_gather(fed))
        for probe_stages in stages:
            fed_so_far = list(fed)
            for stage in probe_stages:
                fed_so_far += stage
                inputs.append(_gather(fed_so_far))
    found = iter(answers(sql, catalog, inputs))
    seen: dict[frozenset[int], list[Answer]] = {}
    for subset in subsets:
        before, seen[subset] = next(found), []
        for probe_stages in stages:
            latest = before if compare == "emitted" else Counter()
            yielded: Answer = Counter()
            for number, _ in enumerate(probe_stages):
                answer = next(found)
                yielded.update({(number, row): count for row, count in (answer - latest).items()})
                latest = answer
            seen[subset].append(yielded)
    for subset in subsets:
        for k in subset:
            if seen[subset][k] == seen[subset - {k}][k]:
                return f"Probe {k} yields the same with and without row {k} beside {sorted(subset - {k})}."
    known: dict[tuple[frozenset[tuple[Any, int]], ...], frozenset[int]] = {}
    for subset in subsets:
        key = tuple(frozenset(yielded.items()) for yielded in seen[subset])
        if key in known:
            return f"No probe distinguishes {sorted(subset)} from {sorted(known[key])}."
        known[key] = subset
    return None


def _stages(
    probe: Sequence[Mapping[str, Any]], time_columns: Mapping[str, str | None]
) -> list[list[Mapping[str, Any]]]:
    """The rows of a probe by timestamp."""
    timestamps: dict[Any, list[Mapping[str, Any]]] = {}
    for number, entry in enumerate(probe):
        time_column = time_columns.get(entry["stream"])
        timestamps.setdefault(entry["row"][time_column] if time_column else number, []).append(entry)
    return list(timestamps.values())


def _gather(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for entry in entries:
        rows.setdefault(entry["stream"], []).append(entry["row"])
    return rows


def _broken_check(sql: str, catalog: Catalog, entries: Sequence[Mapping[str, Any]]) -> str | None:
    for create in _statements(sql):
        if not isinstance(create, exp.Create):
            continue
        table = create.find(exp.Table)
        for check in create.find_all(exp.CheckColumnConstraint):
            assert table is not None
            name = next((t for t in catalog if t.lower() == table.name.lower()), None)
            if name is None:
                continue
            text = f"SELECT 1 FROM {name} WHERE NOT ({check.this.sql(dialect='spark')})"
            rows = [entry["row"] for entry in entries if entry["stream"] == name]
            if rows and answer_one(text, {name: catalog[name]}, {name: rows}):
                return f"A row of {name} breaks CHECK ({check.this.sql(dialect='spark')})."
    return None


# --- the text ---------------------------------------------------------------------------------------


def _statements(sql: str) -> list[exp.Expr]:
    plain = re.sub(r"(?i)\bCREATE\s+STREAMING\s+TABLE\b", "CREATE TABLE", sql)
    return [s for s in sqlglot.parse(plain, read="spark") if s is not None]


def _query(sql: str) -> exp.Query:
    statements = _statements(sql)
    queries = [s for s in statements if isinstance(s, exp.Query)]
    if len(queries) != 1:
        raise ValueError(f"expected one query, found {len(queries)}")
    views = {
        s.this.name.lower(): s.expression for s in statements if isinstance(s, exp.Create) and s.expression
    }
    (query,) = queries
    while tables := [table for table in query.find_all(exp.Table) if table.name.lower() in views]:
        for table in tables:
            table.replace(views[table.name.lower()].copy().subquery(table.alias_or_name))
    return query


@lru_cache(maxsize=256)
def _correlated(sql: str, types: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]) -> str:
    query = _query(sql).copy()
    names = {table.lower(): f"_rows_{i}" for i, (table, _) in enumerate(types)}
    columns = {table.lower(): [_typed(*c) for c in declared] for table, declared in types}
    for table in list(query.find_all(exp.Table)):
        key = table.name.lower()
        if key not in columns:  # a query of WITH
            continue
        listed = ", ".join(columns[key])
        inner = f"(SELECT {listed} FROM {names[key]} AS _rows WHERE _rows._case = _number._case)"
        joins = table.args.get("joins")
        cut = sqlglot.parse_one(f"SELECT 1 FROM {inner} AS {table.alias_or_name}", read="duckdb").find(
            exp.Subquery
        )
        assert cut is not None
        if joins:
            cut.set("joins", joins)
        table.replace(cut)
    first: exp.Expr = query
    while not isinstance(first, exp.Select):
        first = first.this
    outputs = ", ".join(f"o{i}" for i in range(len(first.expressions)))
    lateral = f"LATERAL ({query.sql(dialect='duckdb')}) AS q({outputs})"
    return f"SELECT _number._case, {outputs}, COUNT(*) FROM _cases AS _number, {lateral} GROUP BY ALL"


# --- the tables -------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _connection(purpose: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    connection.execute("SET threads = 1")
    return connection


def _table_type(sqltype: str) -> str:
    return _TABLE_TYPES.get(sqltype.upper(), sqltype)


def _typed(column: str, sqltype: str) -> str:
    """A column of the rows of all cases; without rows, DuckDB could not infer the types of some."""
    known = _table_type(sqltype)
    return f'"{column}"' if known in _DTYPES else f'CAST("{column}" AS {known}) AS "{column}"'


def _columns(columns: Sequence[tuple[str, str]], groups: Sequence[Sequence[Row]]) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        "_case": np.repeat(np.arange(len(groups)), [len(rows) for rows in groups]).astype("int64")
    }
    for column, sqltype in columns:
        values = [row[column] for rows in groups for row in rows]
        dtype = _DTYPES.get(_table_type(sqltype), "object")
        if dtype == "object":
            array: Any = np.array([*values, None, ""], dtype=object)[:-2]
        elif None in values:
            filled = [0 if value is None else value for value in values]
            array = np.ma.masked_array(np.array(filled, dtype), mask=[value is None for value in values])
        else:
            array = np.array(values, dtype)
        arrays[column] = array
    return arrays

"""Rows with or without a partner: compiles their tests, and filters the rows of inputs by them.

A test is a need like any other, whose results are the rows that have a partner; they are forgotten when the
last row that they decide has passed.  The rows of an input with tests stay in the reorder buffer until no
partner can come any more.  Then those that a test rejects are removed, and the others go the way of any row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from millpond.engines.timed.pareto_fronts import ALWAYS
from millpond.engines.timed.partial_match_sql import PartialMatchSql
from millpond.engines.timed.program import NeedProgram, PartnerFilter
from millpond.engines.timed.result_sql import CLOSES, match_expression
from millpond.engines.timed.tables import InputTable, all_rows, recent_rows
from millpond.plan.needs import PartnerNeeds
from millpond.query.expressions import Ref
from millpond.query.model import SemiJoin, Table
from millpond.runtime.duckdb import DuckDb

Tables = dict[str, pa.Table]


@dataclass(frozen=True)
class CompiledTest:
    """A compiled partner test, and the names of the tables with the rows that have a partner.

    Rows of these tables close ``after`` microseconds after the timestamp of the row that they decide.
    """

    needs: PartnerNeeds
    tables: tuple[str, ...]
    after: int


def find_tested_columns(tests: Iterable[CompiledTest], table: Table) -> set[Ref]:
    """The columns by which the rows of a table are recognised as having a partner."""
    return {ref for test in _find_tests(tests, table) for ref in test.needs.columns}


def _find_tests(tests: Iterable[CompiledTest], table: Table) -> list[CompiledTest]:
    block = table.block
    if not isinstance(block, SemiJoin):
        return []
    known = list(tests)
    return [next(t for t in known if t.needs.decides(block.alias, test)) for test in block.tests]


def matched_rows_sql(sql: PartialMatchSql, needs: PartnerNeeds, after: int) -> str:
    """The rows that have a partner: their columns k0, k1 … and when they close."""
    keys = [f"{match_expression(sql, ref)} AS k{i}" for i, ref in enumerate(needs.columns)]
    closes = str(ALWAYS)  # without time a row is decided at once
    if needs.time is not None:
        closes = f"epoch_us({match_expression(sql, needs.time)}) + {after}"
    columns = ", ".join([*keys, f"CAST({closes} AS BIGINT) AS {CLOSES}"])
    return f"SELECT DISTINCT {columns} FROM {sql.tables(sql.complete).new}"


def compile_filters(
    tests: Iterable[CompiledTest], table: Table, rows: InputTable
) -> tuple[PartnerFilter, ...]:
    """The filters of an input table, one for each test of its rows."""
    block = table.block
    if not isinstance(block, SemiJoin):
        return ()
    found = []
    for compiled, test in zip(_find_tests(tests, table), block.tests, strict=True):
        same = [f"m.{CLOSES} = e.t + {compiled.after}"] if compiled.needs.time is not None else []
        for i, ref in enumerate(compiled.needs.columns):
            same.append(f"m.k{i} IS NOT DISTINCT FROM e.{rows.column(ref)}")
        condition = " AND ".join(same) or "TRUE"
        found.append(PartnerFilter(compiled.tables, condition, test.present))
    return tuple(found)


def filter_by_partners(
    db: DuckDb, need: NeedProgram, tables: Tables, *results: Mapping[str, pa.Table]
) -> Tables:
    """The tables of a need's inputs without the rows that a test rejects.

    ``results`` are the result tables of earlier needs: what is kept after the micro-batch, what it closes.
    """
    filtered = dict(tables)
    for each in need.inputs:
        for test in each.filters:
            found = {name: [table[name] for table in results if name in table] for name in test.tables}
            matched = {name: pa.concat_tables(parts) for name, parts in found.items()}
            for name in (each.name, recent_rows(each.name), all_rows(each.name)):
                if name in filtered and filtered[name].num_rows:
                    inputs = {"rows": filtered[name], **matched}
                    filtered[name] = db.query(test.sql, inputs).cast(each.schema)
    return filtered

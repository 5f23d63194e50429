"""The compiled program of a timed query: the rows of its relations, its tables and its fingerprint."""

from __future__ import annotations

import pyarrow as pa

from millpond.analysis.decide import decide
from millpond.engines.timed.compile import compile_timed
from millpond.engines.timed.program import TimedProgram
from millpond.frontend.parse import parse
from millpond.runtime.sql import Dialect
from tests.support.timed_scenario import STREAMS

QUERY = "SELECT A, Y FROM S, R WHERE A = X"


def program(query: str = QUERY) -> TimedProgram:
    verdict = decide(parse(f"{STREAMS} {query}")[0])
    assert verdict.timed is not None, verdict.explain()
    return compile_timed(verdict.timed, Dialect.DUCKDB)


def relation_rows(compiled: TimedProgram, *values: int) -> dict[str, pa.Table]:
    """The same rows for every relation; all their columns have the same value."""
    return {
        each.name: pa.Table.from_pylist(
            [dict.fromkeys(each.schema.names, value) for value in values], schema=each.schema
        )
        for each in compiled.inputs
        if each.is_relation
    }


def test_a_relation_has_no_rows_before_they_are_given() -> None:
    [relation] = [each for each in program().inputs if each.is_relation]
    assert relation.relation is not None and relation.relation.num_rows == 0
    assert not program().inputs_of("R")


def test_the_program_takes_the_rows_of_its_relations() -> None:
    compiled = program()
    rows = relation_rows(compiled, 1, 2)
    filled = compiled.with_relations(rows)
    [relation] = [each for each in filled.inputs if each.is_relation]
    assert relation.relation == rows[relation.name]
    assert filled.inputs_of("S") == compiled.inputs_of("S")


def test_the_fingerprint_covers_the_plan_and_the_rows_of_relations() -> None:
    compiled = program()
    one, two = (compiled.with_relations(relation_rows(compiled, value)) for value in (1, 2))
    fingerprints = {each.fingerprint for each in (compiled, one, two, program(QUERY + " AND A > 0"))}
    assert len(fingerprints) == 4
    assert two.with_relations(relation_rows(compiled, 1)).fingerprint == one.fingerprint


def test_no_two_tables_have_the_same_name() -> None:
    compiled = program("SELECT COUNT(*), MAX(A) FROM S, T, U WHERE I < J AND J < K")
    assert len(compiled.needs) > 1
    names = [each.name for each in compiled.inputs]
    for need in compiled.needs:
        names.append(need.result)
        for step in need.sets:
            tables = step.tables
            names += [tables.state, tables.new, tables.all, tables.sorted, tables.history]
            names += [tables.series, tables.timeline]
    assert len(names) == len(set(names))
    assert set(compiled.state_schemas) <= set(names)

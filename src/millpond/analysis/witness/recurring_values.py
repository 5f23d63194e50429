"""Whether the values that a query computes from the keys of a witness ever recur.

A few rows do not show that a function such as the day of the year has finitely many values.  Thousands do:
the values of an expression have to be different for all of them, or the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from millpond.analysis.witness.sample_choices import find_sources, list_tables
from millpond.query.derived_names import strip_mark
from millpond.query.evaluate import Row
from millpond.query.expressions import Ref
from millpond.query.model import Column, Query, Subquery, Table, Windowed
from millpond.query.trace import Source, list_arguments, list_conditions, trace_column
from millpond.query.trees import refs
from millpond.query.types import Family
from millpond.runtime.derive import derive_each
from millpond.runtime.row_queries import UncomputableError

# The number of keys for which expressions are computed.
_KEYS = 3_000


def list_template_assumptions(
    query: Query, make_rows: Callable[[str, int], list[Row]], keys: frozenset[Source]
) -> tuple[str, ...] | None:
    """What a witness of any size takes for granted of the expressions over its key columns.

    ``make_rows`` gives rows of a stream with so many different keys.  None if the values of an expression, or
    of the key columns themselves, recur, or if they cannot be computed.
    """
    found: set[str] = set()
    compared = {
        (id(select.occurrence(ref.occurrence).table), ref.column)
        for select, condition in list_conditions(query)
        if select is not None
        for ref in refs(condition)
    }
    for stream in {name for name, _ in keys}:
        own = {column for name, column in keys if name == stream}
        try:
            rows = make_rows(stream, _KEYS)
        except (OverflowError, ValueError):
            return None
        if any(not _are_different([row[column] for row in rows]) for column in own):
            return None
        for table in list_tables(query):
            for column in _list_opaque(table):
                if not any(
                    source[0] == stream and source[1] in own for source in find_sources(table, column.name)
                ):
                    continue
                values = _compute(table, column, stream, rows, keys)
                is_constant = values is not None and len(set(map(str, values))) == 1
                if values is None or not (is_constant or _are_different(values)):
                    return None
                if column.type.family is Family.NESTED or (is_constant and _tests_elements(column)):
                    continue
                if (id(table), column.name) in compared:
                    names = " and ".join(sorted(own))
                    found.add(
                        f"any number of values of {names} fulfil the conditions on {strip_mark(column.name)}"
                    )
                elif not is_constant:
                    found.add(f"{strip_mark(column.name)} takes any number of values")
    if query.filter is not None:
        found.add(f"any number of results fulfil {query.filter.name}")
    return tuple(sorted(found))


def _tests_elements(column: Column) -> bool:
    """Whether a column says whether an array has elements, from which rows are made."""
    return column.name.endswith(" has elements")


def _are_different(values: Sequence[Any]) -> bool:
    return len(set(map(str, values))) == len(values)


def _list_opaque(table: Table) -> Iterator[Column]:
    """The derived columns of a table of whose values nothing is known."""
    for column in table.derived:
        derivation = column.derivation
        if derivation is not None and derivation.arguments and not derivation.facts:
            yield column


def _compute(
    table: Table, column: Column, stream: str, rows: Sequence[Row], keys: frozenset[Source]
) -> list[Any] | None:
    """The values of a derived column, some for each row; None if DuckDB cannot compute them.

    The columns of a block have the values of the declared columns that they show, or NULL; they cannot be
    computed if a block computes them from the ``keys``.
    """
    shown: list[dict[str, Any]] = [dict(row) for row in rows]
    if table.block is not None:
        shown = [{} for _ in rows]
        for each in table.columns:
            source = _find_shown(table, each.name, stream)
            for row, made in zip(rows, shown, strict=True):
                made[each.name] = row[source] if source is not None else None
        arguments = list_arguments(table, column.name)
        unknown = (each for each in arguments if _find_shown(table, each, stream) is None)
        if any(find_sources(table, each) & keys for each in unknown):
            return None
    try:
        derived = derive_each(table, shown)
    except UncomputableError:
        return None
    return [[row[column.name] for row in found] for found in derived]


def _find_shown(table: Table, name: str, stream: str) -> str | None:
    """The column of a declared stream that a column shows as it is, perhaps in one part of a UNION."""
    match table.block:
        case Windowed(base=base):
            known = any(column.name == name for column in base.columns)
            return _find_shown(base, name, stream) if known else None
        case Subquery(query=query) if name in query.columns:
            for select in query.selects:
                item = select.items[query.columns.index(name)].expression
                if isinstance(item, Ref):
                    found = _find_shown(select.occurrence(item.occurrence).table, item.column, stream)
                    if found is not None:
                        return found
            return None
    source = trace_column(table, name)
    is_plain = source is not None and any(column.name == name for column in table.columns)
    return source[1] if source is not None and is_plain and source[0] == stream else None

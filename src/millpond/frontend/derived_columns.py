"""The derived columns of the tables of a query, collected from its selects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from millpond.errors import SqlError, one_line
from millpond.frontend.scope import Scope
from millpond.frontend.time_calls import find_time_function
from millpond.query.expressions import Condition, IsNull, Not, Ref
from millpond.query.model import Column, Occurrence, Select, Term
from millpond.query.trees import map_occurrences
from millpond.query.types import TIMESTAMP


def with_derived(occurrence: Occurrence, columns: list[Column]) -> Occurrence:
    """The occurrence, of the table with these derived columns."""
    if not columns:
        return occurrence
    table = occurrence.table
    every = {column.name: column for column in (*table.derived, *columns)}
    properties = table.properties
    if any(map(_is_exploded, every.values())):  # the rate does not say how many elements a row has
        properties = {name: value for name, value in properties.items() if name != "rate"}
    return replace(occurrence, table=replace(table, derived=tuple(every.values()), properties=properties))


def _is_exploded(column: Column) -> bool:
    return column.derivation is not None and column.derivation.repeated and column.derivation.time is None


def list_window_filters(scope: Scope) -> Iterator[Condition]:
    """A row without a timestamp lies in no window, and is not in the result of a select with windows."""
    for occurrence in scope.occurrences:
        columns = scope.derived.get(occurrence.alias, {}).values()
        times = [find_time_function(column) for column in columns if column.type is TIMESTAMP]
        if any(time is not None and isinstance(time.unit, int) for time in times):
            assert occurrence.table.time is not None
            time = Ref(occurrence.alias, occurrence.table.time)
            yield Not(IsNull(time, f"{time} IS NULL"))


def share_derived_columns(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """The terms, with every table having the derived columns of all its occurrences."""
    derived: dict[str, dict[str, Column]] = {}
    selects = [select for term in terms for select in term.selects]
    for occurrence in (o for select in selects for o in select.every_occurrence):
        found = derived.setdefault(occurrence.table.name, {})
        for column in occurrence.table.derived:
            found.setdefault(column.name, column)
    if not any(derived.values()):
        return terms
    for select in selects:
        _check_repeated(select, derived)

    def share(select: Select) -> Select:
        return map_occurrences(select, lambda o: with_derived(o, list(derived[o.table.name].values())))

    return tuple(replace(term, selects=tuple(map(share, term.selects))) for term in terms)


def _check_repeated(select: Select, derived: dict[str, dict[str, Column]]) -> None:
    """Refuse a stream whose rows are repeated in one place of the query, but not in another."""
    for occurrence in select.every_occurrence:
        columns = derived[occurrence.table.name].values()
        repeated = [c for c in columns if c.derivation is not None and c.derivation.repeated]
        name = one_line(occurrence.table.name, 40)
        windows = [c for c in repeated if not _is_exploded(c)]
        if len(windows) > 1:
            message = f"{name} is divided into {len(windows)} kinds of sliding windows in one query"
            raise SqlError(message, select.position, "write a query for each sliding window")
        if {c.name for c in repeated} - {c.name for c in occurrence.table.derived}:
            message = f"{name} is used with and without a sliding window or explode in one query"
            raise SqlError(message, select.position)

"""What an unbounded verdict takes for granted of the expressions that a query computes.

A witness of some size shows that an expression takes as many values.  That it takes any number of values
does not follow, unless the closure knows the expression (``A + 5``).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from millpond.analysis.violations import Failure
from millpond.query.derived_names import strip_mark
from millpond.query.expressions import Ref
from millpond.query.model import Column, Occurrence, Query, Select
from millpond.query.parts import collect_derived_facts
from millpond.query.trees import map_occurrences, refs
from millpond.query.types import Family

_FIELD = re.compile(r"(`[^`]+`|FROM_JSON\(`[^`]+`, '[^']*'\))(\.`?\w+`?|\[[^\[\]]*\])+")
_OPEN = {Family.STRING, Family.BOOLEAN}


def find_opaque(select: Select, ref: Ref) -> Column | None:
    """The derived column of a reference, if nothing is known of its values."""
    column = select.occurrence(ref.occurrence).table.column(ref.column)
    derivation = column.derivation
    return column if derivation is not None and derivation.arguments and not derivation.facts else None


def _find_compared(select: Select) -> set[Ref]:
    """The columns that the conditions of a select mention."""
    places = [select.where, select.having, *(join.on for join in select.joins)]
    places += [each.condition for each in select.exists]
    return {ref for place in places for ref in refs(place)}


def find_all_refs(select: Select) -> set[Ref]:
    """The columns that a select mentions anywhere."""
    found = _find_compared(select) | set(select.group_by or ())
    found |= {ref for item in select.items for ref in refs(item.expression)}
    if select.session is not None:
        found |= {select.session.time, select.session.start, select.session.end}
    return found


def list_opaque(select: Select) -> dict[Ref, Column]:
    """The opaque columns that a select uses."""
    used = find_all_refs(select)
    used |= {ref for fact in collect_derived_facts(select) for ref in refs(fact)}
    known = {o.alias for o in select.occurrences}
    found = {ref: find_opaque(select, ref) for ref in used if ref.occurrence in known}
    return {ref: column for ref, column in found.items() if column is not None}


def declare_opaque(query: Query, select: Select) -> tuple[Query, Select] | None:
    """The query and the select with opaque columns as if they were declared, free to take any value.

    None unless each of them is computed from columns that the query uses for nothing else, so that its values
    are independent of all others, and is a string or a condition: numbers that no small argument gives are
    mostly few, such as the month of a date.  Fields of a struct are independent of each other and free.
    """
    opaque: dict[str, dict[str, Column]] = {}
    used: Counter[tuple[str, str]] = Counter()
    shown: set[tuple[str, str]] = set()
    for each in query.selects:
        names = {o.alias: o.table.name for o in each.every_occurrence}
        shown |= {(names[ref.occurrence], ref.column) for ref in find_all_refs(each)}
        found = {(names[ref.occurrence], ref.column): column for ref, column in list_opaque(each).items()}
        for (owner, name), column in found.items():
            opaque.setdefault(owner, {})[name] = column
        used.update({(names[ref.occurrence], ref.column) for ref in find_all_refs(each)} - set(found))
    for table in query.tables.values():
        for column in table.derived:
            if (table.name, column.name) in shown and not _is_field(column):
                used.update((table.name, name) for name in _arguments(column))
        used.update((table.name, ref.column) for check in table.checks for ref in refs(check))
    columns = [(name, column) for name, found in opaque.items() for column in found.values()]
    if not columns:
        return None
    for name, column in columns:
        shared = max(used[name, each] for each in _arguments(column))
        if shared > (0 if _is_field(column) else 1):
            return None
        if column.type.family not in _OPEN and not _is_field(column):
            return None

    def declare(occurrence: Occurrence) -> Occurrence:
        table, free = occurrence.table, opaque.get(occurrence.table.name, {})
        declared = tuple(replace(column, derivation=None) for column in free.values())
        rest = tuple(column for column in table.derived if column.name not in free)
        return replace(occurrence, table=replace(table, columns=table.columns + declared, derived=rest))

    terms = tuple(
        replace(term, selects=tuple(map_occurrences(each, declare) for each in term.selects))
        for term in query.terms
    )
    return replace(query, terms=terms), map_occurrences(select, declare)


def _is_field(column: Column) -> bool:
    """Whether a column is a field of a struct, as it is or as it is read from JSON."""
    return column.derivation is not None and _FIELD.fullmatch(column.derivation.sql) is not None


def _arguments(column: Column) -> tuple[str, ...]:
    return column.derivation.arguments if column.derivation is not None else ()


def list_assumptions(query: Query, select: Select, failure: Failure, free: bool) -> tuple[str, ...]:
    """The assumptions under which a confirmed witness of a failure can be enlarged at will.

    ``free``: the witness has values of the expressions themselves; no arguments are known that give them.
    """
    moving = {ref for moved in failure.violation.moving for ref in moved.columns}
    growing = {*failure.violation.columns, *moving}
    opaque = list_opaque(select)
    names = {ref: strip_mark(column.name) for ref, column in opaque.items()}
    out = [f"{name} takes any number of values" for ref, name in names.items() if ref in growing]
    for ref, column in opaque.items():
        assert column.derivation is not None
        shared = [n for n in column.derivation.arguments if Ref(ref.occurrence, n) in growing]
        if shared and ref not in growing:
            arguments = " and ".join(shared)
            out.append(f"any number of values of {arguments} fulfil the conditions on {names[ref]}")
        elif free and ref not in growing:
            out.append(f"{names[ref]} takes the values that the conditions ask for")
        elif ref not in growing and _compares_time(select, ref, column):
            out.append(f"{names[ref]} does not limit how far apart matching rows are in time")
    if query.filter is not None:
        out.append(f"any number of results fulfil {query.filter.name}")
    return tuple(sorted(set(out)))


def _compares_time(select: Select, ref: Ref, column: Column) -> bool:
    """Whether a condition on an opaque column is one on the time of a stream."""
    table = select.occurrence(ref.occurrence).table
    return table.streaming and table.time in _arguments(column) and ref in _find_compared(select)

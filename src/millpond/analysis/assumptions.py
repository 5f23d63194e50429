"""What an unbounded verdict takes for granted of the expressions that a query computes.

A witness of some size shows that an expression takes as many values.  That it takes any number of values
does not follow, unless the closure knows the expression (``A + 5``).
"""

from __future__ import annotations

from millpond.analysis.violations import Failure
from millpond.query.model import Column, Ref, Select
from millpond.query.parts import collect_derived_facts
from millpond.query.trees import refs


def find_opaque(select: Select, ref: Ref) -> Column | None:
    """The derived column of a reference, if nothing is known of its values."""
    column = select.occurrence(ref.occurrence).table.column(ref.column)
    derivation = column.derivation
    return column if derivation is not None and derivation.arguments and not derivation.facts else None


def list_opaque(select: Select) -> dict[Ref, Column]:
    """The opaque columns that a select uses."""
    used = refs(select.where) | refs(select.having) | set(select.group_by or ())
    used |= {ref for item in select.items for ref in refs(item.expression)}
    used |= {ref for fact in collect_derived_facts(select) for ref in refs(fact)}
    known = {o.alias for o in select.occurrences}
    found = {ref: find_opaque(select, ref) for ref in used if ref.occurrence in known}
    return {ref: column for ref, column in found.items() if column is not None}


def list_assumptions(select: Select, failure: Failure) -> tuple[str, ...]:
    """The assumptions under which a confirmed witness of a failure can be enlarged at will."""
    moving = {ref for moved in failure.violation.moving for ref in moved.columns}
    growing = {*failure.violation.columns, *moving}
    opaque = list_opaque(select)
    out = [f"{column.name} takes any number of values" for ref, column in opaque.items() if ref in growing]
    for ref, column in opaque.items():
        assert column.derivation is not None
        shared = [n for n in column.derivation.arguments if Ref(ref.occurrence, n) in growing]
        if shared and ref not in growing:
            names = " and ".join(shared)
            out.append(f"any number of values of {names} fulfil the conditions on {column.name}")
    return tuple(sorted(set(out)))

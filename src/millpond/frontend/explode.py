"""Reads ``explode(array)``, ``explode_outer(array)`` and LATERAL VIEW: one row for each element.

The elements are a derived column of the table; a row is repeated for each of them.  A row whose array is
empty or NULL has no result, except with ``explode_outer``, where the element is NULL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from millpond.errors import SqlError
from millpond.frontend.constants import Bound
from millpond.frontend.fields import read_field_accesses
from millpond.frontend.joins import FromClause
from millpond.frontend.row_expressions import find_derived, make_column, mark_as_read
from millpond.frontend.scope import Scope, Source, SourceColumn
from millpond.query.model import Column, Comparison, Condition, Derivation, Literal, Op, Ref
from millpond.query.types import BOOLEAN, Family

_EXPLODES = (exp.Explode, exp.ExplodeOuter)


def is_explode(node: exp.Expr) -> bool:
    """Whether a node is a call of explode or explode_outer; posexplode, a subclass, makes two columns."""
    return isinstance(node, _EXPLODES) and not isinstance(node, exp.Posexplode)


def read_lateral_views(node: exp.Select, clause: FromClause) -> FromClause:
    """FROM with the columns of ``LATERAL VIEW explode(array) t AS element``."""
    statement = clause.scope.statement
    calls = [c for item in node.expressions for c in item.find_all(*_EXPLODES) if c.parent_select is node]
    if len(calls) > 1:
        message = f"{statement.excerpt(calls[1])} is the second explode in a select list"
        raise SqlError(message, statement.at(calls[1]), "write LATERAL VIEW explode(…) t AS element")
    for view in node.args.get("laterals") or ():
        call, alias = view.this, view.args.get("alias")
        names = alias.args.get("columns") or [] if alias is not None else []
        if not view.args.get("view") or not is_explode(call) or len(names) > 1:
            raise SqlError(f"{statement.excerpt(view)} is not supported", statement.at(view))
        if clause.joins:
            message = "LATERAL VIEW after an outer join is not supported"
            raise SqlError(message, statement.at(view), "put the join into a subquery")
        bound = read_explode(clause.scope, call, is_outer=bool(view.args.get("outer")))
        assert isinstance(bound.expression, Ref)
        column = SourceColumn(names[0].name if names else bound.name, bound.expression, bound.type)
        source = Source(alias.name if alias is not None else "", (column,))
        scope = replace(clause.scope, sources=(*clause.scope.visible, source))
        clause = replace(clause, scope=scope, columns=(*clause.columns, column))
        mark_as_read(statement, view)
        read_field_accesses(scope, node)
    return clause


def read_explode(scope: Scope, node: exp.Expr, is_outer: bool = False) -> Bound:
    """The derived column of the elements of an array."""
    statement, array = scope.statement, node.this
    found = find_derived(scope, array)
    if found is None:
        message = f"{statement.excerpt(node)} is not supported: its array has to be computed from one table"
        raise SqlError(message, statement.at(node))
    alias, column = found
    if column.type.family is not Family.NESTED or not column.type.name.upper().startswith("ARRAY"):
        message = f"{statement.excerpt(array)} is {column.type}, not an array"
        raise SqlError(message, statement.at(array))
    assert column.derivation is not None
    first = exp.Bracket(this=array.copy(), expressions=[exp.Literal.number(0)])
    first.parent = node.parent  # its place in the statement
    element = make_column(scope, alias, first)
    arguments = column.derivation.arguments
    name = f"element of {column.name}"
    derivation = Derivation(
        column.derivation.sql, column.derivation.duckdb, repeated=True, arguments=arguments
    )
    ref = scope.derive(alias, Column(name, element.type, derivation=derivation))
    if not is_outer and not isinstance(node, exp.ExplodeOuter):
        scope.derive(alias, _make_filter(column))
    mark_as_read(statement, node)
    return Bound(ref, element.type, "col")


def _make_filter(array: Column) -> Column:
    """Whether an array has elements."""
    assert array.derivation is not None
    derivation = array.derivation
    return Column(
        f"{array.name} has elements",
        BOOLEAN,
        derivation=Derivation(
            f"coalesce(size({derivation.sql}), 0) > 0",
            f"coalesce(len({derivation.duckdb}), 0) > 0",
            arguments=derivation.arguments,
        ),
    )


def list_explode_filters(scope: Scope) -> Iterator[Condition]:
    """A row without elements is not in the result of a select that explodes its array."""
    for occurrence in scope.occurrences:
        columns = scope.derived.get(occurrence.alias, {})
        for column in columns.values():
            derivation = column.derivation
            if derivation is not None and derivation.repeated and derivation.time is None:
                name = f"{column.name.removeprefix('element of ')} has elements"
                if name in columns:
                    yield Comparison(Ref(occurrence.alias, name), Op.EQ, Literal(True, BOOLEAN), name)

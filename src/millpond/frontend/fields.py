"""Reads ``payload.user.id``: fields of structs, which sqlglot takes for qualified columns."""

from __future__ import annotations

from sqlglot import exp

from millpond.frontend.scope import Scope, SourceColumn
from millpond.query.types import Family


def read_field_accesses(scope: Scope, root: exp.Expr) -> None:
    """Replace names such as ``payload.user.id`` in a select, or below it, by accesses to fields of a column.

    As in Spark, an alias comes first: ``a.b`` is a column of the table ``a`` if there is one.
    """
    select = root if isinstance(root, exp.Select) else root.find_ancestor(exp.Select)
    for node in [*root.find_all(exp.Column)]:
        if node.args.get("table") is None or node.find_ancestor(exp.Select) is not select:
            continue
        parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
        found = _find_column(scope, parts) if len(parts) == len(node.parts) else None
        if found is None:
            continue
        column, fields = found
        access: exp.Expr = column
        for each in fields:
            access = exp.Dot(this=access, expression=each)
        scope.statement.place(access, node)
        for inner in access.walk():
            if not isinstance(inner, exp.Identifier):
                scope.statement.place(inner, node)
        node.replace(access)


def _find_column(scope: Scope, parts: list[exp.Identifier]) -> tuple[exp.Column, list[exp.Identifier]] | None:
    """The column that a name starts with, if the rest of it are fields, and these."""
    first, second = parts[0].name.lower(), parts[1].name.lower()
    for source in scope.visible:
        if source.alias.lower() == first:
            named = source.find(second)
            if len(parts) == 2 or not named or not _is_nested(named[0]):
                return None
            return exp.Column(this=parts[1], table=parts[0]), parts[2:]
    named = [each for source in scope.visible for each in source.find(first)]
    if len(named) != 1 or not _is_nested(named[0]):
        return None
    return exp.Column(this=parts[0]), parts[1:]


def _is_nested(column: SourceColumn) -> bool:
    return column.type is not None and column.type.family is Family.NESTED

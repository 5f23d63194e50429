"""Reads ``payload.user.id`` and ``payload.*``: fields of structs, which sqlglot takes for columns."""

from __future__ import annotations

from sqlglot import exp

from millpond.frontend.scope import Scope, SourceColumn
from millpond.query.types import Family


def read_field_accesses(scope: Scope, root: exp.Expr) -> None:
    """Replace names such as ``payload.user.id`` in a select, or below it, by accesses to fields of a column.

    As in Spark, an alias comes first: ``a.b`` is a column of the table ``a`` if there is one.
    """
    select = root if isinstance(root, exp.Select) else root.find_ancestor(exp.Select)
    if isinstance(root, exp.Select):
        root.set("expressions", [each for item in root.expressions for each in _expand_struct(scope, item)])
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


def _expand_struct(scope: Scope, item: exp.Expr) -> list[exp.Expr]:
    """The fields that ``payload.*`` stands for, if ``payload`` is a struct; any other item as it is."""
    if (
        not isinstance(item, exp.Column)
        or not isinstance(item.this, exp.Star)
        or item.this.args.get("except_")
    ):
        return [item]
    parts = [part for part in item.parts[:-1] if isinstance(part, exp.Identifier)]
    if not parts or (len(parts) == 1 and scope.has_alias(parts[0].name)):
        return [item]
    named = exp.Column(this=parts[-1], table=parts[0] if len(parts) == 2 else None)
    scope.statement.place(named, item)
    type_ = scope.resolve(named)[1].type if scope.knows(named) else None
    if type_ is None or type_.family is not Family.NESTED or not type_.name.upper().startswith("STRUCT"):
        return [item]
    fields = exp.DataType.build(type_.name, dialect="spark").expressions
    made: list[exp.Expr] = []
    for field in fields:
        access = exp.Dot(this=named.copy(), expression=exp.to_identifier(field.name, quoted=True))
        alias = exp.Alias(this=access, alias=exp.to_identifier(field.name, quoted=True))
        for node in alias.walk():
            scope.statement.place(node, item)
        alias.parent = item.parent
        made.append(alias)
    return made


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

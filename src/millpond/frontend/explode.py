"""Reads LATERAL VIEW of functions that make rows: one row for each element of an array or a map.

The elements are a derived column of the table; a row is repeated for each of them.  The columns of a view are
the element itself, or fields of it: key and value of a map's element, position and value for ``posexplode``,
the fields of a struct for ``inline``.  A row whose array is empty or NULL has no result, except with
``explode_outer`` and LATERAL VIEW OUTER, where the element is NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from millpond.errors import SqlError
from millpond.frontend.fields import read_field_accesses
from millpond.frontend.joins import FromClause
from millpond.frontend.lateral_views import OF_ITEM, makes_rows
from millpond.frontend.row_expressions import find_derived, make_column, mark_as_read
from millpond.frontend.scope import Scope, Source, SourceColumn
from millpond.frontend.stack import write_stack_as_array
from millpond.query.expressions import Comparison, Condition, Literal, Op, Ref
from millpond.query.model import Column, Derivation
from millpond.query.types import BOOLEAN, INT, Family, SqlType, nested

_HAS_ELEMENTS = " has elements"


def read_lateral_views(node: exp.Select, clause: FromClause) -> FromClause:
    """FROM with the columns of ``LATERAL VIEW explode(array) t AS element``."""
    statement = clause.scope.statement
    calls = [c for item in node.expressions for c in item.walk() if makes_rows(c) and c.parent_select is node]
    if len(calls) > 1:
        message = f"{statement.excerpt(calls[1])} is the second explode in a select list"
        raise SqlError(message, statement.at(calls[1]), "write LATERAL VIEW explode(…) t AS element")
    for view in node.args.get("laterals") or ():
        call, alias = view.this, view.args.get("alias")
        names = alias.args.get("columns") or [] if alias is not None else []
        if not view.args.get("view") or not makes_rows(call):
            raise SqlError(f"{statement.excerpt(view)} is not supported", statement.at(view))
        if clause.joins:
            message = "LATERAL VIEW after an outer join is not supported"
            raise SqlError(message, statement.at(view), "put the join into a subquery")
        columns = _read_call(clause.scope, call, is_outer=bool(view.args.get("outer")))
        if names and len(names) != len(columns):
            message = f"{statement.excerpt(call)} makes {len(columns)} columns, not {len(names)}"
            raise SqlError(message, statement.at(view), "name each of them")
        if names:
            pairs = zip(columns, names, strict=True)
            columns = tuple(replace(column, name=name.name) for column, name in pairs)
        source = Source(alias.name if alias is not None else "", columns)
        scope = replace(clause.scope, sources=(*clause.scope.visible, source))
        if view.meta.get(OF_ITEM):
            own = {(source.alias.lower(), column.name.lower()) for column in columns}
            clause = replace(clause, scope=replace(scope, hidden=scope.hidden | own))
        else:
            clause = replace(clause, scope=scope, columns=(*clause.columns, *columns))
        mark_as_read(statement, view)
        read_field_accesses(clause.scope, node)
    return clause


def _read_call(scope: Scope, node: exp.Expr, is_outer: bool) -> tuple[SourceColumn, ...]:
    """The columns of the rows that a call makes."""
    statement, name = scope.statement, _name_call(node)
    if name.startswith("JSON_TUPLE"):
        raise SqlError(f"the function {name} is not supported", statement.at(node))
    array = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
    if isinstance(node, exp.Stack):
        name, array = "INLINE", write_stack_as_array(scope, node)
    found = find_derived(scope, array)
    if found is None:
        message = f"{statement.excerpt(node)} is not supported: its array has to be computed from one table"
        raise SqlError(message, statement.at(node))
    alias, column = found
    kind = column.type.name.upper().partition("<")[0] if column.type.family is Family.NESTED else ""
    if kind not in ("ARRAY", "MAP") or (kind == "MAP" and name.startswith("INLINE")):
        message = f"{statement.excerpt(array)} is {column.type}, not an array"
        raise SqlError(message, statement.at(array))
    fields = _list_fields(scope, array, alias, kind)
    if name.startswith("INLINE") and not fields:
        message = f"{statement.excerpt(array)} is {column.type}, not an array of structs"
        raise SqlError(message, statement.at(array))
    assert column.derivation is not None
    spark, duckdb = column.derivation.sql, column.derivation.duckdb
    elements = "element"
    if kind == "MAP":
        spark, duckdb = f"map_entries({spark})", f"map_entries({duckdb})"
    type_ = _make_struct(fields) if kind == "MAP" else _find_element_type(scope, array, alias, node)
    if name.startswith("POSEXPLODE"):
        own = fields if kind == "MAP" else [("col", type_)]
        taken = [(f"x.`{each}`", f"x['{each}']") if kind == "MAP" else ("x", "x") for each, _ in own]
        values = [
            (f"'{field}', {each[0]}", f"'{field}': {each[1]}")
            for (field, _), each in zip(own, taken, strict=True)
        ]
        spark = f"transform({spark}, (x, i) -> named_struct('pos', i, {', '.join(v[0] for v in values)}))"
        inner = ", ".join(v[1] for v in values)
        duckdb = f"list_transform({duckdb}, lambda x, i: {{'pos': CAST(i - 1 AS INT), {inner}}})"
        fields = [("pos", INT), *own]
        type_, elements = _make_struct(fields), "numbered element"
    ref = _derive_elements(scope, alias, column, elements, type_, (spark, duckdb))
    has_elements = isinstance(array, exp.Array) and array.expressions
    if not is_outer and not name.endswith("_OUTER") and not has_elements:
        scope.derive(alias, _make_filter(column))
    mark_as_read(statement, node)
    if kind == "ARRAY" and name.startswith("EXPLODE"):
        _limit_values(scope, ref, _list_values(array, None))
        return (SourceColumn("col", ref, scope.column(ref).type),)
    return tuple(_read_field(scope, ref, node, array, each) for each, _ in fields)


def _read_field(scope: Scope, ref: Ref, node: exp.Expr, array: exp.Expr, field: str) -> SourceColumn:
    """A column of the rows: a field of the elements."""
    access = exp.Dot(this=scope.make_column(ref, node), expression=exp.to_identifier(field, quoted=True))
    access.parent = node.parent
    made = scope.derive(ref.occurrence, make_column(scope, ref.occurrence, access))
    _limit_values(scope, made, _list_values(array, field))
    return SourceColumn(field, made, scope.column(made).type)


def _name_call(node: exp.Expr) -> str:
    """The name of a function in upper case."""
    assert isinstance(node, exp.Func)
    return node.name.upper() if isinstance(node, exp.Anonymous) else str(node.sql_name()).upper()


def _find_element_type(scope: Scope, array: exp.Expr, alias: str, node: exp.Expr) -> SqlType:
    first = exp.Bracket(this=array.copy(), expressions=[exp.Literal.number(0)])
    first.parent = node.parent  # its place in the statement
    return make_column(scope, alias, first).type


def _list_fields(scope: Scope, array: exp.Expr, alias: str, kind: str) -> list[tuple[str, SqlType]]:
    """The fields of the elements of a map, or of those of an array of structs."""
    whole = make_column(scope, alias, array).type
    types = exp.DataType.build(whole.name, dialect="spark").expressions
    if kind == "MAP":
        named = list(zip(("key", "value"), types, strict=True))
    elif types and types[0].this is exp.DType.STRUCT:
        named = [(each.name, each.kind) for each in types[0].expressions]
    else:
        named = []
    return [(name, _read_type(type_)) for name, type_ in named]


def _read_type(type_: exp.DataType) -> SqlType:
    return nested(type_.sql("spark"), type_.sql("duckdb"))


def _make_struct(fields: Sequence[tuple[str, SqlType]]) -> SqlType:
    spark = ", ".join(f"`{name}`: {type_}" for name, type_ in fields)
    duckdb = ", ".join(f'"{name}" {type_.names.duckdb}' for name, type_ in fields)
    return nested(f"STRUCT<{spark}>", f"STRUCT({duckdb})")


def _derive_elements(
    scope: Scope, alias: str, array: Column, elements: str, type_: SqlType, sql: tuple[str, str]
) -> Ref:
    """The repeated column with the elements of an array; each call has one of its own."""
    assert array.derivation is not None
    name, number = f"{elements} of {array.name}", 1
    while name in scope.derived.get(alias, {}):
        number += 1
        name = f"{elements} {number} of {array.name}"
    spark, duckdb = sql
    derivation = Derivation(spark, duckdb, repeated=True, arguments=array.derivation.arguments)
    return scope.derive(alias, Column(name, type_, derivation=derivation))


def _list_values(array: exp.Expr, field: str | None) -> list[exp.Expr] | None:
    """The expressions of which the elements, or one of their fields, are the values; None if not known."""
    if isinstance(array, exp.VarMap) and field in ("key", "value"):
        listed = array.args[f"{field}s"]
        return list(listed.expressions) if isinstance(listed, exp.Array) else None
    if not isinstance(array, exp.Array):
        return None
    if field is None or field == "col":
        return list(array.expressions)
    found = [
        each.expression
        for struct in array.expressions
        if isinstance(struct, exp.Struct)
        for each in struct.expressions
        if isinstance(each, exp.PropertyEQ) and each.name.lower() == field.lower()
    ]
    return found if len(found) == len(array.expressions) else None


def _limit_values(scope: Scope, ref: Ref, values: list[exp.Expr] | None) -> None:
    """Note how many values a column has, if it is one of a list of expressions with finitely many."""
    column = scope.column(ref)
    counts = [_count(scope, each) for each in values or ()]
    known = [each for each in counts if each is not None]
    if known and len(known) == len(counts):
        scope.derived[ref.occurrence][ref.column] = replace(column, cardinality=sum(known))


def _count(scope: Scope, value: exp.Expr) -> int | None:
    if value.find(exp.Column) is None:
        return 0 if isinstance(value, exp.Null) else 1
    found = find_derived(scope, value)
    return found[1].cardinality if found is not None else None


def _make_filter(array: Column) -> Column:
    """Whether an array or a map has elements."""
    assert array.derivation is not None
    derivation = array.derivation
    count = "cardinality" if array.type.name.upper().startswith("MAP") else "len"
    return Column(
        f"{array.name}{_HAS_ELEMENTS}",
        BOOLEAN,
        derivation=Derivation(
            f"coalesce(size({derivation.sql}), 0) > 0",
            f"coalesce({count}({derivation.duckdb}), 0) > 0",
            arguments=derivation.arguments,
        ),
    )


def list_explode_filters(scope: Scope) -> Iterator[Condition]:
    """A row without elements is not in the result of a select that explodes its array."""
    for occurrence in scope.occurrences:
        for name in scope.derived.get(occurrence.alias, {}):
            if name.endswith(_HAS_ELEMENTS):
                yield Comparison(Ref(occurrence.alias, name), Op.EQ, Literal(True, BOOLEAN), name)

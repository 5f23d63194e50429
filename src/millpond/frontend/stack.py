"""Reads ``stack(n, a, b, …)``, which makes n rows of its values: the array of these rows."""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import SqlError, SqlTypeError
from millpond.frontend.constants import read_constant
from millpond.frontend.row_expressions import find_derived
from millpond.frontend.row_facts import read_value
from millpond.frontend.scope import Scope
from millpond.query.types import SqlType


def write_stack_as_array(scope: Scope, node: exp.Stack) -> exp.Array:
    """The rows as an array of structs with the fields col0, col1 and so on.

    As in Spark, the values of a column have one type.
    """
    statement, values, count = scope.statement, node.expressions, read_value(node.this)
    if type(count) is not int or count < 1 or not values or len(values) % count:
        message = f"{statement.excerpt(node)} does not have the same number of values in each row"
        raise SqlError(message, statement.at(node), "write stack(n, …) with n rows of as many values")
    width = len(values) // count
    for column in range(width):
        types = {_find_type(scope, each) for each in values[column::width]}
        if len(types) > 1:
            message = f"{statement.excerpt(node)} has values of different types in column {column}"
            raise SqlTypeError(message, statement.at(node), "cast them to one type")
    rows = [_write_row(scope, values[row * width : (row + 1) * width]) for row in range(count)]
    array = exp.Array(expressions=rows)
    array.parent = node.parent
    for each in (array, *rows):
        statement.place(each, node)
    return array


def _write_row(scope: Scope, values: list[exp.Expr]) -> exp.Struct:
    fields = [
        exp.PropertyEQ(this=exp.to_identifier(f"col{index}"), expression=scope.statement.copy(value))
        for index, value in enumerate(values)
    ]
    return exp.Struct(expressions=fields)


def _find_type(scope: Scope, node: exp.Expr) -> SqlType | None:
    """The type of a value: an expression over one table, or a constant."""
    constant = read_constant(scope.statement, node)
    if constant is not None:
        return constant.type
    found = find_derived(scope, node)
    return found[1].type if found is not None else None

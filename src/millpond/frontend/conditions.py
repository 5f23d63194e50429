"""Reads conditions from sqlglot's nodes: typed comparisons connected by AND, OR and NOT.

A condition on rows (WHERE, ON, CHECK) compares columns, columns plus a constant, and constants; a
condition on groups (HAVING) compares any expressions over aggregates and group columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NoReturn

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError, SqlTypeError, one_line
from millpond.frontend import literals
from millpond.frontend.counted_times import is_rounded, rewrite_difference
from millpond.frontend.expressions import Reader, strip_parentheses
from millpond.frontend.implicit_casts import cast_sides, is_comparable_list
from millpond.frontend.inlined_differences import inline_differences
from millpond.frontend.refusals import accept_only
from millpond.frontend.row_expressions import is_row_function, mark_as_read, read_row_predicate
from millpond.frontend.sides import Side, read_group_side, read_row_side
from millpond.frontend.solve import Solver
from millpond.frontend.time_calls import find_window_width
from millpond.frontend.time_comparisons import compare_as_times, compare_formats
from millpond.frontend.time_differences import split_time_difference
from millpond.query.expressions import (
    And,
    Arithmetic,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Literal,
    Not,
    Op,
    Or,
    Ref,
    Truth,
)
from millpond.query.model import Windowed
from millpond.query.types import INTERVAL_VALUE, STRING, WINDOW, Family

_OPS: dict[type[exp.Expr], Op] = {
    exp.LT: Op.LT,
    exp.LTE: Op.LE,
    exp.EQ: Op.EQ,
    exp.GTE: Op.GE,
    exp.GT: Op.GT,
    exp.NEQ: Op.NE,
}
_SUBQUERY = "{} is only supported as a condition of WHERE that AND connects with the others"
_OF_RELATION = (
    "elsewhere the subquery must be over relations, and compare its rows with the row around it by equalities"
    " and at most one other comparison"
)


@dataclass(frozen=True)
class _Reading:
    """A reader, and its function for a side of a comparison: on rows or on groups."""

    reader: Reader
    side: Callable[[Reader, exp.Expr], Side]


def read_row_condition(reader: Reader, node: exp.Expr) -> Condition:
    """A condition of WHERE, ON or CHECK."""
    return _read_condition(_Reading(reader, read_row_side), inline_differences(reader.scope, node))


def read_group_condition(reader: Reader, node: exp.Expr) -> Condition:
    """A condition of HAVING."""
    return _read_condition(_Reading(reader, read_group_side), node)


# Operands of the topmost AND of a condition that are not of the language, and why.
Rest = list[tuple[exp.Expr, SqlError]]


def read_in_part(
    read: Callable[[Reader, exp.Expr], Condition], reader: Reader, node: exp.Expr, rest: Rest | None
) -> Condition:
    """A condition without operands of its topmost AND that cannot be read, which are added to ``rest``."""
    try:
        return read(reader, node)
    except (SqlTypeError, SqlNameError):
        raise
    except SqlError:
        if rest is None:
            raise
        found: list[Condition] = []
        for operand in list_operands(strip_parentheses(reader.statement, node), exp.And):
            try:
                found.append(read(reader, operand))
            except (SqlTypeError, SqlNameError):
                raise
            except SqlError as refusal:
                rest.append((operand, refusal))
                implied = rewrite_difference(reader.scope, operand, whole=False)
                found += [read(reader, implied)] if implied is not None else []
        return conjunction(each for each in found if each != Truth(True))


def conjunction(conditions: Iterable[Condition]) -> Condition:
    """The conjunction of all conditions, flattened; TRUE if there are none."""
    return _connect(And, conditions)


def _read_condition(reading: _Reading, node: exp.Expr) -> Condition:
    statement = reading.reader.statement
    node = strip_parentheses(statement, node)
    if isinstance(node, exp.Or) and reading.side is read_row_side:
        flag = _read_flag(reading, node)
        if flag is not None:
            return flag
    if isinstance(node, exp.And | exp.Or):
        kind = And if isinstance(node, exp.And) else Or
        return _connect(kind, [_read_condition(reading, each) for each in list_operands(node, type(node))])
    if isinstance(node, exp.Not):
        return _negate(_read_condition(reading, node.this))
    if reading.side is read_row_side and isinstance(node, (*_OPS, exp.Between, exp.In)):
        near = split_time_difference(reading.reader, node, _OPS)
        if near is not None:
            return conjunction([compare_sides(reading.reader, a, op, b, node) for a, op, b in near])
        solved = Solver(reading.reader.scope, _OPS).solve(node)
        if solved is not None:
            return solved
        rewritten = rewrite_difference(reading.reader.scope, node)
        if rewritten is not None:
            mark_as_read(statement, node)
            return _read_condition(reading, rewritten)
    if type(node) in _OPS:
        accept_only(statement, node, "this", "expression")
        sides = [reading.side(reading.reader, each) for each in (node.this, node.expression)]
        return compare_sides(reading.reader, sides[0], _OPS[type(node)], sides[1], node)
    if isinstance(node, exp.Between):
        return _read_between(reading, node)
    if isinstance(node, exp.In):
        return _read_in(reading, node)
    if isinstance(node, exp.Is):
        return _read_is_null(reading, node)
    if isinstance(node, exp.Like) and _is_plain(node.expression):  # no wildcards: an equality
        mark_as_read(statement, node)
        sides = [reading.side(reading.reader, each) for each in (node.this, node.expression)]
        if all(side.type is STRING for side in sides):
            return compare_sides(reading.reader, sides[0], Op.EQ, sides[1], node)
    if isinstance(node, exp.Exists) and not is_row_function(node):
        place = statement.keyword_at(node, "EXISTS")
        raise SqlError(_SUBQUERY.format("EXISTS"), place, _OF_RELATION)
    return _read_boolean(reading, node)


def _read_flag(reading: _Reading, node: exp.Or) -> Condition | None:
    """A condition that says whether the row before is near, counted in a unit of time, as a column."""
    scope = reading.reader.scope
    columns = [*node.find_all(exp.Column)]
    if not is_rounded(scope, node) or not all(map(scope.knows, columns)):
        return None
    owners = {scope.find_column(column)[0].occurrence for column in columns}
    if len(owners) != 1 or not isinstance(scope.table_of(owners.pop()).block, Windowed):
        return None
    return _read_boolean(reading, node)


def _is_plain(pattern: exp.Expr) -> bool:
    """A pattern of LIKE that only equals itself."""
    return isinstance(pattern, exp.Literal) and pattern.is_string and not set(pattern.this) & set("%_\\")


def list_operands(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The operands of a chain of ANDs, or of ORs; the node itself if it is none."""
    operands = []
    pending = [node]
    while pending:
        each = pending.pop()
        if type(each) is kind:
            pending += (each.expression, each.this)
        else:
            operands.append(each)
    return operands


def _connect(kind: type[And] | type[Or], conditions: Iterable[Condition]) -> Condition:
    operands: list[Condition] = []
    for each in conditions:
        operands += each.operands if isinstance(each, kind) else (each,)
    if not operands:
        return Truth(kind is And)
    return operands[0] if len(operands) == 1 else kind(tuple(operands))


def _negate(condition: Condition) -> Condition:
    if isinstance(condition, Truth):
        return Truth(None if condition.value is None else not condition.value)
    return condition.operand if isinstance(condition, Not) else Not(condition)


# --- predicates --------------------------------------------------------------------------------------


def _read_between(reading: _Reading, node: exp.Between) -> Condition:
    accept_only(reading.reader.statement, node, "this", "low", "high")
    operand, low, high = (reading.side(reading.reader, node.args[key]) for key in ("this", "low", "high"))
    least = compare_sides(reading.reader, operand, Op.GE, low, node)
    return conjunction([least, compare_sides(reading.reader, operand, Op.LE, high, node)])


def _read_in(reading: _Reading, node: exp.In) -> Condition:
    statement = reading.reader.statement
    if node.args.get("query"):
        place = statement.keyword_at(node, "IN")
        raise SqlError(_SUBQUERY.format("IN (SELECT …)"), place, _OF_RELATION)
    accept_only(statement, node, "this", "expressions")
    operand = reading.side(reading.reader, node.this)
    if not node.expressions:
        raise SqlError(f"{statement.excerpt(node)} IN has no values", statement.at(node), "write IN (1, 2)")
    values = [reading.side(reading.reader, each) for each in node.expressions]
    casts = is_comparable_list(operand, values)
    compared = [compare_sides(reading.reader, operand, Op.EQ, each, node, casts) for each in values]
    return _connect(Or, compared)


def _read_is_null(reading: _Reading, node: exp.Is) -> Condition:
    statement = reading.reader.statement
    accept_only(statement, node, "this", "expression")
    if not isinstance(node.expression, exp.Null):
        return _read_boolean(reading, node)
    side = reading.side(reading.reader, node.this)
    operand = side.expression
    if side.type is not None and side.type.family is Family.NESTED:
        return _read_boolean(reading, node)
    if isinstance(operand, Literal):
        return Truth(operand.value is None)
    if (
        isinstance(operand, Arithmetic)
        and isinstance(operand.left, Ref)
        and isinstance(operand.right, Literal)
    ):
        operand = operand.left  # a column plus a constant is NULL exactly if the column is
    return IsNull(operand, statement.slice(node), statement.at(node))


def _read_boolean(reading: _Reading, node: exp.Expr) -> Condition:
    """A boolean column or constant as a condition."""
    statement, side = reading.reader.statement, reading.side(reading.reader, node)
    expression = side.expression
    if isinstance(expression, Literal) and (expression.value is None or isinstance(expression.value, bool)):
        return Truth(expression.value)
    if side.type is None or side.type.family is not Family.BOOLEAN:
        shown = statement.excerpt(node)
        raise SqlTypeError(
            f"{shown} is {side.type}, not a condition", statement.at(node), f"compare it: {shown} = …"
        )
    return Comparison(expression, Op.EQ, literals.to_boolean(True), statement.slice(node), statement.at(node))


# --- comparisons -------------------------------------------------------------------------------------


def compare_sides(
    reader: Reader, left: Side, op: Op, right: Side, node: exp.Expr, casts: bool = True
) -> Condition:
    """The comparison of two sides, whose types must fit; ``node`` is the whole predicate.

    With ``casts``, a side is cast where Spark does so.
    """
    left, right = _read_string(reader, left, right), _read_string(reader, right, left)
    if left.type is None or right.type is None:
        return Truth(None)  # a comparison with NULL
    if left.type.family is not right.type.family:
        left, right = _cast_sides(reader, left, right) if casts else _refuse_types(reader, left, right)
    a, b = left.expression, right.expression
    if left.type is not None and left.type.family is Family.NESTED:
        message = f"{reader.statement.excerpt(left.node)} is {left.type}, which cannot be compared"
        raise SqlTypeError(message, reader.statement.at(node), "compare its fields or elements")
    if INTERVAL_VALUE in (left.type, right.type) and reader.grouped is None:
        predicate = read_row_predicate(reader.scope, node)
        if predicate is not None:
            text, place = reader.statement.slice(node), reader.statement.at(node)
            return Comparison(predicate.expression, Op.EQ, literals.to_boolean(True), text, place)
    if left.type is WINDOW:
        _check_equal_widths(reader, left, right)
    if reader.grouped is None:  # HAVING sees the grouped columns only
        a, b = compare_as_times(reader.scope, a, op, b) or (a, b)
        formats = compare_formats(reader.scope, a, b) if op in (Op.EQ, Op.NE) else None
        if formats is not None:
            return _compare_formats(reader, formats, Comparison(a, op, b), node)
    floating = literals.is_floating(left.type) or literals.is_floating(right.type)
    if floating:
        a, b = _to_double(a), _to_double(b)
    if isinstance(a, Literal) and isinstance(b, Literal):
        return _compare_constants(a, op, b, floating)
    if isinstance(a, Literal):
        a, b, op = b, a, op.mirrored
    return Comparison(a, op, b, reader.statement.slice(node), reader.statement.at(node))


def _cast_sides(reader: Reader, left: Side, right: Side) -> tuple[Side, Side]:
    """Sides of different kinds, as Spark compares them."""
    cast = cast_sides(reader.scope, left, right, reader.grouped is None)
    return cast if cast is not None else _refuse_types(reader, left, right)


def _compare_formats(
    reader: Reader, formats: tuple[list[tuple[Ref, Ref]], bool], compared: Comparison, node: exp.Expr
) -> Condition:
    """Two results of ``date_format`` are equal, or differ, as the columns that they determine do."""
    pairs, is_equivalent = formats
    text, place = reader.statement.slice(node), reader.statement.at(node)
    equal = [Comparison(one, Op.EQ, other, text, place) for one, other in pairs]
    if not is_equivalent:
        plain = replace(compared, text=text, position=place)
        return plain if compared.operator is Op.NE else conjunction([*equal, plain])
    return conjunction(equal) if compared.operator is Op.EQ else _negate(conjunction(equal))


def _check_equal_widths(reader: Reader, left: Side, right: Side) -> None:
    """Refuse to compare windows of different widths; otherwise the order of their starts is their order."""
    starts = [side.expression for side in (left, right)]
    columns = [reader.scope.column(ref) for ref in starts if isinstance(ref, Ref)]
    if len({width for each in columns if (width := find_window_width(each)) is not None}) > 1:
        shown = " and ".join(reader.statement.excerpt(side.node) for side in (left, right))
        message = f"{shown} are windows of different widths, which are never equal"
        raise SqlTypeError(message, reader.statement.at(left.node))


def _compare_constants(a: Literal, op: Op, b: Literal, floating: bool) -> Truth:
    left, right = a.value, b.value
    if floating and isinstance(left, int | float | Decimal) and isinstance(right, int | float | Decimal):
        left, right = float(left), float(right)
    return Truth(op.compare(left, right))


def _to_double(expression: Expr) -> Expr:
    return literals.to_double(expression) if isinstance(expression, Literal) else expression


def _read_string(reader: Reader, side: Side, other: Side) -> Side:
    """A string constant that is compared with a date or timestamp becomes one."""
    literal = side.expression
    readers = {Family.DATE: literals.parse_date, Family.TIME: literals.parse_timestamp}
    if not isinstance(literal, Literal) or not isinstance(literal.value, str):
        return side
    if other.type is None or other.type.family not in readers:
        return side
    try:
        coerced = readers[other.type.family](literal.value)
    except ValueError as error:
        place = reader.statement.at(side.node)
        raise SqlTypeError(f"'{one_line(literal.value, 40)}' {error}", place) from None
    return replace(side, expression=coerced, type=coerced.type)


def _refuse_types(reader: Reader, left: Side, right: Side) -> NoReturn:
    shown = [reader.statement.excerpt(side.node) for side in (left, right)]
    message = f"{shown[0]} ({left.type}) cannot be compared with {shown[1]} ({right.type})"
    column, other = (right, left) if isinstance(left.expression, Literal) else (left, right)
    raise SqlTypeError(message, reader.statement.at(left.node), _mismatch_remedy(column, other))


def _mismatch_remedy(column: Side, other: Side) -> str:
    assert column.type is not None and other.type is not None
    value = other.expression.value if isinstance(other.expression, Literal) else None
    family = column.type.family
    if Family.TIME in (family, other.type.family):
        return "compare it with a TIMESTAMP column or a constant TIMESTAMP '…'"
    if isinstance(value, str) and _is_quoted(value, family):
        return f"write {one_line(value, 40)} without quotes"
    if family is Family.DATE:
        return "write DATE '…'"
    if value is not None and family is Family.STRING:
        return f"write '{one_line(str(value), 40)}' in quotes"
    return "compare values of the same type"


def _is_quoted(text: str, family: Family) -> bool:
    """The text of a string constant is a number, or a boolean."""
    if family is Family.BOOLEAN:
        return text.upper() in ("TRUE", "FALSE")
    try:
        return family is Family.NUMBER and bool(literals.parse_number(text.lstrip("+-")))
    except ValueError:
        return False

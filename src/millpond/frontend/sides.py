"""Reads the sides of comparisons from sqlglot's nodes, and folds constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sqlglot import exp

from millpond.errors import SqlError, SqlTypeError
from millpond.frontend import literals
from millpond.frontend.constants import read_constant
from millpond.frontend.expressions import (
    CONDITIONS,
    OPERATORS,
    Reader,
    arithmetic_type,
    bind,
    has_aggregate,
    require_number,
    strip_parentheses,
)
from millpond.frontend.folding import fold_constant
from millpond.frontend.intervals import read_interval, read_shift
from millpond.frontend.refusals import accept_only, unsupported_error
from millpond.frontend.row_expressions import find_obstacle, mark_as_read, read_row_expression
from millpond.frontend.statement import AGGREGATES
from millpond.frontend.time_calls import read_time_call
from millpond.frontend.time_counts import read_function_of_time
from millpond.frontend.time_zones import find_slack
from millpond.query.expressions import Arithmetic, Expr, Literal, Ref
from millpond.query.types import INT, INTERVAL, SMALLINT, TIMESTAMP, TINYINT, Family, SqlType

_DAYS = (INT, SMALLINT, TINYINT)
_SHAPE = "compare columns with each other or with constants, as in A < B, A + 1 <= B, A = 10"


@dataclass(frozen=True)
class Side:
    """One side of a comparison, its type (None: the untyped NULL) and sqlglot's node."""

    expression: Expr
    type: SqlType | None
    node: exp.Expr


def read_group_side(reader: Reader, node: exp.Expr) -> Side:
    """A side of a comparison in HAVING: any expression over aggregates and group columns."""
    if not any(isinstance(each, exp.Column | exp.Func) for each in node.walk()):
        return read_row_side(reader, node)  # without columns it is a constant
    bound = bind(reader, node)
    return Side(bound.expression, bound.type, node)


def read_row_side(reader: Reader, node: exp.Expr) -> Side:
    """A side of a comparison on rows: a constant, a column, or a column shifted by a constant."""
    statement = reader.statement
    inner = strip_parentheses(statement, node)
    if isinstance(inner, exp.Subquery):
        raise unsupported_error(statement, inner)
    folded = fold_constant(statement, inner)
    if folded is not None:
        mark_as_read(statement, inner)
        return Side(folded, folded.type, node)
    shifted = _read_shift(reader, inner)
    if shifted is not None:
        return shifted
    is_sum = isinstance(inner, exp.Add | exp.Sub)  # a column plus a constant
    read_time = read_time_call if is_sum else read_function_of_time
    found = read_time(reader.scope, inner) or read_constant(statement, inner)
    if found:
        return Side(found.expression, found.type, node)
    if isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star):
        ref, kind = reader.scope.find_column(inner)
        if statement.pluses(inner):
            require_number(statement, "+", inner, kind)
        return Side(ref, kind, node)
    length = _read_interval(reader, inner)
    if length is not None:
        return length
    if isinstance(inner, exp.Neg):
        return _negate(reader, inner)
    if type(inner) in OPERATORS:
        accept_only(statement, inner, "this", "expression", "typed", "safe")
        return _compute(reader, inner, OPERATORS[type(inner)])
    derived = _derive(reader, inner)
    if derived is not None:
        return derived
    if isinstance(inner, AGGREGATES):
        message = f"the aggregate {statement.excerpt(inner)} is not supported in WHERE, ON or CHECK"
        raise SqlError(message, statement.at(inner), "put it in HAVING")
    if type(inner) in CONDITIONS:
        raise SqlError(
            f"{statement.excerpt(inner)} is a condition, but a value is expected",
            statement.at(inner),
            _SHAPE,
        )
    raise unsupported_error(statement, inner if has_aggregate(inner) else find_obstacle(inner))


def _read_interval(reader: Reader, node: exp.Expr) -> Side | None:
    """A length of time; None if the node is none."""
    length = read_interval(node)
    if length is None and not isinstance(node, exp.Interval):
        return None
    if length is None or length.fixed is None:
        raise SqlError(
            f"{reader.statement.excerpt(node)} is not a duration",
            reader.statement.at(node),
            "write INTERVAL 10 SECONDS; the units are microseconds up to weeks",
        )
    mark_as_read(reader.statement, node)
    return Side(Literal(timedelta(microseconds=length.fixed), INTERVAL), INTERVAL, node)


def _read_shift(reader: Reader, node: exp.Expr) -> Side | None:
    """A date or timestamp plus a constant: ``ts + INTERVAL 1 HOUR``, ``timestampadd(MINUTE, 5, ts)``.

    None for any other expression.  A length that depends on the calendar makes a derived column.
    """
    found = read_shift(node)
    if found is None or found[0].find(exp.Column) is None:
        return None
    moment, length = found
    side = read_row_side(reader, moment)
    if side.type is None or side.type.family not in (Family.DATE, Family.TIME):
        return None
    mark_as_read(reader.statement, node)
    if side.type.family is Family.TIME and length.is_exact(find_slack(reader.statement.time_zone)):
        by = timedelta(microseconds=length.fixed or 0)
        return shift_column(reader, node, "+", side, Literal(by, INTERVAL))
    if side.type.family is Family.DATE and length.keeps_dates and not length.months and not length.micros:
        return shift_column(reader, node, "+", side, Literal(length.days, INT))
    return _derive_or_refuse(reader, node, _SHAPE)


def _negate(reader: Reader, node: exp.Neg) -> Side:
    side = read_row_side(reader, node.this)
    require_number(reader.statement, "-", node.this, side.type)
    literal = side.expression
    if not isinstance(literal, Literal):
        return _derive_or_refuse(reader, node, "write -A < 3 as A > -3")
    return _fold(reader, node, lambda: literals.negate(literal))


def _compute(reader: Reader, node: exp.Expr, operator_: str) -> Side:
    if all(each.find(exp.Column) for each in (node.this, node.expression)) or operator_ in "*/%":
        derived = _derive(reader, node)
        if derived is not None:
            return derived
    left, right = read_row_side(reader, node.this), read_row_side(reader, node.expression)
    a, b = left.expression, right.expression
    if isinstance(a, Literal) and isinstance(b, Literal):
        if INTERVAL in (a.type, b.type) and find_slack(reader.statement.time_zone):
            raise _refusal(reader, node, "write the result as a constant")
        return _fold(reader, node, lambda: literals.compute(operator_, a, b))
    if operator_ == "-" and right.type is not None and right.type.family in (Family.DATE, Family.TIME):
        return _derive_or_refuse(reader, node, _SHAPE)
    if operator_ in "+-" and isinstance(b, Literal):
        return shift_column(reader, node, operator_, left, b)
    if operator_ == "+" and isinstance(a, Literal):
        return shift_column(reader, node, operator_, right, a)
    if operator_ == "-" and isinstance(a, Literal):
        return _derive_or_refuse(reader, node, "write 10 - A < 3 as A > 7")
    return _derive_or_refuse(reader, node, _SHAPE)


def _derive(reader: Reader, node: exp.Expr) -> Side | None:
    """The derived column that an expression over one occurrence stands for."""
    bound = read_row_expression(reader.scope, node)
    return Side(bound.expression, bound.type, node) if bound is not None else None


def _derive_or_refuse(reader: Reader, node: exp.Expr, remedy: str) -> Side:
    derived = _derive(reader, node)
    if derived is None:
        raise _refusal(reader, node, remedy)
    return derived


def _fold(reader: Reader, node: exp.Expr, fold: Callable[[], Literal]) -> Side:
    try:
        literal = fold()
    except ValueError as error:
        raise SqlTypeError(f"{reader.statement.excerpt(node)} {error}", reader.statement.at(node)) from None
    return Side(literal, literal.type, node)


def shift_column(reader: Reader, node: exp.Expr, operator_: str, column: Side, by: Literal) -> Side:
    """A column plus or minus a constant."""
    if by.value is None:
        return Side(literals.NULL, None, node)
    assert column.type is not None
    kind: SqlType | None = column.type
    if column.type.family is Family.DATE:
        if by.type not in _DAYS:
            message = f"{reader.statement.excerpt(node)} needs a whole number of days"
            raise SqlTypeError(message, reader.statement.at(node), "add or subtract an INT")
    elif column.type.family is Family.TIME and by.type is INTERVAL:
        kind = TIMESTAMP
    else:
        require_number(reader.statement, operator_, column.node, column.type)
        require_number(reader.statement, operator_, node, by.type)
        by = literals.to_double(by) if literals.is_floating(column.type) else by
        kind = arithmetic_type(operator_, column.type, by.type)
    return Side(_add_shift(reader, node, operator_, column.expression, by), kind, node)


def _add_shift(reader: Reader, node: exp.Expr, operator_: str, column: Expr, by: Literal) -> Expr:
    if isinstance(column, Ref):
        return Arithmetic(operator_, column, by)
    assert isinstance(column, Arithmetic) and isinstance(column.right, Literal)
    before = column.right
    if isinstance(before.value, float) or isinstance(by.value, float):
        # (x + 0.1) + 0.2 is not x + (0.1 + 0.2)
        raise _refusal(reader, node, "write the two constants as one")
    first = literals.negate(before) if column.operator == "-" else before
    total = _fold(reader, node, lambda: literals.compute(operator_, first, by)).expression
    return Arithmetic("+", column.left, total)


def _refusal(reader: Reader, node: exp.Expr, remedy: str) -> SqlError:
    message = f"{reader.statement.excerpt(node)} is not supported in WHERE, ON or CHECK"
    return SqlError(message, reader.statement.at(node), remedy)

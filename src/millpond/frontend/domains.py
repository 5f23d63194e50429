"""How many values an expression over one row can have, where these are finitely many.

They are bounded by the form of the expression (``sign(x)``, the branches of a CASE) or because its operands
have finitely many values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from math import isfinite, prod

from sqlglot import exp

from millpond.frontend.intervals import read_number
from millpond.frontend.row_facts import find_range, is_positive_remainder, read_value
from millpond.frontend.time_fields import count_field_values
from millpond.query.expressions import Comparison, Condition, Literal, Op, Or, Ref
from millpond.query.finite_columns import count_steps, count_values_up_to
from millpond.query.model import Table
from millpond.query.trees import conjuncts
from millpond.query.types import INTEGERS, STRING, Domain, Family, SqlType

# Parts of a date or of the time of day.
_FIELDS: dict[type[exp.Expr], int] = {
    **{exp.Month: 12, exp.Quarter: 4, exp.DayOfMonth: 31, exp.Day: 31, exp.DayOfWeek: 7, exp.DayOfYear: 366},
    **{exp.DayOfWeekIso: 7, exp.WeekOfYear: 53, exp.Week: 53, exp.Hour: 24, exp.Minute: 60, exp.Second: 60},
    exp.Sign: 3,
}
_CHOICES = (exp.Coalesce, exp.Least, exp.Greatest)
_LENGTHS = (exp.Length, exp.ByteLength)
_MOST_DIGITS = 6


def count_values(table: Table, row: exp.Expr, pinned: Mapping[str, int] | None = None) -> int | None:
    """The most values of an expression besides NULL; None if they may be infinitely many.

    ``row`` names the columns of the table without a qualifier.  ``pinned`` are columns that a condition
    restricts to so many values.
    """
    pinned = pinned or {}
    if row.find(exp.Column) is None:
        return 0 if isinstance(row, exp.Null) else 1
    match row:
        case exp.Paren():
            return count_values(table, row.this, pinned)
        case exp.Column():
            return pinned.get(row.name) or count_column_values(table, row.name)
        case exp.Cast():
            types = {exp.DType.BOOLEAN: 2, exp.DType.TINYINT: 256}
            few = types.get(row.to.this) or count_values(table, row.this, pinned)
            return few or _count_rounded(table, row)
        case exp.Floor() | exp.Ceil() | exp.Round():
            return count_values(table, row.this, pinned) or _count_rounded(table, row)
        case exp.Predicate() | exp.Connector() | exp.Not():
            return 2
        case exp.Case() | exp.If():
            branches = _list_branches(row)
            return _add(count_values(table, each, {**pinned, **_pin(table, when)}) for when, each in branches)
        case exp.Nullif():
            return count_values(table, row.this, pinned)
        case exp.Extract():
            return count_field_values(row.this.name)
        case exp.Anonymous() if row.name.upper() in ("DATE_PART", "DATEPART"):
            return count_field_values(row.expressions[0].name)
        case exp.Anonymous() if row.name.upper() == "WEEKDAY":
            return 7
        case exp.WidthBucket():
            buckets = read_value(row.args["num_buckets"])
            if type(buckets) is int and buckets > 0:
                return buckets + 2  # also below and above them
        case exp.Substring() | exp.Left() | exp.Right():
            found = _count_substrings(row)
            if found is not None:
                return found
    if type(row) in _FIELDS:
        return _FIELDS[type(row)]
    is_range = isinstance(row, exp.Mod | exp.BitwiseAnd) or is_positive_remainder(row)
    if is_range and all(_is_integer(table, each) for each in _operands(row)):
        low, high = find_range(row)
        if isinstance(low, int) and isinstance(high, int):
            return high - low + 1
    if isinstance(row, _CHOICES):
        return _add(count_values(table, each, pinned) for each in _operands(row))
    counts = [count_values(table, each, pinned) for each in _operands(row) if each.find(exp.Column)]
    known = [each for each in counts if each is not None]
    if not known or len(known) < len(counts):
        return None
    return prod(each + 1 for each in known)  # an operand may be NULL


def _count_rounded(table: Table, row: exp.Expr) -> int | None:
    """The number of values of a rounded number that a CHECK restricts to a range."""
    column, rate = _find_steps(table, row)
    if column is None:
        return None
    low, high = _find_range(table, column, table.column(column).type)
    return None if low is None or high is None else count_steps(high - low, rate)


def find_rate(table: Table, row: exp.Expr) -> Fraction | None:
    """How many values a rounded number has while its argument grows by 1; None for other expressions."""
    column, rate = _find_steps(table, row.unnest())
    return None if column is None else rate


def _find_steps(table: Table, row: exp.Expr) -> tuple[str | None, Fraction]:
    """The column of FLOOR, CEIL, ROUND, or a cast to an integer, and how many values it has for each unit.

    The column may be multiplied and divided by constants, and constants may be added to it.
    """
    none, rate, inner = (None, Fraction(0)), Fraction(1), row.this
    if not isinstance(row, exp.Floor | exp.Ceil | exp.Round | exp.Cast):
        return none
    if isinstance(row, exp.Cast) and row.to.this not in exp.DataType.INTEGER_TYPES:
        return none
    if (decimals := row.args.get("decimals")) is not None:
        digits = read_value(decimals)
        if type(digits) is not int or not 0 <= digits <= _MOST_DIGITS:
            return none
        rate = Fraction(10**digits)
    inner = inner.unnest()
    while isinstance(inner, exp.Add | exp.Sub | exp.Mul | exp.Div):
        by = read_number(inner.expression)
        if by is None or (by == 0 and isinstance(inner, exp.Mul | exp.Div)):
            return none
        rate *= abs(by) if isinstance(inner, exp.Mul) else 1 / abs(by) if isinstance(inner, exp.Div) else 1
        inner = inner.this.unnest()
    is_number = isinstance(inner, exp.Column) and table.column(inner.name).type.family is Family.NUMBER
    return (inner.name, rate) if is_number else none


def _operands(row: exp.Expr) -> Iterator[exp.Expr]:
    """What the value depends on: not the names of types and units."""
    return (each for each in row.iter_expressions() if isinstance(each, exp.Condition))


def _list_branches(row: exp.Expr) -> Iterator[tuple[exp.Expr | None, exp.Expr]]:
    """The values between which CASE or IF chooses, each with the condition that is true for it, if known."""
    if isinstance(row, exp.Case):
        for each in row.args["ifs"]:
            subject = row.this.copy() if row.this is not None else None
            is_equal = exp.EQ(this=subject, expression=each.this.copy())
            yield (each.this if subject is None else is_equal), each.args["true"]
        yield from ((None, each) for each in [row.args.get("default")] if each is not None)
    else:
        pairs = ((row.this, row.args.get("true")), (None, row.args.get("false")))
        yield from ((when, each) for when, each in pairs if each is not None)


def _pin(table: Table, condition: exp.Expr | None) -> dict[str, int]:
    """The columns that a condition restricts to listed constants, with their number."""
    match condition:
        case exp.Paren():
            return _pin(table, condition.this)
        case exp.And():
            return {**_pin(table, condition.this), **_pin(table, condition.expression)}
        case exp.Or():
            left, right = (_pin(table, each) for each in (condition.this, condition.expression))
            return {name: left[name] + right[name] for name in left.keys() & right.keys()}
        case exp.EQ():
            sides = (condition.this, condition.expression)
            return _pin_column(table, sides[0], sides[1:]) or _pin_column(table, sides[1], sides[:1])
        case exp.In() if not condition.args.get("query"):
            return _pin_column(table, condition.this, condition.expressions)
    return {}


def _pin_column(table: Table, column: exp.Expr, values: Sequence[exp.Expr]) -> dict[str, int]:
    """A column that equals one of some constants; strings that are compared as numbers can be any number."""
    if not isinstance(column, exp.Column) or not values:
        return {}
    is_string = table.column(column.name).type is STRING
    if any(each.find(exp.Column) is not None or (is_string and not each.is_string) for each in values):
        return {}
    return {column.name: len(values)}


def _add(counts: Iterable[int | None]) -> int | None:
    every = list(counts)
    return None if None in every else sum(each for each in every if each is not None)


def _count_substrings(row: exp.Expr) -> int | None:
    """The number of values of SUBSTRING, LEFT or RIGHT that take one character.

    Longer ones are free: there are finitely many, but more than any memory holds, as of INT.  If the data
    have few, a CHECK or a cardinality can say so.
    """
    length = row.args.get("length") if isinstance(row, exp.Substring) else row.expression
    value = read_value(length) if length is not None else None
    return count_values_up_to(STRING, value) if type(value) is int and 0 <= value <= 1 else None


def _is_integer(table: Table, node: exp.Expr) -> bool:
    """Whether an operand is an integer column or constant."""
    if isinstance(node, exp.Column):
        return table.column(node.name).type in INTEGERS
    return type(read_value(node)) is int


def find_limited_column(table: Table, row: exp.Expr) -> str | None:
    """The column that has finitely many values if the expression is bounded above: that of its length, or of
    its absolute value."""
    argument = row.this if isinstance(row, (*_LENGTHS, exp.Abs)) else None
    if not isinstance(argument, exp.Column):
        return None
    type_ = table.column(argument.name).type
    if isinstance(row, exp.Abs):
        return argument.name if type_ in INTEGERS else None
    return argument.name if type_ is STRING else None


# --- columns -----------------------------------------------------------------------------------------


def count_column_values(table: Table, name: str) -> int | None:
    """The most values of a declared column, by its type, its cardinality or its CHECK."""
    column = table.column(name)
    counts = [] if column.cardinality is None else [column.cardinality]
    low, high = _find_range(table, name, column.type)
    if low is not None and high is not None and column.type.step:
        counts.append(max(int((high - low) / column.type.step) + 1, 0))
    return min(counts, default=None)


def count_listed_values(checks: tuple[Condition, ...], column: Ref) -> int | None:
    """The number of constants to which a CHECK restricts a column, as ``country IN ('de', 'fr')`` does."""
    counts = []
    for check in (each for condition in checks for each in conjuncts(condition)):
        operands = check.operands if isinstance(check, Or) else (check,)
        constants = [_read_constant(each, column) for each in operands]
        if None not in constants:
            counts.append(len(set(constants)))
    return min(counts, default=None)


def count_limited_values(table: Table, name: str) -> int | None:
    """The number of values of a column whose length or absolute value a CHECK bounds."""
    counts = []
    for column in table.derived:
        if column.derivation is not None and column.derivation.limits == name:
            _, high = _find_range(table, column.name, column.type)
            if high is not None:
                counts.append(count_values_up_to(table.column(name).type, int(high)))
    return min(counts, default=None)


def _read_constant(condition: Condition, column: Ref) -> object | None:
    match condition:
        case Comparison(left=Ref() as left, operator=Op.EQ, right=Literal(value=value)) if left == column:
            return value
    return None


def _find_range(table: Table, name: str, type_: SqlType) -> tuple[Fraction | None, Fraction | None]:
    """The range of a column by its type and by comparisons with constants in CHECK."""
    bounded = type_.domain is Domain.BOUNDED
    lows, highs = ([end] if bounded and end is not None else [] for end in (type_.low, type_.high))
    for check in (each for condition in table.checks for each in conjuncts(condition)):
        match check:
            case Comparison(left=Ref(column=column), operator=operator, right=Literal(value=value)) if (
                column == name
                and isinstance(value, int | float | Decimal)
                and not isinstance(value, bool)
                and isfinite(value)
            ):
                if operator in (Op.GE, Op.GT, Op.EQ):
                    lows.append(Fraction(value))
                if operator in (Op.LE, Op.LT, Op.EQ):
                    highs.append(Fraction(value))
    return max(lows, default=None), min(highs, default=None)

"""What follows from the form of an expression about its values, where these are finitely many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from sqlglot import exp

from millpond.frontend import literals
from millpond.frontend.intervals import read_number
from millpond.query.expressions import Arithmetic, Comparison, Condition, Literal, Op, Or, Ref
from millpond.query.model import Table
from millpond.query.types import DATE, INT, INTEGERS, STRING, SqlType

Number = int | Decimal

_MOST_VALUES = 100


def find_facts(table: Table, row: exp.Expr, name: str, type_: SqlType) -> Iterator[Condition]:
    """Conditions that every value of the expression fulfils, unless it is NULL.

    ``row`` names the columns of the table without a qualifier; ``name`` is the derived column.
    """
    column = Ref(table.name, name)
    while isinstance(row, exp.Paren):
        row = row.this
    values = _list_values(row, type_)
    if values:
        equal = tuple(Comparison(column, Op.EQ, value, name) for value in values)
        yield equal[0] if len(equal) == 1 else Or(equal)
        return
    shift = _find_shift(table, row)
    if shift is not None:
        yield Comparison(column, Op.EQ, shift, name)
    if type_ in INTEGERS or type_.scale is not None or _is_limited_column(row):
        yield from _find_range(column, row, type_)


def _find_range(column: Ref, row: exp.Expr, type_: SqlType) -> Iterator[Condition]:
    """The range of an integer or a decimal; remainders of decimals have fractions."""
    at_least, at_most = Op.GE, Op.LE
    low, high = find_range(row)
    modulus = _find_modulus(row)
    if type_.scale is not None and modulus is not None:
        size = max(modulus, -modulus)
        at_most, high = Op.LT, size
        if not is_positive_remainder(row):
            at_least, low = Op.GT, -size
    if low is not None and high is not None:
        yield Comparison(column, at_least, _make_literal(low), column.column)
        yield Comparison(column, at_most, _make_literal(high), column.column)


def _is_limited_column(row: exp.Expr) -> bool:
    """Whether an expression is LEAST and GREATEST of a column and constants, and has any value in its range.

    NaN is greater than all other numbers.
    """
    if isinstance(row, exp.Least | exp.Greatest):
        return all(_is_limited_column(_strip(each)) for each in (row.this, *row.expressions))
    return isinstance(row, exp.Column) or isinstance(read_value(row), int | Decimal)


def _make_literal(value: Number) -> Literal:
    return literals.to_integer(value) if isinstance(value, int) else literals.to_decimal(value)


def _find_shift(table: Table, row: exp.Expr) -> Arithmetic | None:
    """An integer or a date plus or minus a constant, which the closure understands."""
    if isinstance(row, exp.TsOrDsAdd) and isinstance(row.this, exp.Column):
        days = read_number(row.expression)
        if table.column(row.this.name).type is not DATE or days is None or days.denominator != 1:
            return None
        moved = Literal(abs(int(days)), INT)
        return Arithmetic("+" if days >= 0 else "-", Ref(table.name, row.this.name), moved)
    if not isinstance(row, exp.Add | exp.Sub):
        return None
    left, right = _strip(row.this), _strip(row.expression)
    if isinstance(row, exp.Add) and isinstance(right, exp.Column):
        left, right = right, left
    by = read_value(right)
    if (
        not isinstance(left, exp.Column)
        or type(by) is not int
        or table.column(left.name).type not in (*INTEGERS, DATE)
    ):
        return None
    return Arithmetic("+" if isinstance(row, exp.Add) else "-", Ref(table.name, left.name), Literal(by, INT))


def _list_values(row: exp.Expr, type_: SqlType) -> list[Literal]:
    """The constants between which CASE or IF chooses; empty if a branch is no constant."""
    if isinstance(row, exp.Case):
        branches = [each.args.get("true") for each in row.args["ifs"]] + [row.args.get("default")]
    elif isinstance(row, exp.If):
        branches = [row.args.get("true"), row.args.get("false")]
    else:
        return []
    out: list[Literal] = []
    for branch in branches:
        if branch is None or isinstance(branch, exp.Null):
            continue
        value = read_value(branch)
        if value is None:
            return []
        if type_ is STRING and isinstance(value, str):
            out.append(Literal(value, STRING))
        elif type_ in INTEGERS and type(value) is int:
            out.append(literals.parse_number(str(value)) if value >= 0 else Literal(value, INT))
        else:
            return []
    unique = list(dict.fromkeys(out))
    return unique if len(unique) <= _MOST_VALUES else []


def find_range(row: exp.Expr) -> tuple[Number | None, Number | None]:
    """The range of integers ``x % n``, ``pmod(x, n)`` and ``x & n``, and of ``LEAST(GREATEST(x, a), b)``."""
    modulus = _find_modulus(row)
    if type(modulus) is int:
        return (0 if is_positive_remainder(row) else 1 - abs(modulus)), abs(modulus) - 1
    if isinstance(row, exp.BitwiseAnd):
        masks = [v for each in (row.this, row.expression) if type(v := read_value(each)) is int and v >= 0]
        return (0, min(masks)) if masks else (None, None)
    if isinstance(row, exp.Least | exp.Greatest):
        return _find_limit(row, exp.Greatest), _find_limit(row, exp.Least)
    return None, None


def _find_modulus(row: exp.Expr) -> Number | None:
    """The constant n in ``x % n`` and ``pmod(x, n)``."""
    if isinstance(row, exp.Mod):
        modulus = read_value(row.expression)
        return modulus if isinstance(modulus, int | Decimal) and modulus != 0 else None
    if is_positive_remainder(row):
        modulus = read_value(row.expressions[1])
        return modulus if isinstance(modulus, int | Decimal) and modulus > 0 else None
    return None


def is_positive_remainder(row: exp.Expr) -> bool:
    """Whether an expression is ``pmod(x, n)``, which sqlglot does not know."""
    return isinstance(row, exp.Anonymous) and row.name.lower() == "pmod" and len(row.expressions) == 2


def _find_limit(row: exp.Expr, kind: type[exp.Expr]) -> Number | None:
    """The limit that GREATEST sets from below, or LEAST from above.

    Both ignore NULL, so LEAST(x, 5) is never more than 5, and LEAST(GREATEST(x, 0), 5) never less than 0.
    """
    operands: Sequence[exp.Expr] = [_strip(each) for each in (row.this, *row.expressions)]
    constants = [v for each in operands if isinstance(v := read_value(each), int | Decimal)]
    if type(row) is kind:
        choose = max if kind is exp.Greatest else min
        return choose(constants, default=None)
    limits = [_find_limit(each, kind) for each in operands if isinstance(each, exp.Least | exp.Greatest)]
    if len(constants) + len(limits) != len(operands) or None in limits:
        return None
    choose = min if kind is exp.Greatest else max
    return choose([*constants, *(limit for limit in limits if limit is not None)], default=None)


def _strip(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def read_value(node: exp.Expr) -> int | Decimal | str | None:
    """The value of an integer (also 7L), decimal or string constant; None for anything else."""
    node, sign = _strip(node), 1
    if isinstance(node, exp.Neg):
        node, sign = node.this, -1
    if isinstance(node, exp.Cast) and node.to.this in exp.DataType.INTEGER_TYPES:
        whole = read_value(node.this)
        return sign * whole if isinstance(whole, int) else None
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return node.this if sign == 1 else None
    try:
        value = literals.parse_number(node.this).value
    except ValueError:  # too many digits
        return None
    return sign * value if isinstance(value, int | Decimal) else None

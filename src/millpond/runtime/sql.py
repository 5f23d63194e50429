"""Rendering of expressions and conditions as SQL text, for Spark and for DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal, localcontext
from enum import Enum
from fractions import Fraction

from millpond.query.expressions import (
    Aggregate,
    And,
    Arithmetic,
    Choice,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Literal,
    Negation,
    Not,
    NotTrue,
    Op,
    Or,
    Ref,
    Scalar,
    Truth,
)
from millpond.query.types import DOUBLE, MAX_PRECISION, Family, SqlType

_HASHED_AS_THEY_ARE = (Family.STRING, Family.DATE, Family.TIME, Family.BOOLEAN)


class Dialect(Enum):
    """The SQL dialect.  The two differ in quoting, names of types, and functions of dates and times."""

    SPARK = "spark"
    DUCKDB = "duckdb"

    def name_of(self, identifier: str) -> str:
        """An identifier in quotes.

        >>> Dialect.SPARK.name_of("a`b"), Dialect.DUCKDB.name_of("A")
        ('`a``b`', '"A"')
        """
        quote = "`" if self is Dialect.SPARK else '"'
        return quote + identifier.replace(quote, quote * 2) + quote

    def string(self, text: str) -> str:
        """A string literal.

        >>> Dialect.SPARK.string("it's"), Dialect.DUCKDB.string("it's")
        ("'it\\\\'s'", "'it''s'")
        """
        if self is Dialect.DUCKDB:
            return "'" + text.replace("'", "''") + "'"
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def shard_of(self, values: Iterable[tuple[str, SqlType | None]], shards: int) -> str:
        """The number of the shard of some values, given as texts with their types.

        Equal values have equal numbers, whatever their number types and the sign of zero.  In Spark's dialect
        the number is part of the layout of states: it must not change.
        """
        hashed = ", ".join(
            text
            if type_ is not None and type_.family in _HASHED_AS_THEY_ARE
            else f"(CAST({text} AS DOUBLE) + CAST(0 AS DOUBLE))"
            for text, type_ in values
        )
        if self is Dialect.SPARK:
            return f"pmod(xxhash64({hashed}), {shards})"
        return f"CAST(hash({hashed}) % {shards} AS INT)"

    def days(self, text: str) -> str:
        """The number of days since 1970-01-01."""
        return f"unix_date({text})" if self is Dialect.SPARK else f"({text} - DATE '1970-01-01')"

    def micros(self, text: str) -> str:
        """The number of microseconds since 1970-01-01."""
        return f"unix_micros({text})" if self is Dialect.SPARK else f"epoch_us({text})"

    def type_of(self, type_: SqlType) -> str:
        return type_.names.duckdb if self is Dialect.DUCKDB else type_.name


# Renders a column reference as SQL text.
ColumnSql = Callable[[Ref], str]


def literal_sql(value: Scalar, type_: SqlType | None, dialect: Dialect) -> str:
    """A constant, cast to its type.

    >>> from millpond.query.types import INT
    >>> literal_sql(3, INT, Dialect.SPARK), literal_sql(0.5, DOUBLE, Dialect.DUCKDB)
    ('CAST(3 AS INT)', "CAST('0.5' AS DOUBLE)")
    """
    match value:
        case None:
            return "NULL" if type_ is None else f"CAST(NULL AS {dialect.type_of(type_)})"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return dialect.string(value)
        case timedelta():
            seconds = Decimal(value // timedelta(microseconds=1)) / 1_000_000
            unit = "' SECOND" if dialect is Dialect.SPARK else " seconds'"
            return f"INTERVAL '{seconds:f}{unit}"
        case datetime():
            return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case float():
            return f"CAST('{value!r}' AS {type_ or DOUBLE})"
        case Decimal():
            return f"CAST('{value:f}' AS {type_})"
        case int():
            return f"CAST({value} AS {type_})" if type_ is not None else str(value)


def number_sql(point: Fraction) -> str:
    """An exact number as an integer or a decimal literal; as a DOUBLE if it has too many digits.

    >>> number_sql(Fraction(-3)), number_sql(Fraction(1, 8)), number_sql(Fraction(1, 3))
    ('-3', '0.125', "CAST('0.3333333333333333' AS DOUBLE)")
    """
    with localcontext(prec=MAX_PRECISION):
        number = Decimal(point.numerator) / Decimal(point.denominator)
    text = f"{number:f}"
    if Fraction(number) == point and len(text.lstrip("-0").replace(".", "")) <= MAX_PRECISION:
        return text
    return f"CAST('{float(point)!r}' AS DOUBLE)"


def expression_sql(expr: Expr, names: ColumnSql, dialect: Dialect) -> str:
    """An expression over columns as SQL text."""
    match expr:
        case Literal(value=value, type=type_):
            return literal_sql(value, type_, dialect)
        case Ref():
            return names(expr)
        case Negation(operand=operand):
            return f"(- {expression_sql(operand, names, dialect)})"
        case Arithmetic(operator=operator, left=left, right=right):
            by = expression_sql(right, names, dialect)
            if operator in "/%" and dialect is Dialect.DUCKDB and not isinstance(right, Literal):
                # Division by zero is an error in Spark, but NULL in DuckDB.
                by = f"CASE WHEN {by} = 0 THEN error('division by zero') ELSE {by} END"
            return f"({expression_sql(left, names, dialect)} {operator} {by})"
        case Choice():
            parts = (expr.condition, expr.chosen, expr.otherwise)
            condition, chosen, otherwise = (expression_sql(each, names, dialect) for each in parts)
            return f"CASE WHEN {condition} THEN {chosen} ELSE {otherwise} END"
        case Aggregate():
            raise ValueError("an aggregate is not an expression over columns")


def condition_sql(cond: Condition, names: ColumnSql, dialect: Dialect) -> str:
    """A condition as SQL text, in three-valued logic."""
    match cond:
        case Truth(value=None):
            return "CAST(NULL AS BOOLEAN)"
        case Truth(value=value):
            return "TRUE" if value else "FALSE"
        case Comparison(left=left, operator=operator, right=right):
            sign = "<>" if operator is Op.NE else operator.value
            return f"({expression_sql(left, names, dialect)} {sign} {expression_sql(right, names, dialect)})"
        case IsNull(operand=operand):
            return f"({expression_sql(operand, names, dialect)} IS NULL)"
        case Not(operand=operand):
            return f"(NOT {condition_sql(operand, names, dialect)})"
        case NotTrue(operand=operand):
            return f"({condition_sql(operand, names, dialect)} IS NOT TRUE)"
        case And(operands=operands):
            return all_of([condition_sql(c, names, dialect) for c in operands])
        case Or(operands=operands):
            return any_of([condition_sql(c, names, dialect) for c in operands])


def all_of(texts: list[str]) -> str:
    """The conjunction of conditions.

    >>> all_of([]), all_of(["a", "TRUE"]), all_of(["a", "b"])
    ('TRUE', 'a', '(a AND b)')
    """
    kept = [t for t in dict.fromkeys(texts) if t != "TRUE"]
    if len(kept) < 2:
        return kept[0] if kept else "TRUE"
    return "(" + " AND ".join(kept) + ")"


def any_of(texts: list[str]) -> str:
    """The disjunction of conditions."""
    return "(" + " OR ".join(dict.fromkeys(texts)) + ")" if texts else "FALSE"


def widen(value: str, type_: SqlType) -> str:
    """A DuckDB value in the type in which Spark computes: FLOAT becomes DOUBLE, decimals get 38 digits."""
    if type_.name == "FLOAT":
        return f"CAST({value} AS DOUBLE)"
    if type_.scale is not None:
        return f"CAST({value} AS DECIMAL({MAX_PRECISION},{type_.scale}))"
    return value

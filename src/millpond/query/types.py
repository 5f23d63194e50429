"""The SQL types: which sets of values they are, and what other systems call them.

This is the only table of types.  Whoever needs a type of DuckDB, Arrow, Spark or SQLAlchemy asks
``SqlType.names`` for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# The most digits that a DECIMAL holds, before and after the point together.
MAX_PRECISION = 38


class Domain(Enum):
    """How many values there are, and whether there is always another one between two."""

    BOUNDED = "bounded"  # finitely many values, whatever the query says
    DISCRETE = "discrete"  # finitely many values between any two
    DENSE = "dense"  # another value between any two
    TIME = "time"  # application time


class Family(Enum):
    """Types whose values can be compared with each other."""

    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    DATE = "date"
    TIME = "time"
    INTERVAL = "interval"
    ARRAY = "array"
    NESTED = "nested"
    WINDOW = "window"


@dataclass(frozen=True)
class Factory:
    """A function or class of another package that makes a type, by name, with its arguments."""

    name: str
    arguments: tuple[int | str, ...] = ()

    def call(self, module: Any) -> Any:
        """The type, made by the function of that name in the package."""
        return getattr(module, self.name)(*self.arguments)


@dataclass(frozen=True)
class TypeNames:
    """What other systems call a type.

    ``duckdb`` is its SQL name in DuckDB; the others make it: functions of ``pyarrow``, classes of
    ``pyspark.sql.types`` and of ``sqlalchemy``.
    """

    duckdb: str
    arrow: Factory
    spark: Factory
    sqlalchemy: Factory


@dataclass(frozen=True)
class SqlType:
    """A column type of the language, under the name that Spark SQL gives it.

    ``step`` is the distance between neighbouring values (0 for dense types); ``low`` and ``high`` are the
    least and the greatest value, None where there is none.  They bound a query's *memory*
    only in the BOUNDED domain: an INT column counts as unbounded though it ends at 2**31 - 1.
    Only DECIMAL has a ``precision`` and a ``scale``.  ``duckdb`` is the name of a nested type in DuckDB.
    """

    name: str
    family: Family
    domain: Domain
    step: Fraction = Fraction(0)
    low: Fraction | None = None
    high: Fraction | None = None
    precision: int | None = None
    scale: int | None = None
    duckdb: str | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def names(self) -> TypeNames:
        """What other systems call the type.

        >>> STRING.names.duckdb, decimal(9, 2).names.spark
        ('VARCHAR', Factory(name='DecimalType', arguments=(9, 2)))
        """
        if self.family is Family.NESTED:
            duckdb, none = self.duckdb or "VARCHAR", Factory("null")
            return TypeNames(duckdb, none, Factory("NullType"), Factory("JSON"))
        if self.precision is None or self.scale is None:
            return _NAMES[self.name]
        digits = (self.precision, self.scale)
        return TypeNames(
            self.name,
            Factory("decimal128", digits),
            Factory("DecimalType", digits),
            Factory("Numeric", digits),
        )


def _integer(name: str, bits: int, domain: Domain = Domain.DISCRETE) -> SqlType:
    half = 1 << (bits - 1)
    return SqlType(name, Family.NUMBER, domain, Fraction(1), Fraction(-half), Fraction(half - 1))


BOOLEAN = SqlType("BOOLEAN", Family.BOOLEAN, Domain.BOUNDED, Fraction(1), Fraction(0), Fraction(1))
TINYINT = _integer("TINYINT", 8, Domain.BOUNDED)
SMALLINT = _integer("SMALLINT", 16)
INT = _integer("INT", 32)
BIGINT = _integer("BIGINT", 64)
FLOAT = SqlType("FLOAT", Family.NUMBER, Domain.DENSE)
DOUBLE = SqlType("DOUBLE", Family.NUMBER, Domain.DENSE)
STRING = SqlType("STRING", Family.STRING, Domain.DENSE)
# Days since 1970-01-01; the ends are 0001-01-01 and 9999-12-31.
DATE = SqlType("DATE", Family.DATE, Domain.DISCRETE, Fraction(1), Fraction(-719162), Fraction(2932896))
# Microseconds since 1970-01-01 00:00.
TIMESTAMP = SqlType("TIMESTAMP", Family.TIME, Domain.TIME, Fraction(1))
# A timestamp that is only a value, not the time of its row.
TIME_VALUE = replace(TIMESTAMP, domain=Domain.DISCRETE)

# A length of time, which can be added to a TIMESTAMP.
INTERVAL = SqlType("INTERVAL", Family.INTERVAL, Domain.TIME, Fraction(1))
# The distance of two timestamps of a row.
INTERVAL_VALUE = replace(INTERVAL, domain=Domain.DISCRETE)

# The type of ``window(ts, …)``: its start and its end.  No column has this type; a window is two columns.
WINDOW = SqlType("STRUCT<start: TIMESTAMP, end: TIMESTAMP>", Family.WINDOW, Domain.TIME, Fraction(1))

# The types of columns, except DECIMAL, which has parameters.
PLAIN_TYPES = (BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, STRING, DATE, TIMESTAMP)
INTEGERS = (TINYINT, SMALLINT, INT, BIGINT)


def decimal(precision: int, scale: int) -> SqlType:
    """DECIMAL(precision, scale): integers counted in units of 10**-scale."""
    unit = Fraction(1, 10**scale)
    end = (10**precision - 1) * unit
    name = f"DECIMAL({precision},{scale})"
    return SqlType(name, Family.NUMBER, Domain.DISCRETE, unit, -end, end, precision, scale)


def nested(name: str, duckdb: str | None = None) -> SqlType:
    """ARRAY<…>, MAP<…>, STRUCT<…> or BINARY.  Expressions use such values, and rows pass them on; they are
    not compared, and no state holds them."""
    return SqlType(name, Family.NESTED, Domain.DENSE, duckdb=duckdb)


def array_of(type_: SqlType) -> SqlType:
    """ARRAY<type>, the type of COLLECT_SET and COLLECT_LIST."""
    return SqlType(f"ARRAY<{type_}>", Family.ARRAY, Domain.DENSE)


def _names(duckdb: str, arrow: str | Factory, spark: str, sqlalchemy: str | Factory) -> TypeNames:
    def factory(made_by: str | Factory) -> Factory:
        return Factory(made_by) if isinstance(made_by, str) else made_by

    return TypeNames(duckdb, factory(arrow), factory(spark), factory(sqlalchemy))


_NAMES = {
    #                  DuckDB       pyarrow    pyspark        SQLAlchemy
    "BOOLEAN":   _names("BOOLEAN",  "bool_",   "BooleanType", "Boolean"),
    "TINYINT":   _names("TINYINT",  "int8",    "ByteType",    "SmallInteger"),
    "SMALLINT":  _names("SMALLINT", "int16",   "ShortType",   "SmallInteger"),
    "INT":       _names("INT",      "int32",   "IntegerType", "Integer"),
    "BIGINT":    _names("BIGINT",   "int64",   "LongType",    "BigInteger"),
    "FLOAT":     _names("FLOAT",    "float32", "FloatType",   Factory("Float", (53,))),
    "DOUBLE":    _names("DOUBLE",   "float64", "DoubleType",  Factory("Float", (53,))),
    "STRING":    _names("VARCHAR",  "string",  "StringType",  "Text"),
    "DATE":      _names("DATE",     "date32",  "DateType",    "Date"),
    "TIMESTAMP": _names("TIMESTAMP", Factory("timestamp", ("us", "UTC")), "TimestampType", "DateTime"),
    "INTERVAL":  _names("INTERVAL", Factory("duration", ("us",)), "DayTimeIntervalType", "Interval"),
}  # fmt: skip
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def find_type(name: str) -> SqlType | None:
    """The type that Spark SQL calls so, in upper or lower case; None for one outside the language.

    >>> find_type("bigint") is BIGINT, find_type("decimal(9,2)") == decimal(9, 2), find_type("binary")
    (True, True, None)
    """
    if match := _DECIMAL.fullmatch(name.upper()):
        return decimal(int(match[1]), int(match[2]))
    return next((type_ for type_ in PLAIN_TYPES if type_.name == name.upper()), None)


def arrow_type(type_: SqlType) -> pa.DataType:
    """The Arrow type in which Spark passes values of a SQL type.

    >>> arrow_type(INT), arrow_type(decimal(9, 2))
    (DataType(int32), Decimal128Type(decimal128(9, 2)))
    """
    import pyarrow as pa  # here, as `millpond check` does without pyarrow

    return type_.names.arrow.call(pa)

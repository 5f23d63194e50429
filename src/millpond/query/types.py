"""SQL types as sets of values: bounded, discrete, dense, or application time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction


class Domain(Enum):
    BOUNDED = "bounded"  # finitely many values, whatever the query says
    DISCRETE = "discrete"  # integers: finitely many between any two
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


@dataclass(frozen=True)
class SqlType:
    """A column type of the language.

    ``step`` is the distance between neighbours (0 where there are none); ``low`` and ``high`` are the
    ends of what the type can represent, None where there is no end.  They bound a query's *memory*
    only in the BOUNDED domain: an INT column counts as unbounded though it ends at 2**31 - 1.
    """

    name: str
    family: Family
    domain: Domain
    step: Fraction = Fraction(0)
    low: Fraction | None = None
    high: Fraction | None = None

    def __str__(self) -> str:
        return self.name


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

# A length of time: what is added to a TIMESTAMP.  No column has this type.
INTERVAL = SqlType("INTERVAL", Family.INTERVAL, Domain.TIME, Fraction(1))


def decimal(precision: int, scale: int) -> SqlType:
    """DECIMAL(precision, scale): integers counted in units of 10**-scale."""
    unit = Fraction(1, 10**scale)
    end = (10**precision - 1) * unit
    return SqlType(f"DECIMAL({precision},{scale})", Family.NUMBER, Domain.DISCRETE, unit, -end, end)

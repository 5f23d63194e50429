"""Values as requirements hold them, as SQL for DuckDB: dates, timestamps and booleans become numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from millpond.query.types import MAX_PRECISION, Family, SqlType
from millpond.runtime.sql import Dialect


def to_micros(point: Fraction, zone: str) -> int:
    """Microseconds since 1970 in UTC of a timestamp that is written in a time zone.

    >>> to_micros(Fraction(0), "UTC"), to_micros(Fraction(0), "Etc/GMT+1")
    (0, 3600000000)
    """
    written = datetime(1970, 1, 1, tzinfo=ZoneInfo(zone)) + timedelta(microseconds=int(point))
    return (written.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def as_number(text: str, type_: SqlType) -> str:
    """A value of the type as a number to which a distance can be added; strings stay strings."""
    match type_.family:
        case Family.STRING:
            return text
        case Family.BOOLEAN:
            return f"CAST({text} AS INT)"
        case Family.DATE:
            return Dialect.DUCKDB.days(text)
        case Family.TIME:
            return f"epoch_us({text})"
    if not type_.step:
        return f"CAST({text} AS DOUBLE)"
    if type_.step == 1:
        return f"CAST({text} AS HUGEINT)" if type_.name == "BIGINT" else f"CAST({text} AS BIGINT)"
    return f"CAST({text} AS DECIMAL({MAX_PRECISION},{type_.scale}))"


def from_number(text: str, type_: SqlType) -> str:
    """The value of the type, from a number made by ``as_number``."""
    match type_.family:
        case Family.BOOLEAN:
            return f"CAST({text} AS BOOLEAN)"
        case Family.DATE:
            return f"(DATE '1970-01-01' + CAST({text} AS INT))"
        case Family.TIME:
            return f"make_timestamp({text})"
    return text

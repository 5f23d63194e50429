"""The fields of a date or a time of day that are integers: their names in Spark, their ranges, and DuckDB's
spelling."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """A calendar field: what it determines, its range, and how DuckDB computes it."""

    field: str
    low: int | None
    high: int | None
    duckdb: str


FIELDS = {
    "YEAR": Field("year", None, None, "year({})"),
    "QUARTER": Field("quarter", 1, 4, "quarter({})"),
    "MONTH": Field("month", 1, 12, "month({})"),
    "DAY": Field("day", 1, 31, "day({})"),
    "DAYOFYEAR": Field("day of year", 1, 366, "dayofyear({})"),
    "HOUR": Field("hour", 0, 23, "hour({})"),
    "MINUTE": Field("minute", 0, 59, "minute({})"),
    "SECOND": Field("second", 0, 59, "second({})"),
    "WEEKOFYEAR": Field("week of year", 1, 53, "weekofyear({})"),
    "DAYOFWEEK": Field("day of week", 1, 7, "dayofweek({}) + 1"),
    "WEEKDAY": Field("day of week", 0, 6, "(dayofweek({}) + 6) % 7"),
}
# The functions of fields that recur.
FIELD_FUNCTIONS = {each.field: name for name, each in FIELDS.items() if each.high and name != "WEEKDAY"}
# Other names of the same functions, and the fields of EXTRACT and DATE_PART that give an integer.
FIELD_NAMES = {name: name for name in FIELDS} | {"DAYOFMONTH": "DAY"}
EXTRACTED = {
    **{name: name for name in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "DAYOFWEEK")},
    **dict.fromkeys(("YEARS", "YR", "YRS", "Y"), "YEAR"),
    **{"QTR": "QUARTER", "MONTHS": "MONTH", "MON": "MONTH", "MONS": "MONTH", "DAYS": "DAY", "D": "DAY"},
    **{
        "DOY": "DAYOFYEAR",
        "DOW": "DAYOFWEEK",
        "WEEK": "WEEKOFYEAR",
        "WEEKS": "WEEKOFYEAR",
        "W": "WEEKOFYEAR",
    },
    **{"HOURS": "HOUR", "HR": "HOUR", "HRS": "HOUR", "H": "HOUR"},
    **{"MINUTES": "MINUTE", "MIN": "MINUTE", "MINS": "MINUTE", "M": "MINUTE"},
}


def write_field_in_duckdb(field: str, argument: str) -> str | None:
    """DuckDB's spelling of a field of EXTRACT or DATE_PART, or of WEEKDAY; None if it is not an integer.

    In Spark, Sunday is day 1 of a week, and day 6 of WEEKDAY; in DuckDB it is day 0.
    """
    known = FIELDS.get(EXTRACTED.get(field.upper(), field.upper()))
    return f"({known.duckdb.format(argument)})" if known is not None and field.upper() != "SECOND" else None


def count_field_values(field: str) -> int | None:
    """The most values of a field of EXTRACT or DATE_PART; None if there is no limit, or none is known."""
    known = FIELDS.get(EXTRACTED.get(field.upper(), ""))
    if known is None or known.low is None or known.high is None:
        return None
    return known.high - known.low + 1

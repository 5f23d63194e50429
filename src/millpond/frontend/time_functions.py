"""Functions of a timestamp and the columns they derive: ``date_trunc``, ``window``, ``year`` and others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millpond.frontend.date_formats import read_pattern
from millpond.frontend.time_columns import (
    Argument,
    UnknownFormError,
    add_micros,
    add_to_column,
    convert_to_times,
    end_unit,
    expect_arguments,
    list_bucket_facts,
    make_length,
    make_time_column,
    quote_text,
)
from millpond.frontend.time_fields import FIELD_NAMES, FIELDS
from millpond.frontend.time_windows import (
    make_session,
    make_window,
)
from millpond.query.calendar import (
    LONGEST,
    MICROSECOND,
    SECOND,
    Count,
    TimeFunction,
    name_end,
)
from millpond.query.expressions import Arithmetic, Comparison, Condition, Literal, Op, Or, Ref
from millpond.query.model import Column, Derivation
from millpond.query.types import BIGINT, DATE, INT, STRING, TIMESTAMP, SqlType

# The units of date_trunc and trunc, by every name that Spark has for them.
_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
    **dict.fromkeys(("DAY", "DD"), "day"),
    **{unit.upper(): unit for unit in ("hour", "minute", "second", "millisecond", "microsecond")},
}
_DATE_UNITS = ("year", "quarter", "month", "week")
_EPOCH_UNITS = {
    **dict.fromkeys(("UNIX_TIMESTAMP", "TO_UNIX_TIMESTAMP"), ("unix_timestamp", SECOND)),
    "UNIX_SECONDS": ("unix_seconds", SECOND),
    "UNIX_MILLIS": ("unix_millis", 1_000),
    "UNIX_MICROS": ("unix_micros", MICROSECOND),
}


Maker = Callable[[Argument, str, list[str]], Column]


def find_maker(function: str) -> Maker | None:
    """The function that makes the column of a call, by the name of the called function in upper case."""
    if function in FIELD_NAMES:
        return make_field
    return _MAKERS.get(function)


# --- buckets -----------------------------------------------------------------------------------------


def make_field(argument: Argument, function: str, arguments: list[str]) -> Column:
    """A calendar field, such as ``hour(ts)``."""
    expect_arguments(arguments, 0)
    name = FIELD_NAMES[function]
    field = FIELDS[name]
    text = f"{name.lower()}({argument.name})"
    facts = []
    if field.low is not None:
        facts.append(Comparison(Ref(argument.table, text), Op.GE, Literal(field.low, INT), text))
        facts.append(Comparison(Ref(argument.table, text), Op.LE, Literal(field.high, INT), text))
    time = argument.function_of(_FIELD_UNITS.get(field.field, field.field), frozenset({field.field}))
    duckdb = f"CAST({field.duckdb.format(argument.duckdb)} AS INT)"
    return make_time_column(
        argument, text, INT, (f"{name.lower()}({argument.spark})", duckdb), tuple(facts), time
    )


def _make_truncation(argument: Argument, function: str, arguments: list[str]) -> Column:
    """``date_trunc('hour', ts)``, a timestamp."""
    expect_arguments(arguments, 1)
    unit = _find_unit(arguments[0], function)
    return truncate(argument, unit)


def truncate(argument: Argument, unit: str) -> Column:
    """The column ``date_trunc(unit, argument)``."""
    text = f"date_trunc('{unit}', {argument.name})"
    spark = f"date_trunc('{unit}', {argument.spark})"
    duckdb = f"CAST(date_trunc('{unit}', {argument.duckdb}) AS TIMESTAMP)"
    facts = list_bucket_facts(argument, text, LONGEST[unit] + argument.slack)
    return make_time_column(argument, text, TIMESTAMP, (spark, duckdb), facts, argument.truncation_to(unit))


def _make_date_truncation(argument: Argument, function: str, arguments: list[str]) -> Column:
    """``trunc(ts, 'month')``, a date."""
    expect_arguments(arguments, 1)
    unit = _find_unit(arguments[0], function)
    if unit not in _DATE_UNITS:
        raise UnknownFormError(
            f"truncates to {arguments[0]}; the units of trunc are {', '.join(_DATE_UNITS)}"
        )
    text = f"trunc({argument.name}, '{unit}')"
    duckdb = f"CAST(date_trunc('{unit}', {argument.duckdb}) AS DATE)"
    texts = f"trunc({argument.spark}, '{unit}')", duckdb
    return make_time_column(argument, text, DATE, texts, time=argument.truncation_to(unit))


def _make_date(argument: Argument, function: str, arguments: list[str]) -> Column:
    """``CAST(ts AS DATE)``."""
    expect_arguments(arguments, 0)
    text = f"date({argument.name})"
    texts = f"CAST({argument.spark} AS DATE)", f"CAST({argument.duckdb} AS DATE)"
    return make_time_column(argument, text, DATE, texts, time=argument.truncation_to("day"))


def _make_last_day(argument: Argument, function: str, arguments: list[str]) -> Column:
    """``last_day(ts)``, the last date of a month."""
    expect_arguments(arguments, 0)
    text = f"last_day({argument.name})"
    texts = f"last_day({argument.spark})", f"last_day({argument.duckdb})"
    return make_time_column(argument, text, DATE, texts, time=argument.truncation_to("month"))


def make_shift(argument: Argument) -> Column:
    """The argument itself, ``ts + INTERVAL 1 HOUR``."""
    text = argument.name
    facts = (Comparison(Ref(argument.table, text), Op.EQ, argument.value, text),)
    time = argument.truncation_to("microsecond")
    return make_time_column(argument, text, TIMESTAMP, (argument.spark, argument.duckdb), facts, time)


def _make_epoch(argument: Argument, function: str, arguments: list[str]) -> Column:
    """``unix_timestamp(ts)``: whole seconds since 1970."""
    expect_arguments(arguments, 0)
    name, width = _EPOCH_UNITS[function]
    text = f"{name}({argument.name})"
    micros = f"epoch_us({argument.duckdb})"
    # unix_timestamp rounds towards 1970, the others down.
    is_truncated = name == "unix_timestamp"
    rest = f"{micros} % {width}" if is_truncated else f"({micros} % {width} + {width}) % {width}"
    texts = f"{name}({argument.spark})", f"({micros} - ({rest})) // {width}"
    low = argument.earliest - (width - 1 if is_truncated else 0)
    count = Count(width, low, argument.delay + width - 1, width)
    return make_count(argument, text, BIGINT, texts, count)


def make_count(argument: Argument, text: str, type_: SqlType, texts: tuple[str, str], count: Count) -> Column:
    """A column that counts time."""
    time = TimeFunction(count.high - count.low, monotone=True, end=f"end of {text}", count=count)
    return make_time_column(argument, text, type_, texts, time=time)


def count_as_time(argument: Argument, counted: Column) -> Column:
    """The timestamp that is as many units after 1970 as a column counts."""
    derivation, start = counted.derivation, replace(argument, column=counted, shift=0)
    assert derivation is not None and derivation.time is not None and derivation.time.count is not None
    count = derivation.time.count
    text = f"timestamp of {counted.name}"
    micros = f"{start.spark} * {count.unit}", f"{start.duckdb} * {count.unit}"
    value, time = Ref(argument.table, text), Ref(argument.table, argument.column.name)
    facts = (
        Comparison(add_micros(value, count.low), Op.LE, time, text),
        Comparison(time, Op.LT, add_micros(value, count.high), text),
    )
    function = replace(derivation.time, end=f"end of {text}")
    return make_time_column(argument, text, TIMESTAMP, convert_to_times(*micros), facts, function)


# The variable of a lambda expression; no column has this name.


def _make_format(argument: Argument, function: str, arguments: list[str]) -> Column:
    """``date_format(ts, pattern)``, a string."""
    expect_arguments(arguments, 1)
    (pattern,) = arguments
    try:
        read = read_pattern(pattern)
    except ValueError as problem:
        raise UnknownFormError(str(problem)) from None
    text = f"date_format({argument.name}, '{pattern}')"
    spark = f"date_format({argument.spark}, {quote_text(pattern, spark=True)})"
    duckdb = f"strftime({argument.duckdb}, {quote_text(read.duckdb, spark=False)})"
    units = [_FIELD_UNITS.get(field, field) for field in read.fields]
    time = argument.function_of(min(units, key=LONGEST.__getitem__, default="year"), read.fields)
    ref = Ref(argument.table, text)
    facts: tuple[Condition, ...] = ()
    if read.texts is not None:
        facts = (Or(tuple(Comparison(ref, Op.EQ, Literal(each, STRING), text) for each in read.texts)),)
    return make_time_column(argument, text, STRING, (spark, duckdb), facts, time)


_FIELD_UNITS = {
    **dict.fromkeys(("day of year", "day of week"), "day"),
    **dict.fromkeys(("half hour", "half day"), "hour"),
    "week of year": "week",
    "year of century": "year",
}


# --- columns -----------------------------------------------------------------------------------------


def make_end(argument: Argument, function: TimeFunction, column: Column | None) -> Column:
    """The end of a value of a function that never returns: no later row has its value.

    ``column`` is the function, if it is a window, counts a unit, or is applied to another function;
    otherwise the end is that of its unit.
    """
    derivation = column.derivation if column is not None else None
    if column is None or derivation is None or function.end is None:
        assert isinstance(function.unit, str)
        name, texts = name_end(argument.column.name, function), end_unit(argument, function.unit)
        return Column(name, TIMESTAMP, argument.column.nullable, Derivation(*texts))
    start, width = replace(argument, column=column, shift=0), function.width
    ends = derivation.ends
    if function.count is not None and column.type is not TIMESTAMP:
        rest = f"* {function.count.unit} + {function.count.high}"
        ends = convert_to_times(*(f"CAST({each} AS BIGINT) {rest}" for each in (start.spark, start.duckdb)))
    if ends is not None:
        return Column(function.end, TIMESTAMP, argument.column.nullable, Derivation(*ends))
    width = function.count.high if function.count is not None else width
    texts = f"unix_micros({start.spark}) + {width}", f"epoch_us({start.duckdb}) + {width}"
    end = Arithmetic("+", Ref(argument.table, column.name), make_length(width))
    facts = (Comparison(Ref(argument.table, function.end), Op.EQ, end, function.end),)
    made = Derivation(*convert_to_times(*texts), facts, derivation.time)
    return Column(function.end, TIMESTAMP, argument.column.nullable, made)


def make_window_end(argument: Argument, function: TimeFunction, start: Column) -> Column:
    """The end of a window as the query shows it; that of a shifted time is not when the window closes."""
    if not function.shift:
        return make_end(argument, function, start)
    name = start.name.removesuffix(".start") + ".end"
    value = Arithmetic("+", Ref(argument.table, start.name), make_length(function.width))
    facts = (Comparison(Ref(argument.table, name), Op.EQ, value, name),)
    derivation = Derivation(*add_to_column(start.name, function.width), facts, function)
    return Column(name, TIMESTAMP, argument.column.nullable, derivation)


def _find_unit(text: str, function: str) -> str:
    unit = _UNITS.get(text.upper())
    if unit is None:
        raise UnknownFormError(
            f"has the unit '{text}'; the units are {', '.join(dict.fromkeys(_UNITS.values()))}"
        )
    return unit


_MAKERS: dict[str, Maker] = {
    "DATE_TRUNC": _make_truncation,
    "TRUNC": _make_date_truncation,
    **dict.fromkeys(("CAST", "DATE", "TO_DATE"), _make_date),
    "LAST_DAY": _make_last_day,
    "DATE_FORMAT": _make_format,
    "WINDOW": make_window,
    "SESSION_WINDOW": make_session,
    **dict.fromkeys(_EPOCH_UNITS, _make_epoch),
}

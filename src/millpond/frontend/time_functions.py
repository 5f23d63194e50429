"""Functions of a timestamp and the columns they derive: ``date_trunc``, ``window``, ``year`` and others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from millpond.frontend.date_formats import read_pattern
from millpond.frontend.time_fields import FIELD_NAMES, FIELDS
from millpond.query.calendar import (
    DAY,
    LONGEST,
    MICROSECOND,
    SECOND,
    Count,
    TimeFunction,
    fields_down_to,
    find_closing_unit,
    name_end,
    name_shifted,
)
from millpond.query.durations import format_duration, parse_duration
from millpond.query.expressions import Arithmetic, Comparison, Condition, Expr, Literal, Op, Or, Ref
from millpond.query.model import Column, Derivation
from millpond.query.types import BIGINT, DATE, INT, INTERVAL, STRING, TIMESTAMP, SqlType

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


@dataclass(frozen=True)
class Argument:
    """The timestamp that a function is applied to: a column plus ``shift`` microseconds.

    ``table`` is the name of its table, ``slack`` the most microseconds by which a stretch of local time can
    be longer than the same in UTC; ``is_time`` says if it is a function of the time column of a stream.  If
    the column is not the time column itself, ``inner`` is the function that it is; the time column is then
    less than ``delay`` microseconds later than the argument.
    """

    table: str
    column: Column
    slack: int
    is_time: bool
    shift: int = 0
    inner: TimeFunction | None = None

    @property
    def name(self) -> str:
        """The argument as text."""
        return name_shifted(self.column.name, self.shift)

    @property
    def delay(self) -> int:
        """How much later than the argument the time column is: less than so many microseconds."""
        if self.inner is None:
            return 1 - self.shift
        return self.inner.width + self.slack - self.inner.shift - self.shift

    @property
    def earliest(self) -> int:
        """The time column is at least so many microseconds later than the argument; negative if earlier."""
        return -self.shift if self.inner is None else -self.shift - self.inner.shift - self.inner.width

    def place(self, function: TimeFunction) -> TimeFunction:
        """A function of the argument as a function of the time column.

        If the argument is another function of it, its calendar fields are not those of the time column.
        """
        if self.inner is None:
            return replace(function, shift=self.shift)
        unit = find_closing_unit([function])
        if unit is None:
            return replace(function, fields=frozenset())
        shift, step = self.shift + self.inner.shift, max(self.inner.period, function.period)
        lagging = replace(function, unit=unit, fields=frozenset(), monotone=True)
        return replace(lagging, shift=shift, lag=self.inner.width, step=step)

    def function_of(self, unit: str, fields: frozenset[str]) -> TimeFunction:
        """A function of calendar fields; it is monotone if they leave no gap from the year down to the unit.

        Where the local clock is set back, an hour occurs twice: the fields then determine the day only.
        """
        if self.slack:
            fields &= fields_down_to("day")
        plain = TimeFunction(unit, fields)
        return self.place(replace(plain, monotone=find_closing_unit([plain]) == unit))

    def truncation_to(self, unit: str) -> TimeFunction:
        """The function that truncates to a unit."""
        fields = fields_down_to(unit)
        known = fields & fields_down_to("day") if self.slack else fields
        return self.place(TimeFunction(unit, known, monotone=True))

    @property
    def value(self) -> Expr:
        """The argument as an expression of the closure."""
        column = Ref(self.table, self.column.name)
        return _add(column, self.shift)

    def of(self, column: Column) -> Argument:
        """Another function of the time column, which is a timestamp, as an argument."""
        function = column.derivation.time if column.derivation is not None else None
        return replace(self, column=column, shift=0, inner=function)

    @property
    def spark(self) -> str:
        name = quote_name(self.column.name)[0]
        return f"timestamp_micros(unix_micros({name}) + {self.shift})" if self.shift else name

    @property
    def duckdb(self) -> str:
        name = quote_name(self.column.name)[1]
        return f"make_timestamp(epoch_us({name}) + {self.shift})" if self.shift else name


class UnknownFormError(ValueError):
    """A call that is not supported; the text says why."""


def quote_name(name: str) -> tuple[str, str]:
    """A column name for Spark and for DuckDB."""
    return "`" + name.replace("`", "``") + "`", '"' + name.replace('"', '""') + '"'


Maker = Callable[[Argument, str, list[str]], Column]


def find_maker(function: str) -> Maker | None:
    """The function that makes the column of a call, by the name of the called function in upper case."""
    if function in FIELD_NAMES:
        return make_field
    return _MAKERS.get(function)


# --- buckets -----------------------------------------------------------------------------------------


def make_field(argument: Argument, function: str, arguments: list[str]) -> Column:
    """A calendar field, such as ``hour(ts)``."""
    _expect(arguments, 0)
    name = FIELD_NAMES[function]
    field = FIELDS[name]
    text = f"{name.lower()}({argument.name})"
    facts = []
    if field.low is not None:
        facts.append(Comparison(Ref(argument.table, text), Op.GE, Literal(field.low, INT), text))
        facts.append(Comparison(Ref(argument.table, text), Op.LE, Literal(field.high, INT), text))
    time = argument.function_of(_FIELD_UNITS.get(field.field, field.field), frozenset({field.field}))
    duckdb = f"CAST({field.duckdb.format(argument.duckdb)} AS INT)"
    return _column(argument, text, INT, (f"{name.lower()}({argument.spark})", duckdb), tuple(facts), time)


def _make_truncation(argument: Argument, function: str, arguments: list[str]) -> Column:
    """``date_trunc('hour', ts)``, a timestamp."""
    _expect(arguments, 1)
    unit = _find_unit(arguments[0], function)
    return truncate(argument, unit)


def truncate(argument: Argument, unit: str) -> Column:
    """The column ``date_trunc(unit, argument)``."""
    text = f"date_trunc('{unit}', {argument.name})"
    spark = f"date_trunc('{unit}', {argument.spark})"
    duckdb = f"CAST(date_trunc('{unit}', {argument.duckdb}) AS TIMESTAMP)"
    facts = _bucket_facts(argument, text, LONGEST[unit] + argument.slack)
    return _column(argument, text, TIMESTAMP, (spark, duckdb), facts, argument.truncation_to(unit))


def _make_date_truncation(argument: Argument, function: str, arguments: list[str]) -> Column:
    """``trunc(ts, 'month')``, a date."""
    _expect(arguments, 1)
    unit = _find_unit(arguments[0], function)
    if unit not in _DATE_UNITS:
        raise UnknownFormError(
            f"truncates to {arguments[0]}; the units of trunc are {', '.join(_DATE_UNITS)}"
        )
    text = f"trunc({argument.name}, '{unit}')"
    duckdb = f"CAST(date_trunc('{unit}', {argument.duckdb}) AS DATE)"
    texts = f"trunc({argument.spark}, '{unit}')", duckdb
    return _column(argument, text, DATE, texts, time=argument.truncation_to(unit))


def _make_date(argument: Argument, function: str, arguments: list[str]) -> Column:
    """``CAST(ts AS DATE)``."""
    _expect(arguments, 0)
    text = f"date({argument.name})"
    texts = f"CAST({argument.spark} AS DATE)", f"CAST({argument.duckdb} AS DATE)"
    return _column(argument, text, DATE, texts, time=argument.truncation_to("day"))


def _make_last_day(argument: Argument, function: str, arguments: list[str]) -> Column:
    """``last_day(ts)``, the last date of a month."""
    _expect(arguments, 0)
    text = f"last_day({argument.name})"
    texts = f"last_day({argument.spark})", f"last_day({argument.duckdb})"
    return _column(argument, text, DATE, texts, time=argument.truncation_to("month"))


def make_shift(argument: Argument) -> Column:
    """The argument itself, ``ts + INTERVAL 1 HOUR``."""
    text = argument.name
    facts = (Comparison(Ref(argument.table, text), Op.EQ, argument.value, text),)
    time = argument.truncation_to("microsecond")
    return _column(argument, text, TIMESTAMP, (argument.spark, argument.duckdb), facts, time)


def _make_epoch(argument: Argument, function: str, arguments: list[str]) -> Column:
    """``unix_timestamp(ts)``: whole seconds since 1970."""
    _expect(arguments, 0)
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
    return _column(argument, text, type_, texts, time=time)


def count_as_time(argument: Argument, counted: Column) -> Column:
    """The timestamp that is as many units after 1970 as a column counts."""
    derivation, start = counted.derivation, replace(argument, column=counted, shift=0)
    assert derivation is not None and derivation.time is not None and derivation.time.count is not None
    count = derivation.time.count
    text = f"timestamp of {counted.name}"
    micros = f"{start.spark} * {count.unit}", f"{start.duckdb} * {count.unit}"
    value, time = Ref(argument.table, text), Ref(argument.table, argument.column.name)
    facts = (
        Comparison(_add(value, count.low), Op.LE, time, text),
        Comparison(time, Op.LT, _add(value, count.high), text),
    )
    function = replace(derivation.time, end=f"end of {text}")
    return _column(argument, text, TIMESTAMP, _to_times(*micros), facts, function)


def _add(value: Ref, micros: int) -> Expr:
    return Arithmetic("+" if micros > 0 else "-", value, _length(abs(micros))) if micros else value


def _make_window(argument: Argument, function: str, arguments: list[str]) -> Column:
    """The start of ``window(ts, width[, slide[, offset]])``."""
    width, slide, offset = read_window_lengths(arguments)
    name = name_window(argument.name, width, slide, offset)
    text = f"{name}.start"
    facts = _bucket_facts(argument, text, width)
    repeated = slide < width
    end = f"end of {name}" if argument.shift else f"{name}.end"
    time = TimeFunction(width, frozenset(), True, slide if repeated else None, offset, end, argument.shift)
    micros = f"unix_micros({argument.spark})", f"epoch_us({argument.duckdb})"
    texts = compute_window_starts(micros, width, slide, offset)
    ends = _add_to_column(text, time.reach) if argument.shift else None
    return _column(argument, text, TIMESTAMP, texts, facts, time, repeated, ends)


def read_window_lengths(arguments: list[str]) -> tuple[int, int, int]:
    """The width, the slide and the offset of a window, from the arguments after the timestamp."""
    if not 1 <= len(arguments) <= 3:
        raise UnknownFormError("needs a width, as in window(ts, '10 minutes')")
    lengths = [_read_length(each) for each in arguments]
    width, slide, offset = (*lengths, *([lengths[0], 0][len(lengths) - 1 :]))
    if width <= 0 or slide <= 0:
        raise UnknownFormError("needs a width and a slide that are longer than 0")
    if slide > width:
        raise UnknownFormError("slides by more than its width")
    if offset >= slide:
        raise UnknownFormError("starts later than its first slide ends")
    return width, slide, offset


def name_window(moment: str, width: int, slide: int, offset: int) -> str:
    """A window of a timestamp as text."""
    shown = ", ".join(f"'{format_duration(each)}'" for each in _shorten(width, slide, offset))
    return f"window({moment}, {shown})"


def _make_session(argument: Argument, function: str, arguments: list[str]) -> Column:
    """The start of ``session_window(ts, gap)``; for a row alone, its timestamp."""
    _expect(arguments, 1)
    gap = _read_length(arguments[0])
    if gap <= 0:
        raise UnknownFormError("needs a gap that is longer than 0")
    if not argument.is_time:
        raise UnknownFormError(f"is not supported, because {argument.name} is not the time column")
    text = f"session_window({argument.name}, '{format_duration(gap)}').start"
    derivation = Derivation(argument.spark, argument.duckdb, gap=gap)
    return Column(text, TIMESTAMP, argument.column.nullable, derivation)


def make_session_end(argument: Argument, start: Column) -> Column:
    """The end of a session window; for a row alone, the gap after its timestamp."""
    assert start.derivation is not None and start.derivation.gap is not None
    gap = start.derivation.gap
    spark = f"timestamp_micros(unix_micros({argument.spark}) + {gap})"
    duckdb = f"make_timestamp(epoch_us({argument.duckdb}) + {gap})"
    derivation = Derivation(spark, duckdb, gap=gap)
    return Column(start.name.removesuffix(".start") + ".end", TIMESTAMP, start.nullable, derivation)


def _shorten(width: int, slide: int, offset: int) -> list[int]:
    return [width, slide, offset][: 3 if offset else 2 if slide < width else 1]


# The variable of a lambda expression; no column has this name.
_COPY = "_millpond_copy"


def compute_window_starts(micros: tuple[str, str], width: int, slide: int, offset: int) -> tuple[str, str]:
    """The start of a tumbling window, or an array of the starts of the sliding windows with a timestamp.

    ``micros`` are the microseconds of the timestamp since 1970, for Spark and for DuckDB, as is the result.
    """
    since = [f"({each} - {offset})" for each in micros]
    rests = f"pmod({since[0]}, {slide})", f"((({since[1]} % {slide}) + {slide}) % {slide})"
    lasts = [f"({each} - {rest})" for each, rest in zip(micros, rests, strict=True)]
    if slide == width:
        return _to_times(*lasts)
    copies = -(-width // slide) - 1
    fits = [f"{rest} + {_COPY} * {slide} < {width}" for rest in rests]
    starts = _to_times(*(f"{last} - {_COPY} * {slide}" for last in lasts))
    kept = f"list_filter(range(0, {copies + 1}), lambda {_COPY}: {fits[1]})"
    return (
        f"transform(filter(sequence(0L, {copies}L), {_COPY} -> {fits[0]}), {_COPY} -> {starts[0]})",
        f"list_transform({kept}, lambda {_COPY}: {starts[1]})",
    )


def _make_format(argument: Argument, function: str, arguments: list[str]) -> Column:
    """``date_format(ts, pattern)``, a string."""
    _expect(arguments, 1)
    (pattern,) = arguments
    try:
        read = read_pattern(pattern)
    except ValueError as problem:
        raise UnknownFormError(str(problem)) from None
    text = f"date_format({argument.name}, '{pattern}')"
    spark = f"date_format({argument.spark}, {_string(pattern, spark=True)})"
    duckdb = f"strftime({argument.duckdb}, {_string(read.duckdb, spark=False)})"
    units = [_FIELD_UNITS.get(field, field) for field in read.fields]
    time = argument.function_of(min(units, key=LONGEST.__getitem__, default="year"), read.fields)
    ref = Ref(argument.table, text)
    facts: tuple[Condition, ...] = ()
    if read.texts is not None:
        facts = (Or(tuple(Comparison(ref, Op.EQ, Literal(each, STRING), text) for each in read.texts)),)
    return _column(argument, text, STRING, (spark, duckdb), facts, time)


_FIELD_UNITS = {
    **dict.fromkeys(("day of year", "day of week"), "day"),
    **dict.fromkeys(("half hour", "half day"), "hour"),
    "week of year": "week",
    "year of century": "year",
}


def _string(text: str, spark: bool) -> str:
    if spark:
        text = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + (text if spark else text.replace("'", "''")) + "'"


# --- columns -----------------------------------------------------------------------------------------


def make_end(argument: Argument, function: TimeFunction, column: Column | None) -> Column:
    """The end of a value of a function that never returns: no later row has its value.

    ``column`` is the function, if it is a window, counts a unit, or is applied to another function;
    otherwise the end is that of its unit.
    """
    derivation = column.derivation if column is not None else None
    if column is None or derivation is None or function.end is None:
        assert isinstance(function.unit, str)
        name, texts = name_end(argument.column.name, function), _end_of_unit(argument, function.unit)
        return Column(name, TIMESTAMP, argument.column.nullable, Derivation(*texts))
    start, width = replace(argument, column=column, shift=0), function.width
    ends = derivation.ends
    if function.count is not None and column.type is not TIMESTAMP:
        rest = f"* {function.count.unit} + {function.count.high}"
        ends = _to_times(*(f"CAST({each} AS BIGINT) {rest}" for each in (start.spark, start.duckdb)))
    if ends is not None:
        return Column(function.end, TIMESTAMP, argument.column.nullable, Derivation(*ends))
    width = function.count.high if function.count is not None else width
    texts = f"unix_micros({start.spark}) + {width}", f"epoch_us({start.duckdb}) + {width}"
    end = Arithmetic("+", Ref(argument.table, column.name), _length(width))
    facts = (Comparison(Ref(argument.table, function.end), Op.EQ, end, function.end),)
    made = Derivation(*_to_times(*texts), facts, derivation.time)
    return Column(function.end, TIMESTAMP, argument.column.nullable, made)


def make_window_end(argument: Argument, function: TimeFunction, start: Column) -> Column:
    """The end of a window as the query shows it; that of a shifted time is not when the window closes."""
    if not function.shift:
        return make_end(argument, function, start)
    name = start.name.removesuffix(".start") + ".end"
    value = Arithmetic("+", Ref(argument.table, start.name), _length(function.width))
    facts = (Comparison(Ref(argument.table, name), Op.EQ, value, name),)
    derivation = Derivation(*_add_to_column(start.name, function.width), facts, function)
    return Column(name, TIMESTAMP, argument.column.nullable, derivation)


def make_free_end(start: Column) -> Column:
    """The end of a window over another timestamp than the time of the stream."""
    derivation = start.derivation
    assert derivation is not None and derivation.width is not None
    name, width = start.name.removesuffix(".start") + ".end", derivation.width
    texts = _add_to_column(start.name, width)
    if not derivation.repeated:
        micros = f"unix_micros({derivation.sql})", f"epoch_us({derivation.duckdb})"
        texts = _to_times(*(f"{each} + {width}" for each in micros))
    arguments = (start.name,) if derivation.repeated else derivation.arguments
    made = Derivation(*texts, arguments=arguments)
    return Column(name, start.type, start.nullable, made, start.cardinality)


def _add_to_column(name: str, micros: int) -> tuple[str, str]:
    """A column plus some microseconds, for Spark and for DuckDB."""
    spark, duckdb = quote_name(name)
    return _to_times(f"unix_micros({spark}) + {micros}", f"epoch_us({duckdb}) + {micros}")


def _end_of_unit(argument: Argument, unit: str) -> tuple[str, str]:
    """The end of a calendar unit of the argument, as a time of the stream, for Spark and for DuckDB."""
    late = argument.delay - 1
    if LONGEST[unit] < DAY:
        width = LONGEST[unit] + argument.slack + late
        starts = (f"date_trunc('{unit}', {each})" for each in (argument.spark, argument.duckdb))
        return _to_times(*(f"{f}({start}) + {width}" for f, start in zip(_MICROS, starts, strict=True)))
    # By dates, as a local day or month can be longer or shorter than in UTC.
    first = f"CAST({argument.spark} AS DATE)" if unit == "day" else f"trunc({argument.spark}, '{unit}')"
    months, days = {"year": 12, "quarter": 3, "month": 1}.get(unit), {"week": 7, "day": 1}.get(unit)
    after = f"add_months({first}, {months})" if months else f"date_add({first}, {days})"
    duckdb = f"CAST(date_trunc('{unit}', {argument.duckdb}) + INTERVAL 1 {unit} AS TIMESTAMP)"
    spark = f"CAST({after} AS TIMESTAMP)"
    if late == 0:
        return spark, duckdb
    return _to_times(f"unix_micros({spark}) + {late}", f"epoch_us({duckdb}) + {late}")


_MICROS = ("unix_micros", "epoch_us")


def _to_times(spark: str, duckdb: str) -> tuple[str, str]:
    """Timestamps, from microseconds since 1970."""
    return f"timestamp_micros({spark})", f"make_timestamp({duckdb})"


def _bucket_facts(argument: Argument, name: str, width: int) -> tuple[Condition, ...]:
    """``bucket <= ts`` and ``ts < bucket + width``."""
    bucket = Ref(argument.table, name)
    end = Arithmetic("+", bucket, _length(width))
    return Comparison(bucket, Op.LE, argument.value, name), Comparison(argument.value, Op.LT, end, name)


def _length(micros: int) -> Literal:
    return Literal(timedelta(microseconds=micros), INTERVAL)


def _column(
    argument: Argument,
    name: str,
    type_: SqlType,
    texts: tuple[str, str],
    facts: tuple[Condition, ...] = (),
    time: TimeFunction | None = None,
    repeated: bool = False,
    ends: tuple[str, str] | None = None,
) -> Column:
    spark, duckdb = texts
    time = time if argument.is_time else None
    if time is not None and time.lag and time.monotone and isinstance(time.unit, str):
        ends, time = _end_of_unit(argument, time.unit), replace(time, end=f"end of {name}")
    arguments = () if argument.is_time else (argument.column.name,)
    derivation = Derivation(spark, duckdb, facts, time, repeated, arguments=arguments, ends=ends)
    return Column(name, type_, argument.column.nullable, derivation)


def _expect(arguments: list[str], count: int) -> None:
    if len(arguments) != count:
        raise UnknownFormError(f"needs {count + 1} argument{'s' if count else ''}")


def _find_unit(text: str, function: str) -> str:
    unit = _UNITS.get(text.upper())
    if unit is None:
        raise UnknownFormError(
            f"has the unit '{text}'; the units are {', '.join(dict.fromkeys(_UNITS.values()))}"
        )
    return unit


def _read_length(text: str) -> int:
    micros = parse_duration(text)
    if micros is None:
        raise UnknownFormError(f"has '{text}', which is not a duration; write '10 minutes'")
    return micros


_MAKERS: dict[str, Maker] = {
    "DATE_TRUNC": _make_truncation,
    "TRUNC": _make_date_truncation,
    **dict.fromkeys(("CAST", "DATE", "TO_DATE"), _make_date),
    "LAST_DAY": _make_last_day,
    "DATE_FORMAT": _make_format,
    "WINDOW": _make_window,
    "SESSION_WINDOW": _make_session,
    **dict.fromkeys(_EPOCH_UNITS, _make_epoch),
}

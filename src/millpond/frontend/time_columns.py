"""The columns that functions of a timestamp derive, and the timestamps that the functions are applied to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from millpond.query.calendar import (
    DAY,
    LONGEST,
    TimeFunction,
    fields_down_to,
    find_closing_unit,
    name_shifted,
)
from millpond.query.durations import parse_duration
from millpond.query.expressions import Arithmetic, Comparison, Condition, Expr, Literal, Op, Ref
from millpond.query.model import Column, Derivation
from millpond.query.types import INTERVAL, SqlType

_MICROS = ("unix_micros", "epoch_us")


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
        return add_micros(column, self.shift)

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


def add_micros(value: Ref, micros: int) -> Expr:
    """A timestamp plus some microseconds, as an expression of the closure."""
    return Arithmetic("+" if micros > 0 else "-", value, make_length(abs(micros))) if micros else value


def quote_text(text: str, spark: bool) -> str:
    """A string constant for Spark, or for DuckDB."""
    if spark:
        text = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + (text if spark else text.replace("'", "''")) + "'"


def add_to_column(name: str, micros: int) -> tuple[str, str]:
    """A column plus some microseconds, for Spark and for DuckDB."""
    spark, duckdb = quote_name(name)
    return convert_to_times(f"unix_micros({spark}) + {micros}", f"epoch_us({duckdb}) + {micros}")


def convert_to_times(spark: str, duckdb: str) -> tuple[str, str]:
    """Timestamps, from microseconds since 1970."""
    return f"timestamp_micros({spark})", f"make_timestamp({duckdb})"


def list_bucket_facts(argument: Argument, name: str, width: int) -> tuple[Condition, ...]:
    """``bucket <= ts`` and ``ts < bucket + width``."""
    bucket = Ref(argument.table, name)
    end = Arithmetic("+", bucket, make_length(width))
    return Comparison(bucket, Op.LE, argument.value, name), Comparison(argument.value, Op.LT, end, name)


def make_length(micros: int) -> Literal:
    """A length of time as a constant."""
    return Literal(timedelta(microseconds=micros), INTERVAL)


def end_unit(argument: Argument, unit: str) -> tuple[str, str]:
    """The end of a calendar unit of the argument, as a time of the stream, for Spark and for DuckDB."""
    late = argument.delay - 1
    if LONGEST[unit] < DAY:
        width = LONGEST[unit] + argument.slack + late
        starts = (f"date_trunc('{unit}', {each})" for each in (argument.spark, argument.duckdb))
        return convert_to_times(
            *(f"{f}({start}) + {width}" for f, start in zip(_MICROS, starts, strict=True))
        )
    # By dates, as a local day or month can be longer or shorter than in UTC.
    first = f"CAST({argument.spark} AS DATE)" if unit == "day" else f"trunc({argument.spark}, '{unit}')"
    months, days = {"year": 12, "quarter": 3, "month": 1}.get(unit), {"week": 7, "day": 1}.get(unit)
    after = f"add_months({first}, {months})" if months else f"date_add({first}, {days})"
    duckdb = f"CAST(date_trunc('{unit}', {argument.duckdb}) + INTERVAL 1 {unit} AS TIMESTAMP)"
    spark = f"CAST({after} AS TIMESTAMP)"
    if late == 0:
        return spark, duckdb
    return convert_to_times(f"unix_micros({spark}) + {late}", f"epoch_us({duckdb}) + {late}")


def make_time_column(
    argument: Argument,
    name: str,
    type_: SqlType,
    texts: tuple[str, str],
    facts: tuple[Condition, ...] = (),
    time: TimeFunction | None = None,
    repeated: bool = False,
    ends: tuple[str, str] | None = None,
) -> Column:
    """The derived column of a function of a timestamp, whose SQL is ``texts`` for Spark and for DuckDB."""
    spark, duckdb = texts
    time = time if argument.is_time else None
    if time is not None and time.lag and time.monotone and isinstance(time.unit, str):
        ends, time = end_unit(argument, time.unit), replace(time, end=f"end of {name}")
    arguments = () if argument.is_time else (argument.column.name,)
    derivation = Derivation(spark, duckdb, facts, time, repeated, arguments=arguments, ends=ends)
    return Column(name, type_, argument.column.nullable, derivation)


def expect_arguments(arguments: list[str], count: int) -> None:
    """Refuse a call with another number of arguments besides the timestamp."""
    if len(arguments) != count:
        raise UnknownFormError(f"needs {count + 1} argument{'s' if count else ''}")


def read_length(text: str) -> int:
    """The microseconds of a duration, such as ``10 minutes``."""
    micros = parse_duration(text)
    if micros is None:
        raise UnknownFormError(f"has '{text}', which is not a duration; write '10 minutes'")
    return micros

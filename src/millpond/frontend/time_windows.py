"""Windows and sessions as columns: their starts and ends."""

from __future__ import annotations

from millpond.frontend.time_columns import (
    Argument,
    UnknownFormError,
    add_to_column,
    convert_to_times,
    expect_arguments,
    list_bucket_facts,
    make_time_column,
    read_length,
)
from millpond.query.calendar import (
    TimeFunction,
)
from millpond.query.durations import format_duration
from millpond.query.model import Column, Derivation
from millpond.query.types import TIMESTAMP

_COPY = "_millpond_copy"


def make_window(argument: Argument, function: str, arguments: list[str]) -> Column:
    """The start of ``window(ts, width[, slide[, offset]])``."""
    width, slide, offset = read_window_lengths(arguments)
    name = name_window(argument.name, width, slide, offset)
    text = f"{name}.start"
    facts = list_bucket_facts(argument, text, width)
    repeated = slide < width
    end = f"end of {name}" if argument.shift else f"{name}.end"
    time = TimeFunction(width, frozenset(), True, slide if repeated else None, offset, end, argument.shift)
    micros = f"unix_micros({argument.spark})", f"epoch_us({argument.duckdb})"
    texts = compute_window_starts(micros, width, slide, offset)
    ends = add_to_column(text, time.reach) if argument.shift else None
    return make_time_column(argument, text, TIMESTAMP, texts, facts, time, repeated, ends)


def read_window_lengths(arguments: list[str]) -> tuple[int, int, int]:
    """The width, the slide and the offset of a window, from the arguments after the timestamp."""
    if not 1 <= len(arguments) <= 3:
        raise UnknownFormError("needs a width, as in window(ts, '10 minutes')")
    lengths = [read_length(each) for each in arguments]
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


def make_session(argument: Argument, function: str, arguments: list[str]) -> Column:
    """The start of ``session_window(ts, gap)``; for a row alone, its timestamp."""
    expect_arguments(arguments, 1)
    gap = read_length(arguments[0])
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


def compute_window_starts(micros: tuple[str, str], width: int, slide: int, offset: int) -> tuple[str, str]:
    """The start of a tumbling window, or an array of the starts of the sliding windows with a timestamp.

    ``micros`` are the microseconds of the timestamp since 1970, for Spark and for DuckDB, as is the result.
    """
    since = [f"({each} - {offset})" for each in micros]
    rests = f"pmod({since[0]}, {slide})", f"((({since[1]} % {slide}) + {slide}) % {slide})"
    lasts = [f"({each} - {rest})" for each, rest in zip(micros, rests, strict=True)]
    if slide == width:
        return convert_to_times(*lasts)
    copies = -(-width // slide) - 1
    fits = [f"{rest} + {_COPY} * {slide} < {width}" for rest in rests]
    starts = convert_to_times(*(f"{last} - {_COPY} * {slide}" for last in lasts))
    kept = f"list_filter(range(0, {copies + 1}), lambda {_COPY}: {fits[1]})"
    return (
        f"transform(filter(sequence(0L, {copies}L), {_COPY} -> {fits[0]}), {_COPY} -> {starts[0]})",
        f"list_transform({kept}, lambda {_COPY}: {starts[1]})",
    )


def make_free_end(start: Column) -> Column:
    """The end of a window over another timestamp than the time of the stream."""
    derivation = start.derivation
    assert derivation is not None and derivation.width is not None
    name, width = start.name.removesuffix(".start") + ".end", derivation.width
    texts = add_to_column(start.name, width)
    if not derivation.repeated:
        micros = f"unix_micros({derivation.sql})", f"epoch_us({derivation.duckdb})"
        texts = convert_to_times(*(f"{each} + {width}" for each in micros))
    arguments = (start.name,) if derivation.repeated else derivation.arguments
    made = Derivation(*texts, arguments=arguments)
    return Column(name, start.type, start.nullable, made, start.cardinality)

"""The time bucket that grouping columns, or the columns of a set of results, form together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from millpond.query.calendar import TimeFunction, find_closing_function, name_end
from millpond.query.expressions import Ref
from millpond.query.model import Select


@dataclass(frozen=True)
class Bucket:
    """Columns of one occurrence whose joint value never returns after ``end``.

    ``end`` is the derived column with the first timestamp that no longer has the value.  If the time column
    itself is among the columns, ``end`` is the time column: later timestamps no longer have the value.
    Timestamps with the same value are less than ``width`` microseconds apart (in UTC), the value changes at
    most every ``period`` microseconds, and a row has at most ``overlap`` values, more than one if windows
    slide.
    """

    columns: tuple[Ref, ...]
    end: Ref
    width: int = 1
    period: int = 1
    overlap: int = 1


def find_time_function(select: Select, ref: Ref) -> TimeFunction | None:
    """The function of the time column that a derived column is; None for any other column."""
    derivation = select.occurrence(ref.occurrence).table.column(ref.column).derivation
    return derivation.time if derivation is not None else None


def find_bucket(select: Select, alias: str, columns: Iterable[Ref]) -> Bucket | None:
    """The bucket that the given columns of an occurrence form; None if their joint value can return."""
    table = select.occurrence(alias).table
    own = [ref for ref in columns if ref.occurrence == alias]
    if table.time is None or not table.streaming:
        return None
    if (time := Ref(alias, table.time)) in own:
        return Bucket((time,), time)
    functions = {ref: f for ref in own if (f := find_time_function(select, ref)) is not None}
    closing = find_closing_function(functions.values())
    if closing is None:
        return None
    slides = [-(-function.width // function.slide) for function in functions.values() if function.slide]
    end = Ref(alias, name_end(table.time, closing))
    return Bucket(tuple(functions), end, closing.width, closing.period, prod(slides))

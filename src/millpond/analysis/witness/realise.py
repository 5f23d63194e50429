"""Chooses values of declared columns so that the derived columns of a witness have the values they need.

Witnesses are solved over all columns of a part, derived ones included; their rows have only the declared
ones.  Small values are tried first.  Otherwise the argument of a function gets the value that the function
should have, so that different values come from different arguments.  A linear function of one column, such as
``A * 2``, has an inverse where its values are multiples of its slope; one that is constant over stretches of
equal length, such as ``FLOOR(A / 100)``, at the beginnings of the stretches.  Nothing is guaranteed: the
witness is confirmed with the real values of the derived columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import ceil, floor, lcm
from typing import Any

from millpond.query.model import Column, Table
from millpond.query.number_line import Points
from millpond.query.types import TIME_VALUE, Family, SqlType

_SMALL = (*range(21), *range(-1, -21, -1), 100, 1000)
_SHORT = ("", "a", "b", "A", "B", "0", "1", "2", "10", "true")
_FIRST_DAY = date(2000, 1, 1)
_FIRST_TIME = datetime(2000, 1, 1)
_LENGTHS = range(300)
# Fractions are different also where a function keeps only them, or the last digits.
_SLOPE = 1 + 1 / 1024
_MAX_SCALE = 1000
# The multiples of a step at which the values of a linear function are looked at.
_ON_LINE = {0, 1, 2, -1, 7}
# The most arguments of a function for which combinations of small values are tried, and how many of each.
_MOST_ARGUMENTS = 3
_FEW = 40


@dataclass(frozen=True)
class _Inverse:
    """Arguments of a function: the first small one for each value, and those of a linear function.

    The function is ``slope * (argument / step) + intercept`` at multiples of ``step``.
    """

    known: Mapping[Any, Any]
    type: SqlType
    slope: Fraction | None = None
    intercept: Fraction = Fraction(0)
    step: int = 1

    def find(self, value: Any) -> Any:
        """An argument that gives the value; None if none is known."""
        if self.slope is None or not _is_exact(value):
            return self.known.get(value)
        quotient = (Fraction(value) - self.intercept) / self.slope
        if self.step != 1 and quotient.denominator != 1:
            return None
        found = make_number(quotient * self.step, self.type)
        return found if found == quotient * self.step else None


class Realiser:
    """Finds arguments of derived columns; remembers the values of a function at small arguments."""

    def __init__(self) -> None:
        self._inverses: dict[tuple[str, str, tuple[Any, ...]], _Inverse] = {}
        self._passing: dict[tuple[str, str], dict[str, Any] | None] = {}

    def find_scale(self, tables: Iterable[Table]) -> int:
        """A number by which all values can be multiplied, so that linear functions have inverses there."""
        slopes = [1]
        for table in tables:
            row = dict.fromkeys((column.name for column in table.columns), None)
            for column in table.derived:
                arguments = column.derivation.arguments if column.derivation is not None else ()
                if len(arguments) == 1:
                    argument = table.column(arguments[0])
                    slope = self._invert(table, column, argument, row).slope or Fraction(1)
                    if argument.type.step and column.type.step:
                        slope *= argument.type.step / column.type.step
                    slopes.append(abs(slope.numerator))
                if column.derivation is not None:  # multiples of n have the same remainder
                    slopes += [int(each) or 1 for each in re.findall(r"% (\d+)\b", column.derivation.sql)]
        scale = lcm(*slopes)
        return scale if scale <= _MAX_SCALE else 1

    def realise(
        self, table: Table, row: Mapping[str, Any], wanted: Mapping[str, Any], fixed: set[str]
    ) -> dict[str, Any]:
        """The row, with arguments that are not ``fixed`` chosen for the ``wanted`` derived values."""
        out, taken = dict(row), set(fixed)
        for column in table.derived:
            if column.name not in wanted or column.derivation is None:
                continue
            arguments = column.derivation.arguments
            free = [name for name in arguments if name not in taken]
            value = wanted[column.name]
            array = _find_exploded(table, column)
            if array is not None and array not in taken:
                out[array] = [value]
                taken.add(array)
                continue
            chosen = self._pass_through(table, column, free, out, value)
            if chosen is not None:
                out |= chosen
                taken |= chosen.keys()
                continue
            if not free:
                if len(arguments) == 1:
                    self._surround(table, column, table.column(arguments[0]), out, wanted[column.name])
                continue
            argument = table.column(free[0])
            found = self._invert(table, column, argument, out).find(value)
            if found is None and isinstance(value, date | timedelta):
                found = self._find_moment(table, column, argument, out, value)
            changed = None
            if found is None and len(free) < len(arguments):
                # The other arguments have values of their own, which may not matter.
                changed = self._pass_through(table, column, arguments, out, value)
            out |= changed or {argument.name: found if found is not None else _transfer(value, argument.type)}
            taken.add(argument.name)
        return out

    def _pass_through(
        self, table: Table, column: Column, arguments: Sequence[str], row: Mapping[str, Any], value: Any
    ) -> dict[str, Any] | None:
        """Arguments of which one has the wanted value, and the others make the column show it.

        So a CASE gets the value of its branch: ``CASE WHEN ok THEN x END`` is x where ok is true.
        """
        same = [name for name in arguments if table.column(name).type.family is column.type.family]
        if not 2 <= len(arguments) <= _MOST_ARGUMENTS:
            return None
        for name in same:
            others = [each for each in arguments if each != name]
            key = column.name, name
            if key not in self._passing:
                self._passing[key] = self._find_passing(table, column, name, others, {**row, name: value})
            found = self._passing[key]
            if found is not None:
                return {**found, name: value}
        return None

    def _find_passing(
        self, table: Table, column: Column, name: str, others: list[str], row: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Small values of the other arguments with which the column shows the value of one argument."""
        from millpond.runtime.derive import derive_each  # here, as it imports DuckDB
        from millpond.runtime.row_queries import UncomputableError

        assert column.derivation is not None
        sql = column.derivation.duckdb
        small = [_list_small_values(table.column(each).type, sql)[:_FEW] for each in others]
        tried = [dict(zip(others, values, strict=True)) for values in product(*small)]
        try:
            made = derive_each(replace(table, derived=(column,)), [{**row, **each} for each in tried])
        except UncomputableError:
            return None
        passing = (each for each, rows in zip(tried, made, strict=True) if rows[0][column.name] == row[name])
        return next(passing, None)

    def _find_moment(
        self, table: Table, column: Column, argument: Column, row: Mapping[str, Any], value: date | timedelta
    ) -> Any:
        """An argument that gives a date, timestamp or length of time, or at least different ones for each."""
        from millpond.runtime.derive import derive_each  # here, as it imports DuckDB
        from millpond.runtime.row_queries import UncomputableError

        number = Points().of(value)
        spread = _transfer(int(number), TIME_VALUE)
        is_text, made = argument.type.family is Family.STRING, []
        try:
            exact = str(value) if is_text else Points().value(number, argument.type)
            made = derive_each(replace(table, derived=(column,)), [{**row, argument.name: exact}])
        except (UncomputableError, ValueError, OverflowError):  # there is no such date
            exact = None
        if made and made[0][0][column.name] == value:
            return exact
        return str(spread) if is_text else _transfer(int(number), argument.type)

    def _surround(
        self, table: Table, column: Column, argument: Column, row: dict[str, Any], wanted: Any
    ) -> None:
        """Change a value so that it passes a filter: put a string that passes, such as LIKE 'x%', before and
        after it; give a number the wanted remainder."""
        assert column.derivation is not None
        passing, value = self._invert(table, column, argument, row).find(wanted), row[argument.name]
        modulus = re.search(r"% (\d+)\b", column.derivation.sql)
        if wanted is True and isinstance(passing, str) and isinstance(value, str):
            row[argument.name] = passing + value + passing
        elif modulus and type(passing) is int and type(value) is int and value >= 0:
            row[argument.name] = value * int(modulus[1]) + passing

    def _invert(self, table: Table, column: Column, argument: Column, row: Mapping[str, Any]) -> _Inverse:
        """The inverse of the column in one of its arguments, the other columns being as in the row."""
        from millpond.runtime.derive import derive_each  # here, as it imports DuckDB
        from millpond.runtime.row_queries import UncomputableError

        assert column.derivation is not None
        others = tuple(row[name] for name in column.derivation.arguments if name != argument.name)
        key = column.name, argument.name, others
        if key not in self._inverses:
            tried = _list_small_values(argument.type, column.derivation.duckdb)
            rows = [{**row, argument.name: each} for each in tried]
            try:
                made = derive_each(replace(table, derived=(column,)), rows)
            except UncomputableError:
                made = []
            found: dict[Any, Any] = {}
            for value, each in zip(tried, made, strict=False):
                found.setdefault(each[0][column.name], value)
            values = {value: each[0][column.name] for value, each in zip(tried, made, strict=False)}
            line = _fit_line(values, column.derivation.duckdb)
            self._inverses[key] = _Inverse(found, argument.type, *line)
        return self._inverses[key]


def _find_exploded(table: Table, column: Column) -> str | None:
    """The array whose elements a column has, if it is a declared column."""
    derivation = column.derivation
    if derivation is None or not derivation.repeated or derivation.time is not None:
        return None
    name = next((each for each in derivation.arguments if derivation.sql == f"`{each}`"), None)
    is_array = name is not None and table.column(name).type.name.upper().startswith("ARRAY")
    return name if is_array else None


def _fit_line(values: Mapping[Any, Any], sql: str) -> tuple[Fraction | None, Fraction, int]:
    """Slope, intercept and step if the values of a function of numbers are on a line; else None.

    Either all values are, or those at the multiples of a constant of the expression.
    """
    for step in (1, *_list_steps(sql)):
        at_steps = {at // step: value for at, value in values.items() if _is_whole(at) and at % step == 0}
        if not at_steps.keys() >= _ON_LINE or not all(map(_is_exact, at_steps.values())):
            continue
        points = {int(at): Fraction(value) for at, value in at_steps.items()}
        intercept, slope = points[0], points[1] - points[0]
        if slope != 0 and all(value == intercept + slope * at for at, value in points.items()):
            return slope, intercept, step
    return None, Fraction(0), 1


def _is_whole(value: Any) -> bool:
    return _is_exact(value) and value == int(value)


def _is_exact(value: Any) -> bool:
    """Whether a value is a number without an error of rounding."""
    return type(value) in (int, Decimal) or (type(value) is float and value.is_integer())


def _list_steps(sql: str) -> list[int]:
    """The constants of an expression that can be the length of its steps."""
    return sorted({number for each in re.findall(r"\b\d{1,6}\b", sql) if (number := int(each)) > 1})


def _list_small_values(type_: SqlType, sql: str) -> list[Any]:
    """Values to try: small ones, and the constants of the expression without wildcards."""
    match type_.family:
        case Family.BOOLEAN:
            return [False, True]
        case Family.STRING:
            constants = [each.replace("''", "'") for each in re.findall(r"'((?:[^']|'')*)'", sql)]
            plain = [re.sub(r"[%^$()]|\.\*", "", each) for each in constants]
            plain += [re.sub(r"\[(.).*?\]\+?", r"\1", each) for each in plain]
            return [*dict.fromkeys([*plain, *_SHORT, *("a" * length for length in _LENGTHS)])]
        case Family.NUMBER:
            near = [int(each) + d for each in re.findall(r"\b\d{1,9}\b", sql) for d in (0, 1, -1)]
            near += [step * each for step in _list_steps(sql) for each in _ON_LINE]
            values = [v for v in [*_SMALL, *near] if type_.low is None or type_.low <= v <= (type_.high or v)]
            return [make_number(v, type_) for v in values]
        case Family.DATE:
            days = [_FIRST_DAY + timedelta(days=each) for each in range(0, 800, 7)]
            return days + [date(year, 1, 1) for year in range(1, 1000)]
        case _:
            return []


def make_number(value: float | Decimal | Fraction, type_: SqlType) -> int | float | Decimal:
    """A number as a value of a numeric type, rounded down and within its range."""
    if type_.step == 0:
        return float(value)
    units = floor(Fraction(value) / type_.step)
    if type_.low is not None and type_.high is not None:
        units = min(max(units, ceil(type_.low / type_.step)), floor(type_.high / type_.step))
    return units if type_.scale is None else Decimal(units).scaleb(-type_.scale)


def _transfer(value: Any, type_: SqlType) -> Any:
    """A value of the type, different ones for different values."""
    if type_.family is Family.STRING:
        return str(value)
    digits = re.search(r"\d+$", value) if isinstance(value, str) else None
    number = int(digits[0]) if digits else value if isinstance(value, int | float | Decimal) else 0
    match type_.family:
        case Family.NUMBER:
            if type_.step == 0:
                return float(number) * _SLOPE if _is_whole(number) else float(number)
            moved = Fraction(number)
            while (moved / type_.step).denominator != 1 and moved < _MAX_SCALE:
                moved *= 10  # different values stay different
            return make_number(moved, type_)
        case Family.DATE:
            return _FIRST_DAY + timedelta(days=int(number) % 10_000)
        case Family.TIME:  # different months
            return _FIRST_TIME + timedelta(days=31 * (int(number) % 90_000))
        case _:
            return None

"""Class codes: the classes of a column's values as integers, computed and decoded in SQL.

If n values have a class of their own, their codes are 0 to n - 1.  The next codes are those of all values
below, of all values above, and of NULL, if these can occur.  The codes of several columns are packed into
one integer key.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, prod

from millpond.errors import MillpondError
from millpond.plan.classes import ColumnClasses
from millpond.query.closure import Range
from millpond.query.number_line import Points
from millpond.query.types import Family, SqlType
from millpond.runtime.filters import bound_sql, comparable_sql, range_sql
from millpond.runtime.sql import Dialect, any_of, literal_sql

# A packed key has fewer combinations than this, so that it fits a BIGINT.
MAX_COMBINATIONS = 1 << 62
# Up to this many isolated values have a CASE for each value.
_MAX_LISTED = 256


class TooManyClassesError(MillpondError):
    """The classes of a column cannot be numbered in a BIGINT."""


@dataclass(frozen=True)
class ClassCode:
    """The classes of one column, numbered from 0."""

    classes: ColumnClasses
    type: SqlType
    points: Points

    @property
    def radix(self) -> int:
        """The number of codes."""
        radix = self._values + self.classes.below + self.classes.above + self.classes.null
        if radix >= MAX_COMBINATIONS:
            raise TooManyClassesError(
                f"{self.classes.column} has {radix:,} values to distinguish", remedy="bound it more closely"
            )
        return max(radix, 1)

    @property
    def is_exact(self) -> bool:
        """Whether every value is a class of its own."""
        return not self.classes.below and not self.classes.above and self.classes.grid is None

    @property
    def is_consecutive(self) -> bool:
        """Whether the code is the value minus the lowest value."""
        return self.is_exact and self.type.step == 1 and self._listed is None

    @property
    def _listed(self) -> tuple[Fraction, ...] | None:
        """The values, if they are few and isolated, or of a dense type; None if they form a range."""
        classes = self.classes
        singles = {r.low for r in classes.allowed if r.low is not None and r.low == r.high}
        inside = tuple(sorted(p for p in singles if classes.low <= p <= classes.high))
        if not self.type.step:
            return inside or ((classes.low,) if classes.low == classes.high else ())
        single = len(singles) == len({(r.low, r.high) for r in classes.allowed})
        wide = (classes.high - classes.low) / self.type.step > 4 * len(inside)
        return inside if inside and single and wide and len(inside) <= _MAX_LISTED else None

    @property
    def _units(self) -> tuple[int, int]:
        """The first and the last value, as multiples of the type's step."""
        return ceil(self.classes.low / self.type.step), floor(self.classes.high / self.type.step)

    @property
    def _values(self) -> int:
        """The number of values that have a class of their own."""
        if self.classes.low > self.classes.high:
            return 0
        if self.classes.grid is not None:
            first, last = self._cells
            return 2 * (last - first) + 2
        if (listed := self._listed) is not None:
            return len(listed)
        first, last = self._units
        return max(last - first + 1, 0)

    @property
    def _cells(self) -> tuple[int, int]:
        """The first and the last cell of the grid."""
        assert self.classes.grid is not None
        anchor, step = self.classes.grid
        return floor((self.classes.low - anchor) / step), floor((self.classes.high - anchor) / step)

    # --- from values to codes ---------------------------------------------------------------------

    def code_sql(self, x: str, dialect: Dialect) -> str:
        """The code of the value ``x``; NULL for a value of no class."""
        classes, after = self.classes, self._values
        cases: list[tuple[str, str]] = []
        beyond: list[tuple[str, str]] = []
        if classes.below:
            beyond.append((self.is_below_sql(x, dialect), str(after)))
            after += 1
        if classes.above:
            beyond.append((self.is_above_sql(x, dialect), str(after)))
            after += 1
        if classes.null:
            cases.append((f"{x} IS NULL", str(after)))
        cases += beyond
        otherwise = "NULL" if not self._values else self._inner_code_sql(x, dialect)
        if not cases:
            return otherwise
        return f"CASE {' '.join(f'WHEN {when} THEN {then}' for when, then in cases)} ELSE {otherwise} END"

    def _inner_code_sql(self, x: str, dialect: Dialect) -> str:
        """The code of a value that has a class of its own."""
        if self.classes.grid is not None:
            return self._grid_code_sql(x)
        if (listed := self._listed) is not None:
            cases = " ".join(
                f"WHEN {x} = {self.literal(point, dialect)} THEN {i}" for i, point in enumerate(listed)
            )
            return f"CASE {cases} END"
        first, last = self._units
        wide = not -(1 << 31) <= first <= last < 1 << 31 or last - first >= 1 << 31
        kind = "BIGINT" if wide else "INT"
        match self.type.family:
            case Family.BOOLEAN:
                units = f"CAST({x} AS INT)"
            case Family.DATE:
                units = dialect.days(x)
            case _ if self.type.step == 1:
                units = x if not wide and self.type.name == "INT" else f"CAST({x} AS {kind})"
            case _:
                units = f"CAST({x} * {1 / self.type.step} AS BIGINT)"
        return f"({units} - {first})" if first > 0 else f"({units} + {-first})" if first else f"({units})"

    def _grid_code_sql(self, x: str) -> str:
        """Twice the number of the grid point; one more between it and the next."""
        assert self.classes.grid is not None
        anchor, step = self.classes.grid
        scale = 1
        while (anchor * scale).denominator > 1 or (step * scale).denominator > 1:
            scale *= 10
        start, width = int(anchor * scale), int(step * scale)
        near = f"CAST(round(({x} * {scale} - {start}) / {width}) AS BIGINT)"
        point = f"(CAST({start} + {near} * {width} AS DOUBLE) / {scale})"
        first = 2 * self._cells[0]
        return (
            f"(2 * {near} - ({first}) + CASE WHEN {x} > {point} THEN 1 WHEN {x} < {point} THEN -1 ELSE 0 END)"
        )

    def is_below_sql(self, x: str, dialect: Dialect) -> str:
        """SQL for: the value lies below all that have a class of their own."""
        return f"{comparable_sql(x, self.type, dialect)} < {self._bound(self.classes.low, dialect)}"

    def is_above_sql(self, x: str, dialect: Dialect) -> str:
        """SQL for: the value lies above all that have a class of their own."""
        return f"{comparable_sql(x, self.type, dialect)} > {self._bound(self.classes.high, dialect)}"

    def _bound(self, point: Fraction, dialect: Dialect) -> str:
        return bound_sql(point, self.type, self.points, dialect)

    def literal(self, point: Fraction, dialect: Dialect) -> str:
        return literal_sql(self.points.value(point, self.type), self.type, dialect)

    # --- from codes to values ---------------------------------------------------------------------

    @property
    def is_decodable(self) -> bool:
        """Whether the value follows from the code."""
        if not self.is_exact:
            return False
        return self._listed is not None or self.type.step in (0, 1) or not self._values

    def value_sql(self, code: str) -> str:
        """The value of a code, in DuckDB."""
        kind = Dialect.DUCKDB.type_of(self.type)
        if not self._values:
            return f"CAST(NULL AS {kind})"
        if (listed := self._listed) is not None:
            cases = " ".join(
                f"WHEN {i} THEN {self.literal(point, Dialect.DUCKDB)}" for i, point in enumerate(listed)
            )
            return f"CASE {code} {cases} END"
        first, _ = self._units
        units = f"({code} + ({first}))"
        match self.type.family:
            case Family.BOOLEAN:
                text = f"({units} = 1)"
            case Family.DATE:
                text = f"(DATE '1970-01-01' + CAST({units} AS INT))"
            case _:
                text = f"CAST({units} AS {kind})"
        return f"CASE WHEN {code} < {self._values} THEN {text} END" if self.classes.null else text


def allowed_sql(x: str, code: ClassCode, known: Range | None, dialect: Dialect) -> str:
    """SQL for: the value, known to be in ``known``, lies in one of the ranges in which a row can match."""
    classes = code.classes
    ranges = [r for r in classes.allowed if r != known]
    if not ranges or len(ranges) < len(classes.allowed):
        return "TRUE"
    if any(r.low is None and r.high is None for r in ranges):
        return "TRUE"
    inside = [range_sql(x, r, code.type, code.points, dialect) for r in ranges]
    if "TRUE" in inside:
        return "TRUE"
    return any_of([*([f"{x} IS NULL"] if classes.null else []), *inside])


@dataclass(frozen=True)
class PackedKey:
    """Class codes packed into one integer as digits of mixed radix, the first the most significant."""

    codes: tuple[ClassCode, ...]

    @property
    def combinations(self) -> int:
        return prod(code.radix for code in self.codes)

    @property
    def type(self) -> str:
        return "INT" if self.combinations < 1 << 31 else "BIGINT"

    def pack_sql(self, texts: list[str]) -> str:
        """The key of the given codes."""
        if not texts:
            return "0"
        if self.type == "BIGINT":
            texts = [f"CAST({t} AS BIGINT)" for t in texts]
        packed = texts[0]
        for code, text in zip(self.codes[1:], texts[1:], strict=True):
            packed = f"({packed} * {code.radix} + {text})"
        return packed

    def weight(self, position: int) -> int:
        """By how much the key grows when the code at a position grows by 1."""
        return prod(code.radix for code in self.codes[position + 1 :])

    def unpack_sql(self, position: int, key: str) -> str:
        """The code at a position of the key, in DuckDB."""
        weight = self.weight(position)
        text = f"({key} // {weight})" if weight > 1 else key
        return f"({text} % {self.codes[position].radix})" if position else text


def pack_codes(codes: list[ClassCode]) -> tuple[PackedKey, ...]:
    """Packs the codes, in order, into as few keys as possible; at least one."""
    keys: list[list[ClassCode]] = [[]]
    combinations = 1
    for code in codes:
        if combinations * code.radix >= MAX_COMBINATIONS:
            keys.append([])
            combinations = 1
        keys[-1].append(code)
        combinations *= code.radix
    return tuple(PackedKey(tuple(key)) for key in keys)

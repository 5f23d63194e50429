"""Classes of values as small integers, in SQL: the digit of a value, and the value of a digit.

A column with n values told apart has the digits 0 to n - 1 for them, then one for everything below,
one for everything above and one for NULL, as far as these can occur.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from millpond.errors import MillpondError
from millpond.plan.classes import ColumnClasses
from millpond.query.closure import Range
from millpond.query.number_line import Points
from millpond.query.types import Family, SqlType
from millpond.runtime.filters import bound_sql, comparable_sql, range_sql
from millpond.runtime.sql import Dialect, any_of, literal_sql

# A word of a key holds fewer classes than this, so that it fits a BIGINT with room to spare.
WORD = 1 << 62
# Up to so many single values a digit is looked up rather than computed.
_LISTED = 256


class TooLarge(MillpondError):
    """The classes of a column cannot be numbered in a BIGINT."""


@dataclass(frozen=True)
class Digit:
    """The classes of one column, numbered."""

    code: ColumnClasses
    type: SqlType
    points: Points

    @property
    def radix(self) -> int:
        radix = self._values + self.code.below + self.code.above + self.code.null
        if radix >= WORD:
            raise TooLarge(
                f"{self.code.column} has {radix:,} values to be told apart", remedy="bound it more closely"
            )
        return max(radix, 1)

    @property
    def exact(self) -> bool:
        """Every value is a class of its own."""
        return not self.code.below and not self.code.above and self.code.grid is None

    @property
    def counts_up(self) -> bool:
        """The digit counts the values from the lowest on."""
        return self.exact and self.type.step == 1 and self._listed is None

    @property
    def _listed(self) -> tuple[Fraction, ...] | None:
        """The values one by one, where they are few and far between or have no neighbours."""
        code = self.code
        singles = {r.low for r in code.allowed if r.low is not None and r.low == r.high}
        inside = tuple(sorted(p for p in singles if code.low <= p <= code.high))
        if not self.type.step:
            return inside or ((code.low,) if code.low == code.high else ())
        single = len(singles) == len({(r.low, r.high) for r in code.allowed})
        wide = (code.high - code.low) / self.type.step > 4 * len(inside)
        return inside if inside and single and wide and len(inside) <= _LISTED else None

    @property
    def _units(self) -> tuple[int, int]:
        """The first and the last value, counted in steps of the type."""
        return ceil(self.code.low / self.type.step), floor(self.code.high / self.type.step)

    @property
    def _values(self) -> int:
        if self.code.low > self.code.high:
            return 0
        if self.code.grid is not None:
            first, last = self._cells
            return 2 * (last - first) + 2
        if (listed := self._listed) is not None:
            return len(listed)
        first, last = self._units
        return max(last - first + 1, 0)

    @property
    def _cells(self) -> tuple[int, int]:
        assert self.code.grid is not None
        anchor, step = self.code.grid
        return floor((self.code.low - anchor) / step), floor((self.code.high - anchor) / step)

    # --- from values to digits ---------------------------------------------------------------------

    def of(self, x: str, dialect: Dialect) -> str:
        """The digit of the value that ``x`` spells; NULL for a value of no class."""
        code, after = self.code, self._values
        cases: list[tuple[str, str]] = []
        beyond: list[tuple[str, str]] = []
        if code.below:
            beyond.append((self.below(x, dialect), str(after)))
            after += 1
        if code.above:
            beyond.append((self.above(x, dialect), str(after)))
            after += 1
        if code.null:
            cases.append((f"{x} IS NULL", str(after)))
        cases += beyond
        otherwise = "NULL" if not self._values else self._inside(x, dialect)
        if not cases:
            return otherwise
        return f"CASE {' '.join(f'WHEN {when} THEN {then}' for when, then in cases)} ELSE {otherwise} END"

    def _inside(self, x: str, dialect: Dialect) -> str:
        if self.code.grid is not None:
            return self._on_grid(x)
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

    def _on_grid(self, x: str) -> str:
        """Twice the number of the grid point, plus one between it and the next."""
        assert self.code.grid is not None
        anchor, step = self.code.grid
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

    def below(self, x: str, dialect: Dialect) -> str:
        """The value lies below all that are told apart."""
        return f"{comparable_sql(x, self.type, dialect)} < {self._bound(self.code.low, dialect)}"

    def above(self, x: str, dialect: Dialect) -> str:
        return f"{comparable_sql(x, self.type, dialect)} > {self._bound(self.code.high, dialect)}"

    def _bound(self, point: Fraction, dialect: Dialect) -> str:
        return bound_sql(point, self.type, self.points, dialect)

    def literal(self, point: Fraction, dialect: Dialect) -> str:
        return literal_sql(self.points.value(point, self.type), self.type, dialect)

    # --- from digits to values ---------------------------------------------------------------------

    @property
    def readable(self) -> bool:
        """The value can be told from the digit."""
        if not self.exact:
            return False
        return self._listed is not None or self.type.step in (0, 1) or not self._values

    def value(self, digit: str) -> str:
        """The value (in DuckDB) of the digit that the text spells."""
        kind = Dialect.DUCKDB.type_of(self.type)
        if not self._values:
            return f"CAST(NULL AS {kind})"
        if (listed := self._listed) is not None:
            cases = " ".join(
                f"WHEN {i} THEN {self.literal(point, Dialect.DUCKDB)}" for i, point in enumerate(listed)
            )
            return f"CASE {digit} {cases} END"
        first, _ = self._units
        units = f"({digit} + ({first}))"
        match self.type.family:
            case Family.BOOLEAN:
                text = f"({units} = 1)"
            case Family.DATE:
                text = f"(DATE '1970-01-01' + CAST({units} AS INT))"
            case _:
                text = f"CAST({units} AS {kind})"
        return f"CASE WHEN {digit} < {self._values} THEN {text} END" if self.code.null else text


def admitted(x: str, digit: Digit, known: Range | None, dialect: Dialect) -> str:
    """The value can take part in a match, as far as the ranges of its code say; ``known`` holds already."""
    ranges = [r for r in digit.code.allowed if r != known]
    if not ranges or len(ranges) < len(digit.code.allowed):
        return "TRUE"
    if any(r.low is None and r.high is None for r in ranges):
        return "TRUE"
    inside = [range_sql(x, r, digit.type, digit.points, dialect) for r in ranges]
    if "TRUE" in inside:
        return "TRUE"
    return any_of([*([f"{x} IS NULL"] if digit.code.null else []), *inside])


@dataclass(frozen=True)
class Word:
    """Some digits packed into one integer, the first the most significant."""

    digits: tuple[Digit, ...]

    @property
    def size(self) -> int:
        size = 1
        for digit in self.digits:
            size *= digit.radix
        return size

    @property
    def type(self) -> str:
        return "INT" if self.size < 1 << 31 else "BIGINT"

    def of(self, texts: list[str]) -> str:
        """The word of the given digits."""
        if not texts:
            return "0"
        if self.type == "BIGINT":
            texts = [f"CAST({t} AS BIGINT)" for t in texts]
        packed = texts[0]
        for digit, text in zip(self.digits[1:], texts[1:], strict=True):
            packed = f"({packed} * {digit.radix} + {text})"
        return packed

    def below(self, position: int) -> int:
        """What one of a digit counts in the word."""
        below = 1
        for digit in self.digits[position + 1 :]:
            below *= digit.radix
        return below

    def digit(self, position: int, word: str) -> str:
        """A digit out of the word (in DuckDB)."""
        below = self.below(position)
        text = f"({word} // {below})" if below > 1 else word
        return f"({text} % {self.digits[position].radix})" if position else text


def packed(digits: list[Digit]) -> tuple[Word, ...]:
    """The digits in as few words as hold them; always at least one word."""
    words: list[list[Digit]] = [[]]
    size = 1
    for digit in digits:
        if size * digit.radix >= WORD:
            words.append([])
            size = 1
        words[-1].append(digit)
        size *= digit.radix
    return tuple(Word(tuple(w)) for w in words)

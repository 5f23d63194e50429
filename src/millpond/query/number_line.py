"""Maps SQL values to points on the number line, and back.

A number is itself, a date is its number of days, a boolean is 0 or 1.  Strings have an order but no
arithmetic: the n-th string constant of a query is the point n, and any other string lies between two
constants, below the first or above the last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from millpond.query.expressions import Scalar
from millpond.query.types import Family, SqlType

_EPOCH = date(1970, 1, 1).toordinal()
_EPOCH_TIME = datetime(1970, 1, 1)
# Between a constant and the counter comes the first of these that still sorts before the next constant.
# The colon in comparisons below sorts after every digit.
_MARKS = ("!", " ", "\x01")


@dataclass(frozen=True)
class Points:
    """The map between values and points for one query, given its string constants in order."""

    strings: tuple[str, ...] = ()

    @staticmethod
    def with_strings(constants: Iterable[str]) -> Points:
        """The map for a query with these string constants."""
        return Points(tuple(sorted(set(constants))))

    def of(self, value: Scalar) -> Fraction:
        """The point of a value.

        >>> Points().of(date(1970, 1, 3)), Points(("a", "b")).of("b"), Points().of(0.5)
        (Fraction(2, 1), Fraction(2, 1), Fraction(1, 2))
        >>> points = Points(("m",))
        >>> points.of("") < points.of("a") < points.of("aa") < points.of("m") == 1 < points.of("ma")
        True
        """
        match value:
            case str():
                return self._string_point(value)
            case datetime():
                return Fraction((value.replace(tzinfo=None) - _EPOCH_TIME) // timedelta(microseconds=1))
            case date():
                return Fraction(value.toordinal() - _EPOCH)
            case timedelta():
                return Fraction(value // timedelta(microseconds=1))
            case None:
                raise ValueError("NULL is not a point")
            case _:
                return Fraction(value)

    def _string_point(self, text: str) -> Fraction:
        """The number of a constant, or an order-preserving point between two constants."""
        below = bisect_left(self.strings, text)
        if below < len(self.strings) and self.strings[below] == text:
            return Fraction(below + 1)
        digits = Fraction(0)
        for byte in reversed(text.encode("utf-8", "surrogatepass")):
            digits = (digits + byte + 1) / 257
        return below + (1 + digits) / 3

    def value(self, point: Fraction, type_: SqlType) -> Scalar:
        """The value of a type at a point; for several strings use ``strings_at``."""
        match type_.family:
            case Family.BOOLEAN:
                return point != 0
            case Family.DATE:
                return date.fromordinal(int(point) + _EPOCH)
            case Family.TIME | Family.WINDOW:
                return _EPOCH_TIME + timedelta(microseconds=int(point))
            case Family.INTERVAL:
                return timedelta(microseconds=int(point))
            case Family.STRING:
                return self.strings_at([point])[point]
            case Family.NUMBER:
                if type_.step == 0:
                    return float(point)
                if type_.step == 1:
                    return int(point)
                assert type_.scale is not None
                return _decimal(point, type_.scale)
            case Family.ARRAY | Family.NESTED:
                raise ValueError("an array is not a point")

    def strings_at(self, points: Iterable[Fraction]) -> dict[Fraction, str]:
        """Strings for all points at once, in the order of the points.

        Raises ValueError if there is no room: no string lies between 'a' and 'a' followed by NUL.

        >>> Points(("a", "b")).strings_at([Fraction(1), Fraction(3, 2)])
        {Fraction(1, 1): 'a', Fraction(3, 2): 'a!0'}
        """
        out: dict[Fraction, str] = {}
        count: dict[int, int] = {}
        distinct = sorted(set(points))
        digits = len(str(len(distinct) - 1))
        for point in distinct:
            if point.denominator == 1 and 1 <= point <= len(self.strings):
                out[point] = self.strings[int(point) - 1]
                continue
            gap = min(max(int(point // 1), 0), len(self.strings))
            out[point] = f"{self._room(gap)}{count.get(gap, 0):0{digits}d}"
            count[gap] = count.get(gap, 0) + 1
        return out

    def _room(self, gap: int) -> str:
        """A prefix for strings between the constant before a gap and the one after it."""
        before = self.strings[gap - 1] if gap else ""
        for mark in _MARKS:
            if gap == len(self.strings) or f"{before}{mark}:" <= self.strings[gap]:
                return before + mark
        raise ValueError(f"no room for a string below {self.strings[gap]!r}")


def _decimal(point: Fraction, scale: int) -> Decimal:
    """The exact decimal, whatever the precision of the context."""
    units = int(point * 10**scale)
    digits = tuple(int(d) for d in str(abs(units)))
    return Decimal((int(units < 0), digits, -scale))

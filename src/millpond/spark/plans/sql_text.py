"""SQL text with the precedence of its outermost operator, and stretches of time as text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Precedence(IntEnum):
    """How tightly the outermost operator of an expression binds its operands."""

    OR = 1
    AND = 2
    NOT = 3
    COMPARISON = 4
    BITS = 5
    SUM = 6
    PRODUCT = 7
    SIGN = 8
    ATOM = 9


@dataclass(frozen=True)
class Sql:
    """An expression as SQL text.

    ``column`` is set if it is a plain column: its alias and its name.  ``pivoted``: it stands for an array of
    such values, one for each value of a pivot column.
    """

    text: str
    level: Precedence = Precedence.ATOM
    column: tuple[str, str] | None = None
    pivoted: bool = False

    def within(self, level: Precedence) -> str:
        """The text as an operand of an operator that binds as tightly as ``level``."""
        return self.text if self.level >= level else f"({self.text})"


_UNITS = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
    ("microsecond", 1),
)


def render_duration(microseconds: int) -> str:
    """A stretch of time in its largest unit.

    >>> render_duration(300_000_000), render_duration(90_000_000), render_duration(1_000_000)
    ('5 minutes', '90 seconds', '1 second')
    """
    unit, size = next(each for each in _UNITS if microseconds % each[1] == 0)
    number = microseconds // size
    return f"{number} {unit}{'' if number == 1 else 's'}"


def render_interval(microseconds: int) -> str:
    """A stretch of time as a constant of SQL.

    >>> render_interval(300_000_000)
    "INTERVAL '5' MINUTE"
    """
    number, unit = render_duration(microseconds).split()
    return f"INTERVAL '{number}' {unit.removesuffix('s').upper()}"

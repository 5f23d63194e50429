"""Typed expressions and conditions over columns.

All nodes are immutable.  Names are resolved (a ``Ref`` names an occurrence of a table and a column as
declared), types are checked, and ``BETWEEN`` and ``IN`` are rewritten as comparisons.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from millpond.errors import Position
from millpond.query.types import SqlType

Scalar = int | float | Decimal | str | bool | date | datetime | timedelta | None


class Op(Enum):
    """A comparison operator."""

    LT = "<"
    LE = "<="
    EQ = "="
    GE = ">="
    GT = ">"
    NE = "<>"

    @property
    def opposite(self) -> Op:
        """The operator of the negated comparison: ``NOT a < b`` is ``a >= b``."""
        return _OPPOSITE[self]

    @property
    def mirrored(self) -> Op:
        """The operator after both sides are swapped: ``a < b`` is ``b > a``."""
        return _MIRRORED[self]

    def compare(self, left: Any, right: Any) -> Any:
        """``left OP right`` of two Python values."""
        return self.function(left, right)

    @property
    def function(self) -> Callable[[Any, Any], Any]:
        """The function of two Python values."""
        return _COMPARE[self]


_OPPOSITE = {Op.LT: Op.GE, Op.LE: Op.GT, Op.EQ: Op.NE, Op.NE: Op.EQ, Op.GE: Op.LT, Op.GT: Op.LE}
_MIRRORED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.EQ: Op.EQ, Op.NE: Op.NE, Op.GE: Op.LE, Op.GT: Op.LT}
_COMPARE: dict[Op, Callable[[Any, Any], Any]] = {
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.EQ: operator.eq,
    Op.GE: operator.ge,
    Op.GT: operator.gt,
    Op.NE: operator.ne,
}


@dataclass(frozen=True)
class Literal:
    """A constant."""

    value: Scalar
    type: SqlType | None  # None: the untyped NULL


@dataclass(frozen=True)
class Ref:
    """A column of an occurrence: the alias of the occurrence and the declared name of the column."""

    occurrence: str
    column: str

    def __str__(self) -> str:
        return f"{self.occurrence}.{self.column}"


@dataclass(frozen=True)
class Arithmetic:
    """A binary operation on numbers, or on a date or timestamp and a number or duration."""

    operator: str  # + - * / %
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Negation:
    """``-operand``"""

    operand: Expr


@dataclass(frozen=True)
class Choice:
    """``CASE WHEN condition THEN chosen ELSE otherwise END``; the condition is a BOOLEAN column.

    Only arguments of aggregates over several tables contain it; over one table, CASE is a derived column.
    """

    condition: Ref
    chosen: Expr
    otherwise: Expr


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of ``query/aggregate_functions.py``.  ``COUNT(*)`` has no argument.

    ``others`` are further arguments: what orders the values of MAX_BY, more columns of COUNT(DISTINCT a, b),
    and constants such as the fraction of PERCENTILE.  ``distinct`` is set for COUNT, SUM and AVG only.
    """

    function: str
    argument: Expr | None
    distinct: bool = False
    text: str = field(default="", compare=False)
    others: tuple[Expr, ...] = ()

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """All arguments; none for ``COUNT(*)``."""
        return () if self.argument is None else (self.argument, *self.others)


Expr = Literal | Ref | Arithmetic | Negation | Choice | Aggregate


# --- conditions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """A comparison; ``text`` is the user's own spelling of the predicate, for messages."""

    left: Expr
    operator: Op
    right: Expr
    text: str = field(default="", compare=False)
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class IsNull:
    """``operand IS NULL``"""

    operand: Expr
    text: str = field(default="", compare=False)
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class And:
    """A conjunction."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True)
class Or:
    """A disjunction."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True)
class Not:
    """``NOT operand``; unknown if the operand is unknown."""

    operand: Condition


@dataclass(frozen=True)
class Truth:
    """A constant condition; None is SQL's UNKNOWN."""

    value: bool | None


@dataclass(frozen=True)
class NotTrue:
    """``operand IS NOT TRUE``: false or unknown.  It makes the branches of an OR disjoint under NULL."""

    operand: Condition


Condition = Comparison | IsNull | And | Or | Not | Truth | NotTrue
TRUE = Truth(True)

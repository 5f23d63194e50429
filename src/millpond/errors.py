"""One hierarchy for everything a user can get wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Position:
    """A place in the SQL text, both parts counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class MillpondError(Exception):
    """Base class: one clear line, where it is, and what to do about it.

    >>> print(MillpondError("no table named X", Position(3, 15), "declare it with CREATE STREAMING TABLE"))
    line 3, column 15: no table named X; declare it with CREATE STREAMING TABLE
    """

    def __init__(self, message: str, position: Position | None = None, remedy: str | None = None) -> None:
        self.message = message
        self.position = position
        self.remedy = remedy
        place = f"{position}: " if position else ""
        advice = f"; {remedy}" if remedy else ""
        super().__init__(f"{place}{message}{advice}")


class SqlError(MillpondError):
    """The text is not SQL of the language: syntax, a construct outside it, or too large to read."""


class SqlNameError(SqlError):
    """A table or column that does not exist, or is ambiguous."""


class SqlTypeError(SqlError):
    """Values of types that do not go together."""


class NotUnboundedError(MillpondError):
    """A witness of growth was asked for a query that has none."""


class WitnessSizeError(MillpondError):
    """A column's type has too few values for a witness of the size asked for."""


class NotBoundedError(MillpondError):
    """A query that is not known to be bounded is not run; ``explanation`` is the verdict in prose."""

    def __init__(self, message: str, explanation: str, remedy: str) -> None:
        super().__init__(message, remedy=remedy)
        self.explanation = explanation


class RunError(MillpondError):
    """A run failed: Spark, the data or the machine, not what the user wrote."""


def one_line(text: str, width: int = 60) -> str:
    """Text that is safe to put into a message: printable, on one line, not too long.

    >>> one_line("a  <\\n b", 5)
    'a < b'
    """
    flat = "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text[: 4 * width])
    flat = " ".join(flat.split())
    return flat if len(flat) <= width and len(text) <= 4 * width else flat[: width - 1] + "…"

"""The hierarchy of errors that users see."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral


@dataclass(frozen=True, order=True)
class Position:
    """A position in the SQL text; lines and columns count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class MillpondError(Exception):
    """Base class: a message of one line, the position in the SQL text, and a remedy.

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
    """The text is not valid: a syntax error, an unsupported construct, or a text that is too large."""


class SqlNameError(SqlError):
    """A table or column does not exist, or its name is ambiguous."""


class SqlTypeError(SqlError):
    """A value has the wrong type, or values of different types are combined."""


class UsageError(MillpondError, TypeError):
    """An argument of a function has the wrong type."""


class NotUnboundedError(MillpondError):
    """A witness was requested for a query that is not unbounded."""


class WitnessSizeError(MillpondError):
    """A column's type has too few values for a witness of the requested size."""


class NotBoundedError(MillpondError):
    """The query is not known to be bounded and cannot be run; ``explanation`` is the verdict as text."""

    def __init__(self, message: str, explanation: str, remedy: str) -> None:
        super().__init__(message, remedy=remedy)
        self.explanation = explanation


class RunError(MillpondError):
    """A run failed because of Spark, the data or the machine."""


def reword(error: MillpondError, words: Mapping[str, str]) -> MillpondError:
    """The same error in other words.

    >>> print(reword(MillpondError("too large", remedy="give --memory N"), {"--memory N": "memory=N"}))
    too large; give memory=N
    """
    changed = type(error).__new__(type(error))
    changed.__dict__.update(error.__dict__)
    changed.args = error.args
    for old, new in words.items():
        changed.message = changed.message.replace(old, new)
        changed.remedy = changed.remedy.replace(old, new) if changed.remedy is not None else None
        changed.args = (str(changed.args[0]).replace(old, new),)
        if isinstance(changed, NotBoundedError):
            changed.explanation = changed.explanation.replace(old, new)
    return changed


def require(is_right: bool, name: str, expected: str, given: object) -> None:
    """Raise UsageError unless the argument ``name`` has the expected type.

    >>> require(False, "memory", "a whole number", "x")
    Traceback (most recent call last):
    millpond.errors.UsageError: memory must be a whole number, not 'x'
    """
    if not is_right:
        shown = one_line(repr(given), 40) if isinstance(given, str | int | float | None) else ""
        raise UsageError(f"{name} must be {expected}, not {shown or type(given).__name__}")


def is_whole(value: object) -> bool:
    """Whether a value is a whole number; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


_OS_REASONS = {
    errno.ENOENT: "there is no such file or folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EISDIR: "it is a folder",
    errno.ENOTDIR: "a part of the path is a file",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "its symbolic links form a loop",
    errno.EMFILE: "too many files are open",
}


def describe_os_error(error: OSError) -> str:
    """Why the operating system refused, in a few words.

    >>> describe_os_error(FileNotFoundError(errno.ENOENT, "No such file or directory", "/a"))
    'there is no such file or folder'
    """
    reason = _OS_REASONS.get(error.errno or 0)
    return reason or one_line((error.strerror or str(error) or type(error).__name__).lower(), 200)


def one_line(text: str, width: int = 60) -> str:
    """The text made fit for a message: printable, on one line, and shortened to ``width``.

    >>> one_line("a  <\\n b", 5)
    'a < b'
    """
    flat = "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text[: 4 * width])
    flat = " ".join(flat.split())
    return flat if len(flat) <= width and len(text) <= 4 * width else flat[: width - 1] + "…"

"""Sample values of columns, with places that depend on the *key* and the *level* of a row.

Rows of a witness differ in their key, such as the group that they belong to, and in their level, such as the
number that is added up.  A sample says where in a value these are: a part of a string, a field of a JSON
document or of a struct, or the number itself.  Everything else is the same in all rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

from millpond.analysis.witness.realise import make_number
from millpond.query.types import SqlType

DIGITS = "0123456789"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TOKEN = 6  # characters on each side; tokens of letters have 26**6 values
_FIRST_DAY = date(2000, 1, 1)
_FIRST_TIME = datetime(2000, 1, 1)


class Sample(Protocol):
    """A value that depends on the key and the level of its row."""

    @property
    def varies(self) -> bool:
        """Whether rows with different keys have different values."""

    def make(self, key: int, level: int | None) -> Any:
        """The value in a row with a key and a level; without a level, the sample's own."""


@dataclass(frozen=True)
class Constant:
    """The same value in all rows."""

    value: Any
    varies: bool = False

    def make(self, key: int, level: int | None) -> Any:
        return self.value


@dataclass(frozen=True)
class Token:
    """A string of characters of an alphabet, another one for each key; both its ends differ."""

    alphabet: str = LETTERS
    varies: bool = True

    def make(self, key: int, level: int | None) -> str:
        if self.alphabet == DIGITS:
            return str(100_000_000 + key)  # an INT, too
        digits, rest = [], key
        for _ in range(_TOKEN):
            rest, digit = divmod(rest, len(self.alphabet))
            digits.append(self.alphabet[digit])
        return "".join([*digits, *reversed(digits)])


@dataclass(frozen=True)
class Number:
    """A number that rises by ``step`` from one key to the next; its level takes its place."""

    value: int
    type: SqlType
    step: int = 1
    has_level: bool = True

    @property
    def varies(self) -> bool:
        return self.step != 0

    def make(self, key: int, level: int | None) -> int | float | Decimal:
        start = self.value if level is None or not self.has_level else level
        number, (low, high) = start + self.step * key, (self.type.low, self.type.high)
        if self.type.step == 1 and low is not None and high is not None and low <= number <= high:
            return number
        return make_number(number, self.type)


@dataclass(frozen=True)
class TimeValue:
    """A date or a timestamp that is by ``days`` later for each key."""

    is_date: bool = False
    days: int = 1
    start: datetime | None = None

    @property
    def varies(self) -> bool:
        return self.days != 0

    def make(self, key: int, level: int | None) -> date | datetime:
        later = timedelta(days=self.days * key, seconds=0 if self.is_date else level or 0)
        first = self.start or _FIRST_TIME
        return first.date() + later if self.is_date else first + later


@dataclass(frozen=True)
class TimeText:
    """A moment as a string, in a format of ``strftime``."""

    moment: TimeValue
    format: str

    @property
    def varies(self) -> bool:
        return self.moment.varies

    def make(self, key: int, level: int | None) -> str:
        return self.moment.make(key, level).strftime(self.format)


@dataclass(frozen=True)
class Parts:
    """A string of several parts."""

    parts: tuple[Sample, ...]

    @property
    def varies(self) -> bool:
        return any(part.varies for part in self.parts)

    def make(self, key: int, level: int | None) -> str:
        return "".join(str(part.make(key, level)) for part in self.parts)


@dataclass(frozen=True)
class Fields:
    """A struct or a map."""

    fields: Mapping[str, Sample]

    @property
    def varies(self) -> bool:
        return any(each.varies for each in self.fields.values())

    def make(self, key: int, level: int | None) -> dict[str, Any]:
        return {name: each.make(key, level) for name, each in self.fields.items()}


@dataclass(frozen=True)
class Elements:
    """An array of one element."""

    element: Sample

    @property
    def varies(self) -> bool:
        return self.element.varies

    def make(self, key: int, level: int | None) -> list[Any]:
        return [self.element.make(key, level)]


@dataclass(frozen=True)
class Document:
    """A value as JSON."""

    content: Sample

    @property
    def varies(self) -> bool:
        return self.content.varies

    def make(self, key: int, level: int | None) -> str:
        return json.dumps(self.content.make(key, level), default=str)

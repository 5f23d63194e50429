"""The patterns of ``date_format``: what they write, and which calendar fields can be read from it."""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

# Up to this many texts, a pattern's texts are listed.
_MAX_TEXTS = 64
_MONTHS = [name[:3] for name in calendar.month_name[1:]]
_DAYS = list(calendar.day_name)
_PIECE = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|[^A-Za-z']+")


@dataclass(frozen=True)
class _Letters:
    """Pattern letters: what DuckDB writes for them, the field they determine, and all their texts."""

    duckdb: str
    field: str
    texts: Sequence[str] | None = None


def _numbers(low: int, high: int, digits: int = 1) -> list[str]:
    return [f"{number:0{digits}d}" for number in range(low, high + 1)]


_LETTERS: Mapping[str, _Letters] = {
    "yyyy": _Letters("%Y", "year"),
    "yy": _Letters("%y", "year of century", _numbers(0, 99, 2)),
    "MM": _Letters("%m", "month", _numbers(1, 12, 2)),
    "M": _Letters("%-m", "month", _numbers(1, 12)),
    "MMM": _Letters("%b", "month", _MONTHS),
    "MMMM": _Letters("%B", "month", calendar.month_name[1:]),
    "dd": _Letters("%d", "day", _numbers(1, 31, 2)),
    "d": _Letters("%-d", "day", _numbers(1, 31)),
    "DDD": _Letters("%j", "day of year", _numbers(1, 366, 3)),
    "HH": _Letters("%H", "hour", _numbers(0, 23, 2)),
    "H": _Letters("%-H", "hour", _numbers(0, 23)),
    "hh": _Letters("%I", "half hour", _numbers(1, 12, 2)),
    "h": _Letters("%-I", "half hour", _numbers(1, 12)),
    "a": _Letters("%p", "half day", ("AM", "PM")),
    "mm": _Letters("%M", "minute", _numbers(0, 59, 2)),
    "m": _Letters("%-M", "minute", _numbers(0, 59)),
    "ss": _Letters("%S", "second", _numbers(0, 59, 2)),
    "s": _Letters("%-S", "second", _numbers(0, 59)),
    "SSS": _Letters("%g", "millisecond", _numbers(0, 999, 3)),
    "SSSSSS": _Letters("%f", "microsecond"),
    **{"E" * n: _Letters("%a", "day of week", [name[:3] for name in _DAYS]) for n in (1, 2, 3)},
    "EEEE": _Letters("%A", "day of week", _DAYS),
}


@dataclass(frozen=True)
class DatePattern:
    """A pattern: its form for DuckDB, the fields that it determines, and its texts if they are few."""

    duckdb: str
    fields: frozenset[str]
    texts: tuple[str, ...] | None


def read_pattern(pattern: str) -> DatePattern:
    """Read a pattern of Spark's ``date_format``; ValueError says what is not supported.

    >>> read_pattern("yyyy-MM-dd'T'HH").duckdb, read_pattern("EEE").texts[:2]
    ('%Y-%m-%dT%H', ('Mon', 'Tue'))
    """
    pieces = [match[0] for match in _PIECE.finditer(pattern)]
    if "".join(pieces) != pattern:
        raise ValueError("has a quote in its pattern that is not closed")
    if re.search(r"[#\[\]{}]", pattern):
        raise ValueError("has one of # [ ] { } in its pattern, which is not supported")
    formatted, fields = "", set()
    texts: list[Sequence[str] | None] = []
    for piece in pieces:
        if piece[0].isalpha():
            letters = _LETTERS.get(piece)
            if letters is None:
                raise ValueError(f"has {piece} in its pattern; supported are {', '.join(_LETTERS)}")
            formatted += letters.duckdb
            fields.add(letters.field)
            texts.append(letters.texts)
        else:
            plain = (piece[1:-1].replace("''", "'") or "'") if piece[0] == "'" else piece
            formatted += plain.replace("%", "%%")
            texts.append((plain,))
    if {"half hour", "half day"} <= fields:
        fields.add("hour")
    known = [each for each in texts if each is not None]
    few = len(known) == len(texts) and prod(map(len, known)) <= _MAX_TEXTS
    listed = tuple("".join(each) for each in product(*known)) if few else None
    return DatePattern(formatted, frozenset(fields), listed)

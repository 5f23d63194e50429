"""Durations as users write them: '10 seconds', '1 hour 30 minutes'."""

from __future__ import annotations

import re

_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
# The words that an INTERVAL consists of.
INTERVAL_WORDS = frozenset(("INTERVAL", *(f"{unit}{s}".upper() for unit in _MICROS for s in ("", "s"))))
_UNIT = rf"(?:{'|'.join(_MICROS)})s?"
_WHOLE = re.compile(rf"\s*(?:interval\s+)?[0-9]+\s*{_UNIT}(?:\s+[0-9]+\s*{_UNIT})*\s*", re.IGNORECASE)
_PIECE = re.compile(rf"([0-9]+)\s*({'|'.join(_MICROS)})s?", re.IGNORECASE)


def parse_duration(text: str) -> int | None:
    """The microseconds of a duration; None if the text is not one.

    >>> parse_duration("10 seconds"), parse_duration("interval 1 minute 30 seconds"), parse_duration("soon")
    (10000000, 90000000, None)
    """
    if not _WHOLE.fullmatch(text):
        return None
    return sum(int(number) * _MICROS[unit.lower()] for number, unit in _PIECE.findall(text))

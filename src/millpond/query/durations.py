"""Durations and rates as users write them: '10 seconds', '1 hour 30 minutes', '1000 per second'."""

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
_RATE = re.compile(rf"\s*([0-9]+)\s+(?:rows\s+)?per\s+({'|'.join(_MICROS)})\s*", re.IGNORECASE)


def parse_duration(text: str) -> int | None:
    """The microseconds of a duration; None if the text is not one.

    >>> parse_duration("10 seconds"), parse_duration("interval 1 minute 30 seconds"), parse_duration("soon")
    (10000000, 90000000, None)
    """
    if not _WHOLE.fullmatch(text):
        return None
    return sum(int(number) * _MICROS[unit.lower()] for number, unit in _PIECE.findall(text))


def parse_rate(text: str) -> int | None:
    """The rows per second of a rate such as '1000 per second'; None if the text is not one.

    A rate per minute or hour is rounded up.

    >>> parse_rate("1000 per second"), parse_rate("90 per minute"), parse_rate("many")
    (1000, 2, None)
    """
    match = _RATE.fullmatch(text)
    if match is None:
        return None
    return -(-int(match[1]) * _MICROS["second"] // _MICROS[match[2].lower()])


def format_duration(micros: int) -> str:
    """A duration for a person.

    >>> [format_duration(micros) for micros in (3_600_000_000, 90_000_000, 1_500, 0)]
    ['1 h', '1 min 30 s', '0.0015 s', '0 s']
    """
    words = []
    for unit, name in (("day", "d"), ("hour", "h"), ("minute", "min")):
        count, micros = divmod(micros, _MICROS[unit])
        words += [f"{count} {name}"] if count else []
    if micros or not words:
        words.append(f"{micros / _MICROS['second']:.6f}".rstrip("0").rstrip(".") + " s")
    return " ".join(words)

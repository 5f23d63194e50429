"""What the tour claims, worded by what it measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Two times that differ by less than this factor count as equal.
_ABOUT_EQUAL = 1.05


@dataclass(frozen=True)
class Measured:
    """One side of a comparison: rows read so far, what is kept of them, and the seconds of all batches."""

    rows: int
    kept: int
    seconds: float


def compare_state(ours: Measured, theirs: Measured) -> str:
    """
    >>> compare_state(Measured(10**6, 1_000, 5.0), Measured(10**6, 1_003_000, 12.0))
    'Spark keeps 1,003 times as much as Millpond'
    >>> compare_state(Measured(100, 60, 5.0), Measured(100, 50, 12.0))
    'Millpond keeps 1.2 times as much as Spark'
    """
    if theirs.kept == ours.kept:
        return "both keep the same"
    more, less = ("Spark", "Millpond") if theirs.kept > ours.kept else ("Millpond", "Spark")
    least, most = sorted((ours.kept, theirs.kept))
    if least == 0:
        return f"{less} keeps nothing"
    return f"{more} keeps {format_ratio(most / least)} times as much as {less}"


def compare_speed(ours: Measured, theirs: Measured) -> str:
    """
    >>> compare_speed(Measured(10**6, 1_000, 5.0), Measured(10**6, 10**6, 12.0))
    'Millpond was 2.4 times as fast'
    >>> compare_speed(Measured(10, 1, 8.0), Measured(10, 10, 4.0))
    'Spark was 2.0 times as fast on this machine'
    >>> compare_speed(Measured(10, 1, 4.1), Measured(10, 10, 4.0))
    'both took about the same time'
    """
    if max(ours.seconds, theirs.seconds) <= _ABOUT_EQUAL * min(ours.seconds, theirs.seconds):
        return "both took about the same time"
    if min(ours.seconds, theirs.seconds) == 0:
        return f"{'Millpond' if ours.seconds == 0 else 'Spark'} was faster"
    if ours.seconds < theirs.seconds:
        return f"Millpond was {format_ratio(theirs.seconds / ours.seconds)} times as fast"
    return f"Spark was {format_ratio(ours.seconds / theirs.seconds)} times as fast on this machine"


def compare_answers(ours: Sequence[object], theirs: Sequence[object], thing: str) -> str:
    """
    >>> compare_answers([3, 1], [1, 3], "ad")
    'Both found the same 2 ads.'
    """
    things = f"{len(ours):,} {thing}{'' if len(ours) == 1 else 's'}"
    if sorted(map(str, ours)) == sorted(map(str, theirs)):
        return f"Both found the same {things}."
    return f"The answers differ: Millpond found {things}, Spark {len(theirs):,}."


def format_ratio(ratio: float) -> str:
    """A ratio with as many digits as it deserves, never rounded up.

    >>> [format_ratio(ratio) for ratio in (1.26, 9.99, 23.7, 1003.9)]
    ['1.2', '9.9', '23', '1,003']
    """
    return f"{int(ratio * 10) / 10:.1f}" if ratio < 10 else f"{int(ratio):,}"

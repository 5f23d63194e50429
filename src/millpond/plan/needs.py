"""What a bounded query in time needs; what is kept for it follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millpond.query.model import (
    Aggregate,
    Expr,
    Query,
    Ref,
    Select,
)
from millpond.query.parts import Part


@dataclass(frozen=True)
class TimedPlan:
    """The needs of every select."""

    query: Query
    selects: tuple[SelectNeeds, ...]


# The virtual stream whose only column asks "is there a result beyond this value?".
THRESHOLD = "?"


@dataclass(frozen=True)
class Measure:
    """What is added up over the rows of a class: the non-null values of an expression, or their number."""

    expression: Expr
    summed: bool


@dataclass(frozen=True)
class Need:
    """A join of the occurrences ``scope`` of a part.

    ``counted``: how often each combination of ``projected`` values occurs, with ``measures`` added up;
    otherwise only whether it occurs.  ``outer_columns`` are columns of other occurrences with which those in
    scope are compared.
    """

    part: Part
    scope: tuple[str, ...]
    counted: bool
    projected: tuple[Ref, ...]
    outer_columns: tuple[Ref, ...] = ()
    measures: tuple[Measure, ...] = ()
    aggregate: Aggregate | None = None


@dataclass(frozen=True)
class SelectNeeds:
    """The needs of one select, by part."""

    select: Select
    distinct: bool
    parts: tuple[tuple[Part, tuple[Need, ...]], ...]


def find_separate_needs(need: Need, wanted: Sequence[Need]) -> list[Need]:
    """The needs beside one of the same aggregate where its matches are all combinations of theirs: one is
    counted, of the others it matters only whether they match."""
    same = [other for other in wanted if other.aggregate == need.aggregate]
    if len(same) == 1 or not any(other.counted for other in same):
        return []
    return [other for other in same if other is not need]

"""What a select needs to be answered: joins that are counted, or of which only the existence matters."""

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
class Measure:
    """What is added up over the rows of a class: the non-null values of an expression, or their count."""

    expression: Expr
    summed: bool


@dataclass(frozen=True)
class Need:
    """A join of the occurrences ``scope`` of a part that has to be evaluated.

    ``counted``: how often does each combination of ``projected`` values occur, with ``measures`` added up.
    Otherwise only its existence matters.  ``outer_columns`` are columns of occurrences out of scope with
    which those in scope are compared.
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


@dataclass(frozen=True)
class TimedPlan:
    """The plan of a bounded query in which timestamps matter: the needs of every select.

    ``partial_matches.py`` derives from them which partial matches are kept.
    """

    query: Query
    selects: tuple[SelectNeeds, ...]


def find_separate_needs(need: Need, wanted: Sequence[Need]) -> list[Need]:
    """The other needs of an aggregate, if its matches are the cross product of their matches; otherwise none.

    One of them is counted; of the others only the existence of a match matters.
    """
    same = [other for other in wanted if other.aggregate == need.aggregate]
    if len(same) == 1 or not any(other.counted for other in same):
        return []
    return [other for other in same if other is not need]

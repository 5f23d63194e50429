"""What the criteria report when they fail: violations, and the parts and aggregates they concern."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from millpond.query.expressions import Aggregate, Ref
from millpond.query.parts import Part


class ViolationCode(StrEnum):
    """The criterion that fails; the values are the public codes of the reasons of an unbounded verdict."""

    UNBOUNDED_PROJECTION = "unbounded-projection"
    UNBOUNDED_GROUP = "unbounded-group"
    HOLISTIC_AGGREGATE = "holistic-aggregate"
    UNBOUNDED_EQUALITY_JOIN = "unbounded-equality-join"
    COUNTED_INEQUALITY_JOIN = "counted-inequality-join"
    COUNTED_DISEQUALITY_JOIN = "counted-disequality-join"
    CONFLICTING_REFERENCES = "conflicting-references"
    CONFLICTING_TIMES = "conflicting-times"


@dataclass(frozen=True)
class MovingColumns:
    """Columns of a witness whose values move together, from round to round, within one region.

    ``direction`` is +1 if values rise with the rounds and -1 if they fall.  Where two sets of columns move
    in one region, the one with the smaller ``level`` stays below the other in every round.
    """

    columns: tuple[Ref, ...]
    region: int
    direction: int = 1
    level: int = 0


@dataclass(frozen=True)
class Violation:
    """A criterion that fails: any number of rows of ``kept_alias`` must be distinguished.

    ``joins`` are the cross-stream joins involved, as pairs (lower side, upper side).  A witness is built by
    moving the ``moving`` columns; ``alternatives`` are other choices of columns to move.
    """

    code: ViolationCode
    kept_alias: str
    columns: tuple[Ref, ...]
    joins: tuple[tuple[Ref, Ref], ...]
    moving: tuple[MovingColumns, ...]
    alternatives: tuple[tuple[MovingColumns, ...], ...] = ()


@dataclass(frozen=True)
class Failure:
    """A violation in one part of a select, for one aggregate or (None) for the select as a whole.

    ``alone``: the part is the whole query, so no other part can hide the violation.  ``complete`` is False
    if the search for a bound was abandoned because it became too large.  ``unsplit``: the part fails, and so
    does one of the pieces into which its disjunctive filters split it.  A column can be bounded in each piece
    without being bounded in the part, so only the failures of the pieces are reasons.
    """

    part: Part
    violation: Violation
    aggregate: Aggregate | None = None
    alone: bool = True
    complete: bool = True
    unsplit: bool = False

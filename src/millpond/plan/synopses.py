"""The plan of the exact engine: which synopsis is kept of each stream.

A counted need keeps a count (and measures) for each combination of classes (section 7.1 of paper 1).  An
existence need keeps, for each combination, the rows with the weakest requirements on the other streams
(section 7.2), with the slack of each join, and alternatives to a best row that a ``<>`` join can exclude.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations
from math import prod

from millpond.plan.classes import ColumnClasses
from millpond.plan.needs import Measure, Need
from millpond.query.expressions import Ref
from millpond.query.model import Query, Select
from millpond.query.parts import Part
from millpond.query.trees import aliases_in, conjuncts

# The zones of a column: below, between and above the constants of its join partners.
UNDER, AMONG, OVER = -1, 0, 1


@dataclass(frozen=True)
class Extreme:
    """Which rows of a class are kept: those with the weakest requirements.

    With ``smallest``, a row requires each partner z to be at least (if strict: above) the maximum of
    ``x - slack`` over its ``columns`` x; the smallest is the weakest.  Otherwise it requires z to be at most
    the minimum of ``x + slack``; the largest is the weakest.  ``slacks[z][x]`` is (slack, strict).  The
    requirements of a row on different partners differ in ``spreads`` ways at most.
    """

    smallest: bool
    columns: tuple[Ref, ...]
    partners: tuple[Ref, ...]
    slacks: tuple[tuple[tuple[Fraction, bool], ...], ...]
    spreads: int

    def requirements(self, points: Sequence[Fraction]) -> tuple[tuple[Fraction, bool], ...]:
        """The requirement on each partner; a larger one is stronger if ``smallest``, else weaker.

        The flag sorts a strict requirement as the stronger one.
        """
        if self.smallest:
            return tuple(
                max((x - slack, strict) for x, (slack, strict) in zip(points, row, strict=True))
                for row in self.slacks
            )
        return tuple(
            min((x + slack, not strict) for x, (slack, strict) in zip(points, row, strict=True))
            for row in self.slacks
        )


@dataclass(frozen=True)
class ZonePattern:
    """Which rows are kept of those whose ``zoned`` columns lie in the given zones."""

    zones: tuple[int, ...]
    extremes: tuple[Extreme, ...]


@dataclass(frozen=True)
class StreamPlan:
    """The synopsis of one occurrence.

    A counted need has ``classes`` and ``measures``.  An existence need has ``classes``, ``patterns`` for the
    zones of the ``zoned`` columns, and ``differing`` columns: those in ``<>`` joins without a finite range.
    """

    alias: str
    stream: str
    counted: bool
    classes: tuple[ColumnClasses, ...]
    measures: tuple[Measure, ...] = ()
    zoned: tuple[ColumnClasses, ...] = ()
    patterns: tuple[ZonePattern, ...] = ()
    differing: tuple[Ref, ...] = ()

    @property
    def entries(self) -> int:
        """The bound of the synopsis: the number of combinations of classes, times the rows kept of each."""
        classes = prod(code.classes for code in self.classes)
        if self.counted:
            return classes
        rows = count_alternatives(len(self.differing))
        total = 0
        for pattern in self.patterns:
            zones = prod(zone_size(code, zone) for code, zone in zip(self.zoned, pattern.zones, strict=True))
            total += zones * (sum(e.spreads for e in pattern.extremes) or 1)
        return classes * rows * total


def count_alternatives(k: int) -> int:
    """The rows to keep for k ``<>`` joins: the best, and the best that differs from it in each column.

    >>> [count_alternatives(k) for k in range(4)]
    [1, 2, 5, 16]
    """
    return 1 + k * count_alternatives(k - 1) if k else 1


def zone_size(classes: ColumnClasses, zone: int) -> int:
    """The number of classes in a zone."""
    return {UNDER: int(classes.below), AMONG: classes.values, OVER: int(classes.above)}[zone]


@dataclass(frozen=True)
class SynopsisPlan:
    """The synopses of a need, one per stream; none if every row is answered on its own."""

    need: Need
    streams: tuple[StreamPlan, ...]


@dataclass(frozen=True)
class ExactSelectPlan:
    """The synopses of a select; ``results`` are, by part, the classes of remembered result rows or groups."""

    select: Select
    distinct: bool
    needs: tuple[SynopsisPlan, ...]
    results: tuple[tuple[Part, tuple[ColumnClasses, ...]], ...]


@dataclass(frozen=True)
class ExactPlan:
    """The plan of a bounded query in which timestamps do not matter: everything that is kept."""

    query: Query
    selects: tuple[ExactSelectPlan, ...]


def merge_shared(plans: Iterable[SynopsisPlan]) -> list[tuple[Part, StreamPlan]]:
    """Each synopsis once, with one of the parts that share it and the measures of all of them."""
    out: dict[object, tuple[Part, StreamPlan]] = {}
    for plan in plans:
        for stream in plan.streams:
            key = sharing_key(plan.need.part, stream)
            part, known = out.get(key, (plan.need.part, stream))
            measures = tuple(dict.fromkeys((*known.measures, *stream.measures)))
            out[key] = part, replace(known, measures=measures)
    return list(out.values())


def sharing_key(part: Part, stream: StreamPlan) -> object:
    """Equal for needs that share the synopsis of a stream: they keep the same classes of the same rows.

    The parts of a disjunction often differ in their conditions on one stream only.
    """
    closure, alias = part.closure, stream.alias
    columns = [node.ref for node in closure.nodes if node.ref.occurrence == alias]
    present = [ref for ref in columns if ref in part.non_null]
    return (
        replace(stream, measures=()),
        frozenset(c for c in conjuncts(part.condition) if aliases_in(c) == {alias}),
        frozenset((ref, closure.range(ref), part.can_be_null(ref)) for ref in columns),
        frozenset((a, b, closure.bound(a, b)) for a, b in permutations(present, 2)),
        tuple((ref, expression) for ref, expression in part.derived if ref.occurrence == alias),
    )

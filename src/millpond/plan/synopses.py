"""What is kept of each stream so that a bounded query can be answered.

Counted joins keep a count (and measures) for each combination of classes.  Joins that are only looked for
keep, for each combination, the rows that demand least of the other streams: section 7.2 of paper 1,
with every join's own slack, and with the rows that a ``<>`` join may refuse the best one for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from millpond.plan.classes import ColumnClasses
from millpond.plan.needs import Measure, Need
from millpond.query.model import Query, Ref, Select
from millpond.query.parts import Part

# Zones of a column relative to the constants that its join partners know.
UNDER, AMONG, OVER = -1, 0, 1


@dataclass(frozen=True)
class Extreme:
    """The rows that demand least: of all rows of a class, those with the best demand are enough.

    With ``smallest``, a row demands of each partner z to be at least the largest ``x - slack`` over its
    ``columns`` x (more, where strict); smaller demands are better.  Otherwise at most the smallest
    ``x + slack``; larger is better.  ``slacks[z][x]`` is (slack, strict).  Demands on different partners
    differ by boundedly many amounts, ``spreads`` in all.
    """

    smallest: bool
    columns: tuple[Ref, ...]
    partners: tuple[Ref, ...]
    slacks: tuple[tuple[tuple[Fraction, bool], ...], ...]
    spreads: int

    def demands(self, points: Sequence[Fraction]) -> tuple[tuple[Fraction, bool], ...]:
        """The demand on each partner; larger is harder if ``smallest``, else the reverse.

        The flag sorts a strict demand as the harder one.
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
    """Which extremes to keep for rows whose ``zoned`` columns lie in the given zones."""

    zones: tuple[int, ...]
    extremes: tuple[Extreme, ...]


@dataclass(frozen=True)
class StreamPlan:
    """The synopsis of one occurrence."""

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
        """The product of the class counts, times the rows kept of a class."""
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
    """Rows enough for k ``<>`` joins: the best, and the best that differs from it in each column.

    >>> [count_alternatives(k) for k in range(4)]
    [1, 2, 5, 16]
    """
    return 1 + k * count_alternatives(k - 1) if k else 1


def zone_size(code: ColumnClasses, zone: int) -> int:
    return {UNDER: int(code.below), AMONG: code.values, OVER: int(code.above)}[zone]


@dataclass(frozen=True)
class SynopsisPlan:
    """The synopses of a need; none where every row is answered by itself."""

    need: Need
    streams: tuple[StreamPlan, ...]


@dataclass(frozen=True)
class ExactSelectPlan:
    """``results`` are, by part, the classes of the result rows or groups that must be remembered."""

    select: Select
    distinct: bool
    needs: tuple[SynopsisPlan, ...]
    results: tuple[tuple[Part, tuple[ColumnClasses, ...]], ...]


@dataclass(frozen=True)
class ExactPlan:
    """Everything kept for a bounded query."""

    query: Query
    selects: tuple[ExactSelectPlan, ...]


def merge_shared(plans: Iterable[SynopsisPlan]) -> list[SynopsisPlan]:
    """Needs that keep the same classes share one synopsis, with the measures of all of them."""
    out: dict[object, SynopsisPlan] = {}
    for plan in plans:
        key = sharing_key(plan)
        if key not in out:
            out[key] = plan
            continue
        streams = tuple(
            replace(a, measures=tuple(dict.fromkeys((*a.measures, *b.measures))))
            for a, b in zip(out[key].streams, plan.streams, strict=True)
        )
        out[key] = replace(out[key], streams=streams)
    return list(out.values())


def sharing_key(plan: SynopsisPlan) -> object:
    """What needs must have in common to share a synopsis."""
    return (
        id(plan.need.part) if plan.need.counted else plan.need.part.condition,
        plan.need.counted,
        tuple(replace(s, measures=()) for s in plan.streams),
    )

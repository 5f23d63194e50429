"""Certificates in time: when each row of a layout arrives, and which rows must have come before it.

A layout says what rows there are; here each optional row gets those that must be earlier as company, so
that it can match at all, and every row gets its moment.  Probes come after everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property
from itertools import product

from millpond.analysis.witness.candidates import Clue, Placed, Sketch
from millpond.query.model import Ref
from millpond.query.number_line import Points
from millpond.query.time_order import TimeGroup, TimeOrder, find_time_columns

Values = frozenset[tuple[Ref, Fraction]]

_SECOND = Fraction(1_000_000)
# No layout starts earlier.
_FIRST = Points().of(datetime(2000, 1, 1, tzinfo=UTC))


def in_time(clue: Clue, sketch: Sketch) -> Iterator[Sketch]:
    """The layout with moments; none where its optional rows are of a stream that ends.

    Each optional row has a company of its own, or one at the beginning serves all; but what must come at
    the same moment comes with every row.
    """
    schedule = _Schedule(clue)
    keeper = sketch.universe[0].occurrence
    if schedule.order.is_finite(schedule.group(keeper)):
        return
    company, together = schedule.company(keeper), schedule.mates(keeper)
    if sketch.shared is not None:
        own = schedule.and_later([a for a in company if a not in sketch.shared or a in together], company)
        yield _arranged(schedule, sketch, own)
        return
    schedules = [schedule]
    if _is_ratio(clue):
        schedules += [
            other
            for other in (_Schedule(clue, meeting=True), _Schedule(clue, all_past=True))
            if other.differs(sketch)
        ]
    for each, plan in product((company, together) if len(together) < len(company) else (company,), schedules):
        if sketch.step_by_step:
            yield _arranged(plan, sketch, each, in_turn=True)
            continue
        yield _arranged(plan, sketch, each)
        if any(len({id(p.assignment) for p in probe}) > 1 for probe in sketch.probes) and _is_ratio(clue):
            yield _arranged(plan, sketch, each, in_turn=True)


def _is_ratio(clue: Clue) -> bool:
    """What comes between the rows of a probe may weigh them differently."""
    return clue.aggregate is not None and clue.aggregate.function in ("AVG", "MEDIAN")


def _arranged(schedule: _Schedule, sketch: Sketch, each: Sequence[str], in_turn: bool = False) -> Sketch:
    """Of the company of optional rows ``each`` come with every one, the others before the first.

    ``in_turn``: the assignments of a probe come one after the other, not all at once.
    """
    keeper = sketch.universe[0].occurrence
    past = schedule.past(sketch)
    clock = _Clock(schedule)
    there = [alias for alias in schedule.company(keeper) if alias not in each]
    first, rounds = sketch.universe[0].assignment, {id(placed.assignment) for placed in sketch.universe}
    setup = [*past, *clock.together([Placed(alias, first) for alias in there])]

    def complete(rows: Sequence[Placed]) -> list[Placed]:
        return schedule.lasting(schedule.joined_by_mates(schedule.accompanied(rows, keeper, each), keeper))

    setup += clock.feed(complete(sketch.setup), in_turn=sketch.shared is not None)
    universe: list[Placed] = []
    for placed in sketch.universe:
        rows = clock.together([*(Placed(alias, placed.assignment) for alias in each), placed])
        setup += rows[:-1]
        universe.append(rows[-1])
    probes = []
    for probe in sketch.probes:
        later = _Clock(schedule, clock.now)
        wanted = [
            placed
            for placed in probe
            if placed.occurrence not in there or (sketch.step_by_step and id(placed.assignment) not in rounds)
        ]
        if sketch.shared is None:
            probes.append(later.feed(complete(wanted), in_turn))
        else:
            values = complete([placed for placed in wanted if placed.occurrence == keeper])
            rest = [
                placed for placed in wanted if placed.occurrence not in (keeper, *schedule.company(keeper))
            ]
            probes.append([*later.feed(values, in_turn=True), *later.together(complete(rest))])
    return replace(
        sketch,
        setup=_by_moment(setup),
        universe=tuple(universe),
        probes=tuple(_by_moment(probe) for probe in probes),
    )


def _by_moment(rows: Iterable[Placed]) -> tuple[Placed, ...]:
    """The rows as they are fed, those of relations first."""
    return tuple(sorted(rows, key=lambda p: (p.moment is not None, p.moment or 0)))


@dataclass(frozen=True)
class _Schedule:
    """What a part's order in time asks of the rows of a layout.

    ``meeting``: rows whose streams only must not match at the same moment come at the same moment.
    ``all_past``: relations and streams that end hold every row that is asked of them, not one each.
    """

    clue: Clue
    meeting: bool = False
    all_past: bool = False

    def differs(self, sketch: Sketch) -> bool:
        """Whether this is another schedule for the layout than the plain one."""
        plain = _Schedule(self.clue)
        return self.levels != plain.levels or len(self.past(sketch)) > len(plain.past(sketch))

    @cached_property
    def order(self) -> TimeOrder:
        return self.clue.ordering.time

    def group(self, alias: str) -> TimeGroup:
        return self.order.group_of(alias)

    def company(self, alias: str) -> list[str]:
        """The occurrences that must have come before a row of ``alias``, or with it."""
        down = self.order.groups_up_to(self.group(alias))
        return [a for a in self.clue.aliases if a != alias and self.group(a) in down]

    def mates(self, alias: str) -> list[str]:
        """The occurrences whose rows come at the same moment as those of ``alias``."""
        return [a for a in self.clue.aliases if a != alias and a in self.group(alias)]

    def and_later(self, aliases: Sequence[str], company: Sequence[str]) -> list[str]:
        """These of the company and those that come after some of them."""
        groups = {self.group(alias) for alias in aliases}
        return [a for a in company if a in aliases or groups & self.order.groups_up_to(self.group(a))]

    def accompanied(self, rows: Sequence[Placed], keeper: str, company: Sequence[str]) -> list[Placed]:
        """The rows, and before each of the keeper's among them its company."""
        out: list[Placed] = []
        for placed in rows:
            if placed.occurrence == keeper:
                out += self._missing(company, placed, rows)
            out.append(placed)
        return out

    def joined_by_mates(self, rows: Sequence[Placed], keeper: str) -> list[Placed]:
        """The rows, each with those that must come at its moment.

        A mate of the keeper that comes without it can match nothing, and is left out.
        """
        kept = {id(p.assignment) for p in rows if p.occurrence == keeper}
        idle = self.mates(keeper)
        useful = [p for p in rows if p.occurrence not in idle or id(p.assignment) in kept]
        out = list(useful)
        for placed in useful:
            out += self._missing(self.mates(placed.occurrence), placed, out)
        return out

    def _missing(self, aliases: Iterable[str], beside: Placed, rows: Iterable[Placed]) -> list[Placed]:
        """Rows of these occurrences in the same assignment, as far as there are none."""
        there = {p.occurrence for p in rows if p.assignment is beside.assignment}
        return [Placed(alias, beside.assignment) for alias in aliases if alias not in there]

    def lasting(self, rows: Iterable[Placed]) -> list[Placed]:
        """The rows of streams that do not end."""
        return [p for p in rows if not self.order.is_finite(self.group(p.occurrence))]

    def past(self, sketch: Sketch) -> list[Placed]:
        """Rows of every relation and of every stream that ends."""
        ended = [alias for group in self.order.groups if self.order.is_finite(group) for alias in group]
        if not self.all_past:
            first = (*sketch.setup, *sketch.universe)[0].assignment
            return [self._past_row(Placed(alias, first)) for alias in ended]
        asked: dict[str, Counter[Values]] = {alias: Counter() for alias in ended}
        rows: dict[Values, Placed] = {}
        for placed in (*sketch.setup, *sketch.probes[0]):
            if placed.occurrence in asked:
                values = frozenset(
                    (r, v) for r, v in placed.assignment.items() if r.occurrence == placed.occurrence
                )
                asked[placed.occurrence][values] += 1
                rows.setdefault(values, placed)
        wanted = [list(counts.elements()) for counts in asked.values()]
        return [self._past_row(rows[values], i) for each in wanted for i, values in enumerate(each)]

    def _past_row(self, placed: Placed, number: int = 0) -> Placed:
        """The row at its moment; where it may be earlier, some rows are, lest many share one."""
        clock = find_time_columns(self.clue.ordering.part.select).get(placed.occurrence)
        moment = placed.assignment.get(clock) if clock else None
        if moment is not None and clock is not None and self._has_no_past(clock):
            moment -= number
        return replace(placed, moment=moment)

    def _has_no_past(self, clock: Ref) -> bool:
        """Nothing is known that such a row must come after."""
        closure = self.clue.ordering.closure
        i = closure.index[clock]
        return closure.range(clock).low is None and int(closure.finite[:, i].sum()) <= 1

    @cached_property
    def levels(self) -> dict[TimeGroup, int]:
        """A place for each endless group, after those that come before it and after those that must not
        come at the same moment."""
        levels: dict[TimeGroup, int] = {}
        for group in sorted(self.order.endless, key=lambda g: len(self.order.groups_up_to(g))):
            down = self.order.groups_up_to(group)
            before = [levels[g] for g in levels if g in down or self._kept_apart(g, group)]
            levels[group] = 1 + max(before, default=-1)
        return levels

    def _kept_apart(self, one: TimeGroup, other: TimeGroup) -> bool:
        return not self.meeting and self.order.is_never_together(one, other)

    @cached_property
    def beginning(self) -> Fraction:
        """A moment after every constant that a timestamp is compared with, and after all that ends."""
        closure = self.clue.ordering.closure
        ends = [_FIRST]
        clocks = set(find_time_columns(self.clue.ordering.part.select).values())
        for clock in clocks & set(closure.index):
            r = closure.range(clock)
            ends += [x for x in (r.low, r.high) if x is not None]
        ends += [d.value for d in self.clue.ordering.part.apart if d.left in clocks and d.right is None]
        return (max(ends) // _SECOND + 2) * _SECOND


class _Clock:
    """Gives rows their moments, one after the other."""

    def __init__(self, schedule: _Schedule, now: Fraction | None = None) -> None:
        self._schedule = schedule
        self.now = schedule.beginning if now is None else now

    def feed(self, rows: Sequence[Placed], in_turn: bool) -> list[Placed]:
        if not in_turn:
            return self.together(rows)
        stages: dict[int, list[Placed]] = {}
        for placed in rows:
            stages.setdefault(id(placed.assignment), []).append(placed)
        return [placed for stage in stages.values() for placed in self.together(stage)]

    def together(self, rows: Sequence[Placed]) -> list[Placed]:
        """Moments for rows of which each stream comes after those that must be before it."""
        assignments: dict[int, int] = {}
        for placed in rows:
            assignments.setdefault(id(placed.assignment), len(assignments))
        levels = self._schedule.levels
        width = len(assignments)
        out = []
        for placed in rows:
            level = levels[self._schedule.group(placed.occurrence)]
            step = level * width + assignments[id(placed.assignment)]
            out.append(replace(placed, moment=self.now + step * _SECOND))
        self.now += (max(levels.values(), default=0) + 1) * max(width, 1) * _SECOND
        return out

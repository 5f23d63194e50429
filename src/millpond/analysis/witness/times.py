"""Assigns timestamps to the rows of a candidate, and adds rows that must be earlier.

A candidate says which rows there are.  Here each optional row gets the *company* it needs to match:
rows of the occurrences that must be earlier or at the same timestamp.  Probes come after all other rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property
from itertools import product

from millpond.analysis.witness.moments import Moments, add_fields, arrange_moments
from millpond.analysis.witness.source import CandidateRow, WitnessCandidate, WitnessSource
from millpond.query.aggregate_functions import is_ratio
from millpond.query.expressions import Ref
from millpond.query.number_line import Points
from millpond.query.time_order import TimeGroup, TimeOrder, find_time_columns

Values = frozenset[tuple[Ref, Fraction]]

_SECOND = Fraction(1_000_000)
# The earliest timestamp of a witness.
_FIRST = Points().of(datetime(2000, 1, 1, tzinfo=UTC))


def assign_times(source: WitnessSource, candidate: WitnessCandidate) -> Iterator[WitnessCandidate]:
    """The candidate with timestamps, in several ways; none if its optional rows belong to a finite stream.

    Each optional row has its own company, or one at the start serves all.  Rows that must have the same
    timestamp come with every row.
    """
    schedule = _Schedule(source)
    kept_alias = candidate.universe[0].occurrence
    if schedule.order.is_finite(schedule.group(kept_alias)):
        return
    company, together = schedule.company(kept_alias), schedule.peers(kept_alias)
    if candidate.shared is not None:
        own = schedule.with_later([a for a in company if a not in candidate.shared or a in together], company)
        yield _arrange(schedule, candidate, own)
        return
    schedules = [schedule]
    if _is_ratio(source):
        schedules += [
            other
            for other in (_Schedule(source, meeting=True), _Schedule(source, all_past=True))
            if other.differs(candidate)
        ]
    for each, plan in product((company, together) if len(together) < len(company) else (company,), schedules):
        if candidate.step_by_step:
            yield _arrange(plan, candidate, each, in_turn=True)
            continue
        yield _arrange(plan, candidate, each)
        if any(len({id(p.assignment) for p in probe}) > 1 for probe in candidate.probes) and _is_ratio(
            source
        ):
            yield _arrange(plan, candidate, each, in_turn=True)


def _is_ratio(source: WitnessSource) -> bool:
    """The aggregate is a ratio, so rows between those of a probe may change their weight."""
    return source.aggregate is not None and is_ratio(source.aggregate)


def _arrange(
    schedule: _Schedule, candidate: WitnessCandidate, each: Sequence[str], in_turn: bool = False
) -> WitnessCandidate:
    """The candidate with timestamps: company in ``each`` comes with every optional row, other company first.

    ``in_turn``: the assignments of a probe come one after the other, not at once.
    """
    kept_alias = candidate.universe[0].occurrence
    past = schedule.past(candidate)
    sequence = _TimestampSequence(schedule)
    there = [alias for alias in schedule.company(kept_alias) if alias not in each]
    first, rounds = candidate.universe[0].assignment, {id(row.assignment) for row in candidate.universe}
    setup = [*past, *sequence.assign([CandidateRow(alias, first) for alias in there])]

    def complete(rows: Sequence[CandidateRow]) -> list[CandidateRow]:
        return schedule.keep_endless(
            schedule.add_peers(schedule.add_company(rows, kept_alias, each), kept_alias)
        )

    setup += sequence.assign_rows(complete(candidate.setup), in_turn=candidate.shared is not None)
    universe: list[CandidateRow] = []
    for row in candidate.universe:
        rows = sequence.assign([*(CandidateRow(alias, row.assignment) for alias in each), row])
        setup += rows[:-1]
        universe.append(rows[-1])
    probes = []
    for probe in candidate.probes:
        later = _TimestampSequence(schedule, sequence.now)
        wanted = [
            row
            for row in probe
            if row.occurrence not in there or (candidate.step_by_step and id(row.assignment) not in rounds)
        ]
        if candidate.shared is None:
            probes.append(later.assign_rows(complete(wanted), in_turn))
        else:
            values = complete([row for row in wanted if row.occurrence == kept_alias])
            rest = [
                row for row in wanted if row.occurrence not in (kept_alias, *schedule.company(kept_alias))
            ]
            probes.append([*later.assign_rows(values, in_turn=True), *later.assign(complete(rest))])
    return replace(
        candidate,
        setup=_sort_by_timestamp(setup),
        universe=tuple(universe),
        probes=tuple(_sort_by_timestamp(probe) for probe in probes),
    )


def _sort_by_timestamp(rows: Iterable[CandidateRow]) -> tuple[CandidateRow, ...]:
    """The rows in the order in which they are fed, relations first."""
    return tuple(sorted(rows, key=lambda p: (p.timestamp is not None, p.timestamp or 0)))


@dataclass(frozen=True)
class _Schedule:
    """What the time order of a part requires of the rows of a candidate.

    ``meeting``: rows get equal timestamps even if their streams never match at equal timestamps.
    ``all_past``: relations and finite streams contain every row of the candidate, not just one each.
    """

    source: WitnessSource
    meeting: bool = False
    all_past: bool = False

    def differs(self, candidate: WitnessCandidate) -> bool:
        """The schedule treats the candidate differently from the plain one."""
        plain = _Schedule(self.source)
        return self.levels != plain.levels or len(self.past(candidate)) > len(plain.past(candidate))

    @cached_property
    def order(self) -> TimeOrder:
        return self.source.regions.time

    def group(self, alias: str) -> TimeGroup:
        return self.order.group_of(alias)

    def company(self, alias: str) -> list[str]:
        """The occurrences whose rows must be earlier than a row of ``alias``, or at the same timestamp."""
        down = self.order.groups_up_to(self.group(alias))
        return [a for a in self.source.aliases if a != alias and self.group(a) in down]

    def peers(self, alias: str) -> list[str]:
        """The other occurrences in the time group of ``alias``."""
        return [a for a in self.source.aliases if a != alias and a in self.group(alias)]

    def with_later(self, aliases: Sequence[str], company: Sequence[str]) -> list[str]:
        """The given occurrences, and those of the company that come after one of them."""
        groups = {self.group(alias) for alias in aliases}
        return [a for a in company if a in aliases or groups & self.order.groups_up_to(self.group(a))]

    def add_company(
        self, rows: Sequence[CandidateRow], kept_alias: str, company: Sequence[str]
    ) -> list[CandidateRow]:
        """The rows, with the company of each row of ``kept_alias`` before it."""
        out: list[CandidateRow] = []
        for row in rows:
            if row.occurrence == kept_alias:
                out += self._missing_rows(company, row, rows)
            out.append(row)
        return out

    def add_peers(self, rows: Sequence[CandidateRow], kept_alias: str) -> list[CandidateRow]:
        """The rows, each with those that must have the same timestamp.

        A peer of ``kept_alias`` without a row of ``kept_alias`` cannot match and is left out.
        """
        kept = {id(p.assignment) for p in rows if p.occurrence == kept_alias}
        idle = self.peers(kept_alias)
        useful = [p for p in rows if p.occurrence not in idle or id(p.assignment) in kept]
        out = list(useful)
        for row in useful:
            out += self._missing_rows(self.peers(row.occurrence), row, out)
        return out

    def _missing_rows(
        self, aliases: Iterable[str], beside: CandidateRow, rows: Iterable[CandidateRow]
    ) -> list[CandidateRow]:
        """Rows of these occurrences in the assignment of ``beside``, unless ``rows`` has them."""
        there = {p.occurrence for p in rows if p.assignment is beside.assignment}
        return [CandidateRow(alias, beside.assignment) for alias in aliases if alias not in there]

    def keep_endless(self, rows: Iterable[CandidateRow]) -> list[CandidateRow]:
        """The rows of endless streams."""
        return [p for p in rows if not self.order.is_finite(self.group(p.occurrence))]

    def past(self, candidate: WitnessCandidate) -> list[CandidateRow]:
        """Rows for every relation and every finite stream."""
        ended = [alias for group in self.order.groups if self.order.is_finite(group) for alias in group]
        if not self.all_past:
            first = (*candidate.setup, *candidate.universe)[0].assignment
            return [self._past_row(CandidateRow(alias, first)) for alias in ended]
        asked: dict[str, Counter[Values]] = {alias: Counter() for alias in ended}
        rows: dict[Values, CandidateRow] = {}
        for row in (*candidate.setup, *candidate.probes[0]):
            if row.occurrence in asked:
                values = frozenset(
                    (r, v) for r, v in row.assignment.items() if r.occurrence == row.occurrence
                )
                asked[row.occurrence][values] += 1
                rows.setdefault(values, row)
        wanted = [list(counts.elements()) for counts in asked.values()]
        return [self._past_row(rows[values], i) for each in wanted for i, values in enumerate(each)]

    def _past_row(self, row: CandidateRow, number: int = 0) -> CandidateRow:
        """The row with its timestamp; rows that may be earlier are spread, so that few share a timestamp."""
        time_column = find_time_columns(self.source.regions.part.select).get(row.occurrence)
        timestamp = row.assignment.get(time_column) if time_column else None
        if timestamp is not None and time_column is not None and self._can_be_earlier(time_column):
            timestamp -= number
        return replace(row, timestamp=timestamp)

    def _can_be_earlier(self, time_column: Ref) -> bool:
        """No condition bounds the timestamp from below."""
        closure = self.source.regions.closure
        i = closure.index[time_column]
        return closure.range(time_column).low is None and int(closure.finite[:, i].sum()) <= 1

    @cached_property
    def levels(self) -> dict[TimeGroup, int]:
        """The position of each endless group, after groups that must be earlier or at another timestamp."""
        levels: dict[TimeGroup, int] = {}
        for group in sorted(self.order.endless, key=lambda g: len(self.order.groups_up_to(g))):
            down = self.order.groups_up_to(group)
            before = [levels[g] for g in levels if g in down or self._must_differ(g, group)]
            levels[group] = 1 + max(before, default=-1)
        return levels

    @cached_property
    def offsets(self) -> dict[str, int]:
        """By how many microseconds each row of a time group comes after the first: within all windows.

        They are as small as the difference bounds allow, so that the rows also share their time buckets.
        """
        offsets: dict[str, int] = {}
        for group in self.order.endless:
            for alias in group:
                lags = [self.order.max_lag(other, alias) for other in group if other != alias]
                offsets[alias] = max([0, *(-lag for lag in lags if lag is not None)])
        return offsets

    @cached_property
    def pause(self) -> Fraction:
        """The time between two steps: so long that rows of different steps share no window."""
        longest = self.order.horizon + max(self.offsets.values(), default=0)
        return (2 * longest // _SECOND + 1) * _SECOND

    @cached_property
    def moments(self) -> Moments:
        """The moments of the witness."""
        return arrange_moments(self.source.select, self.beginning, self.pause)

    def _must_differ(self, one: TimeGroup, other: TimeGroup) -> bool:
        return not self.meeting and self.order.is_never_together(one, other)

    @cached_property
    def beginning(self) -> Fraction:
        """A timestamp after all constants that timestamps are compared with, and after all finite streams."""
        closure = self.source.regions.closure
        ends = [_FIRST]
        time_columns = set(find_time_columns(self.source.regions.part.select).values())
        for time_column in time_columns & set(closure.index):
            r = closure.range(time_column)
            ends += [x for x in (r.low, r.high) if x is not None]
        ends += [
            d.value for d in self.source.regions.part.apart if d.left in time_columns and d.right is None
        ]
        return (max(ends) // _SECOND + 2) * _SECOND


class _TimestampSequence:
    """Gives rows increasing timestamps."""

    def __init__(self, schedule: _Schedule, now: int = 0) -> None:
        self._schedule = schedule
        self.now = now

    def assign_rows(self, rows: Sequence[CandidateRow], in_turn: bool) -> list[CandidateRow]:
        if not in_turn:
            return self.assign(rows)
        stages: dict[int, list[CandidateRow]] = {}
        for row in rows:
            stages.setdefault(id(row.assignment), []).append(row)
        return [row for stage in stages.values() for row in self.assign(stage)]

    def assign(self, rows: Sequence[CandidateRow]) -> list[CandidateRow]:
        """The rows with timestamps; each stream comes after those that must be earlier."""
        assignments: dict[int, int] = {}
        for row in rows:
            assignments.setdefault(id(row.assignment), len(assignments))
        levels = self._schedule.levels
        width = len(assignments)
        out = []
        for row in rows:
            level = levels[self._schedule.group(row.occurrence)]
            step = level * width + assignments[id(row.assignment)]
            timestamp = self._schedule.moments.at(self.now + step) + self._schedule.offsets[row.occurrence]
            timestamp += add_fields(self._schedule.source.select, row.occurrence, row.assignment)
            out.append(replace(row, timestamp=timestamp))
        self.now += (max(levels.values(), default=0) + 1) * max(width, 1)
        return out

"""The SQL that finds new partial matches: arriving rows joined with the partial matches that wait for them.

A statement processes a whole micro-batch, however many timestamps it spans.  An as-of join finds the partial
matches as they were when a row arrived.  In the SQL, ``e`` are arriving rows, ``k`` the series and ``h`` the
timeline of older partial matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations, permutations

from millpond.engines.timed.pareto_fronts import ALWAYS
from millpond.engines.timed.tables import InputTable, MatchTables, match_tables
from millpond.engines.timed.time_slices import TimeSlice, find_slice
from millpond.engines.timed.value_sql import as_number, to_micros
from millpond.plan.classes import NoPlanError
from millpond.plan.partial_matches import Arrival, PartialMatchSet, Requirement, TimedNeed
from millpond.query.closure import Disequality
from millpond.query.expressions import Ref
from millpond.query.parts import type_of
from millpond.query.time_order import find_time_columns
from millpond.query.trees import conjuncts, refs
from millpond.query.types import Domain, Family
from millpond.runtime.sql import ColumnSql, Dialect, all_of, condition_sql, number_sql


class PartialMatchSql:
    """SQL for the partial matches of one need.  ``zone`` is the time zone of timestamps in the query."""

    def __init__(self, timed: TimedNeed, inputs: Sequence[InputTable], number: int, zone: str) -> None:
        self.timed = timed
        self.zone = zone
        self.number = number
        self.inputs = {each.alias: each for each in inputs}
        self.counted = timed.need.counted
        self.measures = timed.need.measures
        self.horizon = timed.order.horizon
        self._tables = {id(p.match_set): match_tables(number, i) for i, p in enumerate(timed.sets)}

    def tables(self, match_set: PartialMatchSet) -> MatchTables:
        return self._tables[id(match_set)]

    @property
    def complete(self) -> PartialMatchSet:
        """The set of all streams, whose matches are complete."""
        return self.timed.sets[-1].match_set

    # --- columns of the tables -------------------------------------------------------------------------

    def result_columns(self, match_set: PartialMatchSet) -> list[str]:
        return [f"p{self.timed.result_columns.index(ref)}" for ref in match_set.result_columns]

    def requirements(self, match_set: PartialMatchSet) -> list[str]:
        return [f"c{i}" for i in range(len(match_set.requirements))]

    def exact_requirements(self, match_set: PartialMatchSet) -> list[str]:
        return [f"c{i}" for i, r in enumerate(match_set.requirements) if r.exact]

    def differing(self, match_set: PartialMatchSet) -> list[str]:
        return [f"q{i}" for i in range(len(match_set.differing))]

    def key(self, match_set: PartialMatchSet) -> list[str]:
        return [
            *self.result_columns(match_set),
            *self.requirements(match_set),
            *self.differing(match_set),
        ]

    def counts(self) -> list[str]:
        if not self.counted:
            return []
        return ["n", *(f"{c}{i}" for i in range(len(self.measures)) for c in "fs")]

    # --- new matches -----------------------------------------------------------------------------------

    def new_matches(
        self, match_set: PartialMatchSet, arrivals: Sequence[Arrival], sliced: bool = False
    ) -> str:
        """The new matches of a set with their timestamps, over all ways in which they can arise.

        With ``sliced``, rows within a window of each other are found by slices of time (``slice_width``).
        """
        texts = [self._arrival_sql(match_set, arrival, sliced) for arrival in arrivals]
        columns = ["t", *self.key(match_set)]
        if not texts:
            raise NoPlanError("no arrival completes the matches of a set of streams")
        every = " UNION ALL ".join(texts)
        if not self.counted:
            return f"SELECT DISTINCT {', '.join(columns)} FROM ({every})"
        sums = ", ".join(f"sum({c}) AS {c}" for c in self.counts())
        return f"SELECT {', '.join(columns)}, {sums} FROM ({every}) GROUP BY {', '.join(columns)}"

    def slice_width(self, arrivals: Sequence[Arrival]) -> int | None:
        """The longest slice of time by which rows are found, in microseconds; None if there is none."""
        slices = [self._find_slice(arrival) for arrival in arrivals]
        return max((each.width for each in slices if each is not None), default=None)

    def _arrival_sql(self, match_set: PartialMatchSet, arrival: Arrival, sliced: bool) -> str:
        """The new matches that arise in one way: from rows that arrive together and older partial matches."""
        arriving = self._arriving_rows(arrival, sliced)
        if match_set is self.complete and not self.counted and not self.horizon:
            arriving = self._latest_of_equal(arriving, arrival)
        out = [f"{text} AS {name}" for name, text in self._column_values(match_set, arrival)]
        out += [f"{text} AS {name}" for name, text in self._count_values(arrival)]
        columns = ", ".join(["e.t", *out])
        if arrival.old is None:
            return f"SELECT {columns} FROM ({arriving}) e"
        old, tables = arrival.old, self.tables(arrival.old)
        # Columns that all matches of a series share are compared first, to find the series that a row joins.
        same = [r for r in old.requirements if r.exact or self.counted]
        found = all_of(self._requirement_conditions(arrival, same, "k"))
        pairs = f"SELECT e.*, k.series FROM ({arriving}) e JOIN {tables.series} k ON {found}"
        rest = all_of(
            [
                "h.live",
                *self._requirement_conditions(arrival, [r for r in old.requirements if not r.exact], "h"),
            ]
        )
        where = "" if self.counted else f" WHERE {rest}"
        # Older matches are earlier than the arriving rows by more than the horizon (if any), so all
        # conditions between their timestamps hold already.
        before = "e.first - " + str(self.horizon) if self.horizon else "e.t"
        as_of = f"ASOF JOIN {tables.timeline} h ON e.series = h.series AND {before} > h.t"
        return f"SELECT {columns} FROM ({pairs}) e {as_of}{where}"

    def _latest_of_equal(self, arriving: str, arrival: Arrival) -> str:
        """Of arriving rows that are equal, the latest: it matches whatever the earlier ones match."""
        columns = [self._raw(arrival, ref) for a in _new_aliases(arrival) for ref in self.inputs[a].columns]
        named = ", ".join(["max(t) AS t", *columns])
        group = f" GROUP BY {', '.join(columns)}" if columns else " HAVING count(*) > 0"
        return f"SELECT {named} FROM ({arriving}){group}"

    # --- arriving rows ---------------------------------------------------------------------------------

    def _arriving_rows(self, arrival: Arrival, sliced: bool) -> str:
        """Rows that arrive with the same timestamp and match each other; their columns are ``r…_x…``.

        With windows: rows within the horizon of each other, at least one of which is new.
        """
        streams = [a for a in _new_aliases(arrival) if self.inputs[a].streaming]
        if not self.horizon or len(streams) < 2:
            return self._matching_rows(arrival, {a: self.inputs[a].name for a in _new_aliases(arrival)})
        texts = []
        for position, new in enumerate(streams):  # the last stream in this order with new rows
            tables = {a: self.inputs[a].name for a in _new_aliases(arrival)}
            tables |= {a: self.inputs[a].all for a in streams[:position]}
            tables |= {a: self.inputs[a].recent for a in streams[position + 1 :]}
            texts.append(self._matching_rows(arrival, tables | {new: self.inputs[new].name}, sliced))
        return " UNION ALL ".join(texts)

    def _find_slice(self, arrival: Arrival) -> TimeSlice | None:
        streams = [a for a in _new_aliases(arrival) if self.inputs[a].streaming]
        return find_slice(self.timed.order, streams)

    def _matching_rows(self, arrival: Arrival, tables: Mapping[str, str], sliced: bool = False) -> str:
        """Rows of these tables that match each other and are close enough in time."""
        aliases = _new_aliases(arrival)
        names = {alias: f"e{i}" for i, alias in enumerate(aliases)}

        def column(ref: Ref) -> str:
            return f"{names[ref.occurrence]}.{self.inputs[ref.occurrence].column(ref)}"

        columns = [
            f"{column(ref)} AS {self._raw(arrival, ref)}" for a in aliases for ref in self.inputs[a].columns
        ]
        times = {a: f"{names[a]}.t" for a in aliases if self.inputs[a].streaming}
        conditions = self._time_conditions(arrival, times)
        conditions += self._crossing_conditions(aliases, column)
        conditions += self._implied_bounds(aliases, column)
        slice_ = self._find_slice(arrival) if sliced else None
        if slice_ is not None:
            tables = {**tables, slice_.one: slice_.number_rows(tables[slice_.one])}
            conditions.append(slice_.condition(names))
        sources = ", ".join(f"{tables[a]} {names[a]}" for a in aliases)
        selected = ", ".join([*self._arrival_times(times), *columns, *self._arriving_counts(names)])
        return f"SELECT {selected} FROM {sources} WHERE {all_of(conditions)}"

    def _arrival_times(self, times: Mapping[str, str]) -> list[str]:
        """The timestamp ``t`` at which arriving rows match; with windows, also that of the ``first`` row."""
        listed = list(times.values()) or [f"CAST({ALWAYS} AS BIGINT)"]
        if not self.horizon:
            return [f"{listed[0]} AS t"]
        return [f"greatest({', '.join(listed)}) AS t", f"least({', '.join(listed)}) AS first"]

    def _time_conditions(self, arrival: Arrival, times: Mapping[str, str]) -> list[str]:
        """The conditions on the timestamps of arriving rows, which are given by occurrence.

        With windows, no gap between them is longer than the horizon: rows before such a gap are an older
        partial match, which is found by an as-of join.
        """
        if not self.horizon:
            first, *others = times.values() or [""]
            return [f"{first} = {other}" for other in others]
        lags = {(a, b): self.timed.order.max_lag(a, b) for a, b in permutations(times, 2)}
        out = [f"({times[a]} - {times[b]} <= {lag})" for (a, b), lag in lags.items() if lag is not None]
        return out + self._differing_times(times) + self._gap_conditions(arrival, times)

    def _differing_times(self, times: Mapping[str, str]) -> list[str]:
        """Conditions of the form ``a.ts <> b.ts``."""
        columns = self.timed.order.time_columns
        known = {columns[alias]: time for alias, time in times.items() if alias in columns}
        return [
            f"({known[d.left]} <> {known[d.right]} + ({int(d.value)}))"
            for d in self.timed.part.apart
            if d.left in known and d.right in known
        ]

    def _gap_conditions(self, arrival: Arrival, times: Mapping[str, str]) -> list[str]:
        """For every set of groups that could come first: the others follow within the horizon."""
        order = self.timed.order
        groups = [group for group in arrival.new if any(alias in times for alias in group)]
        out = []
        for size in range(1, len(groups)):
            for earlier in combinations(groups, size):
                later = [group for group in groups if group not in earlier]
                if any(order.is_not_after(b, a) for a in earlier for b in later):
                    continue  # the windows keep these together
                ends = ", ".join(times[alias] for group in earlier for alias in group)
                starts = ", ".join(times[alias] for group in later for alias in group)
                out.append(f"(greatest({ends}) + {self.horizon} >= least({starts}))")
        return out

    def _crossing_conditions(self, aliases: Sequence[str], column: ColumnSql) -> list[str]:
        """The conditions between several of the occurrences, except those between timestamps alone."""
        time_columns = set(find_time_columns(self.timed.part.select).values())
        out = []
        for conjunct in conjuncts(self.timed.part.condition):
            mentioned = refs(conjunct)
            owners = {ref.occurrence for ref in mentioned}
            if len(owners) > 1 and owners <= set(aliases) and not mentioned <= time_columns:
                out.append(condition_sql(conjunct, column, Dialect.DUCKDB))
        return out

    def _implied_bounds(self, aliases: Sequence[str], column: ColumnSql) -> list[str]:
        """The bounds between columns of the occurrences that the closure implies."""
        closure = self.timed.closure
        out = []
        own = [
            ref
            for a in aliases
            for ref in self.inputs[a].columns
            if ref in closure.index and type_of(self.timed.part, ref).domain is not Domain.TIME
        ]
        for x in own:
            for y in own:
                bound = self.timed.bound(x, y) if x.occurrence != y.occurrence else None
                if bound is not None:
                    left = self._number(column(x), x)
                    right = self._shift(self._number(column(y), y), bound[0], y)
                    out.append(f"({left} {'<' if bound[1] else '<='} {right})")
        return out

    def _arriving_counts(self, names: dict[str, str]) -> list[str]:
        """The number of matches of arriving rows, and their measures; ``names`` are those of the tables."""
        if not self.counted:
            return []
        out = [f"{' * '.join(f'CAST({n}.n AS HUGEINT)' for n in names.values())} AS n"]
        for i, product in enumerate(self.measures):
            homes = [a for a in names if product.find_factor(a) is not None]
            others = "".join(f" * CAST({n}.n AS HUGEINT)" for a, n in names.items() if a not in homes)
            if homes:
                filled = " * ".join(_as_factor(f"{names[a]}.f{i}", len(homes)) for a in homes)
                total = " * ".join(f"{names[a]}.s{i}" for a in homes)
                out += [f"{filled}{others} AS f{i}", f"{total}{others} AS s{i}"]
        return out

    def _raw(self, arrival: Arrival, ref: Ref) -> str:
        """The name of an arriving row's column."""
        number = _new_aliases(arrival).index(ref.occurrence)
        return f"r{number}_{self.inputs[ref.occurrence].column(ref)}"

    # --- requirements of older matches -----------------------------------------------------------------

    def _requirement_conditions(
        self, arrival: Arrival, requirements: Sequence[Requirement], table: str
    ) -> list[str]:
        """The arriving rows satisfy these requirements of older matches, and differ where they must."""
        assert arrival.old is not None
        new = _new_aliases(arrival)
        columns = {
            z: f"e.{self._raw(arrival, z)}"
            for requirement in requirements
            for z, _ in requirement.partners
            if z.occurrence in new
        }
        out = []
        for number, requirement in enumerate(arrival.old.requirements):
            if requirement in requirements:
                out += self._compare_columns(requirement, f"{table}.c{number}", columns)
        if table == "h" or self.counted:
            out += self._difference_conditions(arrival, table)
        return out

    def compare_row(self, columns: Mapping[Ref, str], table: str) -> list[str]:
        """The columns of a row, as SQL, satisfy the requirements of a complete match."""
        every = enumerate(self.complete.requirements)
        return [c for i, r in every for c in self._compare_columns(r, f"{table}.c{i}", columns)]

    def _compare_columns(self, requirement: Requirement, value: str, columns: Mapping[Ref, str]) -> list[str]:
        """These columns satisfy a requirement of this value."""
        sign = "=" if requirement.exact else _sign(requirement)
        return [
            f"({self._number(columns[z], z)} {sign} {self._shift(value, shift, z)})"
            for z, shift in requirement.partners
            if z in columns
        ]

    def _difference_conditions(self, arrival: Arrival, table: str) -> list[str]:
        assert arrival.old is not None
        new = _new_aliases(arrival)
        out = []
        for number, x in enumerate(arrival.old.differing):
            for d in self.timed.part.apart:
                if d.right is None:
                    continue
                for mine, z, shift in ((d.left, d.right, -d.value), (d.right, d.left, d.value)):
                    if mine == x and z.occurrence in new and not self._is_implied(d):
                        value = self._number(f"e.{self._raw(arrival, z)}", z)
                        end = self._shift(f"{table}.q{number}", shift, z)
                        out.append(f"({value} IS DISTINCT FROM {end})")
        return out

    def _is_implied(self, d: Disequality) -> bool:
        return self.timed.closure.keeps_apart(d.left, d.right, d.value)

    # --- columns of new matches ------------------------------------------------------------------------

    def _column_values(self, match_set: PartialMatchSet, arrival: Arrival) -> list[tuple[str, str]]:
        """The key of the new matches: names and SQL."""
        new = _new_aliases(arrival)
        out = []
        for name, ref in zip(self.result_columns(match_set), match_set.result_columns, strict=True):
            out.append((name, f"e.{self._raw(arrival, ref)}" if ref.occurrence in new else f"h.{name}"))
        for name, requirement in zip(self.requirements(match_set), match_set.requirements, strict=True):
            out.append((name, self._requirement_value(requirement, arrival)))
        for name, ref in zip(self.differing(match_set), match_set.differing, strict=True):
            if ref.occurrence in new:
                text = self._excluded_value(f"e.{self._raw(arrival, ref)}", ref)
            else:
                assert arrival.old is not None
                text = f"h.q{arrival.old.differing.index(ref)}"
            out.append((name, text))
        return out

    def _excluded_value(self, raw: str, ref: Ref) -> str:
        """The value that rows still to come must differ from; NULL where none of them can be equal to it."""
        r = self.timed.excludable_range(ref)
        value = self._number(raw, ref)
        ends = [f"{value} >= {self._constant(r.low, ref)}"] if r.low is not None else []
        ends += [f"{value} <= {self._constant(r.high, ref)}"] if r.high is not None else []
        return f"CASE WHEN {' AND '.join(ends)} THEN {value} END" if ends else value

    def _requirement_value(self, requirement: Requirement, arrival: Arrival) -> str:
        """The stronger of what the arriving rows and the older match require."""
        new = _new_aliases(arrival)
        sign = -1 if requirement.low else 1
        texts = [
            self._shift(self._number(f"e.{self._raw(arrival, x)}", x), sign * slack, x)
            for x, slack in requirement.terms
            if x.occurrence in new
        ]
        if arrival.old is not None and any(x.occurrence not in new for x, _ in requirement.terms):
            z, shift = requirement.partners[0]
            known = arrival.old.find_requirement(z, requirement.low, requirement.strict)
            assert known is not None
            number, their_shift = known
            texts.append(self._shift(f"h.c{number}", their_shift - shift, z))
        strongest = "greatest" if requirement.low else "least"
        if requirement.least is not None and not requirement.strict:
            texts.append(self._constant(requirement.least, requirement.terms[0][0]))
        value = texts[0] if len(texts) == 1 else f"{strongest}({', '.join(texts)})"
        if requirement.least is None or not requirement.strict:
            return value
        # A partner may equal the end of its range, which a strict bound there would exclude.
        least, nothing = self._least_and_beyond(requirement)
        return f"CASE WHEN {value} {'<' if requirement.low else '>'} {least} THEN {nothing} ELSE {value} END"

    def _least_and_beyond(self, requirement: Requirement) -> tuple[str, str]:
        """The end of the partners' ranges, and a value beyond it that requires nothing of them."""
        assert requirement.least is not None
        column = requirement.terms[0][0]
        least = self._constant(requirement.least, column)
        if type_of(self.timed.part, column).family is Family.STRING:
            return least, "''" if requirement.low else f"({least} || chr(1114111))"
        return least, f"CAST('{'-' if requirement.low else ''}infinity' AS DOUBLE)"

    def _count_values(self, arrival: Arrival) -> list[tuple[str, str]]:
        """The number of the new matches, and their measures: names and SQL."""
        if not self.counted:
            return []
        old = arrival.old is not None
        out = [("n", "e.n * h.n" if old else "e.n")]
        new = _new_aliases(arrival)
        before = () if arrival.old is None else arrival.old.aliases
        for i, product in enumerate(self.measures):
            is_new, is_old = (any(product.find_factor(a) for a in side) for side in (new, before))
            for c in ("f", "s"):
                text = "CAST(0 AS HUGEINT)"
                if is_new or is_old:
                    text = f"e.{c}{i}" if is_new else "e.n"
                    text += (f" * h.{c}{i}" if is_old else " * h.n") if old else ""
                out.append((f"{c}{i}", text))
        return out

    # --- values ----------------------------------------------------------------------------------------

    def _number(self, text: str, ref: Ref) -> str:
        return as_number(text, type_of(self.timed.part, ref))

    def _shift(self, text: str, by: Fraction, ref: Ref) -> str:
        if not by:
            return text
        if not type_of(self.timed.part, ref).step:
            raise NoPlanError(
                f"{ref} is floating-point and compared at a distance; rounding could change the answer"
            )
        return f"({text} + ({number_sql(by)}))"

    def _constant(self, point: Fraction, ref: Ref) -> str:
        type_ = type_of(self.timed.part, ref)
        if type_.family is Family.STRING:
            return Dialect.DUCKDB.string(self.timed.part.points.strings[int(point) - 1])
        if type_.family is Family.TIME:
            return str(to_micros(point, self.zone))
        return number_sql(point)


def _new_aliases(arrival: Arrival) -> list[str]:
    """The occurrences whose rows arrive."""
    return [alias for group in arrival.new for alias in group]


def _as_factor(count: str, factors: int) -> str:
    """A count, in a type in which the product of several is no overflow."""
    return f"CAST({count} AS HUGEINT)" if factors > 1 else count


def _sign(requirement: Requirement) -> str:
    return (">" if requirement.low else "<") + ("" if requirement.strict else "=")

"""The SQL that finds new partial matches: rows that arrive together, with what was waiting for them.

Every statement takes a whole batch, however many moments it spans: what was waiting when a row arrived is
looked up in the history of the waiting set (an as-of join), so nothing is done moment by moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from millpond.engines.timed.fronts import ALWAYS
from millpond.plan.classes import NoPlanError
from millpond.plan.partial_matches import Arrival, PartialMatchSet, Requirement, TimedNeed
from millpond.query.closure import Disequality
from millpond.query.model import Ref
from millpond.query.parts import type_of
from millpond.query.time_order import find_time_columns
from millpond.query.trees import conjuncts, refs
from millpond.query.types import MAX_PRECISION, Domain, Family, SqlType
from millpond.runtime.sql import Dialect, all_of, condition_sql, number_sql


@dataclass(frozen=True)
class Feed:
    """The rows of one occurrence that matter to a need: a table of their moments ``t``, the columns
    ``x0 …``, and their number ``n``.  Those of a relation have no moment."""

    name: str
    alias: str
    stream: str
    columns: tuple[Ref, ...]
    streaming: bool

    def column(self, ref: Ref) -> str:
        return f"x{self.columns.index(ref)}"


class Steps:
    """SQL for the sets of one need.

    A set's table has columns of the result ``p…``, demands ``c…``, values to differ from ``q…``, and for
    counted needs the number ``n`` of matches, with ``f…`` and ``s…``: how many of them have a value of a
    measure, and its sum.
    """

    def __init__(self, timed: TimedNeed, feeds: Sequence[Feed], prefix: str, zone: str = "UTC") -> None:
        self.timed = timed
        self.zone = zone
        self.feeds = {feed.alias: feed for feed in feeds}
        self.prefix = prefix
        self.counted = timed.need.counted
        self.measures = timed.need.measures
        self._tables = {id(p.match_set): f"{prefix}d{i}" for i, p in enumerate(timed.sets)}

    def table(self, waiting: PartialMatchSet) -> str:
        return self._tables[id(waiting)]

    # --- columns ---------------------------------------------------------------------------------------

    def shown(self, waiting: PartialMatchSet) -> list[str]:
        return [f"p{self.timed.result_columns.index(ref)}" for ref in waiting.result_columns]

    def demands(self, waiting: PartialMatchSet) -> list[str]:
        return [f"c{i}" for i in range(len(waiting.requirements))]

    def exact(self, waiting: PartialMatchSet) -> list[str]:
        return [f"c{i}" for i, d in enumerate(waiting.requirements) if d.exact]

    def differing(self, waiting: PartialMatchSet) -> list[str]:
        return [f"q{i}" for i in range(len(waiting.differing))]

    def key(self, waiting: PartialMatchSet) -> list[str]:
        return [*self.shown(waiting), *self.demands(waiting), *self.differing(waiting)]

    def counts(self) -> list[str]:
        if not self.counted:
            return []
        return ["n", *(f"{c}{i}" for i in range(len(self.measures)) for c in "fs")]

    # --- matches ---------------------------------------------------------------------------------------

    def matches(self, waiting: PartialMatchSet, arrivals: Sequence[Arrival]) -> str:
        """The new matches of a set, with their moments."""
        texts = [self._arrived(waiting, arrival) for arrival in arrivals]
        columns = ["t", *self.key(waiting)]
        if not texts:
            raise NoPlanError("a set of streams that nothing can complete")
        every = " UNION ALL ".join(texts)
        if not self.counted:
            return f"SELECT DISTINCT {', '.join(columns)} FROM ({every})"
        sums = ", ".join(f"sum({c}) AS {c}" for c in self.counts())
        return f"SELECT {', '.join(columns)}, {sums} FROM ({every}) GROUP BY {', '.join(columns)}"

    def _arrived(self, waiting: PartialMatchSet, arrival: Arrival) -> str:
        together = self._together(arrival)
        if waiting is self.timed.sets[-1].match_set and not self.counted:
            together = self._latest(together, arrival)
        out = [f"{text} AS {name}" for name, text in self._values(waiting, arrival)]
        out += [f"{text} AS {name}" for name, text in self._weights(arrival)]
        columns = ", ".join(["e.t", *out])
        if arrival.old is None:
            return f"SELECT {columns} FROM ({together}) e"
        old, table = arrival.old, self.table(arrival.old)
        first = all_of(self._met(arrival, [d for d in old.requirements if d.exact or self.counted], "k"))
        pairs = f"SELECT e.*, k.kid FROM ({together}) e JOIN {table}_keys k ON {first}"
        rest = all_of(["h.live", *self._met(arrival, [d for d in old.requirements if not d.exact], "h")])
        where = "" if self.counted else f" WHERE {rest}"
        past = f"ASOF JOIN {table}_past h ON e.kid = h.kid AND e.t > h.t"
        return f"SELECT {columns} FROM ({pairs}) e {past}{where}"

    def _latest(self, together: str, arrival: Arrival) -> str:
        """Of rows that are alike the latest: it finds all that the others find, and when does not matter."""
        columns = [self._raw(arrival, ref) for g in arrival.new for a in g for ref in self.feeds[a].columns]
        named = ", ".join(["max(t) AS t", *columns])
        group = f" GROUP BY {', '.join(columns)}" if columns else " HAVING count(*) > 0"
        return f"SELECT {named} FROM ({together}){group}"

    def _together(self, arrival: Arrival) -> str:
        """Rows that arrive at the same moment and match: columns ``<alias number>_<column>``."""
        aliases = [alias for group in arrival.new for alias in group]
        numbers = {alias: i for i, alias in enumerate(aliases)}
        names = {alias: f"e{i}" for alias, i in numbers.items()}
        columns = [
            f"{names[a]}.{self.feeds[a].column(ref)} AS {self._raw(arrival, ref)}"
            for a in aliases
            for ref in self.feeds[a].columns
        ]
        streams = [a for a in aliases if self.feeds[a].streaming]
        moment = f"{names[streams[0]]}.t" if streams else f"CAST({ALWAYS} AS BIGINT)"
        conditions = [f"{names[streams[0]]}.t = {names[a]}.t" for a in streams[1:]]

        def spelled(ref: Ref) -> str:
            return f"{names[ref.occurrence]}.{self.feeds[ref.occurrence].column(ref)}"

        clocks = set(find_time_columns(self.timed.part.select).values())
        for conjunct in conjuncts(self.timed.part.condition):
            mentioned = refs(conjunct)
            owners = {ref.occurrence for ref in mentioned}
            if len(owners) > 1 and owners <= set(aliases) and not mentioned <= clocks:
                conditions.append(condition_sql(conjunct, spelled, Dialect.DUCKDB))
        conditions += self._implied(aliases, spelled)
        weights = (
            [f"{' * '.join(f'CAST({n}.n AS HUGEINT)' for n in names.values())} AS n"] if self.counted else []
        )
        for i, measure in enumerate(self.measures):
            home = next(iter(refs(measure.expression))).occurrence
            if home in names:
                others = "".join(f" * CAST({n}.n AS HUGEINT)" for a, n in names.items() if a != home)
                weights += [f"{names[home]}.f{i}{others} AS f{i}", f"{names[home]}.s{i}{others} AS s{i}"]
        tables = ", ".join(f"{self.feeds[a].name} {names[a]}" for a in aliases)
        selected = ", ".join([f"{moment} AS t", *columns, *weights])
        return f"SELECT {selected} FROM {tables} WHERE {all_of(conditions)}"

    def _implied(self, aliases: Sequence[str], spelled: object) -> list[str]:
        """What streams that are still to come imply for the columns of those that are here."""
        assert callable(spelled)
        closure = self.timed.closure
        out = []
        own = [
            ref
            for a in aliases
            for ref in self.feeds[a].columns
            if ref in closure.index and type_of(self.timed.part, ref).domain is not Domain.TIME
        ]
        for x in own:
            for y in own:
                bound = self.timed.bound(x, y) if x.occurrence != y.occurrence else None
                if bound is not None:
                    left = self._number(spelled(x), x)
                    right = self._shifted(self._number(spelled(y), y), bound[0], y)
                    out.append(f"({left} {'<' if bound[1] else '<='} {right})")
        return out

    def _raw(self, arrival: Arrival, ref: Ref) -> str:
        aliases = [alias for group in arrival.new for alias in group]
        return f"r{aliases.index(ref.occurrence)}_{self.feeds[ref.occurrence].column(ref)}"

    def _met(self, arrival: Arrival, demands: Sequence[Requirement], table: str) -> list[str]:
        """The arriving rows are what waiting matches demand of them, and differ from what they must."""
        assert arrival.old is not None
        out = []
        for number, demand in enumerate(arrival.old.requirements):
            if demand not in demands:
                continue
            for z, shift in demand.partners:
                if z.occurrence not in {a for g in arrival.new for a in g}:
                    continue
                value = self._number(f"e.{self._raw(arrival, z)}", z)
                end = self._shifted(f"{table}.c{number}", shift, z)
                if demand.exact:
                    out.append(f"({value} = {end})")
                else:
                    sign = (">" if demand.low else "<") + ("" if demand.strict else "=")
                    out.append(f"({value} {sign} {end})")
        if table == "h" or self.counted:
            out += self._apart(arrival, table)
        return out

    def _apart(self, arrival: Arrival, table: str) -> list[str]:
        assert arrival.old is not None
        new = {a for g in arrival.new for a in g}
        out = []
        for number, x in enumerate(arrival.old.differing):
            for d in self.timed.part.apart:
                if d.right is None:
                    continue
                for mine, z, shift in ((d.left, d.right, -d.value), (d.right, d.left, d.value)):
                    if mine == x and z.occurrence in new and self._still_open(d):
                        value = self._number(f"e.{self._raw(arrival, z)}", z)
                        end = self._shifted(f"{table}.q{number}", shift, z)
                        out.append(f"({value} IS DISTINCT FROM {end})")
        return out

    def _still_open(self, d: Disequality) -> bool:
        return not self.timed.closure.keeps_apart(d.left, d.right, d.value)

    # --- values ----------------------------------------------------------------------------------------

    def _values(self, waiting: PartialMatchSet, arrival: Arrival) -> list[tuple[str, str]]:
        new = {a for g in arrival.new for a in g}
        out = []
        for name, ref in zip(self.shown(waiting), waiting.result_columns, strict=True):
            out.append((name, f"e.{self._raw(arrival, ref)}" if ref.occurrence in new else f"h.{name}"))
        for name, demand in zip(self.demands(waiting), waiting.requirements, strict=True):
            out.append((name, self._demand(demand, arrival, new)))
        for name, ref in zip(self.differing(waiting), waiting.differing, strict=True):
            if ref.occurrence in new:
                text = self._refusable(f"e.{self._raw(arrival, ref)}", ref)
            else:
                assert arrival.old is not None
                text = f"h.q{arrival.old.differing.index(ref)}"
            out.append((name, text))
        return out

    def _refusable(self, raw: str, ref: Ref) -> str:
        """The value that coming ones must differ from; NULL where none can be equal to it."""
        r = self.timed.excludable_range(ref)
        value = self._number(raw, ref)
        ends = [f"{value} >= {self._constant(r.low, ref)}"] if r.low is not None else []
        ends += [f"{value} <= {self._constant(r.high, ref)}"] if r.high is not None else []
        return f"CASE WHEN {' AND '.join(ends)} THEN {value} END" if ends else value

    def _demand(self, demand: Requirement, arrival: Arrival, new: set[str]) -> str:
        """A demand of the whole match: the harder of what its old and its new rows demand."""
        sign = -1 if demand.low else 1
        texts = [
            self._shifted(self._number(f"e.{self._raw(arrival, x)}", x), sign * slack, x)
            for x, slack in demand.terms
            if x.occurrence in new
        ]
        if arrival.old is not None and any(x.occurrence not in new for x, _ in demand.terms):
            z, shift = demand.partners[0]
            known = arrival.old.find_requirement(z, demand.low, demand.strict)
            assert known is not None
            number, their_shift = known
            texts.append(self._shifted(f"h.c{number}", their_shift - shift, z))
        least = demand.least
        if least is not None:
            texts.append(self._constant(least, demand.terms[0][0]))
        if len(texts) == 1:
            return texts[0]
        return f"{'greatest' if demand.low else 'least'}({', '.join(texts)})"

    def _weights(self, arrival: Arrival) -> list[tuple[str, str]]:
        """How many matches a match stands for, and its measures."""
        if not self.counted:
            return []
        old = arrival.old is not None
        out = [("n", "e.n * h.n" if old else "e.n")]
        new = {a for g in arrival.new for a in g}
        for i, measure in enumerate(self.measures):
            home = next(iter(refs(measure.expression))).occurrence
            for c in ("f", "s"):
                if home in new:
                    text = f"e.{c}{i} * h.n" if old else f"e.{c}{i}"
                elif arrival.old is not None and home in arrival.old.aliases:
                    text = f"e.n * h.{c}{i}"
                else:
                    text = "CAST(0 AS HUGEINT)"
                out.append((f"{c}{i}", text))
        return out

    def _number(self, text: str, ref: Ref) -> str:
        """A column as it is compared and moved."""
        return as_number(text, type_of(self.timed.part, ref))

    def _shifted(self, text: str, by: Fraction, ref: Ref) -> str:
        if not by:
            return text
        if not type_of(self.timed.part, ref).step:
            raise NoPlanError(f"{ref} is compared at a distance, and such numbers are rounded")
        return f"({text} + ({number_sql(by)}))"

    def _constant(self, point: Fraction, ref: Ref) -> str:
        type_ = type_of(self.timed.part, ref)
        if type_.family is Family.STRING:
            return Dialect.DUCKDB.string(self.timed.part.points.strings[int(point) - 1])
        if type_.family is Family.TIME:
            return str(instant(point, self.zone))
        return number_sql(point)


def instant(point: Fraction, zone: str) -> int:
    """The moment, in microseconds since 1970 in UTC, that a timestamp of the query means in a time zone.

    >>> instant(Fraction(0), "UTC"), instant(Fraction(0), "Etc/GMT+1")
    (0, 3600000000)
    """
    written = datetime(1970, 1, 1, tzinfo=ZoneInfo(zone)) + timedelta(microseconds=int(point))
    return (written.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def as_number(text: str, type_: SqlType) -> str:
    """A value (in DuckDB) as demands hold it."""
    match type_.family:
        case Family.STRING:
            return text
        case Family.BOOLEAN:
            return f"CAST({text} AS INT)"
        case Family.DATE:
            return Dialect.DUCKDB.days(text)
        case Family.TIME:
            return f"epoch_us({text})"
    if not type_.step:
        return f"CAST({text} AS DOUBLE)"
    if type_.step == 1:
        return f"CAST({text} AS HUGEINT)" if type_.name == "BIGINT" else f"CAST({text} AS BIGINT)"
    return f"CAST({text} AS DECIMAL({MAX_PRECISION},{type_.scale}))"


def from_number(text: str, type_: SqlType) -> str:
    """The value (in DuckDB) that a demand holds."""
    match type_.family:
        case Family.BOOLEAN:
            return f"CAST({text} AS BOOLEAN)"
        case Family.DATE:
            return f"(DATE '1970-01-01' + CAST({text} AS INT))"
        case Family.TIME:
            return f"make_timestamp({text})"
    return text

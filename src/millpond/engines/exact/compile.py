"""From a plan to what is executed: slots, how streams fill them, and the SQL that answers from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millpond.engines.exact.answer import NOW, OLD, AggregateJoins, Join, added_sql, grouped_sql, set_sql
from millpond.engines.exact.keep import merge_sql, reduce_sql
from millpond.engines.exact.program import Program
from millpond.engines.exact.slots import Cut, Slot, readable
from millpond.engines.exact.tables import SlotProgram
from millpond.plan.classes import build_exact_classes
from millpond.plan.needs import THRESHOLD
from millpond.plan.synopses import (
    ExactPlan,
    ExactSelectPlan,
    StreamPlan,
    SynopsisPlan,
    ZonePattern,
    merge_shared,
    sharing_key,
)
from millpond.query.canonical import canonical_text
from millpond.query.model import Aggregate, Expr, Query, Ref, Select, Table, Term
from millpond.query.parts import Part
from millpond.query.trees import conjuncts, find_aggregates, is_aggregate, refs
from millpond.runtime.aggregates import has_monotone_having
from millpond.runtime.arrow_ipc import schema_to_bytes
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.sql import Dialect, any_of
from millpond.runtime.terms import TermSql


@dataclass(frozen=True)
class Cutting:
    """A synopsis of more than ``large`` entries is cut by its join key, ``chunk`` values together.

    Both are part of the state's layout.
    """

    large: int = 1 << 16
    chunk: int = 4096


@dataclass(frozen=True)
class Compiled:
    """The program, how streams are read for it, and the terms that Spark answers without it."""

    program: Program
    slots: tuple[Slot, ...]
    native: tuple[Term, ...]

    def streams(self) -> list[str]:
        return list(dict.fromkeys(slot.stream for slot in self.slots))

    def ingest(self, stream: str, dialect: Dialect) -> tuple[str, list[tuple[str, str]]]:
        """Which rows of a stream matter, and what to take from them: names and texts of columns.

        Where a stream has several slots, those that do not want a row get a NULL key.
        """
        mine = [slot.ingest(dialect) for slot in self.slots if slot.stream == stream]
        columns: list[tuple[str, str]] = []
        for ingest in mine:
            guard = ingest.admits if len(mine) > 1 else "TRUE"
            columns += [
                (name, text if guard == "TRUE" else f"CASE WHEN {guard} THEN {text} END")
                for name, text in ingest.columns
            ]
        return any_of([ingest.admits for ingest in mine]), columns


def compile_plan(plan: ExactPlan, native_sets: bool = True, cutting: Cutting | None = None) -> Compiled:
    """What to run for a plan.  Without ``native_sets`` sets of rows of single streams have slots too."""
    builder = _Builder(plan.query, cutting or Cutting())
    selects = iter(plan.selects)
    native = []
    for term in plan.query.terms:
        mine = [next(selects) for _ in term.selects]
        if _is_native(mine) and (native_sets or not term.distinct):
            native.append(term)
        else:
            builder.add(term, mine)
    return Compiled(builder.program(), tuple(builder.slots), tuple(native))


def _is_native(selects: Sequence[ExactSelectPlan]) -> bool:
    """Spark's own operators run it in constant state: filters, and sets of rows of single streams."""
    return not any(is_aggregate(s.select) or len(s.select.occurrences) > 1 for s in selects)


class _Builder:
    """Collects the slots and terms of a query."""

    def __init__(self, query: Query, cutting: Cutting) -> None:
        self.query = query
        self.cutting = cutting
        self.slots: list[Slot] = []
        self.terms: list[TermSql] = []
        self.columns = tuple(f"o{i}" for i in range(len(query.columns)))
        self.aggregate = any(is_aggregate(s) for s in query.selects)

    def program(self) -> Program:
        db = DuckDb()
        slots = tuple(_slot_program(db, slot, self.query.tables[slot.stream]) for slot in self.slots)
        retracts = any(term.retracts for term in self.terms)
        return Program(slots, tuple(self.terms), self._fingerprint(slots), self.aggregate, retracts)

    def _fingerprint(self, slots: Sequence[SlotProgram]) -> bytes:
        """Everything that gives the kept bytes their meaning, and what is answered from them.

        How the query is written does not matter, nor what else its tables hold.
        """
        digest = hashlib.sha256(canonical_text(self.query).encode())
        for slot, made in zip(self.slots, slots, strict=True):
            ingest = slot.ingest(Dialect.SPARK)
            for text in (slot.stream, made.reduce, ingest.admits, repr(ingest.columns)):
                digest.update(text.encode() + b"\0")
            digest.update(str(made.schema).encode())
        return digest.digest()[:16]

    def add(self, term: Term, selects: Sequence[ExactSelectPlan]) -> None:
        cuts = self._cuts(term, selects)
        joined = [_SelectJoins(self, s, cuts) for s in selects]
        names = tuple(slot.name for j in joined for slot in j.slots)
        grouped = [s for s in term.selects if is_aggregate(s)]
        if len(self.query.selects) == len(grouped) == 1 and not term.distinct:
            self.terms.append(self._groups(names, joined[0], bool(cuts)))
        elif grouped or term.distinct:
            self.terms.append(self._whole(names, joined, term, bool(cuts)))
        elif joined[0].needs:  # else nothing can satisfy it
            self.terms.append(TermSql(names, self.columns, added=joined[0].added(), chunked=bool(cuts)))

    def _groups(self, names: tuple[str, ...], joined: _SelectJoins, chunked: bool) -> TermSql:
        """The groups of a single select: a change of a group replaces its row."""
        select = joined.select
        return TermSql(
            names,
            self.columns,
            before=joined.grouped(OLD),
            after=joined.grouped(NOW),
            keys=len(select.group_by or ()),
            grouped=True,
            retracts=not has_monotone_having(select),
            always=select.group_by is None,
            chunked=chunked,
        )

    def _whole(
        self, names: tuple[str, ...], joined: Sequence[_SelectJoins], term: Term, chunked: bool
    ) -> TermSql:
        """A set of rows, or a bag that holds rows of groups."""
        every = "SELECT DISTINCT *" if term.distinct else "SELECT *"
        before, after = (
            f"{every} FROM ({' UNION ALL '.join(f'({j.rows(version)})' for j in joined)})"
            for version in (OLD, NOW)
        )
        grouped = [s for s in term.selects if is_aggregate(s)]
        always = any(s.group_by is None for s in grouped)
        return TermSql(
            names,
            self.columns,
            before=before,
            after=after,
            retracts=bool(grouped),
            always=always,
            chunked=chunked,
        )

    def _cuts(self, term: Term, selects: Sequence[ExactSelectPlan]) -> list[dict[str, Cut]]:
        """For each need how the synopsis of each occurrence is cut; empty if it is not.

        Each row or group of a set must come from a single chunk: all needs are cut by the same column of it.
        """
        select = selects[0]
        if len(selects) > 1 or not select.needs:
            return []
        wanted: list[Ref] | None = None
        if is_aggregate(select.select):
            wanted = list(select.select.group_by or ())
        elif term.distinct:
            wanted = [i.expression for i in select.select.items if isinstance(i.expression, Ref)]
        if any(sum(s.entries for s in need.streams) <= self.cutting.large for need in select.needs):
            return []
        if wanted is None:
            each = [max(_ways(need, _first_columns(need)), key=_width, default=None) for need in select.needs]
            ways = [[way for way in each if way is not None]]
        else:
            ways = [[way for need in select.needs for way in _ways(need, [w])] for w in wanted]
        complete = [w for w in ways if len(w) == len(select.needs)]
        best = max(complete, key=lambda w: min(map(_width, w)), default=None)
        if best is None or min(map(_width, best)) < 2 * self.cutting.chunk:
            return []
        start = min(way.low for way in best) if wanted is not None else None
        return [way.cuts(self.cutting.chunk, start) for way in best]

    def slot(self, part: Part, plan: StreamPlan, carried: Sequence[Ref], cut: Cut | None) -> Slot:
        """A new slot."""
        made = Slot(f"s{len(self.slots)}", plan.stream, part, plan, tuple(carried), cut)
        self.slots.append(made)
        return made


@dataclass(frozen=True)
class _Way:
    """A way to cut a need: a column of every occurrence, each at its distance from a common one."""

    low: int
    high: int
    columns: tuple[tuple[str, Ref, int], ...]

    def cuts(self, size: int, start: int | None) -> dict[str, Cut]:
        """The cuts, counted from ``start``, or from the lowest value."""
        low = self.low if start is None else start
        return {alias: Cut(column, size, low + distance) for alias, column, distance in self.columns}


def _width(way: _Way) -> int:
    return way.high - way.low


def _first_columns(plan: SynopsisPlan) -> list[Ref]:
    """The columns of the first occurrence."""
    first = plan.streams[0].alias if plan.streams else None
    return [n.ref for n in plan.need.part.closure.nodes if n.ref.occurrence == first]


def _ways(plan: SynopsisPlan, columns: Iterable[Ref]) -> Iterator[_Way]:
    """Ways to cut by one of the columns, all occurrences having one that equals it up to a constant."""
    part, closure = plan.need.part, plan.need.part.closure
    whole = {
        n.ref
        for n in closure.nodes
        if n.type.step == 1 and n.ref in part.non_null and n.ref not in dict(part.derived)
    }
    for column in columns:
        ref = part.rewrite(column)
        if not isinstance(ref, Ref) or ref not in whole:
            continue
        r = closure.range(ref)
        same = {other.occurrence: other for other in whole if closure.has_fixed_difference(other, ref)}
        aliases = [s.alias for s in plan.streams]
        if r.low is None or r.high is None or not aliases or not set(aliases) <= same.keys():
            continue
        distances = {a: closure.bound(same[a], ref) for a in aliases}
        yield _Way(
            int(r.low),
            int(r.high),
            tuple((a, same[a], int(d[0])) for a, d in distances.items() if d is not None),
        )


class _SelectJoins:
    """The slots of a select and the joins over them."""

    def __init__(self, builder: _Builder, plan: ExactSelectPlan, cuts: Sequence[dict[str, Cut]]) -> None:
        self.builder = builder
        self.select: Select = plan.select
        self.needs = [_with_presence(need) for need in plan.needs]
        self.slots: list[Slot] = []
        self._by_need: dict[int, dict[str, Slot]] = {}
        together: dict[object, list[int]] = {}
        for place, need in enumerate(self.needs):
            together.setdefault(sharing_key(need), []).append(place)
        for places in together.values():
            (whole,) = merge_shared([self.needs[p] for p in places])
            slots = {}
            for stream in whole.streams:
                carried = dict.fromkeys(ref for p in places for ref in self._carried(self.needs[p], stream))
                cut = cuts[places[0]][stream.alias] if cuts else None
                slots[stream.alias] = builder.slot(whole.need.part, stream, list(carried), cut)
            self.slots += slots.values()
            self._by_need |= dict.fromkeys(places, slots)

    def _carried(self, plan: SynopsisPlan, stream: StreamPlan) -> list[Ref]:
        """The columns of a member row that are asked for later and cannot be told from its class."""
        part = plan.need.part
        asked: set[Ref] = set()
        for conjunct in conjuncts(part.condition):
            mentioned = refs(conjunct)
            if len({r.occurrence for r in mentioned}) > 1:
                asked |= mentioned
        for expr in self._asked(plan):
            asked |= refs(part.rewrite(expr))
        asked -= readable(stream, part)
        derived = dict(part.derived)
        ranked = [c for p in stream.patterns for e in p.extremes for c in e.columns]
        for ref in (*ranked, *stream.differing, *(code.column for code in stream.zoned)):
            asked |= refs(derived.get(ref, ref))
        return sorted((r for r in asked if r.occurrence == stream.alias), key=str)

    def _asked(self, plan: SynopsisPlan) -> list[Expr]:
        """The expressions to be evaluated on the matches of a need."""
        if not is_aggregate(self.select):
            return [item.expression for item in self.select.items]
        asked: list[Expr] = list(self.select.group_by or ())
        aggregate = plan.need.aggregate
        if aggregate is not None and aggregate.argument is not None:
            together = self._parts_of(aggregate)[plan.need.part.condition]
            if not any(self.needs[place].need.measures for place in together):
                asked.append(aggregate.argument)
        return asked

    def _parts_of(self, aggregate: Aggregate) -> dict[object, list[int]]:
        """The needs of an aggregate, those of a part together."""
        out: dict[object, list[int]] = {}
        for place, plan in enumerate(self.needs):
            if plan.need.aggregate == aggregate:
                out.setdefault(plan.need.part.condition, []).append(place)
        return out

    def _join(self, places: Sequence[int]) -> Join:
        slots, counted = [], []
        for place in places:
            need = self.needs[place].need
            for alias in need.scope:
                if alias != THRESHOLD:
                    slots.append((alias, self._by_need[place][alias]))
                    counted.append(need.counted)
        return Join(self.needs[places[0]].need.part, tuple(slots), tuple(counted))

    def _joins(self) -> list[Join]:
        return [self._join([place]) for place in range(len(self.needs))]

    def added(self) -> str:
        return added_sql(self.select, self._joins(), self.builder.columns)

    def rows(self, version: str) -> str:
        """All rows of the select, as a relation."""
        columns = self.builder.columns
        if is_aggregate(self.select):
            return f"SELECT {', '.join(columns)} FROM ({self.grouped(version)})"
        if not self.needs:
            return f"SELECT {', '.join(f'NULL AS {c}' for c in columns)} WHERE FALSE"
        return set_sql(self.select, self._joins(), columns, version)

    def grouped(self, version: str) -> str:
        aggregates = [
            AggregateJoins(a, tuple(self._join(places) for places in self._parts_of(a).values()))
            for a in find_aggregates(self.select)
        ]
        return grouped_sql(
            self.select,
            aggregates or [AggregateJoins(None, tuple(self._joins()))],
            self.builder.columns,
            version,
        )


def _with_presence(plan: SynopsisPlan) -> SynopsisPlan:
    """A need that is answered row by row, with a slot that remembers which rows there were."""
    if plan.streams:
        return plan
    part = plan.need.part
    (alias,) = plan.need.scope
    columns = dict.fromkeys(ref for ref in plan.need.projected if ref.occurrence == alias)
    classes = tuple(build_exact_classes(part, ref) for ref in columns)
    table = part.select.occurrence(alias).table.name
    stream = StreamPlan(alias, table, counted=False, classes=classes, patterns=(ZonePattern((), ()),))
    return SynopsisPlan(plan.need, (stream,))


def _slot_program(db: DuckDb, slot: Slot, table: Table) -> SlotProgram:
    """The slot's SQL, and the schema of its table: that of an empty one."""
    dialect = Dialect.DUCKDB
    columns = ", ".join(
        f"CAST(NULL AS {dialect.type_of(c.type)}) AS {dialect.name_of(c.name)}" for c in table.columns
    )
    taken = ", ".join(f"{text} AS {name}" for name, text in slot.ingest(dialect).columns)
    nothing = db.query(f"SELECT {taken} FROM (SELECT {columns}) WHERE FALSE", {})
    reduce = reduce_sql(slot, "batch")
    schema = pa.schema([_settled(field) for field in db.query(reduce, {"batch": nothing}).schema])
    return SlotProgram(
        slot.name,
        slot.stream,
        slot.chunk,
        slot.place(),
        slot.presence,
        reduce,
        merge_sql(slot, "rows"),
        schema_to_bytes(schema),
    )


def _settled(field: pa.Field) -> pa.Field:
    """A field that stays as it is when tables are merged: sums have room to grow."""
    if field.name.startswith("total") and pa.types.is_integer(field.type):
        return field.with_type(pa.decimal128(38, 0))
    return field

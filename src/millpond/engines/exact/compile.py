"""Compiles an exact plan into slots, the SQL that fills them, and the SQL that answers from them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from millpond.engines.exact.answer_sql import AggregateJoins, SlotJoin, added_sql, grouped_sql, set_sql
from millpond.engines.exact.chunks import Chunking, ChunkPolicy, choose_chunking
from millpond.engines.exact.program import ExactProgram, SlotProgram
from millpond.engines.exact.slot_sql import merge_sql, reduce_sql
from millpond.engines.exact.slots import Slot, find_decodable_columns
from millpond.plan.classes import build_exact_classes
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
from millpond.query.expressions import Aggregate, Expr, Literal, Ref
from millpond.query.model import Query, Select, Table, Term
from millpond.query.parts import Part, is_threshold
from millpond.query.trees import conjuncts, find_aggregates, is_aggregate, refs
from millpond.runtime.aggregates import has_monotone_having
from millpond.runtime.arrow_ipc import schema_to_bytes
from millpond.runtime.duckdb import DuckDb, get_process_duckdb
from millpond.runtime.sql import Dialect, any_of
from millpond.runtime.terms import TermSql, Version


@dataclass(frozen=True)
class CompiledExact:
    """The program, the slots that say how streams are read for it, and the terms that Spark answers alone."""

    program: ExactProgram
    slots: tuple[Slot, ...]
    native: tuple[Term, ...]

    def streams(self) -> list[str]:
        return list(dict.fromkeys(slot.stream for slot in self.slots))

    def ingest(self, stream: str, dialect: Dialect) -> tuple[str, list[tuple[str, str]]]:
        """The row filter of a stream, and the columns to take from its rows, by name and SQL text.

        If a stream has several slots, a row has a NULL key for those in which it cannot match.
        """
        mine = [slot.ingest(dialect) for slot in self.slots if slot.stream == stream]
        columns: list[tuple[str, str]] = []
        for ingest in mine:
            guard = ingest.row_filter if len(mine) > 1 else "TRUE"
            columns += [
                (name, text if guard == "TRUE" else f"CASE WHEN {guard} THEN {text} END")
                for name, text in ingest.columns
            ]
        return any_of([ingest.row_filter for ingest in mine]), columns


def compile_exact(
    plan: ExactPlan, native_sets: bool = True, chunk_policy: ChunkPolicy | None = None
) -> CompiledExact:
    """Compile a plan.  Without ``native_sets``, sets of rows of single streams have slots too."""
    compiler = _ExactCompiler(plan.query, chunk_policy or ChunkPolicy())
    selects = iter(plan.selects)
    native = []
    for term in plan.query.terms:
        mine = [next(selects) for _ in term.selects]
        if _is_native(mine) and (native_sets or not term.distinct):
            native.append(term)
        else:
            compiler.add_term(term, mine)
    return CompiledExact(compiler.build_program(), tuple(compiler.slots), tuple(native))


def _is_native(selects: Sequence[ExactSelectPlan]) -> bool:
    """Whether Spark's own operators answer it in bounded state: filters, and sets of rows of one stream."""
    return not any(is_aggregate(s.select) or len(s.select.occurrences) > 1 for s in selects)


class _ExactCompiler:
    """Collects the slots and terms of a query."""

    def __init__(self, query: Query, chunk_policy: ChunkPolicy) -> None:
        self.query = query
        self.chunk_policy = chunk_policy
        self.slots: list[Slot] = []
        self.terms: list[TermSql] = []
        self.columns = tuple(f"o{i}" for i in range(len(query.columns)))
        self.aggregate = any(is_aggregate(s) for s in query.selects)

    def build_program(self) -> ExactProgram:
        db = get_process_duckdb()
        slots = tuple(_compile_slot(db, slot, self.query.tables[slot.stream]) for slot in self.slots)
        retracts = any(term.retracts for term in self.terms)
        return ExactProgram(slots, tuple(self.terms), self._fingerprint(slots), self.aggregate, retracts)

    def _fingerprint(self, slots: Sequence[SlotProgram]) -> bytes:
        """A digest of everything that gives the state its meaning.

        It does not depend on how the query is written, nor on columns that the query does not use.
        """
        digest = hashlib.sha256(canonical_text(self.query).encode())
        for slot, made in zip(self.slots, slots, strict=True):
            ingest = slot.ingest(Dialect.SPARK)
            for text in (slot.stream, made.reduce, ingest.row_filter, repr(ingest.columns)):
                digest.update(text.encode() + b"\0")
            digest.update(str(made.schema).encode())
        return digest.digest()[:16]

    def add_term(self, term: Term, selects: Sequence[ExactSelectPlan]) -> None:
        chunkings = choose_chunking(self.chunk_policy, term, selects)
        joined = [_SelectJoins(self, s, chunkings) for s in selects]
        names = tuple(slot.name for j in joined for slot in j.slots)
        grouped = [s for s in term.selects if is_aggregate(s)]
        if len(self.query.selects) == len(grouped) == 1 and not term.distinct:
            self.terms.append(self._compile_groups(names, joined[0], bool(chunkings)))
        elif grouped or term.distinct:
            self.terms.append(self._compile_set(names, joined, term, bool(chunkings)))
        elif joined[0].needs:  # otherwise the condition is unsatisfiable
            self.terms.append(
                TermSql(names, self.columns, added=joined[0].render_added(), chunked=bool(chunkings))
            )

    def _compile_groups(self, names: tuple[str, ...], joined: _SelectJoins, chunked: bool) -> TermSql:
        """The groups of a single select: a new row of a group replaces the old one."""
        select = joined.select
        return TermSql(
            names,
            self.columns,
            before=joined.render_groups(Version.BEFORE),
            after=joined.render_groups(Version.AFTER),
            keys=len(select.group_by or ()),
            grouped=True,
            retracts=not has_monotone_having(select),
            always=select.group_by is None,
            chunked=chunked,
        )

    def _compile_set(
        self, names: tuple[str, ...], joined: Sequence[_SelectJoins], term: Term, chunked: bool
    ) -> TermSql:
        """A set of rows, or a bag with rows of groups."""
        every = "SELECT DISTINCT *" if term.distinct else "SELECT *"
        before, after = (
            f"{every} FROM ({' UNION ALL '.join(f'({j.render_rows(version)})' for j in joined)})"
            for version in (Version.BEFORE, Version.AFTER)
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

    def add_slot(
        self, part: Part, plan: StreamPlan, carried: Sequence[Ref], chunking: Chunking | None
    ) -> Slot:
        slot = Slot(f"s{len(self.slots)}", plan.stream, part, plan, tuple(carried), chunking)
        self.slots.append(slot)
        return slot


class _SelectJoins:
    """The slots of a select and the joins over them."""

    def __init__(
        self, compiler: _ExactCompiler, plan: ExactSelectPlan, chunkings: Sequence[dict[str, Chunking]]
    ) -> None:
        self.columns = compiler.columns
        self.select: Select = plan.select
        self.needs = [_add_presence_slot(need) for need in plan.needs]
        keys = [
            {stream.alias: self._find_key(chunkings, i, stream) for stream in need.streams}
            for i, need in enumerate(self.needs)
        ]
        sharing: dict[tuple[object, Chunking | None], list[SynopsisPlan]] = {}
        for need, mine in zip(self.needs, keys, strict=True):
            for stream in need.streams:
                only = replace(need, streams=(stream,))
                sharing.setdefault(mine[stream.alias], []).append(only)
        slots = {key: self._add_slot(compiler, needs, key[1]) for key, needs in sharing.items()}
        self.slots = list(slots.values())
        self._by_need = [{alias: slots[key] for alias, key in mine.items()} for mine in keys]

    def _find_key(
        self, chunkings: Sequence[dict[str, Chunking]], position: int, stream: StreamPlan
    ) -> tuple[object, Chunking | None]:
        """Equal for needs that share a slot."""
        chunking = chunkings[position][stream.alias] if chunkings else None
        return sharing_key(self.needs[position].need.part, stream), chunking

    def _add_slot(
        self, compiler: _ExactCompiler, needs: Sequence[SynopsisPlan], chunking: Chunking | None
    ) -> Slot:
        """The slot of the only stream of each of the needs, which share it."""
        ((part, stream),) = merge_shared(needs)
        carried = dict.fromkeys(ref for need in needs for ref in self._find_carried(need, stream))
        return compiler.add_slot(part, stream, list(carried), chunking)

    def _find_carried(self, plan: SynopsisPlan, stream: StreamPlan) -> list[Ref]:
        """The columns that joins or results use and that do not follow from the class of a row."""
        part = plan.need.part
        used: set[Ref] = set()
        for conjunct in conjuncts(part.condition):
            mentioned = refs(conjunct)
            if len({r.occurrence for r in mentioned}) > 1:
                used |= mentioned
        for expr in self._find_evaluated(plan):
            used |= refs(part.rewrite(expr))
        used -= find_decodable_columns(stream, part)
        derived = dict(part.derived)
        ranked = [c for p in stream.patterns for e in p.extremes for c in e.columns]
        for ref in (*ranked, *stream.differing, *(code.column for code in stream.zoned)):
            used |= refs(derived.get(ref, ref))
        return sorted((r for r in used if r.occurrence == stream.alias), key=str)

    def _find_evaluated(self, plan: SynopsisPlan) -> list[Expr]:
        """The expressions that are evaluated on the matches of a need."""
        if not is_aggregate(self.select):
            return [item.expression for item in self.select.items]
        used: list[Expr] = list(self.select.group_by or ())
        aggregate = plan.need.aggregate
        if aggregate is not None and aggregate.argument is not None:
            together = self._parts_of(aggregate)[plan.need.part.condition]
            if not any(self.needs[position].need.measures for position in together):
                used += [each for each in aggregate.arguments if not isinstance(each, Literal)]
        return used

    def _parts_of(self, aggregate: Aggregate) -> dict[object, list[int]]:
        """The positions of the needs of an aggregate, by part."""
        out: dict[object, list[int]] = {}
        for position, plan in enumerate(self.needs):
            if plan.need.aggregate == aggregate:
                out.setdefault(plan.need.part.condition, []).append(position)
        return out

    def _build_join(self, positions: Sequence[int]) -> SlotJoin:
        slots, counted = [], []
        for position in positions:
            need = self.needs[position].need
            for alias in need.scope:
                if not is_threshold(alias):
                    slots.append((alias, self._by_need[position][alias]))
                    counted.append(need.counted)
        return SlotJoin(self.needs[positions[0]].need.part, tuple(slots), tuple(counted))

    def _build_joins(self) -> list[SlotJoin]:
        return [self._build_join([position]) for position in range(len(self.needs))]

    def render_added(self) -> str:
        """The rows that a micro-batch adds."""
        return added_sql(self.select, self._build_joins(), self.columns)

    def render_rows(self, version: Version) -> str:
        """All rows of the select."""
        if is_aggregate(self.select):
            return f"SELECT {', '.join(self.columns)} FROM ({self.render_groups(version)})"
        if not self.needs:
            return f"SELECT {', '.join(f'NULL AS {c}' for c in self.columns)} WHERE FALSE"
        return set_sql(self.select, self._build_joins(), self.columns, version)

    def render_groups(self, version: Version) -> str:
        """The groups of the select."""
        aggregates = [
            AggregateJoins(a, tuple(self._build_join(positions) for positions in self._parts_of(a).values()))
            for a in find_aggregates(self.select)
        ]
        if not aggregates:
            aggregates = [AggregateJoins(None, tuple(self._build_joins()))]
        return grouped_sql(self.select, aggregates, self.columns, version)


def _add_presence_slot(plan: SynopsisPlan) -> SynopsisPlan:
    """To a need without a synopsis, add a slot that records which rows occurred."""
    if plan.streams:
        return plan
    part = plan.need.part
    (alias,) = plan.need.scope
    columns = dict.fromkeys(ref for ref in plan.need.projected if ref.occurrence == alias)
    classes = tuple(build_exact_classes(part, ref) for ref in columns)
    table = part.select.occurrence(alias).table.name
    stream = StreamPlan(alias, table, counted=False, classes=classes, patterns=(ZonePattern((), ()),))
    return SynopsisPlan(plan.need, (stream,))


def _compile_slot(db: DuckDb, slot: Slot, table: Table) -> SlotProgram:
    """The program of a slot; the schema of its table is that of an empty one."""
    dialect = Dialect.DUCKDB
    columns = ", ".join(
        f"CAST(NULL AS {dialect.type_of(c.type)}) AS {dialect.name_of(c.name)}" for c in table.all_columns
    )
    taken = ", ".join(f"{text} AS {name}" for name, text in slot.ingest(dialect).columns)
    nothing = db.query(f"SELECT {taken} FROM (SELECT {columns}) WHERE FALSE", {})
    reduce = reduce_sql(slot, "batch")
    schema = pa.schema([_fix_type(field) for field in db.query(reduce, {"batch": nothing}).schema])
    return SlotProgram(
        slot.name,
        slot.stream,
        slot.chunk,
        slot.find_key_position(),
        slot.is_presence,
        reduce,
        merge_sql(slot, "rows"),
        schema_to_bytes(schema),
    )


def _fix_type(field: pa.Field) -> pa.Field:
    """A field whose type does not change when tables are merged: sums of integers are decimals."""
    if field.name.startswith("total") and pa.types.is_integer(field.type):
        return field.with_type(pa.decimal128(38, 0))
    return field

"""Slots: the tables that make up a synopsis, how rows get into them, and how columns are read from them.

A slot holds what is kept of one occurrence of a stream.  A counted slot has one row for each class that was
seen, with the number of stream rows in it and their measures.  An existence slot has, for each class, the
stream rows with the weakest requirements on the other streams.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from millpond.engines.exact.chunks import Chunking
from millpond.engines.exact.class_codes import ClassCode, PackedKey, allowed_sql, pack_codes
from millpond.engines.exact.program import KeyPosition
from millpond.plan.classes import ColumnClasses
from millpond.plan.synopses import StreamPlan
from millpond.query.expressions import Expr, Ref
from millpond.query.parts import Part, type_of
from millpond.query.types import Family, SqlType
from millpond.runtime.filters import column_sql, measure_sql, row_filter_sql
from millpond.runtime.sql import Dialect, all_of, expression_sql, widen


@dataclass(frozen=True)
class SlotIngest:
    """What a slot takes from a row of its stream: which rows, and columns by name and SQL text."""

    row_filter: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Slot:
    """One table of the synopsis.

    Its ``key`` columns hold the class codes of a row.  ``carried`` are further columns of one stream row of
    each class, as fields of the struct ``row``.
    """

    name: str
    stream: str
    part: Part = field(repr=False)
    plan: StreamPlan = field(repr=False)
    carried: tuple[Ref, ...]
    chunking: Chunking | None = None

    @cached_property
    def codes(self) -> list[ClassCode]:
        return [self.class_code(classes) for classes in (*self.plan.classes, *self.plan.zoned)]

    def class_code(self, classes: ColumnClasses) -> ClassCode:
        return ClassCode(classes, type_of(self.part, classes.column), self.part.points)

    @cached_property
    def packed_keys(self) -> tuple[PackedKey, ...]:
        return pack_codes(self.codes)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns with the packed keys."""
        return tuple(f"{self.name}_k{i}" for i in range(len(self.packed_keys)))

    @property
    def chunk(self) -> str | None:
        """The column with the number of a row's chunk, if the slot is divided into chunks."""
        return f"{self.name}_c" if self.chunking is not None else None

    @property
    def grouping(self) -> tuple[str, ...]:
        """The columns by which rows are grouped: the key, and the chunk, which follows from it."""
        return (*self.key, self.chunk) if self.chunk is not None else self.key

    @property
    def is_presence(self) -> bool:
        """Whether the slot only records which classes occurred."""
        plan = self.plan
        ranked = plan.counted or plan.differing or any(p.extremes for p in plan.patterns)
        return not ranked and not self.carried and len(plan.patterns) == 1

    def type_of(self, ref: Ref) -> SqlType:
        return type_of(self.part, ref)

    @cached_property
    def derived(self) -> dict[Ref, Expr]:
        return dict(self.part.derived)

    # --- from stream rows --------------------------------------------------------------------------

    def ingest(self, dialect: Dialect) -> SlotIngest:
        """The row filter and the columns, as SQL over a row of the stream."""
        columns = []
        for name, packed in zip(self.key, self.packed_keys, strict=True):
            texts = [
                code.code_sql(self._column_sql(code.classes.column, dialect), dialect)
                for code in packed.codes
            ]
            columns.append((name, f"CAST({packed.pack_sql(texts)} AS {packed.type})"))
        if self.chunk is not None:
            columns.append((self.chunk, self._chunk_sql(dialect)))
        columns += [
            (self.carried_name(i), self._column_sql(ref, dialect)) for i, ref in enumerate(self.carried)
        ]
        columns += [
            (self.measure_name(i), measure_sql(m.expression, m.given, dialect))
            for i, m in enumerate(self.plan.measures)
        ]
        return SlotIngest(self._row_filter(dialect), tuple(columns))

    def carried_name(self, position: int) -> str:
        return f"{self.name}_v{position}"

    def measure_name(self, position: int) -> str:
        return f"{self.name}_m{position}"

    def _chunk_sql(self, dialect: Dialect) -> str:
        """The number of a row's chunk."""
        assert self.chunking is not None
        column = self.chunking.column
        x = self._column_sql(column, dialect)
        units = dialect.days(x) if self.type_of(column).family is Family.DATE else f"CAST({x} AS BIGINT)"
        division = "div" if dialect is Dialect.SPARK else "//"
        return f"CAST(({units} - ({self.chunking.low})) {division} {self.chunking.size} AS INT)"

    def find_key_position(self) -> KeyPosition | None:
        """The chunked column's place in the key; None if its values do not follow from the key."""
        if self.chunking is None:
            return None
        for name, packed in zip(self.key, self.packed_keys, strict=True):
            for i, code in enumerate(packed.codes):
                if code.classes.column == self.chunking.column and code.is_consecutive:
                    start = int(code.classes.low) - self.chunking.low
                    return KeyPosition(name, packed.weight(i), code.radix, start)
        return None

    def _column_sql(self, ref: Ref, dialect: Dialect) -> str:
        return column_sql(self.part, ref, dialect)

    def _row_filter(self, dialect: Dialect) -> str:
        """The conditions on this occurrence alone, and the ranges of values that can match."""
        own = [row_filter_sql(self.part, self.plan.alias, dialect)]
        closure = self.part.closure
        for code in self.codes:
            ref = code.classes.column
            known = closure.range(ref) if ref in closure.index else None
            own.append(allowed_sql(self._column_sql(ref, dialect), code, known, dialect))
        return all_of(own)

    # --- from slot rows ----------------------------------------------------------------------------

    def read(self, ref: Ref, table: str) -> str:
        """A column of the stream, as SQL for DuckDB over a row of the slot's table."""
        if ref in self.carried:
            return self.read_carried(ref, f"{table}.row")
        for name, packed in zip(self.key, self.packed_keys, strict=True):
            for position, code in enumerate(packed.codes):
                if code.classes.column == ref:
                    value = code.value_sql(packed.unpack_sql(position, f"{table}.{name}"))
                    return widen(value, code.type)
        raise KeyError(f"{ref} is not kept in {self.name}")

    def read_carried(self, ref: Ref, row: str) -> str:
        """A carried column, or an expression over carried columns, from the struct ``row``."""

        def field(r: Ref) -> str:
            return widen(f"{row}.v{self.carried.index(r)}", self.type_of(r))

        return expression_sql(self.derived.get(ref, ref), field, Dialect.DUCKDB)


def find_decodable_columns(plan: StreamPlan, part: Part) -> set[Ref]:
    """The columns whose values follow from the class of a row."""
    codes = [ClassCode(classes, type_of(part, classes.column), part.points) for classes in plan.classes]
    return {code.classes.column for code in codes if code.is_decodable}

"""Slots: the tables that make up a synopsis, how rows get into them, and how columns are read from them.

A slot holds what is kept of one occurrence of a stream.  A counted slot has a row for each class seen,
with the number of rows in it and their sums; a slot that is looked into has, for each class, the rows
that demand least.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from millpond.engines.exact.encode import Digit, Word, admitted, packed
from millpond.engines.exact.place import Place
from millpond.plan.classes import ColumnClasses
from millpond.plan.synopses import StreamPlan
from millpond.query.model import Expr, Ref
from millpond.query.parts import Part, type_of
from millpond.query.types import Family, SqlType
from millpond.runtime.filters import column_sql, quoted_column, row_filter_sql
from millpond.runtime.sql import Dialect, all_of, expression_sql, widen


@dataclass(frozen=True)
class Cut:
    """A large synopsis is cut by the values of a column, so many to a chunk, counted from ``low``."""

    column: Ref
    size: int
    low: int


@dataclass(frozen=True)
class Ingest:
    """What a slot takes from a row of its stream: whether at all, and columns by name and SQL text."""

    admits: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Slot:
    """One table of the synopsis.

    Its ``key`` columns tell classes apart.  ``carried`` are columns of one member row of each class, as
    fields of the struct ``row``; all other columns that matter can be told from the key.
    """

    name: str
    stream: str
    part: Part = field(repr=False)
    plan: StreamPlan = field(repr=False)
    carried: tuple[Ref, ...]
    cut: Cut | None = None

    @cached_property
    def digits(self) -> list[Digit]:
        return [self.digit(code) for code in (*self.plan.classes, *self.plan.zoned)]

    def digit(self, code: ColumnClasses) -> Digit:
        return Digit(code, type_of(self.part, code.column), self.part.points)

    @cached_property
    def words(self) -> tuple[Word, ...]:
        return packed(self.digits)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(f"{self.name}_k{i}" for i in range(len(self.words)))

    @property
    def chunk(self) -> str | None:
        """The column with the number of a row's chunk, where there are chunks."""
        return f"{self.name}_c" if self.cut is not None else None

    @property
    def grouped(self) -> tuple[str, ...]:
        """The key, and the chunk that follows from it."""
        return (*self.key, self.chunk) if self.chunk is not None else self.key

    @property
    def presence(self) -> bool:
        """All that is kept of a class is that there was a row."""
        plan = self.plan
        ranked = plan.counted or plan.differing or any(p.extremes for p in plan.patterns)
        return not ranked and not self.carried and len(plan.patterns) == 1

    def type_of(self, ref: Ref) -> SqlType:
        return type_of(self.part, ref)

    @cached_property
    def derived(self) -> dict[Ref, Expr]:
        return dict(self.part.derived)

    # --- rows in -----------------------------------------------------------------------------------

    def ingest(self, dialect: Dialect) -> Ingest:
        """The row as the table wants it, as column expressions over its stream."""
        columns = []
        for name, word in zip(self.key, self.words, strict=True):
            texts = [digit.of(self._column_sql(digit.code.column, dialect), dialect) for digit in word.digits]
            columns.append((name, f"CAST({word.of(texts)} AS {word.type})"))
        if self.chunk is not None:
            columns.append((self.chunk, self._chunk_sql(dialect)))
        columns += [
            (self.carried_name(i), self._column_sql(ref, dialect)) for i, ref in enumerate(self.carried)
        ]
        columns += [
            (self.measure_name(i), expression_sql(m.expression, quoted_column(dialect), dialect))
            for i, m in enumerate(self.plan.measures)
        ]
        return Ingest(self._admits(dialect), tuple(columns))

    def carried_name(self, position: int) -> str:
        return f"{self.name}_v{position}"

    def measure_name(self, position: int) -> str:
        return f"{self.name}_m{position}"

    def _chunk_sql(self, dialect: Dialect) -> str:
        assert self.cut is not None
        column = self.cut.column
        low = self.cut.low
        x = self._column_sql(column, dialect)
        units = dialect.days(x) if self.type_of(column).family is Family.DATE else f"CAST({x} AS BIGINT)"
        division = "div" if dialect is Dialect.SPARK else "//"
        return f"CAST(({units} - ({low})) {division} {self.cut.size} AS INT)"

    def place(self) -> Place | None:
        """Where in the cut a kept row lies, from its key."""
        if self.cut is None:
            return None
        for name, word in zip(self.key, self.words, strict=True):
            for position, digit in enumerate(word.digits):
                if digit.code.column == self.cut.column and digit.counts_up:
                    start = int(digit.code.low) - self.cut.low
                    return Place(name, word.below(position), digit.radix, start)
        return None

    def _column_sql(self, ref: Ref, dialect: Dialect) -> str:
        return column_sql(self.part, ref, dialect)

    def _admits(self, dialect: Dialect) -> str:
        """The conditions on this occurrence alone, and the classes of values that can match."""
        own = [row_filter_sql(self.part, self.plan.alias, dialect)]
        closure = self.part.closure
        for digit in self.digits:
            ref = digit.code.column
            known = closure.range(ref) if ref in closure.index else None
            own.append(admitted(self._column_sql(ref, dialect), digit, known, dialect))
        return all_of(own)

    # --- columns out -------------------------------------------------------------------------------

    def read(self, ref: Ref, table: str) -> str:
        """A column (in DuckDB) of the row that stands for a class."""
        if ref in self.carried:
            return self.of_row(ref, f"{table}.row")
        for name, word in zip(self.key, self.words, strict=True):
            for position, digit in enumerate(word.digits):
                if digit.code.column == ref:
                    value = digit.value(word.digit(position, f"{table}.{name}"))
                    return widen(value, digit.type)
        raise KeyError(f"{ref} is not kept in {self.name}")

    def of_row(self, ref: Ref, row: str) -> str:
        """A carried column, or an expression over such, out of a struct."""

        def field(r: Ref) -> str:
            return widen(f"{row}.v{self.carried.index(r)}", self.type_of(r))

        return expression_sql(self.derived.get(ref, ref), field, Dialect.DUCKDB)


def readable(plan: StreamPlan, part: Part) -> set[Ref]:
    """Columns whose value can be told from the class of a row."""
    digits = [Digit(code, type_of(part, code.column), part.points) for code in plan.classes]
    return {digit.code.column for digit in digits if digit.readable}

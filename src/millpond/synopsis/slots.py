"""Slots: the tables that make up a synopsis, how rows get into them, and how columns are read from them.

A slot holds what is kept of one occurrence of a stream.  A counted slot has a row for each class seen,
with the number of rows in it and their sums; a slot that is looked into has, for each class, the rows
that demand least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import permutations

from millpond.query.domains import Family, SqlType
from millpond.query.evaluate import conjuncts, refs
from millpond.query.model import Expr, Ref
from millpond.query.parts import Part
from millpond.synopsis.classes import Code
from millpond.synopsis.encode import Digit, Word, admitted, packed, within
from millpond.synopsis.plan import StreamPlan
from millpond.synopsis.sqltext import Dialect, Names, all_of, condition_sql, expression_sql, number_text
from millpond.synopsis.tables import Place


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
        return [self.digit(code) for code in (*self.plan.codes, *self.plan.zoned)]

    def digit(self, code: Code) -> Digit:
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
            texts = [digit.of(self._spelled(digit.code.column, dialect), dialect) for digit in word.digits]
            columns.append((name, f"CAST({word.of(texts)} AS {word.type})"))
        if self.chunk is not None:
            columns.append((self.chunk, self._chunk_sql(dialect)))
        columns += [(self.carried_name(i), self._spelled(ref, dialect)) for i, ref in enumerate(self.carried)]
        columns += [
            (self.measure_name(i), expression_sql(m.expression, _column(dialect), dialect))
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
        x = self._spelled(column, dialect)
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

    def _spelled(self, ref: Ref, dialect: Dialect) -> str:
        return expression_sql(self.derived.get(ref, ref), _column(dialect), dialect)

    def _admits(self, dialect: Dialect) -> str:
        """The conditions on this occurrence alone, and what the closure says of its columns."""
        alias, closure = self.plan.alias, self.part.closure
        own = [
            condition_sql(c, _column(dialect), dialect)
            for c in conjuncts(self.part.condition)
            if {r.occurrence for r in refs(c)} == {alias}
        ]
        nodes = [n for n in closure.nodes if n.ref.occurrence == alias]
        for node in nodes:
            x = self._spelled(node.ref, dialect)
            inside = within(x, closure.range(node.ref), node.type, self.part.points, dialect)
            if not self.part.can_be_null(node.ref):
                own += [f"({x} IS NOT NULL)", inside]
            elif inside != "TRUE":
                own.append(f"({x} IS NULL OR {inside})")
        own += self._differences([n.ref for n in nodes if n.ref in self.part.solid], dialect)
        for digit in self.digits:
            ref = digit.code.column
            known = closure.range(ref) if ref in closure.index else None
            own.append(admitted(self._spelled(ref, dialect), digit, known, dialect))
        return all_of(own)

    def _differences(self, columns: Sequence[Ref], dialect: Dialect) -> list[str]:
        """Bounds on differences of columns of a row that can match, beyond what their ranges imply."""
        closure = self.part.closure
        out = []
        for a, b in permutations(columns, 2):
            bound = closure.bound(a, b)
            if bound is None or closure.origin[closure.index[a]] != closure.origin[closure.index[b]]:
                continue
            high, low = closure.range(a).high, closure.range(b).low
            if high is None or low is None or bound < (high - low, False):
                out.append(self._difference(a, b, *bound, dialect))
        return out

    def _difference(self, a: Ref, b: Ref, bound: Fraction, strict: bool, dialect: Dialect) -> str:
        """``a - b <= bound``; nothing where rounding could make it wrong."""
        sign = "<" if strict else "<="
        x, y = self._spelled(a, dialect), self._spelled(b, dialect)
        if bound == 0:
            return f"({x} {sign} {y})"
        type_a, type_b = self.type_of(a), self.type_of(b)
        if type_a.family is Family.DATE:
            return f"({dialect.days(x)} {sign} {dialect.days(y)} + ({number_text(bound)}))"
        if type_a.family is not Family.NUMBER or not type_a.step or not type_b.step:
            return "TRUE"
        return f"(CAST({x} AS DECIMAL(38,6)) {sign} CAST({y} AS DECIMAL(38,6)) + ({number_text(bound)}))"

    # --- columns out -------------------------------------------------------------------------------

    def read(self, ref: Ref, table: str) -> str:
        """A column (in DuckDB) of the row that stands for a class."""
        if ref in self.carried:
            return self.of_row(ref, f"{table}.row")
        for name, word in zip(self.key, self.words, strict=True):
            for position, digit in enumerate(word.digits):
                if digit.code.column == ref:
                    value = digit.value(word.digit(position, f"{table}.{name}"))
                    return _widened(value, digit.type)
        raise KeyError(f"{ref} is not kept in {self.name}")

    def of_row(self, ref: Ref, row: str) -> str:
        """A carried column, or an expression over such, out of a struct."""

        def field(r: Ref) -> str:
            return _widened(f"{row}.v{self.carried.index(r)}", self.type_of(r))

        return expression_sql(self.derived.get(ref, ref), field, Dialect.DUCKDB)


def _widened(value: str, type_: SqlType) -> str:
    """A value (in DuckDB) as Spark computes with it: single floats as doubles, decimals with room to grow."""
    if type_.name == "FLOAT":
        return f"CAST({value} AS DOUBLE)"
    if type_.name.startswith("DECIMAL"):
        return f"CAST({value} AS DECIMAL(38,{len(str(type_.step.denominator)) - 1}))"
    return value


def type_of(part: Part, ref: Ref) -> SqlType:
    closure = part.closure
    return closure.nodes[closure.index[ref]].type if ref in closure.index else part.select.type_of(ref)


def readable(plan: StreamPlan, part: Part) -> set[Ref]:
    """Columns whose value can be told from the class of a row."""
    digits = [Digit(code, type_of(part, code.column), part.points) for code in plan.codes]
    return {digit.code.column for digit in digits if digit.readable}


def _column(dialect: Dialect) -> Names:
    return lambda ref: dialect.name_of(ref.column)

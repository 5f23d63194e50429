"""The query model: tables, their blocks, and queries.

All nodes are immutable, and names are resolved.  Expressions and conditions are in ``expressions.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any

from millpond.errors import Position
from millpond.query.calendar import TimeFunction
from millpond.query.expressions import TRUE, Condition, Expr, Literal, Ref
from millpond.query.types import Domain, SqlType

# --- catalog ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Derivation:
    """How a column is computed from the other columns of its row, for Spark and for DuckDB.

    ``facts`` always hold between the column and its arguments; their ``Ref.occurrence`` is the table's name.
    ``time`` is set for a function of the stream's time column.  If ``repeated``, the SQL is an array, and
    there is one row for each of its values.  ``gap`` is set for the edges of a session window: the
    microseconds after which it ends.  Its edges are computed as if the row had no others in its session.
    ``arguments`` are the columns that an expression is computed from, empty for a function of time.
    ``near`` are those that are timestamps of earlier rows and matter only within so many microseconds:
    further away, the value is the same as for NULL.
    ``limits`` is the argument that has finitely many values where this column is bounded above, as a string
    has where its length is.
    ``ends`` is the SQL of the column with the end of a value, for Spark and for DuckDB, where it does not
    follow from ``time``.
    ``rate`` is set for a rounded number: how many values it has while its only argument grows by 1.
    ``width`` is set for the start of a window over another timestamp than the time of the stream: how long
    it is, in microseconds.
    """

    sql: str
    duckdb: str
    facts: tuple[Condition, ...] = ()
    time: TimeFunction | None = None
    repeated: bool = False
    gap: int | None = None
    arguments: tuple[str, ...] = ()
    near: tuple[tuple[str, int], ...] = ()
    limits: str | None = None
    ends: tuple[str, str] | None = None
    rate: Fraction | None = None
    width: int | None = None


@dataclass(frozen=True)
class Column:
    """A column of a table, declared or (with a ``derivation``) computed.

    ``cardinality`` is the most different values that it takes, besides NULL, if that is known otherwise than
    from comparisons: it is declared, or it follows from the form of an expression.  ``of_relations``: a
    column of a stream whose values are those of relations, so there are finitely many.
    """

    name: str
    type: SqlType
    nullable: bool = True
    derivation: Derivation | None = None
    cardinality: int | None = None
    of_relations: bool = False


@dataclass(frozen=True)
class SourceSpec:
    """The declared source of a table: a Spark format and its options, as written."""

    format: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """A stream, or a static relation.

    ``columns`` are the declared ones.  ``derived`` are the columns that a query computes from them, each
    after those that it depends on.  ``checks`` hold for every row, or are unknown because of a NULL; their
    ``Ref.occurrence`` is the table's name.  ``time`` is the name of the time column.  A table that is not
    declared but computed from declared ones has a ``block``.
    """

    name: str
    columns: tuple[Column, ...]
    streaming: bool
    checks: tuple[Condition, ...] = ()
    source: SourceSpec | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    time: str | None = None
    derived: tuple[Column, ...] = ()
    block: Block | None = None

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """The declared columns, then the derived ones."""
        return self.columns + self.derived

    def column(self, name: str) -> Column:
        """The declared or derived column with this name."""
        return next(c for c in self.all_columns if c.name == name)

    @property
    def cardinalities(self) -> dict[str, int]:
        """The columns with a declared cardinality, which is a promise that a run watches."""
        names = {f"cardinality.{column.name.lower()}": column.name for column in self.columns}
        found = {names[k.lower()]: v for k, v in self.properties.items() if k.lower() in names}
        return {name: int(value.replace("_", "")) for name, value in found.items()}

    @property
    def declared(self) -> Table:
        """The declared table whose rows these are, possibly only some of them; else the table itself."""
        return self.block.base if isinstance(self.block, SemiJoin | NullRow) else self


# --- queries ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Occurrence:
    """A table in FROM, under its alias.  A stream that is joined with itself has several occurrences."""

    alias: str
    table: Table


class JoinSide(Enum):
    """Which side of a join keeps its rows that have no partner."""

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"

    @property
    def keeps_left(self) -> bool:
        return self in (JoinSide.LEFT, JoinSide.FULL)

    @property
    def keeps_right(self) -> bool:
        return self in (JoinSide.RIGHT, JoinSide.FULL)


@dataclass(frozen=True)
class Join:
    """``… JOIN alias ON on``: joins an occurrence to all occurrences before it in FROM."""

    alias: str
    side: JoinSide
    on: Condition = TRUE


@dataclass(frozen=True)
class Exists:
    """``[NOT] EXISTS (SELECT … FROM occurrences WHERE condition)``, a conjunct of WHERE.

    ``condition`` may compare with columns of the enclosing select, whose aliases are different ones.
    ``x IN (SELECT y …)`` is an EXISTS with ``y = x``.
    """

    occurrences: tuple[Occurrence, ...]
    condition: Condition
    negated: bool = False
    text: str = field(default="", compare=False)
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class PartnerTest:
    """Whether a row has a partner: rows of other tables that together fulfil a condition with it."""

    partners: tuple[Occurrence, ...]
    condition: Condition
    present: bool


@dataclass(frozen=True)
class SemiJoin:
    """The rows of ``base`` that pass all tests; conditions name a row by ``alias``."""

    alias: str
    base: Table
    tests: tuple[PartnerTest, ...]


@dataclass(frozen=True)
class NullRow:
    """One row, all columns of which are NULL: the partner of a row that has none in ``base``."""

    base: Table


@dataclass(frozen=True)
class Subquery:
    """The rows of a query: a subquery in FROM, a WITH clause or a view that is not merged."""

    query: Query


@dataclass(frozen=True)
class SortKey:
    """A column of ORDER BY.  As in Spark, NULL is the least value unless NULLS FIRST or LAST is written."""

    column: str
    descending: bool = False
    nulls_first: bool = True


class FrameUnit(Enum):
    """How the frame of a window function is measured."""

    ROWS = "ROWS"
    RANGE = "RANGE"


@dataclass(frozen=True)
class Frame:
    """The rows around the current one that a window function sees.

    Edges are relative to the current row: numbers of rows, or microseconds of time in a RANGE; negative ones
    precede it, None is UNBOUNDED, 0 is CURRENT ROW.
    """

    unit: FrameUnit
    start: int | None
    end: int | None


@dataclass(frozen=True)
class WindowFunction:
    """``function(arguments) OVER (PARTITION BY … ORDER BY … frame)``, computed as the column ``name``.

    Arguments are columns of the table or constants; what is computed from columns is a derived column first.
    LAG and LEAD have a column and an offset, and a default if one is written.  Ranks and offsets
    (ROW_NUMBER, LAG …) have no frame.  ``text`` is the user's own spelling, for messages.
    """

    name: str
    type: SqlType
    function: str
    arguments: tuple[str | Literal, ...] = ()
    partition_by: tuple[str, ...] = ()
    order_by: tuple[SortKey, ...] = ()
    frame: Frame | None = None
    ignore_nulls: bool = False
    text: str = field(default="", compare=False)


@dataclass(frozen=True)
class Windowed:
    """The rows of ``base``, each with the values of window functions over the rows around it.

    Only rows that fulfil ``where`` take part; its ``Ref.occurrence`` is the name of ``base``.
    """

    base: Table
    functions: tuple[WindowFunction, ...]
    where: Condition = TRUE


# How a table is computed from declared ones.
Block = SemiJoin | NullRow | Subquery | Windowed


@dataclass(frozen=True)
class Item:
    """A select item and the name of its output column."""

    expression: Expr
    name: str
    text: str = field(default="", compare=False)


@dataclass(frozen=True)
class Session:
    """``session_window(time, gap)`` in GROUP BY.

    The rows of a group are divided into sessions wherever two timestamps that follow each other are more than
    ``gap`` microseconds apart.  ``start`` and ``end`` are derived columns: a session starts with the least
    ``start`` of its rows, and ends with the greatest ``end``, which is ``gap`` after the last timestamp.
    """

    time: Ref
    gap: int
    start: Ref
    end: Ref


@dataclass(frozen=True)
class Select:
    """A SELECT.  ``group_by`` is None without GROUP BY; an aggregate then has one global group.

    With a ``session``, the groups are divided further; the columns of ``group_by`` do not include it.
    With outer joins, ``joins`` has one entry for each occurrence but the first, and their ON conditions;
    without, it is empty, and the ON conditions are part of ``where``.
    """

    occurrences: tuple[Occurrence, ...]
    items: tuple[Item, ...]
    where: Condition = TRUE
    group_by: tuple[Ref, ...] | None = None
    having: Condition = TRUE
    text: str = field(default="", compare=False)
    position: Position | None = field(default=None, compare=False)
    session: Session | None = None
    joins: tuple[Join, ...] = ()
    exists: tuple[Exists, ...] = ()

    @property
    def every_occurrence(self) -> tuple[Occurrence, ...]:
        """The occurrences of FROM, and those of EXISTS subqueries."""
        return (*self.occurrences, *(o for each in self.exists for o in each.occurrences))

    def occurrence(self, alias: str) -> Occurrence:
        """The occurrence with this alias."""
        return next(o for o in self.every_occurrence if o.alias == alias)

    def type_of(self, ref: Ref) -> SqlType:
        """The declared type of a column."""
        return self.occurrence(ref.occurrence).table.column(ref.column).type


@dataclass(frozen=True)
class Term:
    """The set (``distinct``) or the bag of the rows of its selects; a bag has exactly one select."""

    selects: tuple[Select, ...]
    distinct: bool


@dataclass(frozen=True)
class OutputColumn:
    """A column that is computed from the columns of the result, for Spark and for DuckDB."""

    name: str
    sql: str
    duckdb: str


@dataclass(frozen=True)
class Script:
    """The whole text that a query was read from, and which of its queries it is, counted from 0.

    ``declared`` are the tables and views that the text uses but does not declare, ``time_zone`` is that of
    the session.  A script with ``creates`` may declare tables; one without is a single SELECT.
    """

    text: str
    number: int = 0
    declared: Mapping[str, Any] = field(default_factory=dict)
    time_zone: str = "UTC"
    creates: bool = True


@dataclass(frozen=True)
class Query:
    """The bag union of its terms.  ``columns`` are the names of the output columns, without duplicates.

    A window in the result is two columns, its start and its end, which are put together when it is written:
    ``windows`` are the position of the start and the name of each.

    With a ``projection``, ``columns`` are those of the result before it, and the rows that are written have
    the columns of the projection, each computed from one row of the result.  Only rows are written for which
    the ``filter`` is true.  Only a query of one select that is not DISTINCT has a projection; one with a
    filter has a projection, too.

    ``order_by`` is the order of rows that are written together: those that become final together, or those
    that a micro-batch changes.
    Only the first ``limit`` rows are written.  ``script`` is the text that the query is a part of.
    """

    terms: tuple[Term, ...]
    columns: tuple[str, ...]
    text: str = field(default="", compare=False)
    position: Position | None = field(default=None, compare=False)
    windows: tuple[tuple[int, str], ...] = field(default=(), compare=False)
    projection: tuple[OutputColumn, ...] = ()
    order_by: tuple[SortKey, ...] = field(default=(), compare=False)
    limit: int | None = field(default=None, compare=False)
    filter: OutputColumn | None = None
    script: Script | None = field(default=None, compare=False, repr=False)

    @property
    def selects(self) -> tuple[Select, ...]:
        """The selects of all terms."""
        return tuple(select for term in self.terms for select in term.selects)

    @property
    def tables(self) -> dict[str, Table]:
        """The tables of all selects, by name."""
        return {o.table.name: o.table for select in self.selects for o in select.every_occurrence}

    @property
    def declared_tables(self) -> dict[str, Table]:
        """The declared tables that the query reads, also within its blocks, by name."""
        found: dict[str, Table] = {}
        for table in self.tables.values():
            for each in _list_declared(table):
                found.setdefault(each.name, each)
        return found


def _list_declared(table: Table) -> Iterator[Table]:
    match table.block:
        case None:
            yield table
        case Subquery(query=query):
            yield from query.declared_tables.values()
        case SemiJoin(base=base, tests=tests):
            yield from _list_declared(base)
            for partner in (p for test in tests for p in test.partners):
                yield from _list_declared(partner.table)
        case Windowed(base=base) | NullRow(base=base):
            yield from _list_declared(base)


def time_columns(table: Table) -> tuple[Column, ...]:
    """The columns that can be the time column."""
    return tuple(c for c in table.columns if c.type.domain is Domain.TIME)

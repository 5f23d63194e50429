"""The tables of the timed engine.  Every table name is made here.

An input table (``InputTable``) holds the rows of one occurrence that can match:

    t            timestamp in microseconds; ignored for relations
    x0, x1 …     the columns that joins or results use
    n            the number of equal rows (counted needs only)
    f0, s0 …     for each measure, how many of these rows have a value, and the sum (counted needs only)

With windows, the rows that later rows can match are kept, too (``InputTable.recent``).

The partial matches of a set of streams (``MatchTables``) have the columns

    p0, p1 …     columns of the result
    c0, c1 …     requirements: bounds on columns of rows still to come
    q0, q1 …     values that columns of rows still to come must differ from
    n, f0, s0 …  as above, for matches
    t            the timestamp at which they arose (with windows only)

The result of a need (``result_table``) holds the rows of a select (o0, o1 …), or its groups: their keys
(g0, g1 …), a value ``v`` of an aggregate's argument, and n, f0, s0 ….  ``Version`` names its states.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.query.expressions import Ref


@dataclass(frozen=True)
class InputTable:
    """The rows of the occurrence ``alias`` of the table ``stream`` that can match."""

    name: str
    alias: str
    stream: str
    columns: tuple[Ref, ...]
    streaming: bool

    def column(self, ref: Ref) -> str:
        return f"x{self.columns.index(ref)}"

    @property
    def recent(self) -> str:
        """The rows of earlier micro-batches that rows of this one can match within a window."""
        return recent_rows(self.name)

    @property
    def all(self) -> str:
        """The recent rows and those of this micro-batch."""
        return all_rows(self.name)

    def batch_column(self, column: str) -> str:
        """The name of a column in a batch that carries the rows for several input tables."""
        return f"{self.name}_{column}"


def recent_rows(name: str) -> str:
    """The table of recent rows of an input table."""
    return f"{name}_recent"


def all_rows(name: str) -> str:
    """The table of recent and new rows of an input table."""
    return f"{name}_all"


def input_table(
    number: int, alias: str, stream: str, columns: tuple[Ref, ...], streaming: bool
) -> InputTable:
    """The input table of this number."""
    return InputTable(f"input{number}", alias, stream, columns, streaming)


@dataclass(frozen=True)
class MatchTables:
    """The tables of the partial matches of one set of streams.

    ``state`` is kept from one micro-batch to the next.  The others are temporary.
    """

    state: str

    @property
    def new(self) -> str:
        """The matches that the micro-batch adds, with the timestamp ``t`` at which they arise."""
        return f"{self.state}_new"

    @property
    def all(self) -> str:
        """The stored and new matches; stored ones have the timestamp ALWAYS or, with windows, their own."""
        return f"{self.state}_all"

    @property
    def sorted(self) -> str:
        """All matches by front and time, with the ranks of their requirements (uncounted needs only)."""
        return f"{self.state}_sorted"

    @property
    def history(self) -> str:
        """The matches on a ``front``: their ``place``, from ``t`` to ``until`` (uncounted needs only)."""
        return f"{self.state}_history"

    @property
    def series(self) -> str:
        """Series of matches that replace each other in time: an ID ``series`` and the columns they share."""
        return f"{self.state}_series"

    @property
    def timeline(self) -> str:
        """What each series contains from ``t`` on; nothing where ``live`` is false.  For as-of joins."""
        return f"{self.state}_timeline"


def match_tables(need: int, position: int) -> MatchTables:
    """The tables of a need's set of streams, by their numbers."""
    return MatchTables(f"need{need}_set{position}")


def result_table(need: int) -> str:
    """The name of a need's result table."""
    return f"need{need}_result"

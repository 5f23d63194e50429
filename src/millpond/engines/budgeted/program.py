"""What a worker executes for a query on a budget: SQL text and Arrow schemas.

The ``repr`` of the terms identifies the state in checkpoints.  Renaming a class or a field here makes
checkpoints unreadable, unless ``compile`` maps the new name to the old one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import pyarrow as pa

from millpond.runtime.arrow_ipc import schema_from_bytes

# The only column of a table of which no column is needed.
ONE = "one"


class JoinKeyKind(Enum):
    """What the join key of a tuple says about its partners."""

    NUMBER = "number"  # partners have the same integer; a model may predict those to come
    HASH = "hash"  # partners have the same hash
    BAND = "band"  # partners have a number in a band around it
    NOTHING = "nothing"  # the condition gives no join key

    @property
    def is_equality(self) -> bool:
        return self in (JoinKeyKind.NUMBER, JoinKeyKind.HASH)


@dataclass(frozen=True)
class LeafProgram:
    """The rows of one occurrence of a stream, joined with relations.

    ``columns`` are the names and SQL texts of the columns that are needed, ``where`` is the condition on a
    row and ``shard`` the number of its shard, all three in the dialect of the frame.  ``value`` is the join
    key with the left side, in DuckDB SQL over the columns.
    """

    name: str
    stream: str
    columns: tuple[tuple[str, str], ...]
    where: str
    shard: str
    value: str
    schema_bytes: bytes

    @cached_property
    def schema(self) -> pa.Schema:
        return schema_from_bytes(self.schema_bytes)


@dataclass(frozen=True)
class SideProgram:
    """One side of a level: a store of tuples with the columns of ``schema``.

    ``value`` is the SQL text of the join key, ``place`` that of the position in a sliding window.
    """

    name: str
    value: str
    place: str
    schema_bytes: bytes

    @cached_property
    def schema(self) -> pa.Schema:
        return schema_from_bytes(self.schema_bytes)

    @property
    def columns(self) -> str:
        """The select list with which the level below produces its tuples."""
        return ", ".join(f"CAST(1 AS INT) AS {ONE}" if name == ONE else name for name in self.schema.names)


@dataclass(frozen=True)
class LevelProgram:
    """A binary join of ``l`` and ``r`` on ``condition``.

    ``exact``: equal join keys are the whole condition.  ``low`` and ``high`` are the limits of a band, or
    those of a sliding window if ``windowed``.
    """

    left: SideProgram
    right: SideProgram
    kind: JoinKeyKind
    condition: str
    exact: bool
    whole: bool  # the join keys are integers
    windowed: bool
    low: float | None = None
    high: float | None = None

    @property
    def has_integer_keys(self) -> bool:
        """Whether a model can describe the join keys."""
        return self.kind is JoinKeyKind.NUMBER or (self.kind is JoinKeyKind.BAND and self.whole)


@dataclass(frozen=True)
class GroupProgram:
    """The aggregates of a select, as SQL.

    ``partial`` aggregates the matches of a batch, ``merge`` merges partial aggregates of the same group, and
    ``finish`` computes the result rows.  ``keys`` is the number of grouping columns; with 0 there is one
    group, even without a row.
    """

    keys: int
    partial: str
    merge: str
    finish: str
    retracts: bool
    schema_bytes: bytes

    @cached_property
    def schema(self) -> pa.Schema:
        return schema_from_bytes(self.schema_bytes)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(f"g{i}" for i in range(self.keys))


@dataclass(frozen=True)
class SelectProgram:
    """The leaves and levels of a join tree; ``outputs`` is the select list of the last level."""

    leaves: tuple[LeafProgram, ...]
    levels: tuple[LevelProgram, ...]
    outputs: str


@dataclass(frozen=True)
class BudgetedTermProgram:
    """A term: ``groups`` for aggregates, ``set_schema`` for DISTINCT or UNION; all rows if both are None."""

    selects: tuple[SelectProgram, ...]
    groups: GroupProgram | None
    set_bytes: bytes | None

    @cached_property
    def set_schema(self) -> pa.Schema | None:
        return None if self.set_bytes is None else schema_from_bytes(self.set_bytes)


@dataclass(frozen=True)
class BudgetedProgram:
    """A query on a budget of ``memory`` tuples, divided among ``shards`` shards."""

    terms: tuple[BudgetedTermProgram, ...]
    names: tuple[str, ...]  # of the output columns
    memory: int
    shards: int
    aggregate: bool
    retracts: bool
    fingerprint: bytes

    @property
    def selects(self) -> tuple[SelectProgram, ...]:
        return tuple(select for term in self.terms for select in term.selects)

    @property
    def leaves(self) -> tuple[LeafProgram, ...]:
        return tuple(leaf for select in self.selects for leaf in select.leaves)

    @property
    def sides(self) -> tuple[SideProgram, ...]:
        return tuple(side for s in self.selects for level in s.levels for side in (level.left, level.right))

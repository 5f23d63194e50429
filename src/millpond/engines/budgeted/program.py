"""What a worker executes for a query under a budget, as plain text and schemas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import pyarrow as pa

from millpond.runtime.arrow_ipc import schema_from_bytes

# The column of a table of which nothing else is needed.
ONE = "one"


class JoinKeyKind(Enum):
    """What a value says of a tuple's partners."""

    NUMBER = "number"  # a whole number that partners share: it may follow a model
    HASH = "hash"  # partners share it, and it means nothing else
    BAND = "band"  # partners have a number that is near enough
    NOTHING = "nothing"


@dataclass(frozen=True)
class LeafProgram:
    """The rows of one occurrence of a stream.

    ``columns`` are taken of a row, by name and SQL text; ``where`` says which rows matter; ``shard`` is the
    text of the shard that a row belongs to.
    """

    name: str
    stream: str
    columns: tuple[tuple[str, str], ...]
    where: str
    shard: str
    value: str  # by which it joins the left; DuckDB's text over its columns
    schema_bytes: bytes

    @cached_property
    def schema(self) -> pa.Schema:
        return schema_from_bytes(self.schema_bytes)


@dataclass(frozen=True)
class SideProgram:
    """One side of a level: a store of tuples with the columns ``schema``, scored by the value ``value``.

    ``place`` is where a tuple stands in the sliding window, if there is one.
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
        """Its columns in the join of the level below."""
        return ", ".join(f"CAST(1 AS INT) AS {ONE}" if name == ONE else name for name in self.schema.names)


@dataclass(frozen=True)
class LevelProgram:
    """A binary join; ``condition`` is over ``l`` and ``r``.

    ``low`` and ``high`` are the limits of a band, or of a sliding window if ``windowed``.
    """

    left: SideProgram
    right: SideProgram
    kind: JoinKeyKind
    condition: str
    exact: bool
    whole: bool  # the values are whole numbers
    windowed: bool
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class GroupProgram:
    """Groups: SQL from ``matches`` to partial values, from ``rows`` of these to one a group, and to results.

    ``keys`` is the number of columns that name a group; ``whole``: there is one group, even without a row.
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
    """Leaves and levels; ``outputs`` are the columns that the last level hands over, over ``l`` and ``r``."""

    leaves: tuple[LeafProgram, ...]
    levels: tuple[LevelProgram, ...]
    outputs: str


@dataclass(frozen=True)
class BudgetedTermProgram:
    """A bag of results, a set (``set_schema`` tells its columns), or groups."""

    selects: tuple[SelectProgram, ...]
    groups: GroupProgram | None
    set_bytes: bytes | None

    @cached_property
    def set_schema(self) -> pa.Schema | None:
        return None if self.set_bytes is None else schema_from_bytes(self.set_bytes)


@dataclass(frozen=True)
class BudgetedProgram:
    """A query under a budget of ``memory`` tuples over ``shards`` shards."""

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

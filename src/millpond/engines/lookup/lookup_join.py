"""The join with relations in databases, over Arrow batches of a stream; to be given to ``mapInArrow``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engines.lookup.database import DatabaseTable
from millpond.engines.lookup.key_cache import create_key_cache
from millpond.engines.lookup.row_cache import RowCache
from millpond.engines.lookup.row_fetcher import RowFetcher
from millpond.query import types as domains
from millpond.query.types import SqlType, arrow_type
from millpond.runtime.arrow_ipc import schema_from_bytes
from millpond.runtime.row_kinds import BatchMeasure

# The columns of a row that is no result, but says what was counted.
MEASURED, COUNTED = "_measured", "_counted"
# References that are looked up together, and results that leave together, at most.
TOGETHER = 65_536
# Joins whose caches a process keeps; those used last stay.
_MOST_JOINS = 32
_caches: OrderedDict[str, RowCache] = OrderedDict()


@dataclass(frozen=True)
class LookupStep:
    """A relation to be joined.

    ``token`` tells its cache from others in the same process.  ``asked`` are the columns of the stream with
    the values of the key, ``key`` the relation's columns they equal.  ``added`` are its columns that the
    result has, each with the name it has there.
    """

    token: str
    located: DatabaseTable
    asked: tuple[str, ...]
    key: tuple[str, ...]
    added: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class LookupJoin:
    """Joins a task's rows with the relations, one after the other.

    After the rows come two that say how many look-ups there were, and how many found the rows in the cache.
    """

    steps: tuple[LookupStep, ...]
    schema_bytes: bytes
    zone: str = "UTC"
    cache_of: Callable[[LookupStep, str], RowCache] | None = None

    @property
    def schema(self) -> pa.Schema:
        """Of what leaves: the columns of the result, MEASURED and COUNTED."""
        return schema_from_bytes(self.schema_bytes)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        lookups = hits = 0
        for batch in batches:
            for start in range(0, batch.num_rows, TOGETHER):
                rows = pa.Table.from_batches([batch.slice(start, TOGETHER)])
                for joined, asked, found in self._joined(rows, self.steps):
                    lookups, hits = lookups + asked, hits + found
                    if joined is not None:
                        yield from self._results(joined, schema)
        yield self._measured(schema, {BatchMeasure.LOOKUPS: lookups, BatchMeasure.HITS: hits})

    def _measured(self, schema: pa.Schema, counts: dict[str, int]) -> pa.RecordBatch:
        told = {MEASURED: list(counts), COUNTED: list(counts.values())}
        arrays = [
            pa.array(told[field.name], field.type)
            if field.name in told
            else pa.nulls(len(counts), field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _joined(
        self, rows: pa.Table, steps: tuple[LookupStep, ...]
    ) -> Iterator[tuple[pa.Table | None, int, int]]:
        """The rows joined with the relations that are left; and the look-ups and hits that it took."""
        if not steps:
            yield rows, 0, 0
            return
        step = steps[0]
        cache = (self.cache_of or worker_cache)(step, self.zone)
        present = _present(rows, step.asked)
        types = [cache.key_type(name) for name in step.key]
        keys = [_plain(present.column(name)).cast(kind) for name, kind in zip(step.asked, types, strict=True)]
        if not present.num_rows:
            return
        answer = cache.look_up(keys)
        yield None, present.num_rows, int(answer.hits.sum())
        for reference, found in answer.pairs(TOGETHER):
            joined = present.take(pa.array(reference))
            for name, alias in step.added:
                joined = joined.append_column(alias, found.column(name))
            yield from self._joined(joined, steps[1:])

    def _results(self, joined: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        arrays = [
            pa.nulls(joined.num_rows, field.type)
            if field.name in (MEASURED, COUNTED)
            else _plain(joined.column(field.name)).cast(field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def output_schema(kinds: Mapping[str, SqlType], zone: str) -> pa.Schema:
    """Columns of these types as Spark takes them, and what was counted."""
    spelled = {domains.TIMESTAMP: pa.timestamp("us", zone)}
    fields = [(name, spelled.get(kind) or arrow_type(kind)) for name, kind in kinds.items()]
    return pa.schema([*fields, (MEASURED, pa.string()), (COUNTED, pa.int64())])


def worker_cache(step: LookupStep, zone: str) -> RowCache:
    """The cache of a join in this process: cold at first, and after that as the last batch left it."""
    cache = _caches.get(step.token)
    if cache is None:
        cache = _caches[step.token] = create_cache(step, zone)
        while len(_caches) > _MOST_JOINS:
            _caches.popitem(last=False)
    _caches.move_to_end(step.token)
    return cache


def create_cache(step: LookupStep, zone: str) -> RowCache:
    """An empty cache for a join."""
    relation = step.located.relation
    fetcher = RowFetcher(step.located, step.key, [name for name, _ in step.added], zone)
    types = [fetcher.schema.field(name).type for name in step.key]
    numeric = len(types) == 1 and pa.types.is_integer(types[0])
    return RowCache(
        fetcher,
        create_key_cache(relation.policy, relation.memory, numeric),
        relation.memory,
        step.key,
        relation.ttl,
    )


def _present(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """The rows with no NULL in the columns: NULL equals nothing."""
    valid = np.ones(rows.num_rows, np.bool_)
    for name in names:
        if rows.column(name).null_count:
            valid &= np.asarray(pc.is_valid(rows.column(name)))
    return rows if valid.all() else rows.filter(pa.array(valid))


def _plain(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

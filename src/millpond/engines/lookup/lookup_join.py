"""The join of a stream with lookup relations, on Arrow batches; Spark runs it with ``mapInArrow``."""

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

# The columns of a row that is not a result but a measure: its name and its value.
MEASURED, COUNTED = "_measured", "_counted"
# The largest number of rows that are looked up together, and of results in an output batch.
MAX_ROWS = 65_536
# The number of joins whose caches a process keeps; the least recently used is dropped.
_MAX_CACHES = 32
_caches: OrderedDict[str, RowCache] = OrderedDict()


@dataclass(frozen=True)
class LookupStep:
    """One lookup.

    ``cache_id`` identifies its cache in the process.  The columns ``values`` of the rows have the values of
    the relation's columns ``key``.  ``added`` are the relation's columns in the result, with their names
    there.
    """

    cache_id: str
    table: DatabaseTable
    values: tuple[str, ...]
    key: tuple[str, ...]
    added: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class LookupJoin:
    """Joins the rows of a task with the relations, one after the other.

    The last two rows of the output are measures: the number of lookups, and that of cache hits.
    """

    steps: tuple[LookupStep, ...]
    schema_bytes: bytes
    zone: str = "UTC"
    cache_of: Callable[[LookupStep, str], RowCache] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the output: the columns of the result, MEASURED and COUNTED."""
        return schema_from_bytes(self.schema_bytes)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        lookups = hits = 0
        for batch in batches:
            for start in range(0, batch.num_rows, MAX_ROWS):
                rows = pa.Table.from_batches([batch.slice(start, MAX_ROWS)])
                for joined, looked_up, hit in self._join(rows, self.steps):
                    lookups, hits = lookups + looked_up, hits + hit
                    if joined is not None:
                        yield self._to_results(joined, schema)
        yield self._to_measures(schema, {BatchMeasure.LOOKUPS: lookups, BatchMeasure.HITS: hits})

    def _to_measures(self, schema: pa.Schema, counts: dict[str, int]) -> pa.RecordBatch:
        values = {MEASURED: list(counts), COUNTED: list(counts.values())}
        arrays = [
            pa.array(values[field.name], field.type)
            if field.name in values
            else pa.nulls(len(counts), field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _join(
        self, rows: pa.Table, steps: tuple[LookupStep, ...]
    ) -> Iterator[tuple[pa.Table | None, int, int]]:
        """The rows joined with the relations of ``steps``, and the numbers of lookups and hits."""
        if not steps:
            yield rows, 0, 0
            return
        step = steps[0]
        cache = (self.cache_of or get_worker_cache)(step, self.zone)
        present = _drop_nulls(rows, step.values)
        types = [cache.key_type(name) for name in step.key]
        keys = [
            _to_array(present.column(name)).cast(kind) for name, kind in zip(step.values, types, strict=True)
        ]
        if not present.num_rows:
            return
        answer = cache.look_up(keys)
        yield None, present.num_rows, int(answer.hits.sum())
        for reference, found in answer.iterate_pairs(MAX_ROWS):
            joined = present.take(pa.array(reference))
            for name, alias in step.added:
                joined = joined.append_column(alias, found.column(name))
            yield from self._join(joined, steps[1:])

    def _to_results(self, joined: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
        arrays = [
            pa.nulls(joined.num_rows, field.type)
            if field.name in (MEASURED, COUNTED)
            else _to_array(joined.column(field.name)).cast(field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def output_schema(kinds: Mapping[str, SqlType], zone: str) -> pa.Schema:
    """The columns with their types for Spark, MEASURED and COUNTED."""
    spelled = {domains.TIMESTAMP: pa.timestamp("us", zone)}
    fields = [(name, spelled.get(kind) or arrow_type(kind)) for name, kind in kinds.items()]
    return pa.schema([*fields, (MEASURED, pa.string()), (COUNTED, pa.int64())])


def get_worker_cache(step: LookupStep, zone: str) -> RowCache:
    """The cache of a lookup in this process; it starts empty, and lives on between batches."""
    cache = _caches.get(step.cache_id)
    if cache is None:
        cache = _caches[step.cache_id] = create_cache(step, zone)
        while len(_caches) > _MAX_CACHES:
            _caches.popitem(last=False)
    _caches.move_to_end(step.cache_id)
    return cache


def create_cache(step: LookupStep, zone: str) -> RowCache:
    """An empty cache for a lookup."""
    relation = step.table.relation
    fetcher = RowFetcher(step.table, step.key, [name for name, _ in step.added], zone)
    types = [fetcher.schema.field(name).type for name in step.key]
    numeric = len(types) == 1 and pa.types.is_integer(types[0])
    return RowCache(
        fetcher,
        create_key_cache(relation.policy, relation.memory, numeric),
        relation.memory,
        step.key,
        relation.ttl,
    )


def _drop_nulls(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """The rows without NULL in the columns: NULL equals nothing."""
    valid = np.ones(rows.num_rows, np.bool_)
    for name in names:
        if rows.column(name).null_count:
            valid &= np.asarray(pc.is_valid(rows.column(name)))
    return rows if valid.all() else rows.filter(pa.array(valid))


def _to_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

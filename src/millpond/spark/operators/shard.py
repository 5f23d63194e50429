"""The base class of shard processors: access to the state store, input from and output to Spark."""

from __future__ import annotations

import gc
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle

from millpond.runtime.duckdb import DuckDb
from millpond.spark.operators.lazy import STATE
from millpond.spark.operators.output import build_note_rows, to_pandas

if TYPE_CHECKING:
    import pandas as pd

# The key of the part of the state that is not divided into chunks.
WHOLE = -1


@lru_cache(maxsize=2)
def get_worker_duckdb(threads: int = 1) -> DuckDb:
    """The DuckDB of this worker process.

    Spark collects the garbage of a worker after every task: from now on, not among all that was imported.
    """
    if TaskContext.get() is not None:
        gc.freeze()
    return DuckDb(threads)


class ShardProcessor(StatefulProcessor):
    """Holds the state of a shard as binary values by integer key, and lets notes pass through."""

    def __init__(self, width: int, types: Sequence[str] | None) -> None:
        self.width = width  # of the select list
        self.types = types  # DuckDB types of the select list; None leaves them as DuckDB infers them

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.use_state(handle.getMapState(*STATE))

    def use_state(self, state: MapState) -> None:
        self._state = state

    def close(self) -> None:
        pass

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        (shard,) = key
        if shard < 0:
            for frame in rows:
                notes = pa.Table.from_pandas(frame, preserve_index=False)
                yield to_pandas(build_note_rows(notes), self.width)
            return
        payloads = [data for frame in rows for data in frame["payload"]]
        yield from (to_pandas(table, self.width) for table in self.process(int(shard), payloads))

    @abstractmethod
    def process(self, shard: int, payloads: Sequence[bytes]) -> Iterator[pa.Table]:
        """Merge the payloads of a micro-batch into the state; yield the new results and reports."""

    def get_value(self, key: int) -> bytes | None:
        found = self._state.getValue((key,))
        return None if found is None else bytes(found[0])

    def put_value(self, key: int, data: bytes) -> None:
        self._state.updateValue((key,), (data,))

    def remove_value(self, key: int) -> None:
        self._state.removeKey((key,))

"""A shard processor that Spark can ask for its state without importing what it runs.  Imports little."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd

    from millpond.spark.operators.shard import ShardProcessor

# The name and the schema of the map state are part of every checkpoint: never change them.
STATE = ("synopsis", "chunk INT", "data BINARY")


class LazyProcessor(StatefulProcessor):
    """A shard processor in pickled form, which is loaded when the first rows arrive.

    When a query starts, Spark starts a Python process on the driver that only asks which state there is.
    """

    def __init__(self, processor: ShardProcessor) -> None:
        self._pickled: bytes = cloudpickle.dumps(processor)  # type: ignore[no-untyped-call]
        self._loaded: ShardProcessor | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState(*STATE)

    def close(self) -> None:
        pass

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        if self._loaded is None:
            loaded: ShardProcessor = pickle.loads(self._pickled)
            loaded.use_state(self._state)
            self._loaded = loaded
        return self._loaded.handleInputRows(key, rows, timerValues)

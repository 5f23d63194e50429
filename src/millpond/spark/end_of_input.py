"""The end of the input: how a query learns that no more rows will come, so that it closes what is still open.

A file in a folder of the checkpoint announces the end; the query reads the folder as one more stream.  The
file holds the latest timestamp of the input, if Spark reports it.  After everything has been closed, a note
in the checkpoint says so: without new rows, a later run has nothing to close.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from millpond.query.durations import parse_duration
from millpond.query.model import Query
from millpond.spark.files import Files

_FOLDER = "endings"
_CLOSED_NOTE = "_closed"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class EndOfInput:
    """Announces the end of the input of one run, and follows the latest timestamp until then."""

    def __init__(self, files: Files, checkpoint: str, query: Query) -> None:
        self._files = files
        self._checkpoint = checkpoint
        self._latest = self._find_open_timestamp(query)

    def open(self, spark: SparkSession) -> DataFrame:
        """The stream of announcements."""
        self._files.make_folder(f"{self._checkpoint}/{_FOLDER}")
        return spark.readStream.text(f"{self._checkpoint}/{_FOLDER}")

    def follow(self, progress: StreamingQueryProgress) -> None:
        """Take note of the latest timestamp of a batch, which Spark reports to the millisecond."""
        if latest := progress.eventTime.get("max"):
            last = (datetime.fromisoformat(latest) - _EPOCH) // _MICROSECOND + 999
            self._latest = last if self._latest is None else max(last, self._latest)

    def announce(self) -> None:
        """Announce the end of the input to the next start of the query."""
        text = "end" if self._latest is None else str(self._latest)
        self._files.create(f"{self._checkpoint}/{_FOLDER}/{time.time_ns()}", f"{text}\n")

    def mark_closed(self) -> None:
        """Note that everything up to the last batch has been closed."""
        note = f"{self._checkpoint}/{_CLOSED_NOTE}"
        self._files.delete(note)
        self._files.create(note, f"{self._find_last_batch()}\n")

    def _find_open_timestamp(self, query: Query) -> int | None:
        """A timestamp that no row of the runs before is later than; None if they have closed everything."""
        last = self._find_last_batch()
        closed = self._files.read(f"{self._checkpoint}/{_CLOSED_NOTE}")
        if last is None or (closed is not None and closed.strip() == str(last)):
            return None
        text = self._files.read(f"{self._checkpoint}/commits/{last}") or ""
        watermark = int(json.loads(text.splitlines()[1]).get("nextBatchWatermarkMs", 0))
        tables = query.declared_tables.values()
        delays = [parse_duration(table.properties.get("watermark", "")) or 0 for table in tables]
        return (watermark + 1) * 1_000 + max(delays)

    def _find_last_batch(self) -> int | None:
        names = self._files.list_names(f"{self._checkpoint}/commits")
        return max((int(name) for name in names if name.isdecimal()), default=None)

"""A stand-in for Spark's Kafka connector: a data source whose topics are files.

It has the connector's columns and offsets, and reads the options ``subscribe`` and ``startingOffsets``.  The
broker is a folder, given as ``kafka.bootstrap.servers``; each line of its file TOPIC is a JSON record with
``value`` and ``key`` as text and ``timestamp`` in microseconds.  Spark reserves the name ``kafka``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP, timestampType INT"
)
NAME = "kafka_stand_in"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def send(broker: Path, topic: str, *records: Mapping[str, Any]) -> None:
    """Append records to a topic."""
    broker.mkdir(parents=True, exist_ok=True)
    with (broker / topic).open("a") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)


class KafkaStandIn(DataSource):
    """The data source; ``spark.dataSource.register`` makes it known to a session."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(dict(self.options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _StreamReader(dict(self.options))


class _Range(InputPartition):
    """Records of the topic from one offset to another."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(None)
        self.first, self.last = first, last


class _Topic:
    def __init__(self, options: Mapping[str, str]) -> None:
        given = {key.lower(): value for key, value in options.items()}
        self.name = given["subscribe"]
        self.file = Path(given["kafka.bootstrap.servers"], self.name)
        self.from_start = given.get("startingoffsets", "latest") == "earliest"

    def count(self) -> int:
        return len(self.file.read_text().splitlines()) if self.file.exists() else 0

    def read(self, first: int, last: int) -> Iterator[tuple[Any, ...]]:
        for offset, line in enumerate(self.file.read_text().splitlines()[first:last], start=first):
            record = json.loads(line)
            key, value = (
                None if (text := record.get(n)) is None else text.encode() for n in ("key", "value")
            )
            at = EPOCH + timedelta(microseconds=record.get("timestamp", 0))
            yield key, value, self.name, 0, offset, at, 0


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.topic = _Topic(options)

    def partitions(self) -> list[_Range]:
        return [_Range(0, self.topic.count())]

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        return self.topic.read(partition.first, partition.last)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.topic = _Topic(options)

    def initialOffset(self) -> dict[str, int]:
        return {"0": 0 if self.topic.from_start else self.topic.count()}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        return {"0": self.topic.count()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[_Range]:
        return [_Range(start["0"], end["0"])]

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        return self.topic.read(partition.first, partition.last)

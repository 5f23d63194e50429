"""Kafka as a source: against a stand-in for the connector, and against a broker where there is one.

The stand-in (``tests.support.kafka_stand_in``) has the connector's columns, options and offsets.  With the
connector among Spark's jars and ``MILLPOND_TEST_KAFKA=host:port``, a test uses a real broker.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from millpond.cli.main import main
from millpond.spark import run as run_module
from millpond.spark import session as session_module
from millpond.spark.sources import kafka
from tests.support.kafka_stand_in import NAME, KafkaStandIn, send

SECOND = 1_000_000


class Broker:
    """The stand-in, and the folder of a query that reads from it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def send(self, *values: str | None, topic: str = "orders", start: int = 0) -> None:
        rows = ({"value": each, "timestamp": (start + i) * SECOND} for i, each in enumerate(values))
        send(self.path / "broker", topic, *rows)

    def run(self, columns: str, query: str, options: str = "", properties: str = "") -> int:
        using = f"kafka.bootstrap.servers '{self.path / 'broker'}', subscribe 'orders'{options}"
        table = f"CREATE STREAMING TABLE orders ({columns}) USING kafka OPTIONS ({using}) {properties}"
        (self.path / "query.sql").write_text(f"{table};\n{query};\n")
        return main(["run", str(self.path / "query.sql"), "--once", "--output", str(self.path / "out")])

    def rows(self, pattern: str = "part-*") -> list[dict[str, Any]]:
        files = sorted((self.path / "out").glob(pattern))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def broker(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broker:
    @contextmanager
    def open_session(*arguments: Any) -> Iterator[SparkSession]:
        with session_module.open_session(*arguments) as session:
            session.dataSource.register(KafkaStandIn)
            yield session

    monkeypatch.setattr(run_module, "open_session", open_session)
    monkeypatch.setattr(kafka, "SPARK_FORMAT", NAME)
    return Broker(tmp_path)


JSON = ", value.format 'json'"


def test_malformed_values_are_rejected(broker: Broker) -> None:
    broker.send('{"id": 1}', '{"id": "x"}', "not json", '{"id": 1} {"id": 2}', None, "", '{"id": -5}')
    columns = "id INT CHECK (id > 0)"
    assert broker.run(columns, "SELECT id FROM orders", JSON) == 0
    assert [row["id"] for row in broker.rows()] == [1]
    assert sorted(row["reason"] for row in broker.rows("_rejected/part-*")) == [
        "CHECK (id > 0) is broken",
        "id: 'x' is not INT",
        "not valid JSON",
        "not valid JSON",
        "the record has no value",
        "the record has no value",
    ]


def test_a_later_run_continues_after_the_last_record(broker: Broker) -> None:
    broker.send('{"id": 1}', '{"id": 2}')
    assert broker.run("id INT", "SELECT id FROM orders", JSON) == 0
    broker.send('{"id": 3}')
    assert broker.run("id INT", "SELECT id FROM orders", JSON) == 0
    assert sorted(row["id"] for row in broker.rows()) == [1, 2, 3]


def test_metadata_beside_the_fields_of_the_value(broker: Broker) -> None:
    broker.send('{"id": 1}', '{"id": 2}', '{"id": 3}', start=59)
    columns, options = "id INT, timestamp TIMESTAMP, offset BIGINT", f"{JSON}, metadata 'Timestamp, offset'"
    query = (
        "SELECT window.start AS start, COUNT(*) AS n, MAX(offset) AS last FROM orders "
        "GROUP BY window(timestamp, '1 minute')"
    )
    assert broker.run(columns, query, options) == 0
    found = sorted((row["start"], row["n"], row["last"]) for row in broker.rows())
    assert found == [("1970-01-01T00:00:00.000Z", 1, 0), ("1970-01-01T00:01:00.000Z", 2, 2)]


def test_kafkas_own_columns(broker: Broker) -> None:
    broker.send('{"id": 7, "item": {"name": "lamp"}}', "x", '{"id": 8}')
    columns = "value STRING, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
    name = "get_json_object(value, '$.item.name') AS name"
    query = f"SELECT {name}, offset, topic FROM orders WHERE value LIKE '{{%'"
    assert broker.run(columns, query) == 0
    found = [(row.get("name"), row["offset"], row["topic"]) for row in broker.rows()]
    assert sorted(found, key=str) == [("lamp", 0, "orders"), (None, 2, "orders")]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id INT", "", "orders: a Kafka record has no column id; it has key, value, topic,"),
        ("id INT", ", value.format 'avro'", "value.format 'avro' is not supported; write 'json'"),
        ("value STRING", ", metadata 'offset'", "metadata without value.format"),
        ("id INT", f"{JSON}, metadata 'ofset'", "ofset in metadata is not a column of Kafka; they are key"),
        ("id INT", f"{JSON}, metadata 'offset'", "offset in metadata is not declared"),
        ("id INT", f"{JSON}, mode 'DROPMALFORMED'", "the option mode cannot be set"),
    ],
)
def test_declarations_that_cannot_be_read(
    broker: Broker, capsys: pytest.CaptureFixture[str], columns: str, options: str, message: str
) -> None:
    assert broker.run(columns, "SELECT * FROM orders", options) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("subscribe 'orders'", "orders does not say where Kafka is; add OPTIONS (kafka.bootstrap.servers"),
        ("kafka.bootstrap.servers 'localhost:1'", "orders does not name a topic; add OPTIONS (subscribe"),
        (
            "kafka.bootstrap.servers 'localhost:1', subscribe 'orders'",
            "Spark has no Kafka connector; download",
        ),
    ],
)
def test_what_is_missing_is_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, message: str
) -> None:
    if "download" in message and has_connector(spark):
        pytest.skip("Spark has the connector")
    file = tmp_path / "query.sql"
    file.write_text(
        f"CREATE STREAMING TABLE orders (value STRING) USING kafka OPTIONS ({options}); SELECT * FROM orders"
    )
    assert main(["run", str(file), "--once", "--output", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def has_connector(spark: SparkSession) -> bool:
    try:
        spark.readStream.format("kafka").option("subscribe", "a").option(
            "kafka.bootstrap.servers", "localhost:1"
        ).load()
    except AnalysisException:
        return False
    return True


def test_a_broker(spark: SparkSession, tmp_path: Path) -> None:
    servers = os.environ.get("MILLPOND_TEST_KAFKA")
    if servers is None:
        pytest.skip("MILLPOND_TEST_KAFKA does not name a Kafka broker")
    if not has_connector(spark):
        pytest.skip("Spark has no Kafka connector")
    topic = f"millpond-{uuid.uuid4()}"
    rows = spark.range(10).selectExpr("CAST(to_json(struct(id)) AS BINARY) AS value")
    bad = spark.sql("SELECT CAST('x' AS BINARY) AS value")
    sent = rows.union(bad).write.format("kafka").option("kafka.bootstrap.servers", servers)
    sent.option("topic", topic).save()
    file = tmp_path / "query.sql"
    file.write_text(
        "CREATE STREAMING TABLE S (id BIGINT) USING kafka OPTIONS ("
        f"kafka.bootstrap.servers '{servers}', subscribe '{topic}', value.format 'json');"
        "SELECT id FROM S WHERE id > 6;"
    )
    assert main(["run", str(file), "--once", "--output", str(tmp_path / "out")]) == 0
    written = [line for part in (tmp_path / "out").glob("part-*") for line in part.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in written) == [7, 8, 9]
    assert len(list((tmp_path / "out" / "_rejected").glob("part-*"))) == 1

"""Timed queries on Spark: rows wait in the reorder buffer, late rows are rejected, relations read once."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import millpond
from millpond.cli import main as cli
from millpond.engines.timed.sharding import SHARD_NUMBERS, SHARDS
from tests.campaigns.time_on_spark import examine

Captured = pytest.CaptureFixture[str]
# Figure 2 of paper 2: S(A, I), T(B, J), U(C, K); the second value of each row is its timestamp in seconds.
FIGURE_2 = {"S": [(42, 0), (42, 5)], "T": [(7, 0), (2, 2), (1, 4), (3, 5)], "U": [(1, 1), (3, 3)]}
COLUMNS = {"S": ("A", "I"), "T": ("B", "J"), "U": ("C", "K")}
CHAIN = "SELECT A, B FROM S, T, U WHERE I > J AND J > K AND A > B AND 0 < B AND B < 5"


class Folder:
    """A query with streams in files, and the command that runs it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.output = path / "out"

    def ask(self, query: str, streams: Sequence[str], properties: str = "", more: str = "") -> None:
        ddl = [
            f"CREATE STREAMING TABLE {name} ({COLUMNS[name][0]} INT, {COLUMNS[name][1]} TIMESTAMP) "
            f"USING json OPTIONS (path '{name}', maxFilesPerTrigger '1') {properties};"
            for name in streams
        ]
        (self.path / "query.sql").write_text("\n".join([*ddl, more, query]))

    def feed(self, stream: str, number: int, rows: Sequence[tuple[int, int | None]]) -> None:
        """A file of a stream, read in the order of the numbers."""
        (self.path / stream).mkdir(exist_ok=True)
        value, timestamp = COLUMNS[stream]
        lines = [
            json.dumps({value: v, timestamp: None if t is None else f"2024-01-01T00:00:{t:02}Z"})
            for v, t in rows
        ]
        file = self.path / stream / f"{number}.json"
        file.write_text("".join(f"{line}\n" for line in lines))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))

    def run(self, *more: str) -> int:
        options = [*more, "--once", "--output", str(self.output), "--metrics", str(self.path / "metrics")]
        return cli.main(["run", str(self.path / "query.sql"), *options])

    def rows(self) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row.values()) for row in self._lines("part-*.json"))

    def rejected(self) -> list[dict[str, Any]]:
        return self._lines("_rejected/part-*.json")

    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "metrics").read_text().splitlines()]

    def _lines(self, pattern: str) -> list[dict[str, Any]]:
        files = sorted(self.output.glob(pattern))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_the_run_of_figure_2(folder: Folder) -> None:
    folder.ask(CHAIN, "STU")
    for stream, rows in FIGURE_2.items():
        for number, row in enumerate(rows):
            folder.feed(stream, number, [row])
    assert folder.run() == 0
    assert folder.rows() == {(42, 2): 1, (42, 1): 2}
    assert folder.metrics()[-1]["waiting_rows"] == 0
    assert folder.rejected() == []


def test_disorder_within_the_watermark_and_timestamps_split_over_files(folder: Folder) -> None:
    folder.ask(
        "SELECT A, B FROM S, T WHERE I >= J AND B = 1", "ST", "TBLPROPERTIES ('watermark' = '5 seconds')"
    )
    folder.feed("S", 0, [(1, 9), (2, 5)])
    folder.feed("S", 1, [(3, 5), (4, 20)])
    folder.feed("T", 0, [(1, 9), (1, 6)])
    folder.feed("T", 1, [(1, 5), (1, 30)])
    assert folder.run() == 0
    assert folder.rows() == {(2, 1): 1, (3, 1): 1, (1, 1): 3, (4, 1): 3}
    assert sum(batch["late_rows"] for batch in folder.metrics()) == 0


def test_late_rows_and_rows_without_a_timestamp_are_rejected(folder: Folder) -> None:
    folder.ask("SELECT A FROM S, T WHERE I > J AND B = 1", "ST")
    folder.feed("S", 0, [(1, 1), (2, 8), (9, None)])
    folder.feed("T", 0, [(1, 0), (1, 8)])
    folder.feed("S", 1, [(3, 5), (4, 9)])
    folder.feed("T", 1, [(1, 9)])
    assert folder.run() == 0
    assert folder.rows() == {(1,): 1, (2,): 1, (4,): 2}
    late, timeless = sorted(folder.rejected(), key=lambda row: row["reason"].startswith("I"))
    assert late["stream"] == "S" and late["reason"].startswith("late: the watermark had already passed")
    assert json.loads(late["record"]) == {"I": "2024-01-01T00:00:05+00:00", "A": 3}
    assert timeless["reason"] == "I is NULL, but every row needs a timestamp"
    batches = folder.metrics()
    assert [sum(b[k] for b in batches) for k in ("late_rows", "malformed_rows", "input_rows")] == [1, 1, 8]


def test_an_interval_join_keeps_the_rows_of_its_window(folder: Folder, capsys: Captured) -> None:
    """Out-of-order files: every match within the window once, with its timestamps; older rows are dropped.

    A stream that exceeds its declared rate is reported.
    """
    folder.ask(
        "SELECT A, B, I, J FROM S, T WHERE A = B AND J BETWEEN I AND I + INTERVAL 3 SECONDS",
        ["S", "T"],
        "TBLPROPERTIES ('watermark' = '5 seconds', 'rate' = '1 per second')",
    )
    folder.feed("S", 1, [(1, 4), (2, 2), (1, 0)])
    folder.feed("T", 1, [(2, 5), (1, 3)])
    folder.feed("S", 2, [(1, 6), (2, 8)])
    folder.feed("T", 2, [(1, 7), (1, 6), (2, 4), (9, 3)])  # the second row at 3 seconds
    folder.feed("S", 3, [(3, 50)])
    folder.feed("T", 3, [(3, 52), (3, 54), (1, 51)])
    assert folder.run() == 0
    seconds = [(a, int(i[17:19]), int(j[17:19])) for a, _, i, j in folder.rows().elements()]
    assert Counter(seconds) == Counter(
        [(2, 2, 5), (2, 2, 4), (1, 0, 3), (1, 4, 7), (1, 4, 6), (1, 6, 7), (1, 6, 6), (3, 50, 52)]
    )
    metrics = folder.metrics()
    assert metrics[-1]["state_entries"] <= 1
    assert [batch["excess_rows"] for batch in metrics if batch["input_rows"]] == [0, 1, 0]
    assert metrics[-1]["rates"]["T"] == {"average": 0.173, "peak": 2, "declared": 1}
    assert metrics[-1]["rates"]["S"]["peak"] == 1
    exceeded = "millpond: T exceeded its declared rate of 1 rows/s: 2 in one second; the bound of "
    assert f"\n{exceeded}" in capsys.readouterr().err


def test_groups_are_written_once_when_they_close(folder: Folder, capsys: Captured) -> None:
    """At the end of the input all groups close, and rows for them that come later are late."""
    folder.ask(
        "SELECT window.start AS w, COUNT(*), MEDIAN(A) FROM S GROUP BY window(I, '10 seconds')",
        "S",
        "TBLPROPERTIES ('watermark' = '5 seconds')",
    )
    folder.feed("S", 0, [(1, 3), (2, 12), (4, 9), (2, 14), (5, 16)])
    assert folder.run() == 0
    first = {("2024-01-01T00:00:00.000Z", 2, 2.5): 1, ("2024-01-01T00:00:10.000Z", 3, 2.0): 1}
    assert folder.rows() == first
    folder.feed("S", 1, [(7, 18), (8, 25)])
    assert folder.run() == 0
    assert folder.rows() == first | {("2024-01-01T00:00:20.000Z", 1, 8.0): 1}
    (late,) = folder.rejected()
    assert json.loads(late["record"]) == {"I": "2024-01-01T00:00:18+00:00", "A": 7}
    assert folder.metrics()[-1]["state_entries"] == 0
    capsys.readouterr()
    assert folder.run("--updates") == 2
    assert "is of a run without --updates; drop --updates" in capsys.readouterr().err


def test_updates_write_every_change_of_a_group(folder: Folder) -> None:
    folder.ask(
        "SELECT window.start AS w, COUNT(*) FROM S GROUP BY window(I, '10 seconds') HAVING COUNT(*) > 1",
        "S",
    )
    folder.feed("S", 0, [(1, 3), (2, 4), (3, 5)])
    folder.feed("S", 1, [(4, 9), (5, 21)])
    assert folder.run("--updates") == 0
    counts = {row[1]: revision for *row, revision in folder.rows()}
    assert sorted(counts) == [2, 4] and counts[2] < counts[4]


def test_a_window_that_is_divided_into_shards_continues_after_a_restart(folder: Folder) -> None:
    """Orders of one run are joined with payments of the next, whatever shard they are in."""
    folder.ask("SELECT A, J FROM S, T WHERE A = B AND J BETWEEN I AND I + INTERVAL 20 SECONDS", ["S", "T"])
    keys = range(20)
    folder.feed("S", 0, [(key, 1) for key in keys])
    folder.feed("T", 0, [(key, 0) for key in keys])
    assert folder.run() == 0
    assert folder.metrics()[-1]["state_entries"] == len(keys)
    folder.feed("T", 1, [(key, 3 + key) for key in keys])
    folder.feed("S", 1, [(99, 30)])
    assert folder.run() == 0
    assert sorted(a for a, _ in folder.rows().elements()) == [key for key in keys if key <= 18]
    assert folder.metrics()[-1]["state_entries"] == 1


def test_shards_are_spread_evenly_over_partitions(spark: SparkSession) -> None:
    """The numbers of the shards are chosen for Spark's hash partitioning."""
    numbers = ", ".join(f"({number})" for number in SHARD_NUMBERS)
    columns = ", ".join(f"pmod(hash(CAST(s AS INT)), {n})" for n in range(1, 9))
    rows = spark.sql(f"SELECT {columns} FROM VALUES {numbers} AS t(s)").collect()
    for n, places in enumerate(zip(*rows, strict=True), start=1):
        counts = Counter(places)
        assert len(counts) == n and max(counts.values()) == -(-SHARDS // n)


def test_a_run_continues_where_the_last_one_ended(folder: Folder) -> None:
    folder.ask("SELECT COUNT(*) FROM S, T WHERE I > J", "ST")
    folder.feed("S", 0, [(1, 2)])
    folder.feed("T", 0, [(1, 1)])
    assert folder.run() == 0
    folder.feed("T", 1, [(1, 3)])
    folder.feed("S", 1, [(1, 4), (1, 2)])
    assert folder.run() == 0
    rows = folder.rows()
    assert max(rows, key=lambda row: row[1])[0] == 3  # the second row at 2 seconds is late
    assert folder.metrics()[-1]["state_entries"] == 2
    assert [row["stream"] for row in folder.rejected()] == ["S"]


def test_relations_are_read_at_the_start(folder: Folder, capsys: Captured) -> None:
    relation = "CREATE TABLE R (K INT, LABEL STRING) USING csv OPTIONS (path 'R', header 'true');"
    folder.ask("SELECT LABEL, COUNT(*) FROM S, R WHERE A = K GROUP BY LABEL", "S", more=relation)
    (folder.path / "R").mkdir()
    (folder.path / "R" / "r.csv").write_text("K,LABEL\n1,one\n2,two\n2,zwei\nx,bad\n")
    folder.feed("S", 0, [(1, 1), (2, 2), (2, 3), (5, 4)])
    assert folder.run() == 0
    rows = folder.rows()
    assert {row[:2] for row in rows} == {("one", 1), ("two", 2), ("zwei", 2)}
    assert [(row["stream"], row["record"]) for row in folder.rejected()] == [("R", "x,bad")]
    folder.feed("S", 1, [(1, 9)])
    assert folder.run() == 0
    assert ("one", 2) in {row[:2] for row in folder.rows()}
    (folder.path / "R" / "r.csv").write_text("K,LABEL\n1,uno\n")
    folder.feed("S", 2, [(1, 10)])
    capsys.readouterr()
    assert folder.run() == 4
    assert "belongs to another query" in capsys.readouterr().err


def test_a_view_keeps_its_watermark(spark: SparkSession, tmp_path: Path) -> None:
    for name in "ST":
        value, timestamp = COLUMNS[name]
        source = tmp_path / name
        source.mkdir()
        lines = [(1, 5), (2, 3), (3, 20)] if name == "S" else [(1, 4), (1, 21)]
        records = [json.dumps({value: v, timestamp: f"2024-01-01T00:00:{t:02}Z"}) for v, t in lines]
        (source / "a.json").write_text("\n".join(records))
        frame = spark.readStream.schema(f"{value} INT, {timestamp} TIMESTAMP").json(str(source))
        frame.withWatermark(timestamp, "4 seconds").createOrReplaceTempView(name)
    answer = millpond.sql(spark, "SELECT A FROM S, T WHERE I > J AND B = 1")
    writer = answer.writeStream.format("memory").queryName("answer").outputMode("append")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    assert [row.A for row in spark.table("answer").collect()] == [1]  # moments from 16 seconds on still wait
    reported = [
        p.observedMetrics["millpond"]["waiting_rows"] for p in query.recentProgress if p.observedMetrics
    ]
    assert [waiting for waiting in reported if waiting is not None] == [2]


@pytest.mark.campaign
def test_random_queries_with_files_out_of_order(spark: SparkSession) -> None:
    """``python -m tests.campaigns.time_on_spark`` runs more of them."""
    done, seed = 0, 0
    while done < 1:
        bounded, problem = examine(spark, seed)
        assert problem is None, problem
        done += bounded
        seed += 1


def test_a_stream_joined_only_with_relations_keeps_no_state(folder: Folder) -> None:
    relation = "CREATE TABLE R (K INT, LABEL STRING) USING csv OPTIONS (path 'R', header 'true');"
    folder.ask("SELECT A, LABEL FROM S JOIN R ON A = K WHERE A > 0", "S", more=relation)
    (folder.path / "R").mkdir()
    (folder.path / "R" / "r.csv").write_text("K,LABEL\n1,one\n2,two\n2,zwei\nx,bad\n")
    folder.feed("S", 0, [(1, 1), (2, 2), (5, 4)])
    with (folder.path / "S" / "0.json").open("a") as file:
        file.write("rubbish\n")
    assert folder.run() == 0
    assert folder.rows() == {(1, "one"): 1, (2, "two"): 1, (2, "zwei"): 1}
    assert {(row["stream"], row["record"]) for row in folder.rejected()} == {("R", "x,bad"), ("S", "rubbish")}
    (batch,) = folder.metrics()
    assert (batch["state_entries"], batch["input_rows"], batch["malformed_rows"]) == (0, 4, 2)

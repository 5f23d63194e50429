"""A stream joined with a relation of five million rows in a database; the cache holds one row in a hundred.

    python -m benchmarks.lookup [--jdbc PATH]

``--jdbc`` is the JDBC driver of PostgreSQL, by default where Debian's package libpostgresql-jdbc-java has it.
If it exists, Spark's own JDBC join is measured on the same server and the same stream.  Exits with 1 if that
join, which reads the relation in every micro-batch, is faster.
"""

from __future__ import annotations

import argparse
import os
import socket
import sqlite3
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession

import millpond
from benchmarks.streams import Batch, median_seconds, open_session, open_stream, start_query, workspace
from benchmarks.tables import print_table
from millpond.lab.simulate import cache_player
from millpond.models.array_types import Ints
from millpond.spark.answer import OBSERVED
from tests.support.postgres import server

ROWS = 5_000_000
MEMORY = ROWS // 100
FILES, FILES_A_BATCH = 24, 2
REFERENCES = (10_000, 100_000)  # in a file
SKEW = 1.0  # the probability of the r-th most frequent key is proportional to 1 / r^SKEW
QUERY = "SELECT N, LABEL FROM S JOIN R ON A = K"
POLICIES = ("lru", "lfu", "auto")
PATIENCE = 120  # seconds for Spark's own join


def write_references(folder: Path, rows: int) -> Ints:
    """Write files of keys, the frequent ones spread over the relation; return all keys."""
    folder.mkdir()
    generator = np.random.default_rng(1)
    chances = np.cumsum(1 / np.arange(1, ROWS + 1) ** SKEW)
    spread = generator.permutation(ROWS)
    files = []
    for number in range(FILES):
        keys = spread[np.searchsorted(chances, generator.random(rows) * chances[-1])]
        path = folder / f"{number:05}.parquet"
        pq.write_table(pa.table({"A": keys.astype(np.int32), "N": np.arange(rows) + number * rows}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)
        files.append(keys)
    return np.concatenate(files)


def fill_postgres(url: str) -> None:
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text("CREATE TABLE r (k INT PRIMARY KEY, label TEXT)"))
        labels = f"SELECT n, 'label ' || md5(n::text) FROM generate_series(0, {ROWS - 1}) n"
        connection.execute(sa.text(f"INSERT INTO r {labels}"))
        connection.execute(sa.text("VACUUM ANALYZE r"))
    engine.dispose()


def fill_sqlite(path: Path) -> str:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE R (K INTEGER PRIMARY KEY, LABEL TEXT)")
    connection.executemany("INSERT INTO R VALUES (?, ?)", ((n, f"label {n:032x}") for n in range(ROWS)))
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


def measure_batches(frame: DataFrame, checkpoint: Path, seconds: float) -> tuple[list[Batch], int, int]:
    """Run a query for at most so many seconds; return its batches, its lookups and its cache hits."""
    query = start_query(frame, checkpoint)
    began = time.monotonic()
    while not query.awaitTermination(1):
        if time.monotonic() - began > seconds:
            query.stop()
            break
    batches, lookups, hits = [], 0, 0
    for progress in query.recentProgress:
        if "addBatch" in progress.durationMs:
            batches.append(
                Batch(progress.numInputRows, progress.durationMs["triggerExecution"] / 1000, 0, 0, 0)
            )
            observed = progress.observedMetrics.get(OBSERVED)
            if observed is not None:
                lookups, hits = lookups + observed["lookups"], hits + observed["lookup_hits"]
    return batches, lookups, hits


def read_by_jdbc(spark: SparkSession, port: int) -> DataFrame:
    """Read the relation with Spark's own JDBC source, in two tasks."""
    reader = spark.read.format("jdbc").option(
        "url", f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=tester"
    )
    reader = (
        reader.option("driver", "org.postgresql.Driver")
        .option("dbtable", "r")
        .option("fetchsize", 20_000)
        .option("partitionColumn", "k")
    )
    return reader.option("lowerBound", 0).option("upperBound", ROWS).option("numPartitions", 2).load()


class Measurement:
    """Collects the rows of the table, and the ratios of the time of Spark's own join to that of lookups."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self.table: list[tuple[str, ...]] = []
        self.ratios: list[float] = []

    def measure(self, references: int, databases: dict[str, str], port: int | None) -> None:
        folder = self._folder / str(references)
        rows = references * FILES_A_BATCH
        keys = write_references(folder, references)
        stream = open_stream(self._spark, folder, "S", "A INT, N BIGINT", FILES_A_BATCH)

        def add_row(what: str, seconds: float, kept: str, hits: str = "") -> None:
            self.table.append(
                (f"{rows:,}", what, kept, hits, f"{seconds:.2f}", f"{rows / seconds / 1e3:,.0f}")
            )
            print(f"  {self.table[-1]}", flush=True)

        best = 0.0
        for database, url in databases.items():
            for policy in POLICIES:
                millpond.lookup(self._spark, "R", url=url, dbtable="r", memory=MEMORY, policy=policy)
                answer = millpond.sql(self._spark, QUERY)
                batches, lookups, hits = measure_batches(answer, folder / f"{database}-{policy}", 600)
                seconds = median_seconds(batches)
                if database == "PostgreSQL":
                    best = min(best or seconds, seconds)
                add_row(
                    f"lookup, {database}, {policy}",
                    seconds,
                    f"{MEMORY:,} per worker",
                    f"{hits / lookups:.1%}",
                )
        for policy in ("lru", "lfu"):
            ratio = cache_player(policy, MEMORY, None)(keys).mean()
            print(f"  in the lab, one cache for all, {policy}: {ratio:.1%}", flush=True)
        if port is not None:
            relation = read_by_jdbc(self._spark, port)
            own = stream.join(relation, relation.k == stream.A).select("N", "label")
            seconds = median_seconds(measure_batches(own, folder / "own", PATIENCE)[0], 1)
            add_row("Spark's own join, JDBC", seconds, "none")
            self.ratios.append(seconds / best)
            whole = read_by_jdbc(self._spark, port).persist()
            began = time.monotonic()
            whole.count()
            reading = time.monotonic() - began
            own = stream.join(whole, whole.k == stream.A).select("N", "label")
            seconds = median_seconds(measure_batches(own, folder / "whole", PATIENCE)[0], 1)
            add_row(f"the same, persisted in {reading:.0f} s before", seconds, f"{ROWS:,}")
            whole.unpersist()


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--jdbc", type=Path, default=Path("/usr/share/java/postgresql.jar"))
    jar: Path = arguments.parse_args().jdbc
    if jar.exists():
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {jar} pyspark-shell"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with workspace() as folder, server(port) as postgres:
        fill_postgres(postgres.url)
        databases = {"PostgreSQL": postgres.url, "SQLite": fill_sqlite(folder / "r.db")}
        spark = open_session()
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        measurement = Measurement(spark, folder)
        for references in REFERENCES:
            measurement.measure(references, databases, port if jar.exists() else None)
        spark.stop()
    print_table(
        ["rows per batch", "join", "rows kept", "from the cache", "s per batch", "k rows/s"],
        measurement.table,
    )
    if not measurement.ratios:
        print(f"no JDBC driver at {jar}: Spark's own join was not measured")
        return 0
    print("Spark's own join takes", " and ".join(f"{r:.1f}" for r in measurement.ratios), "times as long")
    return 0 if min(measurement.ratios) > 1 else 1


if __name__ == "__main__":
    sys.exit(main())

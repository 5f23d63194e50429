"""A stream joined with a relation of five million rows in a database, one row in a hundred being kept.

    python -m benchmarks.lookup [--jdbc PATH]

``--jdbc`` is the JDBC driver of PostgreSQL (Debian's package libpostgresql-jdbc-java has it in
/usr/share/java, where it is found by itself): with it Spark's own join is measured beside, on the same server
and the same stream.  Exits 1 if Spark's own join, reading the relation in every batch as it does, is faster.
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
from benchmarks.streams import Batch, print_table, session, start, typical, view, workspace
from millpond.lab.simulate import cache_player
from millpond.spark.sql import OBSERVED
from tests.support.postgres import server

ROWS = 5_000_000
MEMORY = ROWS // 100
FILES, REFERENCES, FILES_A_BATCH = 24, 100_000, 2
SKEW = 1.0  # the r-th most frequent key comes with a chance proportional to 1 / r^SKEW
QUERY = "SELECT N, LABEL FROM S JOIN R ON A = K"
POLICIES = ("lru", "lfu", "auto")


def write_references(folder: Path) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Files of keys, the frequent ones spread over the relation."""
    folder.mkdir()
    generator = np.random.default_rng(1)
    chances = np.cumsum(1 / np.arange(1, ROWS + 1) ** SKEW)
    spread = generator.permutation(ROWS)
    files = []
    for number in range(FILES):
        keys = spread[np.searchsorted(chances, generator.random(REFERENCES) * chances[-1])]
        data = {"A": keys.astype(np.int32), "N": np.arange(REFERENCES) + number * REFERENCES}
        pq.write_table(pa.table(data), folder / f"{number:05}.parquet")
        os.utime(folder / f"{number:05}.parquet", (1_700_000_000 + number,) * 2)
        files.append(keys)
    return files


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


def measured(frame: DataFrame, checkpoint: Path, seconds: float) -> tuple[list[Batch], int, int]:
    """The batches, given up after so many seconds; look-ups and hits."""
    query = start(frame, checkpoint)
    began = time.monotonic()
    while not query.awaitTermination(1):
        if time.monotonic() - began > seconds:
            query.stop()
            break
    batches, lookups, hits = [], 0, 0
    for progress in query.recentProgress:
        if "addBatch" in progress.durationMs:
            batches.append(Batch(progress.numInputRows, progress.durationMs["triggerExecution"] / 1000, 0, 0))
            observed = progress.observedMetrics.get(OBSERVED)
            if observed is not None:
                lookups, hits = lookups + observed["lookups"], hits + observed["lookup_hits"]
    return batches, lookups, hits


def jdbc(spark: SparkSession, port: int) -> DataFrame:
    """The relation by Spark's own source, read by both cores."""
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


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--jdbc", type=Path, default=Path("/usr/share/java/postgresql.jar"))
    jar: Path = arguments.parse_args().jdbc
    if jar.exists():
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {jar} pyspark-shell"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    table: list[tuple[str, ...]] = []
    best = whole = 0.0
    rows = REFERENCES * FILES_A_BATCH
    with workspace() as folder, server(port) as postgres:
        references = write_references(folder / "S")
        fill_postgres(postgres.url)
        databases = {"PostgreSQL": postgres.url, "SQLite": fill_sqlite(folder / "r.db")}
        spark = session()
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        stream = view(spark, folder / "S", "S", "A INT, N BIGINT", FILES_A_BATCH)

        def note(what: str, seconds: float, kept: str, ratio: str) -> None:
            table.append((what, kept, ratio, f"{seconds:.2f}", f"{rows / seconds / 1e3:,.0f}"))
            print(f"  {table[-1]}", flush=True)

        for database, url in databases.items():
            for policy in POLICIES:
                millpond.lookup(spark, "R", url=url, dbtable="r", memory=MEMORY, policy=policy)
                batches, lookups, hits = measured(
                    millpond.sql(spark, QUERY), folder / f"{database}-{policy}", 600
                )
                seconds = typical(batches)
                best = min(best or seconds, seconds) if database == "PostgreSQL" else best
                note(f"{database}, {policy}", seconds, f"{MEMORY:,} a worker", f"{hits / lookups:.1%}")
        if jar.exists():
            relation = jdbc(spark, port)
            own = stream.join(relation, relation.k == stream.A).select("N", "label")
            whole = typical(measured(own, folder / "own", 150)[0], 1)
            note("Spark's own join, relation read in every batch", whole, "none", "")
            kept = jdbc(spark, port).persist()
            began = time.monotonic()
            kept.count()
            reading = time.monotonic() - began
            own = stream.join(kept, kept.k == stream.A).select("N", "label")
            batches = measured(own, folder / "kept", 150)[0]
            note(f"the same, read once in {reading:.0f} s", typical(batches, 1), f"{ROWS:,}", "")
        spark.stop()
    print_table(["join", "rows kept", "from the cache", "s a batch", "k rows/s"], table)
    keys = np.concatenate(references)
    for policy in ("lru", "lfu"):
        print(f"lab, one cache, {policy}: {cache_player(policy, MEMORY, None)(keys).mean():.1%}")
    if not whole:
        print(f"no JDBC driver at {jar}: Spark's own join was not measured")
        return 0
    print(f"Spark's own join takes {whole / best:.1f} times as long a batch")
    return 0 if whole > best else 1


if __name__ == "__main__":
    sys.exit(main())

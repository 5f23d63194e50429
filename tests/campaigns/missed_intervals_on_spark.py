"""Joins on random budgets over random streams on Spark: the missed results lie in their 95 % intervals.

    python -m tests.campaigns.missed_intervals_on_spark --cases 20

The joins and streams are those of ``tests/campaigns/missed_intervals.py``, with the samples of real runs.
Of 20 intervals, 19 are expected to hold.  Exits with 1 if fewer than 16 do, which chance alone does in one of
400 campaigns.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import millpond
from millpond.spark.session import make_session
from tests.campaigns.missed_intervals import KINDS, Columns, Outcome, random_stream

COLUMNS = "k INT, a INT, x INT, n INT, g INT"
BATCHES = 3
LEAST = 16  # of 20 intervals


def write_stream(folder: Path, stream: Columns) -> None:
    """Write the rows of a stream, one file a batch."""
    folder.mkdir()
    table = pa.table({name: pa.array(values, pa.int32()) for name, values in stream.items()})
    size = -(-table.num_rows // BATCHES)
    for number in range(BATCHES):
        file = folder / f"{number}.parquet"
        pq.write_table(table.slice(number * size, size), file)
        os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads the oldest file first


def examine(spark: SparkSession, kind: str, seed: int, folder: Path) -> Outcome:
    """Run one join on a random budget over random streams."""
    rng = np.random.default_rng([seed, 1])
    shape, size = ("uniform", "zipf", "drifting", "bursty")[seed % 4], int(rng.integers(6000, 12_000))
    values = 20_000 if kind == "equality" else 1500  # the counts of few keys are exact
    left = random_stream(rng, shape, size, values)
    is_self_join = kind == "self-join"
    right = left if is_self_join else random_stream(rng, shape, size, values)
    for name, stream in (("S", left), ("T", right)):
        write_stream(folder / name, stream)
        reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        reader.parquet(str(folder / name)).createOrReplaceTempView(name)
    where, condition = KINDS[kind]
    tables = "S, S T" if is_self_join else "S, T"
    frame = millpond.sql(
        spark,
        f"SELECT S.g FROM {tables} WHERE {where}",
        memory=int(rng.integers(20, 60)),
        policy=str(rng.choice(["prob", "lru", "fifo", "rand"])),
    )
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seen = [p.observedMetrics["millpond"] for p in query.recentProgress if "millpond" in p.observedMetrics]
    truth = int(condition.count(left, right).sum()) - sum(each["output_rows"] for each in seen)
    last = seen[-1]
    limits = (last["missed_low"], last["missed_high"])
    low, high = (last["missed_total"] if limit is None else limit for limit in limits)
    return Outcome(truth, last["missed_total"], low, high)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    spark = make_session("local[2]")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    kinds, held = list(KINDS), 0
    for seed in range(options.seed, options.seed + options.cases):
        kind = kinds[seed % len(kinds)]
        with tempfile.TemporaryDirectory(prefix="millpond-intervals-") as folder:
            found = examine(spark, kind, seed, Path(folder))
        held += found.is_covered
        shown = "exact" if found.is_exact else f"{found.low:,.0f} to {found.high:,.0f}"
        print(
            f"{'ok   ' if found.is_covered else 'WRONG'} {kind:24} {found.truth:>12,} missed, "
            f"estimate {found.estimate:,.0f} ({shown})",
            flush=True,
        )
    spark.stop()
    print(f"{held} of {options.cases} intervals hold")
    return int(held < LEAST * options.cases / 20)


if __name__ == "__main__":
    sys.exit(main())

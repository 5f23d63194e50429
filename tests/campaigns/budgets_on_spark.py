"""Joins on a budget on Spark, with the streams of paper 3: the results of each policy, compared with the lab.

    python -m tests.campaigns.budgets_on_spark --steps 5000 --batches 50

Prints for each policy its results, their ratio to the results of HEEB in the lab, and the estimate of
missed results beside the true number.  The lab does not count results of tuples that arrive in the same
step, and Spark sheds nothing within a micro-batch, so there are more results on Spark than in the lab.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import millpond
from millpond.lab.simulate import join_player
from millpond.lab.workloads import SYNTHETIC, Workload
from millpond.models.array_types import Ints
from millpond.policies.registry import PolicyChoice
from millpond.spark.session import make_session

SIZE = 10
SQL = "SELECT R.K FROM R, S WHERE R.K = S.K"
NAMES = ("TOWER", "ROOF", "WALK")
POLICIES = ("heeb", "auto", "prob", "lru", "fifo", "rand")


def write_keys(folder: Path, name: str, keys: Ints, batches: int) -> None:
    (folder / name).mkdir()
    size = -(-len(keys) // batches)
    for number in range(batches):
        part = pa.table({"K": pa.array(keys[number * size : (number + 1) * size], pa.int32())})
        file = folder / name / f"{number:05}.parquet"
        pq.write_table(part, file)
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark reads the oldest file first


def run_policy(spark: SparkSession, folder: Path, choice: PolicyChoice, label: str) -> tuple[int, int, int]:
    """Return the number of results, the estimate of missed ones, and the largest number of tuples kept."""
    for name in "RS":
        stream = spark.readStream.schema("K INT").option("maxFilesPerTrigger", 1)
        stream.parquet(str(folder / name)).createOrReplaceTempView(name)
    frame = millpond.sql(spark, SQL, memory=SIZE, policy=choice)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / label))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seen = [p.observedMetrics["millpond"] for p in query.recentProgress if "millpond" in p.observedMetrics]
    return (
        sum(each["output_rows"] for each in seen),
        sum(each["missed_rows"] for each in seen),
        max(each["state_entries"] for each in seen),
    )


def make_choice(policy: str, work: Workload) -> PolicyChoice:
    """HEEB gets the models of the lab; ``auto`` identifies them."""
    return PolicyChoice("heeb", {"R": work.r, "S": work.s}) if policy == "heeb" else PolicyChoice(policy)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batches", type=int, default=50)
    options = parser.parse_args()
    spark = make_session("local[2]")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    wrong = 0
    for name in NAMES:
        work = SYNTHETIC[name]()
        r, s = work.streams(0, 0, options.steps)
        lab = join_player("heeb", work, SIZE)(r, s, 0)
        counts = Counter(s.tolist())
        truth = sum(counts[key] for key in r.tolist())
        print(f"{name}: {truth:,} results in all, HEEB in the lab {lab:,}", flush=True)
        with tempfile.TemporaryDirectory(prefix="millpond-lab-") as path:
            for stream, keys in (("R", r), ("S", s)):
                write_keys(Path(path), stream, keys, options.batches)
            for policy in POLICIES:
                results, missed, held = run_policy(spark, Path(path), make_choice(policy, work), policy)
                line = {"policy": policy, "found": results, "of the lab": round(results / lab, 3),
                        "missed": truth - results, "estimate": missed, "held": held}  # fmt: skip
                print("  " + json.dumps(line), flush=True)
                off = abs(missed - (truth - results)) > max(0.1 * (truth - results), 5)
                least = {"heeb": 0.95, "auto": 0.9}.get(policy, 0.0)
                wrong += off + (held > SIZE) + (results < least * lab)
    spark.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

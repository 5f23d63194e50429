"""How long a small run takes: its first result, and its micro-batches of 100 rows, beside Spark's own join.

    python -m benchmarks.start [--runs 5] [--batches 40]

Each run is a process of its own: ``millpond run --once`` on two streams of JSON files, and a plain PySpark
script that joins the same files with as many state partitions.  The two take turns, so that both see the same
load of the machine; compare the ratios.  "First result" is from the start of the process to the first file of
the output, with one file of 150 rows per stream.  "Batch" is the median duration of a micro-batch, by Spark's
own report and without the first ten, with files of 50 rows.  Processor seconds are those of all processes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.streams import workspace
from benchmarks.tables import print_table

QUERY = """\
CREATE STREAMING TABLE S (A INT, V INT) USING json OPTIONS (path 'S', maxFilesPerTrigger '1');
CREATE STREAMING TABLE T (D INT, W INT) USING json OPTIONS (path 'T', maxFilesPerTrigger '1');
SELECT A, V, W FROM S, T WHERE A = D AND A BETWEEN 0 AND 99 AND V BETWEEN 0 AND 99 AND W BETWEEN 0 AND 99;
"""
SCRIPT = """\
import json, os, sys
from pyspark.sql import SparkSession

output, progress = sys.argv[1:]
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", os.cpu_count()).getOrCreate()
spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
read = spark.readStream.option("maxFilesPerTrigger", 1)
s, t = read.schema("A INT, V INT").json("S"), read.schema("D INT, W INT").json("T")
writer = s.join(t, s.A == t.D).select("A", "V", "W").writeStream.format("json").option("path", output)
query = writer.option("checkpointLocation", output + "-checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
with open(progress, "w") as file:
    for each in query.recentProgress:
        if "addBatch" in each.durationMs:
            print(json.dumps({"seconds": each.durationMs["triggerExecution"] / 1000}), file=file)
spark.stop()
"""
WARM_UP = 10  # batches that are not counted
STEADY = 40  # batches


@dataclass(frozen=True)
class Run:
    """Seconds to the first result, processor seconds of all processes, and seconds of each micro-batch."""

    first: float
    processor: float
    batches: list[float]


def write_streams(folder: Path, files: int, rows: int) -> None:
    """Write so many files of so many rows for each stream, and the query and the script beside them."""
    generator = random.Random(files)
    for stream, key, value in (("S", "A", "V"), ("T", "D", "W")):
        (folder / stream).mkdir(parents=True)
        for number in range(files):
            lines = [{key: generator.randrange(100), value: generator.randrange(100)} for _ in range(rows)]
            file = folder / stream / f"{number:04}.json"
            file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    (folder / "query.sql").write_text(QUERY)
    (folder / "join.py").write_text(SCRIPT)


def run_millpond(folder: Path) -> Run:
    command = [sys.executable, "-m", "millpond.cli", "run", "query.sql", "--once"]
    return measure(folder, [*command, "--output", "out", "--metrics", "metrics"])


def run_spark(folder: Path) -> Run:
    return measure(folder, [sys.executable, "join.py", "out", "metrics"])


def measure(folder: Path, command: list[str]) -> Run:
    """Run a command that writes rows to the folder ``out`` and the duration of each batch to ``metrics``."""
    for name in ("out", "out-checkpoint"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "metrics").unlink(missing_ok=True)
    used = _processor_seconds()
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first: float | None = None
    while True:  # until all descendants have ended, Spark's JVM among them
        if first is None and any(file.stat().st_size for file in (folder / "out").glob("part-*")):
            first = time.monotonic() - began
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == process.pid and (code := os.waitstatus_to_exitcode(status)):
            raise SystemExit(f"{' '.join(command)} failed with {code} in {folder}")
        if pid == 0:
            time.sleep(0.01)
    assert first is not None, "there is no result"
    batches = [json.loads(line)["seconds"] for line in (folder / "metrics").read_text().splitlines()]
    return Run(first, _processor_seconds() - used, batches)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _adopt_descendants() -> None:
    """Let the kernel give orphans to this process, so that their processor time can be counted (Linux)."""
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind (default: 5)")
    parser.add_argument("--batches", type=int, default=STEADY, help="micro-batches of 100 rows; 0 for none")
    options = parser.parse_args()
    _adopt_descendants()
    table: list[tuple[object, ...]] = []
    with workspace() as folder:
        write_streams(folder / "start", 1, 150)
        run_millpond(folder / "start")  # the first run writes the archive of classes
        firsts = _take_turns(folder / "start", options.runs)
        table.append(_compare("first result, s", *([run.first for run in runs] for runs in firsts)))
        table.append(_compare("processor s in all", *([run.processor for run in runs] for runs in firsts)))
        if options.batches:
            write_streams(folder / "steady", WARM_UP + options.batches, 50)
            steady = _take_turns(folder / "steady", 1)
            table.append(_compare("batch, s", *(runs[0].batches[WARM_UP:] for runs in steady)))
    print_table(["", "Millpond", "Spark", "ratio of medians"], table)


def _take_turns(folder: Path, runs: int) -> tuple[list[Run], list[Run]]:
    ours, theirs = [], []
    for number in range(runs):
        ours.append(run_millpond(folder))
        theirs.append(run_spark(folder))
        print(f"  run {number + 1}: {ours[-1].first:.1f} s and {theirs[-1].first:.1f} s", flush=True)
    return ours, theirs


def _compare(what: str, ours: list[float], theirs: list[float]) -> tuple[object, ...]:
    a, b = median(ours), median(theirs)
    return what, f"{a:.2f}", f"{b:.2f}", f"{a / b:.2f}"


if __name__ == "__main__":
    main()

"""Random queries of several blocks on Spark, with rows out of order, compared with DuckDB.

    python -m tests.campaigns.blocks_on_spark --cases 80

Every query runs on the engines that ``millpond run`` chooses, as a chain in one streaming query.  At the end
of the input, the rows that were written must be DuckDB's answer on all rows.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.spark.admission import admit
from millpond.spark.blocks import make_job
from millpond.spark.end_of_input import EndOfInput
from millpond.spark.engines import choose_engine
from millpond.spark.files import Files
from millpond.spark.job import Job
from millpond.spark.sources.open import open_source
from tests.campaigns import time_on_spark
from tests.campaigns.exact_engine import random_batches
from tests.campaigns.exact_on_spark import Collected
from tests.campaigns.time_on_spark import run_to_end
from tests.support.block_generate import TABLES, list_seen, random_block_case, random_rows
from tests.support.oracle import answer_duckdb
from tests.support.time_generate import order_by_arrival

ROWS = 30
CATALOG = {
    name: [(column, type_) for column, type_ in (each.split() for each in columns.split(", "))]
    for name, (columns, _) in TABLES.items()
}
TIMES = {name: time for name, (_, time) in TABLES.items()}


def examine(spark: SparkSession, seed: int) -> tuple[bool, str | None]:
    """Run the query of the seed; returns whether it runs, and what is wrong with its answer."""
    rng = random.Random(seed)
    case, delay = random_block_case(rng), rng.choice([0, 2, 5])
    rows = order_by_arrival(rng, TIMES, random_rows(rng, ROWS), delay)
    expected = answer_duckdb(case.duckdb, CATALOG, list_seen(rows))
    with tempfile.TemporaryDirectory() as name:
        try:
            verdict = decide(parse(case.declare(name, delay))[0])
            if verdict.outcome != BOUNDED:
                return True, f"seed {seed}: {verdict.outcome}\n{case.spark}"
            admit(verdict)
            if verdict.query.projection:  # the sink computes it; texts_on_spark runs such queries as a whole
                return False, None
        except MillpondError as refusal:
            print(f"seed {seed}: {refusal}", file=sys.stderr)
            return False, None
        write_files(Path(name), random_batches(rng, rows))
        found = run_query(spark, verdict, Path(name))
    if found.answers[-1] == expected:
        return True, None
    return True, f"seed {seed}: {found.answers[-1]} written, {expected} expected\n{case.spark}"


def write_files(folder: Path, batches: Sequence[Sequence[tuple[str, Mapping[str, object]]]]) -> None:
    """Write one file for each stream and batch, with modification times in this order."""
    for name in TABLES:
        (folder / name).mkdir(exist_ok=True)
        for i, batch in enumerate(batches):
            path = folder / name / f"{i:05}.json"
            path.write_text("".join(json.dumps(row, default=str) + "\n" for s, row in batch if s == name))
            os.utime(path, (1_000_000_000 + i, 1_000_000_000 + i))


def run_query(spark: SparkSession, verdict: Verdict, folder: Path) -> Collected:
    """Run the query on all files, one per stream and micro-batch, and then on the end of the input."""
    checkpoint = str(folder / "checkpoint")
    end = EndOfInput(Files(spark), checkpoint, verdict.query)
    job = Job(spark, verdict, admit(verdict), {}, end.open(spark))
    job = make_job(job, lambda table, part: open_source(spark, table, folder, query=part))
    collected = Collected(verdict.query)
    run_to_end(choose_engine(job).build(job).frame, collected, end, checkpoint)
    return collected


if __name__ == "__main__":
    sys.exit(time_on_spark.main(None, examine, (__doc__ or "").splitlines()[0]))

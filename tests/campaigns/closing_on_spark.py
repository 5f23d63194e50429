"""Random queries whose groups and sets close, on Spark, with rows out of order, compared with DuckDB.

    python -m tests.campaigns.closing_on_spark --cases 80

Every query runs on the engine that ``millpond run`` chooses.  Rows arrive late by as much as the watermarks
of the streams allow.  At the end of the input, every group must have been written exactly once (with updates:
its last revision must be right), as in DuckDB's answer on all rows.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from millpond.analysis.decide import decide
from millpond.frontend.parse import parse
from tests.campaigns import time_on_spark
from tests.campaigns.closing import find_case
from tests.campaigns.exact_engine import random_batches
from tests.campaigns.time_on_spark import ROWS, run_query, write_files
from tests.support.oracle import answer_duckdb
from tests.support.time_generate import add_watermarks, order_by_arrival
from tests.support.window_generate import random_window_rows


def examine(spark: SparkSession, seed: int) -> tuple[bool, str | None]:
    """Run the query of the seed; returns True, and what is wrong with its answer."""
    rng, case = find_case(seed)
    delay = rng.choice([0, 2, 5])
    updates = rng.random() < 0.2
    verdict = decide(add_watermarks(parse(case.sql)[0], delay))
    tables = verdict.query.tables
    rows = random_window_rows(rng, case.base, ROWS, nulls=rng.choice([0.0, 0.1]))
    rows = order_by_arrival(rng, case.base.times, [row for row in rows if row[0] in tables], delay)
    catalog = case.base.catalog
    seen = {name: [row for stream, row in rows if stream == name] for name in catalog}
    expected = answer_duckdb(case.duckdb, catalog, seen)
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name), verdict.query, random_batches(rng, rows))
        found = run_query(spark, verdict, Path(name), updates)
    if found.answers[-1] == expected:
        return True, None
    return True, f"seed {seed}: {found.answers[-1]} written, {expected} expected\n{case.sql}"


if __name__ == "__main__":
    sys.exit(time_on_spark.main(None, examine, (__doc__ or "").splitlines()[0]))

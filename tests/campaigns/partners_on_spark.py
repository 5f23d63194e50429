"""Random queries with EXISTS, NOT EXISTS and LEFT JOIN on Spark, with files out of order, against DuckDB.

    python -m tests.campaigns.partners_on_spark --cases 10

No row may be written that is not in the final answer, and at the end of the input all of it is.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED
from millpond.frontend.parse import parse
from tests.campaigns import time_on_spark
from tests.campaigns.exact_engine import random_batches
from tests.campaigns.time_on_spark import run_query, write_files
from tests.support.oracle import answers
from tests.support.partner_generate import TIMES, random_partner_case, random_partner_rows
from tests.support.time_generate import add_watermarks, order_by_arrival

ROWS = 30


def examine(spark: SparkSession, seed: int) -> tuple[bool, str | None]:
    """Return whether the query of the seed runs on the timed engine, and what is wrong with its answers."""
    rng = random.Random(seed)
    case = random_partner_case(rng)
    seconds = rng.choice([0, 2, 5])
    verdict = decide(add_watermarks(parse(case.sql)[0], seconds))
    if verdict.outcome != BOUNDED or verdict.timed is None:
        return False, None
    rows = random_partner_rows(rng, case, ROWS)
    batches = random_batches(rng, order_by_arrival(rng, TIMES, rows, seconds))
    every = {name: [row for s, row in rows if s == name] for name in case.catalog}
    (truth,) = answers(case.sql, case.catalog, [every])
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name), verdict.query, batches)
        found = run_query(spark, verdict, Path(name))
    if found.answers[-1] != truth:
        return True, f"seed {seed}, at the end: {found.answers[-1]} written, {truth} expected\n{case.sql}"
    for i, answer in enumerate(found.answers):
        if (case.projection or case.distinct) and answer - truth:
            return True, f"seed {seed}, batch {i}: {answer - truth} should not be written\n{case.sql}"
    return True, None


if __name__ == "__main__":
    sys.exit(time_on_spark.main(None, examine, (__doc__ or "").splitlines()[0]))

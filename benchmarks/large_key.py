"""A join on a key with five million values: the time of a micro-batch, by the number of rows before it.

    python -m benchmarks.large_key

Micro-batches have a million rows.  The synopsis is divided into chunks by the key and distributed over the
cores; a micro-batch reads and writes only the chunks of its keys.  Exits with 1 if a micro-batch of the join
after 20 million rows takes more than 1.5 times as long as one after 2 million.
"""

from __future__ import annotations

import sys
from statistics import median

from benchmarks.streams import (
    build_answer,
    measure_batches,
    open_session,
    open_stream,
    workspace,
    write_stream,
)
from benchmarks.tables import print_table

KEYS = 5_000_000
HALF = 500_000
BATCHES = 26
LIMIT = 1.5
QUERIES = (
    f"SELECT A FROM S, T WHERE A = D AND A BETWEEN 0 AND {KEYS}",
    f"SELECT DISTINCT A FROM S, T WHERE A = D AND A BETWEEN 0 AND {KEYS}",
    f"SELECT A, COUNT(*) FROM S, T WHERE A = D AND A BETWEEN 0 AND {KEYS} GROUP BY A",
)


def main() -> int:
    spark = open_session()
    cores = spark.sparkContext.defaultParallelism
    table, wrong = [], 0
    with workspace() as folder:
        for stream, column in (("S", "A"), ("T", "D")):
            write_stream(folder / stream, [(column, 0, KEYS + 1)], HALF, BATCHES, BATCHES)
            open_stream(spark, folder / stream, stream, f"{column} INT", 1)
        for number, sql in enumerate(QUERIES):
            batches = measure_batches(build_answer(spark, sql, cores), folder / f"checkpoint{number}")
            early = median(b.seconds for b in batches[2:5])  # from 2 M rows on
            late = median(b.seconds for b in batches[20:23])  # from 20 M rows on
            wrong += number == 0 and late > LIMIT * early
            entries = batches[-1].state_entries
            table.append((f"`{sql}`", f"{early:.2f}", f"{late:.2f}", f"{late / early:.2f}", f"{entries:,}"))
            print(f"  {table[-1]}", flush=True)
    spark.stop()
    print_table(["query", "s per batch after 2 M rows", "after 20 M", "ratio", "entries"], table)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

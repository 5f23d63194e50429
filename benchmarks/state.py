"""The state of bounded queries after a million rows and after 50 million.

    python -m benchmarks.state [--rows 50000000]

For each query, the table has the rows in Spark's state store (``numRowsTotal``) and the entries of the
synopsis after the first million rows and after the last, and the bound that ``millpond check`` gives.  Exits
with 1 if they differ or exceed the bound.
"""

from __future__ import annotations

import argparse
import sys

import millpond
from benchmarks.streams import (
    Values,
    build_answer,
    measure_batches,
    open_session,
    open_stream,
    workspace,
    write_stream,
)
from benchmarks.tables import print_table

HALF = 500_000  # rows of each stream in a million
WIDE = (0, 1_000_000)
CATALOG = "CREATE STREAMING TABLE S (A INT, B INT, C INT); CREATE STREAMING TABLE T (D INT, E INT); "
# Name, query, and the ranges of the columns, chosen so that there are some results but not too many.
QUERIES: list[tuple[str, str, dict[str, tuple[int, int]]]] = [
    ("Q3", "SELECT A FROM S, T WHERE A = D AND A > 10 AND D < 20", {"A": (0, 50_000), "D": (0, 50_000)}),
    ("Q4", "SELECT DISTINCT A FROM S, T WHERE B < D AND A = 10", {"A": (0, 100)}),
    (
        "Q6",
        "SELECT DISTINCT A FROM S, T WHERE B < D AND C < E AND B < E AND C < D AND A = 10",
        {"A": (0, 100)},
    ),
    (
        "Q7",
        "SELECT A FROM S, T WHERE B < D AND D > 10 AND B < 20 AND A = 10",
        {"A": (0, 4_000), "B": (0, 25), "D": (-60_000, 30)},
    ),
    ("MAX", "SELECT MAX(D) FROM S, T WHERE B < D AND A = 10", {"A": (0, 100)}),
    (
        "COUNT(DISTINCT)",
        "SELECT COUNT(DISTINCT A) FROM S, T WHERE B < D AND A BETWEEN 0 AND 99",
        {"A": (0, 200)},
    ),
    (
        "MEDIAN",
        "SELECT MEDIAN(A) FROM S, T WHERE A = D AND A BETWEEN 0 AND 99",
        {"A": (0, 200), "D": (0, 200)},
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000_000)
    files = parser.parse_args().rows // (2 * HALF)
    spark = open_session()
    table, wrong = [], 0
    for name, sql, values in QUERIES:
        with workspace() as folder:
            for stream, columns in (("S", "ABC"), ("T", "DE")):
                limits: list[Values] = [(c, *values.get(c, WIDE)) for c in columns]
                write_stream(folder / stream, limits, HALF, files, min(files, 10))
                open_stream(spark, folder / stream, stream, ", ".join(f"{c} INT" for c in columns), 1)
            verdict = millpond.check(CATALOG + sql)
            assert not isinstance(verdict, list)
            batches = measure_batches(build_answer(spark, sql, 1), folder / "checkpoint")
        first, last = batches[0], batches[-1]
        bound = verdict.state.entries
        assert bound is not None, f"{name} has no bound"
        kept = (first.state_entries, last.state_entries)
        held = (first.state_rows, last.state_rows)
        good = kept[0] == kept[1] <= bound and held[0] == held[1] <= bound
        wrong += not good
        seconds = sum(b.seconds for b in batches)
        table.append((name, f"`{sql}`", held[0], held[1], kept[0], kept[1], bound, f"{seconds:.0f}"))
        print(f"  {name}: {table[-1][2:]}{'' if good else '  WRONG'}", flush=True)
    spark.stop()
    head = ["", "query", "rows 1 M", f"rows {files} M", "entries 1 M", f"entries {files} M", "bound", "s"]
    print_table(head, table)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

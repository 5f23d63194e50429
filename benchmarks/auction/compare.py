"""Verdicts on the auction queries, and the answers of the bounded ones on Spark, compared with DuckDB.

    python -m benchmarks.auction.compare [--check] [--only 5 7] [--events 30000]

``queries`` has the questions, each with the expected verdict and the reason for it; ``duckdb`` has the same
questions as DuckDB answers them.  Exits with 1 if a verdict or an answer is not as expected.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

import millpond
from benchmarks.auction.generate import write_auction
from benchmarks.streams import open_session, workspace
from benchmarks.tables import print_table
from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.errors import MillpondError, one_line

FOLDER = Path(__file__).parent
TABLES = ("people", "auctions", "bids", "shelves")
HEAD = ("query", "question", "expected", "verdict", "check", "run", "rows", "answer")


@dataclass(frozen=True)
class AuctionQuery:
    """A question of the benchmark, the verdict expected for it, and DuckDB's own text if it is bounded."""

    number: int
    sql: str
    question: str
    expected: str
    duckdb: str | None


@dataclass
class Outcome:
    """What became of a query: its verdict or the refusal, and how its answer compares."""

    verdict: str
    check_seconds: float
    run_seconds: float | None = None
    rows: int | None = None
    answer: str = "not run"


def read_queries(numbers: Sequence[int] = ()) -> Iterator[AuctionQuery]:
    """The queries with these numbers, or all."""
    for file in sorted((FOLDER / "queries").glob("q*.sql")):
        number, sql = int(file.stem[1:]), file.read_text()
        if numbers and number not in numbers:
            continue
        header = re.match(r"-- (.+)\n-- expect: (\w+)\n-- because ", sql)
        assert header, f"{file.name} does not begin with its question, verdict and reason"
        answer = FOLDER / "duckdb" / file.name
        yield AuctionQuery(number, sql, header[1], header[2], answer.read_text() if answer.exists() else None)


def check(query: AuctionQuery) -> tuple[Outcome, Verdict | None]:
    """The verdict, or the reason why the query is refused."""
    began = time.perf_counter()
    try:
        verdict = millpond.check(query.sql)
    except MillpondError as error:
        return Outcome(f"refused: {one_line(str(error), 80)}", time.perf_counter() - began), None
    assert isinstance(verdict, Verdict)
    return Outcome(verdict.outcome, time.perf_counter() - began), verdict


def run(query: AuctionQuery, verdict: Verdict, folder: Path, outcome: Outcome) -> None:
    """Run a bounded query on the files in ``folder`` and compare its answer with DuckDB's."""
    from millpond.spark.options import RunOptions
    from millpond.spark.run import run as run_on_spark

    output = folder / "out" / f"q{query.number:02}"
    began = time.perf_counter()
    try:
        ended = run_on_spark(verdict, folder, RunOptions(str(output), once=True, format="parquet"))
    except MillpondError as error:
        outcome.answer = f"not run: {one_line(str(error), 120)}"
        return
    outcome.run_seconds = time.perf_counter() - began
    outcome.rows = ended.output_rows
    outcome.answer = compare(query, folder, output)
    shutil.rmtree(output)


def compare(query: AuctionQuery, folder: Path, output: Path) -> str:
    """How the rows in ``output`` compare with DuckDB's answer: as bags, in the order of the columns."""
    assert query.duckdb is not None, f"q{query.number:02} is bounded and has no answer in DuckDB"
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        database.execute(f"CREATE VIEW {table} AS FROM '{folder}/data/{table}/*.parquet'")
    expected = database.sql(query.duckdb)
    expected.create("expected")
    if not list(output.glob("part-*.parquet")):
        return f"no rows, {len(expected)} expected"
    found = database.sql(f"FROM '{output}/part-*.parquet'")
    if found.columns != expected.columns:
        return f"columns {found.columns}, {expected.columns} expected"
    casts = ", ".join(
        f'"{name}"::{type_} AS "{name}"' for name, type_ in zip(expected.columns, expected.types, strict=True)
    )
    found.project(casts).create("found")
    missing, extra = (
        database.sql(f"SELECT COUNT(*) FROM (FROM {a} EXCEPT ALL FROM {b})").fetchall()[0][0]
        for a, b in (("expected", "found"), ("found", "expected"))
    )
    return "equal" if not missing and not extra else f"{missing} rows missing, {extra} too many"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="auction", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only the verdicts, without Spark")
    parser.add_argument("--only", type=int, nargs="*", default=(), metavar="N", help="only these queries")
    parser.add_argument("--events", type=int, default=30_000, help="people, auctions and bids in all")
    options = parser.parse_args(argv)
    rows: list[Sequence[object]] = []
    wrong: Counter[str] = Counter()
    with workspace() as folder:
        if not options.check:
            write_auction(folder / "data", options.events)
            open_session()  # one Spark for all runs
        for query in read_queries(options.only):
            outcome, verdict = check(query)
            if verdict is not None and verdict.outcome == BOUNDED and not options.check:
                run(query, verdict, folder, outcome)
            wrong["verdicts"] += outcome.verdict != query.expected
            wrong["answers"] += outcome.verdict == BOUNDED and not options.check and outcome.answer != "equal"
            rows.append(describe(query, outcome))
            print("  " + " | ".join(map(str, rows[-1])), flush=True)
    print_table(HEAD, rows)
    print(f"{len(rows)} queries, {wrong['verdicts']} verdicts and {wrong['answers']} answers not as expected")
    return 1 if wrong.total() else 0


def describe(query: AuctionQuery, outcome: Outcome) -> tuple[object, ...]:
    """The row of the table."""
    run_seconds = "" if outcome.run_seconds is None else f"{outcome.run_seconds:.1f} s"
    return (
        f"q{query.number}",
        query.question.rstrip("."),
        query.expected,
        outcome.verdict,
        f"{1000 * outcome.check_seconds:.0f} ms",
        run_seconds,
        "" if outcome.rows is None else f"{outcome.rows:,}",
        outcome.answer,
    )


if __name__ == "__main__":
    sys.exit(main())

"""Windows, sessions and deduplication on Spark's own operators."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millpond.cli import main as cli
from millpond.spark.progress import Phase, Snapshot
from tests.campaigns import native_windows
from tests.campaigns.native_windows import examine, read_lines

QUERY = """
CREATE STREAMING TABLE clicks (user STRING, n INT CHECK (n < 100), at TIMESTAMP)
  USING json OPTIONS (path 'clicks', maxFilesPerTrigger '1') TBLPROPERTIES ('watermark' = '10 seconds');
SELECT session_window.start AS first, user, SUM(n) AS n FROM clicks
GROUP BY session_window(at, '20 seconds'), user;
"""


def feed(folder: Path, number: int, *rows: Any) -> None:
    (folder / "clicks").mkdir(exist_ok=True)
    lines = [
        row
        if isinstance(row, str)
        else json.dumps({"user": row[0], "n": row[1], "at": None if row[2] is None else seconds(row[2])})
        for row in rows
    ]
    file = folder / "clicks" / f"{number}.json"
    file.write_text("".join(f"{line}\n" for line in lines))
    os.utime(file, (1_700_000_000 + number,) * 2)


def seconds(second: int) -> str:
    return f"2024-01-01T00:{second // 60:02d}:{second % 60:02d}.000Z"


def run(folder: Path) -> list[tuple[Any, ...]]:
    """Run once, and return all output so far."""
    given = ["--once", "--output", str(folder / "out"), "--metrics", str(folder / "metrics")]
    assert cli.main(["run", str(folder / "query.sql"), *given]) == 0
    return sorted(tuple(line.values()) for line in read_lines(folder / "out", "part-*"))


def test_rejected_rows_are_written_and_a_later_run_continues(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    feed(tmp_path, 0, ("a", 1, 1), ("b", 2, 30), ("a", 3, 59))
    feed(tmp_path, 1, ("a", 4, 70), ("a", 5, 52))
    feed(tmp_path, 2, ("a", 6, 71), ("a", 7, 2), ("a", 8, None), ("b", 500, 71), '{"user": ')
    first = [
        (seconds(1), "a", 1),
        (seconds(30), "b", 2),
        (seconds(52), "a", 18),
    ]
    assert run(tmp_path) == first
    reasons = Counter(line["reason"].partition(" ")[0] for line in rejected(tmp_path))
    assert reasons == {"late:": 1, "at": 1, "CHECK": 1, "not": 1}
    metrics = read_lines(tmp_path, "metrics")
    assert sum(line["input_rows"] for line in metrics) == 10
    assert sum(line["late_rows"] for line in metrics) == 1
    assert sum(line["malformed_rows"] for line in metrics) == 3
    assert metrics[-1]["state_entries"] == 0

    feed(tmp_path, 3, ("a", 9, 90), ("a", 1, 100))  # the session that ended at 91 s has been written
    assert run(tmp_path) == [*first, (seconds(100), "a", 1)]
    assert len(rejected(tmp_path)) == 5


def test_a_filter_of_group_columns_does_not_hold_back_the_last_group(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark moves the filter below the groups, where it must not drop the row that ends the input."""
    block = "SELECT window.start AS s, user, SUM(n) AS n FROM clicks GROUP BY window(at, '30 seconds'), user"
    query = f"SELECT s, user, n FROM ({block}) WHERE n IS NOT NULL AND upper(user) <> 'B'"
    (tmp_path / "query.sql").write_text(QUERY.partition(";")[0] + f"; {query};")
    feed(tmp_path, 0, ("a", 1, 1), ("b", 2, 31), ("a", 3, 59))
    assert run(tmp_path) == [(seconds(0), "a", 1), (seconds(30), "a", 3)]


def rejected(folder: Path) -> list[dict[str, Any]]:
    return read_lines(folder / "out" / "_rejected", "part-*")


@pytest.mark.parametrize("seed", [1])
def test_random_queries_give_duckdbs_answer(spark: SparkSession, seed: int) -> None:
    is_native, problem = examine(spark, seed)
    assert is_native and problem is None, problem


def test_a_stopped_run_is_not_taken_for_a_wrong_answer(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal, for example of ``timeout``, stops a run after its batch; rows are then left for the next."""
    monkeypatch.setattr(native_windows, "run", lambda *_: Snapshot(Phase.STOPPED))
    with pytest.raises(KeyboardInterrupt):
        examine(spark, 1)

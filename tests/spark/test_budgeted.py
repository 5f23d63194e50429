"""Runs under a budget, from the command line and as a DataFrame."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

import millpond
from millpond.cli import main as cli
from millpond.engines.budgeted import compile as budgeted_compile
from millpond.lab.workloads import SYNTHETIC

Captured = pytest.CaptureFixture[str]
JOIN = "SELECT R.K FROM R, S WHERE R.K = S.K"


class Streams:
    """Two streams of JSON files, each file a batch, and a query over them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.output = path / "out"
        self._files = 0

    def ask(self, query: str) -> None:
        tables = [
            f"CREATE STREAMING TABLE {name} (K INT, V INT) "
            f"USING json OPTIONS (path '{name}', maxFilesPerTrigger '1');"
            for name in "RS"
        ]
        relation = "CREATE TABLE L (V INT, NAME STRING) USING json OPTIONS (path 'L');"
        (self.path / "query.sql").write_text("\n".join([*tables, relation, f"{query};"]), encoding="utf-8")

    def feed(self, **streams: Sequence[dict[str, Any] | str]) -> None:
        for name, rows in streams.items():
            folder = self.path / name
            folder.mkdir(exist_ok=True)
            file = folder / f"{self._files:05}.json"
            lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
            file.write_text("".join(f"{line}\n" for line in lines))
            os.utime(file, (1_700_000_000 + self._files, 1_700_000_000 + self._files))
        self._files += 1

    def run(self, *options: str, output: Path | None = None) -> int:
        words = ["run", str(self.path / "query.sql"), "--output", str(output or self.output), "--once"]
        return cli.main([*words, "--metrics", str(self.path / "metrics"), *options])

    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "metrics").read_text().splitlines()]

    def rows(self, output: Path | None = None) -> Counter[tuple[Any, ...]]:
        files = (output or self.output).glob("part-*.json")
        lines = [line for file in files for line in file.read_text().splitlines()]
        return Counter(tuple(json.loads(line).values()) for line in lines)

    def truth(self, query: str) -> Counter[tuple[Any, ...]]:
        connection = duckdb.connect()
        for folder in self.path.iterdir():
            if folder.name in ("R", "S", "L"):
                columns = {"V": "INT", "NAME": "TEXT"} if folder.name == "L" else {"K": "INT", "V": "INT"}
                files = f"read_json('{folder}/*.json', columns={columns}, ignore_errors=true)"
                connection.execute(f"CREATE VIEW {folder.name} AS FROM {files}")
        return Counter(connection.execute(query).fetchall())


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Streams:
    made = Streams(tmp_path)
    made.ask(JOIN)
    return made


def feed_roof(streams: Streams, batches: int, size: int) -> None:
    r, s = SYNTHETIC["ROOF"]().streams(0, 0, batches * size)
    for start in range(0, batches * size, size):
        parts = (keys[start : start + size].tolist() for keys in (r, s))
        left, right = ([{"K": k, "V": k % 7} for k in keys] for keys in parts)
        streams.feed(R=left, S=right)


def test_a_run_on_a_budget_keeps_it_and_estimates_what_it_misses(streams: Streams, capsys: Captured) -> None:
    feed_roof(streams, 6, 40)
    assert streams.run("--memory", "10", "--policy", "heeb") == 0
    found, truth, metrics = streams.rows(), streams.truth(JOIN), streams.metrics()
    assert found <= truth and found.total() >= 0.8 * truth.total()
    assert max(batch["state_entries"] for batch in metrics) == 10
    assert sum(batch["shed_rows"] for batch in metrics) == 2 * 240 - 10
    missed = truth.total() - found.total()
    assert abs(sum(batch["missed_rows"] for batch in metrics) - missed) <= max(3, 0.1 * missed)
    assert f"{found.total():,} out" in (printed := capsys.readouterr().err)
    assert f"470 shed, {missed:,} results missed" in printed and "10 of at most 10 entries kept" in printed


def test_a_large_budget_gives_the_exact_answer(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several shards, with a relation, a filter, another condition, and rows that cannot be read."""
    monkeypatch.setattr(budgeted_compile, "TUPLES_PER_SHARD", 250)
    query = "SELECT R.K, NAME FROM R, S, L WHERE R.K = S.K AND R.V = L.V AND R.V < S.V AND S.V <> 3"
    streams.ask(query)
    streams.feed(L=[{"V": v, "NAME": f"name {v}"} for v in (0, 1, 2, 4)])
    for batch in range(4):
        rows = [{"K": (7 * i + batch) % 20, "V": i % 6} for i in range(30)]
        streams.feed(R=[*rows, '{"K": "nine"}'], S=rows[::-1])
    assert streams.run("--memory", "1000") == 0
    assert streams.rows() == streams.truth(query) != Counter()
    metrics = streams.metrics()
    assert sum(batch["malformed_rows"] for batch in metrics) == 4
    assert sum(batch["shed_rows"] + batch["missed_rows"] for batch in metrics) == 0


def test_two_runs_write_the_same_as_one(streams: Streams) -> None:
    """Two runs, one after the other, write what one run would have written; the source may change."""
    feed_roof(streams, 3, 40)
    assert streams.run("--memory", "8") == 0
    feed_roof(streams, 3, 40)
    text = (streams.path / "query.sql").read_text()
    for name in "RS":
        text = text.replace(f"(path '{name}'", f"(path '{streams.path}/{name}', latestFirst 'false'")
    (streams.path / "query.sql").write_text(text)
    assert streams.run("--memory", "8") == 0
    once = streams.path / "once"
    assert streams.run("--memory", "8", output=once) == 0
    assert streams.rows() == streams.rows(once)


def test_a_bounded_query_needs_no_budget(streams: Streams) -> None:
    query = "SELECT R.V FROM R, S WHERE R.K = S.K AND R.K BETWEEN 0 AND 20 AND R.V BETWEEN 0 AND 6"
    streams.ask(query)
    feed_roof(streams, 2, 30)
    assert streams.run("--memory", "1") == 0
    assert streams.rows() == streams.truth(query)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--memory", "0"], "a budget of 0 tuples keeps nothing; give at least 1"),
        (["--memory", "5", "--policy", "best"], "there is no policy 'best'; choose from auto,"),
        (["--policy", "lru"], "--policy has no effect without a budget; give --memory N, too"),
    ],
)
def test_wrong_options_are_refused(
    streams: Streams, capsys: Captured, options: list[str], message: str
) -> None:
    assert streams.run(*options) == 2
    assert message in capsys.readouterr().err


def test_the_refusal_of_an_unbounded_query_suggests_a_budget(streams: Streams, capsys: Captured) -> None:
    assert streams.run() == 2
    assert "give it a memory budget (--memory N): it keeps the N tuples" in capsys.readouterr().err


def test_a_dataframe_on_a_budget(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("sent", "seen"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "1.json").write_text("".join(json.dumps({"K": k % 50}) + "\n" for k in range(200)))
        spark.readStream.schema("K INT").json(str(folder)).createOrReplaceTempView(name)
    frame = millpond.sql(
        spark, "SELECT DISTINCT r.K FROM sent r, seen s WHERE r.K < s.K", memory=30, policy="fifo"
    )
    query = frame.writeStream.format("memory").queryName("budgeted").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = [row.K for row in spark.table("budgeted").collect()]
    assert sorted(rows) == sorted(set(rows)) and set(rows) <= set(range(49)) and rows
    [progress] = [p for p in query.recentProgress if "millpond" in p.observedMetrics]
    observed = progress.observedMetrics["millpond"]
    assert observed["state_entries"] <= 30 and observed["shed_rows"] > 0
    assert max(each.numRowsTotal for each in progress.stateOperators) <= 30

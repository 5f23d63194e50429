"""The files of the output: their contents, and that each batch is there once after a crash."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millpond.errors import MillpondError
from millpond.spark.files import Files
from millpond.spark.options import OUTPUT_FORMATS
from millpond.spark.sink import Sink, StopRequested, WrittenBatch

SCHEMA = """
    A INT, S STRING, _kind TINYINT,
    _note STRUCT<entries: BIGINT, bytes: BIGINT, stream: STRING, reason: STRING, record: STRING>
"""
Row = tuple[Any, ...]


def result(a: int | None, s: str | None) -> Row:
    return (a, s, 0, None)


def rejected(reason: str, record: str) -> Row:
    return (None, None, 1, (None, None, "S", reason, record))


def state(entries: int, size: int) -> Row:
    return (None, None, 2, (entries, size, None, None, None))


FIRST = [
    result(1, "a"),
    result(1, "a"),
    result(2, None),
    rejected("no number", "x"),
    state(3, 30),
    state(4, 40),
]
SECOND = [result(3, "line\nbreak"), rejected("no number", "y"), rejected("too large", "z")]


def frame(spark: SparkSession, rows: list[Row], partitions: int = 2) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA).repartition(partitions)


def rows_of(spark: SparkSession, folder: Path, format: str = "json") -> Counter[Row]:
    """The rows of the visible files."""
    paths = [str(path) for path in folder.glob(f"part-*.{format}")]
    if format == "json":
        return Counter((row["A"], row["S"]) for row in lines_of(folder))
    reader = (
        spark.read.schema("A INT, S STRING").option("header", "true").option("multiLine", format == "csv")
    )
    return Counter((row.A, row.S) for row in reader.format(format).load(paths).collect())


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("part-*.json") for line in path.read_text().splitlines()]


def rejects_of(folder: Path) -> Counter[Row]:
    return Counter((r["stream"], r["reason"], r["record"]) for r in lines_of(folder / "_rejected"))


def expected(*batches: list[Row]) -> tuple[Counter[Row], Counter[Row]]:
    rows = [row for batch in batches for row in batch]
    return (
        Counter((a, s) for a, s, kind, _ in rows if kind == 0),
        Counter(note[2:] for _, _, kind, note in rows if kind == 1),
    )


def assert_holds(spark: SparkSession, folder: Path, *batches: list[Row], format: str = "json") -> None:
    """The folder holds the rows of the batches, each once, and nothing is left of the work."""
    assert (rows_of(spark, folder, format), rejects_of(folder)) == expected(*batches)
    assert not (folder / "_staging").exists()


@pytest.fixture
def files(spark: SparkSession) -> Files:
    return Files(spark)


# --- what is written -------------------------------------------------------------------------------


@pytest.mark.parametrize("format", OUTPUT_FORMATS)
def test_a_batch_is_written_and_counted(
    spark: SparkSession, files: Files, tmp_path: Path, format: str
) -> None:
    sink = Sink(files, files.resolve(str(tmp_path)), format)
    sink(frame(spark, FIRST), 0)
    sink(frame(spark, SECOND), 1)
    assert_holds(spark, tmp_path, FIRST, SECOND, format=format)
    assert sink.written == {0: WrittenBatch(0, 3, 1, 7, 70), 1: WrittenBatch(1, 1, 2, None, None)}


def test_files_are_named_by_batch_and_number(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    Sink(files, str(tmp_path))(frame(spark, [result(n, None) for n in range(40)], partitions=3), 12)
    names = sorted(path.name for path in tmp_path.glob("[!_.]*"))
    assert names == ["part-000012-0.json", "part-000012-1.json", "part-000012-2.json"]


def test_json_keeps_nulls_and_only_the_columns_of_the_query(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    Sink(files, str(tmp_path))(frame(spark, [result(2, None)]), 0)
    assert (tmp_path / "part-000000-0.json").read_text() == '{"A":2,"S":null}\n'


@pytest.mark.parametrize("format", OUTPUT_FORMATS)
def test_an_empty_result_writes_no_file(
    spark: SparkSession, files: Files, tmp_path: Path, format: str
) -> None:
    sink = Sink(files, str(tmp_path / "out"), format)
    sink(frame(spark, [state(1, 8)]), 0)
    sink(frame(spark, [rejected("no number", "x")]), 1)
    assert [path.name for path in (tmp_path / "out").glob("[!.]*")] == ["_rejected"]
    assert rejects_of(tmp_path / "out").total() == 1
    assert sink.written[0] == WrittenBatch(0, 0, 0, 1, 8)


@pytest.mark.parametrize("name", ["with space", "a:b", "[x]{y}*", "100%20", "é"])
def test_folder_names_may_contain_any_character(
    spark: SparkSession, files: Files, tmp_path: Path, name: str
) -> None:
    output = files.resolve(str(tmp_path / name))
    for _ in range(2):  # the second attempt has to find what the first one wrote
        Sink(files, output)(frame(spark, FIRST), 0)
    assert_holds(spark, tmp_path / name, FIRST)


def test_column_names_may_contain_any_character(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    names = ["max(A)", "a.b", "back`tick", "value"]
    rows = spark.createDataFrame(
        [(1, 2, 3, 4, 0, None)], SCHEMA.replace("A INT, S STRING", "a INT, b INT, c INT, d INT")
    )
    Sink(files, str(tmp_path))(rows.toDF(*names, "_kind", "_note"), 0)
    assert json.loads((tmp_path / "part-000000-0.json").read_text()) == dict(
        zip(names, (1, 2, 3, 4), strict=True)
    )


def test_a_batch_is_computed_once(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    """A stateful operator must not run twice in a batch, whatever the format and what is rejected."""
    for format in OUTPUT_FORMATS:
        calls = spark.sparkContext.accumulator(0)

        def count(batches: Any, calls: Any = calls) -> Any:
            for batch in batches:
                calls.add(batch.num_rows)
                yield batch

        counted = frame(spark, FIRST).mapInArrow(count, SCHEMA)
        Sink(files, str(tmp_path / format), format)(counted, 0)
        assert (format, calls.value) == (format, len(FIRST))


def test_an_unknown_format_is_refused(files: Files, tmp_path: Path) -> None:
    with pytest.raises(MillpondError, match="'xml'; choose from json, parquet, csv, orc"):
        Sink(files, str(tmp_path), "xml")


def test_after_a_stop_no_batch_starts(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    sink = Sink(files, str(tmp_path))
    sink(frame(spark, FIRST), 0)
    sink.stop()
    with pytest.raises(StopRequested):
        sink(frame(spark, SECOND), 1)
    assert_holds(spark, tmp_path, FIRST)
    assert sink.failure is None


# --- crashes ---------------------------------------------------------------------------------------


class Crash(BaseException):
    """Not an Exception, as a killed process does not run handlers either."""


class Fragile(Files):
    """Crashes before its ``lives``-th change of the file system; counts them."""

    def __init__(self, spark: SparkSession, lives: int) -> None:
        super().__init__(spark)
        self.lives = lives
        self.steps: list[str] = []

    def _step(self, what: str) -> None:
        if len(self.steps) == self.lives:
            raise Crash
        self.steps.append(what)

    def make_folder(self, path: str) -> None:
        self._step("make")
        super().make_folder(path)

    def delete(self, path: str) -> None:
        self._step("delete")
        super().delete(path)

    def rename(self, old: str, new: str) -> None:
        self._step("rename")
        super().rename(old, new)


def test_after_a_crash_between_any_two_steps_each_batch_is_there_once(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    before = tmp_path / "before"
    earlier = Sink(files, str(before))
    earlier(frame(spark, FIRST), 0)
    earlier(frame(spark, SECOND, partitions=3), 1)  # written, but not noted as done: it comes again
    alive, lives = True, 0
    while alive:
        folder = tmp_path / f"{lives}"
        shutil.copytree(before, folder)
        fragile = Fragile(spark, lives)
        try:
            Sink(fragile, str(folder))(frame(spark, SECOND), 1)
            alive = False
        except Crash:
            lives += 1
        Sink(files, str(folder))(frame(spark, SECOND, partitions=1), 1)
        assert_holds(spark, folder, FIRST, SECOND)
    assert fragile.steps.count("rename") >= 2 and fragile.steps.count("delete") >= 3, fragile.steps
    assert lives == len(fragile.steps)


def test_a_repeated_batch_with_fewer_files_replaces_all_files_of_the_first(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    Sink(files, str(tmp_path))(frame(spark, FIRST, partitions=4), 0)
    Sink(files, str(tmp_path))(frame(spark, [state(1, 8)]), 0)
    assert_holds(spark, tmp_path, [])


def test_batches_with_longer_numbers_are_other_batches(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    Sink(files, str(tmp_path))(frame(spark, FIRST), 1_000_000)
    Sink(files, str(tmp_path))(frame(spark, SECOND), 100_000)
    assert_holds(spark, tmp_path, FIRST, SECOND)


def test_the_error_of_a_batch_is_kept(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    sink = Sink(files, str(tmp_path))
    broken = frame(spark, FIRST).selectExpr("raise_error('broken') AS A", "S", "_kind", "_note")
    with pytest.raises(Exception, match="broken"):
        sink(broken, 0)
    assert "broken" in str(sink.failure)
    assert sink.written == {}
    assert_nothing_visible(tmp_path)


def assert_nothing_visible(folder: Path) -> None:
    assert list(folder.glob("[!_.]*")) == []

"""Which query a checkpoint and an output folder belong to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.query.model import Query
from millpond.spark.checkpoint import EarlierRun, Folders
from millpond.spark.files import Files

CATALOG = """
CREATE STREAMING TABLE S (A INT, B INT CHECK (B > 0)) USING json OPTIONS (path 'in');
CREATE STREAMING TABLE T (D INT, at TIMESTAMP) USING json OPTIONS (path 'in')
    TBLPROPERTIES ('watermark' = '1 day');
"""
QUERY = "SELECT A FROM S x, T WHERE B < 3 AND A = D AND A IN (1, 2.5)"


def query(text: str = QUERY, catalog: str = CATALOG) -> Query:
    [found] = parse(catalog + text)
    return found


class Run:
    """A run's two folders."""

    def __init__(self, spark: SparkSession, path: Path, output: str = "out", checkpoint: str = "cp") -> None:
        self.output, self.checkpoint = path / output, path / checkpoint
        self.files = files = Files(spark)
        self.folders = Folders(files, files.resolve(str(self.checkpoint)), files.resolve(str(self.output)))

    def start(self, asked: Query, partitions: int = 3) -> EarlierRun | None:
        continued = self.folders.check(asked)
        self.folders.claim(self.files, asked, partitions, continued)
        return continued

    def write(self, name: str = "part-000000-0.json") -> None:
        (self.output / name).parent.mkdir(parents=True, exist_ok=True)
        (self.output / name).write_text("{}\n")


@pytest.fixture
def started(spark: SparkSession, tmp_path: Path) -> Run:
    """A run that has written something."""
    run = Run(spark, tmp_path)
    assert run.start(query()) is None
    run.write()
    return run


@pytest.mark.parametrize(
    "same",
    [
        query(),
        query("select  A from S as x,T -- the same\nwhere b < 3 AND (A = D) AND A IN (1, 2.5)"),
        query(catalog=CATALOG.replace("path 'in'", "path 'moved', maxFilesPerTrigger '1'")),
    ],
    ids=["as it was", "written otherwise", "from another place"],
)
def test_the_same_query_continues_a_checkpoint(started: Run, same: Query) -> None:
    continued = started.start(same, partitions=8)
    assert continued is not None and continued.partitions == 3
    assert started.start(same) == continued


@pytest.mark.parametrize(
    ("changed", "pattern"),
    [
        (query(QUERY.replace("< 3", "< 4")), f"it was {QUERY}".replace("(", r"\(").replace(")", r"\)")),
        (query(QUERY.replace("2.5", "2")), "it was SELECT"),
        (query(QUERY.replace("SELECT A", "SELECT DISTINCT A")), "it was SELECT"),
        (query(QUERY.replace("SELECT A", "SELECT A AS a")), "it was SELECT"),
        (query(catalog=CATALOG.replace("A INT,", "A BIGINT,")), "S had the columns A INT, B INT;"),
        (query(catalog=CATALOG.replace("D INT", "D INT NOT NULL")), "T had the columns D INT, at TIMESTAMP;"),
        (query(catalog=CATALOG.replace("B > 0", "B > 1")), "S had other CHECK constraints;"),
        (query(catalog=CATALOG.replace("1 day", "2 days")), "T was declared with .*watermark 1 day;"),
    ],
)
def test_another_query_is_refused(started: Run, changed: Query, pattern: str) -> None:
    with pytest.raises(
        MillpondError, match=f"is of another query: {pattern}.*new --checkpoint and a new --output"
    ):
        started.start(changed)


@pytest.mark.parametrize(
    ("note", "pattern"),
    [
        (
            '{"format": 1}',
            "another version of Millpond: it has format 1, and .* format 2; continue it with the version",
        ),
        ('{"format": 2}', "is damaged"),
        ('{"form', "is damaged"),
        ("[]", "is damaged"),
    ],
)
def test_a_note_of_another_format_or_a_damaged_one_is_refused(started: Run, note: str, pattern: str) -> None:
    (started.checkpoint / "._millpond.json.crc").unlink(missing_ok=True)
    (started.checkpoint / "_millpond.json").write_text(note)
    with pytest.raises(MillpondError, match=pattern):
        started.start(query())


def test_a_checkpoint_that_millpond_did_not_write_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "cp" / "offsets").mkdir(parents=True)
    with pytest.raises(MillpondError, match="cp was not written by Millpond"):
        Run(spark, tmp_path).start(query())


@pytest.mark.parametrize("name", ["part-000000-0.json", "notes.txt"])
def test_an_output_folder_with_other_files_is_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    run = Run(spark, tmp_path)
    run.write(name)
    with pytest.raises(
        MillpondError, match="out holds files that Millpond did not write; give a new --output"
    ):
        run.start(query())
    assert not run.checkpoint.exists()


@pytest.mark.parametrize("name", ["part-000000-0.json", "_rejected/part-000000-0.json"])
@pytest.mark.parametrize("known", [False, True], ids=["new checkpoint", "checkpoint of another run"])
def test_an_output_folder_of_another_run_is_refused(
    spark: SparkSession, tmp_path: Path, name: str, known: bool
) -> None:
    Run(spark, tmp_path).start(query())
    other = Run(spark, tmp_path, output="other", checkpoint="other-cp")
    if known:
        other.start(query())
    mixed = Run(spark, tmp_path, checkpoint="other-cp")
    mixed.write(name)
    with pytest.raises(
        MillpondError, match=r"out holds the output of another run, which .*other-cp does not continue"
    ):
        mixed.start(query())


def test_an_output_folder_without_rows_is_accepted(spark: SparkSession, tmp_path: Path) -> None:
    Run(spark, tmp_path).start(query())
    again = Run(spark, tmp_path, checkpoint="new-cp")
    assert again.start(query()) is None
    again.write()
    assert again.start(query()) is not None


def test_a_run_may_continue_in_a_new_output_folder(spark: SparkSession, started: Run, tmp_path: Path) -> None:
    moved = Run(spark, tmp_path, output="second")
    assert moved.start(query()) is not None
    moved.write()
    assert moved.start(query()) is not None


def test_a_crash_between_the_two_notes_is_harmless(started: Run) -> None:
    for file in (started.output / "part-000000-0.json", started.output / "_millpond"):
        file.unlink()
    assert started.start(query()) is not None
    assert json.loads((started.output / "_millpond").read_text())["run"]

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
        files = Files(spark)
        self.folders = Folders(files, files.absolute(str(self.checkpoint)), files.absolute(str(self.output)))

    def begin(self, asked: Query, partitions: int = 3) -> EarlierRun | None:
        continued = self.folders.check(asked)
        self.folders.claim(asked, partitions, continued)
        return continued

    def write(self, name: str = "part-000000-0.json") -> None:
        (self.output / name).parent.mkdir(parents=True, exist_ok=True)
        (self.output / name).write_text("{}\n")


@pytest.fixture
def begun(spark: SparkSession, tmp_path: Path) -> Run:
    """A run that has written something."""
    run = Run(spark, tmp_path)
    assert run.begin(query()) is None
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
def test_the_same_query_goes_on(begun: Run, same: Query) -> None:
    continued = begun.begin(same, partitions=8)
    assert continued is not None and continued.partitions == 3
    assert begun.begin(same) == continued


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
def test_another_query_does_not(begun: Run, changed: Query, pattern: str) -> None:
    with pytest.raises(
        MillpondError, match=f"is of another query: {pattern}.*new --checkpoint and a new --output"
    ):
        begun.begin(changed)


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
def test_a_note_that_cannot_be_read(begun: Run, note: str, pattern: str) -> None:
    (begun.checkpoint / "._millpond.json.crc").unlink(missing_ok=True)
    (begun.checkpoint / "_millpond.json").write_text(note)
    with pytest.raises(MillpondError, match=pattern):
        begun.begin(query())


def test_a_checkpoint_of_somebody_else(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "cp" / "offsets").mkdir(parents=True)
    with pytest.raises(MillpondError, match="cp was not written by Millpond"):
        Run(spark, tmp_path).begin(query())


@pytest.mark.parametrize("name", ["part-000000-0.json", "notes.txt"])
def test_an_output_folder_with_files_of_somebody_else(spark: SparkSession, tmp_path: Path, name: str) -> None:
    run = Run(spark, tmp_path)
    run.write(name)
    with pytest.raises(
        MillpondError, match="out holds files that Millpond did not write; give a new --output"
    ):
        run.begin(query())
    assert not run.checkpoint.exists()


@pytest.mark.parametrize("name", ["part-000000-0.json", "_rejected/part-000000-0.json"])
@pytest.mark.parametrize("known", [False, True], ids=["new checkpoint", "checkpoint of another run"])
def test_an_output_folder_of_another_run(spark: SparkSession, tmp_path: Path, name: str, known: bool) -> None:
    Run(spark, tmp_path).begin(query())
    other = Run(spark, tmp_path, output="other", checkpoint="other-cp")
    if known:
        other.begin(query())
    mixed = Run(spark, tmp_path, checkpoint="other-cp")
    mixed.write(name)
    with pytest.raises(
        MillpondError, match=r"out holds the output of another run, which .*other-cp does not continue"
    ):
        mixed.begin(query())


def test_an_output_folder_without_rows_is_free(spark: SparkSession, tmp_path: Path) -> None:
    Run(spark, tmp_path).begin(query())
    again = Run(spark, tmp_path, checkpoint="new-cp")
    assert again.begin(query()) is None
    again.write()
    assert again.begin(query()) is not None


def test_a_run_may_go_on_in_a_new_folder(spark: SparkSession, begun: Run, tmp_path: Path) -> None:
    moved = Run(spark, tmp_path, output="second")
    assert moved.begin(query()) is not None
    moved.write()
    assert moved.begin(query()) is not None


def test_a_crash_between_the_two_notes_is_harmless(begun: Run) -> None:
    for file in (begun.output / "part-000000-0.json", begun.output / "_millpond"):
        file.unlink()
    assert begun.begin(query()) is not None
    assert json.loads((begun.output / "_millpond").read_text())["run"]

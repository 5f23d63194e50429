"""Outer joins, EXISTS and NOT EXISTS on Spark: rows wait until no partner can come."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.campaigns.partners_on_spark import examine
from tests.spark.test_timed import Folder

FULL_JOIN = "SELECT A, B FROM S FULL JOIN T ON B = A AND J BETWEEN I AND I + INTERVAL 5 SECONDS"


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_rows_without_a_partner_are_written_when_none_can_come(folder: Folder) -> None:
    """Matches are written at once; the end of the input decides all rows that wait."""
    folder.ask(FULL_JOIN, "ST")
    folder.feed("S", 0, [(1, 0), (2, 1)])
    folder.feed("T", 0, [(1, 2)])
    folder.feed("S", 1, [(3, 9), (5, 20)])
    folder.feed("T", 1, [(4, 9), (3, 10), (7, 20)])
    assert folder.run() == 0
    assert folder.rows() == {(1, 1): 1, (2, None): 1, (3, 3): 1, (None, 4): 1, (5, None): 1, (None, 7): 1}
    written = [batch["output_rows"] for batch in folder.metrics()]
    assert (written[1], sum(written)) == (4, 6), "5 and 7 wait for the end"
    assert folder.metrics()[-1]["state_entries"] == 0


def test_partners_in_a_relation_need_no_state(folder: Folder) -> None:
    relation = "CREATE TABLE R (K INT NOT NULL, L STRING) USING csv OPTIONS (path 'R', header 'true');"
    query = """
        SELECT A, L FROM S LEFT JOIN R ON A = K WHERE A IS NOT NULL AND A NOT IN (SELECT K FROM R WHERE K > 2)
        UNION ALL SELECT A, 'known' FROM S WHERE EXISTS (SELECT 1 FROM R WHERE K = A)
    """
    folder.ask(query, "S", more=relation)
    (folder.path / "R").mkdir()
    (folder.path / "R" / "r.csv").write_text("K,L\n1,one\n2,two\n2,zwei\n3,three\n")
    folder.feed("S", 0, [(1, 1), (2, 2), (3, 3), (5, 4)])
    assert folder.run() == 0
    expected = [(1, "one"), (2, "two"), (2, "zwei"), (5, None), (1, "known"), (2, "known"), (3, "known")]
    assert folder.rows() == Counter(expected)
    assert {batch["state_entries"] for batch in folder.metrics()} == {0}


def test_rows_wait_for_a_partner_without_application_time(folder: Folder) -> None:
    """A row is written when its first partner comes, before or after it, in an earlier run or a later one."""
    ddl = "CREATE STREAMING TABLE {} (A INT) USING json OPTIONS (path '{}', maxFilesPerTrigger '1');"
    more = "\n".join(ddl.format(name, name) for name in "ST")
    query = "SELECT A FROM S WHERE A BETWEEN 0 AND 9 AND A IN (SELECT A FROM T)"
    folder.ask(query, "", more=more)
    folder.feed("S", 0, [(1, None), (1, None), (2, None), (50, None)])
    (folder.path / "T").mkdir()
    assert folder.run() == 0
    assert not folder.rows() and folder.metrics()[-1]["state_entries"] == 2
    (folder.path / "T" / "0.json").write_text('{"A": 1}\n{"A": 3}\n')
    folder.feed("S", 1, [(1, None), (3, None), (4, None)])
    assert folder.run() == 0
    assert folder.rows() == {(1,): 3, (3,): 1}


@pytest.mark.campaign
def test_random_queries_with_files_out_of_order(spark: SparkSession) -> None:
    """``python -m tests.campaigns.partners_on_spark`` runs more of them."""
    done, seed = 0, 0
    while done < 1:
        bounded, problem = examine(spark, seed)
        assert problem is None, problem
        done += bounded
        seed += 1

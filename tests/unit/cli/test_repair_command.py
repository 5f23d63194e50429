"""``millpond repair``: what it prints, and where constants come from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import millpond
from millpond.cli import main as cli

CATALOG = "CREATE STREAMING TABLE clicks (page INT, visitor INT);\n"
BOUNDED = "SELECT page FROM clicks WHERE visitor > 10;\n"
UNBOUNDED = "SELECT page, COUNT(*) FROM clicks GROUP BY page;\n"
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def repair(text: str, *options: str) -> int:
    Path("query.sql").write_text(text)
    return cli.main(["repair", "query.sql", *options])


def test_changed_lines_are_shown(capsys: Captured) -> None:
    assert repair(CATALOG + UNBOUNDED, "--limit", "1") == 0
    assert (
        capsys.readouterr().out
        == """\
unbounded; 1 repair:

1. Declare the number of values of clicks.page (1,000,000 is a placeholder)
   same answer if there are at most 1,000,000 different values of clicks.page;
   keeps at most 1,000,001 entries
   1 + CREATE STREAMING TABLE clicks (page INT, visitor INT) TBLPROPERTIES
     +     ('cardinality.page' = '1000000');
"""
    )


def test_the_text_with_a_repair_is_printed(capsys: Captured) -> None:
    assert repair(CATALOG + UNBOUNDED, "--apply", "1") == 0
    text = capsys.readouterr().out
    assert text == CATALOG.replace(";", " TBLPROPERTIES ('cardinality.page' = '1000000');") + UNBOUNDED
    Path("repaired.sql").write_text(text)
    assert cli.main(["check", "repaired.sql"]) == 0


def test_json(capsys: Captured) -> None:
    assert repair(CATALOG + BOUNDED + UNBOUNDED, "--json") == 0
    bounded, unbounded = json.loads(capsys.readouterr().out)
    assert (bounded["outcome"], bounded["repairs"]) == ("bounded", [])
    assert unbounded.keys() == {"query", "outcome", "repairs"} and unbounded["outcome"] == "unbounded"
    verdicts = millpond.check(unbounded["repairs"][0]["sql"])
    assert isinstance(verdicts, list) and verdicts[1].outcome == "bounded"
    assert repair(CATALOG + BOUNDED + UNBOUNDED, "--json", "--query", "2", "--limit", "1") == 0
    assert json.loads(capsys.readouterr().out)["repairs"] == unbounded["repairs"][:1]


def test_a_bounded_query_needs_no_repair(capsys: Captured) -> None:
    assert repair(CATALOG + BOUNDED) == 0
    assert capsys.readouterr().out == "bounded: nothing needs repair\n"


@pytest.mark.parametrize("is_declared", [True, False], ids=["declared source", "sample"])
def test_constants_come_from_rows(is_declared: bool, folder: Path, capsys: Captured) -> None:
    """A budget is tried on these rows, too."""
    rows = [{"page": i % 5 + 20, "kind": f"k{i % 3}"} for i in range(60)]
    (folder / "clicks").mkdir()
    (folder / "clicks" / "1.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    source = " USING json OPTIONS (path 'clicks')" if is_declared else ""
    query = "SELECT x.page, y.kind FROM clicks x, clicks y WHERE x.page = y.page;"
    text = f"CREATE STREAMING TABLE clicks (page INT, kind STRING){source};\n{query}"
    assert repair(text, *([] if is_declared else ["--sample", "clicks/1.json"])) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "CHECK (page BETWEEN 20 AND 24)" in shown and "CHECK (kind IN ('k0', 'k1', 'k2'))" in shown
    assert "as in 60 sample rows" in shown
    assert re.search(r"--memory \d+ fewer rows; finds \d+\.\d% of the results of the sample", shown)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sample", "nowhere.json"], "there is no sample nowhere.json; correct the path"),
        (["--sample", "."], r"the sample \. has no rows of the query's streams; give a JSON, CSV or Parquet"),
        (["--query", "3"], "there is no query 3: the file holds one query"),
        (["--apply", "9"], "there is no repair 9: the query has 6 repairs"),
        (["--apply", "0"], "there is no repair 0"),
        (["--apply", "6"], "repair 6 changes no text: Keep a limited number of tuples"),
    ],
)
def test_wrong_uses(options: list[str], message: str, capsys: Captured) -> None:
    assert repair(CATALOG + UNBOUNDED, *options) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and re.search(message, err)

"""Wrong uses of the command line and of Python: one clear line each, and Spark is not started for it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import millpond
from millpond.cli import main as cli
from millpond.spark import run as run_module
from millpond.spark.checkpoint import Folders
from millpond.spark.local_files import LocalFiles

Captured = pytest.CaptureFixture[str]
STREAM = "CREATE STREAMING TABLE S (a INT, b INT) USING json OPTIONS (path 'in');\n"
TIMED = "CREATE STREAMING TABLE E (a INT, at TIMESTAMP) USING json OPTIONS (path 'in');\n"
LOOKUP = (
    "CREATE TABLE R (a INT, n STRING) USING lookup OPTIONS ({});\nSELECT S.a, R.n FROM S JOIN R ON S.a = R.a"
)
FILES = {
    "good.sql": STREAM + "SELECT a FROM S WHERE a < 5;",
    "two.sql": STREAM + "SELECT a FROM S; SELECT b FROM S;",
    "grows.sql": STREAM + "SELECT DISTINCT a FROM S;",
    "empty.sql": "",
    "tables.sql": STREAM,
    "typo.sql": STREAM + "SELCT a FROM S;",
    "table.sql": STREAM + "SELECT a FROM T;",
    "column.sql": STREAM + "SELECT c FROM S;",
    "property.sql": TIMED.replace(";", " TBLPROPERTIES ('watermrk' = '1 day');") + "SELECT a FROM E;",
    "template.sql": "SELECT a\nFROM {{ my_macro() }}",
    "notebook.ipynb": '{"nbformat": 4, "cells": [',
    "nosource.sql": "CREATE STREAMING TABLE S (a INT);\nSELECT a FROM S;",
    "missing.sql": STREAM.replace("'in'", "'nowhere'") + "SELECT a FROM S;",
    "file.sql": STREAM.replace("'in'", "'in/1.json'") + "SELECT a FROM S;",
    "format.sql": STREAM.replace("json", "jsn") + "SELECT a FROM S;",
    "nopath.sql": STREAM.replace("path 'in'", "maxFilesPerTrigger '1'") + "SELECT a FROM S;",
    "reserved.sql": STREAM + "SELECT a AS _kind FROM S;",
    "window.sql": TIMED + "SELECT window, COUNT(*) FROM E GROUP BY window(at, '1 hour');",
    "nomemory.sql": STREAM + LOOKUP.format("url 'sqlite:///r.db', dbtable 'R'"),
    "nourl.sql": STREAM + LOOKUP.format("dbtable 'R', memory '10'"),
    "option.sql": STREAM + LOOKUP.format("url 'sqlite:///r.db', dbtable 'R', memory '10', tll '1 day'"),
    "ttl.sql": STREAM + LOOKUP.format("url 'sqlite:///r.db', dbtable 'R', memory '10', ttl 'soon'"),
    "database.sql": STREAM + LOOKUP.format("url 'sqlite:///r.db', dbtable 'R', memory '10'"),
    "note.txt": "not JSON",
    "in/1.json": '{"a": 1, "b": 2}\n',
    "other/notes.txt": "mine",
    "cp/offsets/0": "v1",
    "damaged/_millpond.json": "{",
    "newer/_millpond.json": '{"format": 99}',
}

# The command, and what its one line says.
COMMANDS = [
    ("", "COMMAND is missing; see millpond --help"),
    ("chek good.sql", "there is no command 'chek'; did you mean check?"),
    ("demo more", "'more' is not expected"),
    ("check", "FILE.sql is missing; see millpond check --help"),
    ("check nowhere.sql", "nowhere.sql: there is no such file; correct the path"),
    ("check in", "in: this is a folder; give a file with SQL text, or 'in/**/*.sql'"),
    ("check 'q*.sql'", "no file matches q*.sql; correct the pattern"),
    ("check good.sql --jsn", "there is no option --jsn; did you mean --json?"),
    ("check good.sql --format xml", "--format: there is no 'xml'; choose from text, json, github, sarif"),
    ("check good.sql --format", "--format needs a value"),
    ("check good.sql --baseline nowhere.json", "there is no baseline nowhere.json; write one with: "),
    ("check good.sql --baseline in", "the baseline in cannot be read: it is a folder"),
    ("check good.sql --baseline note.txt", "note.txt is not a baseline; write one with: "),
    ("check good.sql --catalog nowhere.sql", "the catalog nowhere.sql: there is no such file"),
    (
        "check good.sql --catalog good.sql",
        "line 2, column 1: the catalog good.sql: a query is not a declaration",
    ),
    ("check empty.sql", "empty.sql: there is no query in the text; write a SELECT"),
    ("check tables.sql", "tables.sql: there is no query in the text; write a SELECT"),
    ("check binary.sql", "binary.sql: the file is not UTF-8 text"),
    ("check typo.sql", "typo.sql: line 2, column 1: SELCT is not supported; did you mean SELECT?"),
    ("check table.sql", "table.sql: line 2, column 15: there is no table T"),
    ("check column.sql", "column.sql: line 2, column 8: "),
    ("check property.sql", "watermark"),
    (
        "check template.sql",
        "template.sql: line 2, column 6: a template is not SQL; compile the template first",
    ),
    ("check notebook.ipynb", "notebook.ipynb: the notebook is damaged"),
    ("witness grows.sql", "-n is missing; see millpond witness --help"),
    ("witness grows.sql -n three", "-n: 'three' is not a whole number"),
    ("witness grows.sql -n 0", "grows.sql: a witness "),
    ("witness grows.sql -n 2 --query 7", "there is no query 7: the file holds one query; leave --query out"),
    ("report good.sql", "-o/--output is missing; see millpond report --help"),
    ("report nowhere.sql -o out.html", "nowhere.sql: there is no such file"),
    ("report good.sql -o out.html --query 3", "there is no query 3: the file holds one query"),
    ("report good.sql -o in", "the report in cannot be written: it is a folder; give another --output"),
    ("report good.sql -o nowhere/out.html", "cannot be written: there is no such file or folder"),
    (
        "report good.sql -o out.html --metrics nowhere",
        "the metrics nowhere cannot be read: there is no such ",
    ),
    ("report good.sql -o out.html --metrics note.txt", "the metrics note.txt, line 1: not JSON"),
    (
        "report good.sql -o out.html --metrics in/1.json",
        "in/1.json, line 1: batch is missing; give the file ",
    ),
    ("run good.sql", "--output is missing; see millpond run --help"),
    ("run nowhere.sql --output out", "nowhere.sql: there is no such file"),
    ("run two.sql --output out", "the file holds 2 queries, but a run takes one; choose it with --query K"),
    (
        "run two.sql --output out --query 0",
        "there is no query 0: the file holds 2 queries; give a number from 1",
    ),
    ("run two.sql --output out --query a", "--query: 'a' is not a whole number"),
    ("run good.sql --output out --memry 5", "there is no option --memry; did you mean --memory?"),
    ("run good.sql --output out --memory ten", "--memory: 'ten' is not a number such as 500, 10k or 2M"),
    ("run grows.sql --output out --memory 0", "a budget of 0 tuples keeps nothing; give at least 1"),
    ("run grows.sql --output out --memory=-5", "a budget of -5 tuples keeps nothing; give at least 1"),
    (
        "run grows.sql --output out --policy lru",
        "--policy has no effect without a budget; give --memory N, too",
    ),
    ("run good.sql --output out --memory 5 --policy lur", "there is no policy 'lur'; choose from auto, heeb"),
    (
        "run good.sql --output out --format xml",
        "--format: there is no 'xml'; choose from json, parquet, csv, orc",
    ),
    (
        "run good.sql --output out --master here",
        "'here' is not a Spark master; write local[N], spark://HOST:PORT",
    ),
    (
        "run good.sql --output out --master spark://here",
        "'spark://here' is not a Spark master; write spark://HOST",
    ),
    (
        "run good.sql --output out --metrics no/m",
        "metrics file no/m cannot be written: there is no such file or folder; create its folder",
    ),
    ("run good.sql --output out --metrics in", "the metrics file in cannot be written: it is a folder"),
    ("run good.sql --output note.txt", "/note.txt is a file; give --output a folder"),
    ("run good.sql --output note.txt/out", "/note.txt is a file; give --output a folder"),
    ("run good.sql --output out --checkpoint note.txt", "/note.txt is a file; give --checkpoint a folder"),
    ("run good.sql --output other", "/other holds files that Millpond did not write; give a new --output"),
    ("run good.sql --output out --checkpoint cp", "/cp was not written by Millpond; to start again"),
    ("run good.sql --output out --checkpoint damaged", "/damaged/_millpond.json is damaged; to start again"),
    ("run good.sql --output out --checkpoint newer", "/newer was written by another version of Millpond"),
    ("run nosource.sql --output out", "the stream S has no source; say where its rows come from: USING json"),
    ("run missing.sql --output out", "/nowhere; create the folder, or correct the path in OPTIONS"),
    ("run file.sql --output out", "/in/1.json is a file, but a stream reads the files of a folder"),
    ("run format.sql --output out", "S: Spark has no format jsn; did you mean json?"),
    ("run nopath.sql --output out", "S does not say where its files are; add OPTIONS (path '…')"),
    ("run reserved.sql --output out", "the output column _kind has a reserved name; give it another alias"),
    (
        "run window.sql --output out --format csv",
        "CSV has no format for the column window, which has two fields",
    ),
    (
        "run nomemory.sql --output out",
        "R: the number of rows to cache is missing; add memory 'N' to its OPTIONS",
    ),
    ("run nourl.sql --output out", "R: the option url is missing; add url '"),
    ("run option.sql --output out", "R: unknown option tll; the options of a lookup relation are url, "),
    ("run ttl.sql --output out", "R: ttl 'soon' is not a duration; write '10 seconds' or '5 minutes'"),
    ("run database.sql --output out", "R"),
    ("lab fig99 --output out", "NAME: there is no 'fig99'; did you mean fig9?"),
    (
        "lab fig8 --output out --trace note.txt",
        "fig8 does not use --trace; leave it out; it belongs to cache",
    ),
    ("lab cache --output out", "cache needs a trace; give --trace FILE, with one key per line"),
    (
        "lab cache --output out --trace nowhere",
        "cannot read the trace nowhere: there is no such file or folder",
    ),
    (
        "lab cache --output out --trace note.txt --sizes x",
        "'x' is not a list of memory sizes; write --sizes 10,50",
    ),
    ("lab join --output out", "join needs two streams; give --r FILE and --s FILE"),
    ("lab fig8 --output out --seed -1", "--seed must not be negative; give 0 or more"),
    ("lab fig6 --quick --output note.txt", "cannot create the folder note.txt: "),
    ("completion tcsh", "SHELL: there is no 'tcsh'; choose from bash, zsh, fish"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files, in which Spark cannot be started."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "binary.sql").write_bytes(bytes(range(256)))
    monkeypatch.chdir(tmp_path)
    for name in ("open_session", "begin_launch"):
        monkeypatch.delattr(run_module, name)
    return tmp_path


@pytest.mark.parametrize(("command", "line"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_wrong_command(folder: Path, capsys: Captured, command: str, line: str) -> None:
    assert cli.main(shlex.split(command)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.startswith("millpond: ") and err[:-1].isprintable(), err
    assert line in err, err
    assert not (folder / "out").exists()


def test_there_are_sixty() -> None:
    assert len(COMMANDS) + len(CALLS) >= 60


def test_a_run_does_not_continue_another(folder: Path, capsys: Captured) -> None:
    """The checkpoint and the output of an earlier run are looked at before Spark starts."""
    [verdict] = [millpond.check(FILES["good.sql"])]
    assert isinstance(verdict, millpond.Verdict)
    NotedFolders(folder).claim(verdict)

    def refuse(text: str, *options: str) -> str:
        (folder / "good.sql").write_text(text)
        assert cli.main(["run", "good.sql", "--output", "done", *options]) == 2
        return capsys.readouterr().err

    same = FILES["good.sql"]
    assert "done holds files in the format json; continue with --format json; " in refuse(
        same, "--format", "orc"
    )
    assert "is of a run without --updates; drop --updates; " in refuse(same, "--updates")
    assert "is of another query: it was SELECT a FROM S WHERE a < 5; " in refuse(same.replace("< 5", "< 6"))
    changed = same.replace("b INT", "b BIGINT")
    assert "is of another query: S had the columns a INT, b INT; " in refuse(changed)
    assert "holds the output of another run" in refuse(same, "--checkpoint", "new")


class NotedFolders:
    """The folders of a run that has written one batch."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "done"
        self.folders = Folders(LocalFiles(), f"{self.output}/_checkpoint", str(self.output))

    def claim(self, verdict: millpond.Verdict) -> None:
        self.folders.claim(self, verdict.query, 1, None)  # type: ignore[arg-type]  # writes like Files
        (self.output / "part-000000-0.json").write_text("{}")

    def make_folder(self, path: str) -> None:
        Path(path).mkdir(parents=True)

    def create(self, path: str, text: str) -> None:
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(text)

    def delete(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)


# --- Python ----------------------------------------------------------------------------------------------

STOPPED = SparkSession.__new__(SparkSession)  # as if it had been stopped
GROWS: Any = millpond.check("CREATE STREAMING TABLE S (a INT); SELECT DISTINCT a FROM S")
anything: Any = millpond
CALLS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: anything.check(5), TypeError, "the query must be SQL text or a streaming"),
    (lambda: anything.check(None), TypeError, "the query must be SQL text or a streaming"),
    (lambda: anything.check(b"SELECT 1"), TypeError, "the query must be SQL text or a streaming"),
    (lambda: anything.check(Path("query.sql")), TypeError, "; read the file first: path.read_text()"),
    (lambda: anything.check("jobs/query.sql"), TypeError, "'jobs/query.sql' is the name of a file, not SQL"),
    (lambda: anything.check(""), millpond.SqlError, "there is no query in the text; write a SELECT"),
    (lambda: anything.watch(None), TypeError, "spark must be a SparkSession"),
    (lambda: anything.watch(STOPPED, 5), TypeError, "callback must be a function, not 5"),
    (lambda: anything.check("SELECT 1 FROM S"), millpond.SqlError, "there is no table S"),
    (lambda: GROWS.witness("3"), TypeError, "n must be a whole number, not '3'"),
    (lambda: GROWS.witness(1.5), TypeError, "n must be a whole number, not 1.5"),
    (lambda: GROWS.witness(-1), millpond.MillpondError, "witness"),
    (lambda: GROWS.explain("wide"), TypeError, "width must be a whole number"),
    (lambda: anything.sql(None, "SELECT 1"), TypeError, "spark must be a SparkSession, not NoneType"),
    (lambda: anything.sql("local", "SELECT 1"), TypeError, "spark must be a SparkSession, not str"),
    (
        lambda: anything.sql(STOPPED, "SELECT 1"),
        millpond.MillpondError,
        "the Spark session is stopped; make a new",
    ),
    (lambda: anything.sql(STOPPED, None), TypeError, "query must be SQL text, not None"),
    (lambda: anything.sql(STOPPED, 5), TypeError, "query must be SQL text, not 5"),
    (
        lambda: anything.sql(STOPPED, "SELECT 1", memory="x"),
        TypeError,
        "memory must be a whole number, not 'x'",
    ),
    (
        lambda: anything.sql(STOPPED, "SELECT 1", memory=1.5),
        TypeError,
        "memory must be a whole number, not 1.5",
    ),
    (
        lambda: anything.sql(STOPPED, "SELECT 1", memory=True),
        TypeError,
        "memory must be a whole number, not True",
    ),
    (
        lambda: anything.sql(STOPPED, "SELECT 1", policy=3),
        TypeError,
        "policy must be the name of a policy, not 3",
    ),
    (lambda: anything.sql(STOPPED, "SELECT 1", updates="yes"), TypeError, "updates must be True or False"),
    (lambda: anything.lookup(None, "R", url="x", dbtable="R"), TypeError, "spark must be a SparkSession"),
    (lambda: anything.nosuch, AttributeError, "nosuch"),
]


@pytest.mark.parametrize(("call", "kind", "line"), CALLS, ids=[line for _, _, line in CALLS])
def test_a_wrong_call(call: Callable[[], object], kind: type[Exception], line: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert line in str(caught.value) and "\n" not in str(caught.value)
    assert isinstance(caught.value, millpond.MillpondError | AttributeError)

"""The command line: exit codes, what is printed where, and error messages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.cli import check
from millpond.cli import main as cli

CATALOG = """\
CREATE STREAMING TABLE S (A INT, B INT, C INT);
CREATE STREAMING TABLE T (D INT, E INT);
"""
BOUNDED = "SELECT DISTINCT A FROM S, T WHERE B < D AND A = 10;\n"
UNBOUNDED = "SELECT A FROM S, T WHERE B < D AND A = 10;\n"
# "Three different values" is outside what can be decided.
UNDETERMINED = "SELECT DISTINCT 1 FROM S x, S y, S z WHERE x.A < y.A AND y.A < z.A;\n"
BAD_FILES = sorted((Path(__file__).parents[2] / "fixtures" / "bad").glob("*"))
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def sql(tmp_path: Path) -> Any:
    """Writes the catalog and queries to a file, and returns its name."""

    def write(*queries: str, catalog: str = CATALOG) -> str:
        path = tmp_path / "query.sql"
        path.write_text(catalog + "".join(queries), encoding="utf-8")
        return str(path)

    return write


def one_line_of_error(capsys: Captured) -> str:
    """The one line on stderr; nothing is on stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n") and err.count("\n") == 1, err
    assert err.startswith("millpond: ") and "Traceback" not in err
    return err.removesuffix("\n")


# --- check -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queries", "code"),
    [
        ([BOUNDED], 0),
        ([UNBOUNDED], 1),
        ([UNDETERMINED], 3),
        ([BOUNDED, BOUNDED], 0),
        ([BOUNDED, UNDETERMINED], 3),
        ([UNDETERMINED, BOUNDED, UNBOUNDED], 1),
        ([UNBOUNDED, UNDETERMINED], 1),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_check_exits_with_the_worst_outcome(
    sql: Any, capsys: Captured, queries: list[str], code: int, options: list[str]
) -> None:
    assert cli.main(["check", sql(*queries), *options]) == code
    out, err = capsys.readouterr()
    assert out and not err


def test_check_prints_the_explanation(sql: Any, capsys: Captured) -> None:
    cli.main(["check", sql(BOUNDED)])
    verdict = millpond.check(CATALOG + BOUNDED)
    assert isinstance(verdict, millpond.Verdict)
    assert capsys.readouterr().out == verdict.explain() + "\n"


def test_check_heads_each_of_several_queries_with_its_text(sql: Any, capsys: Captured) -> None:
    cli.main(["check", sql(BOUNDED, "SELECT A\n  FROM S\n WHERE A > 10;\n")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1. SELECT DISTINCT A FROM S, T WHERE B < D AND A = 10"
    assert lines[1].startswith("bounded: ")
    assert "2. SELECT A FROM S WHERE A > 10" in lines


def test_check_colours_only_a_terminal(sql: Any, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    file = sql(UNBOUNDED)
    cli.main(["check", file])
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    cli.main(["check", file])
    coloured = capsys.readouterr().out
    assert coloured.startswith("\x1b[1;31munbounded\x1b[0m: ")
    monkeypatch.setenv("NO_COLOR", "1")
    cli.main(["check", file])
    assert capsys.readouterr().out == re.sub(r"\x1b\[[0-9;]*m", "", coloured)


def check_schema(found: dict[str, Any]) -> None:
    """The fixed part of `check --json`."""
    assert found["outcome"] in ("bounded", "unbounded", "undetermined")
    for reason in found["reasons"]:
        assert set(reason) >= {"code", "columns", "predicate", "message"}
        assert all(isinstance(column, str) for column in reason["columns"])
    state = found["state"]
    if found["outcome"] == "bounded":
        assert found["reasons"] == []
        assert state["entries"] == sum(kept["entries"] for kept in state["streams"])
        assert state["bytes"] == sum(kept["bytes"] for kept in state["streams"])
    else:
        assert found["reasons"]
        assert state == {"entries": None, "bytes": None, "streams": [], "windows": []}


@pytest.mark.parametrize("query", [BOUNDED, UNBOUNDED, UNDETERMINED])
def test_json_is_one_object_for_one_query(sql: Any, capsys: Captured, query: str) -> None:
    cli.main(["check", sql(query), "--json"])
    found = json.loads(capsys.readouterr().out)
    check_schema(found)
    verdict = millpond.check(CATALOG + query)
    assert isinstance(verdict, millpond.Verdict)
    assert found == verdict.to_json()


def test_json_is_a_list_for_several(sql: Any, capsys: Captured) -> None:
    cli.main(["check", sql(BOUNDED, UNBOUNDED, UNDETERMINED), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [each["outcome"] for each in found] == ["bounded", "unbounded", "undetermined"]
    for each in found:
        check_schema(each)


# --- witness ---------------------------------------------------------------------------------------


def test_witness_prints_rows_and_probes(sql: Any, capsys: Captured) -> None:
    assert cli.main(["witness", sql(UNBOUNDED), "-n", "4"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) >= {"setup", "universe", "probes", "compare"}
    assert found["compare"] in ("emitted", "answer")
    assert len(found["universe"]) == len(found["probes"]) == 4
    for row in [*found["setup"], *found["universe"], *(row for probe in found["probes"] for row in probe)]:
        assert row["stream"] in ("S", "T")
        assert set(row["row"]) == ({"A", "B", "C"} if row["stream"] == "S" else {"D", "E"})


def test_witness_takes_the_first_unbounded_query(sql: Any, capsys: Captured) -> None:
    other = "SELECT DISTINCT E FROM T;\n"
    assert cli.main(["witness", sql(BOUNDED, other, UNBOUNDED), "-n", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["stream"] for row in found["universe"]} == {"T"}


def test_witness_takes_the_query_that_is_chosen(sql: Any, capsys: Captured) -> None:
    file = sql("SELECT DISTINCT E FROM T;\n", BOUNDED, "SELECT DISTINCT A FROM S;\n")
    assert cli.main(["witness", file, "-n", "2", "--query", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["stream"] for row in found["universe"]} == {"S"}
    assert cli.main(["witness", file, "-n", "2", "--query", "2"]) == 5
    one_line_of_error(capsys)


@pytest.mark.parametrize("queries", [[BOUNDED], [UNDETERMINED], [BOUNDED, UNDETERMINED]])
def test_witness_of_a_query_that_is_not_unbounded_exits_with_5(
    sql: Any, capsys: Captured, queries: list[str]
) -> None:
    file = sql(*queries)
    assert cli.main(["witness", file, "-n", "2"]) == 5
    assert one_line_of_error(capsys).startswith(f"millpond: {file}: ")


@pytest.mark.parametrize("number", ["0", "-1", "3"])
def test_witness_refuses_a_query_number_out_of_range(sql: Any, capsys: Captured, number: str) -> None:
    assert cli.main(["witness", sql(BOUNDED, UNBOUNDED), "-n", "2", "--query", number]) == 2
    assert f"there is no query {number}: the file holds 2 queries" in one_line_of_error(capsys)


@pytest.mark.parametrize("size", ["0", "-3"])
def test_witness_refuses_a_size_below_1(sql: Any, capsys: Captured, size: str) -> None:
    assert cli.main(["witness", sql(UNBOUNDED), "-n", size]) == 2
    one_line_of_error(capsys)


# --- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["check"], ["check", "--json"], ["witness", "-n", "2"]])
@pytest.mark.parametrize("path", BAD_FILES, ids=lambda path: path.name)
def test_a_bad_file_is_reported_in_one_line(path: Path, command: list[str], capsys: Captured) -> None:
    assert cli.main([*command, str(path)]) == 2
    assert one_line_of_error(capsys).startswith(f"millpond: {path}: ")


def test_there_are_bad_files() -> None:
    assert len(BAD_FILES) > 50


def test_error_names_file_place_and_remedy(sql: Any, capsys: Captured) -> None:
    file = sql("SELECT A FROM S OFFSET 5;\n")
    assert cli.main(["check", file]) == 2
    line = one_line_of_error(capsys)
    assert re.fullmatch(r"millpond: .*query\.sql: line 3, column 17: .*OFFSET.*", line)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n  \n",
        bytes(range(256)),
        b"\xff\xfe\x00\x01" * 100,
        b"\x7fELF\x02\x01\x01" + b"\x00" * 50,
        b"SELECT" * 5000,
        b"SELECT A FROM S WHERE " + b"(" * 5000,
        b"SELECT '\x1b[31m\nA\r\n' FROM \x1b[2J;",
    ],
    ids=["empty", "blank", "every-byte", "junk", "binary", "repeated-word", "parentheses", "escapes"],
)
def test_a_generated_bad_file_is_reported_in_one_line(
    tmp_path: Path, capsys: Captured, content: bytes
) -> None:
    path = tmp_path / "bad.sql"
    path.write_bytes(content)
    assert cli.main(["check", str(path)]) == 2
    assert one_line_of_error(capsys).isprintable()


def test_a_missing_file_or_a_directory_is_bad_input(tmp_path: Path, capsys: Captured) -> None:
    for path in (tmp_path / "missing.sql", tmp_path, tmp_path / "new\nline.sql"):
        assert cli.main(["check", str(path)]) == 2
        one_line_of_error(capsys)


def test_ten_thousand_alternatives(sql: Any, capsys: Captured) -> None:
    """A verdict or a refusal comes quickly, and without a traceback."""
    terms = " OR ".join(f"A = {i} AND D = {i}" for i in range(10_000))
    code = cli.main(["check", sql(f"SELECT DISTINCT 1 FROM S, T WHERE {terms};\n")])
    out, err = capsys.readouterr()
    assert code in (0, 1, 2, 3)
    assert "Traceback" not in out + err
    assert len((out + err).splitlines()) < 40


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nosuch"],
        ["run", "x.sql"],
        ["check"],
        ["check", "--nosuch", "x.sql"],
        ["witness", "x.sql"],
        ["witness", "x.sql", "-n", "three"],
        ["demo", "more"],
    ],
    ids=" ".join,
)
def test_a_wrong_call_is_reported_in_one_line(argv: list[str], capsys: Captured) -> None:
    assert cli.main(argv) == 2
    one_line_of_error(capsys)


@pytest.mark.parametrize(
    "argv", [["--help"], ["check", "--help"], ["witness", "-h"], ["demo", "-h"]], ids=" ".join
)
def test_help_goes_to_stdout(argv: list[str], capsys: Captured) -> None:
    assert cli.main(argv) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: millpond") and not err


# --- being interrupted -----------------------------------------------------------------------------


@pytest.mark.parametrize(("signal", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 141)])
def test_an_interrupted_command_prints_nothing(
    signal: type[BaseException], code: int, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise signal

    monkeypatch.setattr(check, "check_files", interrupted)
    monkeypatch.setattr(cli, "_discard_output", lambda stream: None)
    assert cli.main(["check", "x.sql"]) == code
    assert capsys.readouterr() == ("", "")


def run(*arguments: str, code: str = "from millpond.cli.main import main_entry; main_entry()") -> Any:
    """Run the command in its own process."""
    source = str(Path(millpond.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def test_a_closed_pipe_is_not_an_error(sql: Any) -> None:
    code = (
        "import os, sys; from millpond.cli.main import main_entry\n"
        "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1); main_entry()"
    )
    ended = run("check", sql(BOUNDED), code=code)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_check_imports_neither_spark_nor_rich_nor_duckdb(sql: Any) -> None:
    code = (
        "import sys; from millpond.cli.main import main; code = main()\n"
        "unwanted = {'pyspark', 'rich', 'duckdb', 'pandas', 'millpond.cli.tour'} & set(sys.modules)\n"
        "print(sorted(unwanted), file=sys.stderr)\n"
        "sys.exit(code)"
    )
    ended = run("check", sql(UNBOUNDED), code=code)
    assert (ended.returncode, ended.stderr) == (1, "[]\n")
    assert ended.stdout.startswith("unbounded: ")


def test_a_character_that_the_terminal_cannot_show_is_escaped(
    sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii:strict")
    ended = run("check", sql("SELECT DISTINCT 'é' AS x FROM S;\n", BOUNDED))
    assert (ended.returncode, ended.stderr) == (0, "")

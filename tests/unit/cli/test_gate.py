"""Many files, standard input, formats for code review, baselines."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from millpond.cli import main as cli
from millpond.cli.embedded import prepare_text

CATALOG = "CREATE STREAMING TABLE clicks (url STRING, country STRING, ms INT);\n"
BOUNDED = f"{CATALOG}SELECT url FROM clicks WHERE ms > 10;\n"
UNBOUNDED = f"{CATALOG}SELECT url, COUNT(*) FROM clicks GROUP BY url;\n"
BAD = "SELECT url FROM clicks;\n"

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "good.sql").write_text(BOUNDED)
    (tmp_path / "deep" / "grows.sql").write_text(UNBOUNDED)
    (tmp_path / "deep" / "er" / "good.sql").write_text(BOUNDED)
    return tmp_path


def check(*arguments: str) -> int:
    return cli.main(["check", *arguments])


def test_a_pattern_stands_for_the_files_that_match_it(folder: Path, capsys: Captured) -> None:
    assert check("**/*.sql") == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "3 files: 2 bounded, 1 unbounded"
    assert re.search(r"^unbounded +deep/grows\.sql:2 +SELECT url, COUNT", out, re.MULTILINE)
    assert max(map(len, out.splitlines())) <= 80


def test_a_file_is_checked_once(folder: Path, capsys: Captured) -> None:
    assert check("good.sql", "*.sql", "good.sql") == 0
    assert "nothing has to be kept" in capsys.readouterr().out


def test_a_pattern_without_a_match_is_an_error(folder: Path, capsys: Captured) -> None:
    assert check("nothing/*.sql") == 2
    assert "no file matches nothing/*.sql" in capsys.readouterr().err


def test_a_bad_file_does_not_stop_the_others(folder: Path, capsys: Captured) -> None:
    (folder / "bad.sql").write_text(BAD)
    assert check("*.sql", "deep/grows.sql") == 2
    out, err = capsys.readouterr()
    assert err.count("\n") == 1 and err.startswith("millpond: bad.sql: line 1, column 17: ")
    assert out.splitlines()[-1] == "3 files: 1 bounded, 1 unbounded; 1 not checked"


def test_standard_input(folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(UNBOUNDED.encode())))
    assert check("-") == 1
    assert capsys.readouterr().out.startswith("unbounded: ")


def test_json_of_several_files_names_each(folder: Path, capsys: Captured) -> None:
    (folder / "bad.sql").write_text(BAD)
    assert check("--format", "json", "**/*.sql") == 2
    found = json.loads(capsys.readouterr().out)
    outcomes = {each["file"]: each.get("outcome", "error") for each in found}
    assert outcomes == {
        "bad.sql": "error",
        "good.sql": "bounded",
        "deep/grows.sql": "unbounded",
        "deep/er/good.sql": "bounded",
    }


def test_github_annotations(folder: Path, capsys: Captured) -> None:
    (folder / "bad.sql").write_text(BAD)
    assert check("--format", "github", "**/*.sql") == 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("::error file=bad.sql,line=1,col=17,title=millpond%3A cannot be checked::")
    place = "file=deep/grows.sql,line=2,col=1,title=millpond%3A unbounded memory"
    assert lines[1].startswith(f"::error {place}::")


def test_github_annotations_cannot_be_forged(folder: Path, capsys: Captured) -> None:
    name = "a,line=9%\n::error.sql"
    (folder / name).write_text(BAD)
    assert check("--format", "github", name) == 2
    assert capsys.readouterr().out.startswith("::error file=a%2Cline=9%25%0A%3A%3Aerror.sql,line=1,")


def test_sarif(folder: Path, capsys: Captured) -> None:
    assert check("--format", "sarif", "**/*.sql") == 1
    log = json.loads(capsys.readouterr().out)
    (run,) = log["runs"]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert log["version"] == "2.1.0" and run["tool"]["driver"]["name"] == "millpond"
    assert place["artifactLocation"]["uri"] == "deep/grows.sql"
    assert place["region"] == {"startLine": 2, "startColumn": 1}
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_only_new_queries_fail_against_a_baseline(folder: Path, capsys: Captured) -> None:
    check("--format", "json", "**/*.sql")
    Path("known.json").write_text(capsys.readouterr().out)
    # the same query at another place, with other spaces
    (folder / "deep" / "grows.sql").write_text(UNBOUNDED.replace("SELECT", "\n\n  SELECT"))
    assert check("--baseline", "known.json", "**/*.sql") == 0
    (folder / "new.sql").write_text(UNBOUNDED.replace("url, COUNT", "ms, COUNT").replace("BY url", "BY ms"))
    assert check("--baseline", "known.json", "--quiet", "**/*.sql") == 1
    out = capsys.readouterr().out
    assert "new.sql:2" in out.splitlines()[-2] and "grows.sql" not in out.splitlines()[-2]


@pytest.mark.parametrize("content", [None, "not JSON", '{"outcome": 1}', "[1]"])
def test_a_wrong_baseline_is_an_error(folder: Path, capsys: Captured, content: str | None) -> None:
    if content is not None:
        Path("known.json").write_text(content)
    code = check("--baseline", "known.json", "good.sql")
    err = capsys.readouterr().err
    if content == '{"outcome": 1}':  # no query in it
        assert code == 0
    else:
        assert code == 2 and "baseline" in err and err.count("\n") == 1


def test_templates_of_dbt_keep_positions() -> None:
    text = "{{ config(a='b') }}\nSELECT x\nFROM {{ source('web', 'clicks') }} c, {{ ref('users') }};"
    found = prepare_text(text)
    assert len(found) == len(text) and " ".join(found.split()) == "SELECT x FROM clicks c, users ;"


def test_a_template_that_is_not_plain_is_refused(folder: Path, capsys: Captured) -> None:
    (folder / "t.sql").write_text("{% for x in y %}\nSELECT 1\n{% endfor %}")
    assert check("t.sql") == 2
    assert "line 1, column 1: a template is not SQL" in capsys.readouterr().err


def test_cells_of_a_notebook_end_statements(folder: Path, capsys: Captured) -> None:
    declaration, query, _ = BOUNDED.split(";")
    cells = ["-- Databricks notebook source", declaration, "-- MAGIC %md some text", query]
    (folder / "n.sql").write_text("\n\n-- COMMAND ----------\n\n".join(cells))
    assert check("n.sql") == 0


@pytest.mark.parametrize(
    ("call", "nearest"), [(["check", "--jsn", "x"], "--json"), (["run", "x", "--memry", "5"], "--memory")]
)
def test_an_unknown_option_names_the_nearest(call: list[str], nearest: str, capsys: Captured) -> None:
    assert cli.main(call + (["--output", "o"] if call[0] == "run" else [])) == 2
    assert f"did you mean {nearest}?" in capsys.readouterr().err


def test_version(capsys: Captured) -> None:
    assert cli.main(["--version"]) == 0
    assert re.fullmatch(r"millpond \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize("text", ["ten", "1.5", "k", "1e3", ""])
def test_a_wrong_count_is_one_line(text: str, capsys: Captured) -> None:
    call: list[Any] = ["run", "x.sql", "--output", "o", "--memory", text]
    assert cli.main(call) == 2
    assert "is not a number such as 500, 10k or 2M" in capsys.readouterr().err

"""Many files, standard input, formats for code review, baselines."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from millpond.cli import main as cli
from millpond.cli.embedded import prepare_text

CATALOG = "CREATE STREAMING TABLE clicks (url STRING, country STRING, ms INT);\n"
BOUNDED = f"{CATALOG}SELECT url FROM clicks WHERE ms > 10;\n"
UNBOUNDED = f"{CATALOG}SELECT url, COUNT(*) FROM clicks GROUP BY url;\n"
UNDETERMINED = (
    f"{CATALOG}SELECT DISTINCT 1 FROM clicks x, clicks y, clicks z WHERE x.ms < y.ms AND y.ms < z.ms;"
)
BAD = "SELECT url FROM clicks;\n"
ROOT = Path(__file__).parents[3]
FIXTURES = ROOT / "tests" / "fixtures"

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


@pytest.fixture
def many(folder: Path) -> Path:
    """One file of each kind: bounded, unbounded, undetermined, bad, with a name that needs escapes."""
    (folder / "bad.sql").write_text(BAD)
    (folder / "top 10%.sql").write_text(UNDETERMINED)
    return folder


def test_github_annotations(many: Path, capsys: Captured) -> None:
    assert check("--format", "github", "**/*.sql") == 2
    assert capsys.readouterr().out == (FIXTURES / "gate" / "github.txt").read_text(encoding="utf-8")


def test_github_annotations_cannot_be_forged(folder: Path, capsys: Captured) -> None:
    name = "a,line=9%\n::error.sql"
    (folder / name).write_text(BAD)
    assert check("--format", "github", name) == 2
    assert capsys.readouterr().out.startswith("::error file=a%2Cline=9%25%0A%3A%3Aerror.sql,line=1,")


def test_sarif(many: Path, capsys: Captured) -> None:
    assert check("--format", "sarif", "**/*.sql") == 2
    log = json.loads(capsys.readouterr().out)
    schema = json.loads((FIXTURES / "sarif" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(schema).validate(log)
    (run,) = log["runs"]
    assert run["invocations"] == [{"executionSuccessful": False}]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[each["ruleIndex"]] for each in run["results"]] == [e["ruleId"] for e in run["results"]]
    places = [each["locations"][0]["physicalLocation"] for each in run["results"]]
    assert [place["artifactLocation"]["uri"] for place in places] == [
        "bad.sql",
        "deep/grows.sql",
        "top%2010%25.sql",
    ]
    assert places[1]["region"] == {"startLine": 2, "startColumn": 1}
    assert [each["level"] for each in run["results"]] == ["error", "error", "warning"]


def test_the_schema_of_sarif_rejects_other_logs(folder: Path, capsys: Captured) -> None:
    check("--format", "sarif", "deep/grows.sql")
    log = json.loads(capsys.readouterr().out)
    log["runs"][0]["results"][0]["level"] = "fatal"
    schema = json.loads((FIXTURES / "sarif" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
    assert not jsonschema.Draft4Validator(schema).is_valid(log)


def test_the_hook_of_pre_commit(folder: Path, capsys: Captured) -> None:
    """pre-commit calls the entry with the names of the changed files of these types."""
    hook = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert "types: [sql]" in hook
    entry = re.search(r"entry: millpond (.*)", hook)
    assert entry is not None
    assert cli.main([*entry[1].split(), "good.sql"]) == 0
    assert capsys.readouterr() == ("", "")
    assert cli.main([*entry[1].split(), "good.sql", "deep/grows.sql"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("deep/grows.sql:2\nunbounded: ") and "good.sql" not in out
    assert cli.main([*entry[1].split(), "deep/grows.sql"]) == 1
    assert capsys.readouterr().out.startswith("deep/grows.sql:2\nunbounded: ")


def test_tables_that_all_files_share(folder: Path, capsys: Captured) -> None:
    """As in a project of dbt: the models have no declarations."""
    (folder / "models").mkdir()
    (folder / "models" / "streams.sql").write_text(CATALOG)
    (folder / "models" / "slow.sql").write_text("SELECT url\nFROM {{ ref('clicks') }} WHERE ms > 10")
    (folder / "models" / "wrong.sql").write_text("SELECT\n  nothing FROM {{ source('web', \"clicks\") }}")
    assert check("--catalog", "models/streams.sql", "models/*.sql") == 2
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "2 files: 1 bounded; 1 not checked"
    assert err.startswith("millpond: models/wrong.sql: line 2, column 3: ")


@pytest.mark.parametrize(
    ("catalog", "message"),
    [("SELECT 1;", "a query is not a declaration"), ("CREATE TABLE", "the catalog c.sql"), (None, "no such")],
)
def test_a_wrong_catalog_is_one_line(
    folder: Path, capsys: Captured, catalog: str | None, message: str
) -> None:
    if catalog is not None:
        Path("c.sql").write_text(catalog)
    assert check("--catalog", "c.sql", "good.sql") == 2
    out, err = capsys.readouterr()
    assert not out and message in err and err.count("\n") == 1


def test_only_new_queries_fail_against_a_baseline(folder: Path, capsys: Captured) -> None:
    check("--format", "json", "**/*.sql")
    Path("known.json").write_text(capsys.readouterr().out)
    # the same query at another place, with other spaces
    (folder / "deep" / "grows.sql").write_text(UNBOUNDED.replace("SELECT", "\n\n  SELECT"))
    assert check("--baseline", "known.json", "**/*.sql") == 0
    (folder / "new.sql").write_text(UNBOUNDED.replace("url, COUNT", "ms, COUNT").replace("BY url", "BY ms"))
    assert check("--baseline", "known.json", "--quiet", "**/*.sql") == 1
    *_, before, last, totals = capsys.readouterr().out.splitlines()
    assert not before and "new.sql:2" in last  # only what is new is listed, but all queries are counted
    assert totals == "4 files: 2 bounded, 1 unbounded, 1 known"


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
    text = (
        "{{ config(a='b', meta={'c': {'d': 1}}) }}\n{# a comment #}SELECT x, '{{' -- {{ see }} it's\n"
        "FROM {{ source('web', 'clicks') }} c, {{- ref(\"users\", v=2) -}};"
    )
    found = prepare_text(text)
    assert len(found) == len(text) and found.count("\n") == 2
    assert " ".join(found.split()) == "SELECT x, '{{' -- {{ see }} it's FROM clicks c, users ;"


def test_braces_in_strings_are_no_templates() -> None:
    text = "SELECT x FROM t WHERE y LIKE '{%' AND z LIKE '{{%'"
    assert prepare_text(text) == text


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{% for x in y %}\nSELECT 1\n{% endfor %}", "line 1, column 1"),
        ("SELECT 1\nFROM {{ my_macro('x') }}", "line 2, column 6"),
        ("SELECT 1 FROM t WHERE x = '{{ var(\"y\") }}'", "line 1, column 28"),
        ("SELECT 1 FROM t WHERE x = '{%- if y %}z{% endif %}'", "line 1, column 28"),
    ],
)
def test_a_template_that_is_not_plain_is_refused(
    folder: Path, capsys: Captured, text: str, place: str
) -> None:
    (folder / "t.sql").write_text(text)
    assert check("t.sql") == 2
    assert f"{place}: a template is not SQL" in capsys.readouterr().err


def write_jupyter(cells: list[str]) -> str:
    """A notebook as Jupyter writes it."""
    sources = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": sources, "nbformat": 4}, indent=1)


@pytest.mark.parametrize("kind", ["sql", "py", "ipynb"])
def test_cells_of_a_notebook_end_statements(folder: Path, capsys: Captured, kind: str) -> None:
    declaration, query, _ = UNBOUNDED.split(";")
    query = f'{query.strip()}\n  -- "all" of them'
    if kind == "sql":
        cells = ["-- Databricks notebook source", declaration, "-- MAGIC %md some text", query]
        text = "\n\n-- COMMAND ----------\n\n".join(cells)
    elif kind == "py":
        magic = [
            "\n".join(f"# MAGIC {line}" for line in f"%sql\n{c}".split("\n")) for c in (declaration, query)
        ]
        cells = [
            "# Databricks notebook source\nimport x",
            magic[0],
            "# MAGIC %md\n# MAGIC text",
            magic[1],
            "y()",
        ]
        text = "\n\n# COMMAND ----------\n\n".join(cells)
    else:
        text = write_jupyter(["import x", f"%%sql\n{declaration}", "%md text", f"%%sql\n{query}"])
    (folder / f"n.{kind}").write_text(text)
    assert check("--json", f"n.{kind}") == 1
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "COUNT" in each)
    assert check("--quiet", f"n.{kind}") == 1
    assert f"n.{kind}:{line}\n" in capsys.readouterr().out


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

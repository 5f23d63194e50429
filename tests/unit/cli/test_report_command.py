"""``millpond report``: files, standard input and output, and the exit code."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from millpond.cli.main import main

SQL = """
CREATE STREAMING TABLE clicks (user_id INT, price INT);
SELECT DISTINCT price FROM clicks;
SELECT MAX(price) FROM clicks;
"""
Captured = pytest.CaptureFixture[str]


def test_the_page_is_written_whatever_the_verdicts(tmp_path: Path, capsys: Captured) -> None:
    file, page = tmp_path / "clicks.sql", tmp_path / "report.html"
    file.write_text(SQL)
    assert main(["report", str(file), "-o", str(page)]) == 0
    out, err = capsys.readouterr()
    assert out == "" and err == f"wrote {page}\n"
    text = page.read_text(encoding="utf-8")
    assert "<h1>clicks.sql</h1>" in text and "Query 1" in text and "Query 2" in text
    assert "Declare the number of values of clicks.price" in text  # a repair of the first query


def test_one_query_of_the_file_is_chosen(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "clicks.sql"
    file.write_text(SQL)
    assert main(["report", str(file), "-o", "-", "--query", "2"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("<!doctype html>") and "bounded" in page and "Repairs" not in page


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SQL.encode())))
    assert main(["report", "-", "-o", "-"]) == 0
    assert "<h1>standard input</h1>" in capsys.readouterr().out

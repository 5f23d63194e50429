"""Highlighted SQL: tokens, marks, and any text at all."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

import millpond
from millpond.analysis.verdict import Verdict
from millpond.report.guilty import find_guilty
from millpond.report.highlight import Mark, highlight


def test_tokens_have_their_kinds() -> None:
    shown = highlight("SELECT window(at, '1 h'), c.left FROM `from` -- all\nWHERE x < 1.5")
    kinds = re.findall(r'<span class="(\w+)">([^<]*)</span>', shown)
    assert [(kind, html.unescape(text)) for kind, text in kinds] == [
        *(("keyword", "SELECT"), ("string", "'1 h'"), ("keyword", "FROM"), ("comment", "-- all")),
        *(("keyword", "WHERE"), ("number", "1.5")),
    ]


@given(
    st.text(st.sampled_from("SELECT'\"`-/*<>&\n 1a.")),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))),
)
def test_any_text_comes_back_whatever_the_marks(text: str, marks: list[tuple[int, int]]) -> None:
    shown = highlight(text, [Mark(start, end) for start, end in marks])
    assert html.unescape(re.sub(r"</?(?:span|mark)[^>]*>", "", shown)) == text
    assert shown.count("<mark") == shown.count("</mark>")


def find_marked(sql: str) -> list[str]:
    verdict = millpond.check(sql)
    assert isinstance(verdict, Verdict)
    return [verdict.query_text[mark.start : mark.end] for mark in find_guilty(verdict)]


def test_guilty_predicates_are_found_where_they_are_written() -> None:
    tables = "CREATE STREAMING TABLE s (a INT, b INT);\nCREATE STREAMING TABLE t (c INT, d INT);\n  "
    query = "SELECT 1 FROM s, t -- b<d is guilty\nWHERE a = 1 AND\n b<d AND c = 2"
    verdict = millpond.check(tables + query)
    assert isinstance(verdict, Verdict)
    (mark,) = find_guilty(verdict)
    assert (mark.start, query[mark.start : mark.end]) == (query.rindex("b<d"), "b<d")


def test_guilty_columns_and_window_functions_are_found_by_their_text() -> None:
    table = "CREATE STREAMING TABLE s (a INT, b INT, at TIMESTAMP);"
    assert find_marked(f"{table} SELECT DISTINCT s.b FROM s") == ["s.b"]
    over = "ROW_NUMBER() OVER (PARTITION BY a ORDER BY at)"
    assert find_marked(f"{table} SELECT b FROM s QUALIFY {over} <= 3") == [over]

"""The card of a verdict: complete, escaped, self-contained."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import millpond
from millpond.analysis.card import CARD_STYLE, render_card

CATALOG = """
CREATE STREAMING TABLE S (A INT, B INT, name STRING);
CREATE STREAMING TABLE T (D INT);
CREATE STREAMING TABLE E (a INT, at TIMESTAMP);
"""
QUERIES = [
    "SELECT DISTINCT A FROM S, T WHERE B < D AND A = 10",
    "SELECT A FROM S, T WHERE B < D AND A = 10",
    "SELECT DISTINCT 1 FROM S x, S y, S z WHERE x.A < y.A AND y.A < z.A",
    "SELECT name FROM S WHERE name <> '</pre><script>alert(\"&\")</script>'",
    "SELECT a, COUNT(*) FROM E GROUP BY a, window(at, '1 hour')",
    "SELECT DISTINCT upper(name) FROM S",
    "SELECT MAX(n) FROM (SELECT A, COUNT(*) AS n FROM S GROUP BY A) AS g",
]


class Checker(HTMLParser):
    """Collects tags and text, and checks that every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


@pytest.mark.parametrize("query", QUERIES)
def test_the_card_says_what_the_text_says(query: str) -> None:
    verdict = millpond.check(CATALOG + query)
    assert isinstance(verdict, millpond.Verdict)
    html = verdict._repr_html_()
    assert html.startswith("<style>") and html == render_card(verdict)
    checker = Checker()
    checker.feed(render_card(verdict, with_style=False))
    assert checker.open == [] and "script" not in checker.tags
    words = " ".join(checker.text.split())
    assert query in words and verdict.outcome in words
    for line in verdict.explain(10_000).splitlines()[1:]:
        for word in re.findall(r"[\w.]{4,}", line):
            assert word in words, word


def test_the_card_of_a_dataframe_says_what_spark_keeps() -> None:
    verdict = millpond.check(CATALOG + QUERIES[0])
    assert isinstance(verdict, millpond.Verdict)
    grows = replace(verdict, spark_state="grows", spark_reasons=("it keeps <every> row",))
    assert "it keeps &lt;every&gt; row." in grows._repr_html_()


def test_the_style_loads_nothing_and_knows_both_themes() -> None:
    assert not re.search(r"url\(|@import|http|<", CARD_STYLE)
    assert "prefers-color-scheme:dark" in CARD_STYLE and "data-jp-theme-light" in CARD_STYLE
    assert CARD_STYLE.count("{") == CARD_STYLE.count("}")

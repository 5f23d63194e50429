"""The report in a real browser: content, keyboard, themes, accessibility, hostile text, no requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from millpond.cli.main import main
from tests.support.browser import OpenInBrowser

CATALOG = """
CREATE STREAMING TABLE clicks (user_id INT, price INT, country TINYINT, ts TIMESTAMP);
CREATE STREAMING TABLE offers (ceiling INT, kind STRING, ts TIMESTAMP);
"""
QUERIES = """
SELECT price FROM clicks, offers WHERE price < ceiling;
SELECT c.price, o.kind FROM clicks c, offers o
WHERE c.price = o.ceiling AND o.ts BETWEEN c.ts AND c.ts + INTERVAL 10 MINUTES;
SELECT country, MAX(n)
FROM (SELECT country, user_id, COUNT(*) AS n FROM clicks GROUP BY country, user_id) AS per_user
GROUP BY country;
"""
HOSTILE = """
CREATE STREAMING TABLE `<script>alert(1)</script>` (
  `"><img src=x onerror=alert(2)>` INT, `</style>` INT, note STRING
);
CREATE STREAMING TABLE offers (y INT);
SELECT `</style>` AS `</title>` FROM `<script>alert(1)</script>` `' onload='alert(4)`, offers
WHERE `"><img src=x onerror=alert(2)>` < y AND note = '</pre><script>alert(3)</script>';
"""
SHOWN = [("light", 1200), ("dark", 1200), ("light", 360), ("dark", 360)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on queries of several kinds, with the metrics of a run."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "clicks.sql").write_text(CATALOG + QUERIES)
    batch = {"output_rows": 3, "state_bytes": 80, "malformed_rows": 0, "shed_rows": 0, "seconds": 0.4}
    rows = [
        {**batch, "batch": i, "input_rows": 90 + i, "state_entries": i, "late_rows": i % 2} for i in range(9)
    ]
    (folder / "run.jsonl").write_text("\n".join(map(json.dumps, rows)))
    page = folder / "report.html"
    call = ["report", str(folder / "clicks.sql"), "-o", str(page), "--metrics", str(folder / "run.jsonl")]
    assert main(call) == 0
    return page


@pytest.mark.parametrize(("scheme", "width"), SHOWN)
def test_it_is_accessible_and_loads_nothing(
    report: Path, open_page: OpenInBrowser, scheme: Literal["light", "dark"], width: int
) -> None:
    opened = open_page(report, width=width, scheme=scheme)
    assert opened.page.get_by_role("heading", level=1).inner_text() == "clicks.sql"
    assert opened.page.get_by_role("heading", level=2).all_inner_texts() == [
        *("Query 1", "Query 2", "Query 3", "The run")
    ]
    assert opened.page.get_by_role("img", name="Columns and predicates of clicks and offers").count() == 2
    assert opened.page.get_by_role("img", name="State after each micro-batch").is_visible()
    assert opened.page.get_by_role("table", name="Rows of clicks that may have arrived").first.is_visible()
    assert not opened.scrolls_sideways()
    assert opened.find_violations() == []
    assert opened.errors == [] and opened.requests == [report.as_uri()]


def test_the_keyboard_reaches_everything(report: Path, open_page: OpenInBrowser) -> None:
    opened = open_page(report)
    page = opened.page

    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "theme"
    light = background()
    page.keyboard.press("Enter")
    assert background() != light and page.locator("#theme").inner_text() == "Light theme"
    assert opened.find_violations() == []
    page.keyboard.press("Space")
    assert background() == light
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.url.endswith("#q1")
    outlines = []
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement !== document.body"):
        outlines.append(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
        page.keyboard.press("Tab")
    # The SQL and the tables, which may have to be scrolled, show that they have the focus.
    assert set(outlines) == {"solid"} and len(outlines) >= 8
    assert opened.errors == []


def test_hostile_text_does_nothing(tmp_path: Path, open_page: OpenInBrowser) -> None:
    (tmp_path / "<i>.sql").write_text(HOSTILE)
    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "<i>.sql"), "-o", str(page)]) == 0
    opened = open_page(page)
    assert opened.page.get_by_role("heading", level=1).inner_text() == "<i>.sql"
    assert "<script>alert(1)</script>" in opened.page.locator("main").inner_text()
    assert opened.page.locator("script").count() == 1 and opened.page.locator("img").count() == 0
    assert opened.find_violations() == []
    assert opened.errors == [] and opened.requests == [page.as_uri()]


def test_it_can_be_printed(report: Path, open_page: OpenInBrowser) -> None:
    opened = open_page(report)
    opened.page.emulate_media(media="print")
    assert opened.page.locator("#theme").is_hidden() and opened.page.locator("nav").is_hidden()
    assert opened.page.locator("#q1-title").is_visible()
    assert len(opened.page.pdf()) > 10_000

"""The picture of a query in a browser, on a page without any style of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from millpond.analysis.verdict import Verdict
from millpond.report.picture import draw_picture
from tests.support.browser import OpenInBrowser

SQL = """
CREATE STREAMING TABLE clicks (user_id INT, price INT, country TINYINT);
CREATE STREAMING TABLE offers (ceiling INT, kind STRING);
SELECT price FROM clicks, offers WHERE price < ceiling AND user_id BETWEEN 1 AND 100
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_picture_follows_the_theme_of_the_reader(
    tmp_path: Path, open_page: OpenInBrowser, scheme: str
) -> None:
    verdict = millpond.check(SQL)
    assert isinstance(verdict, Verdict)
    file = tmp_path / "picture.html"
    file.write_text(
        f"<!doctype html><html lang=en><title>p</title><main>{draw_picture(verdict)}</main></html>"
    )
    opened = open_page(file, scheme=scheme)
    colour = opened.page.locator("svg .box").first.evaluate("e => getComputedStyle(e).fill")
    assert colour == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 27, 35)"}[scheme]
    name = opened.page.get_by_role("img").get_attribute("aria-label")
    assert name == "Columns and predicates of clicks and offers"
    assert not opened.errors and opened.requests == [file.as_uri()]

"""The picture of a query: what it shows, where it stands, and that the user's names stay text."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

import millpond
from millpond.analysis.verdict import Verdict
from millpond.report.graph import Role, Sign, build_graphs
from millpond.report.layout import Layout, place
from millpond.report.picture import draw_picture
from tests.support.verdict_fixtures import VerdictExample, read_examples

SVG = "{http://www.w3.org/2000/svg}"
SHOP = """
CREATE STREAMING TABLE clicks (user_id INT, price INT, country TINYINT);
CREATE STREAMING TABLE offers (ceiling INT, kind STRING, hour INT CHECK (hour BETWEEN 0 AND 23));
"""
ADS = """
CREATE STREAMING TABLE impressions (ad INT, cost INT, ts TIMESTAMP);
CREATE STREAMING TABLE clicks (ad INT, paid INT, ts TIMESTAMP);
"""


def check(sql: str) -> Verdict:
    verdict = millpond.check(sql)
    assert isinstance(verdict, Verdict)
    return verdict


def list_examples() -> list[VerdictExample]:
    """Every fourteenth example: about fifty queries of all kinds."""
    return read_examples()[::14]


def test_an_arrow_points_from_the_smaller_column_to_the_larger_one() -> None:
    (graph,) = build_graphs(check(SHOP + "SELECT price FROM clicks, offers WHERE ceiling >= price + 5"))
    (edge,) = graph.edges
    assert (str(edge.low), edge.sign, str(edge.high)) == ("clicks.price", Sign.AT_MOST, "offers.ceiling")
    assert edge.label == "≤ - 5" and edge.is_guilty


def test_columns_are_bounded_by_constants_checks_and_types() -> None:
    query = "SELECT price FROM clicks, offers WHERE price < ceiling AND user_id BETWEEN 1 AND 9 AND hour > 3"
    (graph,) = build_graphs(check(SHOP + query))
    columns = {str(c.ref): c for box in graph.boxes for c in box.columns}
    bounds = {name: column.bound for name, column in columns.items() if column.is_bounded}
    assert bounds == {"clicks.user_id": "1 … 9", "clicks.country": None, "offers.hour": "4 … 23"}
    assert columns["clicks.price"].role is Role.SHOWN and columns["clicks.price"].is_guilty
    assert not columns["offers.kind"].is_used


def test_windows_are_labelled_with_their_length() -> None:
    window = "c.ts BETWEEN i.ts AND i.ts + INTERVAL 1 HOUR"
    query = f"SELECT i.ad FROM impressions i, clicks c WHERE c.ad = i.ad AND {window}"
    (graph,) = build_graphs(check(ADS + query))
    assert [edge.label for edge in graph.edges] == ["=", "≤", "≤ + 1 h"]
    assert not any(edge.is_guilty for edge in graph.edges)


def test_comparisons_below_an_or_are_conditional() -> None:
    query = "SELECT DISTINCT country FROM clicks, offers WHERE price < ceiling OR price = hour"
    (graph,) = build_graphs(check(SHOP + query))
    assert [edge.is_conditional for edge in graph.edges] == [True, True]


def test_a_wide_table_shows_only_the_columns_that_are_used() -> None:
    columns = ", ".join(f"c{i} INT" for i in range(15))
    (graph,) = build_graphs(
        check(f"CREATE STREAMING TABLE wide ({columns}); SELECT c3 FROM wide WHERE c7 < 5")
    )
    (box,) = graph.boxes
    assert [column.name for column in box.columns] == ["c3", "c7"] and box.left_out == 13


def test_blocks_are_drawn_before_the_query_that_reads_them() -> None:
    query = "SELECT MAX(n) FROM (SELECT user_id, COUNT(*) AS n FROM clicks GROUP BY user_id) AS u"
    graphs = build_graphs(check(SHOP + query))
    assert [graph.caption for graph in graphs] == ["block u", "the query over its blocks"]
    guilty = [c.name for graph in graphs for box in graph.boxes for c in box.columns if c.is_guilty]
    assert guilty == ["user_id"]


def make_chain(streams: int, columns: int) -> str:
    """A join of a chain of streams with many columns, all of which are compared."""
    names = [f"s{i}" for i in range(streams)]
    tables = [
        f"CREATE STREAMING TABLE {n} ({', '.join(f'{n}_c{j} INT' for j in range(columns))});" for n in names
    ]
    pairs = [f"{a}_c{j} < {b}_c{j}" for a, b in pairwise(names) for j in range(columns)]
    where = f" WHERE {' AND '.join(pairs)}" if pairs else ""
    return f"{''.join(tables)} SELECT DISTINCT 1 FROM {', '.join(names)}{where}"


def find_layout(sql: str) -> Layout:
    (graph,) = build_graphs(check(sql))
    return place(graph)


@pytest.mark.parametrize(("streams", "columns"), [(1, 3), (2, 15), (5, 4), (8, 3), (12, 1)])
def test_boxes_do_not_overlap_and_edges_cross_no_box(streams: int, columns: int) -> None:
    layout = find_layout(make_chain(streams, columns))
    assert len(layout.boxes) == streams and len(layout.edges) == (streams - 1) * columns
    for number, a in enumerate(layout.boxes):
        assert a.x >= 0 and a.y >= 0
        assert a.x + a.width <= layout.width and a.y + a.height <= layout.height
        for b in layout.boxes[number + 1 :]:
            is_beside = a.x + a.width <= b.x or b.x + b.width <= a.x
            assert is_beside or a.y + a.height <= b.y or b.y + b.height <= a.y
    for edge in layout.edges:
        for x, _ in edge.points:  # a curve stays inside the hull of its points
            assert all(x <= box.x or x >= box.x + box.width for box in layout.boxes)


def test_the_same_query_always_gives_the_same_picture() -> None:
    sql = make_chain(5, 4)
    assert draw_picture(check(sql)) == draw_picture(check(sql))


def test_names_stay_text() -> None:
    name = "<script>alert(1)</script>"
    sql = (
        f'CREATE STREAMING TABLE `{name}` (`"&<b>` INT, note STRING); '
        f"SELECT DISTINCT `\"&<b>` FROM `{name}` `{name} x` WHERE note = '<img src=x onerror=alert(1)>'"
    )
    picture = draw_picture(check(sql))
    root = ElementTree.fromstring(picture)
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= {
        *("svg", "title", "desc", "style", "g", "rect", "path", "text", "circle")
    }
    assert "<script" not in picture and "<img" not in picture and "<b>" not in picture
    texts = [e.text or "" for e in root.iter(f"{SVG}title")]
    assert any(name in text for text in texts)


@pytest.mark.parametrize("example", list_examples(), ids=str)
def test_every_kind_of_query_has_a_picture_with_a_text_alternative(example: VerdictExample) -> None:
    verdict = check(example.sql)
    root = ElementTree.fromstring(draw_picture(verdict, with_style=False))
    assert root.get("role") == "img" and root.get("aria-label")
    description = root.findtext(f"{SVG}desc")
    assert description and root.findtext(f"{SVG}title")
    assert not root.findall(f".//{SVG}style")
    for box in (box for graph in build_graphs(verdict) for box in graph.boxes):
        assert box.name in description

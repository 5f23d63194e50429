"""Line charts: their scales, names and text alternatives."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from millpond.report.chart import Chart, Series, draw_chart

SVG = "{http://www.w3.org/2000/svg}"


def draw(*series: Series, is_log: bool = False) -> ElementTree.Element:
    return ElementTree.fromstring(draw_chart(Chart("State", "rows", "entries", series, is_log)))


def read_path(root: ElementTree.Element, number: int = 0) -> list[tuple[float, float]]:
    path = [e for e in root.iter(f"{SVG}path") if e.get("class") == "line"][number].get("d") or ""
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)]


def test_a_linear_axis_is_linear() -> None:
    points = read_path(draw(Series("state", ((0, 0), (50, 5), (100, 10)))))
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2) and y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y2 < y0


def test_a_logarithmic_axis_has_equal_steps_for_powers_of_ten_and_shows_zero() -> None:
    points = read_path(draw(Series("state", ((1, 0), (10, 1), (100, 10), (1000, 100))), is_log=True))
    steps = [a[1] - b[1] for a, b in pairwise(points)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2) and steps[0] > 0


def test_the_text_alternative_has_the_ends_of_each_line() -> None:
    root = draw(Series("ours", ((1, 3), (1000, 3))), Series("Spark", ((1, 1), (1000, 1000)), "spark"))
    description = root.findtext(f"{SVG}desc")
    assert description == "entries against rows. ours: 3 at 1, 3 at 1,000. Spark: 1 at 1, 1,000 at 1,000."
    assert root.get("role") == "img" and root.get("aria-label") == "State"


def test_names_of_lines_do_not_overlap() -> None:
    series = [Series(f"line {i}", ((0, 5), (10, 5 + i * 0.01))) for i in range(5)]
    heights = sorted(
        float(e.get("y") or 0) for e in draw(*series).iter(f"{SVG}text") if e.get("class") == "name"
    )
    assert all(b - a >= 15 for a, b in pairwise(heights))


@pytest.mark.parametrize("points", [((0.0, 0.0),), ((3.0, 0.0), (3.0, 0.0)), ((1.0, 1e18), (2.0, 3e18))])
@pytest.mark.parametrize("is_log", [False, True])
def test_unusual_values_are_drawn_inside_the_chart(
    points: tuple[tuple[float, float], ...], is_log: bool
) -> None:
    root = draw(Series("<state> & co", points), is_log=is_log)
    width, height = float(root.get("width") or 0), float(root.get("height") or 0)
    assert all(0 <= x <= width and 0 <= y <= height for x, y in read_path(root))

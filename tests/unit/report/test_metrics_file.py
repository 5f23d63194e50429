"""Metrics files: what is read, what is refused, and the charts that are made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import MillpondError
from millpond.report.metrics_file import make_charts, read_metrics

LINE: dict[str, Any] = {
    **{"batch": 0, "input_rows": 100, "output_rows": 7, "state_entries": 5, "state_bytes": 80},
    **{"malformed_rows": 0, "late_rows": 0, "shed_rows": 0, "seconds": 0.5, "state_bound": None},
}


def write(path: Path, *lines: dict[str, Any] | str) -> str:
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return str(path)


def test_batches_are_read_in_order(tmp_path: Path) -> None:
    file = write(tmp_path / "m.jsonl", LINE, "", {**LINE, "batch": 1, "late_rows": 3, "state_bound": 9})
    first, second = read_metrics(file)
    assert (first.number, second.number, first.state_bound, second.state_bound) == (0, 1, None, 9.0)
    assert first.rate == 200.0 and second.late_rows == 3


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{not json"], "line 1: not JSON: {not json"),
        ([LINE, "[1, 2]"], "line 2: not an object: [1, 2]"),
        ([{k: v for k, v in LINE.items() if k != "state_entries"}], "line 1: state_entries is missing"),
        ([{**LINE, "seconds": "fast"}], "line 1: seconds is not a number: 'fast'"),
        ([{**LINE, "late_rows": True}], "line 1: late_rows is not a number: True"),
        ([{**LINE, "late_rows": -1}], "line 1: late_rows is not a number: -1"),
        (['{"batch": NaN}'], "line 1: batch is not a number: nan"),
        ([], "have no micro-batch"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, lines: list[Any], message: str) -> None:
    file = write(tmp_path / "m.jsonl", *lines)
    with pytest.raises(MillpondError, match=r"the metrics .*m\.jsonl") as found:
        read_metrics(file)
    assert message in str(found.value) and "\n" not in str(found.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MillpondError, match="there is no such file"):
        read_metrics(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MillpondError, match="not UTF-8"):
        read_metrics(str(tmp_path / "binary"))


def test_charts_show_state_with_its_bound_rate_time_and_lost_rows(tmp_path: Path) -> None:
    lines = [
        {**LINE, "batch": i, "state_entries": i, "state_bound": 30, "shed_rows": i % 3} for i in range(20)
    ]
    charts = make_charts(read_metrics(write(tmp_path / "m.jsonl", *lines)))
    assert [chart.y_name for chart in charts] == ["entries", "rows per second", "seconds", "rows"]
    assert [series.name for series in charts[0].series] == ["state", "bound"]
    assert charts[0].series[0].points[-1] == (19.0, 19.0)
    assert [series.name for series in charts[3].series] == ["shed"]


def test_a_bound_far_above_the_state_does_not_flatten_it(tmp_path: Path) -> None:
    lines = [{**LINE, "batch": i, "state_bound": 10**6} for i in range(3)]
    charts = make_charts(read_metrics(write(tmp_path / "m.jsonl", *lines)))
    assert [series.name for series in charts[0].series] == ["state"] and len(charts) == 3


def test_many_batches_are_drawn_by_their_largest_values(tmp_path: Path) -> None:
    lines = [{**LINE, "batch": i, "state_entries": 900 if i == 777 else 1} for i in range(1000)]
    charts = make_charts(read_metrics(write(tmp_path / "m.jsonl", *lines)))
    points = charts[0].series[0].points
    assert len(points) == 250 and max(y for _, y in points) == 900

"""Window functions in random micro-batches give the answer on all rows; chains of them do, too."""

from __future__ import annotations

import random

import pytest

from millpond import Verdict, check
from millpond.engines.over.compile import find_gap
from millpond.frontend.parse import parse
from tests.support.near_generate import make_counted_query, make_near_query
from tests.support.over_generate import CATALOG, make_rows
from tests.support.over_local import answer_at_once, cut_at_random, run_in_batches

_PREVIOUS = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


@pytest.mark.parametrize(
    "items",
    [
        "NTH_VALUE(x, 2) OVER (w) AS a, NTH_VALUE(x, 2) IGNORE NULLS OVER (w) AS b",
        "LAST_VALUE(x) IGNORE NULLS OVER (w) AS a, LAG(x, 2) IGNORE NULLS OVER (w) AS b",
        "FIRST_VALUE(x) IGNORE NULLS OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS a",
        "MAX_BY(x, y) OVER (w) AS a, MIN_BY(u, y) OVER (w) AS b",
        "ROUND(STDDEV(x) OVER (w), 6) AS a, ROUND(VAR_POP(y) OVER (w), 1) AS b",
        f"SUM(x) OVER (w {_PREVIOUS}) AS a, COUNT(*) OVER (w {_PREVIOUS}) AS b",
    ],
)
def test_functions_from_the_beginning_on(items: str) -> None:
    _compare(f"SELECT u, y, {items.replace('(w', '(PARTITION BY k ORDER BY ts')} FROM s")


@pytest.mark.parametrize(
    "rows",
    [
        "SELECT *, LAG(x) OVER (PARTITION BY k ORDER BY ts) AS f FROM s",
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY u, date_trunc('hour', ts) ORDER BY y) AS f "
        "FROM s) WHERE f <= 2",
        "SELECT *, COUNT(*) OVER (ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL 3 SECONDS FOLLOWING) "
        "AS f FROM s",
    ],
    ids=["lag", "closing partitions", "later rows"],
)
def test_window_functions_of_window_functions(rows: str) -> None:
    """The rows of a block wait until it has reported that those before them are out."""
    _compare(f"SELECT u, y, SUM(f) OVER (PARTITION BY k ORDER BY ts) AS g FROM ({rows}) AS r")


def test_a_running_median_is_not_run() -> None:
    verdict = check(f"{CATALOG} SELECT y, MEDIAN(k) OVER (ORDER BY ts) AS m FROM s")
    assert isinstance(verdict, Verdict) and verdict.over is not None
    assert "how often each value occurs" in (find_gap(verdict.over) or "")


def _compare(sql: str) -> None:
    verdict = check(f"{CATALOG} {sql}")
    assert isinstance(verdict, Verdict) and verdict.outcome == "bounded"
    rng = random.Random(11)
    rows = make_rows(rng, 60)
    found, most, late = run_in_batches(verdict, cut_at_random(rng, rows))
    (query,) = parse(f"{CATALOG} {sql}")
    assert found == answer_at_once(query, rows)
    assert late == 0
    assert verdict.state.entries is None or most <= verdict.state.entries


@pytest.mark.parametrize("seed", range(12))
def test_rows_that_are_read_where_they_are_near(seed: int) -> None:
    """Older rows are forgotten, and no result depends on them."""
    rng = random.Random(seed)
    compared = 0
    while compared < 2:
        sql = make_near_query(rng)
        verdict = check(f"{CATALOG} {sql}")
        assert isinstance(verdict, Verdict)
        if verdict.outcome == "bounded" and verdict.over is not None and find_gap(verdict.over) is None:
            _compare(sql)
            compared += 1


@pytest.mark.parametrize(
    "shown",
    ["CASE WHEN gap IS NULL OR gap > INTERVAL 2 SECONDS THEN 1 ELSE 0 END", "gap <= INTERVAL 1 SECOND"],
)
def test_a_gap_that_is_a_length_of_time(shown: str) -> None:
    rows = "SELECT u, y, ts - LAG(ts) OVER (PARTITION BY u ORDER BY ts) AS gap FROM s"
    where = "" if shown.startswith("CASE") else f" WHERE {shown}"
    _compare(f"WITH p AS ({rows}) SELECT u, y{'' if where else f', {shown} AS f'} FROM p{where}")


def test_an_earlier_time_that_only_has_to_be_there() -> None:
    verdict = check(
        f"{CATALOG} SELECT y, f FROM (SELECT y, LAG(ts) OVER w AS prev, LAG(x) OVER w AS f FROM s "
        "WINDOW w AS (PARTITION BY u ORDER BY ts)) WHERE prev IS NOT NULL"
    )
    assert isinstance(verdict, Verdict) and verdict.outcome == "unbounded"


@pytest.mark.parametrize("seed", range(10))
def test_frames_of_a_number_that_counts_time(seed: int) -> None:
    """Several rows have one number; they are in each other's frames."""
    _compare(make_counted_query(random.Random(seed)))

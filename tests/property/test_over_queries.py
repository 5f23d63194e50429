"""Random window functions in random micro-batches: the answer, the size of the state, the verdict."""

from __future__ import annotations

import random

import pytest

from millpond import Verdict, check
from tests.campaigns.over import run_case
from tests.support.over_generate import CATALOG, make_rows
from tests.support.over_local import answer_at_once, cut_at_random, run_in_batches


@pytest.mark.parametrize("seed", [*range(1000, 1020), 410_035, 620_039, 620_167])
def test_micro_batches_give_the_answer_on_all_rows(seed: int) -> None:
    assert run_case(seed) in ("equal", "unbounded", "undetermined", "not run")


@pytest.mark.parametrize("order", ["x DESC, y", "y, x", "x, y DESC"])
def test_first_rows_of_a_stream_without_time(order: str) -> None:
    """Nothing is late, and nothing waits: each micro-batch is answered at once."""
    catalog = "CREATE STREAMING TABLE s (u INT, k TINYINT, x INT, y INT);"
    rank = f"RANK() OVER (PARTITION BY k ORDER BY {order})"
    verdict = check(f"{catalog} SELECT k, x, y, {rank} AS r FROM s QUALIFY r < 4")
    assert isinstance(verdict, Verdict) and verdict.outcome == "bounded"
    rng = random.Random(3)
    rows = [{name: row[name] for name in ("u", "k", "x", "y")} for row in make_rows(rng, 50)]
    found, most, late = run_in_batches(verdict, cut_at_random(rng, rows))
    assert found == answer_at_once(verdict.query, rows)
    assert late == 0 and most <= 9


def test_late_rows_are_counted_and_have_no_effect() -> None:
    verdict = check(f"{CATALOG} SELECT y, LAG(y) OVER (PARTITION BY k ORDER BY ts) AS before FROM s")
    assert isinstance(verdict, Verdict)
    rows = sorted(make_rows(random.Random(1), 30), key=lambda row: row["ts"])
    on_time, _, none = run_in_batches(verdict, [rows])
    with_late, _, late = run_in_batches(verdict, [rows[5:], rows[:5]])
    assert (none, late) == (0, 5)
    assert sum(with_late.values()) == sum(on_time.values()) - 5


@pytest.mark.parametrize("condition", ["u = 1", "k < 2", "k <= 1 AND u > 3"])
def test_partitions_that_a_filter_excludes_are_not_kept(condition: str) -> None:
    column = condition[0]
    sql = (
        f"SELECT u, y, f FROM (SELECT *, LAG(y) OVER (PARTITION BY {column} ORDER BY ts) AS f FROM s) WHERE "
    )
    verdict = check(f"{CATALOG} {sql}{condition}")
    assert isinstance(verdict, Verdict) and verdict.state.entries is not None
    rng = random.Random(1)
    _, most, _ = run_in_batches(verdict, cut_at_random(rng, make_rows(rng, 60)))
    assert most == verdict.state.entries


@pytest.mark.parametrize("function", ["NTH_VALUE(x, 2)", "FIRST_VALUE(x)", "LAST_VALUE(x)"])
def test_rows_without_a_value_count_in_a_frame_of_rows(function: str) -> None:
    frame = "ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING"
    verdict = check(
        f"{CATALOG} SELECT y, {function} IGNORE NULLS OVER (PARTITION BY k ORDER BY ts {frame}) AS f FROM s"
    )
    assert isinstance(verdict, Verdict)
    assert [each.keeps for each in verdict.state.streams] == [("the last 3 rows",)]
    rng = random.Random(2)
    rows = [{**row, "x": row["x"] if rng.random() < 0.5 else None} for row in make_rows(rng, 60)]
    found, _, _ = run_in_batches(verdict, cut_at_random(rng, rows))
    assert found == answer_at_once(verdict.query, rows)

"""Which engine runs which query."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from millpond.analysis.decide import decide
from millpond.engines.lookup.plan import LookupPlan
from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.policies.registry import PolicyChoice
from millpond.spark.admission import Allowance, Budget
from millpond.spark.engines import ENGINES, choose_engine, holds_rows_back
from millpond.spark.job import Job

CATALOG = """
CREATE STREAMING TABLE S (A INT, B INT);
CREATE STREAMING TABLE T (D INT, E INT);
CREATE STREAMING TABLE X (A INT, at TIMESTAMP);
CREATE STREAMING TABLE Y (D INT, at TIMESTAMP);
CREATE TABLE R (K INT, LABEL STRING);
"""
BUDGET = Allowance(Budget(10, PolicyChoice()))
LOOKUP = Allowance(lookups=LookupPlan(tables={"R": cast(Any, None)}))


def make_job(query: str, allowance: Allowance) -> Job:
    """A job as the engines see it when they decide whether to accept it: without Spark."""
    [parsed] = parse(CATALOG + query)
    return Job(cast(Any, None), decide(parsed), allowance, {})


@pytest.mark.parametrize(
    ("query", "allowance", "engine"),
    [
        ("SELECT A FROM S WHERE A > 10", Allowance(), "ExactEngine"),
        ("SELECT DISTINCT A FROM S, T WHERE B < D AND A = 10", Allowance(), "ExactEngine"),
        ("SELECT A, COUNT(*) FROM S WHERE A BETWEEN 0 AND 9 GROUP BY A", Allowance(), "ExactEngine"),
        ("SELECT A, LABEL FROM S, R WHERE A = K", Allowance(), "StreamStaticEngine"),
        ("SELECT COUNT(*) FROM S, R WHERE A = K", Allowance(), "TimedEngine"),
        ("SELECT X.A FROM X, Y WHERE A = D AND X.at = Y.at", Allowance(), "TimedEngine"),
        ("SELECT A, COUNT(*) FROM X GROUP BY A, session_window(at, '1 minute')", Allowance(), "NativeEngine"),
        ("SELECT A, COUNT(*) FROM X GROUP BY A, window(at, '1 minute')", Allowance(), "NativeEngine"),
        ("SELECT DISTINCT A, at FROM X", Allowance(), "NativeEngine"),
        ("SELECT COUNT(*) FROM X WHERE A = 1 GROUP BY A, window(at, '1 minute')", Allowance(), "TimedEngine"),
        ("SELECT A, MEDIAN(A) FROM X GROUP BY A, window(at, '1 minute')", Allowance(), "TimedEngine"),
        (
            "SELECT A, COUNT(*) FROM X GROUP BY A, window(at, '2 seconds', '1 second')",
            Allowance(),
            "TimedEngine",
        ),
        ("SELECT A, LAG(A) OVER (ORDER BY at) FROM X", Allowance(), "OverEngine"),
        ("SELECT A FROM X QUALIFY ROW_NUMBER() OVER (ORDER BY A) = 1", Allowance(), "OverEngine"),
        ("SELECT A, E FROM S, T WHERE A = D", BUDGET, "BudgetedEngine"),
        ("SELECT A, LABEL FROM S, R WHERE A = K", LOOKUP, "LookupEngine"),
    ],
)
def test_the_first_engine_that_accepts_a_job_runs_it(query: str, allowance: Allowance, engine: str) -> None:
    assert type(choose_engine(make_job(query, allowance))).__name__ == engine


def test_updates_of_sessions_are_refused() -> None:
    job = make_job("SELECT A, COUNT(*) FROM X GROUP BY A, session_window(at, '1 minute')", Allowance())
    with pytest.raises(MillpondError, match="a session cannot be written whenever"):
        choose_engine(replace(job, updates=True))


def make_job_of_blocks(query: str) -> Job:
    job = make_job(query, Allowance())
    blocks = {name: replace(job, verdict=block) for name, block in job.verdict.blocks.items()}
    assert blocks
    return replace(job, blocks=blocks)


PER_MINUTE = "(SELECT window.start AS s, A, COUNT(*) AS n FROM X GROUP BY A, window(at, '1 minute')) b"

# An argument over two tables, which is computed from the rows of the join.
JOINED = "SELECT A % 2, MAX(abs(A - length(LABEL))) FROM X LEFT JOIN R ON A = K GROUP BY A % 2"
COUNTED = "SELECT MAX(n) FROM (SELECT A % 5, COUNT(*) AS n FROM S GROUP BY A % 5) b"


@pytest.mark.parametrize(
    ("query", "engine"),
    [
        (f"SELECT s, A FROM {PER_MINUTE} WHERE n * 2 > A", "ProjectionEngine"),
        (f"SELECT s, MAX(n) FROM {PER_MINUTE} GROUP BY s", "TimedEngine"),
        (COUNTED, "FiniteEngine"),
        (
            "SELECT A % 2, MAX(d) FROM (SELECT A, A - LAG(A) OVER (ORDER BY at) AS d FROM X) GROUP BY A % 2",
            "ExactEngine",
        ),
        (f"SELECT s, A FROM {PER_MINUTE} QUALIFY RANK() OVER (PARTITION BY s ORDER BY n) = 1", "OverEngine"),
        (JOINED, "ExactEngine"),
    ],
)
def test_engines_read_blocks(query: str, engine: str) -> None:
    job = make_job_of_blocks(query)
    assert holds_rows_back(choose_engine(job), job) == (query not in (JOINED, COUNTED))
    assert type(choose_engine(job)).__name__ == engine
    updated = replace(job, updates=True)
    if engine == "ProjectionEngine":
        with pytest.raises(MillpondError, match="the rows of a subquery cannot be written whenever"):
            choose_engine(updated)
    else:  # the blocks emit final rows, and their consumer writes each of its changes
        assert type(choose_engine(updated)).__name__ == engine


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)
def test_only_engines_over_time_hold_rows_back(engine: Any) -> None:
    in_time = ("NativeEngine", "TimedEngine", "OverEngine", "ProjectionEngine")
    assert engine.holds_rows_back == (type(engine).__name__ in in_time)

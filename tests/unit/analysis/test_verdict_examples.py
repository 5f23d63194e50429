"""The verdict of every example in ``tests/fixtures/verdicts``: outcome, reasons, bound and witnesses."""

from __future__ import annotations

from functools import cache

import pytest

from millpond import Verdict, check
from millpond.analysis.verdict import UNBOUNDED
from millpond.query.current_time import depends_on_current_time
from tests.support.time_fooling import confirm_time_witness
from tests.support.verdict_fixtures import VerdictExample, read_examples

EVERY = read_examples()
UNBOUNDED_EXAMPLES = [e for e in EVERY if e.outcomes == (UNBOUNDED,)]
QUICK = [e for e in EVERY if e.file != "time_median_steps"]
SLOW = [pytest.param(e, marks=pytest.mark.campaign) for e in EVERY if e.file == "time_median_steps"]
IN_TIME = [e for e in UNBOUNDED_EXAMPLES if e.file.startswith("time_")]
# DuckDB has no session windows.
CONFIRMED = [example for example in IN_TIME if "session_window" not in example.query]
WITHOUT_TIME = [e for e in UNBOUNDED_EXAMPLES if not e.file.startswith(("time_", "over", "blocks"))]


@cache
def verdict_of(example: VerdictExample) -> Verdict:
    verdict = check(example.sql)
    assert isinstance(verdict, Verdict)
    return verdict


@pytest.mark.parametrize("example", [*QUICK, *SLOW], ids=str)
def test_verdict(example: VerdictExample) -> None:
    verdict = verdict_of(example)
    assert verdict.outcome in example.outcomes, verdict.explain()
    if example.entries is not None:
        assert verdict.state.entries == example.entries
    if verdict.outcome == UNBOUNDED or example.codes:
        assert {reason.code for reason in verdict.reasons} == example.codes
    if verdict.outcome == UNBOUNDED:
        assert verdict.state.entries is None and verdict.plan is None and verdict.timed is None
    if example.outcomes == ("bounded",):
        plans = [plan for plan in (verdict.plan, verdict.timed, verdict.over) if plan is not None]
        is_checked_only = example.file == "relation_groups" or depends_on_current_time(verdict.query)
        is_planned = len(plans) == 1 or "blocks" in example.file or is_checked_only
        assert is_planned and not verdict.reasons
    if example.published:
        assert verdict.published is not None and example.published in verdict.published
    else:
        assert verdict.published is None


@pytest.mark.parametrize("example", WITHOUT_TIME, ids=str)
def test_unbounded_query_has_a_witness(example: VerdictExample) -> None:
    verdict = verdict_of(example)
    if "regexp_extract" in example.query:
        assert verdict.assumptions
    else:
        assert len(verdict.witness(4)["universe"]) == 4


@pytest.mark.campaign
@pytest.mark.parametrize("example", CONFIRMED, ids=str)
def test_witness_in_time_is_confirmed_by_duckdb(example: VerdictExample) -> None:
    verdict = verdict_of(example)
    catalog = {name: [(c.name, c.type.name) for c in t.columns] for name, t in verdict.query.tables.items()}
    used = {o.table.name for select in verdict.query.selects for o in select.occurrences}
    for n in (1, 3) if example.compare else (1, 3, 6):
        witness = verdict.witness(n)
        assert len(witness["universe"]) == len(witness["probes"]) == n
        if example.compare and n == 3:  # a median of few values is observed step by step
            assert witness["compare"] == example.compare
        if used <= {"S", "T", "U", "V"} or n <= 3:
            refusal = confirm_time_witness(example.sql, catalog, witness)
            assert refusal is None, f"{n}: {refusal}"


@pytest.mark.parametrize("example", [e for e in UNBOUNDED_EXAMPLES if e.file in ("over", "blocks")], ids=str)
def test_witness_of_a_whole_query_is_confirmed_on_the_text(example: VerdictExample) -> None:
    verdict = verdict_of(example)
    tables = verdict.query.declared_tables
    catalog = {name: [(c.name, c.type.name) for c in table.columns] for name, table in tables.items()}
    refusal = confirm_time_witness(example.sql, catalog, verdict.witness(3))
    assert refusal is None, refusal


def test_every_file_has_titled_examples() -> None:
    assert len(EVERY) > 200
    assert len({str(example) for example in EVERY}) == len(EVERY)

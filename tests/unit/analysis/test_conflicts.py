"""Conflicting joins, MIN and MAX, and ratios: verdict, witness, and synopsis on random rows."""

from __future__ import annotations

import re

import pytest

from millpond.analysis.verdict import BOUNDED, UNBOUNDED
from tests.campaigns.verdicts import examine
from tests.support.generate import RichCase
from tests.support.verdict_fixtures import VerdictExample, read_examples

EXAMPLES = read_examples("conflicting_joins", "min_and_max")
SEEDS = range(6)


def case_of(catalog: str, query: str) -> RichCase:
    streams = {
        name: tuple((column.split()[0], "INT") for column in columns.split(", "))
        for name, columns in re.findall(r"CREATE STREAMING TABLE (\w+) \((.*)\);", catalog)
    }
    return RichCase(f"{catalog}\n{query}", streams)


def assert_holds(case: RichCase, outcome: str) -> None:
    # The seed chooses the rows that a synopsis is fed with; a witness is always the same.
    for seed in SEEDS if outcome == BOUNDED else SEEDS[:1]:
        finding = examine(case, seed, witness_rows=4)
        assert (finding.outcome, finding.problems) == (outcome, ()), case.sql


@pytest.mark.campaign
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_verdict_agrees_with_witness_and_synopsis(example: VerdictExample) -> None:
    assert_holds(case_of(example.catalog, example.query), example.outcomes[0])


@pytest.mark.campaign
@pytest.mark.parametrize("function", ["AVG", "MEDIAN"])
def test_ratios_count_only_what_is_joined_within_a_group(function: str) -> None:
    catalog = EXAMPLES[0].catalog
    where = "FROM G, T, S, U WHERE H = C AND H BETWEEN 1 AND 2 AND I BETWEEN 0 AND 3 AND C < A AND B < E"
    # Within a group of H, and so of C, the rows of G are alike for S and U.
    assert_holds(case_of(catalog, f"SELECT H, {function}(I) {where} GROUP BY H"), BOUNDED)
    assert_holds(case_of(catalog, f"SELECT {function}(I) {where}"), UNBOUNDED)
    alone = "FROM G, S, U WHERE I BETWEEN 0 AND 3 AND B < E"
    assert_holds(case_of(catalog, f"SELECT {function}(I) {alone}"), BOUNDED)

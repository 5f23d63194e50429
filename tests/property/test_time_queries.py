"""Random queries in time: the verdict is checked against the definition, its witness, and the engine.

The seeds are fixed; ``python -m tests.campaigns.application_time`` checks any number of other seeds.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from millpond.analysis.decide import decide
from millpond.analysis.regions import JoinRegions
from millpond.analysis.time_criteria import find_conflict_among, is_free_of_conflict
from millpond.analysis.verdict import UNDETERMINED
from millpond.frontend.parse import parse
from millpond.query.parts import split_into_parts
from millpond.query.time_order import is_timed
from tests.campaigns.application_time import align_batches, examine
from tests.support.oracle import normalise
from tests.support.time_generate import TimeCase, TimeRow, random_time_case, random_time_rows
from tests.support.timed_local import TimedLocal, micros

SEEDS, SHARE = 60, 10
# Queries whose batches are cut in several ways.
CUT_SEEDS, CUT_SHARE = 24, 6


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(0, SEEDS, SHARE))
def test_random_queries(first: int) -> None:
    findings = [examine(seed) for seed in range(first, first + SHARE)]
    assert [problem for finding in findings for problem in finding.problems] == []
    assert [f.seed for f in findings if f.outcome == UNDETERMINED] == []


@pytest.mark.campaign
@pytest.mark.parametrize("aggregate", ["AVG", "MEDIAN"])
def test_random_ratios(aggregate: str) -> None:
    """The weight of the other streams decides, which is the hardest to prove."""
    findings = [examine(seed, aggregate=aggregate) for seed in range(490, 490 + 2 * SHARE)]
    assert [problem for finding in findings for problem in finding.problems] == []
    assert [f.seed for f in findings if f.outcome == UNDETERMINED] == []


@pytest.mark.campaign
def test_random_queries_with_streams_joined_with_themselves() -> None:
    findings = [examine(seed, self_join=1.0) for seed in range(SHARE)]
    assert [problem for finding in findings for problem in finding.problems] == []


@pytest.mark.campaign
def test_query_free_of_conflict_has_no_conflict_in_any_column_order() -> None:
    seen: Counter[tuple[bool, bool]] = Counter()
    for seed in range(400):
        case = random_time_case(random.Random(seed), self_join=0.0, aggregate=0.0, distinct=1.0)
        for part in split_into_parts(parse(case.sql)[0].selects[0], disjoint=False):
            if is_timed(part):
                regions = JoinRegions(part)
                conflict = find_conflict_among(regions, regions.find_joined_columns()) is not None
                seen[is_free_of_conflict(regions), conflict] += 1
    assert seen[True, True] == 0 and seen[True, False] and seen[False, True], seen


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(0, CUT_SEEDS, CUT_SHARE))
def test_answers_do_not_depend_on_the_cut(first: int) -> None:
    """The answer and the state are the same for one batch or many, with their rows in any order."""
    compared = 0
    for seed in range(1_000 + first, 1_000 + first + CUT_SHARE):
        rng = random.Random(seed)
        case = random_time_case(rng)
        rows = list(random_time_rows(rng, case, 25, nulls=0.05))
        found = [outcome(case, cut) for cut in cuts(rng, case, rows)]
        if None not in found:
            assert all(each == found[0] for each in found[1:]), f"seed {seed}: {case.sql}"
            compared += 1
    assert compared


Batches = list[list[tuple[str, TimeRow]]]


def cuts(rng: random.Random, case: TimeCase, rows: list[tuple[str, TimeRow]]) -> list[Batches]:
    """The rows in one batch, one batch per timestamp, random batches, and one batch in random order."""
    chance = []
    left = list(rows)
    while left:
        size = rng.randint(1, 8)
        chance.append(left[:size])
        left = left[size:]
    return [
        [rows],
        align_batches([[row] for row in rows], case),
        align_batches(chance, case),
        [rng.sample(rows, len(rows))],
    ]


def outcome(case: TimeCase, batches: Batches) -> tuple[Counter[Any], dict[str, Counter[Any]]] | None:
    """The final answer and all that is kept; None where the query has no executor in time."""
    verdict = decide(parse(case.sql)[0])
    if verdict.timed is None:
        return None
    local = TimedLocal(verdict.timed)
    for batch in batches:
        local.add(batch, max(micros(row[case.times[name]]) for name, row in batch))
    answer = Counter({normalise(row): n for row, n in local.answer().items()})
    kept = {
        name: Counter(tuple(sorted(normalise(list(row.values())), key=repr)) for row in table.to_pylist())
        for name, table in local.state.items()
    }
    return answer, kept

"""Mutated queries are checked or refused, and never crash; ``tests.campaigns.fuzz`` tries many more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.fuzz import check_mutant, make_mutant, read_corpus

CASES = 200
FIRST = 100_000


@pytest.mark.campaign
def test_mutants_get_an_answer(tmp_path: Path) -> None:
    corpus = read_corpus(None)
    checked = {
        seed: check_mutant(make_mutant(seed, corpus), tmp_path / "mutant.sql", seed % 4 == 0)
        for seed in range(FIRST, FIRST + CASES)
    }
    assert {seed: each.problem for seed, each in checked.items() if each.problem} == {}
    assert {each.code for each in checked.values()} >= {0, 1, 2}

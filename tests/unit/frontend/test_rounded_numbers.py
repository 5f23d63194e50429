"""How many values rounded numbers have whose argument lies in a range."""

from __future__ import annotations

import random
from math import ceil, floor

import pytest

from millpond.analysis.decide import decide
from millpond.frontend.parse import parse

DDL = """
CREATE STREAMING TABLE ratings (
    score DOUBLE CHECK (score >= 0 AND score <= 100), price DOUBLE, stars INT, name STRING
);
"""


@pytest.mark.parametrize(
    ("rounded", "where", "values"),
    [
        ("floor(score)", "", 103),
        ("ceil(score / 10)", "", 13),
        ("round(score, 1)", "", 1003),
        ("CAST(score AS INT)", "", 103),
        ("floor(score * -2 + 7)", "", 203),
        ("floor(score / 10) * 10", "", 13),
        ("floor(price / 5)", "WHERE price BETWEEN 0 AND 100", 23),
        ("round(price)", "WHERE price > 0 AND price < 0.5", 3),
        ("floor(stars / 10)", "WHERE stars BETWEEN 0 AND 100", 13),
    ],
)
def test_a_rounded_number_in_a_range_has_few_values(rounded: str, where: str, values: int) -> None:
    (query,) = parse(f"{DDL} SELECT {rounded} AS x, COUNT(*) FROM ratings {where} GROUP BY {rounded}")
    verdict = decide(query)
    assert verdict.outcome == "bounded"
    assert verdict.state is not None and verdict.state.entries is not None
    assert verdict.state.entries <= values + 2


@pytest.mark.parametrize(
    ("rounded", "where"),
    [
        ("score", ""),
        ("floor(price)", ""),
        ("floor(price)", "WHERE price > 0"),
        ("round(price, 30)", "WHERE price BETWEEN 0 AND 1"),
        ("floor(price / stars)", "WHERE price BETWEEN 0 AND 1"),
        ("floor(score * price)", ""),
        ("CAST(name AS INT)", "WHERE name BETWEEN '0' AND '9'"),
    ],
)
def test_other_numbers_are_not_bounded(rounded: str, where: str) -> None:
    (query,) = parse(f"{DDL} SELECT {rounded} AS x, COUNT(*) FROM ratings {where} GROUP BY {rounded}")
    assert decide(query).outcome != "bounded"


def test_the_number_of_values_is_never_too_small() -> None:
    """Against the values of many numbers in random ranges."""
    rng = random.Random(5)
    for _ in range(20):
        low, high = sorted(rng.sample(range(-40, 40), 2))
        by = rng.choice([2, 3, 7])
        name, function = rng.choice([("floor", floor), ("ceil", ceil)])
        where = f"WHERE price BETWEEN {low} AND {high}"
        (query,) = parse(
            f"{DDL} SELECT {name}(price / {by}) x FROM ratings {where} GROUP BY {name}(price / {by})"
        )
        state = decide(query).state
        values = {function((low + (high - low) * i / 500) / by) for i in range(501)}
        assert state is not None and state.entries is not None and state.entries >= len(values)

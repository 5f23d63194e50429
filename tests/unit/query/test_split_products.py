"""Sums and products over several tables split into factors of one table each."""

from __future__ import annotations

import random
from typing import Any

import pytest

from millpond.query.evaluate import compile_condition, compile_expression
from millpond.query.expressions import Arithmetic, Choice, Expr, Literal, Negation, Ref
from millpond.query.split_products import NULL, list_terms, split_products
from millpond.query.types import INT

SLOTS = {"A": 0, "B": 1, "C": 2}


def _random_expression(rng: random.Random, depth: int) -> Expr:
    if depth == 0:
        leaf = Ref(rng.choice("ABC"), rng.choice("xy"))
        return leaf if rng.random() < 0.9 else rng.choice([Literal(3, INT), NULL])
    one, other = (_random_expression(rng, depth - 1) for _ in range(2))
    if rng.random() < 0.2:
        return Negation(one)
    if rng.random() < 0.3:
        return Choice(Ref(rng.choice("ABC"), "f"), one, other)
    return Arithmetic(rng.choice("+-*"), one, other)


def _random_row(rng: random.Random) -> dict[str, Any]:
    return {
        "x": rng.choice([None, -1, 2, 5]),
        "y": rng.choice([None, 0, 3]),
        "f": rng.choice([None, True, False]),
    }


@pytest.mark.parametrize("seed", range(60))
def test_products_add_up_to_the_argument(seed: int) -> None:
    rng = random.Random(seed)
    argument = _random_expression(rng, 3)
    products = split_products(argument)
    if products is None:  # too many
        return
    for _ in range(40):
        match = [_random_row(rng) for _ in SLOTS]
        total, count = 0, 0
        for product in products:
            values = [compile_expression(factor, SLOTS)(match) for _, factor in product.factors]
            given = all(compile_condition(each, SLOTS)(match) is True for each in product.given)
            if given and None not in values:
                value = 1
                for each in values:
                    value *= each
                total, count = total + value, count + product.leads
        expected = compile_expression(argument, SLOTS)(match)
        assert (total if count else None, count) == (expected, expected is not None)


def test_each_factor_is_of_one_table() -> None:
    argument = Arithmetic("*", Arithmetic("+", Ref("A", "x"), Ref("B", "y")), Ref("B", "x"))
    products = split_products(argument)
    assert products is not None and len(products) == 2
    for product in products:
        assert [alias for alias, _ in product.factors] == ["A", "B"]
    assert split_products(Arithmetic("/", Ref("A", "x"), Ref("B", "y"))) is None


def test_terms_of_sums() -> None:
    a, b = Ref("A", "x"), Ref("B", "y")
    assert list_terms(Arithmetic("-", Arithmetic("+", a, Literal(1, INT)), b)) == (
        ("A", Arithmetic("+", a, Literal(1, INT))),
        ("B", Negation(b)),
    )
    assert list_terms(Arithmetic("*", a, b)) is None
    guarded = list_terms(Choice(Ref("B", "f"), Arithmetic("+", a, b), NULL))
    assert guarded == (("A", a), ("B", Choice(Ref("B", "f"), b, NULL)))
    assert list_terms(Choice(Ref("B", "f"), a, b)) is None

"""Parts of a condition: together they are it, disjoint where asked, and what they imply is true."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from datetime import date
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from millpond.frontend.parse import parse
from millpond.query.closure import Range
from millpond.query.evaluate import compile_condition
from millpond.query.expressions import And, Condition, Not, NotTrue, Or, Ref, Truth
from millpond.query.model import Select
from millpond.query.normalize import MAX_PARTS, TooManyParts, push_negations
from millpond.query.parts import Part, add_literal, collect_checks, split_disjunctions, split_into_parts
from millpond.query.trees import refs
from tests.support.generate import OPERATORS

Row = dict[str, Any]
Match = tuple[Row, Row]

PLAIN = """
CREATE STREAMING TABLE S (A INT, B INT, K INT NOT NULL, X DOUBLE, L STRING, W DATE);
CREATE STREAMING TABLE T (C INT, D INT, H INT NOT NULL, Y DOUBLE, M STRING, V DATE);
"""
# Facts of every kind: a range, a disjunction on one column, an order, a disjunction across columns.
CHECKED = """
CREATE STREAMING TABLE S (A INT CHECK (A BETWEEN -1 AND 2), B INT CHECK (B IN (-2, 0, 3)),
                          K INT NOT NULL CHECK (K <> 0), X DOUBLE CHECK (X < 2.5), L STRING CHECK (L > 'a'),
                          W DATE, CHECK (A <= B OR X IS NULL));
CREATE STREAMING TABLE T (C INT, D INT, H INT NOT NULL, Y DOUBLE CHECK (Y >= 0), M STRING, V DATE,
                          CHECK (C < D), CHECK (H = C + 1 OR H = 0));
"""
COLUMNS: Mapping[str, Sequence[str]] = {
    "number": ("S.A", "S.B", "S.K", "S.X", "T.C", "T.D", "T.H", "T.Y"),
    "text": ("S.L", "T.M"),
    "day": ("S.W", "T.V"),
}
CONSTANTS: Mapping[str, Sequence[str]] = {
    "number": ("-1", "0", "1", "2", "0.5"),
    "text": ("'a'", "'b'", "'ab'"),
    "day": ("DATE '2024-01-02'", "DATE '2024-01-03'"),
}


def random_condition(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth and kind < 0.62:
        operands = [random_condition(rng, depth - 1) for _ in range(2 if kind < 0.5 else 1)]
        if kind < 0.22:
            return f"({' AND '.join(operands)})"
        return f"({' OR '.join(operands)})" if kind < 0.5 else f"NOT {operands[0]}"
    family = rng.choices(list(COLUMNS), weights=[8, 1, 1])[0]
    column, constants = rng.choice(COLUMNS[family]), CONSTANTS[family]
    negation = rng.choice(["", "", "NOT "])
    kind = rng.random()
    if kind < 0.15:
        return f"{column} IS {negation}NULL"
    if kind < 0.27:
        members = [rng.choice([*constants, "NULL"]) for _ in range(rng.randint(1, 3))]
        return f"{column} {negation}IN ({', '.join(members)})"
    if kind < 0.37:
        return f"{column} {negation}BETWEEN {rng.choice(constants)} AND {rng.choice(constants)}"
    if kind < 0.4:
        return rng.choice(["TRUE", "FALSE", "NULL"])
    if kind < 0.55:
        return f"{column} {rng.choice(OPERATORS)} {rng.choice(constants)}"
    shift = rng.choice(["", "", " + 1", " - 2"]) if family == "number" else ""
    return f"{column} {rng.choice(OPERATORS)} {rng.choice(COLUMNS[family])}{shift}"


def random_value(rng: random.Random, column: str, nulls: float) -> Any:
    if column not in "KH" and rng.random() < nulls:
        return None
    if column in "XY":
        return rng.choice([-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
    if column in "LM":
        return rng.choice(["", "a", "aa", "ab", "b", "c"])
    if column in "WV":
        return date(2024, 1, rng.randint(1, 4))
    return rng.randint(-2, 3)


def random_matches(rng: random.Random, select: Select, count: int, nulls: float) -> list[Match]:
    """Pairs of rows that obey the CHECKs (an unknown one does not exclude a row)."""
    rows = []
    for occurrence in select.occurrences:
        table = occurrence.table
        checks = [compile_condition(check, {table.name: 0}) for check in table.checks]
        mine: list[Row] = []
        while len(mine) < count:
            row = {c.name: random_value(rng, c.name, nulls) for c in table.columns}
            if all(check((row,)) is not False for check in checks):
                mine.append(row)
        rows.append(mine)
    left, right = rows
    return list(product(left, right))


def random_select(rng: random.Random, ddl: str, depth: int = 3) -> Select:
    """A random select whose parts are few enough to look at."""
    while True:
        text = random_condition(rng, depth)
        source = "S, T"
        if rng.random() < 0.2:  # the same stream twice
            for old, new in zip("CDHYMV", "ABKXLW", strict=True):
                text = text.replace(f"T.{old}", f"T.{new}")
            source = "S, S T"
        [query] = parse(f"{ddl}SELECT S.A FROM {source} WHERE {text}")
        [select] = query.selects
        try:
            for part in split_into_parts(select, disjoint=True):
                split_disjunctions(part)
        except TooManyParts:
            continue
        return select


SLOTS = {"S": 0, "T": 1}


def holds(cond: Condition, match: Match) -> bool:
    return compile_condition(cond, SLOTS)(match) is True


def value(part: Part, match: Match, ref: Ref) -> Fraction | None:
    found = match[SLOTS[ref.occurrence]][ref.column]
    return None if found is None else part.points.of(found)


def inside(r: Range, x: Fraction) -> bool:
    above = r.low is None or (x > r.low if r.low_strict else x >= r.low)
    return above and (r.high is None or (x < r.high if r.high_strict else x <= r.high))


def assert_sound(part: Part, matches: Sequence[Match]) -> None:
    """On every match of the part, what it says of its columns is so."""
    closure = part.closure
    bounds = [
        (x.ref, y.ref, bound)
        for (i, x), (j, y) in product(enumerate(closure.nodes), repeat=2)
        if i != j and x.type.family is y.type.family and (bound := closure.bound(x.ref, y.ref)) is not None
    ]
    for match in matches:
        values = {n.ref: value(part, match, n.ref) for n in closure.nodes}
        assert all(match[SLOTS[r.occurrence]][r.column] is not None for r in part.non_null)
        assert all(match[SLOTS[r.occurrence]][r.column] is None for r in part.nulls)
        for ref, x in values.items():
            assert x is None or inside(closure.range(ref), x), ref
        for left, right, (most, strict) in bounds:
            x, y = values[left], values[right]
            if x is not None and y is not None:
                assert x - y < most if strict else x - y <= most, (left, right)
        for ref, ranges in part.allowed:
            x = values[ref]
            assert x is None or any(inside(r, x) for r in ranges), ref
        for d in part.apart:
            x, y = values[d.left], values[d.right] if d.right is not None else Fraction(0)
            assert x is None or y is None or x - y != d.value


@pytest.mark.campaign
@pytest.mark.parametrize("ddl", [PLAIN, CHECKED], ids=["plain", "checked"])
@pytest.mark.parametrize("seed", range(70))
def test_parts_are_the_condition(ddl: str, seed: int) -> None:
    rng = random.Random(f"{seed} {ddl}")
    select = random_select(rng, ddl)
    matches = random_matches(rng, select, 14, nulls=rng.choice([0.0, 0.15, 0.4]))
    wanted = [match for match in matches if holds(select.where, match)]
    for disjoint in (False, True):
        parts = split_into_parts(select, disjoint)
        for match in matches:
            count = sum(holds(part.condition, match) for part in parts)
            if disjoint:
                assert count == holds(select.where, match), match
            else:
                assert (count > 0) == holds(select.where, match), match
        for part in parts:
            mine = [match for match in wanted if holds(part.condition, match)]
            assert_sound(part, mine)
            pieces = split_disjunctions(part)
            for match in matches:
                assert sum(holds(p.condition, match) for p in pieces) == holds(part.condition, match)
            for piece in pieces:
                assert not piece.choices
                assert_sound(piece, [match for match in mine if holds(piece.condition, match)])


@pytest.mark.parametrize("seed", range(40))
def test_negation_normal_form_means_the_same(seed: int) -> None:
    rng = random.Random(seed)
    select = random_select(rng, PLAIN)
    positive, negative = push_negations(select.where), push_negations(select.where, negated=True)
    for cond in (positive, negative):
        assert_normal(cond)
    for match in random_matches(rng, select, 8, nulls=0.3):
        truth = compile_condition(select.where, SLOTS)(match)
        assert holds(positive, match) == (truth is True)
        assert holds(negative, match) == (truth is False)


def assert_normal(cond: Condition) -> None:
    """No NOT but on a NULL test, no connective directly in its like, no constant that could go."""
    match cond:
        case And(operands=operands) | Or(operands=operands):
            assert len(operands) > 1
            for operand in operands:
                assert type(operand) is not type(cond)
                # UNKNOWN stays in a conjunction: it makes it not true, but not false either.
                assert not isinstance(operand, Truth) or (isinstance(cond, And) and operand.value is None)
                assert_normal(operand)
        case Not(operand=operand):
            assert not isinstance(operand, And | Or | Not | Truth | NotTrue)
        case NotTrue():
            raise AssertionError("IS NOT TRUE is not part of the language")


@pytest.mark.parametrize("seed", range(30))
def test_an_added_literal_narrows_a_part(seed: int) -> None:
    rng = random.Random(seed)
    select = random_select(rng, CHECKED, depth=2)
    [query] = parse(f"{CHECKED}SELECT S.A FROM S, T WHERE S.A {rng.choice(OPERATORS)} T.C")
    literal = query.selects[0].where
    matches = random_matches(rng, select, 10, nulls=0.1)
    if select.occurrences[1].table.name == "S":
        return
    for part in split_into_parts(select, disjoint=True):
        cut = add_literal(part, literal)
        mine = [m for m in matches if holds(part.condition, m) and holds(literal, m)]
        if cut is None:
            assert mine == []
            continue
        assert mine == [m for m in matches if holds(cut.condition, m)]
        assert_sound(cut, mine)


# --- by hand ------------------------------------------------------------------------------------------


def one(where: str, ddl: str = PLAIN, source: str = "S, T") -> Select:
    [query] = parse(f"{ddl}SELECT 1 FROM {source} WHERE {where}")
    [select] = query.selects
    return select


def only(where: str, ddl: str = PLAIN) -> Part:
    [part] = split_into_parts(one(where, ddl), disjoint=True)
    return part


def ends(part: Part, name: str) -> tuple[Any, Any]:
    r = part.closure.range(Ref(*name.split(".")))
    return r.low, r.high


def test_a_disjunction_on_one_occurrence_is_a_filter_with_a_hull() -> None:
    part = only("(S.A = 1 OR S.A BETWEEN 5 AND 7 OR S.A = 9) AND S.B = T.C")
    assert len(part.choices) == 1 and len(part.choices[0].branches) == 3
    assert ends(part, "S.A") == (1, 9)
    [(ref, ranges)] = part.allowed
    assert ref == Ref("S", "A")
    assert ranges == tuple(Range(Fraction(low), Fraction(high)) for low, high in ((1, 1), (5, 7), (9, 9)))
    assert Ref("S", "A") in part.non_null
    assert [ends(p, "S.A") for p in split_disjunctions(part)] == [(1, 1), (5, 7), (9, 9)]


def test_branches_that_cannot_hold_do_not_widen_a_hull() -> None:
    part = only("(S.A = 1 OR S.A = 50) AND S.A < 10 AND S.A <= T.C")
    assert ends(part, "S.A") == (1, 1)
    assert split_into_parts(one("(S.A = 1 OR S.A = 50) AND S.A > 60"), disjoint=True) == []


def test_a_branch_that_allows_null_takes_nothing_from_the_others() -> None:
    part = only("(S.A = 1 OR S.A IS NULL) AND S.B = T.C")
    assert ends(part, "S.A") == (1, 1)
    assert part.can_be_null(Ref("S", "A")) and not part.can_be_null(Ref("S", "B"))
    open_part = only("(S.A < S.B OR S.A IS NULL) AND S.K = T.C")
    assert open_part.closure.bound(Ref("S", "A"), Ref("S", "B")) is None


def test_differences_have_hulls_too() -> None:
    part = only("(S.A < S.B OR S.A = S.B + 3) AND S.A <= T.C")
    assert part.closure.bound(Ref("S", "A"), Ref("S", "B")) == (Fraction(3), False)
    assert part.closure.bound(Ref("S", "B"), Ref("S", "A")) is None


def test_a_disjunction_across_streams_splits() -> None:
    select = one("S.A < T.C OR S.B < T.D")
    assert len(split_into_parts(select, disjoint=False)) == 2
    # The second: B < D with A >= C, with A NULL, or with C NULL beside an A that is not.
    disjoint = split_into_parts(select, disjoint=True)
    assert len(disjoint) == 4
    assert [len(p.nulls) for p in disjoint] == [0, 1, 1, 0]
    assert len(split_into_parts(one("S.K < T.H OR S.B < T.D"), disjoint=True)) == 2


@pytest.mark.parametrize(
    "where",
    ["FALSE", "NULL", "S.A < NULL", "S.A = 1 AND S.A = 2", "S.A IS NULL AND S.A < 3", "S.K IS NULL",
     "S.A < T.C AND T.C < S.A", "S.A <> S.A", "S.A = S.A + 1", "NOT (S.A < 3 OR NULL)", "S.A IN (NULL)",
     "S.A NOT IN (1, NULL)", "S.A > 1 AND S.A < 2", "S.L < 'a' AND S.L > 'b'"],
)  # fmt: skip
def test_an_unsatisfiable_condition_has_no_parts(where: str) -> None:
    for disjoint in (False, True):
        assert split_into_parts(one(where), disjoint) == []


@pytest.mark.parametrize("where", ["S.A <> S.A + 1", "S.A = S.A", "S.A IN (1, NULL)", "S.A < 3 OR NULL"])
def test_a_satisfiable_condition_has_a_part(where: str) -> None:
    part = only(where)
    assert Ref("S", "A") in part.non_null


def test_checks_are_facts_about_each_occurrence() -> None:
    [query] = parse(CHECKED + "SELECT 1 FROM S p, S q WHERE p.K = q.K")
    [part] = split_into_parts(query.selects[0], disjoint=True)
    assert {r.occurrence for f in collect_checks(query.selects[0]) for r in refs(f)} == {"p", "q"}
    for alias in "pq":
        assert ends(part, f"{alias}.A") == (-1, 2)
        assert ends(part, f"{alias}.B") == (-2, 3)
        assert part.closure.range(Ref(alias, "X")).high_strict


def test_a_check_on_several_columns_counts_only_if_none_is_null() -> None:
    c, d = Ref("T", "C"), Ref("T", "D")
    assert only("S.K = T.C", CHECKED).closure.bound(c, d) is None  # D may be NULL
    assert only("S.K = T.C AND T.D > 0", CHECKED).closure.bound(c, d) == (Fraction(-1), False)


# --- size ---------------------------------------------------------------------------------------------


def _many_pairs(n: int) -> str:
    return " AND ".join(f"(S.A < T.C + {i} OR S.B > T.D - {i})" for i in range(n))


def _nested(n: int) -> str:
    text = "S.A < T.C"
    for i in range(n):
        text = f"(S.B > T.D + {i} OR S.K < {i}) AND (S.A <> T.C + {i} OR ({text}))"
    return text


def _dnf(n: int, width: int) -> str:
    """Branches in which one bound tightens where another loosens, so that none implies another."""
    branches = []
    for i in range(n):
        terms = [f"{s} < {t} + {i if j % 2 else -i}" for j, (s, t) in enumerate(_PAIRS[:width])]
        branches.append(f"({' AND '.join(terms)})")
    return " OR ".join(branches)


_PAIRS = [("S.A", "T.C"), ("S.B", "T.D"), ("S.K", "T.H"), ("S.X", "T.Y")]
ADVERSARIES = {
    "conjunction of disjunctions": _many_pairs(12),
    "many of them": _many_pairs(60),
    "nested": _nested(30),
    "disjunction of conjunctions": _dnf(24, 4),
    "a conjunction of them inside a disjunction": f"S.A = T.C OR ({_many_pairs(14)})",
    "a filter": " AND ".join(f"(S.A < {i} OR S.B > {i})" for i in range(40)) + " OR S.K = 1",
    "negated": f"NOT ({_many_pairs(14)}) AND NOT ({_dnf(16, 4)})",
}


@pytest.mark.parametrize("where", ADVERSARIES.values(), ids=ADVERSARIES.keys())
def test_too_many_parts_are_refused_at_once(where: str) -> None:
    select = one(where)
    started = time.process_time()
    with pytest.raises(TooManyParts):
        for part in split_into_parts(select, disjoint=True):
            split_disjunctions(part)
    assert time.process_time() - started < 5


def test_splitting_disjunctions_is_limited_too() -> None:
    where = " AND ".join(f"(S.A < {2 * i} OR S.B > {2 * i + 1})" for i in range(9))
    [part] = split_into_parts(one(where), disjoint=True)
    assert len(part.choices) == 9
    with pytest.raises(TooManyParts):
        split_disjunctions(part)


def test_as_many_parts_as_allowed() -> None:
    parts = split_into_parts(one(_many_pairs(8)), disjoint=False)
    assert 0 < len(parts) <= MAX_PARTS


def test_a_branch_that_implies_another_is_absorbed() -> None:
    [part] = split_into_parts(one("S.A <= T.C OR S.A = T.C"), disjoint=True)
    assert part.closure.bound(Ref("T", "C"), Ref("S", "A")) is None
    assert len(split_into_parts(one("S.A < T.C OR S.A > T.C"), disjoint=True)) == 2


def test_what_a_filter_accepts_is_taken_from_the_branches_that_join() -> None:
    """A join that only matters where a filter fails sees the filter's complement as a bound."""
    parts = split_into_parts(one("S.A < T.C OR S.A < 1 OR S.A > 3"), disjoint=False)
    joined = [p for p in parts if p.closure.bound(Ref("S", "A"), Ref("T", "C")) is not None]
    ranges = [p.closure.range(Ref("S", "A")) for p in joined]
    assert [(r.low, r.high) for r in ranges] == [(Fraction(1), Fraction(3))]

"""The tests' own tools: the oracle against plain evaluation, the definition against the papers' examples."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.definition import BOUNDED, UNBOUNDED, UNKNOWN, decide
from tests.support.generate import (
    Atom,
    Case,
    Column,
    RichCase,
    Row,
    by_stream,
    case_from,
    random_case,
    random_rich_case,
    random_rows,
)
from tests.support.oracle import answer_one, answers, confirm_witness

ST = {"S": "ABC", "T": "DE"}
A, B, C = ("S", "A"), ("S", "B"), ("S", "C")
D, E = ("T", "D"), ("T", "E")
F, G = ("U", "F"), ("U", "G")
S_T_U = {**ST, "U": "FG"}


# --- the definition -----------------------------------------------------------------------------------

TABLE_1: list[tuple[str, list[str], list[Atom], str, str]] = [
    ("Q1", ["S"], [(A, ">", 10)], BOUNDED, UNBOUNDED),
    ("Q2", ["S", "T"], [(A, "=", D)], UNBOUNDED, UNBOUNDED),
    ("Q3", ["S", "T"], [(A, "=", D), (A, ">", 10), (D, "<", 20)], BOUNDED, BOUNDED),
    ("Q4", ["S", "T"], [(B, "<", D), (A, "=", 10)], UNBOUNDED, BOUNDED),
    ("Q5", ["S", "T"], [(B, "<", D), (C, "<", E), (A, "=", 10)], UNBOUNDED, UNBOUNDED),
    (
        "Q6",
        ["S", "T"],
        [(B, "<", D), (C, "<", E), (B, "<", E), (C, "<", D), (A, "=", 10)],
        UNBOUNDED,
        BOUNDED,
    ),
    ("Q7", ["S", "T"], [(B, "<", D), (D, ">", 10), (B, "<", 20), (A, "=", 10)], BOUNDED, BOUNDED),
]


@pytest.mark.parametrize(("name", "sources", "atoms", "bag", "unique"), TABLE_1, ids=[q[0] for q in TABLE_1])
def test_table_1(name: str, sources: list[str], atoms: list[Atom], bag: str, unique: str) -> None:
    assert decide(case_from(ST, sources, atoms, [A])) == bag
    assert decide(case_from(ST, sources, atoms, [A], distinct=True)) == unique


def both(atoms: Sequence[Atom], projection: Sequence[Column] = (), sources: str = "ST") -> tuple[str, str]:
    """The verdicts with duplicates and with DISTINCT."""
    bag = case_from(S_T_U, list(sources), atoms, projection)
    unique = case_from(S_T_U, list(sources), atoms, projection, distinct=True)
    return decide(bag), decide(unique)


@pytest.mark.parametrize(
    ("atoms", "projection", "expected"),
    [
        pytest.param([(A, ">", 10), (A, "<", 12)], [A], (BOUNDED, BOUNDED), id="squeeze"),
        pytest.param([(A, ">", 10), (A, "<", D), (D, "<", 13)], [A, D], (BOUNDED, BOUNDED), id="squeeze-two"),
        pytest.param([(A, ">", D), (D, ">", 10), (A, "<", 20)], [D], (BOUNDED, BOUNDED), id="travelling"),
        pytest.param([(A, "<", D), (D, "<", A)], [B], (BOUNDED, BOUNDED), id="unsatisfiable"),
        pytest.param([(A, ">", 1), (A, "<", 2)], [B], (BOUNDED, BOUNDED), id="no-integer-between"),
        pytest.param([(A, "<=", D)], [], (UNBOUNDED, BOUNDED), id="weak-join-is-one"),
        pytest.param([(A, "<=", D), (A, ">=", D)], [], (UNBOUNDED, UNBOUNDED), id="implied-equality"),
        pytest.param([], [], (BOUNDED, BOUNDED), id="product"),
        pytest.param([], [A], (UNBOUNDED, UNBOUNDED), id="product-projected"),
        pytest.param([(B, "<>", D)], [], (UNBOUNDED, BOUNDED), id="unequal"),
        pytest.param([(B, "<>", D), (C, "<>", E)], [], (UNBOUNDED, BOUNDED), id="unequal-twice"),
        pytest.param([(B, "<", D), (C, "<>", E)], [], (UNBOUNDED, BOUNDED), id="below-and-unequal"),
        pytest.param([(B, "<>", D), (B, "<", 0), (D, ">", 0)], [], (BOUNDED, BOUNDED), id="unequal-apart"),
        pytest.param([(B, "<>", D), (B, "<", 0), (D, ">", -9)], [], (BOUNDED, BOUNDED), id="unequal-bounded"),
        pytest.param([(B, "<=", D), (B, "<>", D), (B, "=", D)], [A], (BOUNDED, BOUNDED), id="contradiction"),
        pytest.param([(A, "<>", 3), (A, ">=", 3), (A, "<", 5)], [A], (BOUNDED, BOUNDED), id="unequal-filter"),
        pytest.param([(B, "<", D), (C, ">", E)], [], (UNBOUNDED, UNBOUNDED), id="both-directions"),
        pytest.param([(B, "<", D), (B, "<", E)], [], (UNBOUNDED, BOUNDED), id="one-column-two-partners"),
        pytest.param([(B, "<", D), (E, "<", B)], [], (UNBOUNDED, UNBOUNDED), id="band"),
    ],
)
def test_closure_and_select_project_join(
    atoms: list[Atom], projection: list[Column], expected: tuple[str, str]
) -> None:
    assert both(atoms, projection) == expected


def test_one_class_below_two_partners_needs_the_smaller() -> None:
    # T has two classes above B, but in each LTO query the larger of D and E is redundant.
    assert both([(B, "<", D), (B, "<", E)])[1] == BOUNDED
    assert both([(B, "<", D), (D, "<", F)], sources="STU")[1] == UNBOUNDED


def self_join(
    atoms: Sequence[Atom],
    projection: Sequence[Column] = (),
    columns: str = "AB",
    copies: int = 2,
    *,
    bag: bool = False,
) -> str:
    places = {f"S{i + 1}": "S" for i in range(copies)}
    return decide(case_from({"S": columns}, places, atoms, projection, distinct=not bag))


A1, B1, C1 = ("S1", "A"), ("S1", "B"), ("S1", "C")
A2, B2, C2 = ("S2", "A"), ("S2", "B"), ("S2", "C")
EXAMPLE_8_1: list[Atom] = [(A1, "=", 10), (A1, "=", A2), (B1, "=", B2), (B1, ">", 10)]


def test_self_joins() -> None:
    assert self_join(EXAMPLE_8_1, [A1]) == BOUNDED
    assert self_join(EXAMPLE_8_1, [A1], columns="ABC") == BOUNDED
    assert self_join(EXAMPLE_8_1, [A1], bag=True) == UNBOUNDED
    assert self_join([(B1, "=", C1), (B1, "=", C2)], columns="ABC") == BOUNDED
    assert self_join([(A1, "<", A2), (A2, "<", ("S3", "A"))], copies=3) == UNKNOWN
    assert self_join([(A1, "<", A2)]) == BOUNDED
    assert self_join([(A1, "=", B2)]) == UNKNOWN
    assert self_join([(A1, "<", A2)], bag=True) == UNBOUNDED
    assert self_join([], [A1], bag=True) == UNBOUNDED


def aggregated(
    call: str,
    argument: Column | None,
    atoms: Sequence[Atom],
    group_by: Sequence[Column] = (),
    sources: str = "ST",
) -> str:
    function, _, unique = call.partition(" ")
    aggregate = (function, bool(unique), argument)
    return decide(case_from(S_T_U, list(sources), atoms, aggregate=aggregate, group_by=group_by))


def test_max_and_min() -> None:
    assert aggregated("MAX", A, [(B, "<", D)]) == UNBOUNDED
    assert aggregated("MAX", A, [(A, "<", D)]) == UNBOUNDED
    assert aggregated("MAX", A, [(A, ">", D)]) == BOUNDED
    assert aggregated("MIN", A, [(A, "<", D)]) == BOUNDED
    assert aggregated("MIN", A, [(A, ">", D)]) == UNBOUNDED
    assert aggregated("MIN", A, [(B, "<", D), (D, ">", 10), (B, "<", 20)]) == BOUNDED
    assert aggregated("MAX", A, [(B, "<", D), (A, ">", 0), (A, "<", 3)]) == BOUNDED
    assert aggregated("MAX", A, [(A, "<", D), (A, "<", 3), (D, ">", 3)]) == BOUNDED
    assert aggregated("MAX", A, [], sources="S") == BOUNDED
    assert aggregated("MAX", A, [], [B], sources="S") == UNBOUNDED


def test_counts_and_sums() -> None:
    bounds: list[Atom] = [(A, "<", 20), (D, "<", 20), (A, ">", 10), (D, ">", 10)]
    assert aggregated("SUM", B, bounds, [A, D]) == BOUNDED  # Example 8.7
    assert aggregated("SUM", B, [(C, "<", D)]) == UNBOUNDED
    assert aggregated("SUM", B, [(C, "<", D), (B, "=", 0)]) == UNKNOWN
    assert aggregated("COUNT", None, [(A, "<", D)]) == UNBOUNDED
    assert aggregated("COUNT", None, [], [A]) == UNBOUNDED
    assert aggregated("COUNT", None, [], [A], sources="S") == UNBOUNDED
    assert aggregated("COUNT", A, [], sources="S") == BOUNDED
    assert aggregated("COUNT distinct", A, [], sources="S") == UNBOUNDED
    assert aggregated("COUNT distinct", A, [(B, "<", D), (A, "=", 4)]) == BOUNDED
    assert aggregated("COUNT distinct", A, [(B, "<", D), (C, "<", E), (A, "=", 4)]) == UNBOUNDED


def test_average_and_median_of_what_is_repeated() -> None:
    existence: list[Atom] = [(F, "<=", C)]
    assert aggregated("AVG", D, existence, sources="STU") == BOUNDED
    assert aggregated("COUNT", D, existence, sources="STU") == UNBOUNDED
    assert aggregated("AVG", A, existence, sources="STU") == UNBOUNDED
    assert aggregated("AVG", A, [*existence, (A, "=", 3)], sources="STU") == BOUNDED
    assert aggregated("MEDIAN", D, existence, sources="STU") == UNBOUNDED
    assert aggregated("MEDIAN", D, [*existence, (D, ">", 1), (D, "<", 4)], sources="STU") == BOUNDED
    assert aggregated("MEDIAN", A, [], sources="S") == UNBOUNDED
    assert aggregated("AVG", A, [], sources="S") == BOUNDED


def test_average_in_a_group_is_a_query_of_its_own() -> None:
    # Joined through B alone: with B fixed by the group, S is apart from T and U; else it is weighted by them.
    atoms: list[Atom] = [(B, "=", D), (B, ">", 0), (B, "<", 3), (E, "<", F)]
    assert aggregated("AVG", A, atoms, [B], sources="STU") == BOUNDED
    assert aggregated("AVG", A, atoms, sources="STU") == UNBOUNDED
    assert aggregated("AVG", B, [(B, "=", A), (A, ">", 0), (A, "<", 4), (C, "<", D)], [A]) == BOUNDED


def test_verdicts_are_mixed() -> None:
    verdicts = Counter(decide(random_case(random.Random(seed))) for seed in range(400))
    assert verdicts[BOUNDED] > 80
    assert verdicts[UNBOUNDED] > 80
    assert verdicts[UNKNOWN] < 40


# --- the generator and the oracle ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_cases_repeat(seed: int) -> None:
    assert random_case(random.Random(seed)) == random_case(random.Random(seed))
    assert random_rich_case(random.Random(seed)) == random_rich_case(random.Random(seed))


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(120))
def test_answers_agree_with_plain_evaluation(seed: int) -> None:
    rng = random.Random(seed)
    case: Case | RichCase = random_case(rng) if seed % 2 else random_rich_case(rng)
    inputs = [by_stream(case, random_rows(rng, case, rng.randint(0, 9), nulls=0.15)) for _ in range(5)]
    expected = [answer_one(case.sql, case.catalog, rows) for rows in inputs]
    assert answers(case.sql, case.catalog, inputs) == expected, f"seed {seed}: {case.sql}"


def test_a_global_aggregate_of_nothing_is_a_row() -> None:
    sql = "SELECT COUNT(*), SUM(A), MEDIAN(A), AVG(A) FROM S WHERE A > 1"
    rows: dict[str, list[Row]] = {"S": [{"A": 2}, {"A": 5}, {"A": None}]}
    found = answers(sql, {"S": [("A", "INT")]}, [{}, rows])
    assert found == [Counter({(0, None, None, None): 1}), Counter({(2, 7, 3.5, 3.5): 1})]


def test_a_union_is_taken_case_by_case() -> None:
    sql = "SELECT A FROM S UNION SELECT D FROM T"
    found = answers(
        sql,
        {"S": [("A", "INT")], "T": [("D", "DOUBLE")]},
        [{"S": [{"A": 1}], "T": [{"D": 1.0}]}, {"S": [{"A": 1}]}],
    )
    assert found == [Counter({(1,): 1}), Counter({(1,): 1})]


def row(stream: str, **values: int) -> dict[str, Any]:
    return {"stream": stream, "row": values}


def witness_of_the_band(n: int) -> dict[str, Any]:
    """For DISTINCT 1 ... B < D AND C < E (Q5): the i-th row of S is met by the i-th of T alone."""
    return {
        "setup": [],
        "universe": [row("S", A=10, B=i, C=-i) for i in range(n)],
        "probes": [[row("T", D=i + 1, E=-i + 1)] for i in range(n)],
        "compare": "emitted",
    }


Q5 = case_from(ST, ["S", "T"], [(B, "<", D), (C, "<", E), (A, "=", 10)], [A], distinct=True)


def test_a_witness_is_confirmed() -> None:
    assert confirm_witness(Q5.sql, Q5.catalog, witness_of_the_band(6)) is None


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"probes": [[row("T", D=99, E=99)]] * 3}, "the same with and without"),
        ({"probes": [[row("T", D=1, E=1)]]}, "1 probes"),
        ({"probes": [[row("T", D=1)]] * 3}, "columns of T"),
        ({"probes": [[row("V", D=1, E=1)]] * 3}, "no stream V"),
        ({"compare": "guess"}, "guess"),
    ],
)
def test_a_wrong_witness_is_refused(change: dict[str, Any], complaint: str) -> None:
    found = confirm_witness(Q5.sql, Q5.catalog, witness_of_the_band(3) | change)
    assert found is not None
    assert complaint in found


def test_a_witness_keeps_to_the_checks() -> None:
    sql = "CREATE STREAMING TABLE S (A INT CHECK (A BETWEEN 0 AND 3)); SELECT DISTINCT A FROM S;"
    witness = {
        "setup": [],
        "universe": [row("S", A=3), row("S", A=4)],
        "probes": [[row("S", A=3)], [row("S", A=4)]],
        "compare": "emitted",
    }
    assert "CHECK" in (confirm_witness(sql, {"S": [("A", "INT")]}, witness) or "")
    assert confirm_witness(sql.replace("3)", "4)"), {"S": [("A", "INT")]}, witness) is None


def test_a_witness_must_tell_all_subsets_apart() -> None:
    # A count differs between I with k and I without k, for every I; yet one number is all that is kept.
    witness = {
        "setup": [],
        "universe": [row("S", A=1), row("S", A=2)],
        "probes": [[row("S", A=0)], [row("S", A=0)]],
        "compare": "answer",
    }
    found = confirm_witness("SELECT COUNT(*) FROM S", {"S": [("A", "INT")]}, witness)
    assert found == "No probe distinguishes [1] from [0]."

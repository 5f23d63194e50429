"""The tests' own tools for application time: the definition, the fronts and the clock of witnesses."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from tests.support import definition
from tests.support.definition import BOUNDED, UNBOUNDED, UNKNOWN
from tests.support.generate import Atom, Column, case_from
from tests.support.oracle import answers
from tests.support.time_definition import decide, time_order
from tests.support.time_fooling import (
    ReferenceFronts,
    confirm_time_witness,
    front_sizes,
    greedy_sizes,
    growing_run,
)
from tests.support.time_generate import (
    TimeAtom,
    TimeCase,
    TimeRow,
    at_second,
    random_time_case,
    random_time_rows,
    time_case_from,
    time_steps,
)

A, B, C, E = ("S", "A"), ("T", "B"), ("U", "C"), ("V", "E")
A2, B2 = ("S", "A2"), ("T", "B2")
STREAMS = {"S": ("A", "A2"), "T": ("B", "B2"), "U": ("C",), "V": ("E",)}
SMALL: list[Atom] = [(B, ">", 0), (B, "<", 5)]


def timed(
    atoms: Sequence[Atom],
    time_atoms: Sequence[TimeAtom] = (),
    projection: Sequence[Column] = (),
    sources: str = "STU",
    *,
    distinct: bool = False,
    call: str | None = None,
    argument: Column | None = None,
) -> TimeCase:
    """A case over some of the streams; with an aggregate the projection is the grouping columns."""
    return time_case_from(
        {name: STREAMS[name] for name in sources},
        atoms,
        time_atoms,
        () if call else projection,
        distinct=distinct,
        aggregate=(call.split()[0], call.endswith("DISTINCT"), argument) if call else None,
        group_by=projection if call else (),
    )


def both(
    atoms: Sequence[Atom],
    time_atoms: Sequence[TimeAtom] = (),
    projection: Sequence[Column] = (),
    sources: str = "STU",
) -> tuple[str, str]:
    """The verdicts with duplicates and with DISTINCT."""
    cases = [timed(atoms, time_atoms, projection, sources, distinct=d) for d in (False, True)]
    return decide(cases[0]), decide(cases[1])


CHAIN: list[TimeAtom] = [("S", ">", "T"), ("T", ">", "U")]
EXAMPLE: list[Atom] = [(A, ">", B), *SMALL]
NO_TREE: list[TimeAtom] = [("U", "<", "S"), ("U", "<", "T")]


# --- the definition -----------------------------------------------------------------------------------


def test_the_papers_example() -> None:
    assert both(EXAMPLE, CHAIN, [A, B]) == (BOUNDED, UNBOUNDED)
    assert both(EXAMPLE, [("S", ">=", "T"), ("T", ">=", "U")], [A, B]) == (BOUNDED, UNBOUNDED)
    assert both(EXAMPLE, [("T", ">", "U")], [A, B]) == (UNBOUNDED, UNBOUNDED)
    assert both(EXAMPLE, CHAIN, [B]) == (BOUNDED, BOUNDED)


def test_the_counterexamples_to_theorem_2() -> None:
    unsound = timed([(A, ">", B), (E, ">", C)], [("T", ">", "U")], sources="STUV", distinct=True)
    assert decide(unsound) == UNBOUNDED
    too_strict = timed([(C, "<", B), (B, "<", A)], [("U", "<", "T")], distinct=True)
    assert decide(too_strict) == BOUNDED


@pytest.mark.parametrize(
    ("atoms", "time_atoms", "projection", "expected"),
    [
        pytest.param([], NO_TREE, [], (BOUNDED, BOUNDED), id="two-successors"),
        pytest.param([], NO_TREE, [A], (UNBOUNDED, UNBOUNDED), id="no-last-stream"),
        pytest.param([(A, "=", C), (C, "=", 3)], CHAIN, [A2], (BOUNDED, UNBOUNDED), id="grandparent-join"),
        pytest.param([(C, ">", 0), (C, "<", 3)], CHAIN, [C], (BOUNDED, BOUNDED), id="depth-2-projection"),
        pytest.param([(A, "=", B)], CHAIN, [], (UNBOUNDED, UNBOUNDED), id="equality"),
        pytest.param([(A, "<", B)], CHAIN, [], (UNBOUNDED, BOUNDED), id="inequality"),
        pytest.param([(A, "<>", B)], CHAIN, [], (UNBOUNDED, BOUNDED), id="unequal"),
        pytest.param([(B, "<", A), (B2, "<", A2)], CHAIN, [], (UNBOUNDED, UNBOUNDED), id="two-columns"),
        pytest.param([(B, "<", A), (B2, "<", A)], CHAIN, [], (UNBOUNDED, BOUNDED), id="one-is-redundant"),
        pytest.param([(C, "<", A), (B, "<", A)], CHAIN, [], (UNBOUNDED, BOUNDED), id="same-partner"),
        pytest.param([(C, "<", A), (B, ">", A2)], CHAIN, [], (UNBOUNDED, UNBOUNDED), id="other-direction"),
        pytest.param([(A, "=", B)], [("S", "=", "T")], [], (BOUNDED, BOUNDED), id="merged"),
        pytest.param([], [("S", "=", "T")], [A], (UNBOUNDED, UNBOUNDED), id="merged-beside-another"),
        pytest.param([], [("S", "=", "T"), ("U", "<", "T")], [A], (BOUNDED, UNBOUNDED), id="merged-last"),
        pytest.param([], [("S", "<", "T"), ("T", "<", "S")], [A], (BOUNDED, BOUNDED), id="cyclic"),
        pytest.param(
            [],
            [("S", "<=", "T"), ("T", "<=", "S"), ("S", "<>", "T")],
            [A],
            (BOUNDED, BOUNDED),
            id="equal-and-unequal",
        ),
    ],
)
def test_orders_in_time(
    atoms: list[Atom], time_atoms: list[TimeAtom], projection: list[Column], expected: tuple[str, str]
) -> None:
    assert both(atoms, time_atoms, projection) == expected


def test_finite_streams_bound_what_they_are_joined_to() -> None:
    ends: list[TimeAtom] = [("U", "<", at_second(5))]
    assert both([(A, "=", B)], ends) == (UNBOUNDED, UNBOUNDED)
    assert both([(A, "=", B), (A, "=", C)], ends, [A]) == (BOUNDED, BOUNDED)
    assert both([(A, "<", B)], [("S", "<=", "U"), *ends], [B]) == (BOUNDED, UNBOUNDED)
    assert both([(A, "<", B), (B, ">", C), (A, "<", C)], ends) == (BOUNDED, BOUNDED)
    assert both([(A, ">", C)], ends, [B], "STU") == (UNBOUNDED, UNBOUNDED)
    assert both([(A, "<", B)], [("S", "<", at_second(2)), ("T", "=", at_second(4))], [A, B], "ST") == (
        BOUNDED,
        BOUNDED,
    )


def test_aggregates() -> None:
    def aggregated(
        call: str, argument: Column | None, atoms: list[Atom], group: Sequence[Column] = ()
    ) -> str:
        return decide(timed(atoms, CHAIN, group, call=call, argument=argument))

    assert aggregated("COUNT", None, []) == BOUNDED
    assert aggregated("COUNT", None, [], [A]) == UNBOUNDED
    assert aggregated("SUM", B2, EXAMPLE, [B]) == BOUNDED
    assert aggregated("SUM", A, [(A, ">", B)]) == UNBOUNDED
    assert aggregated("AVG", A, [(A, ">", B)]) == UNKNOWN
    assert aggregated("MEDIAN", A, []) == UNBOUNDED
    assert aggregated("MEDIAN", B, SMALL) == BOUNDED
    assert aggregated("COUNT DISTINCT", A, []) == UNBOUNDED
    assert aggregated("COUNT DISTINCT", B, EXAMPLE) == BOUNDED
    assert aggregated("MAX", A, [(A, ">", B)]) == BOUNDED
    assert aggregated("MAX", B, [(B, "<", A)]) == UNBOUNDED
    assert aggregated("MIN", B, [(B, "<", A)]) == BOUNDED


@pytest.mark.parametrize("seed", range(0, 400, 40))
def test_orders_among_the_constants_never_decide(seed: int) -> None:
    for number in range(seed, seed + 40):
        case = random_time_case(random.Random(number))
        assert decide(case) == decide(case, literal=True), f"seed {number}: {case.sql}"


@pytest.mark.parametrize("seed", range(0, 300, 30))
def test_without_time_constraints_it_is_paper_1(seed: int) -> None:
    for number in range(seed, seed + 30):
        case = random_time_case(random.Random(number))
        rest: dict[str, Any] = {
            "projection": case.projection,
            "distinct": case.distinct,
            "aggregate": case.aggregate,
            "group_by": case.group_by,
        }
        mine = decide(time_case_from(case.streams, case.atoms, (), times=case.times, **rest))
        plain = definition.decide(case_from(case.streams, case.occurrences, case.atoms, **rest))
        assert UNKNOWN in (mine, plain) or mine == plain, f"seed {number}: {case.sql}"


def test_verdicts_are_mixed() -> None:
    cases = [random_time_case(random.Random(seed)) for seed in range(500)]
    verdicts = Counter(decide(case) for case in cases)
    assert verdicts[BOUNDED] > 200
    assert verdicts[UNBOUNDED] > 150
    assert verdicts[UNKNOWN] < 25
    orders = [order for case in cases if (order := time_order(case)) is not None]
    assert len(orders) > 480
    assert sum(bool(order.latest) for order in orders) > 25
    assert sum(len(order.before) >= 6 for order in orders) > 120  # three in a chain and more


# --- the generator and the fronts ---------------------------------------------------------------------


def test_cases_and_rows_repeat() -> None:
    case = random_time_case(random.Random(7), self_join=0.5)
    assert case == random_time_case(random.Random(7), self_join=0.5)
    case = random_time_case(random.Random(8))
    rows = random_time_rows(random.Random(7), case, 200, nulls=0.1)
    assert rows == random_time_rows(random.Random(7), case, 200, nulls=0.1)
    at = [row[case.times[stream]] for stream, row in rows]
    assert at == sorted(at)
    crowds = [sum(bool(own) for own in step.values()) for step in time_steps(case, rows)]
    assert max(crowds) > 1  # streams share timestamps


def run_of(case: TimeCase, rows: Sequence[tuple[str, TimeRow]]) -> tuple[list[Any], list[Any]]:
    """The answers of the fronts and of DuckDB after every time step."""
    fronts = ReferenceFronts(case)
    seen: dict[str, list[TimeRow]] = {name: [] for name in case.streams}
    mine, inputs = [], []
    for step in time_steps(case, rows):
        fronts.step(step)
        mine.append(Counter(fronts.emitted))
        seen = {name: [*before, *step[name]] for name, before in seen.items()}
        inputs.append(seen)
    return mine, list(answers(case.sql, case.catalog, inputs))


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(0, 160, 16))
def test_fronts_answer_as_duckdb(seed: int) -> None:
    for number in range(seed, seed + 16):
        rng = random.Random(number)
        case = random_time_case(rng, aggregate=0, self_join=0.1)
        rows = random_time_rows(rng, case, rng.randint(6, 18), nulls=rng.choice([0, 0.1]))
        mine, truth = run_of(case, rows)
        assert mine == truth, f"seed {number}: {case.sql}"


def test_the_papers_run() -> None:
    def row(stream: str, second: int, **values: int) -> tuple[str, TimeRow]:
        clock = {"S": "I", "T": "J", "U": "K"}[stream]
        return stream, {"A2": 0, "B2": 0, **values, clock: at_second(second)}

    rows = [
        row("S", 0, A=42),
        row("T", 0, B=7),
        row("U", 1, C=1),
        row("T", 2, B=2),
        row("U", 3, C=3),
        row("T", 4, B=1),
        row("S", 5, A=42),
        row("T", 5, B=3),
    ]
    kept = {"S": ("A", "A2", "I"), "T": ("B", "B2", "J"), "U": ("C", "K")}
    rows = [(stream, {c: values[c] for c in kept[stream]}) for stream, values in rows]
    mine, truth = run_of(timed(EXAMPLE, CHAIN, [A, B]), rows)
    assert mine == truth
    assert mine[-1] == Counter({(42, 2): 1, (42, 1): 2})
    assert not mine[-2]


@pytest.mark.parametrize("seed", range(0, 80, 10))
def test_fronts_of_bounded_queries_stay_flat(seed: int) -> None:
    for number in range(seed, seed + 10):
        case = random_time_case(random.Random(number))
        if decide(case) == BOUNDED:
            grown = growing_run(case, random.Random(number), runs=3, steps=30)
            assert grown is None, f"seed {number}: {case.sql}\n{grown}"


def test_fronts_of_the_counterexamples_to_theorem_2() -> None:
    rows = [(e["stream"], {**e["row"]}) for e in witness(20)["setup"] + witness(20)["universe"]]
    for stream, row in rows:
        row[UNSOUND.times[stream]] = datetime.fromisoformat(row[UNSOUND.times[stream]])
    fronts = ReferenceFronts(UNSOUND)
    for step in time_steps(UNSOUND, sorted(rows, key=lambda r: r[1][UNSOUND.times[r[0]]])):
        fronts.step(step)
    assert fronts.size() >= 20
    too_strict = timed([(C, "<", B), (B, "<", A)], [("U", "<", "T")], distinct=True)
    assert growing_run(too_strict, random.Random(0), runs=10, steps=40) is None
    assert max(greedy_sizes(too_strict, random.Random(0), 40)) < 10


def test_fronts_of_unbounded_queries_grow() -> None:
    equality = timed([(A, "=", B)], CHAIN)
    sizes = [max(front_sizes(equality, random.Random(seed), 60)) for seed in range(20)]
    assert max(sizes) > 15
    assert growing_run(equality, random.Random(0), runs=20, steps=30) is not None


# --- the clock of witnesses ---------------------------------------------------------------------------

UNSOUND = timed([(A, ">", B), (E, ">", C)], [("T", ">", "U")], sources="STUV", distinct=True)


def entry(stream: str, second: int, **values: int) -> dict[str, Any]:
    clock = {"S": "I", "T": "J", "U": "K", "V": "L"}[stream]
    own = dict.fromkeys(STREAMS[stream], 0)
    return {"stream": stream, "row": {**own, **values, clock: at_second(second).isoformat()}}


def witness(n: int, *, probe: int = 100) -> dict[str, Any]:
    """Rounds of U and, where it is in the subset, T; test k is passed by the k-th T alone."""
    return {
        "setup": [entry("U", 2 * i, C=-i) for i in range(n)],
        "universe": [entry("T", 2 * i + 1, B=i) for i in range(n)],
        "probes": [[entry("S", probe, A=k + 1), entry("V", probe + 1, E=-k + 1)] for k in range(n)],
        "compare": "emitted",
    }


def test_a_time_witness_is_confirmed() -> None:
    assert confirm_time_witness(UNSOUND.sql, UNSOUND.catalog, witness(5)) is None


def test_a_witness_against_the_clock_is_refused() -> None:
    def refusal(changed: dict[str, Any]) -> str:
        return confirm_time_witness(UNSOUND.sql, UNSOUND.catalog, changed) or ""

    good = witness(5)
    assert "lies before" in refusal(witness(5, probe=4))
    assert "universe decrease" in refusal({**good, "universe": good["universe"][::-1]})
    assert "setup decrease" in refusal({**good, "setup": good["setup"][::-1]})
    crowd = [entry("T", 50, B=i) for i in range(5)]
    assert "share the timestamp" in refusal({**good, "universe": crowd})
    assert "yields the same" in refusal({**good, "probes": [good["probes"][0]] * 5})


def test_a_relation_does_not_change() -> None:
    ddl = "CREATE TABLE R (K INT); CREATE STREAMING TABLE S (A INT, I TIMESTAMP);"
    sql = f"{ddl} SELECT A FROM S, R WHERE A = K"
    catalog = {"R": [("K", "INT")], "S": [("A", "INT"), ("I", "TIMESTAMP")]}
    row = {"stream": "R", "row": {"K": 1}}
    probe = [{"stream": "S", "row": {"A": 1, "I": datetime(2020, 1, 1)}}]
    broken = {"setup": [], "universe": [row], "probes": [probe], "compare": "emitted"}
    assert "relation R" in (confirm_time_witness(sql, catalog, broken) or "")

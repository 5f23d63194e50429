"""Self-joins under DISTINCT: occurrences that say nothing new go, all others stay."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import product

import pytest

from millpond.analysis.decide import decide
from millpond.analysis.join_criteria import decide_existence_join
from millpond.analysis.regions import JoinRegions
from millpond.analysis.self_joins import (
    PieceSplit,
    has_self_join,
    remove_covered_occurrences,
    split_into_bounded_pieces,
)
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, UNDETERMINED
from millpond.analysis.violations import Violation, ViolationCode
from millpond.frontend.parse import parse
from millpond.query.evaluate import Matcher, compile_expression
from millpond.query.expressions import Ref
from millpond.query.model import Select
from millpond.query.parts import Part, split_disjunctions, split_into_parts
from millpond.query.trees import item_refs
from tests.support.generate import Case, Row, by_stream, random_case, random_rich_case, random_rows

DDL = """
CREATE STREAMING TABLE S (A INT, B INT, C INT, D INT, O BOOLEAN, I TINYINT NOT NULL, N INT NOT NULL);
CREATE STREAMING TABLE T (E INT, F INT);
"""


def select_of(sql: str) -> Select:
    [query] = parse(DDL + sql)
    [select] = query.selects
    return select


def projected(select: Select) -> tuple[Ref, ...]:
    return tuple(sorted(item_refs(select.items), key=str))


def reduced(sql: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The occurrences that are left, and the columns that are projected from them."""
    select = select_of(sql)
    [part] = split_into_parts(select, disjoint=False)
    left, refs = remove_covered_occurrences(part, projected(select))
    return left.aliases, tuple(map(str, refs))


def outcome(sql: str) -> str:
    [query] = parse(DDL + sql)
    return decide(query).outcome


EXAMPLE_8_1 = "FROM S x, S y WHERE x.A = 10 AND x.A = y.A AND x.B = y.B AND x.B > 10"


def test_example_8_1() -> None:
    sql = f"SELECT DISTINCT x.A {EXAMPLE_8_1}"
    assert reduced(sql) == (("y",), ("y.A",))
    assert outcome(sql) == BOUNDED
    assert outcome(f"SELECT x.A {EXAMPLE_8_1}") == UNBOUNDED  # with duplicates both are counted


def test_example_8_1_with_columns_that_matter_nowhere() -> None:
    # S has C, D, O, I and N besides: none is mentioned, none gets in the way.
    [part] = split_into_parts(select_of(f"SELECT DISTINCT x.A {EXAMPLE_8_1}"), disjoint=False)
    assert {n.ref.column for n in part.closure.nodes} == {"A", "B"}
    # Mentioned in one place it still gets out of the way, and the occurrence that says less goes.
    assert reduced(f"SELECT DISTINCT x.A {EXAMPLE_8_1} AND y.C > 5") == (("y",), ("y.A",))
    assert reduced(f"SELECT DISTINCT x.A {EXAMPLE_8_1} AND x.C > 5") == (("x",), ("x.A",))
    assert outcome(f"SELECT DISTINCT x.A {EXAMPLE_8_1} AND x.C > 5 AND y.D < 3") != BOUNDED


def test_some_row_has_two_equal_columns() -> None:
    sql = "SELECT DISTINCT 1 FROM S x, S y WHERE x.B = x.C AND x.B = y.C"
    assert reduced(sql) == (("x",), ())
    assert outcome(sql) == BOUNDED
    assert outcome("SELECT DISTINCT 1 FROM S x, S y WHERE x.B = y.C") == UNBOUNDED


@pytest.mark.parametrize(
    ("sql", "left"),
    [
        # x < y says nothing of y alone: neither stands for the other.
        ("SELECT DISTINCT 1 FROM S x, S y WHERE x.A < y.A", "xy"),
        ("SELECT DISTINCT 1 FROM S x, S y WHERE x.A <= y.A", "y"),
        ("SELECT DISTINCT 1 FROM S x, S y WHERE x.A <= y.A + 1", "y"),
        ("SELECT DISTINCT 1 FROM S x, S y WHERE x.A <= y.A - 1", "xy"),
        ("SELECT DISTINCT 1 FROM S x, S y WHERE x.A <= y.A AND x.A > 3", "y"),
        ("SELECT DISTINCT 1 FROM S x, S y WHERE x.A <= y.A AND y.A < 3", "y"),
        ("SELECT DISTINCT 1 FROM S x, S y WHERE x.A <= y.B", "xy"),
        # Without any condition on y every row serves.
        ("SELECT DISTINCT x.A FROM S x, S y WHERE x.A = 1", "x"),
        ("SELECT DISTINCT x.A FROM S x, S y, S z WHERE x.A = 1 AND y.A > 0 AND z.A >= 1", "x"),
        ("SELECT DISTINCT 1 FROM S x, S y, T WHERE x.A < E AND y.A < E", "yT"),
        ("SELECT DISTINCT 1 FROM S x, S y, T WHERE x.A < E AND y.A < F AND E <= F", "xT"),
        ("SELECT DISTINCT 1 FROM S x, S y, T WHERE x.A < E AND y.B < F", "xyT"),
        # Different streams are never each other.
        ("SELECT DISTINCT 1 FROM S, T WHERE A = E AND B = F", "ST"),
    ],
)
def test_covered_occurrences(sql: str, left: str) -> None:
    aliases, _ = reduced(sql)
    assert "".join(aliases) == left


@pytest.mark.parametrize(
    ("sql", "left"),
    [
        ("SELECT DISTINCT x.B FROM S x, S y WHERE x.A = 1 AND y.A = 1", "x"),
        ("SELECT DISTINCT x.B, y.B FROM S x, S y WHERE x.A = 1 AND y.A = 1", "xy"),
        ("SELECT DISTINCT x.B, y.B FROM S x, S y WHERE x.A = 1 AND y.A = 1 AND x.B = y.B", "y"),
        ("SELECT DISTINCT x.B, y.C FROM S x, S y WHERE x.A = 1 AND y.A = 1 AND x.B = y.B", "y"),
        ("SELECT DISTINCT x.B, y.C FROM S x, S y WHERE x.A = 1 AND y.A = 1 AND x.B = y.C", "xy"),
    ],
)
def test_projections_that_forbid_it(sql: str, left: str) -> None:
    aliases, _ = reduced(sql)
    assert "".join(aliases) == left


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("x.A <> y.A", "xy"),
        ("x.A <> y.A + 1", "y"),  # a row differs from itself plus one
        ("x.A <> 3", "x"),
        ("x.A <> 3 AND y.A <> 3", "y"),
        ("x.A <> 3 AND y.A > 3", "y"),
        ("x.A <> 3 AND y.A > 2", "xy"),
        ("x.A <> 3 AND y.A = 2", "y"),
        ("x.A <> 3 AND y.A = 3", "xy"),
        ("x.A <> 3 AND y.A <> 4", "xy"),
        ("x.A IS NULL", "x"),
        ("x.A IS NULL AND y.A IS NULL", "y"),
        ("x.A IS NULL AND y.A = 1", "xy"),
        ("x.A IS NOT NULL AND y.A IS NOT NULL", "y"),
        ("x.A IS NOT NULL", "x"),
        ("(x.A = 1 OR x.B = 2)", "x"),
        ("(x.A = 1 OR x.B = 2) AND (y.A = 1 OR y.B = 2)", "y"),
        ("(x.A = 1 OR x.B = 2) AND (y.A = 1 OR y.B = 3)", "xy"),
        ("x.A IN (1, 2) AND y.A IN (1, 2) AND y.B > 0", "y"),
        ("x.I < 5", "x"),
        ("x.N < 5", "x"),
        ("x.O AND y.O", "y"),
    ],
)
def test_disequalities_and_filters(where: str, left: str) -> None:
    aliases, _ = reduced(f"SELECT DISTINCT 1 FROM S x, S y WHERE {where}")
    assert "".join(aliases) == left


def test_a_self_join_is_of_one_stream() -> None:
    def has(sql: str) -> bool:
        [part] = split_into_parts(select_of(sql), disjoint=False)
        return has_self_join(part)

    assert has("SELECT DISTINCT 1 FROM S x, T, S y WHERE x.A < E AND y.A < E")
    assert not has("SELECT DISTINCT 1 FROM S x, T WHERE x.A < E")


# --- the same set of results --------------------------------------------------------------------------


def results(part: Part, select: Select, rows: dict[str, list[Row]]) -> set[tuple[object, ...]]:
    """What the select projects from the matches of a part of it."""
    tables = {o.alias: o.table.name for o in part.select.occurrences}
    matcher = Matcher(part.aliases, part.condition)
    items = [compile_expression(part.rewrite(i.expression), matcher.slots) for i in select.items]
    found = matcher.matches([rows[tables[a]] for a in part.aliases])
    return {tuple(item(match) for item in items) for match in found}


def violations(part: Part, refs: Sequence[Ref]) -> list[Violation]:
    return decide_existence_join(JoinRegions(part), refs, ViolationCode.UNBOUNDED_PROJECTION)


def self_join_selects(seeds: Iterable[int]) -> list[tuple[int, Case, Select]]:
    out = []
    for seed in seeds:
        case = random_case(random.Random(seed), self_join=1.0, aggregate=0.0, distinct=1.0, max_columns=2)
        [query] = parse(case.sql)
        out.append((seed, case, query.selects[0]))
    return out


def test_what_is_left_has_the_same_results() -> None:
    changed = 0
    for seed, case, select in self_join_selects(range(250)):
        rng = random.Random(seed)
        inputs = [by_stream(case, random_rows(rng, case, 8, nulls=0.1, spread=1)) for _ in range(4)]
        for part in split_into_parts(select, disjoint=False):
            refs = projected(select)
            left, kept = remove_covered_occurrences(part, refs)
            changed += left is not part
            assert {r.occurrence for r in kept} <= set(left.aliases)
            for rows in inputs:
                assert results(left, select, rows) == results(part, select, rows), f"{seed}: {case.sql}"
    assert changed > 50


def test_what_is_left_has_the_same_results_with_filters_of_every_kind() -> None:
    changed = 0
    for seed in range(150):
        rng = random.Random(seed)
        case = random_rich_case(rng, max_streams=2, self_join=1.0, aggregate=0.0, union=0.0)
        [query] = parse(case.sql)
        [select] = query.selects
        inputs = [by_stream(case, random_rows(rng, case, 8, nulls=0.2)) for _ in range(3)]
        for part in split_into_parts(select, disjoint=False)[:4]:
            for piece in (part, *split_disjunctions(part)[:4]):
                left, _ = remove_covered_occurrences(piece, projected(select))
                changed += left is not piece
                for rows in inputs:
                    assert results(left, select, rows) == results(piece, select, rows), f"{seed}: {case.sql}"
    assert changed > 10


# --- pieces -------------------------------------------------------------------------------------------


def pieces_of(sql: str) -> PieceSplit:
    select = select_of(sql)
    [part] = split_into_parts(select, disjoint=False)
    return split_into_bounded_pieces(part, projected(select), violations)


SPLIT = [
    "SELECT DISTINCT 1 FROM S x, S y, T WHERE x.A <= E AND E >= 2 AND x.B < y.A AND x.B <= E",
    "SELECT DISTINCT 1 FROM S x, S y WHERE x.B > y.A AND x.B <= -1 AND x.B <= y.B",
    "SELECT DISTINCT 1 FROM S x, S y, T WHERE E >= x.B AND F >= y.B",
    "SELECT DISTINCT y.B FROM S x, S y, S z "
    "WHERE y.B >= 1 AND x.B >= y.B AND x.B > z.B AND x.A > y.A AND y.B < 3",
    "SELECT DISTINCT E FROM S x, S y, T WHERE x.B >= y.B AND E = 4 AND x.A < y.B AND y.B <= E",
]


@pytest.mark.parametrize("sql", SPLIT)
def test_pieces_together_have_the_results_of_the_part(sql: str) -> None:
    select = select_of(sql)
    [part] = split_into_parts(select, disjoint=False)
    assert violations(*remove_covered_occurrences(part, projected(select)))  # removing alone is not enough
    pieces = split_into_bounded_pieces(part, projected(select), violations)
    assert pieces.complete and not pieces.failing and len(pieces.bounded) > 1
    assert all(violations(p, refs) == [] for p, refs in pieces.bounded)
    assert outcome(sql) == BOUNDED
    rng = random.Random(sql)
    columns = {o.table.name: [c.name for c in o.table.columns] for o in select.occurrences}
    alone = [0] * len(pieces.bounded)
    for _ in range(60):
        rows: dict[str, list[Row]] = {
            name: [{c: rng.randint(-4, 5) for c in listed} for _ in range(rng.randint(1, 4))]
            for name, listed in columns.items()
        }
        found = [results(p, select, rows) for p, _ in pieces.bounded]
        expected = results(part, select, rows)
        assert set().union(*found) == expected
        for i, mine in enumerate(found):
            alone[i] += bool(mine)
    assert any(0 < count < 60 for count in alone)


def test_a_part_that_is_bounded_is_one_piece() -> None:
    pieces = pieces_of("SELECT DISTINCT 1 FROM S x, S y WHERE x.A < y.A")
    assert len(pieces.bounded) == 1 and not pieces.failing


def test_a_piece_that_fails_is_fully_ordered() -> None:
    pieces = pieces_of("SELECT DISTINCT 1 FROM S x, S y, S z WHERE x.A < y.A AND y.A < z.A")
    assert pieces.bounded == () and pieces.failing and pieces.complete
    assert {v.code for _, v in pieces.failing} == {"conflicting-references"}
    assert outcome("SELECT DISTINCT 1 FROM S x, S y, S z WHERE x.A < y.A AND y.A < z.A") == UNDETERMINED


def test_the_number_of_pieces_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.analysis.self_joins.MAX_PIECES", 3)
    names = "ABCD"
    where = " AND ".join(
        f"x.{p} < y.{q} + {i}" for i, (p, q) in enumerate(product(names, repeat=2)) if p != q
    )

    def never(part: Part, refs: Sequence[Ref]) -> list[Violation]:
        """Every piece that still holds two occurrences fails, but only once it is fully ordered."""
        return violations(part, refs) or [
            Violation(ViolationCode.CONFLICTING_REFERENCES, part.aliases[0], (), (), ())
        ]

    select = select_of(f"SELECT DISTINCT 1 FROM S x, S y WHERE {where}")
    [part] = split_into_parts(select, disjoint=False)
    pieces = split_into_bounded_pieces(part, (), never)
    assert pieces.failing and not pieces.complete


def test_an_extreme_of_a_column_that_the_covering_occurrence_does_not_mention() -> None:
    streams = "CREATE STREAMING TABLE T (D INT, E INT); CREATE STREAMING TABLE S (A INT, C INT);"
    query = "SELECT MIN(x.E) FROM T x, T y, S WHERE S.A > x.D AND S.C > y.D AND S.C > 1"
    assert decide(parse(streams + query)[0]).outcome == UNBOUNDED

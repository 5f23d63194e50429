"""How much is kept: sizes counted by hand, classes that compare alike, and a law of merging."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import pytest

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.frontend.parse import parse
from millpond.plan.classes import (
    ABOVE,
    BELOW,
    NULL,
    ColumnClasses,
    NoPlanError,
    PartnerRange,
    build_clamped_classes,
    build_exact_classes,
)
from millpond.plan.state import Kept
from millpond.plan.synopses import AMONG, OVER, UNDER, Extreme, count_alternatives, zone_size
from millpond.query.expressions import Ref
from millpond.query.parts import Part, split_into_parts
from tests.support.generate import Case, RichCase, random_case, random_rich_case, random_rows
from tests.support.naive import Naive
from tests.support.oracle import normalise

DDL = """
CREATE STREAMING TABLE S (A INT, B INT, C INT);
CREATE STREAMING TABLE T (D INT, E INT);
CREATE STREAMING TABLE U (F INT NOT NULL, N STRING, O BOOLEAN, I TINYINT NOT NULL, X DOUBLE, M DECIMAL(4,1));
CREATE STREAMING TABLE H (hour INT CHECK (hour BETWEEN 0 AND 23), kind INT CHECK (kind IN (1, 2, 7)),
                          level INT NOT NULL CHECK (level > 0 AND level <= 5), v INT);
"""


def verdict_of(sql: str) -> Verdict:
    [query] = parse(DDL + sql)
    verdict = decide(query)
    assert verdict.outcome == BOUNDED, sql
    return verdict


def sizes(sql: str) -> dict[str, int]:
    """Entries by occurrence; what is remembered of the answer under "answer"."""
    verdict = verdict_of(sql)
    out: dict[str, int] = {}
    for kept in verdict.state.streams:
        key = kept.alias or "answer"
        assert kept.entries is not None and kept.bytes is not None and kept.bytes >= 8 * kept.entries
        out[key] = out.get(key, 0) + kept.entries
    assert verdict.state.entries == sum(out.values())
    assert verdict.state.bytes == sum(kept.bytes or 0 for kept in verdict.state.streams)
    return out


def kept_of(sql: str, alias: str) -> list[Kept]:
    return [kept for kept in verdict_of(sql).state.streams if kept.alias == alias]


# --- Table I ------------------------------------------------------------------------------------------

Q3 = "A FROM S, T WHERE A = D AND A > 10 AND D < 20"
Q4 = "A FROM S, T WHERE B < D AND A = 10"
Q6 = "A FROM S, T WHERE B < D AND C < E AND B < E AND C < D AND A = 10"
Q7 = "A FROM S, T WHERE B < D AND D > 10 AND B < 20 AND A = 10"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        pytest.param(f"SELECT {Q3}", {"S": 9, "T": 9}, id="Q3"),
        pytest.param(f"SELECT DISTINCT {Q3}", {"S": 9, "T": 9, "answer": 9}, id="Q3 distinct"),
        pytest.param(f"SELECT DISTINCT {Q4}", {"S": 1, "T": 1, "answer": 1}, id="Q4 distinct"),
        pytest.param(f"SELECT DISTINCT {Q6}", {"S": 1, "T": 1, "answer": 1}, id="Q6 distinct"),
        pytest.param(f"SELECT {Q7}", {"S": 10, "T": 10}, id="Q7"),
        pytest.param(f"SELECT DISTINCT {Q7}", {"S": 1, "T": 1, "answer": 1}, id="Q7 distinct"),
    ],
)
def test_table_1(sql: str, expected: dict[str, int]) -> None:
    assert sizes(sql) == expected
    assert sum(expected.values()) <= (27 if "A = D" in sql else 20)


def test_table_1_in_words() -> None:
    [s] = kept_of(f"SELECT {Q7}", "S")
    assert [(c.name, c.classes, c.description) for c in s.columns] == [
        ("A", 1, "10"),
        ("B", 10, "11 to 19, all below"),
    ]
    assert s.keeps == ("count",)
    [t] = kept_of(f"SELECT {Q7}", "T")
    assert [(c.name, c.classes, c.description) for c in t.columns] == [("D", 10, "11 to 19, all above")]
    [s] = kept_of(f"SELECT DISTINCT {Q6}", "S")
    assert s.keeps == ("row with the smallest max(B, C)",)
    [t] = kept_of(f"SELECT DISTINCT {Q6}", "T")
    assert t.keeps == ("row with the largest min(D, E)",)


# --- counting classes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT A FROM S WHERE A > 10", {}),  # answered row by row
        ("SELECT 1 FROM S, T", {"S": 1, "T": 1}),
        ("SELECT DISTINCT 1 FROM S, T", {"S": 1, "T": 1, "answer": 1}),
        # IN lists, also overlapping ones and in ranges
        ("SELECT DISTINCT A FROM S WHERE A IN (1, 5, 9, 5)", {"answer": 3}),
        ("SELECT DISTINCT A FROM S WHERE A IN (1, 5, 9) OR A BETWEEN 4 AND 6", {"answer": 5}),
        ("SELECT DISTINCT A FROM S WHERE A IN (1, 50, 99) AND A < 60", {"answer": 2}),
        ("SELECT DISTINCT A, B FROM S WHERE A IN (1, 5, 9) AND B BETWEEN 0 AND 4", {"answer": 15}),
        ("SELECT A, COUNT(*) FROM S WHERE A IN (1, 5, 9) GROUP BY A", {"S": 3}),
        ("SELECT DISTINCT N FROM U WHERE N IN ('a', 'b')", {"answer": 2}),
        ("SELECT DISTINCT X FROM U WHERE X IN (0.5, 1.5, 1.5)", {"answer": 2}),
        ("SELECT DISTINCT M FROM U WHERE M BETWEEN 0 AND 1", {"answer": 11}),
        ("SELECT DISTINCT M FROM U WHERE M > 0.1 AND M < 0.3", {"answer": 1}),
        # CHECK does not exclude NULL; a comparison does, and NOT NULL does
        ("SELECT DISTINCT hour FROM H", {"answer": 25}),
        ("SELECT DISTINCT hour FROM H WHERE hour > 0", {"answer": 23}),
        ("SELECT DISTINCT hour FROM H WHERE hour IS NOT NULL", {"answer": 24}),
        ("SELECT DISTINCT hour FROM H WHERE hour IS NULL", {"answer": 1}),
        ("SELECT DISTINCT level FROM H", {"answer": 5}),
        ("SELECT hour, level, SUM(v) FROM H GROUP BY hour, level", {"H": 125}),
        ("SELECT DISTINCT kind FROM H WHERE kind > 1", {"answer": 2}),
        ("SELECT DISTINCT kind FROM H", {"answer": 4}),
        # NULL is a class of its own
        ("SELECT DISTINCT O FROM U", {"answer": 3}),
        ("SELECT DISTINCT O FROM U WHERE O OR NOT O", {"answer": 2}),
        ("SELECT DISTINCT O, I FROM U", {"answer": 3 * 256}),
        ("SELECT O, COUNT(*) FROM U GROUP BY O", {"U": 3}),
        ("SELECT DISTINCT N FROM U WHERE N IN ('a', 'b') OR N IS NULL", {"answer": 3}),
        # one of two columns at a fixed distance is enough
        ("SELECT A, D FROM S, T WHERE A = D + 1 AND A > 0 AND A < 3", {"S": 2, "T": 2}),
        ("SELECT DISTINCT A, B FROM S WHERE A = B - 2 AND A BETWEEN 1 AND 6", {"answer": 6}),
        # clamping: beyond what its partner can be, all values are alike
        ("SELECT 1 FROM S, T WHERE B < D AND D > 10 AND B < 12", {"S": 2, "T": 2}),
        ("SELECT 1 FROM S, T WHERE B <= D AND D > 10 AND B < 12", {"S": 1, "T": 1}),
        ("SELECT 1 FROM S, T WHERE B < D + 5 AND D > 10 AND B < 20", {"S": 5, "T": 5}),
        ("SELECT 1 FROM S, T WHERE B <> D AND B > 0 AND D < 5", {"S": 5, "T": 5}),
        ("SELECT 1 FROM S, T WHERE B <> D AND B > 0 AND D < 0", {"S": 1, "T": 1}),
        ("SELECT SUM(B) FROM S, T WHERE A < 20 AND D < 20 AND A > 10", {"S": 1, "T": 1, "answer": 1}),
        # rows that a <> may refuse
        ("SELECT DISTINCT 1 FROM S, T WHERE B <> D", {"S": 2, "T": 2, "answer": 1}),
        ("SELECT DISTINCT 1 FROM S, T WHERE B <> D AND C <> E", {"S": 5, "T": 5, "answer": 1}),
        ("SELECT DISTINCT 1 FROM S, T WHERE B < D AND C <> E", {"S": 2, "T": 2, "answer": 1}),
        # MEDIAN and COUNT(DISTINCT) keep a count, or the presence, of each value
        ("SELECT MEDIAN(A) FROM S WHERE A BETWEEN 1 AND 3", {"S": 3}),
        ("SELECT COUNT(DISTINCT A) FROM S WHERE A IN (1, 3, 7)", {"S": 3}),
        ("SELECT MAX(A) FROM S", {"S": 1}),
        ("SELECT MAX(A) FROM S, T WHERE A > D", {"S": 1, "T": 1, "answer": 1}),
    ],
)  # fmt: skip
def test_sizes(sql: str, expected: dict[str, int]) -> None:
    assert sizes(sql) == expected


def test_rows_enough_for_disequalities() -> None:
    assert [count_alternatives(k) for k in range(5)] == [1, 2, 5, 16, 65]


def test_aggregates_share_a_synopsis() -> None:
    where = "FROM S, T WHERE B = D AND B BETWEEN 1 AND 4"
    together = f"SELECT COUNT(*), SUM(A), AVG(A), COUNT(A), SUM(E) {where}"
    assert sizes(together) == {"S": 4, "T": 4, "answer": 1}
    [s], [t] = kept_of(together, "S"), kept_of(together, "T")
    assert s.keeps == ("count", "sum of A", "count of A")
    assert t.keeps == ("count", "sum of E")
    # An extreme keeps rows instead: beside the counts, not in them.
    assert sizes(f"SELECT SUM(A), MAX(A), MAX(A) - MIN(A) {where}") == {"S": 12, "T": 8, "answer": 1}
    assert [k.keeps for k in kept_of(f"SELECT B, MAX(A) {where} GROUP BY B", "S")] == [
        ("row with the largest A",)
    ]


def test_a_union_keeps_the_sum_of_its_parts() -> None:
    assert sizes(
        "SELECT DISTINCT A FROM S WHERE A IN (1, 2) UNION ALL SELECT DISTINCT D FROM T WHERE D = 1"
    ) == {"answer": 3}
    assert sizes(f"SELECT {Q7} UNION ALL SELECT {Q7}") == {"S": 20, "T": 20}


# --- codes --------------------------------------------------------------------------------------------


def part_of(where: str, items: str = "1") -> Part:
    [query] = parse(f"{DDL}SELECT {items} FROM S, T, U WHERE {where}")
    [part] = split_into_parts(query.selects[0], disjoint=True)
    return part


def test_classes_of_a_code() -> None:
    code = ColumnClasses(Ref("S", "B"), Fraction(3), Fraction(5), 3, below=True, above=True, null=True)
    assert code.classes == 6
    assert [code.of(Fraction(x)) for x in (2, 3, 5, 6)] == [BELOW, 3, 5, ABOVE]
    assert code.of(None) == NULL
    assert [zone_size(code, zone) for zone in (UNDER, AMONG, OVER)] == [1, 3, 1]
    grid = ColumnClasses(
        Ref("U", "X"), Fraction(0), Fraction(4), 9, True, True, False, (Fraction(1, 2), Fraction(1))
    )
    found = [grid.of(Fraction(x, 4)) for x in (0, 1, 2, 3, 5, 6, 7)]
    assert found == [0, 0, Fraction(1, 2), 1, 1, Fraction(3, 2), 2]
    assert grid.of(Fraction(-1, 9)) == BELOW and grid.of(Fraction(9, 2)) == ABOVE


def test_exact_codes() -> None:
    part = part_of("B BETWEEN 3 AND 7 AND C IS NULL AND A < D", "B, C, O")
    assert build_exact_classes(part, Ref("S", "B")).classes == 5
    assert build_exact_classes(part, Ref("S", "C")).classes == 1
    assert build_exact_classes(part, Ref("U", "O")).classes == 3
    assert build_exact_classes(part, Ref("U", "O"), nullable=False).classes == 2
    with pytest.raises(NoPlanError, match=r"S\.A is unbounded"):
        build_exact_classes(part, Ref("S", "A"))


def test_clamped_classes_distinguish_only_what_partners_distinguish() -> None:
    # B < D with D in 3..6: B up to 2 passes always, B from 6 on never.
    part = part_of("B < D AND D BETWEEN 3 AND 6 AND A < 100")
    code = build_clamped_classes(part, Ref("S", "A"), [PartnerRange(Fraction(3), Fraction(5), Fraction(1))])
    assert code.low == 3 and code.high == 5 and code.values == 3 and code.below and code.above
    for x, y in product(range(-3, 110), repeat=2):
        alike = all((x < d) == (y < d) for d in range(4, 6 + 1)) and (x > 5) == (y > 5) and (x < 3) == (y < 3)
        assert (code.of(Fraction(x)) == code.of(Fraction(y))) == alike
    two = build_clamped_classes(
        part,
        Ref("S", "A"),
        [PartnerRange(Fraction(3), Fraction(5), Fraction(1)), PartnerRange(Fraction(98), None, Fraction(1))],
    )
    assert two.low == 3 and two.high == 99 and two.below and not two.above
    with pytest.raises(NoPlanError, match="unbounded"):
        build_clamped_classes(part, Ref("S", "A"), [PartnerRange(None, None, Fraction(1))])
    with pytest.raises(NoPlanError, match="infinitely many"):
        build_clamped_classes(
            part_of("X > F"), Ref("U", "X"), [PartnerRange(Fraction(0), Fraction(1), Fraction(0))]
        )


def test_a_dense_column_beside_integers_has_classes_between_them() -> None:
    part = part_of("X > B AND B BETWEEN 0 AND 2")
    code = build_clamped_classes(part, Ref("U", "X"), [PartnerRange(Fraction(0), Fraction(2), Fraction(1))])
    points = [Fraction(k, 4) for k in range(-2, 12)]
    for x, y in product(points, repeat=2):
        alike = all((x > b) == (y > b) and (x >= b) == (y >= b) for b in range(3))
        assert (code.of(x) == code.of(y)) == alike
    assert len({code.of(x) for x in points}) <= code.classes


def test_requirements_of_rows() -> None:
    # x - z <= -1 and y - z <= 2: the row asks z to be at least max(x + 1, y - 2).
    slacks = (((Fraction(-1), False), (Fraction(2), False)),)
    lower = Extreme(True, (Ref("S", "B"), Ref("S", "C")), (Ref("T", "D"),), slacks, 1)
    assert lower.requirements([Fraction(3), Fraction(9)]) == ((Fraction(7), False),)
    assert lower.requirements([Fraction(9), Fraction(9)]) == ((Fraction(10), False),)
    upper = Extreme(False, (Ref("S", "B"), Ref("S", "C")), (Ref("T", "D"),), slacks, 1)
    assert [d[0] for d in upper.requirements([Fraction(3), Fraction(9)])] == [2]
    strict = Extreme(
        True, (Ref("U", "X"),) * 2, (Ref("U", "X"),), (((Fraction(0), False), (Fraction(0), True)),), 1
    )
    assert strict.requirements([Fraction(1), Fraction(1)]) == ((Fraction(1), True),)


# --- a law --------------------------------------------------------------------------------------------


def bounded_cases() -> list[tuple[int, Case | RichCase, Verdict]]:
    out: list[tuple[int, Case | RichCase, Verdict]] = []
    for seed in range(90):
        rng = random.Random(seed)
        case: Case | RichCase = random_case(rng) if seed % 2 else random_rich_case(rng)
        verdict = decide(parse(case.sql)[0])
        if verdict.outcome == BOUNDED:
            out.append((seed, case, verdict))
    return out


def test_the_order_of_rows_does_not_matter() -> None:
    cases = bounded_cases()
    answered = 0
    for seed, case, verdict in cases:
        assert verdict.plan is not None and verdict.state.entries is not None
        rng = random.Random(seed)
        rows = random_rows(rng, case, 18, nulls=0.1, spread=1)
        answers = []
        for order in (rows, rows[::-1], rng.sample(rows, len(rows))):
            naive = Naive(verdict.plan)
            for stream, row in order:
                naive.add(stream, row)
                assert naive.entries() <= verdict.state.entries
            answers.append({normalise(row): n for row, n in naive.answer().items()})
        assert answers[0] == answers[1] == answers[2], f"seed {seed}: {case.sql}"
        answered += bool(answers[0])
    assert len(cases) > 30 and answered > 15


def test_requirements_that_differ_by_join_keep_a_row_for_each_difference() -> None:
    """(5, 3) requires Z >= 5 and W >= 6 of its partners, (3, 5) the reverse: neither replaces the other."""
    streams = "CREATE STREAMING TABLE S (X INT, Y INT); CREATE STREAMING TABLE T (Z INT, W INT);"
    [query] = parse(streams + "SELECT DISTINCT 1 FROM S, T WHERE X <= Z AND Y < Z AND X < W AND Y <= W")
    verdict = decide(query)
    assert [kept.entries for kept in verdict.state.streams] == [3, 3, 1]
    assert verdict.plan is not None
    for z, w in ((5, 6), (6, 5)):
        naive = Naive(verdict.plan)
        for x, y in ((5, 3), (3, 5), (9, 9)):
            naive.add("S", {"X": x, "Y": y})
        naive.add("T", {"Z": z, "W": w})
        assert naive.answer() == {(1,): 1}

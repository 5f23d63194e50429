"""Certificates of growth: confirmed by DuckDB for every size, refused where they prove nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest

from millpond.analysis.decide import check, decide
from millpond.analysis.verdict import UNBOUNDED, Verdict
from millpond.analysis.witness.model import EXHAUSTIVE, StreamRow, Witness, is_confirmed
from millpond.analysis.witness.search import build_witness, find_witness
from millpond.errors import NotUnboundedError, WitnessSizeError
from millpond.frontend.parse import parse
from millpond.query.evaluate import compile_condition
from tests.support.generate import Catalog
from tests.support.oracle import confirm_witness

CATALOG: Catalog = {
    "S": [("A", "INT"), ("B", "INT"), ("C", "INT")],
    "T": [("D", "INT"), ("E", "INT")],
    "U": [("F", "INT"), ("G", "INT")],
    "V": [
        ("X", "DOUBLE"), ("L", "STRING"), ("W", "DATE"), ("M", "DECIMAL(10,2)"), ("K", "SMALLINT"),
        ("O", "BOOLEAN"),
    ],
    "Q": [
        ("Y", "DOUBLE"), ("N", "STRING"), ("Z", "DATE"), ("P", "DECIMAL(10,2)"), ("J", "SMALLINT"),
        ("R", "BIGINT"),
    ],
}  # fmt: skip
DDL = "".join(
    f"CREATE STREAMING TABLE {name} ({', '.join(f'{c} {t}' for c, t in columns)}); "
    for name, columns in CATALOG.items()
)


def verdict_of(sql: str, ddl: str = DDL) -> Verdict:
    [query] = parse(ddl + sql)
    return decide(query)


def refused(sql: str, witness: dict[str, Any], ddl: str = DDL) -> str | None:
    """What DuckDB has to say against a witness, its dates read as such."""
    days = {(name, c) for name, columns in CATALOG.items() for c, type_ in columns if type_ == "DATE"}

    def read(entry: dict[str, Any]) -> dict[str, Any]:
        stream, row = entry["stream"], entry["row"]
        dated = {c: date.fromisoformat(v) if (stream, c) in days and v else v for c, v in row.items()}
        return {"stream": stream, "row": dated}

    parsed = {
        "setup": [read(r) for r in witness["setup"]],
        "universe": [read(r) for r in witness["universe"]],
        "probes": [[read(r) for r in probe] for probe in witness["probes"]],
        "compare": witness["compare"],
    }
    return confirm_witness(ddl + sql, CATALOG, parsed)


# --- every reason, every aggregate --------------------------------------------------------------------

PROJECTION, GROUP, HOLISTIC = "unbounded-projection", "unbounded-group", "holistic-aggregate"
EQUALITY, INEQUALITY = "unbounded-equality-join", "counted-inequality-join"
DISEQUALITY, CONFLICT = "counted-disequality-join", "conflicting-references"

QUERIES: list[tuple[str, str]] = [
    (PROJECTION, "SELECT DISTINCT A FROM S WHERE A > 10"),
    (PROJECTION, "SELECT DISTINCT A - B FROM S WHERE B IN (1, 3)"),
    (PROJECTION, "SELECT A FROM S, T WHERE B = D AND B BETWEEN 1 AND 3"),
    (PROJECTION, "SELECT DISTINCT L FROM V WHERE L > 'a' AND L < 'b' AND O"),
    (PROJECTION, "SELECT A FROM S UNION SELECT D FROM T"),
    (EQUALITY, "SELECT 1 FROM S, T WHERE A = D"),
    (EQUALITY, "SELECT DISTINCT 1 FROM S, T WHERE A <= D AND A >= D AND B IS NULL"),
    (EQUALITY, "SELECT DISTINCT 1 FROM V, Q WHERE L = N AND X < 0.5"),
    (INEQUALITY, "SELECT A FROM S, T WHERE B < D AND A = 10"),
    (INEQUALITY, "SELECT 1 FROM V, Q WHERE X <= Y AND X > 0 AND Y < 1"),
    (DISEQUALITY, "SELECT 1 FROM S, T WHERE B <> D"),
    (CONFLICT, "SELECT DISTINCT A FROM S, T WHERE B < D AND C < E AND A = 10"),
    (CONFLICT, "SELECT DISTINCT 1 FROM S, T, U WHERE B < D AND D < F"),
    (CONFLICT, "SELECT DISTINCT 1 FROM S, T WHERE B < D AND C > E AND B > 0 AND C < 5"),
    (CONFLICT, "SELECT DISTINCT 1 FROM S x, S y WHERE x.A < y.A AND x.B < y.B AND x.C = 1 AND y.C = 2"),
    (GROUP, "SELECT B, COUNT(*) FROM S GROUP BY B"),
    (GROUP, "SELECT W, MAX(M) FROM V GROUP BY W HAVING COUNT(*) > 2"),
    (GROUP, "SELECT A FROM S GROUP BY A"),
    (INEQUALITY, "SELECT COUNT(*) FROM S, T WHERE B < D"),
    (INEQUALITY, "SELECT COUNT(C) FROM S, T WHERE B < D + 3"),
    (INEQUALITY, "SELECT SUM(A) FROM S, T WHERE B <= D AND A BETWEEN -1 AND 1"),
    (INEQUALITY, "SELECT AVG(A) FROM S, T WHERE B < D"),
    (DISEQUALITY, "SELECT E, COUNT(*) FROM S, T WHERE B <> D AND E = 3 GROUP BY E"),
    (HOLISTIC, "SELECT COUNT(DISTINCT A) FROM S"),
    (HOLISTIC, "SELECT COUNT(DISTINCT N) FROM Q WHERE N > 'm'"),
    (HOLISTIC, "SELECT MEDIAN(A) FROM S"),
    (HOLISTIC, "SELECT MEDIAN(A) FROM S, T WHERE B = D AND B IN (1, 2)"),
    (EQUALITY, "SELECT COUNT(DISTINCT A) FROM S, T WHERE A = D"),
    (CONFLICT, "SELECT MAX(A) FROM S, T WHERE B < D"),
    (CONFLICT, "SELECT MAX(A) FROM S, T WHERE A < D"),
    (CONFLICT, "SELECT MIN(A) FROM S, T WHERE B < D AND A > 4"),
    (CONFLICT, "SELECT MIN(-A), COUNT(*) FROM S, T WHERE B > D"),
]


@pytest.mark.campaign
@pytest.mark.parametrize(("code", "sql"), QUERIES, ids=[sql for _, sql in QUERIES])
def test_witnesses_of_every_size_are_confirmed(code: str, sql: str) -> None:
    verdict = verdict_of(sql)
    assert verdict.outcome == UNBOUNDED
    assert code in [reason.code for reason in verdict.reasons]
    for n in range(1, 8):
        witness = verdict.witness(n)
        assert len(witness["universe"]) == len(witness["probes"]) == n
        assert refused(sql, witness) is None, n
        assert json.loads(json.dumps(witness)) == witness
    aggregate = any(call in sql for call in ("COUNT", "SUM", "AVG", "MIN", "MAX", "MEDIAN", "GROUP"))
    assert witness["compare"] == ("answer" if aggregate else "emitted")


@pytest.mark.parametrize("sql", [sql for _, sql in QUERIES])
@pytest.mark.parametrize("n", [9, 12])
def test_witnesses_of_which_a_sample_is_confirmed(sql: str, n: int) -> None:
    assert len(verdict_of(sql).witness(n)["universe"]) == n


def test_every_reason_and_every_aggregate_is_among_them() -> None:
    assert {code for code, _ in QUERIES} == {
        PROJECTION, GROUP, HOLISTIC, EQUALITY, INEQUALITY, DISEQUALITY, CONFLICT
    }  # fmt: skip
    for call in ("COUNT(*)", "COUNT(C)", "COUNT(DISTINCT", "SUM(", "AVG(", "MIN(", "MAX(", "MEDIAN("):
        assert any(call in sql for _, sql in QUERIES), call


# --- confirming ---------------------------------------------------------------------------------------


def s(a: Any = 10, b: Any = 0, c: Any = 0) -> StreamRow:
    return StreamRow("S", {"A": a, "B": b, "C": c})


def t(d: Any = 0, e: Any = 0) -> StreamRow:
    return StreamRow("T", {"D": d, "E": e})


def confirmed(
    sql: str,
    universe: Sequence[StreamRow],
    probes: Sequence[Sequence[StreamRow]],
    compare: str = "emitted",
    setup: Sequence[StreamRow] = (),
) -> bool:
    [query] = parse(DDL + sql)
    witness = Witness(tuple(setup), tuple(universe), tuple(tuple(p) for p in probes), compare)
    return is_confirmed(query, witness)


BAND = "SELECT DISTINCT A FROM S, T WHERE B < D AND C < E AND A = 10"


@pytest.mark.parametrize("n", [1, 3, EXHAUSTIVE, EXHAUSTIVE + 1, 14])
def test_a_right_witness_is_accepted(n: int) -> None:
    universe = [s(b=i, c=-i) for i in range(n)]
    assert confirmed(BAND, universe, [[t(i + 1, -i + 1)] for i in range(n)])


@pytest.mark.parametrize("n", [3, EXHAUSTIVE + 1, 14])
def test_probes_that_cannot_tell_are_refused(n: int) -> None:
    universe = [s(b=i, c=-i) for i in range(n)]
    right = [[t(i + 1, -i + 1)] for i in range(n)]
    assert not confirmed(BAND, universe, [*right[:-1], [t(n, n)]])  # meets every row, emits 10 anyway
    assert not confirmed(BAND, universe, [*right[:-1], [t(-99, -99)]])  # meets none
    assert not confirmed(BAND, universe, [right[1], right[0], *right[2:]])  # meets another one's row
    assert not confirmed(BAND, universe, right, compare="answer", setup=[s(), t(1, 1)])  # 10 is out already
    assert not confirmed(BAND, [*universe[:-1], universe[0]], right)  # the same row twice


def test_a_count_that_only_counts_is_refused() -> None:
    # Every probe distinguishes I with k from I without k, yet a single number is all that is kept.
    universe = [s(a) for a in range(3)]
    for sql in ("SELECT COUNT(*) FROM S", "SELECT SUM(A) FROM S WHERE A > 5 OR B = 0"):
        assert not confirmed(sql, [s(7) for _ in range(3)], [[s(0)]] * 3, "answer")
    assert not confirmed("SELECT COUNT(*) FROM S", universe, [[s(0)]] * 3, "answer")
    assert not confirmed("SELECT COUNT(*) FROM S", universe * 4, [[s(0)]] * 12, "answer")
    assert confirmed("SELECT COUNT(*) FROM S", universe[:1], [[s(0)]], "answer")


def test_what_is_emitted_is_not_the_answer() -> None:
    universe, probes = [s(a) for a in range(3)], [[s(a)] for a in range(3)]
    assert confirmed("SELECT DISTINCT A FROM S", universe, probes, "emitted")
    # The answer after a probe holds k either way; together the probes still tell subsets apart.
    assert not confirmed("SELECT DISTINCT A FROM S", universe, probes, "answer")
    assert not confirmed("SELECT A FROM S", universe, probes, "emitted")


def test_the_setup_counts() -> None:
    sql = "SELECT MAX(A) FROM S, T WHERE B < D"
    universe = [s(i, i) for i in (1, 2, 3)]
    probes = [[t(i + 1)] for i in (1, 2, 3)]
    assert confirmed(sql, universe, probes, "answer")
    assert confirmed(sql, universe, probes, "answer", setup=[s(0, -9)])
    assert not confirmed(sql, universe, probes, "answer", setup=[s(9, -9)])  # 9 outshines them all
    assert not confirmed(sql, universe, probes, "answer", setup=[t(99)])  # every row is met at once


def test_large_witnesses() -> None:
    sql = "SELECT DISTINCT 1 FROM S, T WHERE A = D"
    verdict = verdict_of(sql)
    for n in (EXHAUSTIVE + 1, 40):
        witness = verdict.witness(n)
        assert len(witness["universe"]) == n
        assert len({json.dumps(row) for row in witness["universe"]}) == n
    with pytest.raises(WitnessSizeError, match="at least one"):
        verdict.witness(0)


# --- values and types ---------------------------------------------------------------------------------


def column(witness: dict[str, Any], stream: str, name: str) -> list[Any]:
    every = [*witness["setup"], *witness["universe"], *(r for probe in witness["probes"] for r in probe)]
    return [row["row"][name] for row in every if row["stream"] == stream]


def test_values_have_the_json_type_of_their_column() -> None:
    verdict = verdict_of(
        "SELECT DISTINCT M FROM V, Q WHERE L = 'k' AND W < DATE '2024-05-01' AND O AND Y > 0.5"
    )
    witness = verdict.witness(4)
    assert refused(verdict.query_text, witness) is None
    assert set(column(witness, "V", "L")) == {"k"}
    assert all(v is True for v in column(witness, "V", "O"))
    assert all(date.fromisoformat(v) < date(2024, 5, 1) for v in column(witness, "V", "W"))
    assert all(isinstance(v, float) for v in column(witness, "V", "M"))
    assert all(isinstance(v, float) and v > 0.5 for v in column(witness, "Q", "Y"))
    assert all(type(v) is int for v in column(witness, "V", "K"))
    assert all(type(v) is int for v in column(witness, "Q", "R"))
    assert all(isinstance(v, str) for v in column(witness, "Q", "N"))


def test_cents_and_days_and_texts_vary() -> None:
    cents = verdict_of("SELECT COUNT(DISTINCT M) FROM V WHERE M > 0.25").witness(6)
    values = [row["row"]["M"] for row in cents["universe"]]
    assert len(set(values)) == 6 and all(v > 0.25 and round(v, 2) == v for v in values)
    days = verdict_of("SELECT DISTINCT W FROM V WHERE W >= DATE '2024-02-28'").witness(6)
    parsed = [date.fromisoformat(row["row"]["W"]) for row in days["universe"]]
    assert len(set(parsed)) == 6 and min(parsed) >= date(2024, 2, 28)
    texts = verdict_of("SELECT DISTINCT L FROM V WHERE L > 'm' AND L < 'n'").witness(6)
    names = [row["row"]["L"] for row in texts["universe"]]
    assert len(set(names)) == 6 and all("m" < name < "n" for name in names)


def test_nulls_where_the_query_asks_for_them() -> None:
    witness = verdict_of("SELECT DISTINCT A FROM S WHERE B IS NULL").witness(3)
    assert set(column(witness, "S", "B")) == {None}
    assert None not in column(witness, "S", "A")


@pytest.mark.parametrize(
    ("type_", "n", "sql"),
    [
        ("SMALLINT", 150, "SELECT DISTINCT K FROM V WHERE K > 32000"),
        ("SMALLINT", 150, "SELECT DISTINCT 1 FROM V, Q WHERE K = J AND K > 32000"),
        ("SMALLINT", 150, "SELECT COUNT(DISTINCT K) FROM V WHERE K < -32000"),
        ("DATE", 150, "SELECT DISTINCT W FROM V WHERE W > DATE '9999-01-01'"),
        ("DATE", 150, "SELECT COUNT(*) FROM V, Q WHERE W < Z AND W > DATE '9998-01-01'"),
        ("DATE", 150, "SELECT 1 FROM V, Q WHERE W = Z AND Z < DATE '0002-01-01'"),
    ],
)
def test_a_type_with_too_few_values_is_named(type_: str, n: int, sql: str) -> None:
    verdict = verdict_of(sql)
    assert verdict.outcome == UNBOUNDED
    assert refused(sql, verdict.witness(4)) is None
    with pytest.raises(WitnessSizeError, match=type_) as caught:
        verdict.witness(n)
    assert "smaller n" in str(caught.value)


def test_checks_are_respected() -> None:
    ddl = (
        "CREATE STREAMING TABLE S (A INT CHECK (A >= 100), B INT CHECK (B BETWEEN 3 AND 5), C INT, "
        "CHECK (C < A)); CREATE STREAMING TABLE T (D INT CHECK (D <> 100), E INT);"
    )
    for sql in (
        "SELECT DISTINCT A FROM S WHERE C > 0",
        "SELECT 1 FROM S, T WHERE A = D",
        "SELECT B, COUNT(*) FROM S, T WHERE C < E GROUP BY B",
        "SELECT MAX(A) FROM S, T WHERE C < D AND B = 4",
    ):
        verdict = verdict_of(sql, ddl)
        assert verdict.outcome == UNBOUNDED, sql
        witness = verdict.witness(5)
        assert refused(sql, witness, ddl) is None
        for entry in (*witness["setup"], *witness["universe"], *(r for p in witness["probes"] for r in p)):
            table = verdict.query.tables[entry["stream"]]
            for fact in table.checks:
                assert compile_condition(fact, {table.name: 0})((entry["row"],)) is not False


def test_rows_that_break_a_check_prove_nothing() -> None:
    # The closure knows nothing of a disjunction over columns that may be NULL; rows must obey it even so.
    ddl = "CREATE STREAMING TABLE S (A INT, B INT, C INT, CHECK (A < 0 OR B = 7)); "
    for sql in ("SELECT DISTINCT A FROM S WHERE A > 0", "SELECT A, COUNT(B) FROM S WHERE A > 3 GROUP BY A"):
        verdict = verdict_of(sql, ddl)
        assert verdict.outcome != "bounded"
        if verdict.outcome == UNBOUNDED:
            every = [r["row"] for r in verdict.witness(3)["universe"]]
            assert all(row["A"] < 0 or row["B"] in (7, None) for row in every)


# --- asking for one -----------------------------------------------------------------------------------


def test_what_is_not_unbounded_has_no_witness() -> None:
    bounded = verdict_of("SELECT DISTINCT A FROM S WHERE A BETWEEN 1 AND 3")
    with pytest.raises(NotUnboundedError, match="bounded"):
        bounded.witness(1)
    undetermined = verdict_of("SELECT DISTINCT 1 FROM S x, S y, S z WHERE x.A < y.A AND y.A < z.A")
    with pytest.raises(NotUnboundedError, match="undetermined"):
        undetermined.witness(1)


def test_the_same_question_has_the_same_answer() -> None:
    verdict = verdict_of(BAND)
    assert verdict.witness_source is not None
    assert verdict.witness(5) == verdict_of(BAND).witness(5)
    found = find_witness(verdict.query, verdict.witness_source, 5)
    assert found is not None and found == build_witness(verdict.query, verdict.witness_source, 5)
    assert found.to_json() == verdict.witness(5)


def test_witness_source_of_another_query_is_not_confirmed() -> None:
    # The layout for DISTINCT A is sound, but the query asked about keeps nothing.
    clue = verdict_of("SELECT DISTINCT A FROM S").witness_source
    assert clue is not None
    [bounded] = parse(DDL + "SELECT DISTINCT 1 FROM S")
    assert find_witness(bounded, clue, 3) is None
    with pytest.raises(WitnessSizeError, match="no witness of 3"):
        build_witness(bounded, clue, 3)


def test_several_queries_are_decided_one_by_one() -> None:
    verdicts = check(DDL + "SELECT DISTINCT A FROM S; SELECT A FROM S;")
    assert isinstance(verdicts, list)
    assert [v.outcome for v in verdicts] == [UNBOUNDED, "bounded"]


def test_columns_that_must_differ_are_left_room() -> None:
    streams = "CREATE STREAMING TABLE S (A INT, B INT); CREATE STREAMING TABLE T (D INT, E INT);"
    where = "D <> E AND B >= D AND B >= E AND A < E AND A < D"
    [query] = parse(f"{streams} SELECT DISTINCT E FROM S, T WHERE {where}")
    assert decide(query).outcome == UNBOUNDED

"""Explanations of verdicts, word for word."""

from __future__ import annotations

from textwrap import dedent

import pytest

from millpond import Reason, Verdict, check
from millpond.analysis.reasons import remove_redundant
from millpond.query.expressions import Arithmetic, Expr, Literal, Negation, Ref
from millpond.query.text import expression_text
from millpond.query.types import INT, STRING

CATALOG = """
CREATE STREAMING TABLE S (A INT, B INT, C INT);
CREATE STREAMING TABLE T (D INT, E INT);
CREATE STREAMING TABLE U (F INT, G STRING, H INT CHECK (H BETWEEN 0 AND 23));
CREATE STREAMING TABLE V (NAME STRING, DAY DATE);
CREATE TABLE R (K INT);
CREATE STREAMING TABLE W (TS TIMESTAMP, X INT);
"""


def explained(query: str) -> str:
    verdict = check(CATALOG + query)
    assert isinstance(verdict, Verdict)
    return verdict.explain()


SNAPSHOTS = {
    "a filter keeps nothing": (
        "SELECT A FROM S WHERE A > 10",
        """\
        bounded: nothing has to be kept
          Each row is answered by itself and forgotten.""",
    ),
    "a condition that is never true": (
        "SELECT A FROM S, T WHERE A < D AND D < A",
        """\
        bounded: nothing has to be kept
          The condition can never be true, so there is never a result.""",
    ),
    "counts of classes, a pinned column apart": (
        "SELECT A FROM S, T WHERE B < D AND D > 10 AND B < 20 AND A = 10",
        """\
        bounded: at most 20 entries, 560 bytes
          S  10 entries  number of rows for each B (11 to 19, all below), where A = 10
          T  10 entries  number of rows for each D (11 to 19, all above)""",
    ),
    "extremes, and the answer": (
        "SELECT DISTINCT A FROM S, T WHERE B < D AND C < E AND B < E AND C < D AND A = 10",
        """\
        bounded: at most 3 entries, 48 bytes
          S       1 entry  row with the smallest max(B, C), where A = 10
          T       1 entry  row with the largest min(D, E)
          answer  1 entry  rows already written, where A = 10""",
    ),
    "aggregates, a CHECK, and NULL": (
        "SELECT H, COUNT(*), SUM(F) FROM U GROUP BY H",
        """\
        bounded: at most 25 entries, 1,400 bytes
          U  25 entries  number of rows and sum of F for each H (0 to 23, NULL)""",
    ),
    "dates": (
        "SELECT DISTINCT DAY FROM V WHERE DAY BETWEEN DATE '2024-01-01' AND DATE '2024-01-31'",
        """\
        bounded: at most 31 entries, 248 bytes
          answer  31 entries  rows already written for each DAY (2024-01-01 to
                              2024-01-31)""",
    ),
    "listed values in one line, for each column of them": (
        "SELECT DISTINCT NAME, H FROM U, V WHERE G = NAME AND NAME IN ('OR', 'ID') AND (H < 10 OR H = 20)",
        """\
        bounded: at most 46 entries, 544 bytes
          U       20 entries  whether there was a row for each H (0 to 9)
          V        2 entries  whether there was a row for each NAME ('OR' and 'ID')
          U        2 entries  whether there was a row, where H = 20
          answer  20 entries  rows already written for each H (0 to 9) and NAME ('OR'
                              and 'ID')
          answer   2 entries  rows already written for each NAME ('OR' and 'ID'),
                              where H = 20""",
    ),
    "many listed values": (
        "SELECT NAME, COUNT(*) FROM V WHERE NAME IN ('a', 'b', 'c', 'd', 'e', 'f', 'g') GROUP BY NAME",
        """\
        bounded: at most 7 entries, 168 bytes
          V  7 entries  number of rows for each NAME ('a', 'b', 'c', 'd', 'e' and 2
                        others)""",
    ),
    "a self-join keeps its aliases": (
        "SELECT DISTINCT 1 FROM S x, S y WHERE x.A < y.B",
        """\
        bounded: at most 3 entries, 24 bytes
          S as x  1 entry  row with the smallest A
          S as y  1 entry  row with the largest B
          answer  1 entry  rows already written""",
    ),
    "<> joins with DISTINCT": (
        "SELECT DISTINCT 1 FROM S, T WHERE B <> D",
        """\
        bounded: at most 5 entries, 40 bytes
          S       2 entries  a row and further rows with other values of B
          T       2 entries  a row and further rows with other values of D
          answer    1 entry  rows already written""",
    ),
    "DISTINCT of one stream": (
        "SELECT DISTINCT G FROM U",
        """\
        unbounded: memory must grow with the streams, whatever the program
          U.G is in a result without duplicates and can take infinitely many values:
            every value must be kept to recognise duplicates.""",
    ),
    "an equality join is not reported again as an inequality join": (
        "SELECT 1 FROM U, V WHERE G = NAME",
        """\
        unbounded: memory must grow with the streams, whatever the program
          G = NAME: U.G and V.NAME can take infinitely many values: every value seen
            on one side must be kept, because a match may still come on the other.""",
    ),
    "the projection and the join are two reasons": (
        "SELECT A FROM S, T WHERE A = D",
        """\
        unbounded: memory must grow with the streams, whatever the program
          S.A is in the result and can take infinitely many values: every value must
            be kept for matching rows that are still to come.
          A = D: S.A and T.D can take infinitely many values: every value seen on one
            side must be kept, because a match may still come on the other.""",
    ),
    "a counted inequality": (
        "SELECT A FROM S JOIN T ON B <= D WHERE A = 10",
        """\
        unbounded: memory must grow with the streams, whatever the program
          B <= D: S.B and T.D can take infinitely many values, and every match counts:
            the number of rows of S that a future row of T matches depends on every
            value seen so far.""",
    ),
    "a counted <>, in the user's spelling": (
        "SELECT COUNT(*) FROM S, T WHERE B != D",
        """\
        unbounded: memory must grow with the streams, whatever the program
          B != D: S.B and T.D can take infinitely many values, and every match counts:
            the number of rows of S that a future row of T matches depends on how
            often each value was seen.""",
    ),
    "joins that pull apart, in the order written": (
        "SELECT DISTINCT A FROM S, T WHERE B < D AND C < E AND A = 10",
        """\
        unbounded: memory must grow with the streams, whatever the program
          B < D AND C < E: whether a future row of T matches a row of S depends on
            both S.B and S.C: no row of S is the best for all future rows, so none can
            be dropped.""",
    ),
    "a column wanted large and small": (
        "SELECT DISTINCT 1 FROM S, T, U WHERE B < D AND D < F",
        """\
        unbounded: memory must grow with the streams, whatever the program
          B < D AND D < F: some future rows need a large T.D and others a small one:
            no row of T is the best for all of them, so none can be dropped.""",
    ),
    "an extreme of rows that find a partner": (
        "SELECT MAX(A) FROM S, T WHERE B < D",
        """\
        unbounded: memory must grow with the streams, whatever the program
          B < D: MAX(A) is taken over the rows that have a match, and any row of S can
            turn out to be the largest one that a future row of T matches: no row can
            be dropped.""",
    ),
    "a holistic aggregate": (
        "SELECT MEDIAN(A) FROM S",
        """\
        unbounded: memory must grow with the streams, whatever the program
          S.A can take infinitely many values, and MEDIAN(A) depends on all of them.""",
    ),
    "an unbounded group": (
        "SELECT A, COUNT(*) FROM S GROUP BY A",
        """\
        unbounded: memory must grow with the streams, whatever the program
          S.A is a group column and can take infinitely many values: every value is a
            group that must be kept.""",
    ),
}


@pytest.mark.parametrize("title", SNAPSHOTS)
def test_explanation(title: str) -> None:
    query, expected = SNAPSHOTS[title]
    assert explained(query) == dedent(expected)


@pytest.mark.parametrize("title", SNAPSHOTS)
def test_explanation_fits_a_terminal_and_needs_no_paper(title: str) -> None:
    text = explained(SNAPSHOTS[title][0])
    assert max(map(len, text.splitlines())) <= 80
    assert not any(word in text for word in ("MaxRef", "MinRef", "LTO", "?", "Ref("))


def test_an_undetermined_query_says_what_is_suspected() -> None:
    text = explained("SELECT DISTINCT 1 FROM S x, S y, S z WHERE x.A < y.A AND y.A < z.A")
    assert text.startswith("undetermined: neither a bound nor a proof of growth was found\n")


def test_an_alias_is_shown_only_where_it_is_needed() -> None:
    assert "S as" not in explained("SELECT DISTINCT 1 FROM S s, T t WHERE s.A < t.D")


def test_many_alternatives_are_cut_short() -> None:
    names = ", ".join(f"'{i:03}'" for i in range(40))
    lines = explained(f"SELECT G FROM U, V WHERE G = NAME AND G IN ({names})").splitlines()
    assert len(lines) <= 15


def test_the_columns_and_the_predicate_are_the_users() -> None:
    verdict = check(CATALOG + "SELECT s.A FROM S s JOIN T t ON t.D >= s.B WHERE s.A = 1")
    assert isinstance(verdict, Verdict)
    [reason] = verdict.reasons
    assert reason.predicate == "t.D >= s.B"
    assert set(reason.columns) == {"s.B", "t.D"}


def test_an_implied_join_names_all_predicates_it_follows_from() -> None:
    verdict = check(CATALOG + "SELECT DISTINCT 1 FROM S, T, U WHERE A = D AND D = F")
    assert isinstance(verdict, Verdict)
    assert verdict.outcome == "unbounded"
    assert {r.predicate for r in remove_redundant(verdict.reasons)} <= {"A = D", "D = F", "A = D AND D = F"}


def test_essential_keeps_reasons_about_other_columns() -> None:
    equality = Reason("unbounded-equality-join", ("S.A", "T.D"), "A = D", "one")
    again = Reason("counted-inequality-join", ("T.D", "S.A"), "A = D", "two")
    other = Reason("counted-inequality-join", ("S.B", "T.E"), "B < E", "three")
    assert remove_redundant([again, equality, other, other]) == [equality, other]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (Ref("s", "A"), "A"),
        (Literal(None, None), "NULL"),
        (Literal("it's", STRING), "'it''s'"),
        (Negation(Ref("s", "A")), "-A"),
        (Arithmetic("+", Ref("s", "A"), Literal(1, INT)), "(A + 1)"),
    ],
)
def test_expression_text(expression: Expr, text: str) -> None:
    assert expression_text(expression) == text


def test_approximate_aggregates_are_named() -> None:
    streams = "CREATE STREAMING TABLE visits (page TINYINT, visitor STRING);"
    verdict = check(streams + "SELECT page, APPROX_COUNT_DISTINCT(visitor) FROM visits GROUP BY page")
    assert isinstance(verdict, Verdict)
    text = verdict.explain()
    assert text.startswith("bounded: at most 131,841 entries")
    assert "APPROX_COUNT_DISTINCT(visitor) is approximate." in text

"""Verdicts on queries in time, in words and as JSON; the examples are in ``tests/fixtures/verdicts``."""

from __future__ import annotations

import pytest

from millpond import Verdict, check
from millpond.errors import NotUnboundedError, SqlError

STREAMS = (
    "CREATE STREAMING TABLE S (A INT, A2 INT, I TIMESTAMP); CREATE STREAMING TABLE T (B INT, B2 INT, J "
    "TIMESTAMP); CREATE STREAMING TABLE U (C INT, C2 INT, K TIMESTAMP); CREATE STREAMING TABLE V (E INT, "
    "E2 INT, L TIMESTAMP); CREATE STREAMING TABLE P (G INT, N STRING, F DOUBLE, H TIMESTAMP);"
    "CREATE STREAMING TABLE Q (G INT, N STRING, F DOUBLE, M TIMESTAMP); CREATE STREAMING TABLE W (D INT);"
    "CREATE TABLE R (X INT, Y INT, N STRING, N2 STRING, F DOUBLE, F2 DOUBLE);\n"
)
YES, NO, OPEN = "bounded", "unbounded", "undetermined"
NOON, EVENING = "TIMESTAMP '2024-03-01 12:00:00'", "TIMESTAMP '2024-03-01 18:00:00'"
CHAIN = "FROM S, T, U WHERE I > J AND J > K"
EXAMPLE = f"S.A, T.B {CHAIN} AND A > B AND B > 0 AND B < 5"
UNSOUND = "SELECT DISTINCT 1 FROM S, T, U, V WHERE T.J > U.K AND S.A > T.B AND V.E > U.C"
TOO_STRICT = "SELECT DISTINCT 1 FROM S, T, U WHERE K < J AND U.C < T.B AND T.B < S.A"


def verdict_of(query: str) -> Verdict:
    verdict = check(STREAMS + query)
    assert isinstance(verdict, Verdict)
    return verdict


def test_median_that_one_row_moves_is_observed_once() -> None:
    assert verdict_of(f"SELECT MEDIAN(C) {CHAIN}").witness(3)["compare"] == "answer"


SIX_COLUMNS = "".join(
    f"CREATE STREAMING TABLE {name} (A INT, B INT, C INT, D INT, E INT, F INT, I TIMESTAMP); "
    for name in "STU"
)


@pytest.mark.parametrize("joined", ["S.A < T.{}", "T.{} < S.A"])
def test_one_column_below_or_above_many(joined: str) -> None:
    """Six columns have more orders than are enumerated, but none of them has a conflict."""
    joins = " AND ".join(joined.format(c) for c in "ABCDEF")
    verdict = check(f"{SIX_COLUMNS} SELECT DISTINCT 1 FROM S, T WHERE {joins} AND S.I < T.I")
    assert isinstance(verdict, Verdict) and verdict.outcome == YES


@pytest.mark.parametrize("time", ["S.I < T.I", "S.I <= T.I", "S.I = T.I AND S.I < U.I"])
def test_two_of_many_joins_conflict(time: str) -> None:
    """Six columns have more orders than are enumerated, but two of their joins show a conflict."""
    joins = " AND ".join(f"S.{c} < {'U' if 'U' in time else 'T'}.{c}" for c in "ABCDEF")
    verdict = check(f"{SIX_COLUMNS} SELECT DISTINCT 1 FROM S, T, U WHERE {joins} AND {time}")
    assert isinstance(verdict, Verdict) and verdict.outcome == NO


def test_too_many_orders_in_words() -> None:
    joins = " AND ".join(f"S.A < T.{c}" for c in "ABCDEF")
    verdict = check(f"{SIX_COLUMNS} SELECT DISTINCT 1 FROM S, T WHERE {joins} AND S.I > T.I")
    assert isinstance(verdict, Verdict) and verdict.outcome == OPEN
    assert verdict.explain().splitlines() == [
        "undetermined: neither a bound nor a proof of growth was found",
        "  its columns can be ordered in too many ways to check them all.",
    ]


# --- in words ----------------------------------------------------------------------------------------


def test_the_counterexamples_in_words() -> None:
    assert verdict_of(UNSOUND).explain().splitlines() == [
        "unbounded: memory must grow with the streams, whatever the program",
        "  S.A > T.B AND V.E > U.C: a future row needs both a row of U and a later row",
        "    of T, but the best row of U may be later than the best row of T: no pair",
        "    is the best for all future rows, so none can be dropped.",
        "  Theorem 2 of Schiff and Özçep would accept it: it ignores the streams that",
        "  come before a stream.",
    ]
    assert verdict_of(TOO_STRICT).explain(width=100).splitlines()[0] == (
        "bounded: the state is finite; its size depends on the data (see state_entries in the metrics)"
    )


def test_the_papers_example_in_words() -> None:
    assert verdict_of(f"SELECT {EXAMPLE}").explain().splitlines() == [
        "bounded: at most 5 entries, 144 bytes",
        "  U          1 entry  number of rows",
        "  T and U  4 entries  number of matches for each B (1 to 4)",
    ]


def test_a_last_stream_with_distinct_in_words() -> None:
    [reason] = verdict_of(f"SELECT DISTINCT {EXAMPLE}").reasons
    assert reason.code == "unbounded-projection" and reason.columns == ("S.A",)
    assert "recognise duplicates" in reason.message


@pytest.mark.parametrize("join", ["A < B", "A > B", "A <> B", "B <> A"])
def test_rows_of_the_earlier_stream_are_kept(join: str) -> None:
    [reason] = verdict_of(f"SELECT 1 FROM S, T WHERE I > J AND {join}").reasons
    assert "the number of rows of T that a future row of S matches" in reason.message
    [reason] = verdict_of(f"SELECT 1 FROM S, T WHERE I <= J AND {join}").reasons
    assert "the number of rows of S that a future row of T matches" in reason.message


WINDOW = "J BETWEEN I AND I + INTERVAL 1 MINUTE"


def test_a_window_says_how_to_get_its_size_as_a_number() -> None:
    query = f"SELECT A, B FROM S, T WHERE A = B AND {WINDOW}"
    assert verdict_of(query).explain().splitlines() == [
        "bounded by time: the size of the state depends on the rates of the streams",
        "  S  finite  rows of the last 1 min",
        "  For a number, declare the rate of S, for example:",
        "    TBLPROPERTIES ('rate' = '1000 per second')",
    ]
    rated = STREAMS.replace("I TIMESTAMP);", "I TIMESTAMP) TBLPROPERTIES ('rate' = '1000 per second');")
    verdict = check(rated + query)
    assert isinstance(verdict, Verdict) and verdict.state.entries == 61_000
    assert "declare" not in verdict.explain()


def test_a_rate_is_not_asked_for_if_it_would_give_no_number() -> None:
    """The number of partial matches in a window does not follow from the rates."""
    text = verdict_of(f"SELECT A, B FROM S, T, U WHERE A = B AND {WINDOW} AND K < J AND C = 1").explain()
    assert text.startswith("bounded by time") and "declare" not in text


def test_json() -> None:
    shown = verdict_of(TOO_STRICT).to_json()
    assert shown["outcome"] == YES and shown["reasons"] == []
    assert shown["state"]["entries"] is None and shown["state"]["bytes"] is None
    kept = {s["stream"]: s["keeps"] for s in shown["state"]["streams"]}
    assert kept["U"] == ["match with the smallest C"]
    assert None in kept
    assert "Theorem 2" in shown["published"]
    shown = verdict_of(f"SELECT {EXAMPLE}").to_json()
    assert shown["published"] is None
    assert shown["state"]["entries"] == sum(s["entries"] for s in shown["state"]["streams"]) == 5
    [both] = [s for s in shown["state"]["streams"] if s["stream"] == "T and U"]
    assert both["columns"] == [{"column": "B", "classes": 4, "description": "1 to 4"}]
    unbounded = verdict_of(UNSOUND).to_json()
    assert unbounded["state"] == {"entries": None, "bytes": None, "streams": [], "windows": []}
    assert [r["code"] for r in unbounded["reasons"]] == ["conflicting-times"]
    assert unbounded["reasons"][0]["predicate"] == "S.A > T.B AND V.E > U.C"


def test_bounded_query_has_no_witness() -> None:
    with pytest.raises(NotUnboundedError):
        verdict_of(TOO_STRICT).witness(3)


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "column", "message"),
    [
        ("SELECT A FROM S, T WHERE I < 5", 26, "I (TIMESTAMP) cannot be compared with 5 (INT)"),
        ("SELECT A FROM S, T WHERE I < B", 26, "I (TIMESTAMP) cannot be compared with B (INT)"),
        ("SELECT A FROM S, T WHERE I + 1 < J", 26, "I"),
    ],
    ids=["number", "column of numbers", "moved"],
)
def test_refused(query: str, column: int, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        verdict_of(query)
    assert message in caught.value.message
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (2, column)


def test_timestamp_of_one_stream_may_be_in_the_result() -> None:
    assert verdict_of(f"SELECT I, A FROM S WHERE I > {NOON}").outcome == YES

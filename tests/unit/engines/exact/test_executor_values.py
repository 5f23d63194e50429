"""The executor without Spark: types, limits and names.

Where DuckDB and Spark differ, or are suspected to, the expected answer is Spark's.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import date
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from millpond.engines.exact.state import decode_synopsis
from millpond.engines.exact.synopsis import Synopsis
from millpond.errors import MillpondError
from millpond.runtime.row_kinds import RowKind
from millpond.spark.operators.exact import SynopsisMapper, SynopsisProcessor
from millpond.spark.operators.output import MOST_REPEATED
from millpond.spark.sources.opened import REASON, RECORD
from tests.support.scenario import TABLE_I, Line, Run, Scenario, assert_answers, bag

INF, NAN = math.inf, math.nan

# --- types -------------------------------------------------------------------------------------------

DATES = "CREATE STREAMING TABLE D (d DATE, v INT); CREATE STREAMING TABLE E (e DATE, w INT);"
MONEY = "CREATE STREAMING TABLE M (k INT, m DECIMAL(10,2)); CREATE STREAMING TABLE N (k INT, n DECIMAL(4,3));"
MIXED = (
    "CREATE STREAMING TABLE X (k INT, x DOUBLE, s STRING, b BIGINT);"
    "CREATE STREAMING TABLE Y (k INT, i INT, y DOUBLE, s STRING);"
)
LEAP = [date(2024, 2, day) for day in (27, 28, 29)]
MARCH, FIRST, LAST = date(2024, 3, 1), date(1, 1, 1), date(9999, 12, 31)

TYPES = [
    Scenario(
        "dates, each once",
        f"{DATES} SELECT DISTINCT d, e FROM D, E WHERE d = e AND d BETWEEN '2024-02-27' AND '2024-02-29'",
        [[("D", LEAP[1], 0), ("E", LEAP[0], 0)], [("E", LEAP[1], 0), ("D", MARCH, 0)], [("E", None, 0)]],
        [[], [(LEAP[1], LEAP[1])], [(LEAP[1], LEAP[1])]],
    ),
    Scenario(
        "dates compared, with days added",
        f"{DATES} SELECT DISTINCT v, d FROM D, E WHERE d + 1 < e AND v = 1"
        " AND d IN ('2024-02-28', DATE '0001-01-01')",
        [
            [("D", LEAP[1], 1), ("E", LEAP[2], 0)],
            [("E", MARCH, 0)],
            [("D", FIRST, 1), ("D", None, 1), ("E", LAST, 0)],
        ],
        [[], [(1, LEAP[1])], [(1, LEAP[1]), (1, FIRST)]],
    ),
    Scenario(
        "the first and the last date",
        f"{DATES} SELECT MIN(d), MAX(d), COUNT(DISTINCT w) FROM D, E WHERE v = w AND v BETWEEN 0 AND 3",
        [
            [("D", MARCH, 1)],
            [("E", None, 1), ("D", FIRST, 2)],
            [("D", LAST, 1), ("D", None, 1), ("E", None, 2)],
        ],
        [[(None, None, 0)], [(MARCH, MARCH, 1)], [(FIRST, LAST, 2)]],
    ),
    Scenario(
        "rows by date",
        f"{DATES} SELECT d, COUNT(*), SUM(v) FROM D WHERE d >= '1969-12-31' AND d <= '1970-01-01' GROUP BY d",
        [[("D", date(1969, 12, 31), 5)], [("D", date(1970, 1, 1), None), ("D", date(1969, 12, 30), 1)]],
        [[(date(1969, 12, 31), 1, 5)], [(date(1969, 12, 31), 1, 5), (date(1970, 1, 1), 1, None)]],
    ),
    Scenario(
        "dates of an equality join with an offset",
        f"{DATES} SELECT d FROM D, E WHERE d = e - 2 AND d BETWEEN '2024-02-27' AND '2024-02-29'",
        [[("D", LEAP[1], 0), ("D", LEAP[1], 0)], [("E", MARCH, 0), ("E", LEAP[2], 0)], [("D", LEAP[0], 0)]],
        [{}, {(LEAP[1],): 2}, {(LEAP[1],): 2, (LEAP[0],): 1}],
    ),
    Scenario(
        "decimals compared with integers and decimals of another scale",
        f"{MONEY} SELECT DISTINCT M.k FROM M, N WHERE m < n AND M.k IN (1, 2) AND m >= -1",
        [
            [("M", 1, Decimal("0.07")), ("N", 0, Decimal("0.070"))],
            [("N", 0, Decimal("0.071"))],
            [("M", 2, Decimal("-1.00")), ("M", 2, Decimal("-1.01"))],
        ],
        [[], [(1,)], [(1,), (2,)]],
    ),
    Scenario(
        "a double among decimals",
        f"{MIXED} {MONEY} SELECT COUNT(*) FROM X, M WHERE x = m AND m BETWEEN 0 AND 0.10",
        [
            [("X", 0, 0.07, "", 0), ("X", 0, math.nextafter(0.07, 1), "", 0), ("X", 0, NAN, "", 0)],
            [("M", 0, Decimal("0.07")), ("M", 0, Decimal("0.08"))],
            [("X", 0, 0.1 - 0.02, "", 0), ("X", 0, 0.08, "", 0), ("X", 0, INF, "", 0)],
        ],
        [[(0,)], [(1,)], [(3,)]],
    ),
    Scenario(
        "a double among integers",
        f"{MIXED} SELECT COUNT(*) FROM X, Y WHERE x < i AND i BETWEEN 0 AND 2",
        [
            [("X", 0, x, "", 0) for x in (-INF, -0.5, 0.0, -0.0, 0.5, 1.0, 1.5, 2.0, INF, NAN, None)],
            [("Y", 0, 0, None, "")],
            [("Y", 0, 1, None, "")],
            [("Y", 0, 2, None, ""), ("Y", 0, 3, None, "")],
        ],
        [[(0,)], [(2,)], [(7,)], [(14,)]],
    ),
    Scenario(
        "NaN is equal to itself and larger than every other number",
        f"{MIXED} SELECT DISTINCT X.k FROM X, Y WHERE x > y AND X.k BETWEEN 1 AND 3",
        [
            [("X", 1, INF, "", 0), ("Y", 0, 0, INF, "")],
            [("X", 2, NAN, "", 0)],
            [("Y", 0, 0, NAN, "")],
            [("Y", 0, 0, 1e308, ""), ("X", 3, -INF, "", 0)],
        ],
        [[], [(2,)], [(2,)], [(1,), (2,)]],
    ),
    Scenario(
        "the least and the greatest with NaN",
        f"{MIXED} SELECT MIN(x), MAX(x), COUNT(x) FROM X",
        [[("X", 0, NAN, "", 0)], [("X", 0, INF, "", 0), ("X", 0, None, "", 0)], [("X", 0, -INF, "", 0)]],
        [[("nan", "nan", 1)], [("inf", "nan", 2)], [("-inf", "nan", 3)]],
    ),
    Scenario(
        "strings are ordered by their bytes",
        f"{MIXED} SELECT MIN(s), MAX(s) FROM X",
        [
            [("X", 0, 0.0, "a", 0)],
            [("X", 0, 0.0, "Z", 0), ("X", 0, 0.0, None, 0)],
            [("X", 0, 0.0, "ä", 0), ("X", 0, 0.0, "zz", 0)],
            [("X", 0, 0.0, "\U0001f600", 0), ("X", 0, 0.0, "\uffff", 0), ("X", 0, 0.0, "", 0)],
        ],
        [[("a", "a")], [("Z", "a")], [("Z", "ä")], [("", "\U0001f600")]],
    ),
    Scenario(
        "strings that need quotes, and blanks that count",
        rf"{MIXED} SELECT X.s, COUNT(*) FROM X, Y"
        r" WHERE X.s = Y.s AND X.s IN ('it\'s', 'a\\b', 'a ', '') GROUP BY X.s",
        [
            [("X", 0, 0.0, s, 0) for s in ("it's", "a\\b", "a ", "a", "", "A ", None)],
            [("Y", 0, 0, 0.0, s) for s in ("it's", "a\\b", "a ", "a", "", None)],
        ],
        [[], [("it's", 1), ("a\\b", 1), ("a ", 1), ("", 1)]],
    ),
    Scenario(
        "strings beside a constant",
        f"{MIXED} SELECT COUNT(*) FROM X, Y WHERE X.s < Y.s AND Y.s = 'b'",
        [[("X", 0, 0.0, s, 0) for s in ("", "B", "azzz", "b", "b ", "é")], [("Y", 0, 0, 0.0, "b")]],
        [[(0,)], [(3,)]],
    ),
    Scenario(
        "division is of doubles, and a remainder has the sign of what is divided",
        f"{TABLE_I} SELECT DISTINCT A / 2, A % 3, -A % 3, A - 10 * 2 FROM S, T"
        " WHERE A = D AND A BETWEEN -9 AND 9",
        [[("S", 7, 0, 0), ("S", -7, 0, 0)], [("T", 7, 0), ("T", -7, 0)]],
        [[], [(3.5, 1, -1, -13), (-3.5, -1, 1, -27)]],
    ),
]


@pytest.mark.campaign
@pytest.mark.parametrize("scenario", TYPES, ids=lambda s: s.title)
def test_values_of_every_type(scenario: Scenario) -> None:
    assert_answers(scenario)


# --- numbers in expressions ----------------------------------------------------------------------------

NUMBERS = (
    "CREATE STREAMING TABLE F (f FLOAT, k INT); CREATE STREAMING TABLE I (i INT, t TINYINT);"
    "CREATE STREAMING TABLE P (p DECIMAL(16,2), q DECIMAL(6,0));"
)
HALF, BIG = ("F", 0.5, 0), ("I", 16777217, 0)
NINES, MANY = Decimal("99999999999999.99"), Decimal(999999)
EXPRESSIONS: list[tuple[str, list[str], list[Line], Line]] = [
    # A single float beside an integer is a double.
    ("DISTINCT k FROM F, I WHERE f < i AND k = 1", ["INT"], [("F", 16777216.0, 1), BIG], (1,)),
    ("f + i FROM F, I WHERE f = 0.5 AND i = 16777217", ["DOUBLE"], [HALF, BIG], (16777217.5,)),
    ("DISTINCT f FROM F, I WHERE f IN (0.5, 0.25)", ["FLOAT"], [HALF, BIG], (0.5,)),
    # Decimals have room to grow.
    (
        "p * 1000, p * p, p + q FROM P, I WHERE p = 99999999999999.99 AND q = 999999",
        ["DECIMAL(21,2)", "DECIMAL(33,4)", "DECIMAL(17,2)"],
        [("P", NINES, MANY), BIG],
        (NINES * 1000, Decimal("9999999999999998000000000000.0001"), Decimal("100000000999998.99")),
    ),
    (
        "q * 1000000 * 1000000 FROM P, I WHERE q = 999999",
        ["DECIMAL(22,0)"],
        [("P", NINES, MANY), BIG],
        (MANY * 10**12,),
    ),
    ("i * i FROM I, F WHERE i = -46340", ["INT"], [("I", -46340, 0), HALF], (2147395600,)),
]


@pytest.mark.parametrize(
    ("query", "types", "lines", "expected"), EXPRESSIONS, ids=[query for query, *_ in EXPRESSIONS]
)
def test_expressions_are_computed_as_in_spark(
    query: str, types: list[str], lines: list[Line], expected: Line
) -> None:
    run = Run(f"{NUMBERS} SELECT {query}", types=types)
    run.add(*lines)
    assert run.executor.answer() == {expected: 1}


@pytest.mark.parametrize(
    ("query", "type_", "lines"),
    [
        ("i + 1 FROM I, F WHERE i = 2147483647", "INT", [("I", 2147483647, 0), HALF]),
        ("t + t FROM I, F", "TINYINT", [("I", 0, 100), HALF]),
        ("DISTINCT 1 / t FROM I, F", "DOUBLE", [("I", 0, 0), HALF]),
        ("DISTINCT 7 % t FROM I, F", "INT", [("I", 0, 0), HALF]),
        ("COUNT(*) / COUNT(t) FROM I", "DOUBLE", [("I", 0, None)]),
        ("SUM(p) FROM P", "DECIMAL(4,2)", [("P", Decimal("99.99"), None), ("P", Decimal("0.01"), None)]),
    ],
)
def test_an_error_in_spark_is_an_error_here(query: str, type_: str, lines: list[Line]) -> None:
    run = Run(f"{NUMBERS} SELECT {query}", types=[type_])
    with pytest.raises(MillpondError, match=r"(?i)does not fit|division by zero") as error:
        run.add(*lines)
    assert "\n" not in str(error.value)


# --- sums and counts -----------------------------------------------------------------------------------

MOST = (1 << 63) - 1


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_sum_may_exceed_its_type_for_a_while(tasks: int) -> None:
    sql = f"{MIXED} SELECT X.k, SUM(b), AVG(b) FROM X, Y WHERE X.k = Y.k AND X.k IN (1, 2) GROUP BY X.k"
    run = Run(sql, types=["INT", "BIGINT", "DOUBLE"])
    run.add(*[("X", 1, 0.0, "", MOST)] * 5, tasks=tasks)
    run.add(*[("X", 1, 0.0, "", -MOST)] * 3, ("X", 1, 0.0, "", 7), tasks=tasks)
    run.add(*[("X", 1, 0.0, "", -MOST)] * 2, tasks=tasks)
    run.add(("Y", 1, 0, 0.0, ""), ("Y", 1, 0, 0.0, ""), tasks=tasks)
    assert run.executor.answer() == {(1, 14, 7 / 11): 1}
    run.add(*[("X", 1, 0.0, "", MOST)] * 2, *[("X", 1, 0.0, "", -MOST - 1)] * 2, tasks=tasks)
    assert run.executor.answer() == {(1, 10, 5 / 15): 1}


def test_a_sum_beyond_its_type_is_an_error() -> None:
    run = Run(f"{MIXED} SELECT SUM(b) FROM X, Y WHERE X.k = Y.k AND X.k = 1", types=["BIGINT"])
    run.add(("X", 1, 0.0, "", MOST), ("Y", 1, 0, 0.0, ""))
    assert run.executor.answer() == {(MOST,): 1}
    with pytest.raises(MillpondError, match="does not fit"):
        run.add(("Y", 1, 0, 0.0, ""))


def test_sums_of_decimals_are_exact() -> None:
    query = "SELECT M.k, SUM(m), AVG(m), SUM(n), MAX(m) FROM M, N WHERE M.k = N.k AND M.k = 1 GROUP BY M.k"
    run = Run(
        f"{MONEY} {query}", types=["INT", "DECIMAL(20,2)", "DECIMAL(14,6)", "DECIMAL(14,3)", "DECIMAL(10,2)"]
    )
    run.add(*[("M", 1, Decimal("0.10"))] * 3, ("N", 1, Decimal("0.001")))
    assert run.executor.answer() == {
        (1, Decimal("0.30"), Decimal("0.100000"), Decimal("0.003"), Decimal("0.10")): 1
    }
    run.add(*[("M", 1, Decimal("99999999.99"))] * 4, ("M", 1, None), ("N", 1, Decimal("-9.999")))
    assert run.executor.answer() == {
        (
            1,
            Decimal("800000000.52"),
            Decimal("57142857.180000"),
            Decimal("-79.984"),
            Decimal("99999999.99"),
        ): 1
    }


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row counts as 2**31 equal rows."""
    plain = Synopsis.of_batch

    def multiplied(*arguments: Any) -> Synopsis:
        tables = {}
        for name, table in plain(*arguments).tables.items():
            for place, field in enumerate(table.schema):
                if field.name.startswith(("n", "filled", "total")):
                    values = pa.array([value.as_py() * 2**31 for value in table[place]], field.type)
                    table = table.set_column(place, field, values)
            tables[name] = table
        return Synopsis(tables)

    monkeypatch.setattr(Synopsis, "of_batch", staticmethod(multiplied))


WIDE = "".join(f"CREATE STREAMING TABLE S{i} (a INT, b INT);" for i in range(5))


@pytest.mark.usefixtures("large")
def test_a_count_is_exact_up_to_the_end_of_its_type() -> None:
    run = Run(f"{WIDE} SELECT COUNT(*) FROM S0, S1 WHERE S0.a = S1.a AND S0.a = 1", types=["BIGINT"])
    run.add(("S0", 1, 0), ("S1", 1, 0))
    assert run.executor.answer() == {(1 << 62,): 1}
    with pytest.raises(MillpondError, match="does not fit"):
        run.add(("S0", 1, 0))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("streams", [3, 4, 5])
@pytest.mark.parametrize("item", ["COUNT(*)", "COUNT(S0.a)", "SUM(S1.a)", "1"])
def test_a_count_beyond_its_type_is_an_error(item: str, streams: int) -> None:
    """2**93, 2**124 and 2**155 matches: beyond BIGINT, near the end of HUGEINT, and beyond it."""
    names = [f"S{i}" for i in range(streams)]
    joined = " AND ".join(f"S0.a = {name}.a" for name in names[1:])
    run = Run(f"{WIDE} SELECT {item} FROM {', '.join(names)} WHERE {joined} AND S0.a = 1", types=["BIGINT"])
    run.add(*((name, 1, 0) for name in names[1:]))
    with pytest.raises(MillpondError, match="does not fit"):
        run.add(("S0", 1, 0))


@pytest.mark.usefixtures("large")
def test_an_average_may_be_of_more_rows_than_a_bigint_counts() -> None:
    query = "SELECT AVG(S0.a), MEDIAN(S0.a), SUM(S1.b) FROM S0, S1, S2"
    joined = "S0.a = S1.a AND S1.a = S2.a AND S0.a IN (1, 4)"
    run = Run(f"{WIDE} {query} WHERE {joined}", types=["DOUBLE", "DOUBLE", "BIGINT"])
    run.add(*((f"S{i}", a, b) for i in range(3) for a in (1, 4) for b in (5, -5)))
    assert run.executor.answer() == {(2.5, 2.5, 0): 1}


@pytest.mark.parametrize("rows", [(500, 501), (400, 500), (1, MOST_REPEATED), (1, MOST_REPEATED + 1)])
def test_every_duplicate_is_emitted(rows: tuple[int, int]) -> None:
    left, right = rows
    run = Run(f"{TABLE_I} SELECT A, E FROM S, T WHERE A = D AND A IN (1, 2) AND E = 7", types=["INT", "INT"])
    run.add(*[("S", 1, 0, 0)] * left, ("S", 2, 0, 0))
    emitted = run.add(*[("T", 1, 7)] * right, ("T", 2, 7))
    assert run.answer() == bag({(1, 7): left * right, (2, 7): 1})
    weights = [row["_weight"] for row in emitted]
    assert sum(weights) == left * right + 1
    assert all(0 < weight <= MOST_REPEATED for weight in weights)
    assert len(weights) == -(-left * right // MOST_REPEATED) + 1


# --- names -------------------------------------------------------------------------------------------

QUOTED = (
    'CREATE STREAMING TABLE `my stream` (`a b` INT, `select` INT, `x``y` INT, Mixed INT, `"q"` INT, `ä` INT);'
    "CREATE STREAMING TABLE `from` (`row` INT, `n` INT, `s0_k0` INT, `total0` INT, `_weight` INT, `o0` INT);"
)
NAMED = [
    Scenario(
        "rows",
        f"{QUOTED} SELECT `a b`, x.`select`, MIXED FROM `my stream` x, `from`"
        " WHERE `a b` = `row` AND `select` = `n` AND `a b` IN (1, 2) AND `n` = 3 AND mixed = 4",
        [[("my stream", 1, 3, 0, 4, 0, 0), ("from", 2, 3, 0, 0, 0, 0)], [("from", 1, 3, 0, 0, 0, 0)]],
        [{}, {(1, 3, 4): 1}],
    ),
    Scenario(
        "rows looked into",
        f'{QUOTED} SELECT DISTINCT `"q"` FROM `my stream`, `from` WHERE `x``y` < `row` AND `ä` <> `s0_k0`'
        ' AND `"q"` = 5',
        [[("my stream", 0, 0, 1, 0, 5, 9), ("from", 2, 0, 9, 0, 0, 0)], [("from", 2, 0, 8, 0, 0, 0)]],
        [{}, {(5,): 1}],
    ),
    Scenario(
        "groups",
        f"{QUOTED} SELECT `x``y`, SUM(`total0`), COUNT(DISTINCT `_weight`), MAX(`o0`)"
        " FROM `my stream`, `from` WHERE `x``y` = `n` AND `n` IN (1, 2) AND `_weight` BETWEEN 0 AND 3"
        " GROUP BY `x``y`",
        [
            [("my stream", 0, 0, 1, 0, 0, 0), ("from", 0, 1, 0, 5, 2, -7)],
            [("from", 0, 1, 0, 6, 2, -8), ("my stream", 0, 0, 1, 0, 0, 0)],
        ],
        [[(1, 5, 1, -7)], [(1, 22, 1, -7)]],
    ),
]


@pytest.mark.parametrize("scenario", NAMED, ids=lambda s: s.title)
def test_names_that_need_quotes_or_that_the_engine_uses(scenario: Scenario) -> None:
    assert_answers(scenario)


# --- rejected rows -------------------------------------------------------------------------------------


def test_rejected_rows_pass_through_the_operator() -> None:
    """They go to shards without state, and leave the operator unchanged."""
    run = Run(f"{TABLE_I} SELECT COUNT(*) FROM S WHERE A = 1")
    batch = pa.record_batch(
        {
            "s0_k0": pa.array([0, 0, 0, 0], pa.int32()),
            REASON: [None, "not a number", None, "CHECK"],
            RECORD: [None, '{"A": "x"}', None, None],
        }
    )
    parts = [p.to_pandas() for p in SynopsisMapper(run.program, "S")([batch, batch])]
    frames = pd.concat(parts)
    kept, bad = frames[frames["shard"] >= 0], frames[frames["shard"] < 0]
    [synopsis] = [decode_synopsis(p, run.program.slots, run.program.fingerprint)[0] for p in kept["payload"]]
    assert synopsis.tables["s0"].column("n").to_pylist() == [4]
    assert bad["payload"].isna().all() and len(bad) == 4
    processor = SynopsisProcessor(run.program, 1, ["BIGINT"])
    [left] = processor.handleInputRows((-1,), iter([bad]), None)
    assert list(left["_kind"]) == [RowKind.REJECTED] * 4
    assert Counter(zip(left["_stream"], left["_reason"], left["_record"].fillna(""), strict=True)) == {
        ("S", "not a number", '{"A": "x"}'): 2,
        ("S", "CHECK", ""): 2,
    }

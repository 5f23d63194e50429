"""Every malformed row is found, whatever the query uses of it, and no good row is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import DecimalType, IntegerType, StructField, StructType

from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.query.model import Table
from millpond.spark.sources.open import open_source
from millpond.spark.sources.opened import REASON, RECORD, OpenSource
from millpond.spark.sources.schema import spark_schema

TYPES = (
    "A INT, B BOOLEAN, D DATE, T TIMESTAMP, X DOUBLE, F FLOAT, P DECIMAL(5,2), L BIGINT, Y TINYINT, N STRING"
)
AB = "A INT, B INT"
NUMBERS = count()


def declare(columns: str, using: str = "", kind: str = "STREAMING TABLE") -> Table:
    [query] = parse(f"CREATE {kind} S ({columns}) {using}; SELECT COUNT(*) FROM S")
    return query.tables["S"]


def open_stream(
    spark: SparkSession,
    folder: Path,
    columns: str,
    using: str,
    strict: bool = False,
    lines: Sequence[str] = (),
) -> OpenSource:
    """A stream with a file of these lines in data/S."""
    write_lines(folder, lines)
    return open_source(spark, declare(columns, using), folder, strict)


def write_lines(folder: Path, lines: Sequence[str], name: str = "a.txt") -> None:
    (folder / "data" / "S").mkdir(parents=True, exist_ok=True)
    (folder / "data" / "S" / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_stream(frame: DataFrame) -> list[Row]:
    """All rows of a streaming frame."""
    assert frame.isStreaming
    name = f"rows_{next(NUMBERS)}"
    query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    return frame.sparkSession.table(name).collect()


def reasons(frame: DataFrame) -> list[str | None]:
    return [row[REASON] for row in read_stream(frame.select(REASON))]


def json(options: str = "") -> str:
    return f"USING json OPTIONS (path 'data/S'{options})"


def csv(options: str = "") -> str:
    return f"USING csv OPTIONS (path 'data/S'{options})"


# --- single records ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    title: str
    line: str
    reason: str | None  # None: a good row


JSON = [
    Case("good", '{"A": 1, "B": true, "D": "2024-02-29", "T": "2024-02-29 12:00:00", "X": 0.5}', None),
    Case("good numbers", '{"F": 1, "P": 999.99, "L": 3000000000, "Y": -128, "N": "text"}', None),
    Case("missing fields are NULL", "{}", None),
    Case("null is NULL", '{"A": null, "D": null, "N": null}', None),
    Case("undeclared field", '{"A": 2, "other": {"x": [1, "}"]}}', None),
    Case("brace in a string", '{"N": "a}b"}', None),
    Case("space at the end", '{"A": 3}  ', None),
    Case("truncated", '{"A": 1', "not valid JSON"),
    Case("no JSON", "hello", "not valid JSON"),
    Case("two objects", '{"A": 1}{"A": 2}', "not valid JSON"),
    Case("text after the object", '{"A": 1} x', "not valid JSON"),
    Case("brace after the object", '{"A": 1}}', "not valid JSON"),
    Case("comma after the object", '{"A": 1},', "not valid JSON"),
    Case("null", "null", "not a JSON object"),
    Case("number", "17", "not a JSON object"),
    Case("array", '[{"A": 1}]', "not a JSON object"),
    Case("empty array", "[]", "not a JSON object"),
    Case("text for INT", '{"A": "abc"}', "A: 'abc' is not INT"),
    Case("digits in quotes for INT", '{"A": "5"}', "A: '5' is not INT"),
    Case("empty text for INT", '{"A": ""}', "A: '' is not INT"),
    Case("fraction for INT", '{"A": 3.5}', "A: 3.5 is not INT"),
    Case("float for INT", '{"A": 1.0}', "A: 1.0 is not INT"),
    Case("too large for INT", '{"A": 3000000000}', "A: 3000000000 is not INT"),
    Case("boolean for INT", '{"A": true}', "A: true is not INT"),
    Case("object for INT", '{"A": {"x": 1}}', 'A: {"x":1} is not INT'),
    Case("the last of two", '{"A": 1, "Y": 128}', "Y: 128 is not TINYINT"),
    Case("too large for BIGINT", '{"L": 9223372036854775808}', "L: 9223372036854775808 is not BIGINT"),
    Case("word for BOOLEAN", '{"B": "yes"}', "B: 'yes' is not BOOLEAN"),
    Case("number for BOOLEAN", '{"B": 1}', "B: 1 is not BOOLEAN"),
    Case("no such day", '{"D": "2024-02-30"}', "D: '2024-02-30' is not DATE"),
    Case("number for DATE", '{"D": 20240230}', "D: 20240230 is not DATE"),
    Case("no such time", '{"T": "2024-01-01 25:00:00"}', "T: '2024-01-01 25:00:00' is not TIMESTAMP"),
    Case("text for DOUBLE", '{"X": "1,5"}', "X: '1,5' is not DOUBLE"),
    Case("text for FLOAT", '{"F": "x"}', "F: 'x' is not FLOAT"),
    Case("too many digits for DECIMAL", '{"P": 1000}', "P: 1000 is not DECIMAL(5,2)"),
    Case("unsigned for TINYINT", '{"Y": 255}', "Y: 255 is not TINYINT"),
    Case("text for TINYINT", '{"Y": "x"}', "Y: 'x' is not TINYINT"),
    Case("year beyond the calendar", '{"D": "12345-01-01"}', "D: '+12345-01-01' is not DATE"),
    Case("milliseconds for TIMESTAMP", '{"T": 1700000000000}', "T: '+55840-11-08 22:13:20' is not TIMESTAMP"),
    Case("ends of the calendar", '{"D": "0001-01-01", "T": "9999-12-31 23:59:59.999999"}', None),
    Case("long value", f'{{"A": "{"x" * 100}"}}', f"A: '{'x' * 59}…' is not INT"),
    Case("wrong, then right", '{"A": "x", "A": 2}', "a value is not of its declared type"),
]

CSV = [
    Case("good", "1,true,2024-02-29,2024-02-29 12:00:00,0.5,1,999.99,3000000000,-128,text", None),
    Case("empty fields are NULL", ",,,,,,,,,", None),
    Case("quoted", '2,,,,,,,,,"a,b"', None),
    Case("one field too many", ",,,,,,,,,,", "11 fields where 10 are declared"),
    Case("two fields too many", "1,,,,,,,,,,,x", "12 fields where 10 are declared"),
    Case("far too many", "," * 40, "26 or more fields where 10 are declared"),
    Case("one field", "1", "1 field where 10 are declared"),
    Case("one field too few", "1,,,,,,,,", "9 fields where 10 are declared"),
    Case("too many, the last in quotes", ',,,,,,,,,,"x,"', "11 fields where 10 are declared"),
    Case("too few, the last in quotes", ',,,,,,,,"x,"', "Y: 'x,' is not TINYINT"),
    Case("quote in quotes", '1,"a\\""', "B: 'a\"' is not BOOLEAN"),
    Case("open quote", '1,"x,,,,,,,', "B: 'x,,,,,,,' is not BOOLEAN"),
    Case("open quote in the last field", ',,,,,,,,,"x', None),
    Case("open quote around text", '"1', "1 field where 10 are declared"),
    Case("text for INT", "abc,,,,,,,,,", "A: 'abc' is not INT"),
    Case("fraction for INT", "3.5,,,,,,,,,", "A: '3.5' is not INT"),
    Case("too large for INT", "3000000000,,,,,,,,,", "A: '3000000000' is not INT"),
    Case("space around INT", " 5,,,,,,,,,", "A: ' 5' is not INT"),
    Case("word for BOOLEAN", ",yes,,,,,,,,", "B: 'yes' is not BOOLEAN"),
    Case("no such day", ",,2024-02-30,,,,,,,", "D: '2024-02-30' is not DATE"),
    Case("no such time", ",,,2024-01-01 25:00:00,,,,,,", "T: '2024-01-01 25:00:00' is not TIMESTAMP"),
    Case("text for DOUBLE", ",,,,x,,,,,", "X: 'x' is not DOUBLE"),
    Case("text for FLOAT", ",,,,,x,,,,", "F: 'x' is not FLOAT"),
    Case("too many digits for DECIMAL", ",,,,,,1000,,,", "P: '1000' is not DECIMAL(5,2)"),
    Case("too large for BIGINT", ",,,,,,,9223372036854775808,,", "L: '9223372036854775808' is not BIGINT"),
    Case("too large for TINYINT", ",,,,,,,,128,", "Y: '128' is not TINYINT"),
    Case("far beyond the calendar", ",,19000,,,,,,,", "D: '+19000-01-01' is not DATE"),
]


@pytest.fixture(scope="module", params=[("json", JSON), ("csv", CSV)], ids=["json", "csv"])
def checked_rows(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Case], list[Row]]:
    """The cases of a format, and the rows of one query over all of them with blank lines between."""
    format_, cases = request.param
    lines = [line for case in cases for line in (case.line, "", "   ")[: 3 if format_ == "json" else 2]]
    using = f"USING {format_} OPTIONS (path 'data/S')"
    source = open_stream(spark, tmp_path_factory.mktemp(format_), TYPES, using, lines=lines)
    assert source.rejects
    assert source.frame.columns == [*spark_schema(declare(TYPES)).names, REASON, RECORD]
    return cases, read_stream(source.frame)


def test_each_record_gets_its_reason(checked_rows: tuple[list[Case], list[Row]]) -> None:
    cases, rows = checked_rows
    found = [(case.title, row[REASON]) for case, row in zip(cases, rows, strict=True)]
    assert found == [(case.title, case.reason) for case in cases]


def test_a_rejected_row_keeps_its_record(checked_rows: tuple[list[Case], list[Row]]) -> None:
    cases, rows = checked_rows
    kept = [case.line if case.reason else None for case in cases]
    if "far" in cases[-1].title:  # Spark has read it, and does not keep its text
        kept[-1] = "{" + ",".join(f'"{name}":null' for name in "ABDTXFPLYN") + "}"
    assert [row[RECORD] for row in rows] == kept


def test_good_values_have_their_types(checked_rows: tuple[list[Case], list[Row]]) -> None:
    _, rows = checked_rows
    merged = {name: next(v for row in rows if (v := row[name]) is not None) for name in "ABDTXFPLYN"}
    day, moment = date(2024, 2, 29), datetime(2024, 2, 29, 12)
    assert merged == {
        "A": 1, "B": True, "D": day, "T": moment, "X": 0.5, "F": 1.0, "P": Decimal("999.99"),
        "L": 3_000_000_000, "Y": -128, "N": "text",
    }  # fmt: skip


# --- columns that the query does not use ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("using", "lines"),
    [
        (json(), ['{"A": 10, "B": 1}', '{"A": 10, "B": "x"}', '{"A": 1, "B": "x"}', '{"A": 1}']),
        (json(", multiLine 'true'"), ['[{"A": 10, "B": 1}', ', {"A": 10, "B": "x"}]']),
        (csv(), ["10,1", "10,x", "1,x", "1,"]),
        (csv(), ["10,1", "10,1,1", "1", "1,"]),
    ],
    ids=["json", "json whole files", "csv type", "csv count"],
)
def test_a_bad_value_in_an_unused_column_is_found(
    spark: SparkSession, tmp_path: Path, using: str, lines: list[str]
) -> None:
    frame = open_stream(spark, tmp_path, AB, using, lines=lines).frame
    assert len(read_stream(frame.where(f"{REASON} IS NOT NULL").select(REASON))) == 2
    kept = read_stream(frame.where(f"{REASON} IS NULL").select("A"))
    assert [row["A"] for row in kept] == ([] if "multiLine" in using else [10, 1])
    # The same with a condition that Spark would like to apply while it reads.
    both = read_stream(frame.where(f"{REASON} IS NOT NULL OR A = 10").select("A", REASON))
    assert [row[REASON] is None for row in both].count(False) == 2
    assert all(row["A"] == 10 for row in both if row[REASON] is None)


@pytest.mark.parametrize(("using", "line"), [(json(), '{"A": 1, "B": "x"}'), (csv(), "1,x")])
@pytest.mark.parametrize(
    "query",
    [
        lambda frame: frame.select("A"),
        lambda frame: frame.where("A = 10").select("A"),
        lambda frame: frame.select().selectExpr("1 AS one"),
    ],
    ids=["select", "where", "no column"],
)
def test_strict_fails_on_a_bad_value_in_an_unused_column(
    spark: SparkSession, tmp_path: Path, using: str, line: str, query: object
) -> None:
    source = open_stream(spark, tmp_path, AB, using, strict=True, lines=[line])
    assert not source.rejects and source.frame.columns == ["A", "B"]
    assert callable(query)
    with pytest.raises(StreamingQueryException) as error:
        read_stream(query(source.frame))
    assert f"malformed row in S: B: 'x' is not INT: {line}" in str(error.value)


def test_strict_does_not_change_good_rows(spark: SparkSession, tmp_path: Path) -> None:
    columns = "A INT NOT NULL CHECK (A > 0), B INT"
    source = open_stream(
        spark, tmp_path, columns, json(), strict=True, lines=['{"A": 1}', '{"A": 2, "B": 3}']
    )
    assert read_stream(source.frame) == [Row(A=1, B=None), Row(A=2, B=3)]


# --- CHECK and NOT NULL ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "line", "reason"),
    [
        ("hour INT CHECK (hour BETWEEN 0 AND 23)", '{"hour": 24}', "CHECK (hour BETWEEN 0 AND 23) is broken"),
        ("hour INT CHECK (hour BETWEEN 0 AND 23)", '{"hour": 23}', None),
        ("hour INT CHECK (hour BETWEEN 0 AND 23)", '{"hour": null}', None),
        ("A INT CHECK (A NOT IN (1, 2))", '{"A": 2}', "CHECK (A NOT IN (1, 2)) is broken"),
        ("A INT CHECK (A NOT IN (1, 2))", "{}", None),
        ("A INT CHECK (NOT A IN (1, 2))", '{"A": 2}', "CHECK (NOT (A IN (1, 2))) is broken"),
        ("A INT CHECK (A IS NOT NULL)", "{}", "CHECK (A IS NOT NULL) is broken"),
        (
            f"{AB}, CHECK (A < 0 OR A > 9 AND B = 1)", '{"A": 5}',
            "CHECK (A < 0 OR (A > 9 AND B = 1)) is broken",
        ),
        (
            f"{AB}, CHECK (NOT (A NOT IN (1, 2) AND B > 1))", '{"A": 3, "B": 2}',
            "CHECK (NOT (A NOT IN (1, 2) AND B > 1)) is broken",
        ),
        (f"{AB}, CHECK (A < 0 OR A > 9 AND B = 1)", '{"A": 10}', None),
        (f"{AB}, CHECK (A + 1 <= B)", '{"A": 2147483647, "B": 5}', "CHECK (A + 1 <= B) is broken"),
        ("L BIGINT CHECK (L - 1 < 0)", '{"L": -9223372036854775808}', None),
        ("P DECIMAL(4, 2) CHECK (P <> 1.5)", '{"P": 1.50}', "CHECK (P <> 1.5) is broken"),
        ("X DOUBLE CHECK (X < 1e3)", '{"X": 1000}', "CHECK (X < 1e3) is broken"),
        (
            "D DATE CHECK (D + 1 < '2024-03-01')", '{"D": "2024-02-29"}',
            "CHECK (D + 1 < '2024-03-01') is broken",
        ),
        (
            "T TIMESTAMP CHECK (T < TIMESTAMP '2024-01-01 12:00:00')", '{"T": "2024-01-01 12:00:00"}',
            "CHECK (T < TIMESTAMP '2024-01-01 12:00:00') is broken",
        ),
        ("N STRING CHECK (N = 'it\\'s \\\\')", '{"N": "it\'s \\\\"}', None),
        ("B BOOLEAN CHECK (NOT B)", '{"B": true}', "CHECK (NOT (B)) is broken"),
        ("A INT CHECK (FALSE)", "{}", "CHECK (FALSE) is broken"),
        ("A INT CHECK (A > NULL)", '{"A": 1}', None),
        ("`a ``b.c` INT CHECK (`a ``b.c` > 0)", '{"a `b.c": 0}', "CHECK (`a ``b.c` > 0) is broken"),
        ("A INT NOT NULL", "{}", "A is NULL but declared NOT NULL"),
        ("A INT NOT NULL", '{"A": 0}', None),
        ("A INT NOT NULL CHECK (A > 0)", '{"A": "x"}', "A: 'x' is not INT"),
    ],
)  # fmt: skip
def test_a_row_that_breaks_a_constraint_is_rejected(
    spark: SparkSession, tmp_path: Path, columns: str, line: str, reason: str | None
) -> None:
    write_lines(tmp_path, [line])
    [row] = open_source(spark, declare(columns, json(), "TABLE"), tmp_path).frame.collect()
    assert (row[REASON], row[RECORD]) == (reason, line if reason else None)


def test_a_broken_csv_row_is_shown_as_json(spark: SparkSession, tmp_path: Path) -> None:
    columns = "A INT CHECK (A > 0), N STRING"
    frame = open_stream(spark, tmp_path, columns, csv(), lines=["0,"]).frame
    assert read_stream(frame.select(RECORD)) == [Row(**{RECORD: '{"A":0,"N":null}'})]


# --- options --------------------------------------------------------------------------------------------


X_IS_NOT_INT = "A: 'x' is not INT"
OPTIONS = {
    "header": (
        "K INT, N STRING", csv(", HEADER 'true', sep ';', nullValue 'NA'"),
        ["K;N", '1;"a;b"', "NA;x", ";y", "z;1;2", "z;1"],
        [None, None, None, "3 fields where 2 are declared", "K: 'z' is not INT"],
    ),
    "tabs": (AB, csv(r", sep '\t'"), ["1\t2", "1\t2\t3", "1"],
             [None, "3 fields where 2 are declared", "1 field where 2 are declared"]),
    "csv over lines": ("A INT, N STRING", csv(", multiLine 'true'"), ['1,"a', 'b"', 'x,"c', 'd"'],
                       [None, X_IS_NOT_INT]),
    "csv date": ("D DATE", csv(", dateFormat 'dd/MM/yyyy'"), ["31/01/2024", "2024-01-31"],
                 [None, "D: '2024-01-31' is not DATE"]),
    "json date": ("D DATE", json(", dateFormat 'dd/MM/yyyy'"), ['{"D": "31/01/2024"}', '{"D": "01/31/2024"}'],
                  [None, "D: '01/31/2024' is not DATE"]),
    "lenient json": (AB, json(", allowUnquotedFieldNames 'true', allowComments 'true'"),
                     ["{A: 1, C: {x: 1}} // {}", "{A: x}"], [None, "not valid JSON"]),
    "lineSep": (AB, json(", lineSep '|'"), ['{"A": 1}|{"A": "x"}'], [None, X_IS_NOT_INT]),
    "array": (AB, json(", multiLine 'true'"), ['[{"A": 1},', '{"B": 2}]'], [None, None]),
    "object over lines": (AB, json(", multiLine 'true'"), ['{"B": 1,', '"A": "x"}'], [X_IS_NOT_INT]),
    "cut": (AB, json(", multiLine 'true'"), ['{"A": 1,', "}"], ["not valid JSON"]),
    "wrong array": (AB, json(", multiLine 'true'"), ['[{"A": "x"}]'], ["an array with a wrong value in it"]),
    "encoding": ("A INT, N STRING CHECK (N = 'Ã¤')", json(r", encoding 'ISO-8859-1', lineSep '\n'"),
                 ['{"N": "ä"}', '{"A": "x"}'], [None, X_IS_NOT_INT]),
    "glob": (AB, json(", pathGlobFilter '*.json'"), ['{"A": 1}'], []),
    "old name": (AB, "USING org.apache.spark.sql.json OPTIONS (path 'data/S')", ['{"A": "x"}'],
                 [X_IS_NOT_INT]),
}  # fmt: skip


@pytest.mark.parametrize(("columns", "using", "lines", "expected"), OPTIONS.values(), ids=OPTIONS)
def test_options_reach_spark(
    spark: SparkSession,
    tmp_path: Path,
    columns: str,
    using: str,
    lines: list[str],
    expected: list[str | None],
) -> None:
    assert reasons(open_stream(spark, tmp_path, columns, using, lines=lines).frame) == expected


def test_max_files_per_trigger(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_lines(tmp_path, ['{"A": 1}'], name)
    frame = open_stream(spark, tmp_path, AB, json(", maxFilesPerTrigger '2'"), lines=['{"A": 1}']).frame
    sizes: list[int] = []
    query = frame.writeStream.foreachBatch(lambda batch, _: sizes.append(batch.count()))
    query.trigger(availableNow=True).start().awaitTermination()
    assert sizes == [2, 2]


def test_a_partition_column_comes_from_folder_names(spark: SparkSession, tmp_path: Path) -> None:
    for folder, line in (("day=1", '{"A": 1}'), ("day=x", '{"A": 2}')):
        write_lines(tmp_path / "data" / "S" / folder, [line])
        (tmp_path / "data" / "S" / folder / "data" / "S" / "a.txt").rename(
            tmp_path / "data" / "S" / folder / "a.txt"
        )
    rows = read_stream(open_stream(spark, tmp_path, "A INT, day INT", json()).frame)
    found = sorted((row["A"], row["day"], row[REASON]) for row in rows)
    assert found == [(1, 1, None), (2, None, "day: 'x' is not INT")]


@pytest.mark.parametrize("option", ["mode 'DROPMALFORMED'", "columnNameOfCorruptRecord 'x'"])
@pytest.mark.parametrize("using", [json, csv])
def test_options_that_hide_malformed_rows_are_refused(
    spark: SparkSession, tmp_path: Path, using: object, option: str
) -> None:
    assert callable(using)
    with pytest.raises(MillpondError, match=option.split()[0]) as error:
        open_stream(spark, tmp_path, AB, using(f", {option}"))
    assert error.value.remedy and "remove it" in error.value.remedy


# --- where rows come from -------------------------------------------------------------------------------


def test_a_relative_path_is_relative_to_the_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "q[1] {2}"
    monkeypatch.chdir(tmp_path)
    frame = open_stream(spark, folder, AB, json(), lines=['{"A": 1}']).frame
    assert [row["A"] for row in read_stream(frame)] == [1]
    monkeypatch.chdir("/")
    for path in (f"{tmp_path}/*/data/S", f"file:{tmp_path}/*/data/S"):
        frame = open_stream(spark, tmp_path, AB, f"USING json OPTIONS (path '{path}')").frame
        assert [row["A"] for row in read_stream(frame)] == [1]


def test_a_static_relation(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path, ["K,LABEL", "1,a", "x,b"])
    table = declare("K INT, LABEL STRING", csv(", header 'true'"), "TABLE")
    frame = open_source(spark, table, tmp_path).frame
    assert not frame.isStreaming
    assert [tuple(row) for row in frame.collect()] == [
        (1, "a", None, None),
        (None, "b", "K: 'x' is not INT", "x,b"),
    ]


def test_a_format_with_its_own_types(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("SELECT 1 AS A, 2 AS B UNION ALL SELECT -1, NULL").coalesce(1).write.parquet(f"{tmp_path}/p")
    using = "USING parquet OPTIONS (path 'p')"
    plain = open_stream(spark, tmp_path, AB, using)
    assert not plain.rejects and plain.frame.columns == ["A", "B"]
    assert read_stream(plain.frame) == [Row(A=1, B=2), Row(A=-1, B=None)]
    checked = open_stream(spark, tmp_path, "A INT CHECK (A > 0), B INT NOT NULL", using)
    assert [tuple(row) for row in read_stream(checked.frame)] == [
        (1, 2, None, None),
        (-1, None, "B is NULL but declared NOT NULL", '{"A":-1,"B":null}'),
    ]


def test_malformed_xml_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    lines = ["<r><A>1</A><B>2</B></r>", "<r><A>x</A><B>3</B></r>"]
    using = "USING xml OPTIONS (path 'data/S', rowTag 'r')"
    frame = open_stream(spark, tmp_path, AB, using, lines=lines).frame
    good, bad = read_stream(frame.select("B", REASON))
    assert (good["B"], good[REASON]) == (2, None)
    assert bad[REASON].startswith("not valid XML, or a value is not of its declared type")


RATE = "USING `rate-micro-batch` OPTIONS (rowsPerBatch '200', startTimestamp '0')"


def first_batch(frame: DataFrame) -> list[Row]:
    rows: list[Row] = []
    query = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect())).start()
    try:
        while not rows and query.isActive:
            query.awaitTermination(1)
    finally:
        query.stop()
    return rows[:200]


def test_a_source_with_its_own_schema(spark: SparkSession, tmp_path: Path) -> None:
    same = open_stream(spark, tmp_path, "timestamp TIMESTAMP, VALUE BIGINT", RATE)
    assert not same.rejects and same.frame.columns == ["timestamp", "VALUE"]
    assert [row["VALUE"] for row in first_batch(same.frame)] == list(range(200))
    narrow = open_stream(spark, tmp_path, "value TINYINT", RATE)
    assert narrow.rejects
    rows = first_batch(narrow.frame)
    assert [row["value"] for row in rows[:128]] == list(range(128))
    assert [row[REASON] for row in rows[126:129]] == [None, None, "value: 128 is not TINYINT"]
    assert rows[128][RECORD] == '{"value":null}'


@pytest.mark.parametrize(
    ("columns", "using", "message", "remedy"),
    [
        (AB, "", "S does not say where its rows come from", "add USING"),
        (AB, "USING json OPTIONS (maxFilesPerTrigger '1')", "S does not say where its files are", "path"),
        (AB, "USING json OPTIONS (path 'data/nowhere')", "data/nowhere", "create the folder"),
        (
            AB,
            "USING parquet OPTIONS (path '/no/where')",
            "there is nothing at /no/where",
            "create the folder",
        ),
        (AB, "USING nosuch OPTIONS (path 'data/S')", "S: Spark has no format nosuch", "package"),
        ("A INT", RATE, "S: its source has no column A", "timestamp TIMESTAMP, value BIGINT"),
        ("value DATE", RATE, "S: value is declared DATE", "BIGINT"),
        ("value STRING", "USING socket", "S: Spark cannot open it: ", "OPTIONS"),
        ("_Reason INT", json(), "S: the column name _Reason is reserved", "choose another"),
    ],
)
@pytest.mark.parametrize("kind", ["STREAMING TABLE", "TABLE"])
def test_a_source_that_cannot_be_opened_is_reported_in_one_line(
    spark: SparkSession, tmp_path: Path, columns: str, using: str, message: str, remedy: str, kind: str
) -> None:
    if using == RATE and kind == "TABLE":
        message, remedy = "S: Spark cannot open it", "USING"
    write_lines(tmp_path, [])
    with pytest.raises(MillpondError) as error:
        open_source(spark, declare(columns, using, kind), tmp_path)
    assert message in error.value.message and remedy in (error.value.remedy or "")
    assert len(str(error.value).splitlines()) == 1 and "Exception" not in str(error.value)


def test_the_schema_needs_no_spark() -> None:
    fields = [StructField("A", IntegerType()), StructField("p", DecimalType(7, 3))]
    assert spark_schema(declare("A INT NOT NULL, p DECIMAL(7, 3)")) == StructType(fields)

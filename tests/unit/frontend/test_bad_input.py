"""Every wrong text gets one line: what is wrong, where, and what to do about it.

The first line of a file of the corpus says what to expect: ``-- expect: part | part @ line:column``.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from millpond.errors import MillpondError, Position, SqlError
from millpond.frontend.parse import parse, parse_query, read_text

BAD = sorted((Path(__file__).parents[2] / "fixtures" / "bad").glob("*.sql"))
EXPECT = re.compile(r"-- expect: (?P<parts>.*?)(?: @ (?P<line>\d+):(?P<column>\d+))?")
TABLES = "CREATE STREAMING TABLE S (A INT, B INT);\n"


def failure(text: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        parse(text)
    return caught.value


def expectation(path: Path) -> tuple[list[str], Position | None]:
    first = path.read_bytes().split(b"\n")[0].decode("utf-8", "ignore").replace("\0", "")
    if not first.startswith("-- expect: "):
        return [], None  # an empty file, or one that holds no text
    match = EXPECT.fullmatch(first)
    assert match, f"{path.name}: no expectation"
    place = Position(int(match["line"]), int(match["column"])) if match["line"] else None
    return [part.strip() for part in match["parts"].split("|")], place


def test_the_corpus_is_there() -> None:
    assert len(BAD) >= 70


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_file(path: Path) -> None:
    parts, place = expectation(path)
    with pytest.raises(SqlError) as caught:
        parse(read_text(path))
    error = caught.value
    for part in parts:
        assert part in str(error)
    if place:
        assert error.position == place
    assert len(str(error).splitlines()) == 1
    assert "\x1b" not in str(error)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_an_unsupported_construct_is_located(path: Path) -> None:
    with pytest.raises(SqlError) as caught:
        parse(read_text(path))
    if "not supported" in caught.value.message:
        assert caught.value.position
        assert len(caught.value.message) <= 120


@pytest.mark.parametrize(
    "query",
    [
        "SELECT A FROM (SELECT A FROM S LIMIT 3)",
        "SELECT MEDIAN(DISTINCT A) FROM S",
    ],
)
def test_a_remedy_does_not_change_the_meaning(query: str) -> None:
    """Where nothing equivalent can be written, no other query is proposed."""
    assert not re.search("write|put|leave|instead", failure(TABLES + query).remedy or "")


LARGE = {
    "10,000 ORs": "SELECT A FROM S WHERE " + " OR ".join(f"A = {i}" for i in range(10_000)),
    "IN with 10,000 values": f"SELECT A FROM S WHERE A IN ({', '.join(map(str, range(10_000)))})",
}


@pytest.mark.parametrize("query", LARGE.values(), ids=LARGE.keys())
def test_too_many_comparisons(query: str) -> None:
    error = failure(TABLES + query)
    assert "10000 comparisons" in error.message and "limit of 1000" in error.message
    assert error.remedy and "BETWEEN" in error.remedy and "static relation" in error.remedy
    assert error.position == Position(2, 1)


HUGE = {
    "parentheses": "SELECT A FROM S WHERE " + "(" * 30_000 + "A = 1" + ")" * 30_000,
    "signs": "SELECT " + "- " * 30_000 + "A FROM S",
    "sums": "SELECT " + "+".join(["A"] * 30_000) + " FROM S",
    "unions": " UNION ".join(["SELECT A FROM S"] * 10_000),
    "joins": "SELECT * FROM S" + "".join(f" JOIN S x{i} ON x{i}.A = S.A" for i in range(5_000)),
    "tokens": "SELECT " + "A, " * 100_000 + "A FROM S",
    "characters": "SELECT A FROM S WHERE name = '" + "x" * 2_000_000 + "'",
    "quotes": "SELECT " + "'" * 99_999,
    "comments": "SELECT " + "/*" * 50_000,
    "nested parts": "SELECT A FROM S WHERE " + "1 = 1 OR 1 = 1 AND NOT (" * 5_000,
}


@pytest.mark.campaign
@pytest.mark.parametrize("query", HUGE.values(), ids=HUGE.keys())
def test_time_is_bounded(query: str) -> None:
    start = time.perf_counter()
    failure(TABLES + query)
    assert time.perf_counter() - start < 10


def test_long_chains_within_the_limits_are_read() -> None:
    condition = " AND ".join(f"A <> {i}" for i in range(1_000))
    [query] = parse(f"{TABLES} SELECT A FROM S WHERE {'NOT ' * 90} ({condition})")
    assert len(query.selects[0].where.operands) == 1_000  # type: ignore[union-attr]


def test_nesting_within_the_limits_is_read() -> None:
    assert parse(f"{TABLES} SELECT A FROM S WHERE {'(' * 100} A = 1 {')' * 100}")
    assert parse(f"{TABLES} {'(' * 100} SELECT A FROM S {')' * 100}")


def test_a_caller_deep_in_the_stack_gets_an_error_too() -> None:
    text = f"{TABLES} SELECT A FROM S WHERE {'(' * 90} A = 1 {')' * 90}"

    def sink(levels: int) -> None:
        if levels:
            sink(levels - 1)
        else:
            parse(text)

    for levels in range(500, 1_000, 50):
        try:
            sink(levels)
        except MillpondError as error:
            assert "nested too deep" in str(error)
        except RecursionError:  # the stack ended outside the parser
            return


@pytest.mark.parametrize("text", ["", " \n\t", ";", ";;;", "-- note", "/* note */", "\ufeff"])
def test_nothing_there(text: str) -> None:
    assert "there is no query" in str(failure(text))
    with pytest.raises(SqlError, match="there is no query"):
        parse_query(text, {})


def test_parse_query_takes_one_select() -> None:
    with pytest.raises(SqlError, match="CREATE is not supported here"):
        parse_query(TABLES, {})
    with pytest.raises(SqlError, match="line 1, column 18: a second statement"):
        parse_query("SELECT A FROM S; SELECT A FROM S", {})


def test_read_text(tmp_path: Path) -> None:
    good = tmp_path / "good.sql"
    good.write_bytes("\ufeffSELECT 'ä'".encode())
    assert read_text(good) == "SELECT 'ä'"
    with pytest.raises(SqlError, match="there is no such file"):
        read_text(tmp_path / "missing.sql")
    with pytest.raises(SqlError, match="this is a folder"):
        read_text(tmp_path)
    with pytest.raises(SqlError, match="cannot be read"):
        read_text("bad\0name")
    with pytest.raises(SqlError, match="cannot be read"):
        read_text(good / "below")

"""What the page of the studio gets to know about a text."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.studio.answers import answer_question
from millpond.studio.examples import Example, list_examples

STREAMS = "CREATE STREAMING TABLE clicks (ad INT, price INT); CREATE STREAMING TABLE offers (ceiling INT);\n"


def check(text: str) -> dict[str, Any]:
    return answer_question({"task": "check", "text": text})


def cut(text: str, place: dict[str, int]) -> str:
    """The part of a text between two offsets that count UTF-16 code units."""
    units = text.encode("utf-16-le")
    return units[2 * place["from"] : 2 * place["to"]].decode("utf-16-le")


@pytest.mark.parametrize("before", ["", "-- 🎉\n", "\ufeff", "/* ä\r\n */ "])
def test_queries_and_marks_are_where_they_stand_in_the_text(before: str) -> None:
    queries = (
        "SELECT price FROM clicks",
        "SELECT COUNT(*) AS `🎉`\nFROM clicks c, offers WHERE c.price < ceiling AND c.ad = 7",
    )
    text = f"{before}{STREAMS}{queries[0]};\n  {queries[1]} -- end\n;"
    first, second = check(text)["verdicts"]
    assert (first["outcome"], cut(text, first), first["marks"]) == ("bounded", queries[0], [])
    assert (second["outcome"], cut(text, second)) == ("unbounded", queries[1])
    assert [cut(text, mark) for mark in second["marks"]] == ["c.price < ceiling"]
    assert second["marks"][0]["message"].startswith("c.price and offers.ceiling can take infinitely many")


@pytest.mark.parametrize(
    ("text", "marked", "line", "column"),
    [
        (f"{STREAMS}SELECT x FROM clicks", "x", 2, 8),
        (f"{STREAMS}SELECT '🎉', x FROM clicks", "x", 2, 13),
        ("SELECT a FROM nowhere", "nowhere", 1, 15),
        (f"{STREAMS}SELECT ad FROM clicks WHERE", "WHERE", 2, 23),
    ],
)
def test_an_error_has_its_place(text: str, marked: str, line: int, column: int) -> None:
    error = check(text)["error"]
    assert (error["line"], error["column"]) == (line, column)
    assert cut(text, error) == marked
    assert "\n" not in error["message"]


@pytest.mark.parametrize(
    "text", ["", " ", ";", "--", "CREATE STREAMING TABLE t (a INT)", "\x00", "('" * 20_000]
)
def test_a_text_without_query_is_an_error(text: str) -> None:
    assert check(text)["error"]["message"]


@pytest.mark.parametrize("example", list_examples(), ids=lambda example: example.name)
def test_examples_get_the_verdicts_that_their_comments_say(example: Example) -> None:
    outcomes = [verdict["outcome"] for verdict in check(example.text)["verdicts"]]
    assert (
        outcomes
        == {
            "clicks": ["unbounded", "bounded", "bounded", "unbounded"],
            "orders": ["bounded", "unbounded", "bounded", "unbounded"],
            "sensors": ["bounded", "bounded", "unbounded", "bounded", "bounded"],
            "auctions": ["bounded", "unbounded", "bounded", "bounded", "bounded"],
        }[example.name]
    )


def test_examples_fit_the_editor() -> None:
    """No line has to be wrapped beside the verdict on a small screen."""
    for example in list_examples():
        assert max(map(len, example.text.splitlines())) <= 72, example.name
        assert example.title and example.about.endswith((".", "?"))


def test_a_bounded_query_has_its_sections() -> None:
    text = f"{STREAMS}SELECT COUNT(*) FROM clicks, offers WHERE price < ceiling AND price BETWEEN 1 AND 9"
    [verdict] = check(text)["verdicts"]
    assert [section["name"] for section in verdict["sections"]] == ["kept", "picture"]
    details = answer_question({"task": "details", "text": text, "query": 0})["sections"]
    assert [section["name"] for section in details] == ["growth"]


def test_an_unbounded_query_has_a_proof_and_repairs() -> None:
    text = f"-- 🎉\n{STREAMS}SELECT price FROM clicks; SELECT DISTINCT price FROM clicks;"
    verdict = check(text)["verdicts"][1]
    assert [section["name"] for section in verdict["sections"]] == ["why", "picture"]
    question = {"text": text, "query": 1}
    details = answer_question({"task": "details", **question})["sections"]
    assert "proof" in [section["name"] for section in details]
    repairs = answer_question({"task": "repairs", **question})["repairs"]
    assert repairs[0]["edits"] and repairs[0]["keeps"].startswith("keeps at most")
    for repair in repairs:
        repaired = apply(text, repair["edits"])
        assert check(repaired)["verdicts"][1]["outcome"] == "bounded" or not repair["edits"]


def apply(text: str, edits: list[dict[str, Any]]) -> str:
    """The text with edits whose offsets count UTF-16 code units, as the page makes them."""
    units = text.encode("utf-16-le")
    for edit in sorted(edits, key=lambda each: -each["from"]):
        insert = edit["insert"].encode("utf-16-le")
        units = units[: 2 * edit["from"]] + insert + units[2 * edit["to"] :]
    return units.decode("utf-16-le")


@pytest.mark.parametrize("number", [1, -1, 10**30])
def test_a_query_that_is_not_there_is_an_error(number: int) -> None:
    text = f"{STREAMS}SELECT price FROM clicks"
    answer = answer_question({"task": "details", "text": text, "query": number})
    assert answer["error"]["message"] == f"there is no query {number + 1}"


def test_names_of_the_user_are_escaped() -> None:
    name = "<b>x</b>"
    text = f"CREATE STREAMING TABLE `{name}` (`{name}` INT); SELECT DISTINCT `{name}` FROM `{name}`"
    [verdict] = check(text)["verdicts"]
    details = answer_question({"task": "details", "text": text, "query": 0})["sections"]
    shown = [section["html"] for section in verdict["sections"] + details]
    assert not any(name in html for html in shown)
    assert any("&lt;b&gt;" in html for html in shown)


def test_an_undetermined_query_has_warnings() -> None:
    query = (
        "SELECT DISTINCT 1 FROM clicks x, clicks y, clicks z WHERE x.price < y.price AND y.price < z.price"
    )
    [verdict] = check(STREAMS + query)["verdicts"]
    assert verdict["outcome"] == "undetermined"
    assert {mark["severity"] for mark in verdict["marks"]} <= {"warning"}

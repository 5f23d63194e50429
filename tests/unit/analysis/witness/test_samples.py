"""Samples of values: strings that match patterns, documents with all fields, and values that recur."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime

import pytest

import millpond
from millpond.analysis.witness.sample_choices import SampleChoices
from millpond.analysis.witness.sample_texts import match_like, match_regex, match_time
from millpond.analysis.witness.sampled_templates import find_sampled_template
from millpond.frontend.parse import parse
from millpond.runtime.query_sql import evaluate_worlds
from millpond.runtime.row_queries import query_rows

CLICKS = "CREATE STREAMING TABLE clicks (usr INT, line STRING, at TIMESTAMP); "
PATTERNS = [
    "id=([a-z0-9]+)",
    "^[^@]+@[^@]+$",
    r"status=(\d+)",
    r"^(GET|POST) (\S+)",
    r"^[A-Z]{2}\d{3,}$",
    r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-z]{2,}",
    "(?i)error.*x",
    r"^/api/v\d+/.*\.json$",
    "a?b*c+d{2,4}[0-9]*",
    r"\[(\d+)\]\s+\w+",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_samples_match_a_regular_expression_and_differ(pattern: str) -> None:
    sample = match_regex(pattern)
    assert sample is not None and sample.varies
    made = [sample.make(key, None) for key in range(1_000)]
    assert all(re.search(pattern, each) for each in made)
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("pattern", ["(?=x)y", "(a", r"\p{L}", "x{1000}", "[[:alpha:]]+", r"[\u0430-\u044f]"])
def test_unknown_regular_expressions_have_no_samples(pattern: str) -> None:
    assert match_regex(pattern) is None


def test_samples_match_like() -> None:
    made = [match_like("100\\%_of %").make(key, None) for key in range(50)]
    assert len(set(made)) == 50 and all(re.fullmatch(r"100%.of .*", each) for each in made)


def test_samples_are_times_in_a_format() -> None:
    sample = match_time("dd-MMM-yyyy'T'hh:mm a", 1)
    assert sample is not None
    assert datetime.strptime(sample.make(31, None), "%d-%b-%YT%I:%M %p") == datetime(2000, 2, 1)
    assert match_time("yyyy-MM-dd G", 1) is None


def test_documents_have_all_fields_that_a_query_reads() -> None:
    (query,) = parse(
        CLICKS + "SELECT get_json_object(line, '$.user.id'), COUNT(*) FROM clicks "
        "WHERE get_json_object(line, '$.type') = 'buy' AND get_json_object(line, '$.user.tags[0]') = 'new' "
        "GROUP BY 1"
    )
    table = query.tables["clicks"]
    samples = SampleChoices(query).list_samples(table, table.column("line"))
    documents = [json.loads(each.make(5, None)) for each in samples]
    assert any(document["type"] == "buy" and document["user"]["tags"] == ["new"] for document in documents)
    assert all({"id", "tags"} == document["user"].keys() for document in documents)


def test_assumptions_name_the_expressions_over_the_key() -> None:
    verdict = millpond.check(
        CLICKS + "SELECT get_json_object(line, '$.id'), AVG(usr) FROM clicks "
        "WHERE get_json_object(line, '$.type') = 'buy' GROUP BY 1"
    )
    assert isinstance(verdict, millpond.Verdict)
    assert verdict.assumptions == (
        "GET_JSON_OBJECT(line, '$.id') takes any number of values",
        "any number of values of line fulfil the conditions on GET_JSON_OBJECT(line, '$.type')",
    )
    assert len(verdict.witness(50)["universe"]) == 50


def test_a_plain_key_needs_no_assumption() -> None:
    verdict = millpond.check(
        CLICKS + "SELECT usr, SUM(length(line)) FROM clicks WHERE line LIKE '%@%' GROUP BY usr"
    )
    assert isinstance(verdict, millpond.Verdict)
    assert (verdict.outcome, verdict.assumptions) == ("unbounded", ())


@pytest.mark.parametrize(
    "key",
    [
        "date_format(to_timestamp(line), 'DDD')",
        "date_format(to_timestamp(line), 'HH:mm:ss')",
        "CASE WHEN get_json_object(line, '$.id') > '5' THEN 1 ELSE 0 END",
        "substr(line, 1, 2)",
    ],
)
def test_values_that_recur_are_no_witness(key: str) -> None:
    (query,) = parse(CLICKS + f"SELECT {key} AS k, SUM(usr) FROM clicks WHERE usr IN (1, 2) GROUP BY 1")
    assert find_sampled_template(query) is None


def test_witness_keeps_the_rate_of_a_stream() -> None:
    stream = CLICKS.rstrip("; ") + " TBLPROPERTIES ('rate' = '10 per second'); "
    verdict = millpond.check(stream + "SELECT usr FROM clicks GROUP BY usr HAVING COUNT(*) > 1000")
    assert isinstance(verdict, millpond.Verdict)
    probe = verdict.witness(2)["probes"][0]
    times = Counter(each["row"]["at"] for each in probe)
    assert len(probe) == 1_000 and max(times.values()) == 10


def test_repeated_rows_are_counted_as_often_as_they_come() -> None:
    (query,) = parse(CLICKS + "SELECT usr, COUNT(*) FROM clicks GROUP BY usr")
    one, other = ({"usr": usr, "line": "a", "at": datetime(2000, 1, 1)} for usr in (1, 2))
    worlds = [{"clicks": [one] * 3 + [other] + [one] * 2}, {"clicks": [dict(one), dict(one)]}, {}]
    answers = [dict(answer) for answer in evaluate_worlds(query, worlds)]
    assert answers == [{(1, 5): 1, (2, 1): 1}, {(1, 2): 1}, {}]


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("substring_index('a.b.c', '.', 2)", "a.b"),
        ("substring_index('a.b.c', '.', -2)", "b.c"),
        ("substring_index('a.b.c', '.', 9)", "a.b.c"),
        ("substring_index('a.b.c', '.', -9)", "a.b.c"),
        ("substring_index('abc', '.', 1)", "abc"),
        ("substring_index('a.b', '.', 0)", ""),
        ("substring_index(NULL, '.', 1)", None),
    ],
)
def test_duckdb_computes_substring_index_like_spark(call: str, value: str | None) -> None:
    assert query_rows(f"SELECT {call}", {})[1] == [(value,)]

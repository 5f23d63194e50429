"""The report as HTML: well-formed, accessible by its structure, and safe with hostile names."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise

import pytest

import millpond
from millpond.analysis.card import DARK_OUTCOMES, LIGHT_OUTCOMES
from millpond.analysis.verdict import Verdict
from millpond.report.metrics_file import Batch
from millpond.report.page import render_page
from millpond.report.theme import DARK_COLOURS, LIGHT_COLOURS
from tests.support.verdict_fixtures import VerdictExample, read_examples

VOID = {"meta", "br"}
SHOP = """
CREATE STREAMING TABLE clicks (user_id INT, price INT, country TINYINT);
CREATE STREAMING TABLE offers (ceiling INT, kind STRING);
"""


class Reader(HTMLParser):
    """Collects the elements of a page, and the text of each kind; asserts that they are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)

    def find(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(piece for pieces in self.texts.values() for piece in pieces)


def check_all(sql: str) -> list[Verdict]:
    found = millpond.check(sql)
    return found if isinstance(found, list) else [found]


def read_page(sql: str, batches: list[Batch] | None = None) -> Reader:
    return Reader(render_page(check_all(sql), "clicks.sql", batches or []))


def assert_sound(reader: Reader) -> None:
    """Ids are unique, references have targets, headings are in order, and nothing comes from elsewhere."""
    ids = [a["id"] for _, a in reader.elements if "id" in a]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    for _, attributes in reader.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(name) is None or attributes[name] in ids
        for name in ("href", "src", "xlink:href", "action"):
            value = attributes.get(name)
            assert value is None or (value.startswith("#") and value[1:] in ids)
        assert not [name for name in attributes if name.startswith("on")]
    levels = [int(tag[1]) for tag, _ in reader.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert not {"link", "img", "iframe", "object", "embed"} & {tag for tag, _ in reader.elements}
    assert len(reader.find("main")) == len(reader.find("header")) == len(reader.find("footer")) == 1
    for svg in reader.find("svg"):
        assert svg["role"] == "img" and svg["aria-label"]
    assert len(reader.find("caption")) == len(reader.find("table"))
    assert all("scope" in cell for cell in reader.find("th"))


def list_examples() -> list[VerdictExample]:
    """Every 28th example, about 25 queries of all kinds."""
    return read_examples()[3::28]


@pytest.mark.parametrize("example", list_examples(), ids=str)
def test_every_kind_of_query_has_a_sound_report(example: VerdictExample) -> None:
    (verdict,) = check_all(example.sql)
    reader = Reader(render_page([verdict], "example.sql"))
    assert_sound(reader)
    assert verdict.outcome in reader.text
    for reason in verdict.reasons:
        assert reason.message in reader.text


def test_there_are_enough_examples_of_each_outcome() -> None:
    outcomes = Counter(example.outcomes[0] for example in list_examples())
    assert sum(outcomes.values()) >= 20 and outcomes["bounded"] >= 5 and outcomes["unbounded"] >= 5


def test_the_report_on_an_unbounded_query_has_its_proof_with_evaluated_answers() -> None:
    reader = read_page(SHOP + "SELECT price FROM clicks, offers WHERE price < ceiling")
    assert reader.texts["mark"] == ["price", "price < ceiling"]
    assert "8 possible pasts" in reader.text
    cells = [text.strip() for text in reader.texts["td"] if text.strip()]
    # Row k is written to answer question k, together with the rows below its price.
    assert [cell for cell in cells if re.fullmatch(r"\d rows?|nothing", cell)] == [
        *("1 row", "nothing", "2 rows", "1 row", "3 rows", "2 rows")
    ]


def test_repairs_are_shown_with_the_lines_that_they_change() -> None:
    (verdict,) = check_all(SHOP + "SELECT price FROM clicks, offers\nWHERE price < ceiling")
    repairs = verdict.repairs()
    reader = Reader(render_page([verdict], "clicks.sql", repairs=[repairs]))
    assert_sound(reader)
    assert all(repair.title in reader.text for repair in repairs)
    inserted = "".join(reader.texts["ins"] + reader.texts["span"])
    assert all(
        word in inserted for repair in repairs for edit in repair.edits for word in edit.text.split()[:1]
    )
    assert re.search(r"\brepair \d\b", reader.text)


def test_several_queries_have_a_section_each_and_links_to_them() -> None:
    one = "SELECT DISTINCT country FROM clicks;"
    other = "SELECT DISTINCT price FROM clicks"
    reader = read_page(SHOP + one + other)
    assert_sound(reader)
    assert [link["href"] for link in reader.find("a")] == ["#main", "#q1", "#q2"]
    assert "Query 1" in reader.text and "Query 2" in reader.text


def test_hostile_names_and_strings_stay_text() -> None:
    name = "<script>alert(1)</script>"
    sql = (
        f'CREATE STREAMING TABLE `{name}` (`"><img src=x onerror=alert(2)>` INT, `</style>` INT, '
        "note STRING);"
        f"CREATE STREAMING TABLE `{{{{7*7}}}}` (y INT);"
        f"SELECT `</style>` AS `</title>` FROM `{name}` `' onload='x`, `{{{{7*7}}}}` "
        f"WHERE `\"><img src=x onerror=alert(2)>` < y AND note = '</pre><script>alert(3)</script>'"
    )
    verdicts = check_all(sql)
    page = render_page(verdicts, '<b>"name".sql')
    reader = Reader(page)
    assert_sound(reader)
    assert len(reader.find("script")) == len(reader.find("style")) == 1
    assert not reader.find("img") and not reader.find("b")
    assert name in reader.text and "{{7*7}}" in reader.text and '<b>"name".sql' in reader.text
    policy = next(m["content"] for m in reader.find("meta") if m.get("http-equiv"))
    assert policy is not None and "default-src 'none'" in policy and "script-src 'sha256-" in policy
    assert verdicts[0].outcome == "unbounded"


def test_the_run_is_shown_with_charts() -> None:
    batches = [Batch(i, 100, 10, 5 + i, 800, 0, i % 2, 0, 0.5, 20) for i in range(10)]
    reader = read_page(SHOP + "SELECT DISTINCT country FROM clicks", batches)
    assert_sound(reader)
    assert {"State after each micro-batch", "Rate", "Time of each micro-batch"} <= {
        *reader.texts["figcaption"]
    }
    assert "1,000" in reader.text  # input rows of all batches


def test_dark_and_light_have_the_contrast_that_small_text_needs() -> None:
    def luminance(colour: str) -> float:
        digits = colour.removeprefix("#")
        digits = "".join(d * 2 for d in digits) if len(digits) == 3 else digits
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    def contrast(one: str, other: str) -> float:
        low, high = sorted([luminance(one), luminance(other)])
        return (high + 0.05) / (low + 0.05)

    for colours, outcomes in ((LIGHT_COLOURS, LIGHT_OUTCOMES), (DARK_COLOURS, DARK_OUTCOMES)):
        for back in ("back", "code", "page"):
            for text in ("text", "dim", "keyword", "string", "number", "comment"):
                assert contrast(colours[text], colours[back]) >= 4.5, (text, back)
        for back in ("shade", "mark", "added"):
            assert contrast(colours["text"], colours[back]) >= 4.5, back
            assert contrast(colours["keyword"], colours[back]) >= 4.5, back
        assert contrast(colours["dim"], colours["shade"]) >= 4.5
        for accent in outcomes.values():
            assert contrast(accent, colours["back"]) >= 4.5

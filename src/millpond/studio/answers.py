"""What a worker computes of a text: its verdicts and its repairs, as JSON for the page.

Offsets into the text count UTF-16 code units, as those of JavaScript do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from millpond.analysis.decide import decide
from millpond.analysis.explain import describe_bound, headline
from millpond.analysis.repair.model import Repair
from millpond.analysis.verdict import UNBOUNDED, Verdict
from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.report import sections
from millpond.report.guilty import find_guilty
from millpond.studio.places import TextPlaces

# The parts of a verdict, by the name of their section, with its title; those of _DETAILS take longer.
_Renderer = Callable[[Verdict], str]
_SECTIONS: Sequence[tuple[str, str, _Renderer]] = (
    ("why", "Why", sections.render_reasons),
    ("kept", "What is kept", sections.render_kept),
    ("picture", "Columns and predicates", sections.render_picture),
    ("time", "Time", sections.render_time),
    ("blocks", "Blocks", sections.render_blocks),
)
_DETAILS: Sequence[tuple[str, str, _Renderer]] = (
    ("proof", "The proof, in rows", sections.render_story),
    ("growth", "State against rows", sections.render_growth),
)


def answer_question(question: dict[str, Any]) -> dict[str, Any]:
    """The answer to a question: its task, the text, and the number of the query that it is about.

    >>> text = "CREATE STREAMING TABLE clicks (ad INT); SELECT ad FROM clicks"
    >>> answer_question({"task": "check", "text": text})["verdicts"][0]["headline"]
    'bounded: nothing has to be kept'
    >>> answer_question({"task": "check", "text": "SELECT ad FROM clicks"})["error"]
    {'message': 'there is no table clicks', 'remedy': 'declare it with CREATE STREAMING TABLE', \
'line': 1, 'column': 16, 'from': 15, 'to': 21}
    """
    text = question["text"].replace("\ufeff", " ")  # a byte order mark, which would shift offsets
    try:
        return _TASKS[question["task"]](text, question.get("query", 0))
    except MillpondError as error:
        return {"error": _describe_error(text, error)}


# --- tasks -------------------------------------------------------------------------------------------


def _check(text: str, _: int) -> dict[str, Any]:
    places = TextPlaces(text)
    return {"verdicts": [_describe_verdict(places, decide(query)) for query in parse(text)]}


def _find_details(text: str, number: int) -> dict[str, Any]:
    return {"sections": _render(_DETAILS, _decide_one(text, number))}


def _find_repairs(text: str, number: int) -> dict[str, Any]:
    places = TextPlaces(text)
    return {"repairs": [_describe_repair(places, repair) for repair in _decide_one(text, number).repairs()]}


def _decide_one(text: str, number: int) -> Verdict:
    """The verdict on the query of a number, counted from 0."""
    queries = parse(text)
    if not 0 <= number < len(queries):
        raise MillpondError(f"there is no query {number + 1}")
    return decide(queries[number])


_TASKS: dict[str, Callable[[str, int], dict[str, Any]]] = {
    "check": _check,
    "details": _find_details,
    "repairs": _find_repairs,
}

# --- descriptions ------------------------------------------------------------------------------------


def _describe_error(text: str, error: MillpondError) -> dict[str, Any]:
    described: dict[str, Any] = {"message": error.message, "remedy": error.remedy}
    if error.position is None:
        return described
    places = TextPlaces(text)
    start = places.find(error.position)
    found = {"line": error.position.line, "column": error.position.column}
    return described | found | places.span(start, places.find_end_of_word(start))


def _describe_verdict(places: TextPlaces, verdict: Verdict) -> dict[str, Any]:
    start = places.find(verdict.query.position)
    return {
        **places.span(start, start + len(verdict.query_text)),
        "outcome": verdict.outcome,
        "headline": headline(verdict),
        "marks": list(_describe_marks(places, verdict, start)),
        "sections": _render(_SECTIONS, verdict),
    }


def _describe_marks(places: TextPlaces, verdict: Verdict, start: int) -> Iterator[dict[str, Any]]:
    """What the reasons of a verdict are about, with their messages; its query begins at ``start``."""
    severity = "error" if verdict.outcome == UNBOUNDED else "warning"
    for reason in verdict.reasons:
        for mark in find_guilty(replace(verdict, reasons=(reason,))):
            place = places.span(start + mark.start, start + mark.end)
            yield {**place, "severity": severity, "message": f"{reason.message}."}


def _describe_repair(places: TextPlaces, repair: Repair) -> dict[str, Any]:
    edits = ({**places.span(edit.start, edit.end), "insert": edit.text} for edit in repair.edits)
    return {
        "title": repair.title,
        "meaning": repair.meaning.value,
        "assumption": repair.assumption,
        "edits": list(edits),
        "changes": sections.render_changes(places.text, repair),
        "keeps": "" if repair.verdict is None else f"keeps {describe_bound(repair.verdict)}",
    }


def _render(parts: Sequence[tuple[str, str, _Renderer]], verdict: Verdict) -> list[dict[str, str]]:
    """The sections that are not empty."""
    rendered = ((name, title, render(verdict)) for name, title, render in parts)
    shown = [{"name": name, "title": title, "html": html} for name, title, html in rendered if html.strip()]
    for section in shown:
        if section["name"] == "why" and not verdict.reasons:
            section["title"] = "Notes"
    return shown

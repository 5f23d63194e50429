"""Changes that may make a query bounded, and how several of them become edits of one text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from millpond.analysis.repair.model import Edit, Meaning, RepairKind
from millpond.frontend.outline import SelectOutline, Span


class ConflictError(Exception):
    """Two changes rewrite the same piece of the text, or leave nothing of a list."""


@dataclass(frozen=True)
class Addition:
    """One more element of a list in the text, which may have to be opened: ``WHERE a AND b``.

    Several additions at one place become ``opening + separator.join(elements) + closing``.
    """

    place: int
    opening: str
    separator: str
    element: str
    closing: str = ""


@dataclass(frozen=True)
class Removal:
    """Leaves out an element of a list; if none is left, the whole ``clause``."""

    elements: tuple[Span, ...]
    index: int
    clause: Span | None = None


@dataclass(frozen=True)
class Change:
    """One part of a repair.

    ``title`` has a ``{}`` for what it is ``about``, and the ``assumption`` one for what is ``assumed``, so
    that changes with the same words share a sentence.  ``narrower`` are changes that do less; one of them
    takes its place where it is enough.  ``in_company`` takes its place in a set with two changes of its kind,
    or with three and more.  ``weight`` orders changes of one kind: the less, the better.  Changes with the
    same ``choice`` are alternatives, of which only one makes sense.  ``times`` are tables that are declared
    elsewhere, each with the timestamp that gets a watermark.
    """

    kind: RepairKind
    title: str
    about: str
    meaning: Meaning
    assumption: str | None = None
    assumed: str = ""
    edits: tuple[Edit, ...] = ()
    additions: tuple[Addition, ...] = ()
    removals: tuple[Removal, ...] = ()
    narrower: tuple[Change, ...] = ()
    in_company: tuple[Change, ...] = ()
    weight: int = 0
    choice: tuple[str, int] | None = None
    times: tuple[tuple[str, str], ...] = ()


def add_condition(select: SelectOutline, condition: str) -> tuple[tuple[Edit, ...], tuple[Addition, ...]]:
    """Adds a condition to the WHERE clause of a select."""
    if select.where is None:
        return (), (Addition(select.from_end, " WHERE ", " AND ", condition),)
    return extend_condition(select.where, select.is_disjunction, condition)


def extend_condition(
    span: Span, is_disjunction: bool, condition: str
) -> tuple[tuple[Edit, ...], tuple[Addition, ...]]:
    """Adds a condition to another one, in parentheses if that is a disjunction."""
    if not is_disjunction:
        return (), (Addition(span.end, " AND ", " AND ", condition),)
    opened = Edit(span.start, span.start, "(")
    return (opened,), (Addition(span.end, ") AND ", " AND ", condition),)


def make_edits(changes: Sequence[Change], text: str) -> tuple[Edit, ...]:
    """The edits of all changes together, in the order of the text.  Raises ConflictError."""
    choices = [change.choice for change in changes if change.choice is not None]
    if len(set(choices)) < len(choices):
        raise ConflictError
    edits = list(dict.fromkeys(edit for change in changes for edit in change.edits))
    edits += _merge_additions(each for change in changes for each in change.additions)
    edits += _merge_removals([each for change in changes for each in change.removals], text)
    edits.sort(key=lambda edit: (edit.start, edit.end))
    for one, other in pairwise(edits):
        if other.start < one.end or (one.start, one.end) == (other.start, other.end):
            raise ConflictError
    return tuple(edits)


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text with the edits, which are in its order.

    >>> apply_edits("SELECT a FROM s", [Edit(6, 6, " DISTINCT"), Edit(7, 8, "b")])
    'SELECT DISTINCT b FROM s'
    """
    pieces, at = [], 0
    for edit in edits:
        pieces += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*pieces, text[at:]])


def _merge_additions(additions: Iterable[Addition]) -> Iterator[Edit]:
    places: dict[tuple[int, str, str, str], list[str]] = {}
    for each in dict.fromkeys(additions):
        key = (each.place, each.opening, each.separator, each.closing)
        places.setdefault(key, []).append(each.element)
    for (place, opening, separator, closing), elements in places.items():
        yield Edit(place, place, opening + separator.join(elements) + closing)


def _merge_removals(removals: Sequence[Removal], text: str) -> Iterator[Edit]:
    lists: dict[tuple[Span, ...], set[int]] = {}
    clauses = {each.elements: each.clause for each in removals}
    for each in removals:
        lists.setdefault(each.elements, set()).add(each.index)
    for elements, dropped in lists.items():
        if len(dropped) == len(elements):
            clause = clauses[elements]
            if clause is None:
                raise ConflictError
            yield cut(text, clause)
            continue
        for first in sorted(dropped):
            if first - 1 in dropped:
                continue
            last = first
            while last + 1 in dropped:
                last += 1
            if last + 1 < len(elements):
                yield Edit(elements[first].start, elements[last + 1].start, "")
            else:
                yield Edit(elements[first - 1].end, elements[last].end, "")


def cut(text: str, span: Span) -> Edit:
    """Leaves out a piece of the text, and the white space in front of it."""
    return Edit(len(text[: span.start].rstrip()), span.end, "")

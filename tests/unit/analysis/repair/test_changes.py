"""Edits of a text: merged where they meet, refused where they contradict each other."""

from __future__ import annotations

import pytest

from millpond.analysis.repair.changes import (
    Addition,
    Change,
    ConflictError,
    Removal,
    add_condition,
    apply_edits,
    make_edits,
)
from millpond.analysis.repair.model import Edit, Meaning, RepairKind
from millpond.frontend.outline import outline_text

TEXT = "SELECT a, b, c FROM s GROUP BY a, b"


def change(**parts: object) -> Change:
    return Change(RepairKind.BOUND, "", "", Meaning.FEWER, **parts)  # type: ignore[arg-type]


def apply(*changes: Change, text: str = TEXT) -> str:
    return apply_edits(text, make_edits(changes, text))


def test_conditions_share_one_where_clause() -> None:
    text = "SELECT a FROM s;"
    (select,) = outline_text(text).queries[0]
    conditions = ("a = 1", "b = 2", "a = 1")
    changes = [change(additions=add_condition(select, each)[1]) for each in conditions]
    assert apply(*changes, text=text) == "SELECT a FROM s WHERE a = 1 AND b = 2;"


def test_a_disjunction_gets_parentheses_once() -> None:
    text = "SELECT a FROM s WHERE a = 1 OR b = 2 -- both\n"
    (select,) = outline_text(text).queries[0]
    parts = [add_condition(select, each) for each in ("c = 3", "d = 4")]
    changes = [change(edits=edits, additions=additions) for edits, additions in parts]
    assert (
        apply(*changes, text=text) == "SELECT a FROM s WHERE (a = 1 OR b = 2) AND c = 3 AND d = 4 -- both\n"
    )


def test_properties_are_closed_once() -> None:
    additions = [Addition(1, " P (", ", ", each, ")") for each in ("x", "y")]
    assert apply(change(additions=tuple(additions)), text="T;") == "T P (x, y);"


@pytest.mark.parametrize(
    ("dropped", "text"),
    [
        ([0], "SELECT b, c FROM s GROUP BY a, b"),
        ([1], "SELECT a, c FROM s GROUP BY a, b"),
        ([2], "SELECT a, b FROM s GROUP BY a, b"),
        ([0, 1], "SELECT c FROM s GROUP BY a, b"),
        ([1, 2], "SELECT a FROM s GROUP BY a, b"),
        ([0, 2], "SELECT b FROM s GROUP BY a, b"),
    ],
)
def test_elements_leave_a_list_with_their_commas(dropped: list[int], text: str) -> None:
    (select,) = outline_text(TEXT).queries[0]
    assert apply(*(change(removals=(Removal(select.items, index),)) for index in dropped)) == text


def test_a_list_without_elements_leaves_with_its_clause() -> None:
    (select,) = outline_text(TEXT).queries[0]
    removals = [Removal(select.group_by, index, select.group_clause) for index in (0, 1)]
    assert apply(change(removals=tuple(removals))) == "SELECT a, b, c FROM s"
    with pytest.raises(ConflictError):
        apply(*(change(removals=(Removal(select.items, index),)) for index in (0, 1, 2)))


def test_edits_of_one_piece_and_alternatives_contradict_each_other() -> None:
    with pytest.raises(ConflictError):
        apply(change(edits=(Edit(0, 6, "x"),)), change(edits=(Edit(3, 8, "y"),)))
    with pytest.raises(ConflictError):
        apply(change(choice=("bucket", 1)), change(choice=("bucket", 1)))

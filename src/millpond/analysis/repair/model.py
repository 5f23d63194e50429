"""What a repair is: edits of the user's text, what they do to the answer, and the verdict they lead to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millpond.analysis.verdict import Verdict


class RepairKind(StrEnum):
    """What is changed."""

    BOUND = "bound"  # a condition in WHERE that bounds a column
    CHECK = "check"  # the same as a CHECK of the table
    CARDINALITY = "cardinality"  # the number of values that a column takes, declared
    WINDOW = "window"  # a window of time between streams, or a time bucket of a group
    WATERMARK = "watermark"  # application time for a stream that has none
    DISTINCT = "distinct"  # each result once
    DROP_COLUMN = "drop-column"
    APPROXIMATE = "approximate"  # approx_count_distinct
    EXISTS = "exists"  # EXISTS instead of a join
    RELATION = "relation"  # a static table instead of a stream
    BUDGET = "budget"  # the query as it is, with a limit on what it keeps


class Meaning(StrEnum):
    """What a repair does to the answer."""

    SAME = "same answer"  # as long as its assumption holds
    FEWER = "fewer rows"  # rows that a new condition excludes do not count
    APPROXIMATE = "approximate"
    CHANGED = "different result"  # other columns or other groups


@dataclass(frozen=True)
class Edit:
    """Replaces ``[start, end)`` of the text by another text."""

    start: int
    end: int
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"start": self.start, "end": self.end, "text": self.text}


@dataclass(frozen=True)
class Repair:
    """A minimal change that makes a query bounded: without any of its edits it is not.

    ``sql`` is the whole text with the ``edits``.  ``assumption`` is what has to be true of the data for the
    answer to be the same.  A budget changes no text; it has a ``memory``, if a sample tells one, and the
    ``share`` of the results that are found with it on the sample, but no ``verdict``.
    """

    kind: RepairKind
    title: str
    meaning: Meaning
    assumption: str | None
    edits: tuple[Edit, ...]
    sql: str
    verdict: Verdict | None
    memory: int | None = None
    share: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "title": self.title,
            "meaning": self.meaning.value,
            "assumption": self.assumption,
            "sql": self.sql,
            "edits": [edit.to_json() for edit in self.edits],
            "outcome": None if self.verdict is None else self.verdict.outcome,
            "state": None if self.verdict is None else self.verdict.state.to_json(),
            "memory": self.memory,
            "share": self.share,
        }

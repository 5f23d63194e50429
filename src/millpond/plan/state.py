"""The worst-case size of the state, and what it consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KeptColumn:
    """A column that the synopsis distinguishes, and into how many classes of values at most."""

    name: str
    classes: int
    description: str  # e.g. "values 11 to 19", "NULL or 0 to 23", "clamped to 10 .. 19"

    def to_json(self) -> dict[str, Any]:
        return {"column": self.name, "classes": self.classes, "description": self.description}


@dataclass(frozen=True)
class Kept:
    """What is kept of one stream, or of matches of several (of the answer: ``stream`` is None).

    ``entries`` and ``bytes`` are None where only the data will tell.
    """

    stream: str | None
    alias: str | None
    columns: tuple[KeptColumn, ...]
    keeps: tuple[
        str, ...
    ]  # per combination of classes: "count", "presence", "row with the smallest B", "sum of A"
    entries: int | None
    bytes: int | None

    def to_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "alias": self.alias,
            "columns": [c.to_json() for c in self.columns],
            "keeps": list(self.keeps),
            "entries": self.entries,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class State:
    """Worst-case size of everything kept; entries and bytes are None unless the query is bounded.

    They are None as well where the bound depends on rows of a relation or of a stream that ends, or is that
    of a front, which is finite and not known beforehand.
    """

    entries: int | None
    bytes: int | None
    streams: tuple[Kept, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "entries": self.entries,
            "bytes": self.bytes,
            "streams": [kept.to_json() for kept in self.streams],
        }

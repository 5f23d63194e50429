"""The worst-case size of the state, what it consists of, and the size of one entry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypedDict

# The bytes of a value, and of a count or a sum, which may exceed 64 bits.
VALUE_BYTES = 8
COUNT_BYTES = 16


@dataclass(frozen=True)
class KeptColumn:
    """A column whose values the state distinguishes, and the number of classes it has."""

    name: str
    classes: int
    description: str  # e.g. "values 11 to 19", "NULL or 0 to 23", "clamped to 10 .. 19"

    def to_json(self) -> dict[str, Any]:
        return {"column": self.name, "classes": self.classes, "description": self.description}


@dataclass(frozen=True)
class Kept:
    """What is kept of one stream, of partial matches of several, or (``stream`` is None) of the answer.

    ``entries`` and ``bytes`` are None if they depend on the data.  ``closes``: entries are dropped as time
    passes, so their number depends on the rates of the streams.
    """

    stream: str | None
    alias: str | None
    columns: tuple[KeptColumn, ...]
    keeps: tuple[
        str, ...
    ]  # per combination of classes: "count", "presence", "row with the smallest B", "sum of A"
    entries: int | None
    bytes: int | None
    closes: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "alias": self.alias,
            "columns": [c.to_json() for c in self.columns],
            "keeps": list(self.keeps),
            "entries": self.entries,
            "bytes": self.bytes,
        }


class Window(TypedDict):
    """A window: how many seconds the rows of a stream are kept."""

    stream: str
    seconds: float


@dataclass(frozen=True)
class State:
    """The worst-case size of everything that is kept.

    ``entries`` and ``bytes`` are None unless the query is bounded, and also if they depend on the data: on
    the rows of a relation or a finite stream, on the size of a Pareto front, or on the rate of a stream whose
    ``windows`` are kept.
    """

    entries: int | None
    bytes: int | None
    streams: tuple[Kept, ...] = ()
    windows: list[Window] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "entries": self.entries,
            "bytes": self.bytes,
            "streams": [kept.to_json() for kept in self.streams],
            "windows": self.windows,
        }

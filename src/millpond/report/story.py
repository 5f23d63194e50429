"""The witness of an unbounded query as a story: rows that may have arrived, and rows that ask for them.

The numbers of results are those of the query itself, evaluated on these rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.analysis.verdict import UNBOUNDED, Verdict
from millpond.analysis.witness.model import StreamRow, Witness
from millpond.analysis.witness.search import SearchBudget
from millpond.errors import WitnessSizeError
from millpond.query.evaluate import Row, StepLimit
from millpond.runtime.query_sql import World, evaluate_worlds
from millpond.runtime.row_queries import UncomputableError

ROWS = 3
# Tables with more columns show only those whose values differ between rows.
_MOST_COLUMNS = 6
_MOST_RESULTS = 3
# The search for a witness ends after so many rows of candidates, or steps of their evaluation.
_MOST_ROWS = 5_000
_MOST_STEPS = 400_000


@dataclass(frozen=True)
class StoryTable:
    """Rows of one stream: its columns, and the values as text.  ``varying`` columns differ between rows."""

    stream: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...]
    varying: frozenset[str]


@dataclass(frozen=True)
class Probe:
    """A question: rows that arrive later, and what the query then answers with and without row ``number``.

    The answers are None if they are not known.
    """

    number: int
    tables: tuple[StoryTable, ...]
    with_row: Response | None
    without_row: Response | None


@dataclass(frozen=True)
class Response:
    """What the query answers: how many rows, and the first of them as text."""

    count: int
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Story:
    """A witness with a few optional rows.

    ``is_emitted``: the answer is what a probe makes the query write, not the whole answer after it.
    """

    setup: tuple[StoryTable, ...]
    universe: tuple[StoryTable, ...]
    probes: tuple[Probe, ...]
    is_emitted: bool

    @property
    def rows(self) -> int:
        return len(self.probes)

    @property
    def pasts(self) -> int:
        """How many sets of the optional rows may have arrived."""
        return 1 << self.rows


def find_small_witness(verdict: Verdict, rows: int) -> Witness | None:
    """A witness with a few optional rows; None if there is none, or if it takes seconds to find it."""
    try:
        return verdict.build_witness(rows, SearchBudget(_MOST_ROWS, limit=StepLimit(_MOST_STEPS)))
    except WitnessSizeError:
        return None


def tell_story(verdict: Verdict, rows: int = ROWS) -> Story | None:
    """The story of an unbounded query; None if no rows are known, as under an assumption."""
    witness = find_small_witness(verdict, rows) if verdict.outcome == UNBOUNDED else None
    if witness is None:
        return None
    responses = _evaluate(verdict, witness)
    varying = frozenset[tuple[str, str]]().union(*map(_find_varying, zip(*witness.probes, strict=False)))
    probes = [
        Probe(k + 1, _make_tables(probe, varying), *(responses[k] if responses else (None, None)))
        for k, probe in enumerate(witness.probes)
    ]
    return Story(
        _make_tables(witness.setup, frozenset()),
        _make_tables(witness.universe, _find_varying(witness.universe)),
        tuple(probes),
        witness.compare == "emitted",
    )


# --- answers -----------------------------------------------------------------------------------------


def _evaluate(verdict: Verdict, witness: Witness) -> list[tuple[Response, Response]]:
    """For each probe the answers with all optional rows, and without its own; empty if not computable."""
    worlds: list[World] = []
    for k, probe in enumerate(witness.probes):
        for rows in (witness.universe, witness.universe[:k] + witness.universe[k + 1 :]):
            past = [*witness.setup, *rows]
            worlds += [_make_world(past), _make_world([*past, *probe])]
    try:
        answers = evaluate_worlds(verdict.query, worlds)
    except UncomputableError:
        return []
    shown = []
    for i in range(0, len(answers), 2):
        before, after = answers[i], answers[i + 1]
        shown.append(after - before if witness.compare == "emitted" else after)
    names = [c.name for c in verdict.query.projection] or list(verdict.query.columns)
    responses = [(shown[i], shown[i + 1]) for i in range(0, len(shown), 2)]
    return [(_describe(names, a, b), _describe(names, b, a)) for a, b in responses]


def _make_world(rows: Sequence[StreamRow]) -> World:
    world: dict[str, list[Row]] = {}
    for each in rows:
        world.setdefault(each.stream, []).append(each.row)
    return world


def _describe(names: Sequence[str], answer: Counter[Any], other: Counter[Any]) -> Response:
    """The number of rows, and those first that the other answer does not have as often."""
    rows = sorted(answer, key=lambda row: (answer[row] <= other[row], str(row)))
    shown = []
    for row in rows[:_MOST_RESULTS]:
        named = zip(names, row, strict=False) if len(names) == len(row) else enumerate(row, start=1)
        text = ", ".join(f"{name} = {_show(value)}" for name, value in named)
        shown.append(text + (f" ({answer[row]} times)" if answer[row] > 1 else ""))
    return Response(sum(answer.values()), tuple(shown))


# --- rows --------------------------------------------------------------------------------------------


# The columns of streams whose values differ between rows.
Varying = frozenset[tuple[str, str]]


def _find_varying(rows: Iterable[StreamRow]) -> Varying:
    values: dict[tuple[str, str], set[str]] = {}
    for each in rows:
        for name, value in each.row.items():
            values.setdefault((each.stream, name), set()).add(str(value))
    return frozenset(column for column, seen in values.items() if len(seen) > 1)


def _make_tables(rows: Sequence[StreamRow], varying: Varying) -> tuple[StoryTable, ...]:
    """The rows by stream, numbered in the order in which they arrive."""
    by_stream: dict[str, list[tuple[int, StreamRow]]] = {}
    for number, each in enumerate(rows, start=1):
        by_stream.setdefault(each.stream, []).append((number, each))
    return tuple(_make_table(stream, mine, varying) for stream, mine in by_stream.items())


def _make_table(stream: str, numbered: Sequence[tuple[int, StreamRow]], varying: Varying) -> StoryTable:
    rows = [each.row for _, each in numbered]
    columns = list(rows[0])
    differing = [c for c in columns if (stream, c) in varying]
    if len(columns) > _MOST_COLUMNS:
        columns = differing or columns[:_MOST_COLUMNS]
    shown = tuple(tuple(_show(row.get(c)) for c in columns) for row in rows)
    return StoryTable(stream, tuple(columns), shown, tuple(n for n, _ in numbered), frozenset(differing))


def _show(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else str(value)

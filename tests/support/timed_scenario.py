"""Queries over application time with batches written by hand, and the answer expected after each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED
from millpond.frontend.parse import parse
from tests.support.oracle import answers
from tests.support.scenario import Answer, Line, bag, plain
from tests.support.timed_local import TimedLocal, micros

# The streams of paper 2 with one more column each, a fourth one, and a relation.
STREAMS = (
    "CREATE STREAMING TABLE S (A INT, A2 INT, I TIMESTAMP); CREATE STREAMING TABLE T (B INT, B2 INT, J "
    "TIMESTAMP); CREATE STREAMING TABLE U (C INT, C2 INT, K TIMESTAMP); CREATE STREAMING TABLE V (E INT, "
    "E2 INT, L TIMESTAMP); CREATE TABLE R (X INT, Y INT);"
)
Rows = Mapping[str, Sequence[Sequence[Any]]]


def at(second: int) -> datetime:
    return datetime(2024, 1, 1) + timedelta(seconds=second)


@dataclass(frozen=True)
class TimedScenario:
    """Batches, and the expected answer after each of them; without ``expected``, DuckDB gives the answers.

    An integer in the place of a timestamp is a number of seconds.  ``relations`` are the rows of relations.
    """

    title: str
    sql: str
    batches: Sequence[Sequence[Line]]
    expected: Sequence[Sequence[Line] | Mapping[Line, int]] | None = None
    relations: Rows = field(default_factory=dict)


class TimedRun:
    """A bounded query over application time that is fed by hand."""

    def __init__(self, sql: str, relations: Rows | None = None) -> None:
        [query] = parse(sql)
        verdict = decide(query)
        assert verdict.outcome == BOUNDED and verdict.timed is not None, verdict.explain()
        self.sql, self.query, self.bound = sql, query, verdict.state.entries
        self._seen: dict[str, list[dict[str, Any]]] = {name: [] for name in query.tables}
        for name, rows in (relations or {}).items():
            self._seen[name] = [self._row((name, *row)) for row in rows]
        known = {name: self._seen[name] for name, table in query.tables.items() if not table.streaming}
        self.executor = TimedLocal(verdict.timed, known if relations is not None else None)

    def _row(self, line: Line) -> dict[str, Any]:
        table = self.query.tables[line[0]]
        out = {}
        for column, value in zip(table.columns, line[1:], strict=True):
            is_second = column.type.name == "TIMESTAMP" and isinstance(value, int)
            out[column.name] = at(value) if is_second else value
        return out

    def add(self, *lines: Line) -> None:
        """Process rows that are later than all before; skips streams that the query does not read."""
        batch = [(line[0], self._row(line)) for line in lines if line[0] in self.query.tables]
        now = 0
        for stream, row in batch:
            self._seen[stream].append(row)
            time = self.query.tables[stream].time
            if time is not None and row[time] is not None:
                now = max(now, micros(row[time]))
        self.executor.add(batch, now)

    def answer(self) -> Answer:
        return Counter({plain(row): n for row, n in self.executor.answer().items()})

    def seen(self) -> dict[str, list[dict[str, Any]]]:
        return {name: list(rows) for name, rows in self._seen.items()}

    @property
    def partial_matches(self) -> int:
        """The number of partial matches that are kept."""
        results = {need.result for need in self.executor.program.needs}
        return sum(t.num_rows for name, t in self.executor.state.items() if name not in results)


def assert_timed_answers(scenario: TimedScenario) -> None:
    """After every batch the answer is the expected one, or DuckDB's.

    All rows in a single batch, in any order, give the last answer.
    """
    relations = scenario.relations or None
    run = TimedRun(scenario.sql, relations)
    found, inputs = [], []
    for batch in scenario.batches:
        run.add(*batch)
        found.append(run.answer())
        assert run.bound is None or run.executor.entries <= run.bound
        inputs.append(run.seen())
    catalog = {n: [(c.name, c.type.name) for c in t.columns] for n, t in run.query.tables.items()}
    truth = [
        Counter({plain(row): n for row, n in answer.items()})
        for answer in answers(scenario.sql, catalog, inputs)
    ]
    if scenario.expected is not None:
        assert [bag(rows) for rows in scenario.expected] == truth
    for i, (mine, theirs) in enumerate(zip(found, truth, strict=True)):
        assert mine == theirs, f"after batch {i}"
    whole = TimedRun(scenario.sql, relations)
    lines = [line for batch in scenario.batches for line in batch]
    whole.add(*random.Random(0).sample(lines, len(lines)))
    assert whole.answer() == found[-1]

"""Matches that wait for a partner, which may come any time: the first one releases them.

The partners are the results of a need of their own: what they require of a row and, if a row can be too late
for them, the watermark at which they close.  Matches that wait are counted by class; values of a column that
compare alike with all partners are in one class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millpond.engines.timed.pareto_fronts import ALWAYS
from millpond.engines.timed.partial_match_sql import PartialMatchSql
from millpond.engines.timed.program import WaitingProgram
from millpond.engines.timed.result_sql import CLOSES, match_expression
from millpond.engines.timed.tables import result_table
from millpond.plan.classes import ColumnClasses
from millpond.plan.needs import PartnerWait
from millpond.runtime.duckdb import DuckDb

# The column with the timestamp of a match that waits.
TIME = "s"


def partner_rows_sql(sql: PartialMatchSql, wait: PartnerWait, hold: int) -> str:
    """The new partners: their requirements, and when they close: later rows are too late for them."""
    columns = sql.requirements(sql.complete)
    if wait.lags:
        ends = [f"epoch_us({match_expression(sql, column)}) + {lag}" for column, lag in wait.lags]
        columns.append(f"CAST(least({', '.join(ends)}) + {1 + hold} AS BIGINT) AS {CLOSES}")
    return f"SELECT DISTINCT {', '.join(columns) or '1 AS one'} FROM {sql.tables(sql.complete).new}"


def merge_partners_sql(sql: PartialMatchSql, wait: PartnerWait) -> str:
    """The partners among ``rows`` that are not implied by others, which require less or close later."""
    requirements = list(zip(sql.requirements(sql.complete), sql.complete.requirements, strict=True))
    exact = [name for name, requirement in requirements if requirement.exact]
    weakest = {name: "min" if r.low else "max" for name, r in requirements if not r.exact}
    weakest |= {CLOSES: "max"} if wait.lags else {}
    if not weakest:
        return "SELECT DISTINCT * FROM rows"
    *others, last = weakest
    named = ", ".join([*exact, *others, f"{weakest[last]}({last}) AS {last}"])
    best = f"SELECT {named} FROM rows{group_by([*exact, *others])}"
    columns = ", ".join([*(name for name, _ in requirements), *([CLOSES] if wait.lags else [])])
    if not others:
        return f"SELECT {columns} FROM ({best})"
    same = [f"a.{name} = b.{name}" for name in exact]
    as_weak = [f"b.{name} {'<=' if pick == 'min' else '>='} a.{name}" for name, pick in weakest.items()]
    differs = " OR ".join(f"b.{name} <> a.{name}" for name in weakest)
    weaker = f"SELECT 1 FROM best b WHERE {' AND '.join([*same, *as_weak])} AND ({differs})"
    return f"WITH best AS ({best}) SELECT {columns} FROM best a WHERE NOT EXISTS ({weaker})"


def group_by(columns: Sequence[str]) -> str:
    """GROUP BY these columns; without columns, there is one group if there are rows."""
    return f" GROUP BY {', '.join(columns)}" if columns else " HAVING count(*) > 0"


@dataclass(frozen=True)
class CompiledWait:
    """A wait for partners, and the need that finds them: its SQL and the name of its result table.

    Matches that wait follow the watermark at a distance of ``hold`` microseconds.
    """

    wait: PartnerWait
    sql: PartialMatchSql
    table: str
    hold: int

    def compile_waiting(
        self, sql: PartialMatchSql, columns: Sequence[str], names: Sequence[str], counts: Sequence[str]
    ) -> tuple[str, WaitingProgram]:
        """SQL for the complete matches of ``sql`` that begin to wait, and how they do.

        ``columns`` are SQL for what the result needs of a match: the columns ``names``, and ``counts``, which
        are added up.
        """
        own = _waiting_columns(sql, self.wait)
        key = [*names, *own]
        taken = ", ".join([*columns, *(f"{text} AS {name}" for name, text in own.items())])
        can_match = " AND ".join(f"{name} IS NOT NULL" for name in own) or "TRUE"
        rows = f"SELECT {taken} FROM {sql.tables(sql.complete).new}"
        sums = [f"sum({count}) AS {count}" for count in counts]
        begin = f"SELECT {', '.join([*key, *sums])} FROM ({rows}) WHERE {can_match}{group_by(key)}"
        waiting = WaitingProgram(
            table=f"{result_table(sql.number)}_waiting",
            partners=self.table,
            condition=self._condition,
            released=f"SELECT {', '.join([*names, *sums])} FROM rows{group_by(names)}",
            key=tuple(key),
            counts=tuple(counts),
            slack=self.wait.slack if self.wait.lags else None,
        )
        return begin, waiting

    @property
    def _condition(self) -> str:
        """A partner ``m`` and a match ``e`` that waits belong together."""
        found = self.sql.compare_row({c.column: f"e.k{i}" for i, c in enumerate(self.wait.classes)}, "m")
        if self.wait.lags:
            found.append(f"e.{TIME} + {self.hold} < m.{CLOSES}")
        return " AND ".join(found) or "TRUE"


def _waiting_columns(sql: PartialMatchSql, wait: PartnerWait) -> dict[str, str]:
    """What is kept of a complete match while it waits, as SQL, by name."""
    columns = {
        f"k{i}": _class_sql(match_expression(sql, each.column), each) for i, each in enumerate(wait.classes)
    }
    if wait.time is not None:
        columns[TIME] = f"epoch_us({match_expression(sql, wait.time)})"
    return columns


def _class_sql(value: str, classes: ColumnClasses) -> str:
    """The value, or one that represents all values of its class."""
    cases = [f"WHEN {value} < {classes.low} THEN {classes.low - 1}"] if classes.below else []
    cases += [f"WHEN {value} > {classes.high} THEN {classes.high + 1}"] if classes.above else []
    return f"CASE {' '.join(cases)} ELSE {value} END" if cases else value


def release_waiting(
    db: DuckDb, waiting: WaitingProgram, rows: pa.Table, partners: pa.Table, now: int
) -> tuple[pa.Table, pa.Table]:
    """What the matches with a partner add to the result, and the matches that still wait."""
    has_partner = f"EXISTS (SELECT 1 FROM partners m WHERE {waiting.condition})"
    tested = db.query(
        f"SELECT e.*, {has_partner} AS has_partner FROM rows e", {"rows": rows, "partners": partners}
    )
    found = tested.column("has_partner")
    rest = tested.filter(pc.invert(found)).drop_columns("has_partner")
    released = tested.filter(found).drop_columns("has_partner")
    return db.query(waiting.released, {"rows": released}), db.query(_merge_sql(waiting, now), {"rows": rest})


def _merge_sql(waiting: WaitingProgram, now: int) -> str:
    """Equal matches become one; old timestamps no longer matter."""
    selected = list(waiting.key)
    if waiting.slack is not None:
        is_old = f"{TIME} <= {now - waiting.slack}"
        selected[-1] = f"CASE WHEN {is_old} THEN CAST({ALWAYS} AS BIGINT) ELSE {TIME} END AS {TIME}"
    inner = f"SELECT {', '.join([*selected, *waiting.counts])} FROM rows"
    sums = [f"sum({count}) AS {count}" for count in waiting.counts]
    return f"SELECT {', '.join([*waiting.key, *sums])} FROM ({inner}){group_by(waiting.key)}"

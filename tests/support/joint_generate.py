"""Random queries with aggregates over several tables, and their answers by DuckDB from the text itself."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from millpond.query.model import Query
from millpond.runtime.duckdb import get_process_duckdb
from tests.support.local import arrow_table

Rows = Sequence[tuple[str, Mapping[str, Any]]]
_COLUMNS = {"A": ("A.X", "A.Q", "A.M"), "B": ("B.Y", "B.R", "B.N")}
_CONDITIONS = {"A": ("A.F", "A.X > 1", "A.Q IS NULL"), "B": ("B.G", "B.Y < 2", "B.R IN (0, 2)")}
_JOINT_CONDITIONS = ("A.X > B.Y", "A.X + B.Y = 3")
_UNSPLIT = ("abs(A.X - B.Y)", "greatest(A.X, B.R)", "coalesce(A.X * B.Y, 1)")


@dataclass(frozen=True)
class JointCase:
    """The declarations, a query, and whether rows have timestamps and B is a relation."""

    tables: str
    select: str
    in_time: bool
    has_relation: bool

    @property
    def sql(self) -> str:
        return f"{self.tables} {self.select};"


def random_joint_case(rng: random.Random) -> JointCase:
    """A query over A and B with aggregates of sums, products and CASE over both, and now and then of more."""
    has_relation = rng.random() < 0.25
    in_time = rng.random() < 0.35
    kind = "TABLE" if has_relation else "STREAMING TABLE"
    stamps = (", TS TIMESTAMP", "" if has_relation else ", TT TIMESTAMP") if in_time else ("", "")
    tables = (
        "CREATE STREAMING TABLE A (K TINYINT, X INT, Q INT{}, M DECIMAL(6,2), F BOOLEAN{}); "
        "CREATE {} B (J TINYINT, Y INT{}, R INT, N DECIMAL(5,1), G BOOLEAN{});"
    ).format(rng.choice(["", " CHECK (Q BETWEEN -3 AND 4)"]), stamps[0], kind, _random_check(rng), stamps[1])
    on = ["A.K = B.J"]
    extra = ["A.Q = B.R", "A.X < B.Y", "A.X <= B.R", "B.Y > 0", "A.F"]
    on += rng.sample(extra, 1) if rng.random() < 0.2 else []
    if in_time and not has_relation:
        window = "B.TT BETWEEN A.TS AND A.TS + INTERVAL 60 SECONDS"
        on += rng.choice([[], ["A.TS = B.TT"], [window], [window]])
    calls = [_random_call(rng) for _ in range(rng.randint(1, 2))]
    keys = rng.choice([["A.K"], ["A.K"], [], ["B.G"], ["A.F", "B.J"]])
    join = rng.choice(["JOIN", "JOIN", "JOIN", "LEFT JOIN"]) if has_relation else "JOIN"
    select = f"SELECT {', '.join([*keys, *calls])} FROM A {join} B ON {' AND '.join(on)}"
    select += f" GROUP BY {', '.join(keys)}" if keys else ""
    if keys and rng.random() < 0.2:
        select += f" HAVING {_random_call(rng)} > 1"
    return JointCase(tables, select, in_time, has_relation)


def _random_check(rng: random.Random) -> str:
    return rng.choice(["", "", " CHECK (Y BETWEEN -3 AND 4)", " NOT NULL"])


def _random_call(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return rng.choice(["COUNT(*)", "SUM(A.X)", "MAX(B.Y)", "COVAR_POP(A.X, B.Y)", "COUNT(A.X, B.Y)"])
    function = rng.choice(["SUM", "SUM", "AVG", "COUNT", "MAX", "MIN", "COUNT_IF"])
    if function == "COUNT_IF":
        return f"COUNT_IF({_random_condition(rng)})"
    sums = function in ("MAX", "MIN") and rng.random() < 0.8
    value = _random_sum(rng) if sums else _random_value(rng, 2)
    text = f"{function}({value})"
    return f"{text} FILTER (WHERE {_random_condition(rng)})" if rng.random() < 0.15 else text


def _random_sum(rng: random.Random) -> str:
    one, other = (_random_leaf(rng, table) for table in rng.sample("AB", 2))
    forms = ["{} + {}", "{} - {}", "-({} - 2 * {})", "{} - {} + 1"]
    return rng.choice(forms).format(one, other)


def _random_value(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return _random_leaf(rng, rng.choice("AB"))
    if rng.random() < 0.06:
        return rng.choice(_UNSPLIT)
    one, other = _random_value(rng, depth - 1), _random_value(rng, rng.randrange(depth))
    if rng.random() < 0.2:
        end = rng.choice(["", "ELSE 0 ", f"ELSE {other} "])
        return f"CASE WHEN {_random_condition(rng)} THEN {one} {end}END"
    return rng.choice(["({} * {})", "({} * {})", "({} + {})", "({} - {})", "-({} * {})"]).format(one, other)


def _random_leaf(rng: random.Random, table: str) -> str:
    column = rng.choice(_COLUMNS[table])
    forms = ["{}", "{}", "{}", "({} + 1)", "(2 * {})", "abs({})", "coalesce({}, 0)", "3"]
    return rng.choice(forms[: 7 if rng.random() < 0.9 else 8]).format(column)


def _random_condition(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return rng.choice(_JOINT_CONDITIONS)
    leaves = [rng.choice(_CONDITIONS[table]) for table in rng.choices("AB", k=rng.choice([1, 1, 2]))]
    return rng.choice([" AND ", " OR "]).join(leaves)


def random_joint_rows(rng: random.Random, case: JointCase, count: int) -> Rows:
    """Rows in the order of time."""

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    rows: list[tuple[str, Mapping[str, Any]]] = []
    for i in range(count):
        moment = datetime(2024, 1, 1) + timedelta(seconds=rng.choice([7, 30]) + 31 * (i // 2))
        numbers = [maybe(rng.randrange(-3, 5)) for _ in range(3)]
        if rng.random() < 0.5:
            row = {
                "K": maybe(rng.randrange(2)),
                "X": numbers[0],
                "Q": numbers[1],
                "F": maybe(rng.random() < 0.5),
            }
            row |= {"M": None if numbers[2] is None else _decimal(numbers[2], 4), "TS": moment}
            rows.append(("A", row))
        else:
            row = {"J": rng.randrange(2), "Y": numbers[0], "R": numbers[1], "G": maybe(rng.random() < 0.5)}
            row |= {"N": None if numbers[2] is None else _decimal(numbers[2], 2), "TT": moment}
            rows.append(("B", row))
    rows.sort(key=lambda each: each[1].get("TS") or each[1]["TT"])
    if " NOT NULL" in case.tables:
        rows = [(t, row) for t, row in rows if t == "A" or row["Y"] is not None]
    kept = {"A": {"TS"}, "B": set() if case.has_relation else {"TT"}}
    named = {t: kept[t] if case.in_time else set() for t in "AB"}
    return [(t, {k: v for k, v in row.items() if k not in ("TS", "TT") or k in named[t]}) for t, row in rows]


def _decimal(number: int, parts: int) -> Decimal:
    return Decimal(number) / parts


def answer_text(case: JointCase, query: Query, rows: Rows) -> Counter[tuple[Any, ...]]:
    """The answer of DuckDB to the text of a case."""
    tables = {
        name: arrow_table(replace(table, derived=()), [row for t, row in rows if t == name])
        for name, table in query.declared_tables.items()
    }
    text = case.select.replace("COUNT(A.X, B.Y)", "COUNT(A.X + B.Y)")
    text = re.sub(r"COUNT_IF\((.*?)\)( FILTER|,| FROM| > 1)", r"COUNT(CASE WHEN \1 THEN 1 END)\2", text)
    found = get_process_duckdb().query(text, tables)
    return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))

"""Random expressions over one row, as Spark SQL, and queries that use them in every place."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

COLUMNS = (
    *(("a", "INT"), ("b", "INT"), ("n", "BIGINT"), ("x", "DOUBLE"), ("m", "DECIMAL(10,2)")),
    *(("s", "STRING"), ("d", "DATE"), ("f", "BOOLEAN"), ("j", "STRING"), ("ts", "TIMESTAMP")),
)
RELATION = (("k", "INT"), ("w", "STRING"), ("v", "INT"))
_STRINGS = ("", "a", "A", "ab", "b,c", "12", "7", "x y", "é", " a ")
_FIRST = datetime(2024, 2, 28, tzinfo=UTC)


@dataclass(frozen=True)
class Expressions:
    """Draws expressions over the columns of one occurrence; ``owner`` qualifies them (``p.``)."""

    rng: random.Random
    owner: str = ""

    def _pick(self, *makers: Callable[[], str]) -> str:
        return self.rng.choice(makers)()

    def number(self, depth: int = 2) -> str:
        """A number; no error is possible."""
        o, rng = self.owner, self.rng
        column = f"{o}{rng.choice('abnxm')}"
        leaf = rng.choice([column, column, f"({column} + {rng.choice(['1', '2.5', '-3'])})"])
        if depth == 0:
            return leaf
        one, two = self.number(depth - 1), self.number(depth - 1)
        return self._pick(
            lambda: leaf,
            lambda: f"({one} {rng.choice('+-*')} {two})",
            lambda: f"({o}a / nullif({o}b, 0))",
            lambda: f"(2 * {one})",
            lambda: f"abs({one})",
            lambda: f"({o}{rng.choice('abn')} % {rng.randint(2, 9)})",
            lambda: f"pmod({o}a, {rng.randint(2, 9)})",
            lambda: f"length({self.text(depth - 1)})",
            lambda: f"CASE WHEN {self.condition(depth - 1)} THEN {one} ELSE {two} END",
            lambda: f"CASE WHEN {self.condition(depth - 1)} THEN 1 END",
            lambda: f"CASE {o}a WHEN 1 THEN {one} WHEN 2 THEN 0 END",
            lambda: f"coalesce({one}, {rng.choice(['0', '0.5', f'{o}b'])})",
            lambda: f"if({self.condition(depth - 1)}, {one}, {two})",
            lambda: f"greatest({one}, {two})",
            lambda: f"least({one}, {two}, 3)",
            lambda: f"nullif({one}, 0)",
            lambda: f"round({rng.choice([f'{o}x', f'{o}m', one])}, 1)",
            lambda: f"{rng.choice(['floor', 'ceil', 'sign'])}({one})",
            lambda: f"sqrt(abs({one}))",
            lambda: f"{rng.choice(['year', 'month', 'dayofweek', 'quarter'])}({o}d)",
            lambda: f"datediff({o}d, DATE '2024-01-01')",
            lambda: f"instr({o}s, 'a')",
            lambda: f"size(split({o}s, ','))",
            lambda: f"CAST(get_json_object({o}j, '$.k') AS INT)",
            lambda: f"from_json({o}j, 'k INT, t STRING').k",
            lambda: f"{one}::DECIMAL(20,4)" if rng.random() < 0.3 else f"CAST({o}x AS INT)",
            lambda: f"({o}a & 3)",
            lambda: f"(- {leaf})",
        )

    def text(self, depth: int = 2) -> str:
        o, rng = self.owner, self.rng
        leaf = rng.choice([f"{o}s", f"{o}s", f"{o}s || 'it''s'"])
        if depth == 0:
            return leaf
        one = self.text(depth - 1)
        return self._pick(
            lambda: leaf,
            lambda: f"{rng.choice(['upper', 'lower', 'trim', 'initcap', 'reverse'])}({one})",
            lambda: f"({one} || '-' || {self.text(depth - 1)})",
            lambda: f"concat({one}, CAST({o}{rng.choice('abn')} AS STRING))",
            lambda: f"substring({one}, {rng.randint(1, 2)}, {rng.randint(1, 2)})",
            lambda: f"left({one}, 1)",
            lambda: f"coalesce({one}, 'none')",
            lambda: f"CASE WHEN {self.condition(depth - 1)} THEN {one} ELSE 'other' END",
            lambda: f"date_format({o}d, 'yyyy-MM')",
            lambda: f"lpad({one}, 4, '.')",
            lambda: f"replace({one}, 'a', 'bb')",
            lambda: f"regexp_extract({o}s, '([a-z]+)', 1)",
            lambda: f"regexp_replace({o}s, '[0-9]', '#')",
            lambda: f"split({o}s, ',')[0]",
            lambda: f"get_json_object({o}j, '$.t')",
            lambda: f"from_json({o}j, 'k INT, t STRING').t",
            lambda: f"nullif({one}, '')",
        )

    def condition(self, depth: int = 1) -> str:
        o, rng = self.owner, self.rng
        comparison = f"{self.number(max(depth - 1, 0))} {rng.choice(['<', '<=', '=', '>', '<>'])} "
        comparison += self.number(max(depth - 1, 0))
        if depth == 0:
            return rng.choice([comparison, f"{o}f", f"{o}s LIKE 'a%'", f"{o}a IS NULL"])
        return self._pick(
            lambda: comparison,
            lambda: f"({self.condition(depth - 1)} AND {self.condition(depth - 1)})",
            lambda: f"({self.condition(depth - 1)} OR {self.condition(depth - 1)})",
            lambda: f"(NOT {self.condition(depth - 1)})",
            lambda: f"{self.text(depth - 1)} {rng.choice(['', 'NOT '])}LIKE '%{rng.choice('ab1')}%'",
            lambda: f"{o}s RLIKE '^[a-c]'",
            lambda: f"{self.number(depth - 1)} BETWEEN -2 AND 5",
            lambda: f"{self.text(depth - 1)} IN ('a', 'A', 'none')",
            lambda: f"{o}a IS {rng.choice(['', 'NOT '])}DISTINCT FROM {o}b",
            lambda: f"({o}f IS {rng.choice(['', 'NOT '])}TRUE)",
            lambda: f"{o}a <=> {o}b",
            lambda: f"({o}b <> 0 AND {o}a / {o}b > 1)",
            lambda: f"({o}b = 0 OR {o}a % {o}b = 1)",
            lambda: f"({o}s RLIKE '^[0-9]+$' AND CAST({o}s AS INT) > 7)",
            lambda: f"{o}d > DATE '2024-03-01'",
        )

    def few(self) -> str:
        """An expression with finitely many values."""
        o, rng = self.owner, self.rng
        return self._pick(
            lambda: f"{o}{rng.choice('abn')} % {rng.randint(2, 5)}",
            lambda: f"CASE WHEN {self.condition()} THEN 'yes' WHEN {self.condition()} THEN 'no' END",
            lambda: f"if({self.condition()}, 1, 0)",
            lambda: f"least(greatest({o}a, 0), 3)",
            lambda: f"{o}f",
            lambda: f"({o}a & 3)",
            lambda: f"{o}s LIKE '%a%'",
            lambda: f"{self.number(1)} > 2",
        )


def random_query(rng: random.Random) -> tuple[str, int]:
    """A query over the streams P and Q and the relation R, and the number of its group columns, first in the
    select list; 0 if rows are written only once."""
    p, q, bare = Expressions(rng, "p."), Expressions(rng, "q."), Expressions(rng)
    kind = rng.choice(
        ["rows", "relation", "groups", "windows", "distinct", "join", "left", "exists", "budget"]
    )
    where = f" WHERE {bare.condition(2)}" if rng.random() < 0.7 else ""
    aggregate = rng.choice(["SUM", "MIN", "MAX", "COUNT", "AVG"])
    chosen = f"{aggregate}({bare.number()})"
    if rng.random() < 0.3:
        chosen += f" FILTER (WHERE {bare.condition()})"
    if rng.random() < 0.4:
        chosen = rng.choice(["round({}, 1)", "coalesce({}, 0)", "{} / COUNT(*)", "{} > 2"]).format(chosen)
    match kind:
        case "rows":
            items = [bare.number(3), bare.text(3), bare.condition(2), "a"]
            return f"SELECT {', '.join(rng.sample(items, 3))} FROM P{where}", 0
        case "relation":
            join = f"P p {rng.choice(['JOIN', 'LEFT JOIN'])} R r ON p.a = r.k"
            return f"SELECT {p.number()}, r.w, r.w || p.s, p.b + r.v FROM {join} WHERE {p.condition(2)}", 0
        case "groups":
            few = bare.few()
            having = f" HAVING COUNT(*) > {rng.randint(0, 2)}" if rng.random() < 0.6 else ""
            if having and rng.random() < 0.5:
                having += f" AND round(SUM({bare.number(1)})) > 0"
            return f"SELECT {few}, {chosen}, COUNT(*) FROM P{where} GROUP BY {few}{having}", 1
        case "windows":
            key = rng.choice([bare.few(), bare.text(), bare.number()])
            bucket = "window(ts, '10 seconds')"
            return f"SELECT {bucket}.start, {key}, {chosen} FROM P{where} GROUP BY {bucket}, {key}", 0
        case "distinct":
            return f"SELECT DISTINCT {bare.few()}, {bare.few()} FROM P{where}", 0
    near = "q.ts BETWEEN p.ts - INTERVAL 5 SECONDS AND p.ts + INTERVAL 5 SECONDS"
    equal = rng.choice(["p.a = q.a", f"{p.text(1)} = {q.text(1)}", "p.a % 3 = q.n % 3", "p.a < q.b"])
    match kind:
        case "budget":
            shown = f"{p.number()}, {q.text()}, CASE WHEN p.a > q.b THEN p.s ELSE q.s END"
            return f"SELECT {shown} FROM P p, Q q WHERE {equal} AND {p.condition()} AND {q.condition()}", 0
        case "join":
            if rng.random() < 0.4:
                equal = rng.choice(["abs(p.a - q.b) < 2", "p.a + q.a > 3", "p.s || q.s LIKE '%a%'"])
            shown = f"p.a, {p.number()}, {q.text()}, p.a + q.b, CASE WHEN p.a > q.a THEN p.s ELSE q.s END"
            return f"SELECT {shown} FROM P p, Q q WHERE {near} AND {equal} AND {p.condition()}", 0
        case "left":
            shown = f"p.ts, p.a, {p.number()}, coalesce(q.s, 'none'), q.b"
            return f"SELECT {shown} FROM P p LEFT JOIN Q q ON p.a = q.a AND {near} WHERE {p.condition()}", 0
    inner = f"SELECT 1 FROM Q q WHERE {near} AND p.a = q.a AND {q.condition()}"
    condition = f"{rng.choice(['', 'NOT '])}EXISTS ({inner}) AND {p.condition()}"
    return f"SELECT p.ts, {p.number()}, {p.text()} FROM P p WHERE {condition}", 0


def random_rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Rows in the order of their timestamps."""

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    moments = sorted(_FIRST + timedelta(seconds=rng.randint(0, 40)) for _ in range(count))
    return [
        {
            "a": maybe(rng.randint(-3, 6)),
            "b": maybe(rng.randint(-1, 4)),
            "n": maybe(rng.randint(-9, 9)),
            "x": maybe(rng.randint(-10, 20) / 4),
            "m": maybe(Decimal(rng.randint(-900, 900)).scaleb(-2)),
            "s": maybe(rng.choice(_STRINGS)),
            "d": maybe(date(2024, 1, 1) + timedelta(days=rng.randint(0, 200))),
            "f": maybe(rng.random() < 0.5),
            "j": maybe(json.dumps({"k": rng.randint(0, 9), "t": rng.choice(_STRINGS)})),
            "ts": moment,
        }
        for moment in moments
    ]

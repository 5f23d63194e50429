"""Random queries with all aggregates, and groups by columns and expressions with finitely many values.

    python -m tests.campaigns.aggregates --cases 1000
    python -m tests.campaigns.aggregates --cases 1000 --joint

Bounded queries run on the exact or the timed engine: after every random batch the answer must be that of the
reference evaluation on all rows so far, and the state within the proven bound.  Witnesses of unbounded ones
are tried on all subsets of their rows.  With ``--joint``, the aggregates are of sums, products and CASE over
two tables, and the reference is DuckDB.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import combinations
from typing import Any

import duckdb

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, Verdict
from millpond.errors import WitnessSizeError
from millpond.frontend.parse import parse
from millpond.plan.computed_aggregates import explain_uncomputed
from millpond.plan.needs import TimedPlan
from millpond.query.evaluate import answer
from millpond.query.model import Query
from millpond.runtime.derive import derive_rows
from tests.support.joint_generate import JointCase, answer_text, random_joint_case, random_joint_rows
from tests.support.local import Local
from tests.support.timed_local import TimedLocal, micros

ROWS = 30
WITNESS_ROWS = 4
Rows = Sequence[tuple[str, Mapping[str, Any]]]
_LETTERS = ("a", "b", "ab")
_CALLS = [
    *("COUNT(*)", "COUNT({n})", "SUM({n})", "AVG({n})", "MIN({n})", "MAX({n})", "MEDIAN({n})", "SUM(1)"),
    *("VARIANCE({n})", "VAR_POP({n})", "STDDEV({n})", "STDDEV_POP({n})", "CORR({n}, X)", "COVAR_POP(A, B)"),
    *("MAX_BY({v}, X)", "MIN_BY({v}, X)", "BOOL_AND(OK)", "BOOL_OR({n} > 1)", "COUNT_IF({n} < 2)"),
    *("COUNT(DISTINCT {v})", "COUNT(DISTINCT {v}, OK)", "SUM(DISTINCT {n})", "AVG(DISTINCT {n})"),
    *("PERCENTILE({n}, 0.3)", "PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY {n})", "COLLECT_SET({v})"),
    *("PERCENTILE_DISC(0.6) WITHIN GROUP (ORDER BY {n})", "COLLECT_LIST({v})", "APPROX_COUNT_DISTINCT({v})"),
    *("COUNT({n}, OK)", "MAX(DISTINCT {n})", "ANY_VALUE({v})"),
]
_BY_TIME = ["FIRST({v})", "LAST({n}, true)"]
_KEYS = [
    *("K", "C", "A", "OK", "A % 3", "upper(C)", "CASE WHEN A > 1 THEN C ELSE 'z' END", "B", "length(C)"),
    *("substring(C, 1, 1)", "sign(A)", "LEAST(GREATEST(A, 0), 2)", "coalesce(C, 'none')", "K * 2", "X"),
]
_FILTERS = [
    "A BETWEEN 0 AND 3",
    "C IN ('a', 'b')",
    "length(C) <= 2",
    "abs(A) < 3",
    "C LIKE 'a'",
    "OK",
    "A % 2 = 0",
]


def random_query(rng: random.Random) -> str:
    """The text of a query over one stream, or over two that are joined by a bounded column."""
    checks = {
        "C": rng.choice(["", " CHECK (C IN ('a', 'b', 'ab'))", " CHECK (char_length(C) <= 2)"]),
        "B": rng.choice(["", " CHECK (B BETWEEN -1 AND 4)", " CHECK (abs(B) < 9)"]),
    }
    in_time = rng.random() < 0.5
    ts = ", TS TIMESTAMP" if in_time else ""
    promise = rng.choice(["", " TBLPROPERTIES ('cardinality.C' = '3')"])
    ddl = f"CREATE STREAMING TABLE S (K TINYINT, C STRING{checks['C']}, A INT, B INT{checks['B']}, X DOUBLE, "
    ddl += f"OK BOOLEAN{ts}){promise}; CREATE STREAMING TABLE T (J TINYINT, D INT{ts.replace('TS', 'TT')});"
    is_join = not in_time and rng.random() < 0.3
    calls = []
    for _ in range(rng.randint(1, 3)):
        call = rng.choice([*_CALLS, *_BY_TIME] if in_time else _CALLS)
        call = call.format(n=rng.choice("ABK"), v=rng.choice(["A", "C", "K", "OK"]))
        call += rng.choice(["", "", "", " FILTER (WHERE OK)", " FILTER (WHERE A > 0)"])
        calls.append(call if not is_join or "ANY_VALUE" not in call else "COUNT(*)")
    keys = rng.sample(_KEYS, rng.choice([0, 1, 1, 2]))
    shown = [*keys]
    if in_time and rng.random() < 0.5:
        keys, shown = [*keys, "window(TS, '1 minute')"], [*shown, "window.start"]
    where = [rng.choice(_FILTERS)] if rng.random() < 0.4 else []
    tables = "S"
    if is_join:
        tables, where = "S, T", [*where, "K = J", *rng.choice([[], ["D > 0"]])]
    text = f"SELECT {', '.join([*shown, *calls])} FROM {tables}"
    text += f" WHERE {' AND '.join(where)}" if where else ""
    text += f" GROUP BY {', '.join(keys)}" if keys else ""
    if keys and rng.random() < 0.2:
        text += (
            f" HAVING {rng.choice(['COUNT(*) > 1', 'COUNT(DISTINCT A) > 2', 'STDDEV(A) > 1', 'BOOL_OR(OK)'])}"
        )
    return f"{ddl} {text};"


def random_rows(rng: random.Random, query: Query, count: int) -> Rows:
    """Rows in the order of time that keep all promises; no two have the same X."""
    orders = rng.sample(range(4 * count), count)

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    rows: list[tuple[str, Mapping[str, Any]]] = []
    for i in range(count):
        moment = datetime(2024, 1, 1) + timedelta(seconds=17 * i)
        if "T" in query.tables and rng.random() < 0.3:
            rows.append(("T", {"J": rng.randrange(3), "D": rng.randrange(3), "TT": moment}))
            continue
        row = {"K": rng.randrange(3), "C": maybe(rng.choice(_LETTERS)), "A": maybe(rng.randrange(-3, 5))}
        row |= {"B": maybe(rng.randrange(-1, 5)), "X": orders[i] / 8, "OK": maybe(rng.random() < 0.5)}
        rows.append(("S", {**row, "TS": moment}))
    named = {name: {c.name for c in table.columns} for name, table in query.tables.items()}
    return [(name, {k: v for k, v in row.items() if k in named[name]}) for name, row in rows]


def examine(seed: int) -> tuple[str, str | None]:
    """The outcome for a random query, and what is wrong with it."""
    rng = random.Random(seed)
    text = random_query(rng)
    [query] = parse(text)
    verdict = decide(query)
    problem = None
    if verdict.outcome == BOUNDED:
        problem = _examine_run(rng, query, verdict)
    elif verdict.outcome == UNBOUNDED and not verdict.assumptions:
        problem = _examine_witness(query, verdict)
    kind = verdict.outcome
    if kind == BOUNDED and problem == "not run":
        return "bounded, not run", None
    return kind, None if problem is None else f"seed {seed}: {problem}\n{text}"


def examine_joint(seed: int) -> tuple[str, str | None]:
    """The outcome for a random query with aggregates over two tables, and what is wrong with it.

    The reference is DuckDB's answer to the text.
    """
    rng = random.Random(seed)
    case = random_joint_case(rng)
    [query] = parse(case.sql)
    verdict = decide(query)
    problem = None
    if verdict.outcome == BOUNDED:
        problem = _examine_joint_run(rng, case, query, verdict)
    elif verdict.outcome == UNBOUNDED and not verdict.assumptions:
        problem = _examine_witness(query, verdict, lambda rows: answer_text(case, query, rows))
    kind = verdict.outcome + (" by a block" if verdict.blocks else "")
    if problem == "not run":
        return f"{kind}, not run", None
    return kind, None if problem is None else f"seed {seed}: {problem}\n{case.sql}"


def _examine_joint_run(rng: random.Random, case: JointCase, query: Query, verdict: Verdict) -> str | None:
    plan = verdict.timed or verdict.plan
    if verdict.blocks or plan is None or explain_uncomputed(plan) is not None:
        return "not run"
    rows = random_joint_rows(rng, case, ROWS)
    held = [(name, row) for name, row in rows if case.has_relation and name == "B"]
    rows = [each for each in rows if each not in held]
    relations = {"B": [row for _, row in held]}
    engine: Any = TimedLocal(plan, relations, updates=True) if isinstance(plan, TimedPlan) else Local(plan)
    fed = 0
    while fed < len(rows):
        batch = rows[fed : fed + rng.randint(1, 12)]
        while (
            fed + len(batch) < len(rows)
            and case.in_time
            and _time_of(rows[fed + len(batch)]) == _time_of(batch[-1])
        ):
            batch = rows[fed : fed + len(batch) + 1]
        fed += len(batch)
        if isinstance(plan, TimedPlan):
            engine.add(batch, max(map(_time_of, batch)))
        else:
            engine.add(batch)
        expected = answer_text(case, query, [*rows[:fed], *held])
        found = _project(query, engine.answer())
        if not _is_equal(found, expected):
            return f"after {fed} rows {found} instead of {expected}"
        bound = verdict.state.entries
        if verdict.plan is not None and bound is not None and engine.entries > bound:
            return f"{engine.entries} entries, more than {bound}"
    return None


def _time_of(entry: tuple[str, Mapping[str, Any]]) -> int:
    moment = entry[1].get("TS") or entry[1].get("TT")
    return 0 if moment is None else micros(moment)


def _project(query: Query, found: Counter[Any]) -> Counter[Any]:
    """The rows of a result that pass the filter of the query, with the columns of its projection."""
    if not query.projection:
        return found
    rows = list(found.elements())
    columns = ", ".join(f'o{i} AS "{name}"' for i, name in enumerate(query.columns))
    values = ", ".join(f"unnest($c{i}) AS o{i}" for i in range(len(query.columns)))
    shown = ", ".join(each.duckdb for each in query.projection)
    where = "" if query.filter is None else f" WHERE {query.filter.duckdb}"
    text = f"SELECT {shown} FROM (SELECT {columns} FROM (SELECT {values})){where}"
    given = {f"c{i}": [row[i] for row in rows] for i in range(len(query.columns))}
    return Counter(duckdb.execute(text, given).fetchall()) if rows else Counter()


def _examine_run(rng: random.Random, query: Query, verdict: Verdict) -> str | None:
    plan = verdict.timed or verdict.plan
    if plan is None or explain_uncomputed(plan) is not None:
        return "not run"
    rows = random_rows(rng, query, ROWS)
    engine: Any = TimedLocal(verdict.timed, updates=True) if verdict.timed else Local(verdict.plan)  # type: ignore[arg-type]
    fed = 0
    while fed < len(rows):
        batch = rows[fed : fed + rng.randint(1, 12)]
        fed += len(batch)
        if verdict.timed:
            times = [micros(row[t]) for _, row in batch for t in ("TS", "TT") if t in row]
            engine.add(batch, max(times, default=0))
        else:
            engine.add(batch)
        seen = {t: [row for name, row in rows[:fed] if name == t] for t in query.tables}
        expected = answer(query, derive_rows(query, seen))
        if not _is_equal(engine.answer(), expected):
            return f"after {fed} rows {engine.answer()} instead of {expected}"
        bound = verdict.state.entries
        if verdict.plan is not None and bound is not None and engine.entries > bound:
            return f"{engine.entries} entries, more than {bound}"
    return None


def _is_equal(found: Counter[Any], expected: Counter[Any]) -> bool:
    if found.total() != expected.total():
        return False
    pairs = zip(sorted(found.elements(), key=repr), sorted(expected.elements(), key=repr), strict=True)
    return all(_is_close(a, b) for one, other in pairs for a, b in zip(one, other, strict=True))


def _is_close(one: Any, other: Any) -> bool:
    is_float = isinstance(other, float) and one is not None
    return bool(one == other) or (is_float and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9))


def _examine_witness(
    query: Query, verdict: Verdict, respond_to: Callable[[Rows], Counter[Any]] | None = None
) -> str | None:
    """Whether each probe tells subsets with its row from those without.

    ``respond_to`` computes the answer; by default, the reference evaluation does.
    """
    try:
        witness = verdict.witness(WITNESS_ROWS)
    except WitnessSizeError:
        return None

    def respond(subset: Sequence[int], k: int) -> list[Counter[Any]]:
        fed = [*witness["setup"], *(witness["universe"][i] for i in subset)]
        stages = [[row] for row in witness["probes"][k]] if witness["compare"] == "emitted" else []
        found = []
        for stage in [[], *stages] if stages else [witness["probes"][k]]:
            fed = [*fed, *stage]
            rows = [(entry["stream"], _read_row(query, entry)) for entry in fed]
            if respond_to is not None:
                found.append(respond_to(rows))
                continue
            data = {name: [row for t, row in rows if t == name] for name in query.tables}
            found.append(answer(query, derive_rows(query, data)))
        return found

    every = [c for r in range(WITNESS_ROWS + 1) for c in combinations(range(WITNESS_ROWS), r)]
    for subset in every:
        for k in subset:
            if respond(subset, k) == respond(tuple(i for i in subset if i != k), k):
                return f"probe {k} does not show whether row {k} is in {subset}"
    return None


def _read_row(query: Query, entry: Mapping[str, Any]) -> dict[str, Any]:
    types = {c.name: c.type for c in query.declared_tables[entry["stream"]].columns}

    def read(name: str, value: Any) -> Any:
        if value is not None and types[name].name == "TIMESTAMP":
            return datetime.fromisoformat(value.replace("Z", ""))
        return Decimal(str(value)) if value is not None and types[name].scale else value

    return {name: read(name, value) for name, value in entry["row"].items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--joint", action="store_true", help="aggregates over two tables")
    arguments = parser.parse_args()
    examine_one = examine_joint if arguments.joint else examine
    began, counts, problems = time.monotonic(), Counter[str](), 0
    for seed in range(arguments.seed, arguments.seed + arguments.cases):
        outcome, problem = examine_one(seed)
        counts[outcome] += 1
        if problem is not None:
            problems += 1
            print(problem, flush=True)
    print(f"{dict(counts)}, {problems} problems, {time.monotonic() - began:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

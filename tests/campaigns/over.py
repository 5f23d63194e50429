"""Window functions: random queries in random micro-batches against DuckDB on all rows at once.

python -m tests.campaigns.over --cases 500 --seed 1
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from typing import Any

from millpond import Verdict, check
from millpond.analysis.verdict import BOUNDED, UNBOUNDED
from millpond.analysis.witness.templates import find_template
from millpond.engines.over.compile import find_gap
from millpond.frontend.parse import parse
from tests.support.over_generate import CATALOG, make_query, make_rows
from tests.support.over_local import answer_at_once, cut_at_random, run_in_batches
from tests.support.time_fooling import confirm_time_witness


def run_case(seed: int) -> str:
    """What became of a random case: "equal", or the outcome of a query that is not run."""
    rng = random.Random(seed)
    sql = make_query(rng)
    verdict = check(f"{CATALOG} {sql}")
    assert isinstance(verdict, Verdict)
    _check_verdict(verdict, f"{CATALOG} {sql}", seed)
    if verdict.over is None or find_gap(verdict.over) is not None:
        return verdict.outcome if verdict.over is None else "not run"
    rows = make_rows(rng, rng.choice([5, 20, 60]))
    found, most, late = run_in_batches(verdict, cut_at_random(rng, rows))
    (query,) = parse(f"{CATALOG} {sql}")
    expected = answer_at_once(query, rows)
    if verdict.query != query:
        divided = answer_at_once(verdict.query, rows)
        assert divided == expected, f"seed {seed}: as blocks {divided}, not {expected}: {sql}"
    assert late == 0, f"seed {seed}: {late} late rows: {sql}"
    found, expected = _blur(found), _blur(expected)
    assert found == expected, f"seed {seed}: {sql}\nmissing {expected - found}\nwrong {found - expected}"
    entries = verdict.state.entries
    assert entries is None or most <= entries, f"seed {seed}: {most} entries, not {entries}: {sql}"
    return "equal"


def _blur(answer: Counter[Any]) -> Counter[Any]:
    """The answer without the digits of DOUBLEs that depend on the order of additions."""
    blurred: Counter[Any] = Counter()
    for row, count in answer.items():
        blurred[tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row)] += count
    return blurred


def _check_verdict(verdict: Verdict, text: str, seed: int) -> None:
    """A proof of growth must hold on the text of the query; a bounded query must withstand all templates."""
    if verdict.outcome == UNBOUNDED:
        tables = verdict.query.declared_tables
        catalog = {name: [(c.name, c.type.name) for c in table.columns] for name, table in tables.items()}
        refusal = confirm_time_witness(text, catalog, verdict.witness(3))
        assert refusal is None, f"seed {seed}: {refusal}: {text}"
    elif verdict.outcome == BOUNDED and seed % 4 == 0:
        assert find_template(verdict.query) is None, f"seed {seed}: a proof of growth: {text}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    tally: dict[str, int] = {}
    for seed in range(given.seed, given.seed + given.cases):
        outcome = run_case(seed)
        tally[outcome] = tally.get(outcome, 0) + 1
    print(tally)


if __name__ == "__main__":
    main()

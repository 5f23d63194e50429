"""The tour of ``millpond demo``: Table I of paper 1, and two of its verdicts with their proofs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millpond.analysis.decide import decide
from millpond.analysis.verdict import Verdict
from millpond.frontend.parse import parse
from millpond.query.evaluate import answer
from millpond.query.model import Query

CATALOG = """\
CREATE STREAMING TABLE S (A INT, B INT, C INT);
CREATE STREAMING TABLE T (D INT, E INT);
"""
TABLE_I = (
    ("Q1", "A FROM S WHERE A > 10"),
    ("Q2", "A FROM S, T WHERE A = D"),
    ("Q3", "A FROM S, T WHERE A = D AND A > 10 AND D < 20"),
    ("Q4", "A FROM S, T WHERE B < D AND A = 10"),
    ("Q5", "A FROM S, T WHERE B < D AND C < E AND A = 10"),
    ("Q6", "A FROM S, T WHERE B < D AND C < E AND B < E AND C < D AND A = 10"),
    ("Q7", "A FROM S, T WHERE B < D AND D > 10 AND B < 20 AND A = 10"),
)
_SHOWN = "Q4"
_PROBE = 2
_ROWS = 3


@dataclass(frozen=True)
class Example:
    """A query of Table I without its ``SELECT``, and its verdicts with duplicates kept and with DISTINCT."""

    name: str
    text: str
    kept: Verdict
    distinct: Verdict


@dataclass(frozen=True)
class ProbeRun:
    """One probe of a witness, run after all rows of the universe and after all but the row that it tests."""

    rows: tuple[str, ...]
    probe: tuple[str, ...]
    number: int
    with_row: int
    without_row: int


@dataclass(frozen=True)
class Tour:
    """What the demo shows: Table I, then a bounded and an unbounded query with the proof of each verdict."""

    examples: tuple[Example, ...]
    bounded: Verdict
    unbounded: Verdict
    experiment: ProbeRun


def make_tour() -> Tour:
    """Everything that the demo shows before it starts Spark.

    >>> [(e.name, e.kept.outcome, e.distinct.outcome) for e in make_tour().examples][3]
    ('Q4', 'unbounded', 'bounded')
    """
    examples = tuple(
        Example(name, text, decide_query(f"SELECT {text}"), decide_query(f"SELECT DISTINCT {text}"))
        for name, text in TABLE_I
    )
    shown = next(example for example in examples if example.name == _SHOWN)
    return Tour(examples, shown.distinct, shown.kept, _run_probe(shown.kept))


def decide_query(query: str) -> Verdict:
    """The verdict on a query over the streams of the tour."""
    [parsed] = parse(CATALOG + query)
    return decide(parsed)


def _run_probe(verdict: Verdict) -> ProbeRun:
    witness = verdict.witness(_ROWS)
    rows, probe = witness["universe"], witness["probes"][_PROBE - 1]
    others = [row for number, row in enumerate(rows, start=1) if number != _PROBE]
    return ProbeRun(
        rows=tuple(map(_row_text, rows)),
        probe=tuple(map(_row_text, probe)),
        number=_PROBE,
        with_row=_count_results(verdict.query, [*witness["setup"], *rows], probe),
        without_row=_count_results(verdict.query, [*witness["setup"], *others], probe),
    )


def _count_results(query: Query, before: Sequence[dict[str, Any]], probe: Sequence[dict[str, Any]]) -> int:
    """How many result rows the probe adds."""
    return answer(query, _by_stream([*before, *probe])).total() - answer(query, _by_stream(before)).total()


def _by_stream(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    data: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        data.setdefault(row["stream"], []).append(row["row"])
    return data


def _row_text(row: dict[str, Any]) -> str:
    """
    >>> _row_text({"stream": "T", "row": {"D": 7, "E": None}})
    'T(D=7, E=NULL)'
    """
    values = ", ".join(f"{name}={'NULL' if v is None else v}" for name, v in row["row"].items())
    return f"{row['stream']}({values})"

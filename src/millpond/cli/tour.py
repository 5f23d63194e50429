"""The tour for a newcomer: Table I of paper 1, judged afresh, and one verdict of each kind with its proof."""

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
    """A query of Table I, ``SELECT`` left off, judged with duplicates kept and with DISTINCT."""

    name: str
    text: str
    kept: Verdict
    distinct: Verdict


@dataclass(frozen=True)
class Experiment:
    """One probe of a witness, tried on all optional rows and on all but the one that it asks for."""

    rows: tuple[str, ...]
    probe: tuple[str, ...]
    number: int
    with_row: int
    without_row: int


@dataclass(frozen=True)
class Tour:
    examples: tuple[Example, ...]
    bounded: Verdict
    unbounded: Verdict
    experiment: Experiment


def tour() -> Tour:
    """Everything the demo shows, computed by the checker.

    >>> [(e.name, e.kept.outcome, e.distinct.outcome) for e in tour().examples][3]
    ('Q4', 'unbounded', 'bounded')
    """
    examples = tuple(
        Example(name, text, judged(f"SELECT {text}"), judged(f"SELECT DISTINCT {text}"))
        for name, text in TABLE_I
    )
    shown = next(example for example in examples if example.name == _SHOWN)
    return Tour(examples, shown.distinct, shown.kept, _experiment(shown.kept))


def judged(query: str) -> Verdict:
    """The verdict on a query over the streams of the tour."""
    [parsed] = parse(CATALOG + query)
    return decide(parsed)


def _experiment(verdict: Verdict) -> Experiment:
    witness = verdict.witness(_ROWS)
    rows, probe = witness["universe"], witness["probes"][_PROBE - 1]
    others = [row for number, row in enumerate(rows, start=1) if number != _PROBE]
    return Experiment(
        rows=tuple(map(_row_text, rows)),
        probe=tuple(map(_row_text, probe)),
        number=_PROBE,
        with_row=_emitted(verdict.query, [*witness["setup"], *rows], probe),
        without_row=_emitted(verdict.query, [*witness["setup"], *others], probe),
    )


def _emitted(query: Query, before: Sequence[dict[str, Any]], probe: Sequence[dict[str, Any]]) -> int:
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

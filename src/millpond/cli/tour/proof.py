"""The proof that a query is unbounded, tried out: a witness is evaluated on every subset of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, product
from typing import Any

from millpond.analysis.verdict import Verdict
from millpond.query.evaluate import answer
from millpond.query.model import Query

Row = Mapping[str, Any]


@dataclass(frozen=True)
class ProbeResult:
    """What the query writes when the rows of a probe arrive, over all subsets of the rows before it.

    ``found`` are the numbers of rows it writes after subsets with the row that it tests, ``missing`` those
    after subsets without it.
    """

    rows: tuple[str, ...]
    found: frozenset[int]
    missing: frozenset[int]

    @property
    def tells_apart(self) -> bool:
        return not self.found & self.missing


@dataclass(frozen=True)
class Proof:
    """Rows that may or may not have arrived, a probe for each of them, and the number of evaluated cases."""

    rows: tuple[str, ...]
    probes: tuple[ProbeResult, ...]
    evaluated: int

    @property
    def holds(self) -> bool:
        """Whether the answers tell every two subsets of the rows apart."""
        return all(probe.tells_apart for probe in self.probes)


def try_witness(verdict: Verdict, rows: int) -> Proof:
    """Evaluate each probe of a witness after each of the 2^n subsets of its rows."""
    witness = verdict.witness(rows)
    setup, universe = witness["setup"], witness["universe"]
    subsets = list(product((True, False), repeat=len(universe)))
    probes = []
    for number, probe in enumerate(witness["probes"]):
        written: dict[bool, set[int]] = {True: set(), False: set()}
        for chosen in subsets:
            before = [*setup, *compress(universe, chosen)]
            written[chosen[number]].add(_count_written(verdict.query, before, probe))
        texts = tuple(map(describe_row, probe))
        probes.append(ProbeResult(texts, frozenset(written[True]), frozenset(written[False])))
    return Proof(tuple(map(describe_row, universe)), tuple(probes), len(probes) * len(subsets))


def describe_row(row: Row) -> str:
    """
    >>> describe_row({"stream": "clicks", "row": {"ad": 7, "cost": None}})
    'clicks (ad 7, cost NULL)'
    """
    values = ", ".join(f"{name} {'NULL' if value is None else value}" for name, value in row["row"].items())
    return f"{row['stream']} ({values})"


def _count_written(query: Query, before: Sequence[Row], probe: Sequence[Row]) -> int:
    """How many rows the query writes when the probe arrives."""
    after = answer(query, _by_stream([*before, *probe]))
    return Counter(after - answer(query, _by_stream(before))).total()


def _by_stream(rows: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    data: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        data.setdefault(row["stream"], []).append(row["row"])
    return data

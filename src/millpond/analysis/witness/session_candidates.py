"""Proposes candidates for aggregates over session windows: rows that keep one session open for ever.

Rows that are always present, the *heartbeats*, come so often that the session never ends, with or without the
optional rows between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import cycle

from millpond.analysis.witness.argument_values import solve_rounds
from millpond.analysis.witness.candidates import propose_candidates
from millpond.analysis.witness.source import CandidateRow, WitnessCandidate, WitnessSource
from millpond.analysis.witness.values import Assignment
from millpond.query.aggregate_functions import Memory, find_memory
from millpond.query.number_line import Points

_FIRST = Points().of(datetime(2000, 1, 1, tzinfo=UTC))


def propose_session_candidates(source: WitnessSource, n: int) -> Iterator[WitnessCandidate]:
    """Candidates with ``n`` optional rows of one session, with their timestamps."""
    if source.aggregate is None or source.select.session is None:
        return
    alias = source.violation.kept_alias
    rounds = solve_rounds(source, n + 2, {})
    memory = find_memory(source.aggregate)
    if memory in (Memory.SET, Memory.LIST) and rounds is not None:
        # Each probe adds every value but one, so the count shows whether that one was present.
        universe = tuple(CandidateRow(alias, rounds[k]) for k in range(1, n + 1))
        probes = tuple(tuple(row for row in universe if row is not mine) or universe for mine in universe)
        yield _arrange(source, WitnessCandidate((), universe, probes), [rounds[0]])
    elif memory is Memory.VALUES:
        for candidate in propose_candidates(source, n):
            if candidate.shared is not None:
                yield _arrange(source, candidate, _find_ends(source, candidate))


def _find_ends(source: WitnessSource, candidate: WitnessCandidate) -> list[Assignment]:
    """The least and the greatest value that is added; as many of one as of the other move no median."""
    moving = source.violation.moving[0].columns[0]
    added = sorted((row.assignment for probe in candidate.probes for row in probe), key=lambda a: a[moving])
    return [added[0], added[-1]]


def _arrange(
    source: WitnessSource, candidate: WitnessCandidate, beats: Sequence[Assignment]
) -> WitnessCandidate:
    """The candidate with timestamps a third of the gap apart, and heartbeats between its optional rows."""
    assert source.select.session is not None
    step = Fraction(max(source.select.session.gap // 3, 1))
    alias = source.violation.kept_alias
    heartbeats = cycle(beats)
    moment = _FIRST
    setup: list[CandidateRow] = []
    universe: list[CandidateRow] = []
    for row in (*candidate.setup, *candidate.universe):
        setup.append(CandidateRow(alias, next(heartbeats), moment))
        (setup if row in candidate.setup else universe).append(replace(row, timestamp=moment + step))
        moment += 2 * step
    count = len(candidate.setup) + len(candidate.universe)
    for _ in range(-count % len(beats) + len(beats)):
        setup.append(CandidateRow(alias, next(heartbeats), moment))
        moment += step
    probes = [
        tuple(replace(row, timestamp=moment + i * step) for i, row in enumerate(probe))
        for probe in candidate.probes
    ]
    return replace(candidate, setup=tuple(setup), universe=tuple(universe), probes=tuple(probes))

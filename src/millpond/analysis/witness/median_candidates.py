"""Proposes candidates for a MEDIAN of few values, which are observed step by step.

Such a median moves in steps, so no single probe always shows one more row.  But matches with another value,
added one after the other, outweigh those of the optional rows sooner or later, depending on their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product, zip_longest

from millpond.analysis.violations import ViolationCode
from millpond.analysis.witness.argument_values import propose_value_pairs, solve_rounds
from millpond.analysis.witness.candidates import propose_counterweights, propose_disequality_probes
from millpond.analysis.witness.source import (
    CandidateRow,
    WitnessCandidate,
    WitnessSource,
    find_argument_alias,
    find_kept_aliases,
    split_by_moving_columns,
)
from millpond.analysis.witness.values import Assignment
from millpond.query.expressions import Ref

# How many rows of the aggregated column's stream have the value that outweighs the other, or the other value.
_HEAVY = (1, 2, 4, 7)
_LIGHT = (6, 2)


def propose_median_candidates(source: WitnessSource, n: int) -> Iterator[WitnessCandidate]:
    """Candidates with ``n`` optional rows; none unless the aggregate is the MEDIAN of a bounded column."""
    argument = source.aggregate.argument if source.aggregate else None
    closure = source.regions.closure
    if source.aggregate is None or source.aggregate.function != "MEDIAN":
        return
    if not isinstance(argument, Ref) or argument not in closure.index or not closure.is_bounded(argument):
        return
    kinds = [
        kind
        for moved in split_by_moving_columns(source)
        for kind in (_propose_outweighed(moved, n), _propose_weighed(moved, n))
    ]
    for turn in zip_longest(*kinds):
        yield from (candidate for candidate in turn if candidate is not None)


def _propose_outweighed(source: WitnessSource, n: int) -> Iterator[WitnessCandidate]:
    """The optional rows contribute one value; matches without them contribute the other."""
    for given, contrast in propose_value_pairs(source):
        against = solve_rounds(source, n + 2, contrast) if given != contrast else None
        if against is None:
            continue
        for candidate in _propose_counting(source, n, given):
            kept_alias, home = candidate.universe[0].occurrence, find_argument_alias(source)
            others = [a for a in source.aliases if a != kept_alias]
            repeats = [*([a] for a in others), [kept_alias], *([others] if len(others) > 1 else [])]
            fresh = [others, []] if len(others) > 1 else [others]  # [] means those of the probe
            ends = (against[0], against[n + 1])
            for new, copies, reference, repeated in product(fresh, _HEAVY, ends, repeats):
                first = [CandidateRow(a, dict(reference)) for a in [home] * (copies - 1) if a is not None]
                start = [*first, *(CandidateRow(a, reference) for a in (kept_alias, *new))]
                yield _append_stages(candidate, start, [CandidateRow(a, reference) for a in repeated], n)


def _propose_counting(source: WitnessSource, n: int, given: Assignment) -> Iterator[WitnessCandidate]:
    """Candidates whose probes match more with every optional row that is present."""
    rounds = solve_rounds(source, n + 2, given)
    if source.violation.code is ViolationCode.COUNTED_DISEQUALITY_JOIN:
        found = (candidate for candidate in propose_disequality_probes(source, n) if not candidate.setup)
        yield from (s for s in found if given.items() <= s.universe[0].assignment.items())
    elif rounds is not None:
        for kept_alias in find_kept_aliases(source):
            others = [a for a in source.aliases if a != kept_alias]
            universe = tuple(CandidateRow(kept_alias, rounds[k]) for k in range(1, n + 1))
            probes = tuple(tuple(CandidateRow(a, rounds[k]) for a in others) for k in range(1, n + 1))
            yield WitnessCandidate((), universe, probes)


def _propose_weighed(source: WitnessSource, n: int) -> Iterator[WitnessCandidate]:
    """The optional rows match both values; a row that is always present matches only one of them."""
    home = find_argument_alias(source)
    if source.violation.code is ViolationCode.COUNTED_DISEQUALITY_JOIN:
        candidates = [
            candidate for candidate in propose_disequality_probes(source, n) if len(candidate.setup) == 1
        ]
    else:
        candidates = [
            candidate
            for kept_alias in find_kept_aliases(source)
            for candidate in propose_counterweights(source, kept_alias, n)
        ]
    for copies, candidate in product(_LIGHT, candidates):
        kept_alias, always = candidate.universe[0].occurrence, candidate.setup[0].assignment
        given = next((p for p in candidate.probes[0] if p.occurrence == home), None)
        if given is None:
            continue
        others = [a for a in source.aliases if a not in (kept_alias, home)]
        start = _repeat([given], copies)
        both = [kept_alias, *others]
        for repeated in (*([a] for a in others), [kept_alias], both):
            yield _append_stages(candidate, start, [CandidateRow(a, always) for a in repeated], n)
        # These rows match the optional rows too; the probe's own rows are repeated to outnumber them.
        strong = [
            (*p, *_repeat([row for row in p if row.occurrence != home], 2 * n)) for p in candidate.probes
        ]
        stage = [CandidateRow(a, always) for a in both]
        yield _append_stages(replace(candidate, probes=tuple(strong)), start, stage, n)
        yield _append_stages(candidate, start, [CandidateRow(given.occurrence, always), given], n)


def _append_stages(
    candidate: WitnessCandidate, start: Sequence[CandidateRow], stage: Sequence[CandidateRow], n: int
) -> WitnessCandidate:
    """The candidate with ``start`` after each probe, followed by ``stage`` again and again.

    Each optional row has up to three matches, so 3 n + 2 repetitions outweigh all of them.
    """
    rows = [*start, *_repeat(stage, 3 * n + 2)]
    return replace(candidate, probes=tuple((*probe, *rows) for probe in candidate.probes), step_by_step=True)


def _repeat(rows: Sequence[CandidateRow], times: int) -> list[CandidateRow]:
    """The rows repeated, each copy with an assignment (so a timestamp) of its own."""
    every = [placed for _ in range(times) for placed in rows]
    return [replace(placed, assignment=dict(placed.assignment)) for placed in every]

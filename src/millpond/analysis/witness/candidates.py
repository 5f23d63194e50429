"""Proposes candidates for witnesses from a violation.

The layouts are those of the proofs of paper 1 (Lemmas A.3 to A.7) and of the arguments for aggregates.
Brute force decides whether a candidate is a witness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product, zip_longest
from math import ceil

from millpond.analysis.violations import ViolationCode
from millpond.analysis.witness.argument_values import is_tied, propose_value_pairs, solve_rounds
from millpond.analysis.witness.source import (
    CandidateRow,
    WitnessCandidate,
    WitnessSource,
    find_argument_alias,
    find_having_constants,
    find_kept_aliases,
    split_by_moving_columns,
)
from millpond.analysis.witness.values import (
    Assignment,
    Spacing,
    ValueLayout,
    doubling_spacing,
    even_spacing,
    midpoint_free_spacing,
)
from millpond.query.expressions import Literal, Ref

# The most copies of a probe's rows that are tried to reach a HAVING threshold.
_MAX_COPIES = 240
# The most rounds for which the spacing doubles.
_MAX_DOUBLING = 40


def propose_candidates(source: WitnessSource, n: int) -> Iterator[WitnessCandidate]:
    """Candidates for a witness with ``n`` optional rows, the simplest first.

    Under HAVING, probes are also repeated as often as its constants suggest.
    """
    thresholds = sorted({c + d for c in find_having_constants(source.select) for d in (-1, 0, 1)})
    for candidate in _propose_in_turn(source, n):
        yield candidate
        for copies in thresholds:
            if 1 < copies <= _MAX_COPIES:
                yield replace(candidate, probes=tuple(probe * copies for probe in candidate.probes))


def _propose_in_turn(source: WitnessSource, n: int) -> Iterator[WitnessCandidate]:
    """Candidates for each choice of moving columns, in turn, so that none of the choices is starved."""
    every = [_propose_for_moving_columns(each, n) for each in split_by_moving_columns(source)]
    for turn in zip_longest(*every):
        yield from (candidate for candidate in turn if candidate is not None)


def _propose_for_moving_columns(source: WitnessSource, n: int) -> Iterator[WitnessCandidate]:
    """Candidates for one choice of moving columns."""
    aliases, kept_aliases = source.aliases, find_kept_aliases(source)
    if source.violation.code is ViolationCode.COUNTED_DISEQUALITY_JOIN:
        yield from propose_disequality_probes(source, n)
    # Different sets of evenly spaced values have equal sums and means; sets of powers of two do not.
    adding = _has_function(source, "AVG", "SUM") and n <= _MAX_DOUBLING
    if adding:
        for kept_alias in kept_aliases:
            yield from propose_counterweights(source, kept_alias, n)
    for spacing in (even_spacing, doubling_spacing) if adding else (even_spacing,):
        for universe_value, probe_value in propose_value_pairs(source):
            rounds = solve_rounds(source, n + 2, universe_value, spacing)
            if rounds is None:
                continue

            def solve_altered(
                given: Mapping[Ref, Fraction] = probe_value, spacing: Spacing = spacing
            ) -> list[Assignment] | None:
                return solve_rounds(source, n + 2, given, spacing)

            for kept_alias in kept_aliases:
                others = [a for a in aliases if a != kept_alias]
                yield from _propose_from_rounds(source, kept_alias, others, n, rounds, solve_altered)
    if _has_function(source, "MEDIAN"):
        yield from _propose_median_scan(source, n)
    if _has_function(source, "PERCENTILE", "PERCENTILE_DISC", "PERCENTILE_APPROX"):
        yield from _propose_percentile_scan(source, n)


def _has_function(source: WitnessSource, *functions: str) -> bool:
    return source.aggregate is not None and source.aggregate.function in functions


def _propose_from_rounds(
    source: WitnessSource,
    kept_alias: str,
    others: list[str],
    n: int,
    rounds: list[Assignment],
    solve_altered: Callable[[], list[Assignment] | None],
) -> Iterator[WitnessCandidate]:
    """Candidates from n + 2 rounds: the inner ones are optional, the first and the last are references."""
    inner = range(1, n + 1)
    universe = tuple(CandidateRow(kept_alias, rounds[i]) for i in inner)

    def rows(assignment: Assignment, aliases: Sequence[str]) -> tuple[CandidateRow, ...]:
        return tuple(CandidateRow(a, assignment) for a in aliases)

    everything = [kept_alias, *others]
    if others:
        yield WitnessCandidate((), universe, tuple(rows(rounds[k], others) for k in inner))
    else:
        yield WitnessCandidate((), universe, tuple(rows(rounds[k], [kept_alias]) for k in inner))
    # COUNT(DISTINCT): the probe adds every other value, so the count shows whether the k-th was present.
    yield WitnessCandidate(
        (),
        universe,
        tuple(
            rows(rounds[k], others) + tuple(CandidateRow(kept_alias, rounds[j]) for j in inner if j != k)
            for k in inner
        ),
    )
    yield WitnessCandidate((), universe, tuple(rows(rounds[k], everything) for k in inner))
    # A match that is always present, below or above the optional ones.
    for reference in (0, n + 1):
        yield WitnessCandidate(
            rows(rounds[reference], everything),
            universe,
            tuple(rows(rounds[k], others or [kept_alias]) for k in inner),
        )
    altered = solve_altered()
    if altered is None:
        return
    yield WitnessCandidate(
        (), universe, tuple(rows(rounds[k], others) + rows(altered[k], [kept_alias]) for k in inner)
    )
    for reference in (0, n + 1):
        yield WitnessCandidate(
            rows(altered[reference], everything),
            universe,
            tuple(rows(rounds[k], others or [kept_alias]) for k in inner),
        )
    yield from _propose_neighbours(source, others, n, rounds, altered, universe)


def _propose_neighbours(
    source: WitnessSource,
    others: list[str],
    n: int,
    rounds: list[Assignment],
    altered: list[Assignment],
    universe: tuple[CandidateRow, ...],
) -> Iterator[WitnessCandidate]:
    """Probes of two neighbouring rounds with different values: their counts differ by the k-th row only.

    If one probe follows the other, its rows also match those of the first; repeated rows compensate for that.
    """
    if not others:
        return
    home = find_argument_alias(source)
    weights: list[tuple[list[str], list[str]]] = [(others, others)]
    if home in others and len(others) > 1:
        weights += [(others, [home]), ([home], others), (others, [*others, home])]
        if _has_function(source, "MEDIAN") and source.regions.time.time_columns:
            weights += [([*others, home], others), ([*others, home], [*others, home, home])]
            weights += [([*others, home, home], [*others, home])]
    for (a, b), beside in product(weights, (1, -1)):
        probes = []
        for k in range(1, n + 1):
            here = tuple(CandidateRow(alias, rounds[k]) for alias in a)
            probes.append(here + tuple(CandidateRow(alias, altered[k + beside]) for alias in b))
        yield WitnessCandidate((), universe, tuple(probes))


def propose_counterweights(source: WitnessSource, kept_alias: str, n: int) -> Iterator[WitnessCandidate]:
    """Candidates with a match that is always present, for one value of the aggregated column only.

    The optional rows match both values; their number decides how much they weigh against that match.
    """
    home, closure = find_argument_alias(source), source.regions.closure
    argument = source.aggregate.argument if source.aggregate else None
    if not isinstance(argument, Ref) or argument not in closure.index or home == kept_alias:
        return
    others = [a for a in source.aliases if a != kept_alias]
    moving = [ref for moved in source.violation.moving for ref in moved.columns]
    columns = dict.fromkeys((*moving, *closure.index))
    for given, contrast in propose_value_pairs(source):
        mine = [ref for ref in given if ref.occurrence == home]
        for column, contrasted in product((ref for ref in columns if ref.occurrence == kept_alias), mine):
            match = _find_tight_match(source, column, contrasted, given, contrast)
            if match is None:
                continue
            fixed = (r for r in source.select.group_by or () if r in match and r not in (*moving, argument))
            groups = {ref: match[ref] for ref in fixed}
            rounds = solve_rounds(source, n + 2, {**groups, **given})
            altered = solve_rounds(source, n + 2, {**groups, **contrast})
            if rounds is None or altered is None:
                continue
            probes = tuple(
                (*(CandidateRow(a, rounds[k]) for a in others), CandidateRow(argument.occurrence, altered[k]))
                for k in range(1, n + 1)
            )
            always = tuple(CandidateRow(a, match) for a in (kept_alias, *others))
            yield WitnessCandidate(
                always, tuple(CandidateRow(kept_alias, rounds[k]) for k in range(1, n + 1)), probes
            )


def _find_tight_match(
    source: WitnessSource,
    column: Ref,
    contrasted: Ref,
    refused: Mapping[Ref, Fraction],
    values: Mapping[Ref, Fraction],
) -> Assignment | None:
    """A match with ``values``, by a row whose ``column`` excludes the ``refused`` value of ``contrasted``."""
    closure = source.regions.closure
    above = values[contrasted] > refused[contrasted]
    bound = closure.bound(column, contrasted) if above else closure.bound(contrasted, column)
    if bound is None or bound[1]:
        return None
    end = values[contrasted] + bound[0] if above else values[contrasted] - bound[0]
    r = closure.range(column)
    end = min(end, r.high) if above and r.high is not None else end
    end = max(end, r.low) if not above and r.low is not None else end
    if closure.solve({contrasted: refused[contrasted], column: end}) is not None:
        return None
    return closure.solve({**values, column: end}, source.regions.part.apart)


def propose_disequality_probes(source: WitnessSource, n: int) -> Iterator[WitnessCandidate]:
    """Candidates for a counted ``x <> y``: a new y matches all optional rows, y = x_k all but row k.

    The other streams match all rows, except those with the same timestamp as x or y.
    """
    left, right = source.violation.columns
    gap = next(d.value for d in source.regions.part.apart if (d.left, d.right) == (left, right))
    if source.violation.kept_alias == right.occurrence != left.occurrence:
        left, right, gap = right, left, -gap
    others = [a for a in source.aliases if a != left.occurrence]
    layout = ValueLayout(source.regions, source.violation, n + 2)
    time = source.regions.time
    moving = (*time.group_of(left.occurrence), *time.group_of(right.occurrence))
    lasting = _find_shared_values(source, layout, n + 2)
    for given, contrast in propose_value_pairs(source):
        rounds = solve_rounds(source, n + 2, given)
        if rounds is None:
            continue
        far = {**given, right: rounds[n + 1][left] - gap}
        serving = {r: v for r, v in lasting.items() if r not in far and r.occurrence != right.occurrence}
        fresh = layout.assignment(0, {**serving, **far}) or layout.assignment(0, far)
        if fresh is None:
            continue
        rest = {r: v for r, v in fresh.items() if r.occurrence not in moving}
        if contrast and not layout.assignment(0, {**rest, **contrast}):
            # Other columns of the aggregated column's row depend on it.
            rest = {r: v for r, v in rest.items() if r.occurrence != find_argument_alias(source)}
        universe = [layout.assignment(i, {**rest, **given, right: fresh[right]}) for i in range(1, n + 1)]
        constant = layout.assignment(0, {**rest, **contrast, right: fresh[right]})
        for value in (given, contrast):
            excluding = [
                layout.assignment(0, {**rest, **value, right: rounds[i][left] - gap}) for i in range(1, n + 1)
            ]
            if not (all(universe) and all(excluding)):
                continue
            optional = tuple(CandidateRow(left.occurrence, a) for a in universe if a)
            counting = tuple(CandidateRow(a, fresh) for a in others)
            probes = tuple((*counting, CandidateRow(right.occurrence, x)) for x in excluding if x)
            yield WitnessCandidate((), optional, probes)
            for home, first, second in _propose_weights(source, left, right) if value is contrast else ():
                more = (CandidateRow(home, fresh),) * (first - 1)
                less = [CandidateRow(home, x) for x in excluding if x]
                weighed = tuple((*p, *more, *(x,) * second) for p, x in zip(probes, less, strict=True))
                yield WitnessCandidate((), optional, weighed)
                for contrasted in (ref for ref in contrast if ref.occurrence == home):
                    tight = _find_tight_match(source, left, contrasted, given, contrast)
                    if tight is not None:
                        yield WitnessCandidate((CandidateRow(left.occurrence, tight),), optional, weighed)
            if constant is not None:
                yield WitnessCandidate((CandidateRow(left.occurrence, constant),), optional, probes)
                always = tuple(CandidateRow(a, constant) for a in (left.occurrence, *others))
                yield WitnessCandidate(always, optional, probes)


def _propose_median_scan(source: WitnessSource, n: int) -> Iterator[WitnessCandidate]:
    """Candidates for MEDIAN: added small or large values move the median over every optional value.

    All values differ and none is the mean of two others, so each added value changes the median.  Every value
    must count once: one row of each other stream serves all values if possible, otherwise each value has its
    own.  Under HAVING, equally many values on both sides are present from the start.
    """
    kept_alias = source.violation.kept_alias
    always = min(max(find_having_constants(source.select), default=0), _MAX_COPIES)
    side = n + always
    layout = ValueLayout(source.regions, source.violation, 2 * side + n, midpoint_free_spacing)
    serving = _find_shared_values(source, layout, 2 * side + n)
    found = [layout.assignment(i, serving) for i in range(2 * side + n)]
    rounds = [a for a in found if a is not None]
    if len(rounds) < len(found):
        return
    shared = tuple(a for a in source.aliases if a != kept_alias and a in {ref.occurrence for ref in serving})
    own = [a for a in source.aliases if a != kept_alias and a not in shared]
    small, optional, large = rounds[:side], rounds[side : side + n], rounds[side + n :]
    balance = (*small[n:], *large[n:])
    probes = []
    for k in range(n):
        excess = n - 1 - 2 * k
        padding = small[:excess] if excess > 0 else large[:-excess] if excess < 0 else [small[0], large[0]]
        probes.append(
            (
                *(CandidateRow(a, rounds[0]) for a in shared),
                *(CandidateRow(a, value) for value in (*balance, *optional, *padding) for a in own),
                *(CandidateRow(kept_alias, value) for value in padding),
            )
        )
    yield WitnessCandidate(
        tuple(CandidateRow(kept_alias, value) for value in balance),
        tuple(CandidateRow(kept_alias, value) for value in optional),
        tuple(probes),
        shared,
    )


def _propose_percentile_scan(source: WitnessSource, n: int) -> Iterator[WitnessCandidate]:
    """Candidates for PERCENTILE, observed step by step: it passes every optional value.

    Each added small value moves it down by less than one value, until it is below all optional ones; each
    added large value then moves it up, until it is above them.
    """
    assert source.aggregate is not None
    fraction = source.aggregate.others[0]
    share = Fraction(str(fraction.value)) if isinstance(fraction, Literal) else Fraction(0)
    kept_alias = source.violation.kept_alias
    if not 0 < share < 1:
        return
    down = ceil(n * share / (1 - share)) + 1
    up = ceil((down + n) * (1 - share) / share) + 1
    layout = ValueLayout(source.regions, source.violation, n + 2)
    serving = _find_shared_values(source, layout, n + 2)
    found = [layout.assignment(i, serving) for i in range(n + 2)]
    rounds = [a for a in found if a is not None]
    shared = {ref.occurrence for ref in serving} - {kept_alias}
    if down + up > _MAX_COPIES or len(rounds) < len(found) or shared != {*source.aliases} - {kept_alias}:
        return
    added = [*(dict(rounds[0]) for _ in range(down)), *(dict(rounds[-1]) for _ in range(up))]
    probe = (
        *(CandidateRow(alias, rounds[0]) for alias in sorted(shared)),
        *(CandidateRow(kept_alias, each) for each in added),
    )
    universe = tuple(CandidateRow(kept_alias, each) for each in rounds[1:-1])
    yield WitnessCandidate((), universe, (probe,) * n, tuple(sorted(shared)), step_by_step=True)


def _propose_weights(source: WitnessSource, left: Ref, right: Ref) -> Iterator[tuple[str, int, int]]:
    """How often to repeat the rows of a third stream with the aggregated column, as (alias, first, second).

    Rows of the second value also count with the first probe.
    """
    home = find_argument_alias(source)
    if home in source.aliases and home not in (left.occurrence, right.occurrence):
        yield from ((home, first, second) for first, second in ((2, 1), (1, 1), (1, 2)))


def _find_shared_values(source: WitnessSource, layout: ValueLayout, rounds: int) -> Assignment:
    """Values of other streams that serve all rounds; without streams tied to moving columns on both sides."""
    closure = source.regions.closure
    first, last = layout.assignment(0), layout.assignment(rounds - 1)
    if first is None or last is None:
        return {}
    moving = [closure.index[ref] for moved in source.violation.moving for ref in moved.columns]
    found: Assignment = {}
    for alias in source.aliases:
        if alias == source.violation.kept_alias:
            continue
        values: Assignment = {}
        for ref, a in closure.index.items():
            if ref.occurrence != alias:
                continue
            under, over = is_tied(source, a, moving)
            if under and over:
                break
            ends = (first[ref], last[ref])
            values[ref] = min(ends) if under else max(ends) if over else first[ref]
        else:
            found |= values
    return found

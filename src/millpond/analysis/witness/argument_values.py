"""Proposes values of the aggregated column: one for the optional rows of a witness, one for its probes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from millpond.analysis.witness.source import WitnessSource, find_having_constants
from millpond.analysis.witness.values import Assignment, Spacing, ValueLayout, even_spacing, solve_anchors
from millpond.query.expressions import Ref


def solve_rounds(
    source: WitnessSource, rounds: int, given: Mapping[Ref, Fraction], spacing: Spacing = even_spacing
) -> list[Assignment] | None:
    """The assignments of all rounds, with some columns ``given``; None if a round has none."""
    layout = ValueLayout(source.regions, source.violation, rounds, spacing)
    out = []
    for i in range(rounds):
        assignment = layout.assignment(i, given)
        if assignment is None:
            return None
        out.append(assignment)
    return out


def propose_value_pairs(source: WitnessSource) -> Iterator[tuple[dict[Ref, Fraction], dict[Ref, Fraction]]]:
    """Values of the aggregated column (and columns that depend on it) for optional rows and for probes."""
    argument = source.aggregate.argument if source.aggregate else None
    closure = source.regions.closure
    if not isinstance(argument, Ref) or argument not in closure.index:
        yield {}, {}
        return
    fixed = {ref for moved in source.violation.moving for ref in moved.columns}
    if argument in fixed:
        yield {}, {}
        return
    r = closure.range(argument)
    if r.low is not None and r.low == r.high:
        yield {}, {}
        return
    step = closure.nodes[closure.index[argument]].type.step or Fraction(1)
    low = r.low if r.low is not None else (r.high - 9 * step if r.high is not None else Fraction(1))
    high = r.high if r.high is not None else low + 9 * step
    if r.low_strict or r.high_strict:
        low, high = (2 * low + high) / 3, (low + 2 * high) / 3
    pairs = [(high, low), (low, high)]
    for threshold in sorted(find_having_constants(source.select)):
        over, under = Fraction(threshold) + step, Fraction(threshold) - step
        pairs += [(over, under), (under, over)]
        apart = low + 2 * abs(Fraction(threshold)) + step  # MAX(x) - MIN(x) > threshold
        pairs += [(low, apart), (apart, low)]
    # If these do not fit the other conditions, try values next to one that does.
    own = (closure.solve(solve_anchors(source.regions), source.regions.part.apart) or {}).get(argument)
    if own is not None:
        others = [own + side * 9 * step for side in (-1, 1)]
        pairs += [pair for other in others for pair in ((own, other), (other, own))]
    fitting = [(u, p, _fit_both(source, argument, (u, p))) for u, p in pairs]
    one_group = [f for f in fitting if any(ref in f[2] for ref in source.select.group_by or ())]
    yield from (({**both, argument: u}, {**both, argument: p}) for u, p, both in one_group)
    yield from (({argument: u}, {argument: p}) for u, p in pairs)
    yield {}, {}
    yield from (({**both, argument: u}, {**both, argument: p}) for u, p, both in fitting if both)
    # Rows with different values may also have to differ in a join column.
    for ref, ends in _find_companions(source, argument):
        for (u, p), (here, there) in product(pairs, (ends, ends[::-1])):
            yield {argument: u, ref: here}, {argument: p, ref: there}


def _fit_both(source: WitnessSource, argument: Ref, values: tuple[Fraction, Fraction]) -> Assignment:
    """Values that fit both values of the aggregated column, for other columns that are tied to it."""
    closure = source.regions.closure
    groups = source.select.group_by or ()
    solutions = [closure.solve({argument: value}, source.regions.part.apart) for value in values]
    tracked = [ref for moved in source.violation.moving for ref in moved.columns]
    found: Assignment = {}
    for ref, i in closure.index.items():
        under, over = is_tied(source, i, [closure.index[argument]])
        ours = ref.occurrence != argument.occurrence or (ref in groups and ref != argument)
        if ours and ref not in tracked and under != over:
            ends = [solution[ref] for solution in solutions if solution is not None]
            found |= {ref: min(ends) if under else max(ends)} if ends else {}
    return found


def is_tied(source: WitnessSource, column: int, others: Sequence[int]) -> tuple[bool, bool]:
    """Whether a column is bounded above, and below, by some of the others (and not by constants alone)."""
    closure = source.regions.closure
    ties = closure.finite & ~closure.by_constants
    return bool(ties[column, others].any()), bool(ties[others, column].any())


def _find_companions(source: WitnessSource, argument: Ref) -> list[tuple[Ref, tuple[Fraction, Fraction]]]:
    """Other join columns of the aggregated column's row, each with two values: the ends of its range or, for
    relations and finite streams, two values apart."""
    closure, fixed = source.regions.closure, solve_anchors(source.regions)
    joined = np.asarray((source.regions.joins | source.regions.joins.T).any(axis=0))
    out = []
    for i, node in enumerate(closure.nodes):
        r = closure.range(node.ref)
        beside = node.ref.occurrence == argument.occurrence and node.ref != argument and joined[i]
        if beside and r.low is not None and r.high is not None and r.low < r.high:
            out.append((node.ref, (r.low, r.high)))
        elif node.ref in fixed and node.ref.occurrence == argument.occurrence and node.ref != argument:
            out.append((node.ref, (fixed[node.ref], fixed[node.ref] - 9 * (node.type.step or 1))))
    return out

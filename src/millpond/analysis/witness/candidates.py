"""Candidates for certificates, laid out from a violation.

The layouts are those of the proofs of paper 1 (Lemmas A.3 to A.7) and of the arguments for aggregates.
Whether a candidate proves anything is for brute force to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product, zip_longest

import numpy as np

from millpond.analysis.join_criteria import Violation
from millpond.analysis.regions import Ordering
from millpond.analysis.witness.layout import (
    Assignment,
    Layout,
    Pace,
    anchored,
    doubling,
    steady,
    without_midpoints,
)
from millpond.query.model import Aggregate, Literal, Ref, Select
from millpond.query.trees import walk

# Copies of a probe's rows that a HAVING threshold may ask for.
_MAX_COPIES = 240
# Rounds whose windows may double.
_MAX_DOUBLING = 40


@dataclass(frozen=True)
class Clue:
    """What a certificate is built from: a violation in one part of one select, for one aggregate."""

    select: Select
    ordering: Ordering
    violation: Violation
    aggregate: Aggregate | None = None

    @property
    def aliases(self) -> list[str]:
        """The occurrences that need rows of their own."""
        return [a for a in self.ordering.part.aliases if any(o.alias == a for o in self.select.occurrences)]


@dataclass(frozen=True)
class Placed:
    """A row before its values are known: an occurrence in an assignment, at a moment if that matters."""

    occurrence: str
    assignment: Assignment
    moment: Fraction | None = None


@dataclass(frozen=True)
class Sketch:
    """A witness in terms of assignments.

    ``shared``: the occurrences whose columns have the same values in all assignments, so that one row serves
    all matches; None where that is not known.  ``step_by_step``: probes tell by each answer on their way.
    """

    setup: tuple[Placed, ...]
    universe: tuple[Placed, ...]
    probes: tuple[tuple[Placed, ...], ...]
    shared: tuple[str, ...] | None = None
    step_by_step: bool = False


def candidates(clue: Clue, n: int) -> Iterator[Sketch]:
    """Layouts worth trying, the plainest first.

    Under HAVING, also with probes repeated as often as its constants suggest.
    """
    thresholds = sorted({c + d for c in having_constants(clue.select) for d in (-1, 0, 1)})
    for sketch in _layouts(clue, n):
        yield sketch
        for copies in thresholds:
            if 1 < copies <= _MAX_COPIES:
                yield replace(sketch, probes=tuple(probe * copies for probe in sketch.probes))


def _layouts(clue: Clue, n: int) -> Iterator[Sketch]:
    """Layouts for all tracks in turn, so that a long list for the first does not hide the others."""
    for turn in zip_longest(*(_layouts_along(moved, n) for moved in along_each_track(clue))):
        yield from (sketch for sketch in turn if sketch is not None)


def along_each_track(clue: Clue) -> list[Clue]:
    """The clue with one choice of tracks each."""
    choices = (clue.violation.tracks, *clue.violation.alternatives)
    return [replace(clue, violation=replace(clue.violation, tracks=t, alternatives=())) for t in choices]


def keepers_of(clue: Clue) -> list[str]:
    """The occurrences whose rows may be the optional ones."""
    holders = [clue.violation.keeper, *(ref.occurrence for ref in clue.violation.columns)]
    return list(dict.fromkeys(alias for alias in holders if alias in clue.aliases))


def _layouts_along(clue: Clue, n: int) -> Iterator[Sketch]:
    """Layouts for the tracks of the violation."""
    aliases, keepers = clue.aliases, keepers_of(clue)
    if clue.violation.code == "counted-disequality-join":
        yield from disequality(clue, n)
    # Sums and means of evenly spaced values coincide; those of powers of two do not.
    adding = clue.aggregate is not None and clue.aggregate.function in ("AVG", "SUM") and n <= _MAX_DOUBLING
    if adding:
        for keeper in keepers:
            yield from counterweights(clue, keeper, n)
    for pace in (steady, doubling) if adding else (steady,):
        for universe_value, probe_value in value_pairs(clue):
            rounds = rounds_of(clue, n + 2, universe_value, pace)
            if rounds is None:
                continue

            def altered(
                given: Mapping[Ref, Fraction] = probe_value, pace: Pace = pace
            ) -> list[Assignment] | None:
                return rounds_of(clue, n + 2, given, pace)

            for keeper in keepers:
                others = [a for a in aliases if a != keeper]
                yield from _patterns(clue, keeper, others, n, rounds, altered)
    if clue.aggregate is not None and clue.aggregate.function == "MEDIAN":
        yield from _median_scan(clue, n)


def having_constants(select: Select) -> set[int]:
    """The thresholds that HAVING compares with; below them an answer may tell nothing."""
    literals = (n.value for n in walk(select.having) if isinstance(n, Literal))
    return {abs(value) for value in literals if isinstance(value, int)}


def rounds_of(
    clue: Clue, rounds: int, given: Mapping[Ref, Fraction], pace: Pace = steady
) -> list[Assignment] | None:
    layout = Layout(clue.ordering, clue.violation, rounds, pace)
    out = []
    for i in range(rounds):
        assignment = layout.assignment(i, given)
        if assignment is None:
            return None
        out.append(assignment)
    return out


def value_pairs(clue: Clue) -> Iterator[tuple[dict[Ref, Fraction], dict[Ref, Fraction]]]:
    """Values for the aggregated column in the universe and, as a contrast, in probes."""
    argument = clue.aggregate.argument if clue.aggregate else None
    closure = clue.ordering.closure
    if not isinstance(argument, Ref) or argument not in closure.index:
        yield {}, {}
        return
    fixed = {ref for track in clue.violation.tracks for ref in track.columns}
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
    for threshold in sorted(having_constants(clue.select)):
        over, under = Fraction(threshold) + step, Fraction(threshold) - step
        pairs += [(over, under), (under, over)]
    # Where those do not fit what else is known, some next to a value that does.
    own = (closure.solve(anchored(clue.ordering), clue.ordering.part.apart) or {}).get(argument)
    if own is not None:
        others = [own + side * 9 * step for side in (-1, 1)]
        pairs += [pair for other in others for pair in ((own, other), (other, own))]
    fitting = [(u, p, _fitting_both(clue, argument, (u, p))) for u, p in pairs]
    one_group = [f for f in fitting if any(ref in f[2] for ref in clue.select.group_by or ())]
    yield from (({**both, argument: u}, {**both, argument: p}) for u, p, both in one_group)
    yield from (({argument: u}, {argument: p}) for u, p in pairs)
    yield {}, {}
    yield from (({**both, argument: u}, {**both, argument: p}) for u, p, both in fitting if both)
    # Where rows with different values must also differ in what they join with.
    for ref, ends in _companions(clue, argument):
        for (u, p), (here, there) in product(pairs, (ends, ends[::-1])):
            yield {argument: u, ref: here}, {argument: p, ref: there}


def _fitting_both(clue: Clue, argument: Ref, values: tuple[Fraction, Fraction]) -> Assignment:
    """Group columns and those of other streams that fit both values of the aggregated one, as far as tied."""
    closure = clue.ordering.closure
    groups = clue.select.group_by or ()
    solutions = [closure.solve({argument: value}, clue.ordering.part.apart) for value in values]
    tracked = [ref for track in clue.violation.tracks for ref in track.columns]
    found: Assignment = {}
    for ref, i in closure.index.items():
        under, over = _tied(clue, i, [closure.index[argument]])
        ours = ref.occurrence != argument.occurrence or (ref in groups and ref != argument)
        if ours and ref not in tracked and under != over:
            ends = [solution[ref] for solution in solutions if solution is not None]
            found |= {ref: min(ends) if under else max(ends)} if ends else {}
    return found


def _tied(clue: Clue, column: int, others: Sequence[int]) -> tuple[bool, bool]:
    """Whether a column stays below some of the others, and above some, and not by constants alone."""
    closure = clue.ordering.closure
    ties = closure.finite & ~closure.by_constants
    return bool(ties[column, others].any()), bool(ties[others, column].any())


def _companions(clue: Clue, argument: Ref) -> list[tuple[Ref, tuple[Fraction, Fraction]]]:
    """Join columns beside the aggregated one, with the ends of their ranges; in a relation, or a stream that
    ends, with two values."""
    closure, fixed = clue.ordering.closure, anchored(clue.ordering)
    joined = np.asarray((clue.ordering.joins | clue.ordering.joins.T).any(axis=0))
    out = []
    for i, node in enumerate(closure.nodes):
        r = closure.range(node.ref)
        beside = node.ref.occurrence == argument.occurrence and node.ref != argument and joined[i]
        if beside and r.low is not None and r.high is not None and r.low < r.high:
            out.append((node.ref, (r.low, r.high)))
        elif node.ref in fixed and node.ref.occurrence == argument.occurrence and node.ref != argument:
            out.append((node.ref, (fixed[node.ref], fixed[node.ref] - 9 * (node.type.step or 1))))
    return out


def _patterns(
    clue: Clue,
    keeper: str,
    others: list[str],
    n: int,
    rounds: list[Assignment],
    alter: Callable[[], list[Assignment] | None],
) -> Iterator[Sketch]:
    """Ways to use n + 2 rounds: the first and the last are references, those between are optional."""
    inner = range(1, n + 1)
    universe = tuple(Placed(keeper, rounds[i]) for i in inner)

    def rows(assignment: Assignment, aliases: Sequence[str]) -> tuple[Placed, ...]:
        return tuple(Placed(a, assignment) for a in aliases)

    everything = [keeper, *others]
    if others:
        yield Sketch((), universe, tuple(rows(rounds[k], others) for k in inner))
    else:
        yield Sketch((), universe, tuple(rows(rounds[k], [keeper]) for k in inner))
    # COUNT(DISTINCT): every other value is made present, so that the count tells of the k-th.
    yield Sketch(
        (),
        universe,
        tuple(
            rows(rounds[k], others) + tuple(Placed(keeper, rounds[j]) for j in inner if j != k) for k in inner
        ),
    )
    yield Sketch((), universe, tuple(rows(rounds[k], everything) for k in inner))
    # A match that is always there, below or above the optional ones.
    for reference in (0, n + 1):
        yield Sketch(
            rows(rounds[reference], everything),
            universe,
            tuple(rows(rounds[k], others or [keeper]) for k in inner),
        )
    altered = alter()
    if altered is None:
        return
    yield Sketch((), universe, tuple(rows(rounds[k], others) + rows(altered[k], [keeper]) for k in inner))
    for reference in (0, n + 1):
        yield Sketch(
            rows(altered[reference], everything),
            universe,
            tuple(rows(rounds[k], others or [keeper]) for k in inner),
        )
    yield from _neighbours(clue, others, n, rounds, altered, universe)


def _neighbours(
    clue: Clue,
    others: list[str],
    n: int,
    rounds: list[Assignment],
    altered: list[Assignment],
    universe: tuple[Placed, ...],
) -> Iterator[Sketch]:
    """Two neighbouring probes with different values: their counts differ by the k-th row alone.

    Where one comes after the other, it also counts with what the first brought; repeated values make up
    for that.
    """
    if not others:
        return
    home = home_of(clue)
    weights: list[tuple[list[str], list[str]]] = [(others, others)]
    if home in others and len(others) > 1:
        weights += [(others, [home]), ([home], others), (others, [*others, home])]
        if (
            clue.aggregate is not None
            and clue.aggregate.function == "MEDIAN"
            and clue.ordering.time.time_columns
        ):
            weights += [([*others, home], others), ([*others, home], [*others, home, home])]
            weights += [([*others, home, home], [*others, home])]
    for (a, b), beside in product(weights, (1, -1)):
        probes = []
        for k in range(1, n + 1):
            here = tuple(Placed(alias, rounds[k]) for alias in a)
            probes.append(here + tuple(Placed(alias, altered[k + beside]) for alias in b))
        yield Sketch((), universe, tuple(probes))


def counterweights(clue: Clue, keeper: str, n: int) -> Iterator[Sketch]:
    """A match that is always there, of a row that goes with one value of the aggregated column only.

    The optional rows go with both values alike; how much they weigh against that match is their number.
    """
    home, closure = home_of(clue), clue.ordering.closure
    argument = clue.aggregate.argument if clue.aggregate else None
    if not isinstance(argument, Ref) or argument not in closure.index or home == keeper:
        return
    others = [a for a in clue.aliases if a != keeper]
    tracked = [ref for track in clue.violation.tracks for ref in track.columns]
    columns = dict.fromkeys((*tracked, *closure.index))
    for given, contrast in value_pairs(clue):
        mine = [ref for ref in given if ref.occurrence == home]
        for column, told in product((ref for ref in columns if ref.occurrence == keeper), mine):
            match = _tight_match(clue, column, told, given, contrast)
            if match is None:
                continue
            fixed = (r for r in clue.select.group_by or () if r in match and r not in (*tracked, argument))
            groups = {ref: match[ref] for ref in fixed}
            rounds = rounds_of(clue, n + 2, {**groups, **given})
            altered = rounds_of(clue, n + 2, {**groups, **contrast})
            if rounds is None or altered is None:
                continue
            probes = tuple(
                (*(Placed(a, rounds[k]) for a in others), Placed(argument.occurrence, altered[k]))
                for k in range(1, n + 1)
            )
            always = tuple(Placed(a, match) for a in (keeper, *others))
            yield Sketch(always, tuple(Placed(keeper, rounds[k]) for k in range(1, n + 1)), probes)


def _tight_match(
    clue: Clue,
    column: Ref,
    told: Ref,
    refused: Mapping[Ref, Fraction],
    values: Mapping[Ref, Fraction],
) -> Assignment | None:
    """A match with some values, by a row that does not go with the refused one of a column ``told``."""
    closure = clue.ordering.closure
    above = values[told] > refused[told]
    bound = closure.bound(column, told) if above else closure.bound(told, column)
    if bound is None or bound[1]:
        return None
    end = values[told] + bound[0] if above else values[told] - bound[0]
    r = closure.range(column)
    end = min(end, r.high) if above and r.high is not None else end
    end = max(end, r.low) if not above and r.low is not None else end
    if closure.solve({told: refused[told], column: end}) is not None:
        return None
    return closure.solve({**values, column: end}, clue.ordering.part.apart)


def home_of(clue: Clue) -> str | None:
    """The occurrence of the aggregated column."""
    argument = clue.aggregate.argument if clue.aggregate else None
    return argument.occurrence if isinstance(argument, Ref) else None


def disequality(clue: Clue, n: int) -> Iterator[Sketch]:
    """x <> y counted: a probe with a fresh y counts all rows, one with y = x_k all but the k-th.

    The other streams match all of them, but for those that come at the same moment as x or y.
    """
    left, right = clue.violation.columns
    gap = next(d.value for d in clue.ordering.part.apart if (d.left, d.right) == (left, right))
    if clue.violation.keeper == right.occurrence != left.occurrence:
        left, right, gap = right, left, -gap
    others = [a for a in clue.aliases if a != left.occurrence]
    layout = Layout(clue.ordering, clue.violation, n + 2)
    time = clue.ordering.time
    moving = (*time.group_of(left.occurrence), *time.group_of(right.occurrence))
    lasting = _serving_all(clue, layout, n + 2)
    for given, contrast in value_pairs(clue):
        rounds = rounds_of(clue, n + 2, given)
        if rounds is None:
            continue
        far = {**given, right: rounds[n + 1][left] - gap}
        serving = {r: v for r, v in lasting.items() if r not in far and r.occurrence != right.occurrence}
        fresh = layout.assignment(0, {**serving, **far}) or layout.assignment(0, far)
        if fresh is None:
            continue
        rest = {r: v for r, v in fresh.items() if r.occurrence not in moving}
        if contrast and not layout.assignment(0, {**rest, **contrast}):  # columns beside the aggregated one
            rest = {r: v for r, v in rest.items() if r.occurrence != home_of(clue)}
        universe = [layout.assignment(i, {**rest, **given, right: fresh[right]}) for i in range(1, n + 1)]
        constant = layout.assignment(0, {**rest, **contrast, right: fresh[right]})
        for value in (given, contrast):
            excluding = [
                layout.assignment(0, {**rest, **value, right: rounds[i][left] - gap}) for i in range(1, n + 1)
            ]
            if not (all(universe) and all(excluding)):
                continue
            optional = tuple(Placed(left.occurrence, a) for a in universe if a)
            counting = tuple(Placed(a, fresh) for a in others)
            probes = tuple((*counting, Placed(right.occurrence, x)) for x in excluding if x)
            yield Sketch((), optional, probes)
            for home, first, second in _weights_apart(clue, left, right) if value is contrast else ():
                more, less = (Placed(home, fresh),) * (first - 1), [Placed(home, x) for x in excluding if x]
                weighed = tuple((*p, *more, *(x,) * second) for p, x in zip(probes, less, strict=True))
                yield Sketch((), optional, weighed)
                for told in (ref for ref in contrast if ref.occurrence == home):
                    tight = _tight_match(clue, left, told, given, contrast)
                    if tight is not None:
                        yield Sketch((Placed(left.occurrence, tight),), optional, weighed)
            if constant is not None:
                yield Sketch((Placed(left.occurrence, constant),), optional, probes)
                always = tuple(Placed(a, constant) for a in (left.occurrence, *others))
                yield Sketch(always, optional, probes)


def _median_scan(clue: Clue, n: int) -> Iterator[Sketch]:
    """Small or large values move the middle over every optional one.

    All values are different and none is the mean of two others, so each one more changes the median.  Every
    value must count once: one row of each other stream serves all, where that can be, else each value has
    its own.  Under HAVING, as many values on both sides are there from the beginning.
    """
    keeper = clue.violation.keeper
    always = min(max(having_constants(clue.select), default=0), _MAX_COPIES)
    side = n + always
    layout = Layout(clue.ordering, clue.violation, 2 * side + n, without_midpoints)
    serving = _serving_all(clue, layout, 2 * side + n)
    found = [layout.assignment(i, serving) for i in range(2 * side + n)]
    rounds = [a for a in found if a is not None]
    if len(rounds) < len(found):
        return
    shared = tuple(a for a in clue.aliases if a != keeper and a in {ref.occurrence for ref in serving})
    own = [a for a in clue.aliases if a != keeper and a not in shared]
    small, optional, large = rounds[:side], rounds[side : side + n], rounds[side + n :]
    balance = (*small[n:], *large[n:])
    probes = []
    for k in range(n):
        excess = n - 1 - 2 * k
        padding = small[:excess] if excess > 0 else large[:-excess] if excess < 0 else [small[0], large[0]]
        probes.append(
            (
                *(Placed(a, rounds[0]) for a in shared),
                *(Placed(a, value) for value in (*balance, *optional, *padding) for a in own),
                *(Placed(keeper, value) for value in padding),
            )
        )
    yield Sketch(
        tuple(Placed(keeper, value) for value in balance),
        tuple(Placed(keeper, value) for value in optional),
        tuple(probes),
        shared,
    )


def _weights_apart(clue: Clue, left: Ref, right: Ref) -> Iterator[tuple[str, int, int]]:
    """How often to repeat the values of an aggregated column of a third stream that is still to come.

    Those of the second probe also count with the first.
    """
    home = home_of(clue)
    if home in clue.aliases and home not in (left.occurrence, right.occurrence):
        yield from ((home, first, second) for first, second in ((2, 1), (1, 1), (1, 2)))


def _serving_all(clue: Clue, layout: Layout, rounds: int) -> Assignment:
    """Columns of other streams with one value for all rounds, as far as they are not tied to the tracks."""
    closure = clue.ordering.closure
    first, last = layout.assignment(0), layout.assignment(rounds - 1)
    if first is None or last is None:
        return {}
    moving = [closure.index[ref] for track in clue.violation.tracks for ref in track.columns]
    found: Assignment = {}
    for alias in clue.aliases:
        if alias == clue.violation.keeper:
            continue
        values: Assignment = {}
        for ref, a in closure.index.items():
            if ref.occurrence != alias:
                continue
            under, over = _tied(clue, a, moving)
            if under and over:
                break
            ends = (first[ref], last[ref])
            values[ref] = min(ends) if under else max(ends) if over else first[ref]
        else:
            found |= values
    return found

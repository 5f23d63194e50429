"""Candidates for certificates of a MEDIAN of few values: it moves in steps, and *when* it moves tells.

After no single probe can such a median always tell of one row more.  But matches with another value, one
after the other, outweigh those of the optional rows sooner or later, depending on how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product, zip_longest

from millpond.analysis.witness.candidates import (
    Clue,
    Placed,
    Sketch,
    along_each_track,
    counterweights,
    disequality,
    home_of,
    keepers_of,
    rounds_of,
    value_pairs,
)
from millpond.analysis.witness.layout import Assignment
from millpond.query.model import Ref

# How many rows of the aggregated column's stream have the value that outweighs, or that is to be outweighed.
_HEAVY = (1, 2, 4, 7)
_LIGHT = (6, 2)


def ramps(clue: Clue, n: int) -> Iterator[Sketch]:
    """Layouts worth trying; none unless the aggregate is the MEDIAN of a bounded column."""
    argument = clue.aggregate.argument if clue.aggregate else None
    closure = clue.ordering.closure
    if clue.aggregate is None or clue.aggregate.function != "MEDIAN":
        return
    if not isinstance(argument, Ref) or argument not in closure.index or not closure.is_bounded(argument):
        return
    kinds = [kind for moved in along_each_track(clue) for kind in (_outweighed(moved, n), _weighed(moved, n))]
    for turn in zip_longest(*kinds):
        yield from (sketch for sketch in turn if sketch is not None)


def _outweighed(clue: Clue, n: int) -> Iterator[Sketch]:
    """The optional rows bring one value, and matches of their own another."""
    for given, contrast in value_pairs(clue):
        against = rounds_of(clue, n + 2, contrast) if given != contrast else None
        if against is None:
            continue
        for sketch in _counting(clue, n, given):
            keeper, home = sketch.universe[0].occurrence, home_of(clue)
            others = [a for a in clue.aliases if a != keeper]
            repeats = [*([a] for a in others), [keeper], *([others] if len(others) > 1 else [])]
            fresh = [others, []] if len(others) > 1 else [others]  # or those of the probe serve these too
            ends = (against[0], against[n + 1])
            for new, copies, reference, repeated in product(fresh, _HEAVY, ends, repeats):
                first = [Placed(a, dict(reference)) for a in [home] * (copies - 1) if a is not None]
                start = [*first, *(Placed(a, reference) for a in (keeper, *new))]
                yield _followed(sketch, start, [Placed(a, reference) for a in repeated], _stages(n))


def _counting(clue: Clue, n: int, given: Assignment) -> Iterator[Sketch]:
    """Probes that match more with every optional row that is there."""
    rounds = rounds_of(clue, n + 2, given)
    if clue.violation.code == "counted-disequality-join":
        found = (sketch for sketch in disequality(clue, n) if not sketch.setup)
        yield from (s for s in found if given.items() <= s.universe[0].assignment.items())
    elif rounds is not None:
        for keeper in keepers_of(clue):
            others = [a for a in clue.aliases if a != keeper]
            universe = tuple(Placed(keeper, rounds[k]) for k in range(1, n + 1))
            probes = tuple(tuple(Placed(a, rounds[k]) for a in others) for k in range(1, n + 1))
            yield Sketch((), universe, probes)


def _weighed(clue: Clue, n: int) -> Iterator[Sketch]:
    """The optional rows go with both values, a row that is always there with one of them only."""
    home = home_of(clue)
    if clue.violation.code == "counted-disequality-join":
        sketches = [sketch for sketch in disequality(clue, n) if len(sketch.setup) == 1]
    else:
        sketches = [sketch for keeper in keepers_of(clue) for sketch in counterweights(clue, keeper, n)]
    for copies, sketch in product(_LIGHT, sketches):
        keeper, always = sketch.universe[0].occurrence, sketch.setup[0].assignment
        given = next((p for p in sketch.probes[0] if p.occurrence == home), None)
        if given is None:
            continue
        others = [a for a in clue.aliases if a not in (keeper, home)]
        start = _again([given], copies)
        both = [keeper, *others]
        for repeated in (*([a] for a in others), [keeper], both):
            yield _followed(sketch, start, [Placed(a, always) for a in repeated], _stages(n))
        # These match the optional rows too, and must not drown what the probe itself tells.
        strong = [(*p, *_again([row for row in p if row.occurrence != home], 2 * n)) for p in sketch.probes]
        stage = [Placed(a, always) for a in both]
        yield _followed(replace(sketch, probes=tuple(strong)), start, stage, _stages(n))
        yield _followed(sketch, start, [Placed(given.occurrence, always), given], _stages(n))


def _stages(n: int) -> int:
    """How often to repeat: each optional row may have up to three matches to outweigh."""
    return 3 * n + 2


def _followed(sketch: Sketch, start: Sequence[Placed], stage: Sequence[Placed], stages: int) -> Sketch:
    """The layout with some rows after each probe, and then others again and again."""
    rows = [*start, *_again(stage, stages)]
    return replace(sketch, probes=tuple((*probe, *rows) for probe in sketch.probes), step_by_step=True)


def _again(rows: Sequence[Placed], times: int) -> list[Placed]:
    """The rows again and again, each at a moment of its own."""
    every = [placed for _ in range(times) for placed in rows]
    return [replace(placed, assignment=dict(placed.assignment)) for placed in every]

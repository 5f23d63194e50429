"""A second checker for EXISTS, NOT EXISTS and LEFT JOIN that is the definition, apart from the product's.

Every question is asked of ``window_definition`` about queries with inner joins only: NOT EXISTS is bounded if
the outer query alone is, and so is ``SELECT DISTINCT 1`` of the tested stream and its partners.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import inf

from tests.support import window_definition
from tests.support.definition import BOUNDED, UNBOUNDED, UNKNOWN
from tests.support.generate import Atom, Column
from tests.support.partner_generate import STREAMS, TIMES, PartnerCase
from tests.support.time_generate import time_case_from
from tests.support.window_generate import WindowAtom, WindowCase, window_case_from

Bounds = dict[tuple[Column | None, Column | None], float]


def decide(case: PartnerCase) -> str:
    """Whether the query is computable in bounded memory; unknown if no answer of NOT EXISTS is ever final."""
    if close(case.outer_atoms) is None:
        return BOUNDED
    if case.kind == "EXISTS":
        return _decide_exists(case)
    alone = _ask(
        case.outer, case.outer_atoms, case.outer_windows, _outer_columns(case), case.distinct, _counts(case)
    )
    looked_at = (
        case.kind == "NOT EXISTS" or not case.distinct or len(_outer_columns(case)) < len(case.projection)
    )
    if not looked_at:
        return alone
    if _never_matches(case):
        return alone
    if not _is_final(case):
        return UNKNOWN
    facts = _implied_atoms(case)
    matched = _ask((case.tested, *case.inner), [*case.inner_atoms, *facts], case.inner_windows, (), True)
    answers = [alone, matched]
    if case.kind == "LEFT JOIN":
        answers.append(_ask_flat(case, case.projection, case.distinct, _counts(case)))
    if UNBOUNDED in answers:
        return UNBOUNDED
    return BOUNDED if set(answers) == {BOUNDED} else UNKNOWN


def _counts(case: PartnerCase) -> bool:
    return not case.projection and not case.distinct


def _outer_columns(case: PartnerCase) -> tuple[Column, ...]:
    return tuple(c for c in case.projection if c[0] in case.outer)


def _ask(
    names: Sequence[str],
    atoms: Sequence[Atom],
    windows: Sequence[WindowAtom],
    projection: Sequence[Column],
    distinct: bool,
    counts: bool = False,
) -> str:
    """The verdict by definition on a query with inner joins only."""
    return window_definition.decide(_build(names, atoms, windows, projection, distinct, counts))


def _build(
    names: Sequence[str],
    atoms: Sequence[Atom],
    windows: Sequence[WindowAtom],
    projection: Sequence[Column],
    distinct: bool,
    counts: bool,
) -> WindowCase:
    streams = {name: STREAMS[name] for name in names}
    plain = time_case_from(
        streams,
        atoms,
        [],
        projection,
        times={name: TIMES[name] for name in names},
        distinct=distinct,
        aggregate=("COUNT", False, None) if counts else None,
    )
    return window_case_from(plain, windows)


def _ask_flat(case: PartnerCase, projection: Sequence[Column], distinct: bool, counts: bool = False) -> str:
    atoms, windows = [*case.outer_atoms, *case.inner_atoms], [*case.outer_windows, *case.inner_windows]
    return _ask((*case.outer, *case.inner), atoms, windows, projection, distinct, counts)


def _never_matches(case: PartnerCase) -> bool:
    inner = _build((case.tested, *case.inner), case.inner_atoms, case.inner_windows, (), True, False)
    atoms = [*case.inner_atoms, *_implied_atoms(case)]
    return close(atoms) is None or window_definition.time_distances(inner) is None


def _is_final(case: PartnerCase) -> bool:
    """Every inner stream comes at most a fixed time after the tested one."""
    inner = _build((case.tested, *case.inner), case.inner_atoms, case.inner_windows, (), True, False)
    distances = window_definition.time_distances(inner)
    assert distances is not None
    return all(distances[name, case.tested] < inf for name in case.inner)


# --- EXISTS ------------------------------------------------------------------------------------------


def _decide_exists(case: PartnerCase) -> str:
    if case.distinct:
        return _ask_flat(case, case.projection, True)
    matched = _ask_flat(case, (), True)
    if matched != BOUNDED:
        return matched
    atoms = [*case.outer_atoms, *case.inner_atoms]
    bounds = close(atoms)
    flat = _build(
        (*case.outer, *case.inner), atoms, [*case.outer_windows, *case.inner_windows], (), True, False
    )
    distances = window_definition.time_distances(flat)
    if bounds is None or distances is None:
        return BOUNDED
    last = window_definition.last_class(flat, distances)
    if any(not _is_bounded(bounds, c) and c[0] not in last for c in case.projection):
        return UNBOUNDED

    def comes_before(e: str, f: str) -> bool:
        return distances[e, f] < inf

    for x, y in _growing_joins(bounds):
        e, f = x[0], y[0]
        if comes_before(e, f) and comes_before(f, e):
            continue
        outside = [name for name in (e, f) if name in case.outer]
        inside = [name for name in (e, f) if name in case.inner]
        if len(outside) == 2 or any(not comes_before(n, o) for n in inside for o in outside):
            return UNBOUNDED
        for o in case.outer:
            both = comes_before(e, o) and comes_before(f, o)
            related = any(comes_before(n, o) or comes_before(o, n) for n in inside)
            if o not in outside and not both and related:
                return UNBOUNDED
    return BOUNDED


# --- difference bounds -------------------------------------------------------------------------------


def close(atoms: Sequence[Atom]) -> Bounds | None:
    """The closure of the differences between columns (None is zero); None if they contradict each other."""
    nodes: list[Column | None] = [None]
    nodes += list(dict.fromkeys(c for a in atoms for c in (a[0], a[2]) if not isinstance(c, int)))
    d: Bounds = {(a, b): 0.0 if a == b else inf for a, b in product(nodes, nodes)}
    for left, operator, right in atoms:
        other, c = (None, right) if isinstance(right, int) else (right, 0)
        if operator in ("<", "<=", "="):
            d[left, other] = min(d[left, other], c - (operator == "<"))
        if operator in (">", ">=", "="):
            d[other, left] = min(d[other, left], -c - (operator == ">"))
    for k, i, j in product(nodes, nodes, nodes):
        d[i, j] = min(d[i, j], d[i, k] + d[k, j])
    return None if any(d[n, n] < 0 for n in nodes) else d


def _is_bounded(bounds: Bounds, column: Column) -> bool:
    return (column, None) in bounds and bounds[column, None] < inf and bounds[None, column] < inf


def _growing_joins(bounds: Bounds) -> list[tuple[Column, Column]]:
    """Columns of different streams whose difference is bounded, and that can go to the same infinity."""
    found = []
    for x, y in bounds:
        if x is None or y is None or x[0] == y[0] or bounds[x, y] == inf:
            continue
        up = bounds[x, None] == inf and bounds[y, None] == inf
        down = bounds[None, x] == inf and bounds[None, y] == inf
        if up or down:
            found.append((x, y))
    return found


def _implied_atoms(case: PartnerCase) -> list[Atom]:
    """What the outer query implies for the columns of the tested stream."""
    bounds = close(case.outer_atoms)
    assert bounds is not None
    own = [n for n, other in bounds if other is None and n is not None and n[0] == case.tested]
    atoms: list[Atom] = []
    for x in own:
        if bounds[x, None] < inf:
            atoms.append((x, "<=", int(bounds[x, None])))
        if bounds[None, x] < inf:
            atoms.append((x, ">=", -int(bounds[None, x])))
        atoms += [(x, "<" if bounds[x, y] < 0 else "<=", y) for y in own if y != x and bounds[x, y] <= 0]
    return atoms

"""Finding a certificate: candidates given values, and confirmed by brute force before they are believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import chain, islice
from typing import Any

import numpy as np

from millpond.analysis.self_joins import has_self_join
from millpond.analysis.witness.candidates import Clue, Placed, Sketch, candidates
from millpond.analysis.witness.median_ramps import ramps
from millpond.analysis.witness.model import EXHAUSTIVE, StreamRow, Witness, confirms
from millpond.analysis.witness.schedule import in_time
from millpond.errors import WitnessSizeError
from millpond.query.evaluate import Row, compile_condition
from millpond.query.model import Column, Query, Ref, Table
from millpond.query.number_line import Points
from millpond.query.time_order import is_timed
from millpond.query.trees import is_aggregate
from millpond.query.types import Domain, Family

_FIRST_INSTANT = datetime(2000, 1, 1)
# Candidates of each kind looked at for one violation; those that prove anything are mostly among the first.
MAX_CANDIDATES = 400
_MAX_RAMPS = 250

# On which side of all other values a column (of a table) that is left open lies; 0 is at 0.
Fill = Callable[[tuple[str, str]], int]


def witness_of(query: Query, clue: Clue, n: int) -> Witness:
    """A confirmed witness with ``n`` optional rows; raises WitnessSizeError where there is none."""
    if n < 1:
        raise WitnessSizeError("a witness needs at least one row", remedy="ask for n = 1 or more")
    found = find_witness(query, clue, n)
    if found is None:
        raise WitnessSizeError(f"no witness of {n} rows was found", remedy="ask for another number of rows")
    return found


def find_witness(query: Query, clue: Clue, n: int) -> Witness | None:
    """The first candidate that brute force confirms, or None.

    Raises WitnessSizeError if candidates failed only because their values do not fit the columns' types.
    """
    aggregates = any(is_aggregate(s) for s in query.selects)
    fills = _fills(clue)
    misfit: WitnessSizeError | None = None
    tried = chain(
        islice(_filled(clue, candidates(clue, n), fills), MAX_CANDIDATES),
        islice(_filled(clue, ramps(clue, n), fills), _MAX_RAMPS),
    )
    for sketch, fill in tried:
        compare = "answer" if aggregates and not sketch.step_by_step else "emitted"
        try:
            witness = _realise(clue, sketch, compare, fill)
        except WitnessSizeError as too_large:
            if n > EXHAUSTIVE:  # other layouts are hardly smaller
                raise
            misfit = misfit or too_large
            continue
        if witness is not None and confirms(query, witness):
            return witness
    if misfit is not None:
        raise misfit
    return None


def _filled(clue: Clue, sketches: Iterable[Sketch], fills: Sequence[Fill]) -> Iterator[tuple[Sketch, Fill]]:
    """The layouts in time, each with every way to fill in open columns."""
    if is_timed(clue.ordering.part) or clue.ordering.time.time_columns:
        sketches = (timed for sketch in sketches for timed in in_time(clue, sketch))
    return ((sketch, fill) for sketch in sketches for fill in fills)


def _fills(clue: Clue) -> list[Fill]:
    """Where to put the columns that an occurrence leaves open: at 0, above (1) or below (-1) all others.

    With self-joins they may meet another occurrence; the first choice keeps them from matching there.
    """
    if not has_self_join(clue.ordering.part):
        return [lambda _: 0]
    tables = {o.alias: o.table.name for o in clue.ordering.part.select.occurrences}
    away: dict[tuple[str, str], int] = {}
    for low, high in np.argwhere(clue.ordering.joins):
        for node, side in ((low, 1), (high, -1)):
            ref = clue.ordering.closure.nodes[node].ref
            away.setdefault((tables[ref.occurrence], ref.column), side)
    return [lambda column: away.get(column, 1), lambda _: 0, lambda _: 1, lambda _: -1]


# --- from assignments to rows ----------------------------------------------------------------------


def _realise(clue: Clue, sketch: Sketch, compare: str, fill: Fill) -> Witness | None:
    """Give every row its values; None where a value or a CHECK does not allow it."""
    placed = [*sketch.setup, *sketch.universe, *(p for probe in sketch.probes for p in probe)]
    try:
        texts = _strings(clue, placed)
    except ValueError:
        return None
    clock = iter(range(len(placed) + 1))
    reach = max((abs(v) for p in placed for v in p.assignment.values()), default=Fraction(0)) // 1 + 1
    tables = {o.alias: o.table for o in clue.select.occurrences}
    made: dict[int, StreamRow] = {}

    def row(p: Placed) -> StreamRow:
        if id(p) not in made or (tables[p.occurrence].time and p.moment is None):
            instant = next(clock)
            made[id(p)] = _row(
                clue, tables[p.occurrence], p, texts, instant, _Filler(fill, Fraction(reach + instant))
            )
        return made[id(p)]

    setup = tuple(row(p) for p in sketch.setup)
    universe = tuple(row(p) for p in sketch.universe)
    probes = tuple(tuple(row(p) for p in probe) for probe in sketch.probes)
    witness = Witness(setup, universe, probes, compare)
    every = [*setup, *universe, *(r for probe in probes for r in probe)]
    by_name = {t.name: t for t in tables.values()}
    return witness if all(_obeys_checks(by_name[r.stream], r.row) for r in every) else None


def _strings(clue: Clue, placed: Sequence[Placed]) -> dict[Fraction, str]:
    nodes = clue.ordering.closure.nodes
    texts = [n.ref for n in nodes if n.type.family is Family.STRING]
    return clue.ordering.part.points.strings_at({p.assignment[ref] for p in placed for ref in texts})


@dataclass(frozen=True)
class _Filler:
    """Values for the columns that a row's assignment leaves open."""

    fill: Fill
    distance: Fraction

    def point(self, table: Table, column: Column) -> Fraction:
        if column.type.domain is Domain.BOUNDED:
            return Fraction(0)
        return self.fill((table.name, column.name)) * self.distance


def _row(
    clue: Clue,
    table: Table,
    placed: Placed,
    texts: Mapping[Fraction, str],
    instant: int,
    filler: _Filler,
) -> StreamRow:
    values: dict[str, Any] = {}
    points: Points = clue.ordering.part.points
    for column in table.columns:
        ref = Ref(placed.occurrence, column.name)
        type_ = column.type
        if column.name == table.time:
            values[column.name] = _moment(placed, instant)
        elif ref in clue.ordering.part.nulls:
            values[column.name] = None
        elif type_.family is Family.STRING:
            point = placed.assignment.get(ref)
            values[column.name] = texts[point] if point is not None else str(filler.point(table, column))
        else:
            point = placed.assignment.get(ref, filler.point(table, column))
            if (type_.low is not None and point < type_.low) or (
                type_.high is not None and point > type_.high
            ):
                raise WitnessSizeError(
                    f"{type_} column {table.name}.{column.name} has too few values for so large a witness",
                    remedy="ask for a smaller n",
                )
            values[column.name] = points.value(point, type_)
    return StreamRow(table.name, values)


def _moment(placed: Placed, instant: int) -> datetime:
    if placed.moment is None:
        return _FIRST_INSTANT + timedelta(seconds=instant)
    return datetime(1970, 1, 1) + timedelta(microseconds=int(placed.moment))


def _obeys_checks(table: Table, row: Row) -> bool:
    slots = {table.name: 0}
    return all(compile_condition(check, slots)((row,)) is not False for check in table.checks)

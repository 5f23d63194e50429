"""Finds a witness: gives candidates their values and confirms them by brute force."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import islice, zip_longest
from typing import Any, TypeVar

import numpy as np

from millpond.analysis.self_joins import has_self_join
from millpond.analysis.witness.candidates import propose_candidates
from millpond.analysis.witness.median_candidates import propose_median_candidates
from millpond.analysis.witness.model import EXHAUSTIVE, StreamRow, Witness, is_confirmed
from millpond.analysis.witness.moments import has_time_functions
from millpond.analysis.witness.realise import Realiser
from millpond.analysis.witness.session_candidates import propose_session_candidates
from millpond.analysis.witness.source import CandidateRow, WitnessCandidate, WitnessSource
from millpond.analysis.witness.times import assign_times
from millpond.errors import WitnessSizeError
from millpond.query.evaluate import Row, StepLimit, compile_condition
from millpond.query.expressions import Ref
from millpond.query.model import Column, Query, Table
from millpond.query.number_line import Points
from millpond.query.time_order import is_timed
from millpond.query.trees import is_aggregate, refs
from millpond.query.types import Domain, Family

_FIRST_TIMESTAMP = datetime(2000, 1, 1)
# The most candidates of each kind that are tried; witnesses are mostly among the first.
MAX_CANDIDATES = 400
_MAX_RAMPS = 250

_T = TypeVar("_T")
# The side of all other values on which an unassigned (table, column) is placed: 1 above, -1 below, 0 at 0.
Fill = Callable[[tuple[str, str]], int]


@dataclass
class SearchBudget:
    """How many rows the candidates of a search may still have in all; then it gives up.

    Each candidate counts as ``overhead`` rows more: a call of DuckDB takes as long as some hundred rows.
    ``limit`` is on the steps of all confirmations; more take longer than a few seconds.
    """

    rows: int
    overhead: int = 0
    limit: StepLimit = field(default_factory=lambda: StepLimit(2_600_000))

    def can_try(self, candidate: WitnessCandidate) -> bool:
        """Take the rows of a candidate from the budget; False if it is spent."""
        self.rows -= len(candidate.setup) + len(candidate.universe) + sum(map(len, candidate.probes))
        self.rows -= self.overhead
        return self.rows >= 0


def build_witness(query: Query, source: WitnessSource, n: int, budget: SearchBudget | None = None) -> Witness:
    """A confirmed witness with ``n`` optional rows; raises WitnessSizeError if none is found."""
    if n < 1:
        raise WitnessSizeError("a witness needs at least one row", remedy="ask for n = 1 or more")
    found = find_witness(query, source, n, budget)
    if found is None:
        raise WitnessSizeError(f"no witness of {n} rows was found", remedy="ask for another number of rows")
    return found


def find_witness(
    query: Query, source: WitnessSource, n: int, budget: SearchBudget | None = None
) -> Witness | None:
    """The first candidate that brute force confirms, or None, also if the budget is spent before.

    Raises WitnessSizeError if candidates failed only because their values do not fit the columns' types.
    """
    aggregates = any(is_aggregate(s) for s in query.selects)
    fills = _propose_fills(source)
    realiser = Realiser()
    misfit: WitnessSizeError | None = None
    proposed = _with_propose_fills(source, propose_candidates(source, n), fills)
    ramps = _with_propose_fills(source, propose_median_candidates(source, n), fills)
    tried: Iterable[tuple[WitnessCandidate, Fill]] = _alternate(
        islice(proposed, MAX_CANDIDATES), islice(ramps, _MAX_RAMPS)
    )
    if source.select.session is not None:
        tried = ((candidate, fill) for candidate in propose_session_candidates(source, n) for fill in fills)
    scale = realiser.find_scale({o.table.name: o.table for o in source.select.occurrences}.values())
    scales = [1, scale] if scale > 1 else [1]
    for candidate, fill, scale in ((*each, scale) for each in tried for scale in scales):
        if budget is not None and not budget.can_try(candidate):
            break
        compare = "answer" if aggregates and not candidate.step_by_step else "emitted"
        try:
            witness = _build_witness(source, candidate, compare, fill, realiser, scale)
        except WitnessSizeError as too_large:
            if n > EXHAUSTIVE:  # other layouts are hardly smaller
                raise
            misfit = misfit or too_large
            continue
        limit = None if budget is None else budget.limit
        if witness is not None and is_confirmed(query, witness, limit=limit):
            return witness
    if misfit is not None:
        raise misfit
    return None


def _alternate(one: Iterable[_T], other: Iterable[_T]) -> Iterator[_T]:
    """The elements of both, in turn."""
    nothing = object()
    pairs = zip_longest(one, other, fillvalue=nothing)
    return (each for pair in pairs for each in pair if each is not nothing)  # type: ignore[misc]


def _with_propose_fills(
    source: WitnessSource, candidates: Iterable[WitnessCandidate], fills: Sequence[Fill]
) -> Iterator[tuple[WitnessCandidate, Fill]]:
    """The candidates with timestamps, each with every way to fill in unassigned columns."""
    timed = is_timed(source.regions.part) or source.regions.time.time_columns
    if timed or has_time_functions(source.select):
        candidates = (each for candidate in candidates for each in assign_times(source, candidate))
    return ((candidate, fill) for candidate in candidates for fill in fills)


def _propose_fills(source: WitnessSource) -> list[Fill]:
    """Ways to fill in unassigned columns.

    In a self-join a row is a row of every occurrence; the first way keeps it from matching as another one.
    """
    if not has_self_join(source.regions.part):
        return [lambda _: 0]
    tables = {o.alias: o.table.name for o in source.regions.part.select.occurrences}
    away: dict[tuple[str, str], int] = {}
    for low, high in np.argwhere(source.regions.joins):
        for node, side in ((low, 1), (high, -1)):
            ref = source.regions.closure.nodes[node].ref
            away.setdefault((tables[ref.occurrence], ref.column), side)
    return [lambda column: away.get(column, 1), lambda _: 0, lambda _: 1, lambda _: -1]


# --- from assignments to rows ----------------------------------------------------------------------


def _build_witness(
    source: WitnessSource,
    candidate: WitnessCandidate,
    compare: str,
    fill: Fill,
    realiser: Realiser,
    scale: int,
) -> Witness | None:
    """The witness with the values of every row; None if a value or a CHECK does not allow it.

    All numbers are multiplied by ``scale``.
    """
    rows = [*candidate.setup, *candidate.universe, *(p for probe in candidate.probes for p in probe)]
    if not _keeps_promises(source, candidate):
        return None
    fitted = {id(p): _fit_checks(source, p) for p in rows}
    every_row = list(fitted.values())
    try:
        texts = _strings(source, every_row)
    except ValueError:
        return None
    seconds = iter(range(len(rows) + 1))
    reach = max((abs(v) for p in every_row for v in p.assignment.values()), default=Fraction(0)) // 1 + 1
    tables = {o.alias: o.table for o in source.select.occurrences}
    made: dict[int, StreamRow] = {}

    def build(p: CandidateRow) -> StreamRow:
        if id(p) not in made or (tables[p.occurrence].time and p.timestamp is None):
            second = next(seconds)
            table = tables[p.occurrence]
            fit = fitted[id(p)]
            row = _build_row(source, table, fit, texts, second, _Filler(fill, Fraction(reach + second)))
            made[id(p)] = _realise_row(
                source, table, fit, texts, _multiply(table, row, scale), realiser, scale
            )
        return made[id(p)]

    setup = tuple(build(p) for p in candidate.setup)
    universe = tuple(build(p) for p in candidate.universe)
    probes = tuple(tuple(build(p) for p in probe) for probe in candidate.probes)
    witness = Witness(setup, universe, probes, compare)
    every = [*setup, *universe, *(r for probe in probes for r in probe)]
    for table in {t.name: t for t in tables.values()}.values():
        rows_of_table = [r.row for r in every if r.stream == table.name]
        if not _satisfy_checks(table, rows_of_table):
            return None
    return witness


def _keeps_promises(source: WitnessSource, candidate: WitnessCandidate) -> bool:
    """Whether a larger candidate of this form would have no more values in columns that have only so many.

    If it is known which values these are, a column that is compared with them has finitely many classes, too.
    A declared cardinality does not tell that.
    """
    kept = [*candidate.setup, *candidate.universe]
    closure, violation = source.regions.closure, source.violation
    growing = {ref for moved in violation.moving for ref in moved.columns} | {*violation.columns}
    compared = growing | {ref for pair in violation.joins for ref in pair}
    for ref in closure.limited:
        is_declared = ref.column in source.select.occurrence(ref.occurrence).table.cardinalities
        equal = any(c in closure.index and closure.has_fixed_difference(c, ref) for c in compared)
        if equal and not is_declared:
            return False
        if len({p.assignment[ref] for p in kept if p.occurrence == ref.occurrence}) > 1:
            return False
    return True


def _fit_checks(source: WitnessSource, row: CandidateRow) -> CandidateRow:
    """The row, with a value that a CHECK lists in place of one between two of them."""
    fitted = dict(row.assignment)
    for ref, ranges in source.regions.part.allowed:
        point = fitted.get(ref)
        if point is not None and not any(point in each for each in ranges) and ranges[0].low is not None:
            fitted[ref] = ranges[0].low
    return replace(row, assignment=fitted)


def _strings(source: WitnessSource, every_row: Sequence[CandidateRow]) -> dict[Fraction, str]:
    nodes = source.regions.closure.nodes
    texts = [n.ref for n in nodes if n.type.family is Family.STRING]
    return source.regions.part.points.strings_at({p.assignment[ref] for p in every_row for ref in texts})


@dataclass(frozen=True)
class _Filler:
    """Values for the columns that a row's assignment does not contain."""

    fill: Fill
    distance: Fraction

    def point(self, table: Table, column: Column) -> Fraction:
        if column.type.domain is Domain.BOUNDED:
            return Fraction(0)
        return self.fill((table.name, column.name)) * self.distance


def _build_row(
    source: WitnessSource,
    table: Table,
    row: CandidateRow,
    texts: Mapping[Fraction, str],
    second: int,
    filler: _Filler,
) -> StreamRow:
    values: dict[str, Any] = {}
    points: Points = source.regions.part.points
    for column in table.columns:
        ref = Ref(row.occurrence, column.name)
        type_ = column.type
        if column.name == table.time:
            values[column.name] = _timestamp(row, second)
        elif ref in source.regions.part.nulls or type_.family is Family.NESTED:
            values[column.name] = None
        elif type_.family is Family.STRING:
            point = row.assignment.get(ref)
            values[column.name] = texts[point] if point is not None else str(filler.point(table, column))
        else:
            point = row.assignment.get(ref, filler.point(table, column))
            if (type_.low is not None and point < type_.low) or (
                type_.high is not None and point > type_.high
            ):
                raise WitnessSizeError(
                    f"{type_} column {table.name}.{column.name} has too few values for this witness",
                    remedy="ask for a smaller n",
                )
            values[column.name] = points.value(point, type_)
    return StreamRow(table.name, values)


def _multiply(table: Table, built: StreamRow, scale: int) -> StreamRow:
    numbers = {column.name for column in table.columns if column.type.family is Family.NUMBER}
    row = {n: v * scale if n in numbers and v is not None else v for n, v in built.row.items()}
    return built if scale == 1 else StreamRow(built.stream, row)


def _realise_row(
    source: WitnessSource,
    table: Table,
    row: CandidateRow,
    texts: Mapping[Fraction, str],
    built: StreamRow,
    realiser: Realiser,
    scale: int,
) -> StreamRow:
    """The row, with values in unassigned columns that give derived columns their assigned values."""
    points: Points = source.regions.part.points
    wanted: dict[str, Any] = {}
    for column in table.derived:
        point = row.assignment.get(Ref(row.occurrence, column.name))
        if point is not None and column.derivation is not None and column.derivation.arguments:
            is_text = column.type.family is Family.STRING
            wanted[column.name] = texts[point] if is_text else points.value(point, column.type)
            if column.type.family is Family.NUMBER:
                wanted[column.name] *= scale
    if not wanted:
        return built
    fixed = {c.name for c in table.columns if Ref(row.occurrence, c.name) in row.assignment}
    fixed |= {table.time} if table.time else set()
    return StreamRow(built.stream, realiser.realise(table, built.row, wanted, fixed))


def _timestamp(row: CandidateRow, second: int) -> datetime:
    if row.timestamp is None:
        return _FIRST_TIMESTAMP + timedelta(seconds=second)
    return datetime(1970, 1, 1) + timedelta(microseconds=int(row.timestamp))


def _satisfy_checks(table: Table, rows: Sequence[Row]) -> bool:
    """Whether no row breaks a CHECK."""
    slots = {table.name: 0}
    computed = {column.name for column in table.derived}
    if rows and any(ref.column in computed for check in table.checks for ref in refs(check)):
        from millpond.runtime.derive import derive_each  # here, as it imports DuckDB
        from millpond.runtime.row_queries import UncomputableError

        try:
            rows = [made[0] for made in derive_each(table, rows)]
        except UncomputableError:
            return False
    conditions = [compile_condition(check, slots) for check in table.checks]
    return all(condition((row,)) is not False for condition in conditions for row in rows)

"""Dividing a large synopsis into chunks by its join key, so that a micro-batch loads only what it changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from millpond.plan.synopses import ExactSelectPlan, SynopsisPlan
from millpond.query.expressions import Ref
from millpond.query.model import Term
from millpond.query.trees import is_aggregate


@dataclass(frozen=True)
class ChunkPolicy:
    """Synopses of more than ``min_entries`` entries are divided, ``values_per_chunk`` key values together.

    Both numbers are part of the state's layout.
    """

    min_entries: int = 1 << 16
    values_per_chunk: int = 4096


@dataclass(frozen=True)
class Chunking:
    """How a slot is divided: by the values of a column, ``size`` of them to a chunk, from ``low`` on."""

    column: Ref
    size: int
    low: int


def choose_chunking(
    policy: ChunkPolicy, term: Term, selects: Sequence[ExactSelectPlan]
) -> list[dict[str, Chunking]]:
    """For each need of a term, how the slot of each occurrence is divided; empty if the term has no chunks.

    Every row or group of the answer must come from a single chunk.  All needs are therefore divided by the
    same column of the answer, unless the answer is a bag of rows.
    """
    select = selects[0]
    if len(selects) > 1 or not select.needs:
        return []
    if any(sum(s.entries for s in need.streams) <= policy.min_entries for need in select.needs):
        return []
    columns: list[Ref] | None = None
    if is_aggregate(select.select):
        columns = list(select.select.group_by or ())
    elif term.distinct:
        columns = [i.expression for i in select.select.items if isinstance(i.expression, Ref)]
    if columns is None:
        each = [
            max(_find_options(need, _first_columns(need)), key=_width, default=None) for need in select.needs
        ]
        candidates = [[option for option in each if option is not None]]
    else:
        candidates = [[o for need in select.needs for o in _find_options(need, [c])] for c in columns]
    complete = [options for options in candidates if len(options) == len(select.needs)]
    best = max(complete, key=lambda options: min(map(_width, options)), default=None)
    if best is None or min(map(_width, best)) < 2 * policy.values_per_chunk:
        return []
    start = min(option.low for option in best) if columns is not None else None
    return [option.build_chunkings(policy.values_per_chunk, start) for option in best]


@dataclass(frozen=True)
class _ChunkOption:
    """A column of every occurrence of a need, each at a fixed distance from a common value in low … high."""

    low: int
    high: int
    columns: tuple[tuple[str, Ref, int], ...]

    def build_chunkings(self, size: int, start: int | None) -> dict[str, Chunking]:
        """The chunking of each occurrence, counted from ``start`` or from the lowest value."""
        low = self.low if start is None else start
        return {alias: Chunking(column, size, low + distance) for alias, column, distance in self.columns}


def _width(option: _ChunkOption) -> int:
    return option.high - option.low


def _first_columns(plan: SynopsisPlan) -> list[Ref]:
    """The columns of the first occurrence."""
    first = plan.streams[0].alias if plan.streams else None
    return [n.ref for n in plan.need.part.closure.nodes if n.ref.occurrence == first]


def _find_options(plan: SynopsisPlan, columns: Iterable[Ref]) -> Iterator[_ChunkOption]:
    """The ways to divide by one of the columns, where every occurrence has a column at a fixed distance."""
    part, closure = plan.need.part, plan.need.part.closure
    integers = {
        n.ref
        for n in closure.nodes
        if n.type.step == 1 and n.ref in part.non_null and n.ref not in dict(part.derived)
    }
    for column in columns:
        ref = part.rewrite(column)
        if not isinstance(ref, Ref) or ref not in integers:
            continue
        r = closure.range(ref)
        same = {other.occurrence: other for other in integers if closure.has_fixed_difference(other, ref)}
        aliases = [s.alias for s in plan.streams]
        if r.low is None or r.high is None or not aliases or not set(aliases) <= same.keys():
            continue
        distances = {a: closure.bound(same[a], ref) for a in aliases}
        yield _ChunkOption(
            int(r.low),
            int(r.high),
            tuple((a, same[a], int(d[0])) for a, d in distances.items() if d is not None),
        )

"""Orders repairs: the least intrusive first, and different kinds before more of the same kind."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.analysis.over import OverCode
from millpond.analysis.repair.changes import Change
from millpond.analysis.repair.model import RepairKind
from millpond.analysis.verdict import Verdict
from millpond.analysis.violations import ViolationCode

_K = RepairKind
# What an engineer would do first: for joins, for groups and partitions, for sets of results, for holistic
# aggregates.
_JOINS = (_K.WINDOW, _K.CARDINALITY, _K.CHECK, _K.RELATION, _K.DISTINCT, _K.EXISTS, _K.WATERMARK)
_GROUPS = (_K.CARDINALITY, _K.WINDOW, _K.CHECK, _K.WATERMARK, _K.RELATION)
_SETS = (_K.WINDOW, _K.CARDINALITY, _K.CHECK, _K.WATERMARK, _K.RELATION)
_HOLISTIC = (_K.APPROXIMATE, _K.WINDOW, _K.CARDINALITY, _K.CHECK, _K.WATERMARK)
_ALWAYS_LATER = (_K.APPROXIMATE, _K.DISTINCT, _K.EXISTS, _K.BOUND, _K.RELATION, _K.DROP_COLUMN, _K.BUDGET)
_MORE_PARTS = 2.5  # how many places one more change costs


def order_kinds(verdict: Verdict) -> tuple[RepairKind, ...]:
    """The kinds of repairs of a query, best first."""
    codes = {str(reason.cause.code if reason.cause else reason.code) for reason in verdict.reasons}
    if str(ViolationCode.HOLISTIC_AGGREGATE) in codes:
        first: tuple[RepairKind, ...] = _HOLISTIC
    elif any(code.endswith("-join") or code.startswith("conflicting") for code in codes):
        first = _JOINS
    elif codes & {ViolationCode.UNBOUNDED_GROUP, OverCode.UNBOUNDED_PARTITION}:
        first = _GROUPS
    else:
        first = _SETS
    return tuple(dict.fromkeys((*first, *_ALWAYS_LATER)))


def rank_sets(verdict: Verdict, sets: Sequence[tuple[Change, ...]]) -> list[tuple[Change, ...]]:
    """The sets of changes, best first; of each kind one, then the others."""
    order = {kind: number for number, kind in enumerate(order_kinds(verdict))}

    def cost(changes: tuple[Change, ...]) -> tuple[float, int, int]:
        parts = [part for change in changes for part in (*change.additions, *change.edits, *change.removals)]
        kind = max(order[change.kind] for change in changes)
        return kind + _MORE_PARTS * (len(changes) - 1), sum(c.weight for c in changes), len(parts)

    ordered = sorted(sets, key=cost)
    seen: set[frozenset[RepairKind]] = set()
    first: list[tuple[Change, ...]] = []
    others: list[tuple[Change, ...]] = []
    for changes in ordered:
        kinds = frozenset(change.kind for change in changes)
        (others if kinds in seen else first).append(changes)
        seen.add(kinds)
    return [*first, *others]

"""How much a query in time keeps, set by set, and in words."""

from __future__ import annotations

from fractions import Fraction
from math import prod

from millpond.plan.classes import NoPlanError, build_exact_classes
from millpond.plan.needs import THRESHOLD, Need, TimedPlan, find_separate_needs
from millpond.plan.partial_matches import PartialMatchSet, Requirement, TimedNeed
from millpond.plan.state import Kept, KeptColumn, State
from millpond.plan.synopses import count_alternatives
from millpond.plan.synopsis_bound import kept_column
from millpond.query.model import Ref, Select
from millpond.query.parts import Part, type_of
from millpond.query.trees import is_aggregate, item_refs, refs

# What an entry takes: a word a value, two for a count or a sum.
_WORD = 8
_COUNT = 16


def compute_timed_state(plan: TimedPlan) -> State:
    """The worst case, where it is known: that of relations, of streams that end, and of fronts with several
    open demands is not.  Raises NoPlanError where nothing is known to keep."""
    kept: list[Kept] = []
    for needs in plan.selects:
        for _, wanted in needs.parts:
            for need in wanted:
                if need.outer_columns and find_separate_needs(need, wanted):
                    raise NoPlanError("streams are joined through columns that are grouped by")
                timed = TimedNeed(need, shown_refs(needs.select, need))
                timed.require_exact_distances()
                past = (timed.order.relations,)
                kept += [_kept(timed, p.match_set) for p in timed.sets[:-1] if p.match_set.groups != past]
                kept += _result(needs.select, needs.distinct, need)
    if any(k.entries is None for k in kept):
        return State(None, None, tuple(kept))
    return State(sum(k.entries or 0 for k in kept), sum(k.bytes or 0 for k in kept), tuple(kept))


def shown_refs(select: Select, need: Need) -> set[Ref]:
    """The columns that the results of a need are made of."""
    if not is_aggregate(select):
        shown = set(item_refs(select.items))
    else:
        aggregate = need.aggregate
        valued = aggregate is not None and aggregate.argument is not None and THRESHOLD not in need.scope
        counted = need.counted and (aggregate is None or aggregate.function != "MEDIAN")
        shown = set(select.group_by or ())
        if valued and not counted and aggregate is not None and aggregate.argument is not None:
            shown = shown | refs(aggregate.argument)
    return {r for ref in shown for r in refs(need.part.rewrite(ref)) if r.occurrence in need.scope}


def _result(select: Select, distinct: bool, need: Need) -> list[Kept]:
    """Groups (with the values of an argument that are counted), and rows that were written."""
    aggregate, part = is_aggregate(select), need.part
    if not aggregate and not distinct:
        return []
    wanted = shown_refs(select, need)
    if need.aggregate is not None and need.aggregate.function in ("MIN", "MAX"):
        wanted = {r for ref in select.group_by or () for r in refs(part.rewrite(ref))}
    what = "current answer" if aggregate else "rows already emitted"
    try:
        codes = [build_exact_classes(part, ref) for ref in sorted(wanted, key=str)]
    except NoPlanError:
        return [Kept(None, None, (), (what,), None, None)]
    entries = prod(code.classes for code in codes)
    columns = tuple(kept_column(part, code) for code in codes)
    return [Kept(None, None, columns, (what,), entries, entries * _WORD * max(len(codes), 1))]


def _kept(timed: TimedNeed, waiting: PartialMatchSet) -> Kept:
    part = timed.part
    columns: list[KeptColumn] = []
    sizes: list[int | None] = []
    for ref in waiting.result_columns:
        try:
            code = build_exact_classes(part, ref)
            columns.append(kept_column(part, code))
            sizes.append(code.classes)
        except NoPlanError:
            sizes.append(None)
    if timed.need.counted:
        sizes += [_refused(timed, ref) for ref in waiting.differing]
    compared: list[int | None] = []
    for demand in waiting.requirements:
        if len(demand.terms) == 1 and demand.terms[0][0] in waiting.result_columns:
            continue  # the result has told it already
        if demand.exact:
            columns += _told(part, demand.terms[0][0])
        size = _values(part, demand)
        (sizes if demand.exact or timed.need.counted else compared).append(size)
    entries = _entries(sizes, compared, len(waiting.differing), timed.need.counted)
    width = _WORD * (len(waiting.result_columns) + len(waiting.requirements) + len(waiting.differing))
    if timed.need.counted:
        width += _COUNT * (1 + sum(1 + m.summed for m in timed.need.measures))
    names = [_stream_name(timed, a) for group in waiting.groups for a in group]
    size_ = None if entries is None else entries * max(width, _WORD)
    counted = "count" if len(names) == 1 else "matches"
    keeps = (counted,) if timed.need.counted else _front_text(waiting)
    return Kept(" and ".join(names), None, tuple(columns), keeps, entries, size_)


def _told(part: Part, ref: Ref) -> list[KeptColumn]:
    """A column whose every value is kept, if there is a number of them."""
    try:
        return [kept_column(part, build_exact_classes(part, ref))]
    except NoPlanError:
        return []


def _stream_name(timed: TimedNeed, alias: str) -> str:
    """The stream's name; its alias where the stream occurs more than once."""
    tables = {o.alias: o.table.name for o in timed.part.select.occurrences}
    return tables[alias] if list(tables.values()).count(tables[alias]) == 1 else alias


def _front_text(waiting: PartialMatchSet) -> tuple[str, ...]:
    compared = [d for d in waiting.requirements if not d.exact]
    if not compared:
        return ("presence",)
    texts = []
    for demand in compared:
        names = [ref.column for ref, _ in demand.terms]
        inner = names[0] if len(names) == 1 else f"{'max' if demand.low else 'min'}({', '.join(names)})"
        texts.append(f"{'smallest' if demand.low else 'largest'} {inner}")
    if len(texts) == 1:
        return (f"match with the {texts[0]}",)
    return (f"Pareto front of matches by {' and '.join(texts)}",)


def _entries(
    sizes: list[int | None], compared: list[int | None], differing: int, counted: bool
) -> int | None:
    """The product of the classes; of a front's demands one is decided by the others."""
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None
    if counted:
        return prod(known)
    finite = sorted(size for size in compared if size is not None)
    if len(compared) - len(finite) > 1:
        return None
    rest = finite[:-1] if len(finite) == len(compared) else finite
    return prod(known) * prod(rest) * count_alternatives(differing)


def _refused(timed: TimedNeed, ref: Ref) -> int | None:
    """The values that coming ones must differ from, and all others."""
    own, r = timed.closure.range(ref), timed.excludable_range(ref)
    lows = [x for x in (own.low, r.low) if x is not None]
    highs = [x for x in (own.high, r.high) if x is not None]
    if not lows or not highs:
        return None
    step = type_of(timed.part, ref).step
    width = min(highs) - max(lows)
    if not step and width > 0:
        return None
    return (int(width / step) if step else 0) + 2 if width >= 0 else 1


def _values(part: Part, demand: Requirement) -> int | None:
    """How many values a demand can have."""
    lows: list[Fraction | None] = []
    highs: list[Fraction | None] = []
    sign = -1 if demand.low else 1
    step = type_of(part, demand.terms[0][0]).step
    for ref, slack in demand.terms:
        r = part.closure.range(ref)
        lows.append(None if r.low is None else r.low + sign * slack)
        highs.append(None if r.high is None else r.high + sign * slack)
    low, high = _ends(demand, lows, highs)
    if low is None or high is None:
        return None
    if not step:
        return 1 if low == high else None
    return max(int((high - low) / step) + 1, 1)


def _ends(
    demand: Requirement, lows: list[Fraction | None], highs: list[Fraction | None]
) -> tuple[Fraction | None, Fraction | None]:
    """The range of the largest (smallest) term, no smaller (larger) than what makes no difference."""
    if demand.low:
        known = [x for x in [*lows, demand.least] if x is not None]
        return (max(known) if known else None), _or_none(
            max, [*highs, demand.least] if demand.least is not None else highs
        )
    known = [x for x in [*highs, demand.least] if x is not None]
    return _or_none(min, [*lows, demand.least] if demand.least is not None else lows), (
        min(known) if known else None
    )


def _or_none(pick, ends: list[Fraction | None]) -> Fraction | None:  # type: ignore[no-untyped-def]
    known = [x for x in ends if x is not None]
    return pick(known) if len(known) == len(ends) else None

"""Computes the bound of a timed plan: the worst-case size of its partial matches, with a description."""

from __future__ import annotations

from math import prod

from millpond.plan.classes import NoPlanError, build_exact_classes
from millpond.plan.closing import Closing, list_closings
from millpond.plan.needs import Need, PartnerWait, TimedPlan, find_separate_needs
from millpond.plan.partial_matches import PartialMatchSet, Requirement, TimedNeed, find_tested_retention
from millpond.plan.partner_waits import build_partner_need, describe_wait
from millpond.plan.state import COUNT_BYTES, VALUE_BYTES, Kept, KeptColumn, State, Window
from millpond.plan.synopses import count_alternatives
from millpond.plan.synopsis_bound import describe_column
from millpond.query.aggregate_functions import Memory, find_memory, keeps_values
from millpond.query.durations import format_duration, parse_rate
from millpond.query.expressions import Ref
from millpond.query.model import Select, Table
from millpond.query.parts import Part, is_threshold, type_of
from millpond.query.time_order import TimeOrder
from millpond.query.trees import is_aggregate, item_refs, refs


def compute_timed_state(plan: TimedPlan) -> State:
    """The bound of a timed plan: the sum over all sets of partial matches and remembered results.

    It is None if it depends on the data: on the rows of relations or finite streams, on the rates of streams,
    or on the size of a Pareto front with several unbounded requirements.  Raises NoPlanError if it is not
    known what to keep.
    """
    kept: list[Kept] = []
    windows: dict[str, int] = {}
    for needs, closing in zip(plan.selects, list_closings(plan), strict=True):
        for _, wanted in needs.parts:
            for need in wanted:
                if need.outer_columns and find_separate_needs(need, wanted):
                    raise NoPlanError("streams are joined through group columns")
                shown = find_result_columns(needs.select, need)
                timed = TimedNeed(need, shown if need.wait is None else shown | need.wait.refs)
                kept += _describe_need(timed, windows, needs.find_hold(need.part))
                if need.wait is not None:
                    kept.append(describe_wait(need.wait, need.part, shown))
                    kept += _describe_partners(need.wait, windows, needs.lag)
                if is_aggregate(needs.select) or needs.distinct:
                    kept.append(_describe_results(needs.select, need, closing))
        for partners in needs.partners:
            for need in partners.needs:
                kept += _describe_need(TimedNeed(need, need.projected), windows)
                tested = needs.lag + find_tested_retention(needs, partners)
                if partners.time is not None and tested:  # otherwise a row is decided at once
                    table = need.part.select.occurrence(partners.alias).table
                    kept.append(_describe_rows(table, partners.alias, tested, "rows with a partner"))
    seconds = [Window(stream=name, seconds=_round_up(kept) / 1_000_000) for name, kept in windows.items()]
    if any(k.entries is None for k in kept):
        return State(None, None, tuple(kept), seconds)
    entries, size = sum(k.entries or 0 for k in kept), sum(k.bytes or 0 for k in kept)
    return State(entries, size, tuple(kept), seconds)


def _describe_need(timed: TimedNeed, windows: dict[str, int], hold: int = 0) -> list[Kept]:
    """The rows and partial matches that are kept for a need; the time for rows is added to ``windows``.

    Rows are held back for ``hold`` microseconds.
    """
    timed.require_exact_distances()
    kept: list[Kept] = []
    for alias, retention in _find_windows(timed, hold).items():
        name = timed.part.select.occurrence(alias).table.name
        windows[name] = max(retention, windows.get(name, 0))
        kept.append(_describe_recent_rows(timed, alias, retention))
    past = (timed.order.relations,)
    kept += [
        _describe_matches(timed, p.match_set, bool(timed.lookback))
        for p in timed.sets[:-1]
        if p.match_set.groups != past
    ]
    return kept


def _describe_partners(wait: PartnerWait, windows: dict[str, int], hold: int) -> list[Kept]:
    """What is kept of the partners that matches wait for, and for how long timestamps matter."""
    timed = build_partner_need(wait)
    kept = _describe_need(timed, windows)
    if not wait.lags:
        return [*kept, _describe_matches(timed, timed.sets[-1].match_set, has_windows=False)]
    select = wait.need.part.select
    (partner, lag), *_ = sorted(wait.lags, key=lambda each: -each[1])
    times = [(partner.occurrence, lag + hold, "partners"), (wait.alias, wait.slack - 1, "waiting rows")]
    for alias, duration, what in times:
        if duration > 0:
            kept.append(_describe_rows(select.occurrence(alias).table, alias, duration, what))
    return kept


def _find_windows(timed: TimedNeed, hold: int) -> dict[str, int]:
    """For how many microseconds rows are kept because later rows can match them, by occurrence."""
    found = {alias: (timed.retention(alias) or 0) + hold for alias in timed.aliases}
    return {
        alias: retention
        for alias, retention in found.items()
        if retention and alias not in timed.order.relations
    }


def _describe_recent_rows(timed: TimedNeed, alias: str, retention: int) -> Kept:
    """The rows kept for a window."""
    return _describe_rows(timed.part.select.occurrence(alias).table, alias, retention, "rows")


def _describe_rows(table: Table, alias: str, retention: int, what: str) -> Kept:
    """Rows of a stretch of time; their number follows from the declared rate of the stream."""
    keeps = (f"{what} of the last {format_duration(_round_up(retention))}",)
    rate = parse_rate(table.properties.get("rate", ""))
    entries = None if rate is None else rate * (-(-retention // 1_000_000) + 1)
    size = None if entries is None else entries * VALUE_BYTES * max(len(table.columns), 1)
    return Kept(table.name, alias, (), keeps, entries, size, closes=True)


def find_result_columns(select: Select, need: Need) -> set[Ref]:
    """The columns that the results of a need contain."""
    if not is_aggregate(select):
        found = set(item_refs(select.items))
    else:
        aggregate = need.aggregate
        valued = aggregate is not None and aggregate.argument is not None
        valued = valued and not any(map(is_threshold, need.scope))
        counted = need.counted and (aggregate is None or not keeps_values(aggregate))
        found = set(select.group_by or ())
        if valued and not counted and aggregate is not None and need.values is None:
            found = found | refs(aggregate)
    return {r for ref in found for r in refs(need.part.rewrite(ref)) if r.occurrence in need.scope}


def _describe_results(select: Select, need: Need, closing: Closing | None) -> Kept:
    """The remembered results: groups (with counted values of the argument), or rows already written.

    Raises NoPlanError if they are unbounded and do not close.
    """
    part = need.part
    wanted = find_result_columns(select, need)
    if need.aggregate is not None and find_memory(need.aggregate) is Memory.EXTREME:
        wanted = {r for ref in select.group_by or () for r in refs(part.rewrite(ref))}
    if closing is not None:
        return _describe_open_results(select, need, closing, wanted)
    what = "current answer" if is_aggregate(select) else "rows already emitted"
    for ref in wanted - part.nulls:
        if ref in part.closure.index and not part.closure.is_bounded(ref):
            raise NoPlanError("equal rows of the result do not close at the same time")
    try:
        classes = [build_exact_classes(part, ref) for ref in sorted(wanted, key=str)]
    except NoPlanError:
        return Kept(None, None, (), (what,), None, None)
    entries = prod(each.classes for each in classes) * (need.values or 1)
    columns = tuple(describe_column(part, each) for each in classes)
    return Kept(None, None, columns, (what,), entries, entries * VALUE_BYTES * max(len(classes), 1))


def _describe_open_results(select: Select, need: Need, closing: Closing, wanted: set[Ref]) -> Kept:
    """The results that have not closed; their number may follow from the rates of the streams."""
    part = need.part
    (home,) = {ref.occurrence for ref in refs(part.rewrite(closing.column))}
    bucket = {r for ref in closing.bucket.columns for r in refs(part.rewrite(ref))}
    columns: list[KeptColumn] = []
    counts: list[int | None] = []
    for alias in sorted({home, *(ref.occurrence for ref in wanted)}):
        own = sorted((ref for ref in wanted - bucket if ref.occurrence == alias), key=str)
        described = [each for ref in own for each in _describe_bounded_column(part, ref)]
        values = prod(each.classes for each in described) if len(described) == len(own) else None
        if alias == home:
            values = _count_buckets(closing, values)
        columns += described
        counts.append(_smaller(values, _count_rows(need, closing, home, alias)))
    known = [count for count in counts if count is not None]
    entries = prod(known) * (need.values or 1) if len(known) == len(counts) and closing.end is None else None
    what = "groups" if is_aggregate(select) else "rows already written"
    kept = closing.duration - (closing.bucket.width == 1)
    when = f"of the last {format_duration(_round_up(kept))}" if kept else "with the current timestamp"
    size = None if entries is None else entries * VALUE_BYTES * (len(wanted) + 1)
    return Kept(None, None, tuple(columns), (f"{what} {when}",), entries, size, closes=True)


def _count_buckets(closing: Closing, values: int | None) -> int | None:
    """The number of buckets that are open at a time, times the ``values`` of other columns."""
    if closing.bucket.width == 1 or values is None:
        return None
    return values * (closing.duration * closing.bucket.overlap // closing.bucket.period + 2)


def _count_rows(need: Need, closing: Closing, home: str, alias: str) -> int | None:
    """The number of rows of a stream that open results can contain, by its declared rate."""
    rate = parse_rate(need.part.select.occurrence(alias).table.properties.get("rate", ""))
    earlier = 0 if alias == home else TimeOrder(need.part).max_lag(home, alias)
    if rate is None or earlier is None:
        return None
    overlap = closing.bucket.overlap if alias == home else 1
    return overlap * rate * ((closing.duration + max(earlier, 0)) // 1_000_000 + 2)


def _smaller(one: int | None, other: int | None) -> int | None:
    """The smaller of two bounds, if both are known."""
    return min((n for n in (one, other) if n is not None), default=None)


def _describe_matches(timed: TimedNeed, match_set: PartialMatchSet, has_windows: bool) -> Kept:
    """What is kept of a set of partial matches, and its bound.

    With windows, their timestamps are kept too, and their number depends on the rate.
    """
    part = timed.part
    columns: list[KeptColumn] = []
    sizes: list[int | None] = []
    for ref in match_set.result_columns:
        try:
            classes = build_exact_classes(part, ref)
            columns.append(describe_column(part, classes))
            sizes.append(classes.classes)
        except NoPlanError:
            sizes.append(None)
    if timed.need.counted:
        sizes += [_count_excludable_values(timed, ref) for ref in match_set.differing]
    compared: list[int | None] = []
    for requirement in match_set.requirements:
        if len(requirement.terms) == 1 and requirement.terms[0][0] in match_set.result_columns:
            continue  # the result column determines it
        if requirement.exact:
            columns += _describe_bounded_column(part, requirement.terms[0][0])
        size = _count_values(part, requirement)
        (sizes if requirement.exact or timed.need.counted else compared).append(size)
    entries = _count_entries(sizes, compared, len(match_set.differing), timed.need.counted)
    entries = None if has_windows else entries
    values = len(match_set.result_columns) + len(match_set.requirements) + len(match_set.differing)
    width = VALUE_BYTES * values
    if timed.need.counted:
        width += COUNT_BYTES * (1 + sum(1 + each.summed for each in timed.need.measures))
    names = [_stream_name(timed, a) for group in match_set.groups for a in group]
    size_ = None if entries is None else entries * max(width, VALUE_BYTES)
    counted = "count" if len(names) == 1 else "matches"
    keeps = (counted,) if timed.need.counted else _describe_front(part, match_set)
    return Kept(" and ".join(names), None, tuple(columns), keeps, entries, size_)


def _describe_bounded_column(part: Part, ref: Ref) -> list[KeptColumn]:
    """The classes of a column in words; nothing if it is unbounded."""
    try:
        return [describe_column(part, build_exact_classes(part, ref))]
    except NoPlanError:
        return []


def _stream_name(timed: TimedNeed, alias: str) -> str:
    """The stream's name, or the alias if the stream occurs more than once."""
    tables = {o.alias: o.table.name for o in timed.part.select.occurrences}
    return tables[alias] if list(tables.values()).count(tables[alias]) == 1 else alias


def _name_column(part: Part, ref: Ref) -> str:
    """The column, or the one that a derived column stands for."""
    expr = dict(part.derived).get(ref, ref)
    return expr.column if isinstance(expr, Ref) else ref.column


def _describe_front(part: Part, match_set: PartialMatchSet) -> tuple[str, ...]:
    """Which matches are kept, by their requirements."""
    compared = [r for r in match_set.requirements if not r.exact]
    if not compared:
        return ("presence",)
    texts = []
    for requirement in compared:
        names = [_name_column(part, ref) for ref, _ in requirement.terms]
        inner = names[0] if len(names) == 1 else f"{'max' if requirement.low else 'min'}({', '.join(names)})"
        texts.append(f"{'smallest' if requirement.low else 'largest'} {inner}")
    if len(texts) == 1:
        return (f"match with the {texts[0]}",)
    return (f"Pareto front of matches by {' and '.join(texts)}",)


def _count_entries(
    sizes: list[int | None], compared: list[int | None], differing: int, counted: bool
) -> int | None:
    """The product of the sizes.  On a Pareto front, the others fix the requirement with the most values."""
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


def _count_excludable_values(timed: TimedNeed, ref: Ref) -> int | None:
    """The number of values that can exclude a row still to come, plus one for all other values."""
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


def _count_values(part: Part, requirement: Requirement) -> int | None:
    """The number of values that a requirement can have; None if it is unbounded."""
    step = type_of(part, requirement.terms[0][0]).step
    low, high = requirement.find_value_range(part.closure)
    if low is None or high is None:
        return None
    if not step:
        return 1 + requirement.strict if low == high else None  # the value, and all beyond it
    return max(int((high - low) / step) + 1, 1)


def _round_up(micros: int) -> int:
    """A duration to show: less than an hour, which is a microsecond less, is shown as an hour."""
    return -(-micros // 1_000) * 1_000

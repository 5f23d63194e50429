"""Decides whether the window functions of a select can be computed in bounded memory.

One function for each rule.  The state of ``OVER (PARTITION BY p ORDER BY ts …)`` is per partition: the first
rows for a limited rank, the last rows for LAG, LEAD and ROWS, a summary for aggregates from the beginning on.
It is bounded if the partitions are, if they contain a time bucket, or if the frame is a stretch of time.
Without an order by time, a later row changes the results of any earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from millpond.analysis.rank_filters import find_rank_limit
from millpond.analysis.time_flags import find_flag_distance
from millpond.plan.classes import NoPlanError, build_exact_classes
from millpond.plan.over import FunctionNeed
from millpond.plan.state import KeptColumn
from millpond.plan.synopsis_bound import describe_column
from millpond.query.buckets import find_bucket
from millpond.query.calendar import Count
from millpond.query.expressions import And, Condition, Ref
from millpond.query.model import Frame, FrameUnit, Item, Occurrence, Select, Table, Windowed, WindowFunction
from millpond.query.parts import Part, split_disjunctions, split_into_parts
from millpond.query.trace import find_used_columns
from millpond.query.trees import conjuncts, refs, rename_refs, renaming
from millpond.query.window_functions import (
    WINDOW_FUNCTIONS,
    FunctionKind,
    find_kind,
    find_offset,
    is_earlier_time,
    is_ordered_by_time,
    mirror_to_ascending,
)


class OverCode(StrEnum):
    """The rule that fails for a window function; the values are public codes of reasons."""

    UNBOUNDED_PARTITION = "unbounded-partition"
    REVISED_ROWS = "revised-rows"
    UNBOUNDED_TIES = "unbounded-ties"
    HOLISTIC_FRAME = "holistic-frame"


@dataclass(frozen=True)
class OverFailure:
    """A rule that fails for a window function, with the columns that make it fail."""

    code: OverCode
    function: WindowFunction
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class WindowedSource:
    """The occurrence of a table with window functions in a select."""

    select: Select
    alias: str

    @property
    def table(self) -> Table:
        return self.select.occurrence(self.alias).table

    @property
    def block(self) -> Windowed:
        block = self.table.block
        assert isinstance(block, Windowed)
        return block

    @property
    def base(self) -> Table:
        return self.block.base

    @cached_property
    def used(self) -> frozenset[str]:
        """The columns of the occurrence that the select uses, also to compute derived columns."""
        return find_used_columns(self.select, self.alias)

    @cached_property
    def consumer_parts(self) -> list[Part]:
        """The parts of the select, with the values of window functions as any other columns."""
        return split_into_parts(replace(self.select, exists=(), joins=()), disjoint=False)

    def limit_of(self, function: WindowFunction) -> int | None:
        """The greatest value of a rank that the select lets through."""
        return find_rank_limit(self.select.where, Ref(self.alias, function.name))

    def parts_of(self, function: WindowFunction) -> list[Part]:
        """The parts of the condition on rows of a partition: below the functions, and on whole partitions."""
        own = [rename_refs(c, renaming(self.alias, self.base.name)) for c in self.partition_filters]
        occurrence = Occurrence(self.base.name, self.base)
        items = tuple(Item(Ref(self.base.name, name), name) for name in function.partition_by)
        where: Condition = And((self.block.where, *own))
        parts = split_into_parts(Select((occurrence,), items, where), disjoint=False)
        return [each for part in parts for each in split_disjunctions(part)]

    @cached_property
    def partition_filters(self) -> list[Condition]:
        """The conditions that hold for all rows of a partition of every function, or for none."""
        shared = set.intersection(*(set(f.partition_by) for f in self.block.functions))
        columns = {Ref(self.alias, name) for name in shared}
        return [each for each in conjuncts(self.select.where) if refs(each) and refs(each) <= columns]


def find_needs(source: WindowedSource) -> tuple[list[FunctionNeed], list[OverFailure]]:
    """What each used function needs, and the rules that fail."""
    needs: list[FunctionNeed] = []
    failures: list[OverFailure] = []
    for function in source.block.functions:
        if function.name not in source.used:
            continue
        found = decide_window_function(source, function)
        if isinstance(found, OverFailure):
            failures.append(found)
        else:
            needs.append(found)
    return needs, failures


def decide_window_function(source: WindowedSource, function: WindowFunction) -> FunctionNeed | OverFailure:
    """What a window function needs; the first rule that applies decides."""
    for whole in (decide_closing_partition, decide_stretch_of_time, decide_near_offset):
        need = whole(source, function)
        if need is not None:
            return need
    rule = _RULES[find_kind(function)]
    found = rule(source, function)
    if isinstance(found, OverFailure) or not found.is_per_partition:
        return found
    free = find_free_columns(source, function)
    return OverFailure(OverCode.UNBOUNDED_PARTITION, function, free) if free else found


# --- rules that hold whatever the partitions are ----------------------------------------------------------


def decide_closing_partition(source: WindowedSource, function: WindowFunction) -> FunctionNeed | None:
    """A partition that contains a time bucket ends with it, and its rows are final then."""
    occurrence = Occurrence(source.base.name, source.base)
    columns = [Ref(source.base.name, name) for name in function.partition_by]
    bucket = find_bucket(Select((occurrence,), ()), source.base.name, columns)
    return None if bucket is None else FunctionNeed(function, closes=bucket.width)


def decide_stretch_of_time(source: WindowedSource, function: WindowFunction) -> FunctionNeed | None:
    """A RANGE of time around the current row holds boundedly many rows.

    The order may also be by a number that counts time, which several timestamps can share.
    """
    frame = function.frame
    if frame is None or frame.unit is not FrameUnit.RANGE or not function.order_by:
        return None
    count = _find_count(source, function)
    if count is None and not is_ordered_by_time(function, source.base):
        return None
    mirrored = mirror_to_ascending(function)
    frame = mirrored.frame if mirrored is not None else _mirror(frame)
    if frame is None or frame.start is None or frame.end is None:
        return None
    # Rows with equal counts are less than ``apart`` microseconds apart.
    unit, apart = (1, 0) if count is None else (count.unit, count.high - count.low)
    before, after = max(apart - frame.start * unit, 0), max(apart + frame.end * unit, 0)
    return FunctionNeed(mirrored or function, micros=max(before, 1), later_micros=after)


def _find_count(source: WindowedSource, function: WindowFunction) -> Count | None:
    """How the number that orders the rows counts time; None for any other order."""
    if len(function.order_by) != 1:
        return None
    column = source.base.column(function.order_by[0].column)
    time = column.derivation.time if column.derivation is not None else None
    return time.count if time is not None and source.base.time is not None else None


def decide_near_offset(source: WindowedSource, function: WindowFunction) -> FunctionNeed | None:
    """LAG of a row that the consumer reads only if it is at most so long ago."""
    mirrored = mirror_to_ascending(function)
    if mirrored is None or mirrored.function != "LAG" or not is_ordered_by_time(function, source.base):
        return None
    distance = _find_distance(source, function, find_offset(mirrored))
    if distance is None:
        distance = _find_flag_distance(source, function)
    return None if distance is None else FunctionNeed(mirrored, micros=max(distance, 1))


def _find_flag_distance(source: WindowedSource, function: WindowFunction) -> int | None:
    """The distance up to which an earlier row matters, if the consumer reads it only where that is near."""
    is_time = is_earlier_time(function, source.base)
    select, ref = source.select, Ref(source.alias, function.name)
    time = Ref(source.alias, source.base.time or "")
    shown = {r for item in select.items for r in refs(item.expression)} | set(select.group_by or ())
    if ref in shown | refs(select.having) or any(ref in refs(join.on) for join in select.joins):
        return None
    conditions = [each for each in conjuncts(select.where) if ref in refs(each)]
    if conditions and not is_time:
        return None
    distances = [find_flag_distance(each, time, ref) for each in conditions]
    for column in source.table.derived:
        derivation = column.derivation
        if column.name in source.used and derivation is not None and function.name in derivation.arguments:
            distances.append(dict(derivation.near).get(function.name))
    known = [distance for distance in distances if distance is not None]
    return max(known) if known and len(known) == len(distances) else None


def _find_distance(source: WindowedSource, function: WindowFunction, offset: int) -> int | None:
    """The longest time between a row and the earlier one that LAG reads, if the consumer limits it.

    It does if it compares the timestamp with that of an earlier row at least as far away.
    """
    time = source.base.time
    assert time is not None
    for other in source.block.functions:
        same = (other.partition_by, other.order_by) == (function.partition_by, function.order_by)
        mirrored = mirror_to_ascending(other)
        if not same or mirrored is None or mirrored.function != "LAG" or other.arguments[0] != time:
            continue
        if len(other.arguments) > 2 or other.ignore_nulls or function.ignore_nulls:
            continue
        if find_offset(mirrored) < offset or other.name not in source.used:
            continue
        lags = [_bound_lag(part, source.alias, time, other.name) for part in source.consumer_parts]
        known = [lag for lag in lags if lag is not None]
        if len(known) == len(lags):
            return max(known, default=0)
    return None


def _bound_lag(part: Part, alias: str, time: str, earlier: str) -> int | None:
    """How much greater than an earlier timestamp that of a row can be; the condition excludes NULL."""
    left, right = Ref(alias, time), Ref(alias, earlier)
    if not {left, right} <= part.closure.index.keys() or part.can_be_null(right):
        return None
    bound = part.closure.bound(left, right)
    return None if bound is None else max(int(bound[0]), 0)


def _mirror(frame: Frame) -> Frame:
    start = None if frame.end is None else -frame.end
    end = None if frame.start is None else -frame.start
    return Frame(frame.unit, start, end)


# --- rules for one partition ---------------------------------------------------------------------------


def decide_rank(source: WindowedSource, function: WindowFunction) -> FunctionNeed | OverFailure:
    """A rank by ascending time is a count; any other needs a limit, and must not have unlimited ties."""
    limit = source.limit_of(function)
    in_time = is_ordered_by_time(function, source.base)
    if in_time and not function.order_by[0].descending:
        return FunctionNeed(function, summary=True, limit=limit)
    if limit is None:
        return OverFailure(OverCode.REVISED_ROWS, function, _order_columns(function))
    if function.function != "ROW_NUMBER" and not in_time:
        tied = find_tied_columns(source, function)
        if tied:
            return OverFailure(OverCode.UNBOUNDED_TIES, function, tied)
    return FunctionNeed(function, rows=max(limit, 1), revised=True, limit=limit)


def decide_share(source: WindowedSource, function: WindowFunction) -> FunctionNeed | OverFailure:
    """A share of all rows of the partition changes with every row."""
    del source
    return OverFailure(OverCode.REVISED_ROWS, function, _order_columns(function))


def decide_offset(source: WindowedSource, function: WindowFunction) -> FunctionNeed | OverFailure:
    """LAG and LEAD by time need as many rows as their offset."""
    mirrored = mirror_to_ascending(function)
    if mirrored is None or not is_ordered_by_time(function, source.base):
        return OverFailure(OverCode.REVISED_ROWS, function, _order_columns(function))
    offset = find_offset(mirrored)
    if mirrored.function == "LAG":
        return FunctionNeed(mirrored, rows=offset)
    if function.ignore_nulls:  # all rows since the last value wait for the next one
        return OverFailure(OverCode.REVISED_ROWS, function, _order_columns(function))
    return FunctionNeed(mirrored, rows=offset, later_rows=offset)


def decide_frame(source: WindowedSource, function: WindowFunction) -> FunctionNeed | OverFailure:
    """A frame by time needs its rows; one from the beginning on, a summary; one to the end has none."""
    failure = OverFailure(OverCode.REVISED_ROWS, function, _order_columns(function))
    frame = function.frame
    assert frame is not None
    if frame == Frame(FrameUnit.ROWS, 0, 0):
        return FunctionNeed(function)
    if not is_ordered_by_time(function, source.base):
        return failure
    mirrored = mirror_to_ascending(function)
    if mirrored is None or mirrored.frame is None:
        return failure
    name, frame = mirrored.function, mirrored.frame
    is_first = name in ("FIRST_VALUE", "NTH_VALUE") and frame.start is None and not function.ignore_nulls
    first_rows = find_offset(mirrored) if name == "NTH_VALUE" else 1
    if frame.end is None:
        return FunctionNeed(mirrored, rows=first_rows, later_rows=first_rows - 1) if is_first else failure
    rows = abs(frame.end)  # before the current one, or waiting for later ones
    if frame.start is not None:
        rows = max(-frame.start, 0) + max(frame.end, 0)
    later = max(frame.end, 0)
    if frame.unit is FrameUnit.RANGE:
        rows, edge = 0, abs(frame.end)
        need = FunctionNeed(mirrored, micros=edge, later_micros=later)
    else:
        need = FunctionNeed(mirrored, rows=rows, later_rows=later)
    if frame.start is not None:
        return need
    if not WINDOW_FUNCTIONS[name].summary and not _is_bounded_argument(source, mirrored):
        return OverFailure(OverCode.HOLISTIC_FRAME, function, _arguments(function))
    if find_kind(mirrored) is FunctionKind.VALUE:
        return replace(need, rows=rows + first_rows)
    return replace(need, summary=True)


_RULES: Mapping[FunctionKind, Callable[[WindowedSource, WindowFunction], FunctionNeed | OverFailure]] = {
    FunctionKind.RANK: decide_rank,
    FunctionKind.SHARE: decide_share,
    FunctionKind.OFFSET: decide_offset,
    FunctionKind.VALUE: decide_frame,
    FunctionKind.AGGREGATE: decide_frame,
}


# --- columns -------------------------------------------------------------------------------------------


def find_free_columns(source: WindowedSource, function: WindowFunction) -> tuple[str, ...]:
    """The partition columns that can take infinitely many values."""
    parts = source.parts_of(function)
    return tuple(name for name in function.partition_by if not _is_bounded(source, parts, name))


def find_tied_columns(source: WindowedSource, function: WindowFunction) -> tuple[str, ...]:
    """The used columns in which rows with the same rank can take infinitely many values."""
    same = {key.column for key in function.order_by} | set(function.partition_by)
    names = {column.name for column in source.base.all_columns}
    probe = replace(function, partition_by=tuple(sorted(names & source.used)))
    parts = source.parts_of(replace(probe))
    return tuple(n for n in probe.partition_by if n not in same and not _is_bounded(source, parts, n))


def count_partitions(source: WindowedSource, function: WindowFunction) -> tuple[KeptColumn, ...] | None:
    """The classes of the partition columns; None if their number depends on the data."""
    parts = source.parts_of(function)
    if len(parts) != 1:
        return () if not function.partition_by else None
    try:
        return tuple(
            describe_column(parts[0], build_exact_classes(parts[0], Ref(source.base.name, name)))
            for name in function.partition_by
        )
    except NoPlanError:
        return None


def _is_bounded(source: WindowedSource, parts: Sequence[Part], name: str) -> bool:
    ref = Ref(source.base.name, name)
    return all(ref in part.nulls or part.closure.is_bounded(ref) for part in parts)


def _is_bounded_argument(source: WindowedSource, function: WindowFunction) -> bool:
    arguments = _arguments(function)
    parts = source.parts_of(replace(function, partition_by=(*function.partition_by, *arguments)))
    return all(_is_bounded(source, parts, name) for name in arguments)


def _arguments(function: WindowFunction) -> tuple[str, ...]:
    return tuple(each for each in function.arguments if isinstance(each, str))


def _order_columns(function: WindowFunction) -> tuple[str, ...]:
    return tuple(key.column for key in function.order_by)


def list_windowed(select: Select) -> Iterator[WindowedSource]:
    """The occurrences of a select that have window functions."""
    for occurrence in select.every_occurrence:
        if isinstance(occurrence.table.block, Windowed):
            yield WindowedSource(select, occurrence.alias)

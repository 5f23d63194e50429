"""What has to be kept for window functions, and its worst-case size."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from millpond.plan.state import COUNT_BYTES, VALUE_BYTES, Kept, KeptColumn, State, Window
from millpond.query.durations import format_duration, parse_rate
from millpond.query.model import Query, Select, Table, Windowed, WindowFunction


@dataclass(frozen=True)
class FunctionNeed:
    """What one window function needs of the rows before the current one.

    ``rows``: the last (or, for a limited rank, the first) rows of each partition.  ``micros``: the rows of
    the last so many microseconds, whatever their partition.  ``summary``: a state of fixed size for each
    partition.  ``closes``: all rows of a partition, which ends so many microseconds after it began.

    A result is final when ``later_rows`` more rows of the partition have arrived, and time has passed the
    row by ``later_micros``.  ``revised``: a later row can change it at any time.  ``limit`` is the greatest
    rank that the consumer reads.
    """

    function: WindowFunction
    rows: int = 0
    micros: int = 0
    summary: bool = False
    closes: int | None = None
    later_rows: int = 0
    later_micros: int = 0
    revised: bool = False
    limit: int | None = None

    @property
    def keeps_first(self) -> bool:
        """Whether the rows that are kept are the first of each partition, not the last."""
        frame = self.function.frame
        is_from_beginning = frame is None or frame.start is None
        is_first = is_from_beginning and self.function.function in ("FIRST_VALUE", "NTH_VALUE")
        return self.limit is not None or is_first

    @property
    def is_per_partition(self) -> bool:
        """Whether something is kept for each partition for ever."""
        return self.closes is None and (self.rows > 0 or self.summary)


@dataclass(frozen=True)
class OverPlan:
    """What is kept for the window functions of a query of one select.

    ``alias`` is the occurrence with the window functions.  ``partitions`` are, for each function, the classes
    of its partition columns, None where their number depends on the data.  ``below`` is the verdict on the
    rows below the functions, if they are those of a block.
    """

    query: Query
    select: Select
    alias: str
    needs: tuple[FunctionNeed, ...]
    partitions: tuple[tuple[KeptColumn, ...] | None, ...]
    below: Any = None

    @property
    def block(self) -> Windowed:
        """The block with the window functions."""
        block = self.select.occurrence(self.alias).table.block
        assert isinstance(block, Windowed)
        return block


def find_over_delay(plan: OverPlan) -> int | None:
    """By how many microseconds the rows still to come can be earlier than the watermark.

    None if there is no such delay: rows are taken back, or wait for later rows of their partition.
    """
    if plan.block.base.time is None or not plan.needs:
        return None
    if any(need.revised or need.later_rows for need in plan.needs):
        return None
    return max(need.later_micros if need.closes is None else need.closes for need in plan.needs)


def compute_over_state(plan: OverPlan) -> State:
    """The worst-case size of what a plan keeps; functions with the same window share their rows."""
    base = plan.block.base
    kept: dict[object, Kept] = {}
    windows: dict[str, float] = {}
    for need, partitions in zip(plan.needs, plan.partitions, strict=True):
        stretch = need.closes if need.closes is not None else need.micros + need.later_micros
        if stretch:
            windows[base.name] = max(windows.get(base.name, 0.0), stretch / 1_000_000)
            kept["time", need.function.partition_by, stretch] = _keep_stretch(base, plan.alias, stretch)
        if need.is_per_partition:
            # Equal rows of one window are kept once, for the function that needs most of them.
            window = (need.function.partition_by, need.function.order_by)
            counted = need.function.arguments[:1] if need.function.ignore_nulls else None  # rows with a value
            key = (*window, need.keeps_first, counted, need.function if need.summary else None)
            made = _keep_partitions(base, plan.alias, need, partitions)
            known = kept.get(key)
            if known is None or (made.entries or 0) > (known.entries or 0):
                kept[key] = made
    every = tuple(kept.values())
    entries = [each.entries for each in every]
    total = None if any(n is None for n in entries) else sum(n or 0 for n in entries)
    size = None if total is None else sum(each.bytes or 0 for each in every)
    shown: list[Window] = [{"stream": name, "seconds": seconds} for name, seconds in windows.items()]
    return State(total, size, every, shown)


def _keep_stretch(base: Table, alias: str, micros: int) -> Kept:
    rate = parse_rate(base.properties.get("rate", ""))
    entries = None if rate is None else rate * (-(-micros // 1_000_000) + 1)
    what = f"rows of the last {format_duration(micros)}" if micros > 1 else "rows with the current timestamp"
    return Kept(base.name, alias, (), (what,), entries, _count_bytes(base, entries), closes=True)


def _keep_partitions(
    base: Table, alias: str, need: FunctionNeed, partitions: tuple[KeptColumn, ...] | None
) -> Kept:
    columns = partitions or ()
    number = None if partitions is None else prod(column.classes for column in columns)
    keeps = []
    if need.rows:
        which = "first" if need.keeps_first else "last"
        keeps.append(f"the {which} {need.rows} rows" if need.rows > 1 else f"the {which} row")
    if need.summary:
        keeps.append(f"{need.function.function} so far")
    entries = None if number is None else number * (need.rows + need.summary)
    size = None
    if number is not None:
        size = number * (need.rows * VALUE_BYTES * len(base.columns) + need.summary * 2 * COUNT_BYTES)
    return Kept(base.name, alias, columns, tuple(keeps), entries, size)


def _count_bytes(base: Table, rows: int | None) -> int | None:
    return None if rows is None else rows * VALUE_BYTES * len(base.columns)

"""Changes that bound time: windows between streams that are joined, and time buckets of groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from millpond.analysis.repair.changes import Addition, Change, add_condition, extend_condition
from millpond.analysis.repair.constants import Sample
from millpond.analysis.repair.model import Edit, Meaning, RepairKind
from millpond.analysis.repair.subject import Subject
from millpond.frontend.outline import SelectOutline, SourceOutline
from millpond.frontend.spark_names import quote_name
from millpond.query.expressions import Comparison
from millpond.query.model import Table, time_columns
from millpond.query.trace import list_conditions, trace_ref
from millpond.query.trees import refs, walk

# The placeholder for the length of windows.
LENGTH = "INTERVAL 1 HOUR"
_BUCKET = "window({}, '1 hour')"
_PARTITION = "date_trunc('HOUR', {})"
# The most streams of one FROM between which windows are tried.
_MAX_STREAMS = 5


@dataclass(frozen=True)
class _TimedRead:
    """An entry of FROM that is a stream, with its timestamp, which may have to be declared first.

    The timestamp is added to the ``declaration``, or a view gets a watermark on one of its own (``times``).
    """

    source: SourceOutline
    table: Table
    time: str
    declaration: tuple[Addition, ...] = ()
    times: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> RepairKind:
        return RepairKind.WATERMARK if self.declaration or self.times else RepairKind.WINDOW

    @property
    def needed(self) -> str:
        """What the stream needs first, for a title."""
        if self.times:
            return f"give {self.table.name} a watermark on {self.times[0][1]} and "
        return f"give {self.table.name} a timestamp and " if self.declaration else ""


def list_windows(subject: Subject, sample: Sample) -> Iterator[Change]:
    """Windows between any two streams that one FROM joins, or that an EXISTS relates."""
    for select in subject.selects:
        reads = _list_timed(subject, select)
        for weight, (first, second) in enumerate(combinations(reads[:_MAX_STREAMS], 2)):
            yield _make_window(subject, select, first, second, weight)
        for outer in subject.selects:
            if outer.where is not None and outer.where.start <= select.span.start < outer.where.end:
                for first in _list_timed(subject, outer)[:1]:
                    for second in reads[:1]:
                        window = _make_window(subject, select, first, second, 0)
                        narrower = (replace(each, meaning=Meaning.CHANGED) for each in window.narrower)
                        yield replace(window, meaning=Meaning.CHANGED, narrower=tuple(narrower))


def list_buckets(subject: Subject, sample: Sample) -> Iterator[Change]:
    """Groups, sets and partitions by hour."""
    for select in subject.selects:
        for read in _list_timed(subject, select):
            yield from _list_buckets_of(select, read)


def list_fixed_ends(subject: Subject, sample: Sample) -> Iterator[Change]:
    """Ends of windows a fixed time after the timestamp, instead of other timestamps of the row."""
    for select in subject.selects:
        for name in select.compared:
            for read in _list_timed(subject, select):
                alias = read.source.alias.strip("`")
                if name.alias is not None and name.alias.lower() != alias.lower():
                    continue
                if name.column.lower() not in _list_second_times(read.table):
                    continue
                yield Change(
                    RepairKind.WINDOW,
                    f"end the window a fixed time after {read.time}, not at {{}} (1 hour is a placeholder)",
                    name.column,
                    Meaning.CHANGED,
                    edits=(Edit(name.span.start, name.span.end, f"{read.time} + {LENGTH}"),),
                )


def _list_second_times(table: Table) -> list[str]:
    """The timestamps that are not the time column."""
    return [column.name.lower() for column in time_columns(table) if column.name != table.time]


def _list_timed(subject: Subject, select: SelectOutline) -> list[_TimedRead]:
    found = []
    for source in select.sources:
        table = subject.find_stream(source)
        if table is None:
            continue
        if table.time is not None:
            time = f"{source.alias}.{quote_name(table.time)}"
            found.append(_TimedRead(source, table, time))
            continue
        declaration = subject.declarations.get(table.name.lower())
        if declaration is None and time_columns(table):
            name = time_columns(table)[0].name
            time = f"{source.alias}.{quote_name(name)}"
            found.append(_TimedRead(source, table, time, times=((table.name, name),)))
        elif declaration is not None:
            name = _name_time(table)
            added = Addition(declaration.columns[-1].span.end, ", ", ", ", f"{name} TIMESTAMP")
            found.append(_TimedRead(source, table, f"{source.alias}.{name}", (added,)))
    return found


def _name_time(table: Table) -> str:
    taken = {column.name.lower() for column in table.columns}
    name, number = "event_time", 1
    while name in taken:
        number += 1
        name = f"event_time_{number}"
    return name


def _make_window(
    subject: Subject, select: SelectOutline, first: _TimedRead, second: _TimedRead, weight: int
) -> Change:
    """The second stream's rows come within an hour after the first's.

    If timestamps are compared already, the window reaches in both directions, and the half of it that is
    missing takes its place.
    """
    early, late = first.time, second.time
    after = f"{late} BETWEEN {early} AND {early} + {LENGTH}"
    around = f"{late} BETWEEN {early} - {LENGTH} AND {early} + {LENGTH}"
    is_compared = _compares_times(subject)
    directed = f"a row of {first.table.name} with rows of {second.table.name}"
    around_words = f"rows of {first.table.name} and {second.table.name} within 1 hour of each other"
    needed = "".join(dict.fromkeys((first.needed, second.needed)))
    is_outer = not second.source.inner or not first.source.inner

    def make(condition: str, matched: str) -> Change:
        note = " (1 hour is a placeholder)" if LENGTH in condition else ""
        edits, additions = _place_condition(select, second, condition)
        return Change(
            max(first.kind, second.kind, key=lambda kind: kind is RepairKind.WATERMARK),
            f"{needed}match {{}}{note}",
            matched,
            Meaning.CHANGED if is_outer else Meaning.FEWER,
            edits=edits,
            additions=(*first.declaration, *second.declaration, *additions),
            weight=weight,
            times=(*first.times, *second.times),
        )

    later = f"{directed} up to 1 hour later"
    halves = [
        make(f"{late} <= {early} + {LENGTH}", later),
        make(f"{early} <= {late} + {LENGTH}", f"{directed} up to 1 hour earlier"),
    ]
    if not is_compared:
        halves.append(make(f"{late} >= {early}", f"{directed} at the same time or later"))
    whole = make(around, around_words) if is_compared else make(after, later)
    return replace(whole, narrower=tuple(halves))


def _place_condition(
    select: SelectOutline, read: _TimedRead, condition: str
) -> tuple[tuple[Edit, ...], tuple[Addition, ...]]:
    """Adds a condition where the join states its own: to ON if there is one, else to WHERE."""
    if read.source.on is not None:
        return extend_condition(read.source.on, read.source.on_is_disjunction, condition)
    return add_condition(select, condition)


def _compares_times(subject: Subject) -> bool:
    """Whether the query compares timestamps of streams: a window in one direction could contradict that."""
    times = {(table.name, table.time) for table in subject.tables.values()}
    compared = (
        [trace_ref(select, ref) for ref in refs(node)]
        for select, condition in list_conditions(subject.query)
        if select is not None
        for node in walk(condition)
        if isinstance(node, Comparison)
    )
    return any(sum(each in times for each in found) > 1 for found in compared)


def _list_buckets_of(select: SelectOutline, read: _TimedRead) -> Iterator[Change]:
    bucket = _BUCKET.format(read.time)

    def make(title: str, addition: Addition) -> Change:
        return Change(
            read.kind,
            f"{read.needed}{title} (1 hour is a placeholder)",
            "",
            Meaning.CHANGED,
            additions=(*read.declaration, addition),
            weight=1,
            choice=("bucket", addition.place),
            times=read.times,
        )

    if select.group_by:
        place = Addition(select.group_by[-1].end, ", ", ", ", bucket)
        yield make("answer for each hour by itself: group by a time window as well", place)
    elif select.distinct:
        place = Addition(select.items[-1].end, ", ", ", ", bucket)
        yield make("show each result once an hour: with its time window", place)
    elif not select.partitions:
        end = select.where.end if select.where is not None else select.from_end
        place = Addition(end, " GROUP BY ", ", ", bucket)
        yield make("answer for each hour by itself: group by a time window", place)
    places = [Addition(each[-1].end, ", ", ", ", _PARTITION.format(read.time)) for each in select.partitions]
    if places:
        change = make("start anew every hour: partition by the hour as well", places[0])
        yield replace(change, additions=(*read.declaration, *places))

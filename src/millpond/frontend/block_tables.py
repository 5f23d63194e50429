"""The table of a block: its columns, its time column, and the columns that are functions of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from millpond.frontend.scope import Path, Source, SourceColumn
from millpond.query.buckets import find_time_function
from millpond.query.calendar import LONGEST, TimeFunction
from millpond.query.expressions import Arithmetic, Comparison, Literal, Op, Ref
from millpond.query.model import Column, Derivation, Item, OutputColumn, Query, Select, Subquery, Table
from millpond.query.result_times import Moment, find_final_buckets, find_moments
from millpond.query.trees import is_aggregate, refs, rename_refs
from millpond.query.types import INTERVAL, STRING, TIME_VALUE, TIMESTAMP, WINDOW, Domain, SqlType

# The output column with the time of a block that does not show it.
HIDDEN_TIME = "time of the row"


@dataclass(frozen=True)
class BlockTable:
    """The table of a block; ``derived`` are output columns that are functions of its time column.

    ``shown`` are the output columns as the select around it sees them; a window is its start and its end.
    """

    table: Table
    derived: tuple[Column, ...]
    shown: tuple[tuple[str, SqlType, tuple[str, ...]], ...]

    def source_of(self, alias: str, path: Path) -> Source:
        """The source of an occurrence of the table."""
        columns = []
        for name, type_, names in self.shown:
            found = [self._refer(alias, each) for each in names]
            if type_ is not WINDOW:
                columns.append(replace(found[0], name=name))
                continue
            width = self._find_width(names)
            window = replace(found[0], name=name, type=WINDOW, edges=(found[0], found[1]), width=width)
            columns.append(window)
        return Source(alias, tuple(columns), self.table.name, path)

    def _find_width(self, names: tuple[str, ...]) -> int | None:
        """How long the windows with these edges are, in microseconds; None for sessions."""
        assert isinstance(self.table.block, Subquery)
        query = self.table.block.query
        start, end = (query.selects[0].items[query.columns.index(name)].expression for name in names)
        match end:
            case Arithmetic(operator="+", left=left, right=Literal(value=timedelta() as width)):
                return width // timedelta(microseconds=1) if left == start else None
        return None

    def _refer(self, alias: str, name: str) -> SourceColumn:
        column = next(c for c in (*self.table.columns, *self.derived) if c.name == name)
        return SourceColumn(name, Ref(alias, name), column.type)


def build_block_table(
    name: str, query: Query, types: Sequence[SqlType | None], time: str | None
) -> BlockTable:
    """The table of a block under a name; ``time`` is the time column that it has to have, if given."""
    shown = _list_shown(query, types)
    streaming = any(o.table.streaming for select in query.selects for o in select.every_occurrence)
    columns = {each: TIMESTAMP if type_ is WINDOW else type_ for _, type_, names in shown for each in names}
    moments = _find_common_moments(query) if streaming else {}
    if streaming and not moments:
        query, added = _add_hidden_time(query)
        if added:
            columns[HIDDEN_TIME] = TIMESTAMP
            moments = _find_common_moments(query)
    moments = {each: moment for each, moment in moments.items() if each in columns}
    chosen = time if time in moments else _choose_time(moments)
    derived: dict[str, Column] = {}
    if chosen is not None:
        derived = {
            each: _shift_time(name, chosen, each, moment.offset - moments[chosen].offset)
            for each, moment in moments.items()
            if each != chosen and moment.ref == moments[chosen].ref
        }
        derived |= _derive_fields(name, query, chosen, moments[chosen], [*columns])
    own = [
        Column(each, _own_type(type_, each == chosen), nullable=each != chosen)
        for each, type_ in columns.items()
        if each not in derived
    ]
    table = Table(name, tuple(own), streaming, time=chosen, block=Subquery(query))
    return BlockTable(table, tuple(derived.values()), shown)


def _own_type(type_: SqlType, is_time: bool) -> SqlType:
    return TIME_VALUE if type_.domain is Domain.TIME and not is_time else type_


def _list_shown(
    query: Query, types: Sequence[SqlType | None]
) -> tuple[tuple[str, SqlType, tuple[str, ...]], ...]:
    """The output columns: the name, the type, and the columns of the table that it consists of."""
    if query.projection:
        pairs = zip(query.projection, types, strict=True)
        return tuple((each.name, type_ or STRING, (each.name,)) for each, type_ in pairs)
    windows = dict(query.windows)
    shown: list[tuple[str, SqlType, tuple[str, ...]]] = []
    position = 0
    for type_ in types:
        width = 2 if position in windows else 1
        names = query.columns[position : position + width]
        shown.append((windows.get(position, names[0]), type_ or STRING, names))
        position += width
    return tuple(shown)


# --- time ----------------------------------------------------------------------------------------------


def _find_common_moments(query: Query) -> dict[str, Moment]:
    """The output columns that are timestamps which the rows of all selects are final with."""
    common: dict[int, Moment] | None = None
    for term in query.terms:
        for select in term.selects:
            found: dict[int, Moment] = {}
            for bucket in find_final_buckets(select, term.distinct):
                found = {**find_moments(select, bucket), **found}
            # The columns of a UNION are only known to be timestamps, each of another stream.
            both = {i: Moment(Ref("", str(i))) for i in common or () if i in found}
            common = found if common is None else both
    return {query.columns[i]: moment for i, moment in (common or {}).items()}


def _choose_time(moments: Mapping[str, Moment]) -> str | None:
    """The earliest of the columns, so that the others end no earlier."""
    return min(moments, key=lambda name: moments[name].offset, default=None)


def _add_hidden_time(query: Query) -> tuple[Query, bool]:
    """The query with the time that its rows are final with as one more column, if there is one."""
    terms = []
    for term in query.terms:
        selects = []
        for select in term.selects:
            buckets = [b for b in find_final_buckets(select, term.distinct) if _has_column(select, b.end)]
            if not buckets or (term.distinct and len(term.selects) > 1):
                return query, False
            end = buckets[0].end
            group_by = select.group_by
            if is_aggregate(select) and select.session is None and end not in (group_by or ()):
                group_by = (*(group_by or ()), end)
            items = (*select.items, Item(end, HIDDEN_TIME, HIDDEN_TIME))
            selects.append(replace(select, items=items, group_by=group_by))
        terms.append(replace(term, selects=tuple(selects)))
    projection = query.projection
    if projection:
        name = HIDDEN_TIME
        projection = (*projection, OutputColumn(name, f"`{name}`", f'"{name}"'))
    columns = (*query.columns, HIDDEN_TIME)
    return replace(query, terms=tuple(terms), columns=columns, projection=projection), True


def _has_column(select: Select, ref: Ref) -> bool:
    return any(c.name == ref.column for c in select.occurrence(ref.occurrence).table.all_columns)


def _quote(name: str) -> tuple[str, str]:
    """A name for Spark and for DuckDB."""
    return "`" + name.replace("`", "``") + "`", '"' + name.replace('"', '""') + '"'


def _shift_time(table: str, time: str, name: str, by: int) -> Column:
    """The column that is ``by`` microseconds after the time column; its end is not before the time column."""
    spark, duckdb = _quote(time)
    texts = f"timestamp_micros(unix_micros({spark}) + {by})", f"make_timestamp(epoch_us({duckdb}) + {by})"
    length = Literal(timedelta(microseconds=by), INTERVAL)
    fact = Comparison(Ref(table, name), Op.EQ, Arithmetic("+", Ref(table, time), length), name)
    function = TimeFunction(1 + max(0, -by), monotone=True, end=f"end of {name}")
    return Column(name, TIMESTAMP, False, Derivation(*texts, (fact,), function))


def _derive_fields(
    table: str, query: Query, time: str, moment: Moment, names: Sequence[str]
) -> dict[str, Column]:
    """Output columns that are calendar fields of the time: the day of an hour, its year."""
    if len(query.selects) != 1:
        return {}
    (select,) = query.selects
    within = _find_inner_point(select, moment)
    stream = select.occurrence(moment.ref.occurrence).table
    if within is None or stream.time is None:
        return {}
    unit, shift = within
    spark, duckdb = _quote(time)
    point = (
        f"timestamp_micros(unix_micros({spark}) + {shift})",
        f"make_timestamp(epoch_us({duckdb}) + {shift})",
    )
    derived: dict[str, Column] = {}
    computed = {each.name for each in query.projection if each.sql != _quote(each.name)[0]}
    for item, name in zip(select.items, query.columns, strict=True):
        ref = item.expression
        if name in computed or name not in names:
            continue
        if not isinstance(ref, Ref) or ref.occurrence != moment.ref.occurrence or ref == moment.ref:
            continue
        function, column = find_time_function(select, ref), stream.column(ref.column)
        if name == time or function is None or column.derivation is None or isinstance(function.unit, int):
            continue
        if function.shift or function.lag:
            continue
        if LONGEST[function.unit] < unit or function.unit == "week":
            continue
        texts = [
            text.replace(quoted, new)
            for text, quoted, new in zip(
                (column.derivation.sql, column.derivation.duckdb), _quote(stream.time), point, strict=True
            )
        ]
        renamed = {Ref(stream.name, ref.column): Ref(table, name)}
        facts = (fact for fact in column.derivation.facts if refs(fact) == set(renamed))
        moved = tuple(rename_refs(fact, renamed.__getitem__) for fact in facts)
        plain = Derivation(texts[0], texts[1], moved, replace(function, end=None))
        derived[name] = Column(name, column.type, True, plain)
    return derived


def _find_inner_point(select: Select, moment: Moment) -> tuple[int, int] | None:
    """The length of the calendar unit of a moment, and the distance from the moment to a point in it."""
    table = select.occurrence(moment.ref.occurrence).table
    if moment.ref.column == table.time:
        return 0, -moment.offset
    function = find_time_function(select, moment.ref)
    if function is not None and isinstance(function.unit, str) and moment.offset == 0:
        is_within = not function.shift and not function.lag
        return (LONGEST[function.unit], 0) if is_within else None
    for unit, length in LONGEST.items():
        if moment.ref.column == f"end of {unit} of {table.time}" and moment.offset == 0:
            return length, -1
    return None

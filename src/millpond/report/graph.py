"""The columns and predicates of a select as a graph: what the picture of a query shows.

Every occurrence of a table is a box of its columns, every comparison of two columns an edge from the smaller
one to the larger one (paper 1, Figure 1).  Comparisons with constants are bounds of their column.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property

from millpond.analysis.blocks import open_blocks
from millpond.analysis.reasons import name_column
from millpond.analysis.verdict import Reason, Verdict
from millpond.query.closure import Range
from millpond.query.derived_names import strip_mark
from millpond.query.difference_bounds import to_column_and_shift
from millpond.query.durations import format_duration
from millpond.query.expressions import And, Comparison, Condition, Op, Ref, Scalar
from millpond.query.finite_columns import count_finite_values
from millpond.query.model import Column, NullRow, Occurrence, Select, Subquery, Table, Windowed
from millpond.query.normalize import TooManyParts, push_negations
from millpond.query.number_line import Points
from millpond.query.parts import Part, split_into_parts
from millpond.query.trace import find_used_columns
from millpond.query.trees import children, find_aggregates, is_aggregate, refs
from millpond.query.types import Domain, Family, SqlType
from millpond.query.variants import join_subqueries

# Tables with more columns show only those that the query uses.
_MOST_COLUMNS = 8


class Sign(Enum):
    """How an edge compares its two columns."""

    LESS = "<"
    AT_MOST = "≤"
    EQUAL = "="
    DIFFERENT = "≠"


class Role(Enum):
    """What a column is in the result of its select."""

    NONE = ""
    SHOWN = "in the result"
    GROUPED = "a group column"
    AGGREGATED = "aggregated"


@dataclass(frozen=True)
class GraphColumn:
    """A column of a box.  ``bound`` is what constants say about its values, in a few words."""

    ref: Ref
    name: str
    type: str
    bound: str | None
    is_bounded: bool
    is_used: bool
    is_guilty: bool
    is_time: bool
    is_derived: bool
    role: Role


@dataclass(frozen=True)
class Box:
    """An occurrence of a table, and how many of its columns are left out because the query ignores them."""

    alias: str
    name: str
    kind: str
    columns: tuple[GraphColumn, ...]
    left_out: int = 0


@dataclass(frozen=True)
class Edge:
    """A comparison of two columns: ``low SIGN high + shift``.

    ``is_conditional``: it stands below an OR, so not every match fulfils it.
    """

    low: Ref
    high: Ref
    sign: Sign
    shift: str
    text: str
    is_guilty: bool = False
    is_conditional: bool = False

    @property
    def label(self) -> str:
        return f"{self.sign.value} {self.shift}".strip()


@dataclass(frozen=True)
class Graph:
    """The boxes of a select in the order of FROM, and its edges.

    ``caption`` says which select it is, if the query has several.
    """

    caption: str
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]


def build_graphs(verdict: Verdict, name: str = "") -> list[Graph]:
    """One graph for each select of the query: those of blocks come before the one that reads them."""
    graphs = [graph for block in verdict.blocks.items() for graph in build_graphs(block[1], block[0])]
    opened = open_blocks(verdict.query)
    pairs = list(zip(verdict.query.selects, opened.selects, strict=True))
    title = f"block {strip_mark(name)}" if name else "the query over its blocks" if graphs else ""
    for number, (select, known) in enumerate(pairs, start=1):
        which = f"select {number} of {len(pairs)}" if len(pairs) > 1 else ""
        caption = ", ".join(text for text in (title, which) if text)
        graphs.append(_build_graph(caption, select, known, verdict.reasons))
    return graphs


def _build_graph(caption: str, select: Select, opened: Select, reasons: Sequence[Reason]) -> Graph:
    bounds = _Bounds(join_subqueries(opened))
    edges = tuple(_list_edges(select, reasons))
    shown = {ref for edge in edges for ref in (edge.low, edge.high)}
    boxes = [_build_box(select, o, bounds, shown, reasons) for o in select.every_occurrence]
    return Graph(caption, tuple(boxes), edges)


# --- boxes -------------------------------------------------------------------------------------------


def _build_box(
    select: Select, occurrence: Occurrence, bounds: _Bounds, shown: Collection[Ref], reasons: Sequence[Reason]
) -> Box:
    table, alias = occurrence.table, occurrence.alias
    used = find_used_columns(select, alias)
    named = {_name_function(table, column) for reason in reasons for column in [reason.predicate] if column}
    columns = []
    for column in table.all_columns:
        ref = Ref(alias, column.name)
        is_used = column.name in used or ref in shown
        if column.derivation is not None and not is_used:
            continue
        role, names = _find_role(select, ref), {column.name, name_column(select, ref)}
        # A reason without a predicate is about a column of the result.
        guilty = any(names & {*r.columns} and (r.predicate or role is not Role.NONE) for r in reasons)
        columns.append(
            GraphColumn(
                ref,
                _find_column_text(table, column),
                column.type.name,
                bounds.describe(ref),
                bounds.is_bounded(ref),
                is_used,
                guilty or column.name in named,
                column.name == table.time,
                column.derivation is not None,
                role,
            )
        )
    kept = [c for c in columns if c.is_used] if len(columns) > _MOST_COLUMNS else columns
    return Box(
        alias, _find_table_name(table), _find_kind(select, occurrence), tuple(kept), len(columns) - len(kept)
    )


def _find_table_name(table: Table) -> str:
    """The name that the user knows: of the table itself, or of that below window functions."""
    while isinstance(table.block, Windowed):
        table = table.block.base
    return table.declared.name


def _find_column_text(table: Table, column: Column) -> str:
    """The column's name, or the user's own spelling of the window function that it is."""
    while isinstance(table.block, Windowed):
        for function in table.block.functions:
            if function.name == column.name and function.text:
                return function.text
        table = table.block.base
    return strip_mark(column.name)


def _name_function(table: Table, text: str) -> str | None:
    """The column of a window function that is written so."""
    while isinstance(table.block, Windowed):
        for function in table.block.functions:
            if function.text == text:
                return function.name
        table = table.block.base
    return None


def _find_kind(select: Select, occurrence: Occurrence) -> str:
    """What the occurrence is, in a few words."""
    table = occurrence.table
    kind = "stream" if table.streaming else "relation"
    if isinstance(table.block, Subquery):
        kind = "block"
    elif isinstance(table.block, Windowed):
        kind = "stream with window functions"
    elif isinstance(table.block, NullRow):
        kind = "row of NULLs"
    for exists in select.exists:
        if occurrence in exists.occurrences:
            return f"{kind}, {'NOT EXISTS' if exists.negated else 'EXISTS'}"
    for join in select.joins:
        if join.alias == occurrence.alias and join.side.value != "INNER":
            return f"{kind}, {join.side.value} JOIN"
    return kind


def _find_role(select: Select, ref: Ref) -> Role:
    if any(ref in refs(a) for a in find_aggregates(select)):
        return Role.AGGREGATED
    if ref in (select.group_by or ()):
        return Role.GROUPED
    if not is_aggregate(select) and any(ref in refs(item.expression) for item in select.items):
        return Role.SHOWN
    return Role.NONE


# --- bounds ------------------------------------------------------------------------------------------


class _Bounds:
    """What the condition and the CHECKs of a select say about the values of its columns."""

    def __init__(self, select: Select) -> None:
        self._select = select

    @cached_property
    def _parts(self) -> list[Part]:
        try:
            return split_into_parts(self._select, disjoint=False)
        except TooManyParts:
            return []

    def is_bounded(self, ref: Ref) -> bool:
        """Whether the column has finitely many values in every match."""
        if not self._parts or any(ref not in part.closure.index for part in self._parts):
            return self._type_of(ref).domain is Domain.BOUNDED or self._is_of_relation(ref)
        return all(part.closure.is_bounded(ref) for part in self._parts)

    def describe(self, ref: Ref) -> str | None:
        """The bounds of the column in a few words; None without any that its type does not have."""
        parts = [part for part in self._parts if ref in part.closure.index]
        if not parts or len(parts) < len(self._parts):
            return None
        if any(ref in part.closure.limited for part in parts):
            count = count_finite_values(self._select, ref, parts[0].closure)
            return None if count is None else f"at most {count:,} values"
        type_, values = self._type_of(ref), _find_hull([part.closure.range(ref) for part in parts])
        if type_.domain is Domain.BOUNDED and (values.low, values.high) == (type_.low, type_.high):
            return None
        return _describe_range(values, parts[0], type_)

    def _type_of(self, ref: Ref) -> SqlType:
        return self._select.type_of(ref)

    def _is_of_relation(self, ref: Ref) -> bool:
        return not self._select.occurrence(ref.occurrence).table.streaming


def _find_hull(ranges: Sequence[Range]) -> Range:
    """The smallest range that contains all of them."""
    lows = [(r.low, r.low_strict) for r in ranges if r.low is not None]
    highs = [(r.high, not r.high_strict) for r in ranges if r.high is not None]
    low = min(lows) if len(lows) == len(ranges) else (None, False)
    high = max(highs) if len(highs) == len(ranges) else (None, True)
    return Range(low[0], high[0], low[1], not high[1])


def _describe_range(values: Range, part: Part, type_: SqlType) -> str | None:
    def show(point: Fraction) -> str:
        return _show_value(part.points.value(point, type_))

    if values.low is not None and values.low == values.high:
        return f"= {show(values.low)}"
    above = f"{'>' if values.low_strict else '≥'} {show(values.low)}" if values.low is not None else ""
    below = f"{'<' if values.high_strict else '≤'} {show(values.high)}" if values.high is not None else ""
    if above and below and values.low is not None and values.high is not None:
        strict = values.low_strict or values.high_strict
        return f"{above}, {below}" if strict else f"{show(values.low)} … {show(values.high)}"
    return above or below or None


def _show_value(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else str(value)


# --- edges -------------------------------------------------------------------------------------------


def _list_edges(select: Select, reasons: Sequence[Reason]) -> Iterator[Edge]:
    """The comparisons of two columns, each once, that the user wrote."""
    predicates = [reason.predicate for reason in reasons if reason.predicate]
    conditions = [select.where, *(j.on for j in select.joins), *(e.condition for e in select.exists)]
    seen = set()
    for condition in conditions:
        for comparison, is_conditional in _list_comparisons(push_negations(condition)):
            edge = _build_edge(select, comparison, is_conditional, predicates)
            if edge is None or (edge.low, edge.high, edge.label) in seen:
                continue
            seen.add((edge.low, edge.high, edge.label))
            yield edge


def _list_comparisons(
    condition: Condition, is_conditional: bool = False
) -> Iterator[tuple[Comparison, bool]]:
    if isinstance(condition, Comparison):
        yield condition, is_conditional
        return
    for each in children(condition):
        below = is_conditional or not isinstance(condition, And)
        yield from _list_comparisons(each, below)  # type: ignore[arg-type]


def _build_edge(
    select: Select, comparison: Comparison, is_conditional: bool, predicates: Sequence[str]
) -> Edge | None:
    """The edge of a comparison; None if it compares a column with a constant."""
    left, a = to_column_and_shift(comparison.left, Points())
    right, b = to_column_and_shift(comparison.right, Points())
    if left is None or right is None:
        return None
    shift, operator = b - a, comparison.operator
    if operator in (Op.GT, Op.GE):
        left, right, shift, operator = right, left, -shift, operator.mirrored
    sign = {Op.LT: Sign.LESS, Op.LE: Sign.AT_MOST, Op.EQ: Sign.EQUAL}.get(operator, Sign.DIFFERENT)
    text = comparison.text or f"{left} {operator.value} {right}"
    is_guilty = any(contains_predicate(predicate, comparison.text) for predicate in predicates)
    by = _show_shift(shift, select.type_of(left))
    return Edge(left, right, sign, by, text, is_guilty, is_conditional)


def _show_shift(shift: Fraction, type_: SqlType) -> str:
    if not shift:
        return ""
    number = abs(shift)
    size = f"{float(number):g}" if type_.family is not Family.TIME else format_duration(int(number))
    return f"{'+' if shift > 0 else '-'} {size}"


def contains_predicate(whole: str, predicate: str) -> bool:
    """Whether a predicate occurs in a conjunction, as a whole and not as the end of a longer one.

    >>> contains_predicate("a.x < b.y AND c = d", "c = d"), contains_predicate("aa.x < b.y", "a.x < b.y")
    (True, False)
    """
    if not predicate:
        return False
    return re.search(rf"(?<![\w.`]){re.escape(predicate)}(?![\w.`])", whole) is not None

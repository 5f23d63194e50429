"""What Spark's own operators would keep for a query: a model, from the definitions of these operators.

Spark keeps whole rows or groups until the watermark passes them: a join of two streams the rows of both
sides, dropDuplicates every different row, an aggregation every group.  The model counts them in the worst
case: all rows pass the filters, come on streams whose rows are kept, and have a new value in every column
that the query does not bound.  Spark gets the same watermarks.  It is not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, prod

from millpond.query.aggregate_functions import Memory, find_memory, keeps_values
from millpond.query.durations import parse_duration, parse_rate
from millpond.query.expressions import Aggregate, Comparison, Op, Ref
from millpond.query.finite_columns import count_finite_values
from millpond.query.model import JoinSide, Occurrence, Query, Select, Subquery
from millpond.query.normalize import TooManyParts
from millpond.query.parts import Part, split_into_parts
from millpond.query.result_times import find_final_buckets
from millpond.query.time_order import TimeOrder
from millpond.query.trace import list_blocks
from millpond.query.trees import conjuncts, find_aggregates, is_aggregate, item_refs, refs
from millpond.query.types import Domain
from millpond.query.variants import join_subqueries

# The rows of a second, on each stream, where none are declared: a window is that much state.
ASSUMED_RATE = 100
# Columns of relations have finitely many values; this many are assumed.
_RELATION_VALUES = 100

Entries = Callable[[float], float]


@dataclass(frozen=True)
class SparkOperator:
    """An operator of Spark with state: what it keeps, in words, and how many entries after so many rows.

    ``entries`` is None for groups that close: Spark forgets them when Millpond does.
    """

    text: str
    entries: Entries | None
    grows: bool = False


@dataclass(frozen=True)
class SparkModel:
    """The operators with state that Spark would run, or why it ``refuses`` the query."""

    operators: tuple[SparkOperator, ...]
    refuses: str | None = None

    def count(self, rows: float, open_groups: float) -> float:
        """The entries that are kept after so many rows, of all streams together, with so many open groups."""
        return sum(
            min(rows, open_groups) if operator.entries is None else operator.entries(rows)
            for operator in self.operators
        )

    @property
    def has_open_groups(self) -> bool:
        return any(operator.entries is None for operator in self.operators)

    @property
    def grows(self) -> bool:
        return any(operator.grows for operator in self.operators)


class _RefusedError(Exception):
    """Spark does not run such a query."""


def model_spark(query: Query) -> SparkModel | None:
    """The model of a query without subqueries; None if it has some, or too many alternatives."""
    tables = query.tables.values()
    if any(True for _ in list_blocks(query)):
        return SparkModel((), "Spark has no window functions over streams")
    if query.limit is not None or any(isinstance(table.block, Subquery) for table in tables):
        return None
    try:
        operators: list[SparkOperator] = []
        for term in query.terms:
            for select in term.selects:
                operators += _SelectModel(select, term.distinct).list_operators()
        return SparkModel(tuple(operators))
    except _RefusedError as refusal:
        return SparkModel((), str(refusal))
    except TooManyParts:
        return None


class _SelectModel:
    """The operators of one select."""

    def __init__(self, select: Select, distinct: bool) -> None:
        self._select = select
        self._distinct = distinct
        self._joined = join_subqueries(select)
        self._parts = split_into_parts(self._joined, disjoint=False)
        self._streams = [o for o in select.every_occurrence if o.table.streaming]

    def list_operators(self) -> Iterator[SparkOperator]:
        if not self._parts:  # the condition is never true
            return
        yield from self._list_joins()
        if self._select.session is not None:
            yield SparkOperator("the aggregation keeps the open sessions", None)
        elif is_aggregate(self._select):
            yield self._model_aggregation()
        elif self._distinct:
            yield self._model_deduplication()

    # --- joins -----------------------------------------------------------------------------------------

    def _list_joins(self) -> Iterator[SparkOperator]:
        for position, stream in enumerate(self._streams[1:], start=1):
            before = self._streams[:position]
            if not any(self._has_equality(other, stream) for other in before):
                raise _RefusedError("Spark joins two streams only on an equality")
            kept = [self._find_retention(stream, before), self._find_retention_of(before, stream)]
            if self._is_outer(stream) and inf in kept:
                raise _RefusedError("Spark has outer joins of two streams only with a window of time")
            yield self._describe_join(before, stream, kept)

    def _describe_join(
        self, before: Sequence[Occurrence], stream: Occurrence, kept: Sequence[float]
    ) -> SparkOperator:
        rates = [_find_rate(stream), min(map(_find_rate, before))]
        most = sum(rate * seconds for rate, seconds in zip(rates, kept, strict=True) if seconds)

        def count(rows: float) -> float:
            return min(rows, most)

        join = "a LEFT JOIN, as Spark has no NOT EXISTS," if self._is_denied(stream) else "the join"
        names = [stream.alias, " ⋈ ".join(o.alias for o in before)]
        if inf not in kept:
            return SparkOperator(f"{join} keeps rows of {' and '.join(names)} until they are too old", count)
        sides = " and of ".join(name for name, seconds in zip(names, kept, strict=True) if seconds == inf)
        return SparkOperator(f"{join} keeps every row of {sides}", count, True)

    def _is_denied(self, stream: Occurrence) -> bool:
        return any(each.negated and stream in each.occurrences for each in self._select.exists)

    def _is_outer(self, stream: Occurrence) -> bool:
        joins = [join.side for join in self._select.joins if join.alias == stream.alias]
        return self._is_denied(stream) or any(side is not JoinSide.INNER for side in joins)

    def _has_equality(self, one: Occurrence, other: Occurrence) -> bool:
        pair = {one.alias, other.alias}
        return any(
            isinstance(each, Comparison)
            and each.operator is Op.EQ
            and {ref.occurrence for ref in refs(each)} == pair
            for each in conjuncts(self._joined.where)
        )

    def _find_retention(self, stream: Occurrence, others: Sequence[Occurrence]) -> float:
        """For how many seconds the join keeps a row: until no row of the others can match it."""
        return min(self._find_pair_retention(stream, other) for other in others)

    def _find_retention_of(self, before: Sequence[Occurrence], stream: Occurrence) -> float:
        return min(self._find_pair_retention(other, stream) for other in before)

    def _find_pair_retention(self, kept: Occurrence, coming: Occurrence) -> float:
        lags = [TimeOrder(part).max_lag(coming.alias, kept.alias) for part in self._parts]
        known = [lag for lag in lags if lag is not None]
        if len(known) < len(lags):
            return inf
        return max(max(known) / 1e6, 0.0) + max(_find_delay(kept), _find_delay(coming))

    # --- groups ----------------------------------------------------------------------------------------

    def _model_aggregation(self) -> SparkOperator:
        aggregates = find_aggregates(self._select)
        if any(a.distinct for a in aggregates):
            raise _RefusedError("Spark has no DISTINCT inside aggregates of streams")
        keys = tuple(self._select.group_by or ())
        if find_final_buckets(self._select, False):
            return SparkOperator("the aggregation keeps the groups that are still open", None)
        groups = self._count_values(keys)
        names = ", ".join(map(str, keys))
        values = max((self._count_kept_values(a) for a in aggregates), default=1.0)
        if values > 1:
            most = groups * values
            text = "the aggregation keeps every value of each group"
            return SparkOperator(text, lambda rows: min(rows, most), most == inf)
        if groups == inf:
            return SparkOperator(f"the aggregation keeps a group for every {names}", lambda rows: rows, True)
        text = (
            f"the aggregation keeps a group for each {names}" if keys else "the aggregation keeps one group"
        )
        return SparkOperator(text, lambda rows: min(rows, groups))

    def _count_kept_values(self, aggregate: Aggregate) -> float:
        """How many values Spark keeps of a group: all that differ for MEDIAN, one for COUNT."""
        if not keeps_values(aggregate) or aggregate.function == "PERCENTILE_APPROX":
            return 1.0
        if find_memory(aggregate) is Memory.LIST:
            return inf
        return self._count_values(tuple(refs(aggregate)))

    def _model_deduplication(self) -> SparkOperator:
        shown = tuple(sorted(item_refs(self._select.items), key=str))
        if find_final_buckets(self._select, True):
            return SparkOperator("dropDuplicates keeps the rows of times that are still open", None)
        values = self._count_values(shown)
        names = ", ".join(map(str, shown)) or "row"
        if values == inf:
            return SparkOperator(f"dropDuplicates keeps every different {names}", lambda rows: rows, True)
        return SparkOperator(f"dropDuplicates keeps each different {names}", lambda rows: min(rows, values))

    def _count_values(self, columns: Sequence[Ref]) -> float:
        """How many combinations of values the columns have; inf if there is no limit."""
        return prod(max(self._count_column(part, ref) for part in self._parts) for ref in columns)

    def _count_column(self, part: Part, ref: Ref) -> float:
        type_ = self._joined.type_of(ref)
        if ref not in part.closure.index or not part.closure.is_bounded(ref):
            is_small = type_.domain is Domain.BOUNDED and type_.low is not None and type_.high is not None
            return float(type_.high - type_.low) + 1 if is_small else inf  # type: ignore[operator]
        values = part.closure.range(ref)
        if values.low is not None and values.high is not None:
            return float((values.high - values.low) / (type_.step or Fraction(1))) + 1
        count = count_finite_values(self._joined, ref, part.closure)
        return float(_RELATION_VALUES if count is None else count)


def _find_delay(occurrence: Occurrence) -> float:
    """The delay of the declared watermark, in seconds."""
    return (parse_duration(occurrence.table.properties.get("watermark", "")) or 0) / 1e6


def _find_rate(occurrence: Occurrence) -> float:
    return float(parse_rate(occurrence.table.properties.get("rate", "")) or ASSUMED_RATE)

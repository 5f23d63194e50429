"""What a select needs to be answered: joins that are counted, or of which only the existence matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from millpond.plan.classes import ColumnClasses
from millpond.query.expressions import Aggregate, Arithmetic, Condition, Expr, Ref
from millpond.query.model import PartnerTest, Query, Select, SemiJoin
from millpond.query.parts import Part
from millpond.query.split_products import Product, split_products
from millpond.query.trees import aliases_in, is_aggregate


@dataclass(frozen=True)
class Measure:
    """What is added up over the rows of a class: the non-null values of an expression, or their count.

    Only rows for which all ``given`` hold count.  If ``squared``, the squares of integers are added up.
    """

    expression: Expr
    summed: bool
    squared: bool = False
    given: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class MeasuredProduct:
    """What is added up over matches: products of the measures of one or several occurrences.

    The number of values of an aggregate is the sum of those of its products that ``lead``.
    """

    factors: tuple[tuple[str, Measure], ...]
    leads: bool = field(default=True, compare=False)

    @property
    def summed(self) -> bool:
        """Whether values are added up, not only counted."""
        return any(measure.summed for _, measure in self.factors)

    @property
    def squared(self) -> bool:
        """Whether squares are added up."""
        return any(measure.squared for _, measure in self.factors)

    def find_factor(self, alias: str) -> Measure | None:
        """The measure of an occurrence; None if the product has none of it."""
        return dict(self.factors).get(alias)


def list_measures(aggregate: Aggregate) -> tuple[MeasuredProduct, ...]:
    """What is added up for an aggregate: sums, or counts of non-null values, of its arguments.

    VARIANCE and its like need the sums of squares and products as well.
    """
    summed = aggregate.function != "COUNT"
    if len(aliases_in(aggregate)) > 1:
        products = split_products(_multiply_arguments(aggregate)) or ()
        return tuple(_measure_product(each, summed) for each in products if each.leads or summed)
    measures = [Measure(each, summed) for each in aggregate.arguments]
    if aggregate.function not in ("COUNT", "SUM", "AVG"):
        measures += [Measure(each, summed=True, squared=True) for each in aggregate.arguments]
    if aggregate.others:
        product = Arithmetic("*", aggregate.arguments[0], aggregate.arguments[1])
        measures.append(Measure(product, summed=True))
    homes = [next(iter(aliases_in(each.expression)), None) for each in measures]
    pairs = [(home, each) for home, each in zip(homes, measures, strict=True) if home is not None]
    return tuple(MeasuredProduct((pair,), number == 0) for number, pair in enumerate(pairs))


def _multiply_arguments(aggregate: Aggregate) -> Expr:
    """What an aggregate over several tables adds up; of VARIANCE and its like, only the highest powers."""
    one = aggregate.arguments[0]
    if aggregate.function in ("COUNT", "SUM", "AVG"):
        return one
    return Arithmetic("*", one, aggregate.others[0] if aggregate.others else one)


def _measure_product(product: Product, summed: bool) -> MeasuredProduct:
    factors = []
    for alias, factor in product.factors:
        given = tuple(each for each in product.given if aliases_in(each) == {alias})
        factors.append((alias, Measure(factor, summed, given=given)))
    return MeasuredProduct(tuple(factors), product.leads)


@dataclass(frozen=True)
class PartnerWait:
    """Matches wait for a partner of their row of ``alias``, which may come any time later.

    The partners are the matches of ``need``, whose scope does not contain ``alias``.  They are compared with
    columns of the row that have finitely many ``classes``.  ``lags`` are timestamps of the partner, and by
    how many microseconds the row can be later than them; none if the partner may also come any time before.
    Rows that are at least ``slack`` microseconds older than the watermark are in time for any partner.
    """

    alias: str
    need: Need
    classes: tuple[ColumnClasses, ...]
    time: Ref | None = None
    lags: tuple[tuple[Ref, int], ...] = ()
    slack: int = 0

    @property
    def refs(self) -> frozenset[Ref]:
        """The columns of the row that are kept while it waits."""
        times = [self.time] if self.time is not None else []
        return frozenset([*(each.column for each in self.classes), *times])


@dataclass(frozen=True)
class Need:
    """A join of the occurrences ``scope`` of a part that has to be evaluated.

    ``counted``: how often does each combination of ``projected`` values occur, with ``measures`` added up.
    Otherwise only its existence matters.  ``outer_columns`` are columns of occurrences out of scope with
    which those in scope are compared.  With ``wait``, matches count from the time when they have a partner.
    ``values`` is set if only so many different values of the aggregate's argument are kept for each class of
    rows, or so many registers of a sketch; no engine does this.
    """

    part: Part
    scope: tuple[str, ...]
    counted: bool
    projected: tuple[Ref, ...]
    outer_columns: tuple[Ref, ...] = ()
    measures: tuple[MeasuredProduct, ...] = ()
    aggregate: Aggregate | None = None
    wait: PartnerWait | None = None
    values: int | None = None


@dataclass(frozen=True)
class PartnerNeeds:
    """What decides whether rows of occurrence ``alias`` have a partner: the matches of ``needs`` exist.

    ``columns`` of the row and its timestamp ``time`` determine the answer.  It is known when time has
    advanced by ``lag`` microseconds after the row: no partner can come later.
    """

    alias: str
    test: PartnerTest
    time: Ref | None
    columns: tuple[Ref, ...]
    lag: int
    needs: tuple[Need, ...]

    def decides(self, alias: str, test: PartnerTest) -> bool:
        """Whether these needs decide a test of an occurrence."""
        mine = self.test
        return (alias, test.partners, test.condition) == (self.alias, mine.partners, mine.condition)


@dataclass(frozen=True)
class SelectNeeds:
    """The needs of one select, by part; ``partners`` are those of its tables with or without partners."""

    select: Select
    distinct: bool
    parts: tuple[tuple[Part, tuple[Need, ...]], ...]
    partners: tuple[PartnerNeeds, ...] = ()

    @property
    def every_part(self) -> tuple[Part, ...]:
        """The parts of the select, and those of its partners."""
        tests = (need.part for each in self.partners for need in each.needs)
        return (*(part for part, _ in self.parts), *tests, *(wait.need.part for wait in self.waits))

    @property
    def waits(self) -> tuple[PartnerWait, ...]:
        """The partners that matches wait for."""
        return tuple(need.wait for _, wanted in self.parts for need in wanted if need.wait is not None)

    @property
    def lag(self) -> int:
        """By how many microseconds the results follow the watermark."""
        return max((each.lag for each in self.partners), default=0)

    def find_hold(self, part: Part) -> int:
        """For how many microseconds the rows of a part are held back.

        Results that are written at once need not wait for those of other parts.
        """
        tested = any(isinstance(o.table.block, SemiJoin) for o in part.select.occurrences)
        return self.lag if tested or self.distinct or is_aggregate(self.select) else 0


@dataclass(frozen=True)
class TimedPlan:
    """The plan of a bounded query in which timestamps matter: the needs of every select.

    ``partial_matches.py`` derives from them which partial matches are kept.
    """

    query: Query
    selects: tuple[SelectNeeds, ...]


def find_separate_needs(need: Need, wanted: Sequence[Need]) -> list[Need]:
    """The other needs of an aggregate, if its matches are the cross product of their matches; otherwise none.

    One of them is counted; of the others only the existence of a match matters.
    """
    same = [other for other in wanted if other.aggregate == need.aggregate]
    if len(same) == 1 or not any(other.counted for other in same):
        return []
    return [other for other in same if other is not need]

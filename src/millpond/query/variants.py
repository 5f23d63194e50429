"""Rewrites a select with outer joins or EXISTS as variants: selects with inner joins only.

The results of a select are those of its variants together.  ``a LEFT JOIN b`` has two: the inner join, and
the rows of ``a`` that have no partner, with NULL in the columns of ``b``.  Rows with or without a partner are
a table of their own (``Table.block``), so whoever works on a variant sees ordinary tables.  Where duplicates
do not matter, the tables of EXISTS are simply joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from millpond.query.aggregate_functions import ignores_duplicates
from millpond.query.expressions import And, Comparison, Condition, IsNull, Truth
from millpond.query.model import (
    Exists,
    Join,
    JoinSide,
    NullRow,
    Occurrence,
    PartnerTest,
    Select,
    SemiJoin,
    Table,
)
from millpond.query.normalize import push_negations
from millpond.query.trees import (
    Node,
    aliases_in,
    conjuncts,
    find_aggregates,
    is_aggregate,
    item_refs,
    refs,
    transform,
)


class VariantGap(StrEnum):
    """Why a select has no variants: what is not supported of outer joins and subqueries."""

    SEVERAL_STREAMS = "several-streams"
    NESTED = "nested"
    SESSION = "session"


class NoVariantsError(Exception):
    """The select cannot be rewritten; ``predicate`` is the part of the text that is the cause."""

    def __init__(self, gap: VariantGap, predicate: str = "", aliases: Sequence[str] = ()) -> None:
        super().__init__(gap.value)
        self.gap = gap
        self.predicate = predicate
        self.aliases = tuple(aliases)


def list_variants(select: Select, distinct: bool) -> tuple[Select, ...]:
    """The variants of a select, which is its own only variant if all its joins are inner ones.

    Variants keep the aliases, the select list and the grouping.  Raises NoVariantsError.
    """
    if not select.joins and not select.exists:
        return (select,)
    if select.session is not None:
        raise NoVariantsError(VariantGap.SESSION)
    drafts = [_Draft(select.occurrences[: 1 if select.joins else None])]
    for occurrence, join in zip(select.occurrences[1:], select.joins, strict=bool(select.joins)):
        if not _can_be_dropped(select, join, distinct):
            drafts = _join(drafts, occurrence, join)
    found = []
    for draft in drafts:
        finished = draft.require(select.where)
        for exists in select.exists:
            if finished is not None:
                finished = _require_exists(finished, exists, _ignores_duplicates(select, distinct))
        if finished is not None:
            found.append(finished.build(select))
    return tuple(found)


def join_subqueries(select: Select) -> Select:
    """The select with all joins made inner ones, and the tables of its subqueries joined as well.

    Its results differ, but it compares the same columns: witnesses are searched among its rows.
    """
    if not select.joins and not select.exists:
        return select
    conditions = [*(join.on for join in select.joins), select.where]
    conditions += [each.condition for each in select.exists]
    where = And(tuple(c for condition in conditions for c in conjuncts(condition)))
    return replace(select, occurrences=select.every_occurrence, where=where, joins=(), exists=())


def _ignores_duplicates(select: Select, distinct: bool) -> bool:
    """Whether the answer depends only on the set of matches."""
    if not is_aggregate(select):
        return distinct
    return all(ignores_duplicates(a) for a in find_aggregates(select))


def _can_be_dropped(select: Select, join: Join, distinct: bool) -> bool:
    """A LEFT JOIN whose columns are not used, where duplicates do not matter: it changes nothing."""
    used = item_refs(select.items) | refs(select.where) | refs(select.having) | set(select.group_by or ())
    conditions = [*(each.on for each in select.joins if each is not join)]
    conditions += [each.condition for each in select.exists]
    used = used.union(*(refs(condition) for condition in conditions))
    unused = all(ref.occurrence != join.alias for ref in used)
    return unused and join.side is JoinSide.LEFT and _ignores_duplicates(select, distinct)


# --- drafts ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Draft:
    """A variant in the making.  ``missing`` occurrences have no partner: their columns are NULL."""

    occurrences: tuple[Occurrence, ...]
    where: tuple[Condition, ...] = ()
    missing: frozenset[str] = frozenset()
    tests: dict[str, tuple[PartnerTest, ...]] = field(default_factory=dict)

    def add(self, *occurrences: Occurrence) -> _Draft:
        return replace(self, occurrences=(*self.occurrences, *occurrences))

    def add_missing(self, occurrence: Occurrence) -> _Draft:
        return replace(self.add(occurrence), missing=self.missing | {occurrence.alias})

    def add_test(self, alias: str, test: PartnerTest) -> _Draft:
        return replace(self, tests={**self.tests, alias: (*self.tests.get(alias, ()), test)})

    def require(self, condition: Condition) -> _Draft | None:
        """The draft with one more condition; None if the condition can never be true."""
        known = self.simplify(condition)
        return None if _is_never_true(known) else replace(self, where=(*self.where, *conjuncts(known)))

    def simplify(self, condition: Condition) -> Condition:
        """The condition with what follows from the NULLs of missing occurrences."""

        def decide(node: Node) -> Node | None:
            if not isinstance(node, Comparison | IsNull) or not aliases_in(node) & self.missing:
                return None
            return Truth(True if isinstance(node, IsNull) else None)

        if not self.missing:
            return condition
        return push_negations(transform(push_negations(condition), decide))

    def build(self, select: Select) -> Select:
        used = item_refs(select.items) | refs(select.having) | set(select.group_by or ())
        nulls = [IsNull(ref) for ref in sorted(used, key=str) if ref.occurrence in self.missing]
        where = (*self.where, *nulls)
        return replace(
            select,
            occurrences=tuple(Occurrence(o.alias, self._table(o)) for o in self.occurrences),
            where=And(where) if where else Truth(True),
            joins=(),
            exists=(),
        )

    def _table(self, occurrence: Occurrence) -> Table:
        if occurrence.alias in self.missing:
            return _null_row(occurrence.table)
        tests = self.tests.get(occurrence.alias)
        if tests is None:
            return occurrence.table
        return replace(occurrence.table, block=SemiJoin(occurrence.alias, occurrence.table, tests))


def _null_row(table: Table) -> Table:
    """The relation with one row of NULLs."""
    columns = tuple(replace(c, nullable=True, derivation=None) for c in table.all_columns)
    return Table(f"no {table.name}", columns, False, block=NullRow(table))


def _is_never_true(condition: Condition) -> bool:
    return any(c in (Truth(False), Truth(None)) for c in conjuncts(condition))


# --- joins -------------------------------------------------------------------------------------------


def _join(drafts: Sequence[_Draft], right: Occurrence, join: Join) -> list[_Draft]:
    """Join an occurrence to all drafts."""
    found: list[_Draft] = []
    for draft in drafts:
        matched = draft.add(right).require(join.on)
        if matched is not None:
            found.append(matched)
        if join.side.keeps_left:
            alone = draft
            if matched is not None:
                on = draft.simplify(join.on)
                alias = _find_tested(draft, on, (right,), _on_text(join))
                alone = draft.add_test(alias, PartnerTest((right,), on, present=False))
            found.append(alone.add_missing(right))
    if join.side.keeps_right:
        found.append(_keep_right(drafts, right, join))
    return found


def _keep_right(drafts: Sequence[_Draft], right: Occurrence, join: Join) -> _Draft:
    """The rows of an occurrence that have no partner among the occurrences before it."""
    kept = _Draft(())
    for o in drafts[0].occurrences:
        kept = kept.add_missing(o)
    for draft in drafts:
        matched = draft.require(join.on)
        if matched is None:
            continue
        if matched.tests:
            raise NoVariantsError(VariantGap.NESTED, _on_text(join))
        partners = tuple(o for o in draft.occurrences if o.alias not in draft.missing)
        where = And(matched.where) if matched.where else Truth(True)
        kept = kept.add_test(right.alias, PartnerTest(partners, where, present=False))
    return kept.add(right)


def _on_text(join: Join) -> str:
    """The predicates of an ON condition as written."""
    texts = (c.text for c in conjuncts(join.on) if isinstance(c, Comparison | IsNull) and c.text)
    return " AND ".join(dict.fromkeys(texts))


def _require_exists(draft: _Draft, exists: Exists, as_join: bool) -> _Draft | None:
    """The draft with an EXISTS; None if it can never be true."""
    condition = draft.simplify(exists.condition)
    if _is_never_true(condition):
        return draft if exists.negated else None
    if as_join and not exists.negated:
        return draft.add(*exists.occurrences).require(condition)
    alias = _find_tested(draft, condition, exists.occurrences, exists.text)
    return draft.add_test(alias, PartnerTest(exists.occurrences, condition, not exists.negated))


def _find_tested(draft: _Draft, condition: Condition, partners: Sequence[Occurrence], text: str) -> str:
    """The one occurrence whose rows are tested: the only one that the condition compares with partners."""
    inner = {o.alias for o in partners}
    outer = [o for o in draft.occurrences if o.alias not in draft.missing]
    compared = [o.alias for o in outer if o.alias in aliases_in(condition) - inner]
    if len(compared) > 1:
        raise NoVariantsError(VariantGap.SEVERAL_STREAMS, text, compared)
    if compared:
        return compared[0]
    return next((o.alias for o in outer if o.table.streaming), outer[0].alias)

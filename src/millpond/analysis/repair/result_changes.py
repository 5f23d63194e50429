"""Changes of the result: DISTINCT, fewer columns, approximate counts, EXISTS instead of a join."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.analysis.repair.changes import Change, Removal
from millpond.analysis.repair.constants import Sample
from millpond.analysis.repair.model import Edit, Meaning, RepairKind
from millpond.analysis.repair.subject import Subject
from millpond.errors import one_line
from millpond.frontend.outline import SelectOutline, SourceOutline


def list_distinct(subject: Subject, sample: Sample) -> Iterator[Change]:
    """SELECT DISTINCT instead of SELECT."""
    for select in subject.selects:
        if not select.distinct and not select.group_by:
            yield Change(
                RepairKind.DISTINCT,
                "show each result only once",
                "",
                Meaning.FEWER,
                edits=(Edit(select.head, select.head, " DISTINCT"),),
            )


def list_approximations(subject: Subject, sample: Sample) -> Iterator[Change]:
    """approx_count_distinct instead of COUNT(DISTINCT …)."""
    for select in subject.selects:
        for call, argument in select.counts:
            shown = one_line(argument.of(subject.text), 40)
            yield Change(
                RepairKind.APPROXIMATE,
                "count the different values of {} approximately",
                shown,
                Meaning.APPROXIMATE,
                edits=(Edit(call.start, argument.start, "approx_count_distinct("),),
            )


def list_dropped(subject: Subject, sample: Sample) -> Iterator[Change]:
    """Select lists, and lists of GROUP BY, without one of their columns."""
    for select in subject.selects:
        if len(select.items) < 2 or any(each.of(subject.text).isdecimal() for each in select.group_by):
            continue
        groups = [_fold(each.of(subject.text)) for each in select.group_by]
        for index, item in enumerate(select.items):
            text = item.of(subject.text)
            removals = [Removal(select.items, index)]
            if _fold(text) in groups:
                number = groups.index(_fold(text))
                removals.append(Removal(select.group_by, number, select.group_clause))
            yield Change(
                RepairKind.DROP_COLUMN,
                "leave out {}",
                one_line(text, 40),
                Meaning.CHANGED,
                removals=tuple(removals),
                weight=index,
            )


def _fold(text: str) -> str:
    return " ".join(text.lower().split())


def list_exists(subject: Subject, sample: Sample) -> Iterator[Change]:
    """EXISTS instead of an inner join of two tables, if the result shows columns of one of them."""
    for select in subject.selects:
        if len(select.sources) != 2 or select.group_by or not select.sources[1].inner:
            continue
        first, second = select.sources
        for kept, tested in ((first, second), (second, first)):
            yield Change(
                RepairKind.EXISTS,
                "ask whether there is a row of {}, and not which ones",
                tested.table or tested.alias,
                Meaning.FEWER,
                edits=(_replace_join(subject.text, select, kept, tested),),
            )


def _replace_join(text: str, select: SelectOutline, kept: SourceOutline, tested: SourceOutline) -> Edit:
    """``FROM a JOIN b ON c WHERE d`` becomes ``FROM a WHERE EXISTS (SELECT 1 FROM b WHERE c AND d)``."""
    first, second = select.sources
    conditions = []
    for span, is_disjunction in (
        (second.on, second.on_is_disjunction),
        (select.where, select.is_disjunction),
    ):
        if span is not None:
            conditions.append(f"({span.of(text)})" if is_disjunction else span.of(text))
    between, end = " WHERE ", second.span.end
    if select.where is not None:
        between, end = text[second.span.end : select.where.start], select.where.end
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    changed = f"{kept.named.of(text)}{between}EXISTS (SELECT 1 FROM {tested.named.of(text)}{where})"
    return Edit(first.named.start, end, changed)

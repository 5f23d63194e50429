"""Why a query is not run, and what would make it run.  Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, Verdict
from millpond.engines.lookup.declaration import find_lookup_tables
from millpond.errors import MillpondError, NotBoundedError
from millpond.query.model import And, Comparison, Condition, Literal, Op, Or, Query, Ref, Select
from millpond.query.types import Domain, Family, SqlType

# Names that the output has besides the columns of the query.
RESERVED = ("_kind", "_note", "_revision", "_retracted")


def refuse_unless_runnable(verdict: Verdict, memory: int | None = None, folder: Path | None = None) -> None:
    """Raise what keeps a query from being run: neither a bound nor a budget, no source, a name in the way.

    A query with look-ups needs neither: it runs row by row, in the memory that its relations are given, or is
    refused when its joins are planned.  With the ``folder`` of the query, a refusal also shows what budgets
    would find on the first rows.
    """
    if memory is not None and memory < 1:
        raise MillpondError(f"a budget of {memory} tuples keeps nothing", remedy="give at least 1")
    if verdict.outcome != BOUNDED and memory is None and not find_lookup_tables(verdict.query):
        raise _not_bounded(verdict, "" if folder is None else _budgets(verdict.query, folder))
    for table in verdict.query.tables.values():
        if table.source is None:
            kind = "stream" if table.streaming else "relation"
            raise MillpondError(
                f"the {kind} {table.name} has no source",
                remedy="say where its rows come from: USING json OPTIONS (path '…')",
            )
    for name in verdict.query.columns:
        if name.lower() in RESERVED:
            raise MillpondError(
                f"the output column {name} has a reserved name", remedy="give it another alias"
            )


def _not_bounded(verdict: Verdict, budgets: str) -> NotBoundedError:
    explanation = f"{verdict.explain()}{budgets}"
    message = f"the query is {verdict.outcome}, so it is not run"
    budget = "with --memory N it runs on the N tuples expected to be of most use, and says what it may miss"
    if verdict.outcome != UNBOUNDED:
        return NotBoundedError(message, explanation, budget)
    if bounds := _bounds_that_help(verdict):
        remedy = f"with {' AND '.join(bounds)} in WHERE (or other constants) it would be bounded"
    else:
        remedy = "bound the columns named below by constants in WHERE"
    return NotBoundedError(message, explanation, f"{remedy}; {budget}")


def _budgets(query: Query, folder: Path) -> str:
    """A table of sizes against the results they find; nothing where the streams cannot be looked at."""
    from millpond.engines.budgeted.budget_preview import preview_budgets
    from millpond.engines.budgeted.first_rows import read_first_rows

    streams = read_first_rows(query, folder)
    try:
        found = preview_budgets(query, streams) if streams is not None else []
    except MillpondError:
        return ""
    if not found or streams is None:
        return ""
    rows = max(table.num_rows for table in streams.values())
    lines = [f"  {each.memory:>9,}  {each.part:>8.1%} of the results" for each in found]
    heading = f"With --memory, on the first {rows:,} rows of each stream ({found[0].results:,} results):"
    return "\n".join(["", "", heading, *lines])


def _bounds_that_help(verdict: Verdict) -> list[str]:
    """Conditions on columns of the reasons that make the query bounded: one alone if that is enough."""
    query = verdict.query
    named = list(dict.fromkeys(name for reason in verdict.reasons for name in reason.columns))
    types = {f"{ref}": (ref, kind) for ref, kind in _columns(query)}
    bounds = [(types[name][0], *bound) for name in named if name in types and (bound := _bound(*types[name]))]
    for chosen in (*([each] for each in bounds), bounds):
        if chosen and decide(_with(query, [(ref, c) for ref, c, _ in chosen])).outcome == BOUNDED:
            return [text for _, _, text in chosen]
    return []


def _columns(query: Query) -> Iterator[tuple[Ref, SqlType]]:
    for select in query.selects:
        for occurrence in select.occurrences:
            for column in occurrence.table.columns:
                yield Ref(occurrence.alias, column.name), column.type


def _bound(ref: Ref, kind: SqlType) -> tuple[Condition, str] | None:
    """A condition that leaves a column boundedly many values, and how it is written."""

    def compared(operator: Op, value: object) -> Comparison:
        return Comparison(ref, operator, Literal(value, kind))  # type: ignore[arg-type]

    if kind.domain is Domain.DISCRETE and kind.family is Family.NUMBER:
        return And((compared(Op.GE, 0), compared(Op.LE, 9))), f"{ref} BETWEEN 0 AND 9"
    if kind.family is Family.DATE:
        first, last = date(2000, 1, 1), date(2000, 1, 31)
        text = f"{ref} BETWEEN DATE '{first}' AND DATE '{last}'"
        return And((compared(Op.GE, first), compared(Op.LE, last))), text
    if kind.family is Family.STRING:
        return Or((compared(Op.EQ, "a"), compared(Op.EQ, "b"))), f"{ref} IN ('a', 'b')"
    if kind.family is Family.NUMBER:
        return Or((compared(Op.EQ, 0), compared(Op.EQ, 1))), f"{ref} IN (0, 1)"
    return None


def _with(query: Query, bounds: Iterable[tuple[Ref, Condition]]) -> Query:
    """The query with conditions added to the selects that they speak of."""
    conditions = list(bounds)

    def bounded(select: Select) -> Select:
        aliases = {occurrence.alias for occurrence in select.occurrences}
        added = [condition for ref, condition in conditions if ref.occurrence in aliases]
        return replace(select, where=And((select.where, *added))) if added else select

    terms = (replace(term, selects=tuple(map(bounded, term.selects))) for term in query.terms)
    return replace(query, terms=tuple(terms))

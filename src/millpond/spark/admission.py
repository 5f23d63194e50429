"""Whether a query may run, and how much memory it may use.  Needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from millpond.analysis.decide import plan_in_order
from millpond.analysis.relation_groups import is_of_relation_rows
from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.engines.lookup.declaration import find_lookup_tables, is_lookup
from millpond.engines.lookup.plan import LookupPlan, plan_lookups
from millpond.engines.over.compile import find_gap
from millpond.errors import MillpondError
from millpond.plan.closing import find_output_delay
from millpond.plan.over import find_over_delay
from millpond.policies.registry import PolicyChoice
from millpond.query.current_time import depends_on_current_time
from millpond.query.model import Query, Subquery, Table, Windowed
from millpond.query.result_times import is_revised
from millpond.query.trees import is_aggregate, is_projection
from millpond.spark.unbounded import refuse_unbounded

# Columns that the output has besides those of the query.
RESERVED = ("_kind", "_note", "_revision", "_retracted")


@dataclass(frozen=True)
class Budget:
    """How many tuples may be kept, and the policy that chooses them."""

    memory: int
    policy: PolicyChoice


@dataclass(frozen=True)
class Allowance:
    """The memory that a query may use besides its proven bound.

    ``budget`` is for a query that is not bounded, or bounded only by windows; ``lookups`` has the relations
    that stay in their databases, each with the number of its rows to cache.
    """

    budget: Budget | None = None
    lookups: LookupPlan = field(default_factory=LookupPlan)


def admit(
    verdict: Verdict,
    memory: int | None = None,
    policy: str | PolicyChoice | None = None,
    folder: Path | None = None,
) -> Allowance:
    """Return the memory that a query may use, or raise a MillpondError that says why it cannot run.

    ``memory`` and ``policy`` also apply to lookup relations whose declaration names none.  Paths are relative
    to ``folder``.  If it is given, the first rows of the streams give the refusal of an unbounded query the
    constants of its repairs, and what budgets of several sizes would find.
    """
    _check_runnable(verdict, memory, folder)
    lookups = plan_lookups(verdict.query, memory, policy if isinstance(policy, str) else None, folder)
    if lookups.tables:
        return Allowance(lookups=lookups)
    choice = policy if isinstance(policy, PolicyChoice) else PolicyChoice(policy or "auto")
    # A window is bounded, but may hold more rows than there is memory for.
    if memory is None or (verdict.outcome == BOUNDED and not verdict.state.windows):
        return Allowance()
    return Allowance(Budget(memory, choice))


def _check_runnable(verdict: Verdict, memory: int | None, folder: Path | None) -> None:
    """Refuse a query without a bound or a budget, without sources, or with reserved column names."""
    if memory is not None and memory < 1:
        raise MillpondError(f"a budget of {memory} tuples keeps nothing", remedy="give at least 1")
    if depends_on_current_time(verdict.query):
        raise MillpondError(
            "a condition on the current time is checked, but not run: its answer changes as time passes"
        )
    # Lookups need neither a bound nor a budget: each row is answered by itself.
    if verdict.outcome != BOUNDED and memory is None and not find_lookup_tables(verdict.query):
        raise refuse_unbounded(verdict, folder)
    plans = (verdict.plan, verdict.timed, verdict.over)
    is_planned = bool(verdict.blocks) or verdict.query.limit is not None or plans != (None, None, None)
    if verdict.outcome == BOUNDED and not is_planned and is_of_relation_rows(verdict.query):
        raise MillpondError(
            "groups of a relation, some of whose rows have no partner in a stream, are checked, but not run",
            remedy="join the relation with a subquery that groups the stream by the columns of ON",
        )
    if verdict.outcome == BOUNDED and not is_planned:
        raise MillpondError("the first groups in an order are checked, but not run")
    if any(isinstance(table.block, Windowed) for table in verdict.query.tables.values()):
        _check_window_functions(verdict, memory)
    if verdict.query.limit is not None:
        _check_limit(verdict)
    for table in verdict.query.tables.values():
        if isinstance(table.block, Subquery):
            _check_block(verdict, table)
    for table in verdict.query.tables.values():
        if table.block is None:
            _check_source(table)
    for name in (*verdict.query.columns, *(each.name for each in verdict.query.projection)):
        if name.lower() in RESERVED:
            raise MillpondError(
                f"the output column {name} has a reserved name", remedy="give it another alias"
            )


def _check_limit(verdict: Verdict) -> None:
    """Refuse LIMIT without ORDER BY where rows of the answer are taken back, or are groups without bound."""
    plans = (verdict.plan, verdict.timed, verdict.over)
    reason = ""
    if plans == (None, None, None) and not verdict.blocks:
        reason = "the query is bounded only by its LIMIT"
    elif is_revised(verdict.query) or is_finite(verdict) or _takes_rows_back(verdict):
        reason = "rows of the answer change"
    if reason:
        raise MillpondError(f"a query with LIMIT but without ORDER BY is checked, but not run: {reason}")


def _takes_rows_back(verdict: Verdict) -> bool:
    return verdict.over is not None and any(need.revised for need in verdict.over.needs)


def _check_source(table: Table) -> None:
    if table.source is None:
        kind = "stream" if table.streaming else "relation"
        remedy = "say where its rows come from: USING json OPTIONS (path '…')"
        raise MillpondError(f"the {kind} {table.name} has no source", remedy=remedy)


def _check_window_functions(verdict: Verdict, memory: int | None) -> None:
    """Refuse window functions that the engine does not compute, and budgets for them."""
    if verdict.outcome != BOUNDED or memory is not None:
        raise MillpondError("a query with window functions does not run on a memory budget")
    if verdict.over is None:
        raise MillpondError("the first groups in an order are checked, but not run")
    gap = find_gap(verdict.over) if verdict.over.needs else None
    if gap is not None:
        raise MillpondError(f"the query is bounded and checked, but not run: {gap}")
    base = verdict.over.block.base
    if isinstance(base.block, Subquery):
        _check_block(verdict, base)
    else:
        _check_source(base)


def _check_block(verdict: Verdict, table: Table) -> None:
    """Refuse a block that does not run, or whose rows cannot be the input of the select that reads it."""
    if gap := _find_block_gap(verdict, table):
        name = table.name if table.name.startswith("subquery ") else f"the subquery {table.name}"
        raise MillpondError(f"{name} is checked, but not run: {gap}")
    if table.streaming:
        _check_runnable(verdict.blocks[table.name], None, None)
        return
    for each in verdict.query.declared_tables.values():
        _check_source(each)


def _find_block_gap(verdict: Verdict, table: Table) -> str | None:
    """Why the rows of a block cannot be the input of the select that reads it; None if they can."""
    if not table.streaming:
        return _find_relation_gap(table)
    block = verdict.blocks[table.name]
    if is_finite(verdict):
        return _find_finite_gap(verdict, block)
    if is_revised(block.query):
        return "its rows change as long as the stream goes on"
    if is_projection(verdict.query) and verdict.blocks.keys() == verdict.query.tables.keys():
        return None
    if any(select.session is not None for select in block.query.selects):
        return "it groups by sessions, whose rows only a filter or a projection can read"
    if any(select.session is not None for select in verdict.query.selects):
        return "its rows are grouped by sessions"
    if block.timed is not None and not any(each.parts for each in block.timed.selects):
        return "it joins relations with columns of other relations"
    if table.time is not None:
        block = plan_in_order(block)
    if block.timed is None and block.over is None:
        return "its rows have no timestamp by which they come in order"
    if verdict.plan is not None:
        return "several selects read it, and one shows its rows" if _is_shared(verdict.query, table) else None
    is_timed = verdict.timed is not None or verdict.over is not None
    if not is_timed or table.time is None:
        return "its rows have no timestamp by which they come in order"
    if block.timed is not None:
        delay = find_output_delay(block.timed, block.query.columns.index(table.time))
    else:
        delay = None if block.over is None else find_over_delay(block.over)
    return "its rows do not come in the order of time" if delay is None else None


def is_finite(verdict: Verdict) -> bool:
    """Whether a query is computed anew from the rows of its blocks, which are finitely many and change."""
    if verdict.over is not None:
        return not verdict.over.needs
    is_plain = is_projection(verdict.query) and verdict.blocks.keys() == verdict.query.tables.keys()
    return bool(verdict.blocks) and verdict.plan is None and verdict.timed is None and not is_plain


def _find_finite_gap(verdict: Verdict, block: Verdict) -> str | None:
    """Why a query is not computed from the rows of a block."""
    if verdict.over is None and verdict.query.tables.keys() != verdict.blocks.keys():
        return "its rows change, and relations are joined with them"
    if len(block.query.selects) != 1:
        return "it is a UNION whose rows change"
    if any(select.session is not None for select in verdict.query.selects):
        return "its rows are grouped by sessions"
    return None


def _find_relation_gap(table: Table) -> str | None:
    """Why Spark does not compute a subquery of relations."""
    assert isinstance(table.block, Subquery)
    if any(map(is_lookup, table.block.query.declared_tables.values())):
        return "it reads a relation that stays in its database"
    if table.block.query.limit is not None:
        return "it has LIMIT without ORDER BY"
    return None


def _is_shared(query: Query, table: Table) -> bool:
    """Whether several selects read a table, one of which shows its rows as they are."""
    reads = [
        (term, select)
        for term in query.terms
        for select in term.selects
        if any(o.table == table for o in select.every_occurrence)
    ]
    return len(reads) > 1 and any(not t.distinct and not is_aggregate(s) for t, s in reads)

"""A budget instead of a change: the query as it is, with a limit on the tuples that it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.analysis.repair.constants import Sample
from millpond.analysis.repair.model import Meaning, Repair, RepairKind
from millpond.errors import MillpondError
from millpond.query.current_time import depends_on_current_time
from millpond.query.model import Query
from millpond.query.trees import is_aggregate

if TYPE_CHECKING:
    from millpond.engines.budgeted.budget_preview import BudgetAdvice


def find_budget(query: Query, text: str, sample: Sample) -> Repair | None:
    """A budget for a query, with what it finds on a sample; None if the query does not run on one."""
    if not runs_on_budget(query):
        return None
    advice = preview_sample(query, sample)
    exact = any(is_aggregate(select) for select in query.selects)
    meaning = Meaning.APPROXIMATE if exact else Meaning.FEWER
    title = "Keep a limited number of tuples, those expected to give the most results: --memory N"
    if advice is None:
        return Repair(RepairKind.BUDGET, title, meaning, None, (), text, None)
    best = advice.suggested
    title = f"Keep at most {best.memory:,} tuples, those expected to give the most results: "
    title += f"--memory {best.memory}"
    return Repair(RepairKind.BUDGET, title, meaning, None, (), text, None, best.memory, best.part)


def runs_on_budget(query: Query) -> bool:
    """Whether a query can run with a limit on what it keeps."""
    if any(table.block is not None for table in query.tables.values()) or query.limit is not None:
        return False
    if depends_on_current_time(query):
        return False
    from millpond.engines.budgeted.plan import plan_budgeted  # here, as it imports NumPy

    try:
        plan_budgeted(query)
    except MillpondError:
        return False
    return True


def preview_sample(query: Query, sample: Sample) -> BudgetAdvice | None:
    """What budgets of several sizes find on a sample; None if it has no rows of some table."""
    if not all(table.name in sample for table in query.tables.values()):
        return None
    from millpond.engines.budgeted.budget_preview import preview_budgets  # here, as it imports DuckDB

    try:
        return preview_budgets(query, sample)
    except MillpondError:
        return None

"""Refuses subqueries that stand for a value and have not been rewritten, with the reason."""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import SqlError
from millpond.frontend.correlation import find_clause, find_correlation, has_aggregate_of, is_streaming
from millpond.frontend.scope import Names
from millpond.frontend.statement import Statement

_VALUE = "a subquery is not supported as a value"
_CLAUSES = ("expressions", "where", "having", "group")


def refuse_values(statement: Statement, names: Names) -> None:
    """Refuse the subqueries in a select list, in WHERE and in HAVING that are not joined."""
    for node in statement.tree.find_all(exp.Subquery):
        select, query = node.find_ancestor(exp.Select), node.this
        if not isinstance(select, exp.Select) or find_clause(node, select) not in _CLAUSES:
            continue
        if isinstance(node.parent, exp.In | exp.Exists | exp.Subquery | exp.SetOperation):
            continue
        reason, remedy = _explain(query, select, names)
        raise SqlError(f"{_VALUE}{reason}", statement.at(query), remedy)


def _explain(query: exp.Expr, select: exp.Select, names: Names) -> tuple[str, str | None]:
    """Why a subquery is not supported as a value, and what to write instead."""
    if not isinstance(query, exp.Select):
        return " if it is a UNION", None
    if len(query.expressions) != 1:
        return " if it selects several columns", "select one"
    if query.args.get("group"):
        return " if it has GROUP BY", None
    if not has_aggregate_of(query) and not query.args.get("limit"):
        name = query.expressions[0].alias_or_name or "…"
        return " if it may have several rows", f"write MAX({name}) or ORDER BY … LIMIT 1"
    found = find_correlation(query, select, names)
    if found is None:
        return " if it names columns around it elsewhere than in WHERE", "compare them in its WHERE"
    if found.bounds and not found.others and len(found.bounds) == 1 and is_streaming(query, names):
        return " if it compares the rows of a stream with the row around it by <, <=, > or >=", None
    if found.others or found.bounds:
        return " if it compares its rows by more than equalities and one <, <=, > or >=", None
    return " here", None

"""Reads the subqueries of WHERE: [NOT] EXISTS (SELECT …) and [NOT] IN (SELECT …)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlglot import exp

from millpond.errors import SqlError
from millpond.frontend.conditions import (
    Rest,
    compare_sides,
    conjunction,
    list_operands,
    read_in_part,
    read_row_condition,
)
from millpond.frontend.expressions import Reader, has_aggregate, strip_parentheses
from millpond.frontend.joins import FromClause, Surroundings, read_from
from millpond.frontend.refusals import accept_only, unsupported_error
from millpond.frontend.row_expressions import is_row_function
from millpond.frontend.scope import Scope
from millpond.frontend.sides import read_row_side
from millpond.frontend.statement import Statement
from millpond.query.expressions import TRUE, Condition, IsNull, Op, Or, Ref
from millpond.query.model import Exists, Occurrence
from millpond.query.normalize import find_non_null, push_negations
from millpond.query.trees import conjuncts, refs

_NULLS = "declare the columns NOT NULL if they never are"


def read_where(
    scope: Scope, where: exp.Expr | None, around: Surroundings, rest: Rest | None = None
) -> tuple[Condition, tuple[Exists, ...]]:
    """The conditions of WHERE on rows, and its subqueries, which must be operands of its topmost AND.

    Operands that cannot be read are added to ``rest``, if it is given.
    """
    if where is None:
        return TRUE, ()
    reader = Reader(scope.statement, scope)
    plain: list[exp.Expr] = []
    subqueries: list[tuple[exp.Expr, bool]] = []
    for node in list_operands(strip_parentheses(scope.statement, where.this), exp.And):
        inner, negated = _strip_negations(scope.statement, node)
        if _is_subquery(inner):
            subqueries.append((inner, negated))
        else:
            plain.append(node)
    if not subqueries:
        return read_in_part(read_row_condition, reader, where.this, rest), ()
    conditions = [read_in_part(read_row_condition, reader, node, rest) for node in plain]
    condition = conjunction(each for each in conditions if each != TRUE)
    found: list[Exists] = []
    for node, negated in subqueries:
        found.append(_SubqueryReader(scope, around, condition).read(node, negated))
    return condition, tuple(found)


def _is_subquery(node: exp.Expr) -> bool:
    """Whether a node is ``EXISTS (SELECT …)`` or ``x IN (SELECT …)``, and not ``exists(array, t -> …)``."""
    if isinstance(node, exp.Exists):
        return not is_row_function(node)
    return isinstance(node, exp.In) and node.args.get("query") is not None


def _strip_negations(statement: Statement, node: exp.Expr) -> tuple[exp.Expr, bool]:
    """The node without the NOTs and parentheses around it, and whether it is negated."""
    negated, node = False, strip_parentheses(statement, node)
    while isinstance(node, exp.Not):
        negated, node = not negated, strip_parentheses(statement, node.this)
    return node, negated


class _SubqueryReader:
    """Reads one subquery; ``condition`` is that of WHERE around it."""

    def __init__(self, scope: Scope, around: Surroundings, condition: Condition) -> None:
        self.scope = scope
        self.statement = scope.statement
        self.around = replace(around, outer=scope, alias=None, ignores_duplicates=True)
        self.condition = condition

    def read(self, node: exp.Expr, negated: bool) -> Exists:
        text, place = self.statement.slice(node), self.statement.at(node)
        if isinstance(node, exp.Exists):
            accept_only(self.statement, node, "this")
            clause, where = self._read_select(node.this)
            return Exists(clause.occurrences, where, negated, text, place)
        accept_only(self.statement, node, "this", "query")
        select = self._find_select(node.args["query"])
        clause, where = self._read_select(select)
        equal = self._read_equalities(node, select, clause.scope)
        nullable = self._find_nullable(clause, where, equal) if negated else frozenset()
        if nullable and any(occurrence.table.streaming for occurrence in clause.occurrences):
            message = "NOT IN (SELECT …) over a stream is not supported where NULL is possible"
            raise SqlError(message, self.statement.keyword_at(node, "NOT", "IN"), _NULLS)
        equal = [_or_null(each, sorted(refs(each) & nullable, key=str)) for each in equal]
        return Exists(
            clause.occurrences, conjunction([where, *equal] if where != TRUE else equal), negated, text, place
        )

    def _find_select(self, node: exp.Expr) -> exp.Select:
        while isinstance(node, exp.Subquery):
            accept_only(self.statement, node, "this")
            node = node.this
        if not isinstance(node, exp.Select):
            raise unsupported_error(self.statement, node)
        return node

    def _read_select(self, node: exp.Expr) -> tuple[FromClause, Condition]:
        """FROM and WHERE of a subquery; DISTINCT and what EXISTS selects do not matter."""
        select = self._find_select(node)
        grouping = select.args.get("group") or select.args.get("having")
        if grouping is not None or any(has_aggregate(each) for each in select.expressions):
            place = self.statement.at(select if grouping is None else grouping)
            message = "GROUP BY, HAVING and aggregates are not supported in EXISTS and IN"
            raise SqlError(message, place)
        accept_only(self.statement, select, "distinct", "expressions", "from_", "joins", "where")
        clause = read_from(self.statement, select, self.around)
        if clause.joins or clause.exists:
            raise SqlError("a subquery with an outer join is not supported", self.statement.at(select))
        where = select.args.get("where")
        conditions = [clause.condition]
        if where is not None:
            conditions.append(read_row_condition(Reader(self.statement, clause.scope), where.this))
        return clause, conjunction(each for each in conditions if each != TRUE)

    def _read_equalities(self, node: exp.Expr, select: exp.Select, inner: Scope) -> list[Condition]:
        """``x IN (SELECT y …)`` as y = x, column by column."""
        left = strip_parentheses(self.statement, node.this)
        values = left.expressions if isinstance(left, exp.Tuple) else [left]
        items = [each.this if isinstance(each, exp.Alias) else each for each in select.expressions]
        if len(items) != len(values):
            message = f"IN compares {len(values)} columns with the {len(items)} of the subquery"
            raise SqlError(message, self.statement.at(select), "select the same number of columns")
        mine, theirs = Reader(self.statement, self.scope), Reader(self.statement, inner)
        return [
            compare_sides(theirs, read_row_side(mine, value), Op.EQ, read_row_side(theirs, item), node, False)
            for value, item in zip(values, items, strict=True)
        ]

    def _find_nullable(
        self, clause: FromClause, where: Condition, equal: Iterable[Condition]
    ) -> frozenset[Ref]:
        """The columns that NOT IN compares and that can be NULL."""
        known = _find_not_null(self.scope.occurrences) | _find_not_null(clause.occurrences)
        literals = [*conjuncts(push_negations(self.condition)), *conjuncts(push_negations(where))]
        known |= find_non_null(literals)
        return frozenset(ref for each in equal for ref in refs(each)) - known


def _or_null(equal: Condition, nullable: Iterable[Ref]) -> Condition:
    """The condition, or one of the columns is NULL: then NOT IN is not true either."""
    missing = [IsNull(ref, f"{ref} IS NULL") for ref in nullable]
    return Or((equal, *missing)) if missing else equal


def _find_not_null(occurrences: Iterable[Occurrence]) -> frozenset[Ref]:
    return frozenset(Ref(o.alias, c.name) for o in occurrences for c in o.table.columns if not c.nullable)

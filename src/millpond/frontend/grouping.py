"""Reads GROUP BY and HAVING, and the aliases and windows that they may name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from millpond.errors import SqlError, SqlTypeError
from millpond.frontend.conditions import (
    Rest,
    conjunction,
    read_group_condition,
    read_in_part,
)
from millpond.frontend.constants import read_constant
from millpond.frontend.expressions import Reader, has_aggregate, strip_parentheses
from millpond.frontend.joint_arguments import JointArgumentError, refuse_lifted
from millpond.frontend.refusals import UPSTREAM, accept_only, unsupported_error
from millpond.frontend.row_expressions import (
    find_obstacle,
    is_row_expression,
    mark_as_read,
    read_row_expression,
)
from millpond.frontend.scope import Scope
from millpond.frontend.select_items import SelectItem
from millpond.frontend.time_calls import is_window_call
from millpond.frontend.time_codes import list_fields
from millpond.frontend.time_counts import read_function_of_time
from millpond.query.expressions import TRUE, And, Comparison, Condition, Literal, Or, Ref
from millpond.query.model import Select
from millpond.query.trees import conjuncts, refs
from millpond.query.types import Family


def read_group_by(scope: Scope, node: exp.Expr | None, items: Sequence[SelectItem]) -> tuple[Ref, ...] | None:
    """The columns of GROUP BY, those of expressions derived; None without a GROUP BY."""
    if node is None:
        return None
    statement = scope.statement
    accept_only(statement, node, "expressions")
    if not node.expressions:
        raise SqlError("GROUP BY has no column", statement.keyword_at(node, "GROUP"), "name the columns")
    parts = [part for each in node.expressions for part in _list_parts(scope, each, items)]
    return tuple(dict.fromkeys(_read_group_column(scope, each, items) for each in parts))


def _list_parts(scope: Scope, node: exp.Expr, items: Sequence[SelectItem]) -> list[exp.Expr]:
    """What a struct, an array, or a code of a time is built of, which gives the same groups; any other
    expression itself."""
    target = strip_parentheses(scope.statement, node)
    if isinstance(target, exp.Column) and not target.args.get("table") and not scope.knows(target):
        target = strip_parentheses(scope.statement, find_aliases(items).get(target.name.lower(), target))
    elif isinstance(target, exp.Literal) and target.is_int and 1 <= int(target.name) <= len(items):
        target = strip_parentheses(scope.statement, items[int(target.name) - 1].node)
    fields = list_fields(scope, target)
    if fields:
        mark_as_read(scope.statement, target)
        return fields
    if not isinstance(target, exp.Struct | exp.Array) or has_aggregate(target):
        return [node]
    values = [each.expression if isinstance(each, exp.PropertyEQ) else each for each in target.expressions]
    parts = [part for value in values for part in _list_parts(scope, value, ())]
    if not parts or any(each.find(exp.Column) is None for each in parts):
        return [node]
    mark_as_read(scope.statement, target)
    return parts


def _read_group_column(scope: Scope, node: exp.Expr, items: Sequence[SelectItem]) -> Ref:
    """The column that GROUP BY names, whose values can be compared."""
    ref = _find_group_column(scope, node, items)
    type_ = scope.column(ref).type
    if type_.family is Family.NESTED:
        message = f"GROUP BY {scope.statement.excerpt(node)}, which is {type_}, is not supported"
        raise SqlTypeError(message, scope.statement.at(node), "group by its fields or elements")
    return ref


def find_windows(node: exp.Select, items: Sequence[SelectItem]) -> dict[str, exp.Expr]:
    """The calls of ``window`` and ``session_window``, by their select alias or their own name."""
    own = node.walk(prune=lambda each: each is not node and isinstance(each, exp.Query | exp.With))
    calls = [each for each in own if is_window_call(each)]
    named = {i.alias.lower(): i.node for i in items if i.alias and any(call is i.node for call in calls)}
    for name in ("window", "session_window"):
        same = [each for each in calls if each.name.lower() == name]
        if len({each.sql().upper() for each in same}) == 1:
            named.setdefault(name, same[0])
    return named


def find_aliases(items: Sequence[SelectItem]) -> dict[str, exp.Expr]:
    """Select items by alias, without aliases that are given twice."""
    counts = Counter(item.alias.lower() for item in items if item.alias)
    return {i.alias.lower(): i.node for i in items if i.alias and counts[i.alias.lower()] == 1}


def read_having(
    reader: Reader, node: exp.Expr | None, items: Sequence[SelectItem], rest: Rest | None = None
) -> Condition:
    """The condition of HAVING; operands that cannot be read are added to ``rest``, if it is given."""
    if node is None:
        return TRUE
    if reader.grouped is None:
        place = reader.statement.keyword_at(node, "HAVING")
        message = "HAVING with neither GROUP BY nor an aggregate in the select list is not supported"
        raise SqlError(message, place, "put the condition in WHERE")
    reader = replace(reader, aliases=find_aliases(items))
    return read_in_part(read_group_condition, reader, node.this, rest)


def push_having(select: Select) -> Select:
    """The select with the conditions of HAVING on group columns alone in WHERE, where they bound them.

    Conditions on timestamps, OR between streams, and what WHERE does not have in this form stay in HAVING;
    so do all with an outer join or EXISTS, whose criteria take fewer conditions than those of joins.
    """
    if not select.group_by or select.session is not None or select.joins or select.exists:
        return select

    def is_on_rows(condition: Condition) -> bool:
        match condition:
            case Or() if len({each.occurrence for each in refs(condition)}) > 1:
                return False
            case And(operands=operands) | Or(operands=operands):
                return all(map(is_on_rows, operands))
            case Comparison(left=Ref() as left, right=Ref() | Literal()):
                return select.type_of(left).family is not Family.TIME
        return False

    every = conjuncts(select.having)
    pushed = [each for each in every if is_on_rows(each)]
    rest = conjunction(each for each in every if each not in pushed)
    return replace(select, where=conjunction([*conjuncts(select.where), *pushed]), having=rest)


def _find_group_column(scope: Scope, node: exp.Expr, items: Sequence[SelectItem]) -> Ref:
    """The column that a name, a position or a select alias refers to; as in Spark, columns come first."""
    statement, target = scope.statement, strip_parentheses(scope.statement, node)
    ordinal = read_constant(statement, target) if isinstance(target, exp.Literal | exp.Neg) else None
    if ordinal and isinstance(ordinal.expression, Literal) and type(ordinal.expression.value) is int:
        if not 1 <= ordinal.expression.value <= len(items):
            message = f"GROUP BY {statement.excerpt(node)} is not a position in the select list"
            raise SqlError(message, statement.at(node), f"write 1 to {len(items)}, or a column")
        item = items[ordinal.expression.value - 1]
        if item.column:
            if item.column.ref is None:
                raise SqlError(f"GROUP BY {item.column.name} is not supported", statement.at(node), UPSTREAM)
            return item.column.ref
        target = strip_parentheses(statement, item.node)
    elif isinstance(target, exp.Column) and not target.args.get("table") and not scope.knows(target):
        target = strip_parentheses(statement, find_aliases(items).get(target.name.lower(), target))
    called = read_function_of_time(scope, target, grouped=True)
    if (
        called is not None
    ):  # the end of a window, which is a fixed time after its start, gives the same groups
        return next(iter(refs(called.expression)))
    if isinstance(target, exp.Column) and not isinstance(target.this, exp.Star):
        return scope.find_column(target)[0]
    derived = read_row_expression(scope, target)
    if derived is not None:
        assert isinstance(derived.expression, Ref)
        return derived.expression
    if is_row_expression(target):  # over several tables, or over one that an outer join can replace by NULLs
        refuse_lifted(scope, [target])
        raise JointArgumentError(scope)
    obstacle = find_obstacle(target)
    is_named = isinstance(obstacle, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Func | exp.Window)
    if is_named and (isinstance(obstacle, exp.Window) or not has_aggregate(target)):
        raise unsupported_error(statement, obstacle)
    message = f"GROUP BY {statement.excerpt(node)} is not supported"
    raise SqlError(message, statement.at(node), UPSTREAM)

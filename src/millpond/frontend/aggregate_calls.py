"""Reads calls of aggregates from sqlglot's nodes: which function, of which arguments, and its column's name.

Several functions are read as another one that gives the same result: COUNT_IF(c) as
COUNT(CASE WHEN c THEN 1 END), BOOL_AND and BOOL_OR as MIN and MAX of a BOOLEAN, FIRST and LAST as MIN_BY and
MAX_BY of the time column, ANY_VALUE as MIN, and FILTER as a CASE, because aggregates ignore NULL.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from millpond.errors import SqlError, one_line
from millpond.frontend.constants import read_constant
from millpond.frontend.refusals import accept_only, unsupported_error
from millpond.frontend.row_expressions import mark_as_read
from millpond.frontend.scope import Scope
from millpond.frontend.spark_names import name_expression
from millpond.frontend.statement import AGGREGATES, Statement
from millpond.query.aggregate_functions import ORDERED
from millpond.query.expressions import Literal, Ref
from millpond.query.types import decimal

# Functions that sqlglot does not know, or has no node for.
_OTHER_NAMES: dict[str, type[exp.Expr]] = {
    "every": exp.LogicalAnd,
    "some": exp.LogicalOr,
    "std": exp.StddevSamp,
    "mean": exp.Avg,
}
_NAMES: dict[type[exp.Expr], str] = {
    **{exp.Count: "COUNT", exp.Sum: "SUM", exp.Avg: "AVG", exp.Min: "MIN", exp.Max: "MAX"},
    **{exp.Median: "MEDIAN", exp.LogicalAnd: "MIN", exp.LogicalOr: "MAX", exp.AnyValue: "MIN"},
    **{exp.Variance: "VAR_SAMP", exp.VariancePop: "VAR_POP", exp.StddevPop: "STDDEV_POP"},
    **{exp.Stddev: "STDDEV_SAMP", exp.StddevSamp: "STDDEV_SAMP", exp.Corr: "CORR"},
    **{exp.CovarPop: "COVAR_POP", exp.CovarSamp: "COVAR_SAMP", exp.ArgMin: "MIN_BY", exp.ArgMax: "MAX_BY"},
    **{exp.First: "MIN_BY", exp.FirstValue: "MIN_BY", exp.Last: "MAX_BY", exp.LastValue: "MAX_BY"},
    **{exp.Quantile: "PERCENTILE", exp.ApproxQuantile: "PERCENTILE_APPROX", exp.CountIf: "COUNT"},
    **{exp.PercentileCont: "PERCENTILE", exp.PercentileDisc: "PERCENTILE_DISC"},
    **{exp.ArrayAgg: "COLLECT_LIST", exp.ArrayUniqueAgg: "COLLECT_SET"},
    exp.ApproxDistinct: "APPROX_COUNT_DISTINCT",
}
# Stands for the arguments in the name of a call.
_ARGUMENTS = "\0"
_BY_TIME = (exp.First, exp.FirstValue, exp.Last, exp.LastValue)
_CONDITIONS = (exp.LogicalAnd, exp.LogicalOr)
_PAIRS = (exp.Corr, exp.CovarPop, exp.CovarSamp, exp.ArgMin, exp.ArgMax)
_QUANTILES = (exp.Quantile, exp.ApproxQuantile)
_NUMERIC = ("SUM", "AVG", "MEDIAN", "PERCENTILE", "PERCENTILE_DISC", "PERCENTILE_APPROX")
_MOMENTS = ("VAR_SAMP", "VAR_POP", "STDDEV_SAMP", "STDDEV_POP", "CORR", "COVAR_POP", "COVAR_SAMP")
# With DISTINCT: another function, or the same with its flag; others are refused.
_DISTINCT = ("COUNT", "SUM", "AVG")
_WITHOUT_EFFECT = ("MIN", "MAX", "COLLECT_SET", "MIN_BY", "MAX_BY", "APPROX_COUNT_DISTINCT")


@dataclass(frozen=True)
class AggregateCall:
    """A call as it is read.  ``arguments`` are nodes over one row, none for COUNT(*).

    ``numeric`` and ``boolean`` say what the arguments must be.
    """

    function: str
    arguments: tuple[exp.Expr, ...]
    name: str
    distinct: bool = False
    constants: tuple[Literal, ...] = ()
    numeric: bool = False
    boolean: bool = False

    def fill_name(self, arguments: Iterable[str]) -> str:
        """The name that Spark gives to the column, with the names of the arguments."""
        return self.name.replace(_ARGUMENTS, ", ".join(arguments))


def name_aggregates(tree: exp.Expr) -> exp.Expr:
    """The tree with sqlglot's nodes for aggregates that it reads as unknown functions or as ANY (…)."""

    def change(node: exp.Expr) -> exp.Expr:
        kind = _OTHER_NAMES.get(node.name.lower()) if isinstance(node, exp.Anonymous) else None
        if kind is not None and len(node.expressions) == 1:
            called = kind(this=node.expressions[0])
        elif isinstance(node, exp.Any) and isinstance(node.this, exp.Paren) and not _is_compared(node):
            called = exp.LogicalOr(this=node.this.this)
        else:
            return node
        called.meta.update(node.meta)
        return called

    return tree.transform(change, copy=False)


def _is_compared(node: exp.Expr) -> bool:
    """``x = ANY (…)`` compares with each of several values; ``any(x)`` alone is an aggregate."""
    is_right = isinstance(node.parent, exp.Binary) and node.arg_key == "expression"
    return is_right and not isinstance(node.parent, exp.Connector)


def read_aggregate_call(scope: Scope, node: exp.Expr) -> AggregateCall:
    """The aggregate that a node calls, with its FILTER."""
    statement = scope.statement
    if isinstance(node, exp.Filter):
        accept_only(statement, node, "this", "expression")
        if not isinstance(node.this, AGGREGATES):
            raise unsupported_error(statement, node.this)
        mark_as_read(statement, node)
        condition = node.expression.this
        call = _add_condition(statement, node, read_aggregate_call(scope, node.this), condition)
        return replace(call, name=f"{call.name} FILTER (WHERE {name_expression(statement, condition)})")
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        return _read_null_treatment(scope, node)
    call = _read_within_group(scope, node) if isinstance(node, exp.WithinGroup) else _read_call(scope, node)
    for argument in call.arguments:
        inner = argument.find(*AGGREGATES)
        if inner is not None:
            message = f"{_find_name(statement, inner).upper()} inside {_find_name(statement, node).upper()}"
            raise SqlError(f"{message} is not supported", statement.at(inner))
    return call


def _add_condition(
    statement: Statement, node: exp.Expr, call: AggregateCall, condition: exp.Expr
) -> AggregateCall:
    """The call over the rows that fulfil a condition: NULL in place of what it must not see."""
    gate = 1 if call.function in ORDERED else 0
    value = statement.copy(call.arguments[gate]) if call.arguments else exp.Literal.number(1)
    chosen = _choose(statement, node, condition, value)
    arguments = (*call.arguments[:gate], chosen, *call.arguments[gate + 1 :])
    name = call.fill_name(name_expression(statement, each) for each in call.arguments)
    return replace(call, arguments=arguments, name=name)


def _read_null_treatment(scope: Scope, node: exp.Expr) -> AggregateCall:
    """``FIRST(x) IGNORE NULLS`` takes the first value; other aggregates ignore NULL anyway."""
    statement, inner = scope.statement, node.this
    call = read_aggregate_call(scope, inner)
    mark_as_read(statement, node)
    if isinstance(node, exp.RespectNulls):
        if type(inner) in _BY_TIME:
            return call
        raise unsupported_error(statement, node)
    if type(inner) not in _BY_TIME:
        return call
    given = exp.Not(this=exp.Is(this=call.arguments[0].copy(), expression=exp.Null()))
    return _add_condition(statement, node, call, given)


def _read_within_group(scope: Scope, node: exp.Expr) -> AggregateCall:
    """``PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)``"""
    statement, inner, order = scope.statement, node.this, node.expression
    ordered = order.expressions[0] if isinstance(order, exp.Order) and len(order.expressions) == 1 else None
    if not isinstance(inner, exp.PercentileCont | exp.PercentileDisc) or ordered is None:
        raise unsupported_error(statement, node)
    mark_as_read(statement, node)
    fraction = _read_fraction(scope, inner.this)
    if ordered.args.get("desc"):
        if isinstance(inner, exp.PercentileDisc):
            raise SqlError("PERCENTILE_DISC in descending order is not supported", statement.at(node))
        fraction = Literal(1 - Decimal(str(fraction.value)), fraction.type)
    function = _NAMES[type(inner)]
    direction = " DESC" if ordered.args.get("desc") else ""
    share = name_expression(statement, inner.this)
    name = f"{_find_name(statement, inner)}({share}) WITHIN GROUP (ORDER BY {_ARGUMENTS}{direction})"
    return AggregateCall(function, (ordered.this,), name, constants=(fraction,), numeric=True)


def _read_call(scope: Scope, node: exp.Expr) -> AggregateCall:
    statement, called = scope.statement, _find_name(scope.statement, node)
    function = _NAMES[type(node)]
    accept_only(statement, node, *_KNOWN.get(type(node), ()), "this", "big_int")
    mark_as_read(statement, node)
    arguments, distinct = _read_arguments(statement, node, called.upper())
    name = f"{called}({'DISTINCT ' if distinct else ''}{_ARGUMENTS})"
    if node.args.get("expressions"):  # COUNT(a, b), which is read as a CASE
        every = (node.this, *node.expressions)
        name = f"{called}({', '.join(name_expression(statement, each) for each in every)})"
    if isinstance(node, exp.CountIf):
        arguments = (_choose(statement, node, arguments[0], exp.Literal.number(1)),)
        return AggregateCall("COUNT", arguments, f"{called}({name_expression(statement, node.this)})")
    constants: tuple[Literal, ...] = ()
    if isinstance(node, _QUANTILES):
        constants = (_read_fraction(scope, node.args["quantile"]),)
        share = name_expression(statement, node.args["quantile"])
        last = "1" if type(node) is exp.Quantile else "10000"
        given = node.args.get("accuracy")
        last = last if given is None else name_expression(statement, given)
        name = f"{called}({_ARGUMENTS}, {share}, {last})"
    accuracy = node.args.get("accuracy")
    if accuracy is not None:
        constants = (*constants, _read_number(scope, accuracy))
    if type(node) in _BY_TIME:
        arguments = (*arguments, _find_time(scope, node, called.upper()))
        name = f"{called}({name_expression(statement, arguments[0])})"
    if isinstance(node, exp.AnyValue) and sum(o.table.streaming for o in scope.occurrences) > 1:
        raise SqlError("ANY_VALUE over a join of streams is not supported", statement.at(node))
    if distinct and function == "COLLECT_LIST":
        function, distinct = "COLLECT_SET", False
    if isinstance(node, exp.ArrayAgg | exp.ArrayUniqueAgg):
        name = f"{function.lower()}({_ARGUMENTS})"
    if distinct and function not in (*_DISTINCT, *_WITHOUT_EFFECT):
        raise SqlError(f"{called.upper()}(DISTINCT …) is not supported", statement.at(node))
    return AggregateCall(
        function,
        arguments,
        name,
        distinct and function in _DISTINCT,
        constants,
        numeric=function in (*_NUMERIC, *_MOMENTS),
        boolean=isinstance(node, _CONDITIONS),
    )


# Arguments that calls have besides ``this``.
_KNOWN: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Count: ("expressions",),
    exp.ArrayAgg: ("nulls_excluded",),
    **dict.fromkeys(_PAIRS, ("expression",)),
    **dict.fromkeys(_QUANTILES, ("quantile", "accuracy")),
    exp.ApproxDistinct: ("accuracy",),
}


def _read_arguments(statement: Statement, node: exp.Expr, called: str) -> tuple[tuple[exp.Expr, ...], bool]:
    """The arguments, and whether they are DISTINCT; none for COUNT(*)."""
    first, place = node.args.get("this"), statement.at(node)
    distinct = isinstance(first, exp.Distinct)
    if isinstance(first, exp.Distinct):
        accept_only(statement, first, "expressions")
        found = list(first.expressions)
        if len(found) != 1 and not isinstance(node, exp.Count):
            raise SqlError(f"{called}(DISTINCT …) of several columns is not supported", place)
    else:
        found = [] if first is None else [first]
    if not found:
        raise SqlError(f"{called} has no argument", place, "write COUNT(*) or name a column")
    needed = "expression" if isinstance(node, _PAIRS) else "quantile" if isinstance(node, _QUANTILES) else ""
    if needed and node.args.get(needed) is None:
        raise SqlError(f"{called} needs two arguments", place)
    if isinstance(node, _PAIRS):
        found.append(node.expression)
    for each in found:
        is_plain = isinstance(each, exp.Star) and (distinct or not isinstance(node, exp.Count))
        if is_plain or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
            raise SqlError(f"{called} of * is not supported", statement.at(each), "name a column")
    if isinstance(first, exp.Star):
        accept_only(statement, first)
        return (), False
    if node.args.get("expressions"):  # COUNT(a, b) counts the rows in which none is NULL
        every = [first, *node.expressions]
        given = [exp.Not(this=exp.Is(this=statement.copy(each), expression=exp.Null())) for each in every]
        return (_choose(statement, node, exp.and_(*given, copy=False), exp.Literal.number(1)),), False
    return tuple(found), distinct


def _choose(statement: Statement, node: exp.Expr, condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    """``CASE WHEN condition THEN value END``"""
    chosen = exp.Case(ifs=[exp.If(this=statement.copy(condition), true=value)])
    chosen.parent = node  # its place in the statement
    return chosen


def _find_name(statement: Statement, node: exp.Expr) -> str:
    """The function as it is called, in lower case."""
    first, _ = statement.span(node)
    is_called = statement.word(first + 1) == "(" and statement.word(first).isidentifier()
    return statement.word(first).lower() if is_called else _NAMES.get(type(node), type(node).__name__).lower()


def _read_number(scope: Scope, node: exp.Expr) -> Literal:
    """A constant number."""
    found = read_constant(scope.statement, node)
    literal = found.expression if found is not None else None
    if not isinstance(literal, Literal) or type(literal.value) not in (int, float, Decimal):
        message = f"{scope.statement.excerpt(node)} is not a constant number"
        raise SqlError(message, scope.statement.at(node))
    return literal


def _read_fraction(scope: Scope, node: exp.Expr) -> Literal:
    """A constant from 0 to 1."""
    found = read_constant(scope.statement, node)
    value = found.expression.value if found and isinstance(found.expression, Literal) else None
    try:
        fraction = Decimal(str(value)) if type(value) in (int, float, Decimal) else None
    except InvalidOperation:
        fraction = None
    if fraction is None or not 0 <= fraction <= 1:
        message = f"{scope.statement.excerpt(node)} is not a constant from 0 to 1"
        remedy = "write one aggregate for each fraction" if isinstance(node, exp.Array) else "write 0.5"
        raise SqlError(message, scope.statement.at(node), remedy)
    digits = max(-int(fraction.as_tuple().exponent), 1)
    return Literal(fraction, decimal(digits + 1, digits))


def _find_time(scope: Scope, node: exp.Expr, called: str) -> exp.Expr:
    """The time column of the only stream, by which FIRST and LAST order the rows."""
    streams = [o for o in scope.occurrences if o.table.streaming]
    place = scope.statement.at(node)
    if len(streams) != 1:
        raise SqlError(f"{called} over a join of streams is not supported", place)
    (stream,) = streams
    if stream.table.time is None:
        name = one_line(stream.table.name)
        raise SqlError(f"{called} chooses a row by its time, but {name} has no TIMESTAMP column", place)
    return scope.make_column(Ref(stream.alias, stream.table.time), node)
